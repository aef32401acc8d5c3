/*
 * Prints flight recorders, or writes them as a trace. Asks no daemon: what it reads may be all that
 * is left of one. Failure modes: no recorder there, or none that can be read: an error with the
 * path.
 */
#include "ublkctl/ctl_commands.h"

#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "storage/backend.h"
#include "base/errname.h"
#include "base/util.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/flight_log.h"
#include "daemon/runtime/path.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/flight_perfetto.h"
#include "ublkctl/print/say.h"
#include "ublkctl/print/table.h"
#include "base/format.h"

/* ---- finding and reading ---- */

static const char *why_not(const char *path, int err)
{
	struct stat st;

	if (err == -EBADMSG)
		return "not a flight recorder file of this version";
	/*
	 * base/flight.c makes such a link where it has no room for a file. ESRCH: the process has
	 * ended and nobody has waited for it yet.
	 */
	if ((err == -ENOENT || err == -ESRCH) && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		return "lost with the memory of a daemon that has exited; its folder was full when "
		       "it "
		       "started";
	return strerror(-err);
}

static int add_file(struct flight_log *log, const char *path, uint32_t *pid)
{
	struct flight_file *file;
	uint64_t head_after;
	int ret = flight_log_load(path, &file, &head_after);

	if (ret < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", path, why_not(path, ret));
		return ret;
	}
	/* An older daemon that had more reactors left files behind. */
	if (*pid && file->pid != *pid)
		say_to(stderr, "ublkctl: %s: skipped: it is of another run, pid %u instead of %u\n",
		       path, file->pid, *pid);
	else
		ret = flight_log_add(log, file, head_after);
	if (!*pid)
		*pid = file->pid;
	free(file);
	return ret;
}

static bool is_recorder(const char *path)
{
	const char *digits = strrchr(path, '-') + 1;

	return *digits && digits[strspn(digits, "0123456789")] == '\0';
}

/* Sorted, so that flight-0 comes first: every run makes that one. */
static int add_beside(struct flight_log *log, const char *socket_path)
{
	char folder[PATH_MAX], pattern[PATH_MAX + 16];
	uint32_t pid = 0;
	int ret = -ENOENT;
	glob_t found;

	path_folder(socket_path, folder);
	snprintf(pattern, sizeof(pattern), "%s/flight-*", folder);
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			if (is_recorder(found.gl_pathv[i]) &&
			    add_file(log, found.gl_pathv[i], &pid) == 0)
				ret = 0;
		globfree(&found);
	}
	if (ret < 0)
		say_to(stderr,
		       "ublkctl: no readable flight recorder in %s: give the control socket with "
		       "--socket PATH, or a file, and run as root\n",
		       folder);
	return ret;
}

/* ---- printing ---- */

static const char *value_text(const struct flight_record *r, char buf[static FORMAT_BYTES])
{
	if (r->key.event == FLIGHT_FETCH)
		return format_bytes((uint32_t)r->value, buf);
	if (r->value < 0)
		return errname(r->value);
	if (r->key.event == FLIGHT_COMMIT && r->value > 0)
		return format_bytes((uint32_t)r->value, buf);
	return r->key.event == FLIGHT_BUSY ? "" : "ok";
}

/* "2026-11-21 10:53:08.123456789" */
static void format_wall(int64_t wall_ns, char *buf, size_t bytes)
{
	time_t seconds = (time_t)(wall_ns / (int64_t)NS_PER_SEC);
	struct tm tm = { 0 };
	size_t len;

	localtime_r(&seconds, &tm);
	len = strftime(buf, bytes, "%F %T", &tm);
	snprintf(buf + len, bytes - len, ".%09lld",
		 llabs((long long)(wall_ns % (int64_t)NS_PER_SEC)));
}

/* Not a table: there can be a million lines. */
static void print_line(const struct flight_line *line)
{
	const struct flight_record *r = &line->record;
	char wall[64], value[FORMAT_BYTES], latency[FORMAT_BYTES];
	bool has_request = r->key.event != FLIGHT_ABORT;

	format_wall(line->wall_ns, wall, sizeof(wall));
	say_to(stdout, "%s  %-12s %5u %5u  %-12s  %-6s  ", wall, line->name, r->key.queue,
	       r->key.tag, has_request ? backend_op_name(r->key.op) : "-",
	       flight_event_name(r->key.event));
	if (has_request)
		say_to(stdout, "%12llu  ", (unsigned long long)r->sector);
	else
		say_to(stdout, "%12s  ", "-");
	say_to(stdout, "%-9s  %s\n", value_text(r, value),
	       line->latency_ns ? format_ns(line->latency_ns, latency) : "");
}

