/*
 * Answers of ublkd as people read them. Nothing is owned. What is missing in an answer (another
 * version of ublkd) shows as 0 or "".
 */
#include "ublkctl/ctl_print.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "ublkctl/table.h"
#include "base/format.h"

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static enum table_color state_color(const char *state)
{
	if (strcmp(state, "live") == 0)
		return TABLE_GREEN;
	return strcmp(state, "failed") == 0 ? TABLE_RED : TABLE_YELLOW;
}

static void list_row(struct table *t, const json_t *d)
{
	const char *path = text(d, "path");
	char size[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", text(d, "name"));
	table_cell(t, state_color(text(d, "state")), "%s", text(d, "state"));
	table_cell(t, TABLE_PLAIN, "%s", path[0] ? path : "-");
	table_cell(t, TABLE_PLAIN, "%s", format_bytes((uint64_t)number(d, "size_bytes"), size));
	table_cell(t, TABLE_PLAIN, "%s", text(d, "backend"));
	table_cell(t, TABLE_PLAIN, "%lld", number(d, "queues"));
	table_cell(t, TABLE_PLAIN, "%lld", number(d, "depth"));
	table_cell(t, TABLE_PLAIN, "%lld", number(d, "block_bytes"));
}

void ctl_print_list(const json_t *devices)
{
	static const char *const head[] = { "NAME",    "STATE",	 "PATH",  "SIZE",
					    "BACKEND", "QUEUES", "DEPTH", "BLOCK" };
	struct table t;
	json_t *d;
	size_t i;

	if (json_array_size(devices) == 0) {
		printf("no devices\n");
		return;
	}
	table_init(&t, "lllrlrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(devices, i, d) list_row(&t, d);
	table_print(&t);
	table_fini(&t);
	json_array_foreach(devices, i, d) if (text(d, "error")[0])
		printf("%s: %s\n", text(d, "name"), text(d, "error"));
}

static void print_value(const char *key, const json_t *value)
{
	size_t len = strlen(key);
	char size[FORMAT_BYTES];
	const char *item_text;
	json_t *item;
	size_t i;

	if (json_is_integer(value) && len > 6 && strstr(key, "_bytes")) {
		printf("%s", format_bytes((uint64_t)json_integer_value(value), size));
	} else if (json_is_integer(value)) {
		printf("%lld", (long long)json_integer_value(value));
	} else if (json_is_string(value)) {
		printf("%s", json_string_value(value));
	} else if (json_is_real(value)) {
		printf("%g", json_real_value(value));
	} else if (json_is_boolean(value)) {
		printf("%s", json_is_true(value) ? "yes" : "no");
	} else {
		json_array_foreach(value, i, item)
		{
			item_text = json_string_value(item);
			if (item_text)
				printf("%s%s", i ? " " : "", item_text);
			else
				printf("%s%lld", i ? " " : "", (long long)json_integer_value(item));
		}
	}
	putchar('\n');
}

/* Options of a backend that say nothing: no limit, no burst, no name. */
static bool says_nothing(const char *key, const json_t *value)
{
	const char *suffix = strstr(key, "_max_length");

	if (json_is_integer(value))
		return json_integer_value(value) == (suffix ? 1 : 0);
	return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
}

static void print_key(const char *prefix, const char *key)
{
	char name[64];

	snprintf(name, sizeof(name), "%s%s", prefix, key);
	printf("%s%-21s%s ", table_color_on(TABLE_BOLD), name, table_color_off());
}

/* A map among the options: "nbd.tls.username". */
static void print_map(const char *before, const char *name, const json_t *map)
{
	char prefix[64];
	json_t *value;
	const char *key;

	snprintf(prefix, sizeof(prefix), "%s%s.", before, name);
	json_object_foreach((json_t *)map, key, value)
	{
		if (says_nothing(key, value))
			continue;
		print_key(prefix, key);
		print_value(key, value);
	}
}

/* "file.path": each option after the name of its backend, from the top of the stack down. */
static void print_backend(const json_t *options)
{
	char prefix[32];
	json_t *value;
	const char *key;

	snprintf(prefix, sizeof(prefix), "%s.", text(options, "type"));
	json_object_foreach((json_t *)options, key, value)
	{
		if (strcmp(key, "type") == 0 || strcmp(key, "backend") == 0 ||
		    says_nothing(key, value))
			continue;
		if (json_is_object(value)) {
			print_map(prefix, key, value);
			continue;
		}
		print_key(prefix, key);
		print_value(key, value);
	}
	value = json_object_get(options, "backend");
	if (json_is_object(value))
		print_backend(value);
}

static void print_object(const json_t *object)
{
	json_t *value;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		if (json_is_object(value)) {
			print_backend(value);
			continue;
		}
		/* They have a table of their own. */
		if (strcmp(key, "connections") == 0 ||
		    (json_is_string(value) && json_string_length(value) == 0))
			continue;
		print_key("", key);
		print_value(key, value);
	}
}

static void count_cell(struct table *t, const json_t *o, const char *key)
{
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", format_count((double)number(o, key), buf));
}

/* How many of the one there are to each of the other. */
static void ratio_cell(struct table *t, const json_t *o, const char *key, const char *per)
{
	double nr = (double)number(o, per);

	table_cell(t, TABLE_PLAIN, "%.1f", nr > 0 ? (double)number(o, key) / nr : 0.0);
}

static void times_cell(struct table *t, const json_t *times)
{
	char p50[FORMAT_BYTES], p99[FORMAT_BYTES];

	if (number(times, "count") == 0)
		table_cell(t, TABLE_DIM, "-");
	else
		table_cell(t, TABLE_PLAIN, "%s %s",
			   format_ns((uint64_t)number(times, "p50_ns"), p50),
			   format_ns((uint64_t)number(times, "p99_ns"), p99));
}

static void connection_row(struct table *t, const json_t *c)
{
	bool up = strcmp(text(c, "state"), "connected") == 0;
	const char *end = text(c, "last_end");
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%lld", number(c, "queue"));
	table_cell(t, TABLE_PLAIN, "%lld", number(c, "connection"));
	if (json_object_get(c, "next_try_in_ns"))
		table_cell(t, TABLE_YELLOW, "%s, %s more", text(c, "state"),
			   format_ns((uint64_t)number(c, "next_try_in_ns"), buf));
	else
		table_cell(t, up ? TABLE_GREEN : TABLE_YELLOW, "%s", text(c, "state"));
	table_cell(t, TABLE_PLAIN, "%s", format_ns((uint64_t)number(c, "state_ns"), buf));
	count_cell(t, c, "connects");
	count_cell(t, c, "lost");
	count_cell(t, c, "failed_tries");
	table_cell(t, end[0] ? TABLE_PLAIN : TABLE_DIM, "%s", end[0] ? end : "-");
	count_cell(t, c, "resent");
	count_cell(t, c, "answered");
	table_cell(t, TABLE_PLAIN, "%s", format_bytes((uint64_t)number(c, "sent_bytes"), buf));
	ratio_cell(t, c, "answered", "sends");
	table_cell(t, TABLE_PLAIN, "%s", format_bytes((uint64_t)number(c, "received_bytes"), buf));
	ratio_cell(t, c, "answered", "receives");
	times_cell(t, json_object_get(c, "wait"));
	times_cell(t, json_object_get(c, "answer"));
}

static void print_connections(const json_t *connections)
{
	static const char *const head[] = {
		"QUEUE",    "CONN",	"STATE",	"SINCE",	 "CONNECTS", "LOST",
		"FAILED",   "LAST END", "RESENT",	"ANSWERED",	 "SENT",     "/CALL",
		"RECEIVED", "/CALL",	"WAIT P50 P99", "ANSWER P50 P99"
	};
	struct table t;
	json_t *c;
	size_t i;

	if (json_array_size(connections) == 0)
		return;
	table_init(&t, "rrlrrrrlrrrrrrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(connections, i, c) connection_row(&t, c);
	table_print(&t);
	table_fini(&t);
}

void ctl_print_device(const json_t *device)
{
	print_object(device);
	print_connections(json_object_get(device, "connections"));
}

void ctl_print_throttle(const json_t *limits)
{
	unsigned nr = 0;
	json_t *value;
	const char *key;

	json_object_foreach((json_t *)limits, key, value)
	{
		if (says_nothing(key, value))
			continue;
		print_key("", key);
		print_value(key, value);
		nr++;
	}
	if (nr == 0)
		printf("no limits\n");
}

static void reactor_row(struct table *t, const json_t *r)
{
	static const char *const times[] = { "callback_ns", "kernel_ns", "poll_ns", "idle_ns" };
	double all_ns = 0;
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", text(r, "name"));
	if (number(r, "cpu") < 0)
		table_cell(t, TABLE_DIM, "-");
	else if (json_is_false(json_object_get(r, "pinned")))
		table_cell(t, TABLE_YELLOW, "not %lld", number(r, "cpu"));
	else
		table_cell(t, TABLE_PLAIN, "%lld", number(r, "cpu"));
	table_cell(t, TABLE_PLAIN, "%s", format_count((double)number(r, "turns"), buf));
	table_cell(t, TABLE_PLAIN, "%s", format_count((double)number(r, "cqes"), buf));
	table_cell(t, TABLE_PLAIN, "%.1f",
		   number(r, "turns") ? (double)number(r, "cqes") / (double)number(r, "turns")
				      : 0.0);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		all_ns += (double)number(r, times[i]);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		table_cell(t, TABLE_PLAIN, "%.1f%%",
			   all_ns > 0 ? 100 * (double)number(r, times[i]) / all_ns : 0.0);
	table_cell(t, TABLE_PLAIN, "%s", format_ns((uint64_t)number(r, "turn_ns_max"), buf));
	table_cell(t, number(r, "stalls") ? TABLE_YELLOW : TABLE_DIM, "%lld", number(r, "stalls"));
	table_cell(t, number(r, "sq_full") ? TABLE_YELLOW : TABLE_DIM, "%lld",
		   number(r, "sq_full"));
	table_cell(t, number(r, "timers_late") ? TABLE_YELLOW : TABLE_DIM, "%lld",
		   number(r, "timers_late"));
	table_cell(t, number(r, "stale") ? TABLE_RED : TABLE_DIM, "%lld", number(r, "stale"));
}

void ctl_print_reactors(const json_t *reactors)
{
	static const char *const head[] = { "REACTOR", "CPU",	  "TURNS", "EVENTS", "/TURN",
					    "CODE",    "KERNEL",  "POLL",  "IDLE",   "LONGEST",
					    "STALLS",  "SQ FULL", "LATE",  "STALE" };
	struct table t;
	json_t *r;
	size_t i;

	table_init(&t, "lrrrrrrrrrrrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(reactors, i, r) reactor_row(&t, r);
	table_print(&t);
	table_fini(&t);
}

void ctl_print_json(const json_t *data)
{
	json_dumpf(data, stdout, JSON_INDENT(2));
	putchar('\n');
}
