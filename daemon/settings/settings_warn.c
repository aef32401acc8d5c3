/*
 * What of a valid configuration does not fit this machine as it is now. Main thread. Happy path:
 * nothing to say. Failure mode: what cannot be found out is not told.
 */
#include <stdio.h>

#include "backends/mem/mem_available.h"
#include "base/log.h"
#include "host/cpus.h"
#include "daemon/settings/settings.h"

struct teller {
	const char *path;
	bool to_log;
};

static void warn_line(const struct teller *t, const char *line)
{
	if (t->to_log)
		log_warn("configuration", "file=\"%s\" warning=\"%s\"", t->path, line);
	else
		fprintf(stderr, "%s: warning: %s\n", t->path, line);
}

static void warn_cpus(const struct settings *s, const struct teller *t)
{
	const struct option_cpus *cpus = &s->daemon.reactors;
	char line[256];

	for (unsigned i = 0; i < cpus->nr; i++) {
		const char *why = cpu_why_not(cpus->cpu[i]);

		if (!why)
			continue;
		snprintf(line, sizeof(line),
			 "reactors: CPU %u %s: its reactor runs on other CPUs until it can",
			 cpus->cpu[i], why);
		warn_line(t, line);
	}
}

/* Of all mem backends; saturates. */
static uint64_t content_bytes(const struct settings *s)
{
	uint64_t all = 0;

	for (size_t i = 0; i < s->device_nr; i++)
		if (s->devices[i] &&
		    __builtin_add_overflow(all, backend_spec_memory_bytes(s->devices[i]->backend),
					   &all))
			return UINT64_MAX;
	return all;
}

static void warn_memory(const struct settings *s, const struct teller *t)
{
	uint64_t bytes = content_bytes(s);
	struct memory_look look;
	char line[320];

	memory_look(&look, "", 0);
	if (look.limit_bytes == UINT64_MAX ||
	    bytes <= look.limit_bytes - memory_margin(look.limit_bytes))
		return;
	snprintf(
		line, sizeof(line),
		"devices: those of type mem can come to hold %llu MiB, and %s has %llu MiB: writes "
		"fail with ENOSPC when no memory is left",
		(unsigned long long)(bytes >> 20), look.whose,
		(unsigned long long)(look.limit_bytes >> 20));
	warn_line(t, line);
}

void settings_warn(const struct settings *s, const char *path, bool to_log)
{
	struct teller t = { .path = path, .to_log = to_log };

	warn_cpus(s, &t);
	warn_memory(s, &t);
}