static json_t *json_line(const struct flight_line *line)
{
	const struct flight_record *r = &line->record;
	json_t *o =
		json_pack("{s:I, s:I, s:o, s:i, s:i, s:i, s:i, s:s, s:I}", "time_ns",
			  (json_int_t)r->time_ns, "wall_ns", (json_int_t)line->wall_ns, "name",
			  json_words(line->name), "id", (int)r->key.device, "queue",
			  (int)r->key.queue, "tag", (int)r->key.tag, "reactor", (int)line->reactor,
			  "event", flight_event_name(r->key.event), "value", (json_int_t)r->value);

	if (r->key.event != FLIGHT_ABORT) {
		json_object_set_new(o, "op", json_string(backend_op_name(r->key.op)));
		json_object_set_new(o, "sector", json_integer((json_int_t)r->sector));
	}
	if (r->key.event == FLIGHT_FETCH)
		json_object_set_new(o, "value", json_integer((uint32_t)r->value));
	if (r->key.event != FLIGHT_FETCH && r->value < 0)
		json_object_set_new(o, "error", json_string(errname(r->value)));
	if (line->latency_ns)
		json_object_set_new(o, "latency_ns", json_integer((json_int_t)line->latency_ns));
	return o;
}

static void tell_left_out(const struct flight_log *log)
{
	if (log->torn)
		say_to(stderr, "ublkctl: %llu invalid records were skipped\n",
		       (unsigned long long)log->torn);
	if (log->overwritten)
		say_to(stderr, "ublkctl: %llu records were overwritten during the read\n",
		       (unsigned long long)log->overwritten);
}

static void print_log(const struct flight_log *log, size_t from)
{
	if (log->nr == 0) {
		say_to(stdout, "no events\n");
		return;
	}
	table_say(TABLE_BOLD, "%-29s  %-12s %5s %5s  %-12s  %-6s  %12s  %-9s  %s", "TIME", "DEVICE",
		  "QUEUE", "TAG", "OP", "EVENT", "SECTOR", "RESULT", "LATENCY");
	putchar('\n');
	for (size_t i = from; i < log->nr; i++)
		print_line(&log->lines[i]);
}

static void print_log_as_json(const struct flight_log *log, size_t from)
{
	json_t *lines = json_array(), *all;

	for (size_t i = from; i < log->nr; i++)
		json_array_append_new(lines, json_line(&log->lines[i]));
	all = json_pack("{s:o, s:I, s:I}", "events", lines, "torn", (json_int_t)log->torn,
			"overwritten", (json_int_t)log->overwritten);
	print_json(all);
	json_decref(all);
}

static enum exit_code write_trace(struct flight_log *log, const char *path)
{
	FILE *file = fopen(path, "we");
	size_t nr = log->nr;
	int ret = file ? perfetto_write(file, log) : -errno;

	if (ret < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", path, strerror(-ret));
		return EXIT_REFUSED;
	}
	say_to(stdout, "%s: %zu events; open it in https://ui.perfetto.dev\n", path, nr);
	return EXIT_DONE;
}

static enum exit_code show_log(const struct ublkctl_args *a, struct flight_log *log)
{
	size_t from = a->count && a->count < log->nr ? log->nr - a->count : 0;

	tell_left_out(log);
	if (a->perfetto)
		return write_trace(log, a->perfetto);
	if (a->json)
		print_log_as_json(log, from);
	else
		print_log(log, from);
	return EXIT_DONE;
}

enum exit_code ublkctl_flight(const struct ublkctl_args *a)
{
	struct flight_log log = { 0 };
	enum exit_code code = EXIT_REFUSED;
	uint32_t pid = 0;
	int ret = a->name ? add_file(&log, a->name, &pid) : add_beside(&log, a->socket_path);

	if (ret == 0) {
		flight_log_finish(&log);
		code = show_log(a, &log);
	}
	flight_log_fini(&log);
	return code;
}
