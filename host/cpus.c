/*
 * Reads the lists in /sys/devices/system/cpu. Owns nothing. Any thread. Happy path: one short line.
 * Failure mode: no such file, as in a container without /sys: then every CPU is possible and
 * online.
 */
#include "host/cpus.h"

#include <ctype.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "host/sysfs.h"

static bool read_cpu_list(const char *name, char *text, size_t bytes)
{
	return sysfs_line(text, bytes, "/sys/devices/system/cpu/%s", name);
}

bool cpu_list_has(const char *text, unsigned cpu)
{
	char *end;

	while (isdigit((unsigned char)*text)) {
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (cpu >= first && cpu <= last)
			return true;
		text = *end == ',' ? end + 1 : end;
	}
	return false;
}

static bool is_listed(const char *name, unsigned cpu)
{
	char text[4096];

	return !read_cpu_list(name, text, sizeof(text)) || cpu_list_has(text, cpu);
}

bool cpu_is_possible(unsigned cpu)
{
	return cpu < CPU_SETSIZE && is_listed("possible", cpu);
}

unsigned cpu_possible_nr(void)
{
	char text[4096], *last;

	read_cpu_list("possible", text, sizeof(text));
	/* The last number in "0-3" or "0,2-7". */
	last = text + strlen(text);
	while (last > text && isdigit((unsigned char)last[-1]))
		last--;
	return (unsigned)strtoul(last, NULL, 10) + 1;
}

const char *cpu_why_not(unsigned cpu)
{
	cpu_set_t allowed;

	if (!is_listed("present", cpu))
		return "is not present";
	if (!is_listed("online", cpu))
		return "is offline";
	if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && !CPU_ISSET(cpu, &allowed))
		return "is not one this daemon may run on (its control group or affinity)";
	return NULL;
}
