/*
 * Answers of ublkd as text for people. Owns nothing. Failure mode: a key that is missing in an
 * answer (another version of ublkd) shows as 0 or "".
 */
#include "ublkctl/ctl_print.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/print/say.h"
#include "ublkctl/print/table.h"
#include "base/format.h"
#include "base/printable.h"

static enum table_color state_color(const char *state)
{
	if (strcmp(state, "live") == 0)
		return TABLE_GREEN;
	return strcmp(state, "failed") == 0 ? TABLE_RED : TABLE_YELLOW;
}

static void list_row(struct table *t, const json_t *d)
{
	const char *path = client_text(d, "path");
	char size[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", client_text(d, "name"));
	table_cell(t, state_color(client_text(d, "state")), "%s", client_text(d, "state"));
	table_cell(t, TABLE_PLAIN, "%s", path[0] ? path : "-");
	table_cell(t, TABLE_PLAIN, "%s", format_bytes(client_number(d, "size_bytes"), size));
	table_cell(t, TABLE_PLAIN, "%s", client_text(d, "backend"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(d, "queues"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(d, "depth"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(d, "block_bytes"));
}

void print_list(const json_t *devices)
{
	static const char *const head[] = { "NAME",    "STATE",	 "PATH",  "SIZE",
					    "BACKEND", "QUEUES", "DEPTH", "BLOCK" };
	struct table t;
	json_t *d;
	size_t i;

	if (json_array_size(devices) == 0) {
		say_to(stdout, "no devices\n");
		return;
	}
	table_init(&t, "lllrlrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(devices, i, d) list_row(&t, d);
	table_print(&t);
	table_fini(&t);
	json_array_foreach(devices, i, d) if (client_text(d, "error")[0])
		say_to(stdout, "%s: %s\n", client_text(d, "name"), client_text(d, "error"));
	json_array_foreach(devices, i, d) client_say_notes(stdout, client_text(d, "name"), d);
}

static void print_value(const char *key, const json_t *value)
{
	size_t len = strlen(key);
	char size[FORMAT_BYTES];
	const char *item_text;
	json_t *item;
	size_t i;

	if (json_is_integer(value) && len > 6 && strstr(key, "_bytes")) {
		say_to(stdout, "%s", format_bytes((uint64_t)json_integer_value(value), size));
	} else if (json_is_integer(value)) {
		say_to(stdout, "%lld", (long long)json_integer_value(value));
	} else if (json_is_string(value)) {
		say_to(stdout, "%s", json_string_value(value));
	} else if (json_is_real(value)) {
		say_to(stdout, "%g", json_real_value(value));
	} else if (json_is_boolean(value)) {
		say_to(stdout, "%s", json_is_true(value) ? "yes" : "no");
	} else {
		json_array_foreach(value, i, item)
		{
			item_text = json_string_value(item);
			if (item_text)
				say_to(stdout, "%s%s", i ? " " : "", item_text);
			else
				say_to(stdout, "%s%lld", i ? " " : "",
				       (long long)json_integer_value(item));
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
	table_say(TABLE_BOLD, "%-21s", name);
	putchar(' ');
}

/* A map among the options: "nbd.tls.username". */
static void print_option_map(const char *before, const char *name, const json_t *map)
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

	snprintf(prefix, sizeof(prefix), "%s.", client_text(options, "type"));
	json_object_foreach((json_t *)options, key, value)
	{
		if (strcmp(key, "type") == 0 || strcmp(key, "backend") == 0 ||
		    says_nothing(key, value))
			continue;
		if (json_is_object(value)) {
			print_option_map(prefix, key, value);
			continue;
		}
		print_key(prefix, key);
		print_value(key, value);
	}
	value = json_object_get(options, "backend");
	if (json_is_object(value))
		print_backend(value);
}

/* How many there are, in words. */
static void print_number_of(const char *before, const json_t *object, const char *key,
			    const char *one, const char *more)
{
	unsigned long long nr = client_number(object, key);

	say_to(stdout, "%s%llu %s", before, nr, nr == 1 ? one : more);
}

/* "librbd: 16 threads in the process, of 1 client for 3 images" */
static void print_library(const json_t *library)
{
	print_key("", "library");
	say_to(stdout, "%s", client_text(library, "name"));
	print_number_of(": ", library, "threads", "thread", "threads");
	print_number_of(" in the process, of ", library, "clients", "client", "clients");
	print_number_of(" for ", library, "images", "image", "images");
	putchar('\n');
}

static void print_object(const json_t *object)
{
	json_t *value;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		if (strcmp(key, "library") == 0) {
			print_library(value);
			continue;
		}
		if (strcmp(key, "zones") == 0 || strcmp(key, "integrity") == 0)
			continue;
		if (json_is_object(value)) {
			print_backend(value);
			continue;
		}
		/* They have a table of their own. */
		if (strcmp(key, "connections") == 0 || strcmp(key, "images") == 0 ||
		    strcmp(key, "caches") == 0 || strcmp(key, "shared_memory") == 0 ||
		    (json_is_string(value) && json_string_length(value) == 0))
			continue;
		print_key("", key);
		print_value(key, value);
	}
}

static void count_cell_of(struct table *t, const json_t *o, const char *key)
{
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", format_count((double)client_number(o, key), buf));
}

/* How many of the one there are to each of the other. */
static void ratio_cell(struct table *t, const json_t *o, const char *key, const char *per)
{
	double nr = (double)client_number(o, per);

	table_cell(t, TABLE_PLAIN, "%.1f", nr > 0 ? (double)client_number(o, key) / nr : 0.0);
}

static void times_cell(struct table *t, const json_t *times)
{
	char p50[FORMAT_BYTES], p99[FORMAT_BYTES];

	if (client_number(times, "count") == 0)
		table_cell(t, TABLE_DIM, "-");
	else
		table_cell(t, TABLE_PLAIN, "%s %s", format_ns(client_number(times, "p50_ns"), p50),
			   format_ns(client_number(times, "p99_ns"), p99));
}

static void connection_row(struct table *t, const json_t *c)
{
	bool up = strcmp(client_text(c, "state"), "connected") == 0;
	const char *end = client_text(c, "last_end");
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%llu", client_number(c, "queue"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(c, "connection"));
	if (json_object_get(c, "next_try_in_ns"))
		table_cell(t, TABLE_YELLOW, "%s, %s more", client_text(c, "state"),
			   format_ns(client_number(c, "next_try_in_ns"), buf));
	else
		table_cell(t, up ? TABLE_GREEN : TABLE_YELLOW, "%s", client_text(c, "state"));
	table_cell(t, TABLE_PLAIN, "%s", format_ns(client_number(c, "state_ns"), buf));
	count_cell_of(t, c, "connects");
	count_cell_of(t, c, "lost");
	count_cell_of(t, c, "failed_tries");
	table_cell(t, end[0] ? TABLE_PLAIN : TABLE_DIM, "%s", end[0] ? end : "-");
	count_cell_of(t, c, "resent");
	count_cell_of(t, c, "answered");
	table_cell(t, TABLE_PLAIN, "%s", format_bytes(client_number(c, "sent_bytes"), buf));
	ratio_cell(t, c, "answered", "sends");
	table_cell(t, TABLE_PLAIN, "%s", format_bytes(client_number(c, "received_bytes"), buf));
	ratio_cell(t, c, "answered", "receives");
	times_cell(t, json_object_get(c, "wait"));
	times_cell(t, json_object_get(c, "answer"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(c, "server"));
}

static void print_connections(const json_t *connections)
{
	static const char *const head[] = {
		"QUEUE",    "CONN",	"STATE",	"SINCE",	  "CONNECTS", "LOST",
		"FAILED",   "LAST END", "RESENT",	"ANSWERED",	  "SENT",     "/CALL",
		"RECEIVED", "/CALL",	"WAIT P50 P99", "ANSWER P50 P99", "SERVER"
	};
	struct table t;
	json_t *c;
	size_t i;

	if (json_array_size(connections) == 0)
		return;
	table_init(&t, "rrlrrrrlrrrrrrrrl");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(connections, i, c) connection_row(&t, c);
	table_print(&t);
	table_fini(&t);
}

static void stored_cell(struct table *t, const json_t *image)
{
	char buf[FORMAT_BYTES];

	if (json_is_integer(json_object_get(image, "stored_bytes")))
		table_cell(t, TABLE_PLAIN, "%s",
			   format_bytes(client_number(image, "stored_bytes"), buf));
	else
		table_cell(t, TABLE_DIM, "-");
}

static void image_row(struct table *t, const json_t *image)
{
	const json_t *tables = json_object_get(image, "tables");
	uint64_t slice_bytes = client_number(tables, "slice_bytes");
	const char *state = json_is_true(json_object_get(tables, "dirty")) ? "dirty" : "clean";
	char size[FORMAT_BYTES], used[FORMAT_BYTES], max[FORMAT_BYTES];

	if (json_is_true(json_object_get(image, "read_only")))
		state = "read-only";
	table_cell(t, TABLE_PLAIN, "%s", client_text(image, "node"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(image, "format"));
	table_cell(t, TABLE_PLAIN, "%s", format_bytes(client_number(image, "size_bytes"), size));
	stored_cell(t, image);
	table_cell(t, TABLE_PLAIN, "%s", state);
	table_cell(t, TABLE_PLAIN, "%s of %s",
		   format_bytes(client_number(tables, "slices") * slice_bytes, used),
		   format_bytes(client_number(tables, "slices_max") * slice_bytes, max));
	count_cell_of(t, tables, "misses");
	count_cell_of(t, image, "allocated_clusters");
	count_cell_of(t, image, "copies");
	count_cell_of(t, image, "compressed_reads");
	table_cell(t, TABLE_PLAIN, "%s", client_text(image, "file"));
}

/* From the disk's own one down to what all of them stand over. */
static void print_images(const json_t *images)
{
	static const char *const head[] = { "IMAGE",  "FORMAT",	    "SIZE",   "STORED",
					    "STATE",  "TABLES",	    "MISSES", "ALLOCATED",
					    "COPIES", "COMPRESSED", "FILE" };
	struct table t;
	json_t *image;
	size_t i;

	if (json_array_size(images) == 0)
		return;
	table_init(&t, "llrrlrrrrrl");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(images, i, image) image_row(&t, image);
	table_print(&t);
	table_fini(&t);
}

static void bytes_cell_of(struct table *t, const json_t *o, const char *key)
{
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", format_bytes(client_number(o, key), buf));
}

static void cache_row(struct table *t, const json_t *cache)
{
	uint64_t block_bytes = client_number(cache, "block_bytes");
	const json_t *ratio = json_object_get(cache, "hit_ratio");
	bool is_off = json_is_true(json_object_get(cache, "off"));
	char used[FORMAT_BYTES], max[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", client_text(cache, "node"));
	table_cell(t, is_off ? TABLE_YELLOW : TABLE_PLAIN, "%s",
		   is_off ? "off" : client_text(cache, "mode"));
	table_cell(t, TABLE_PLAIN, "%s of %s",
		   format_bytes(client_number(cache, "used_blocks") * block_bytes, used),
		   format_bytes(client_number(cache, "blocks") * block_bytes, max));
	bytes_cell_of(t, cache, "dirty_bytes");
	count_cell_of(t, cache, "hits");
	count_cell_of(t, cache, "misses");
	if (json_is_real(ratio))
		table_cell(t, TABLE_PLAIN, "%.1f%%", 100 * json_real_value(ratio));
	else
		table_cell(t, TABLE_DIM, "-");
	bytes_cell_of(t, cache, "filled_bytes");
	count_cell_of(t, cache, "evicted_blocks");
	bytes_cell_of(t, cache, "cleaned_bytes");
}

void print_caches(const json_t *caches)
{
	static const char *const head[] = { "CACHE",  "MODE",	   "USED",   "DIRTY",	"HITS",
					    "MISSES", "HIT BYTES", "FILLED", "EVICTED", "CLEANED" };
	struct table t;
	json_t *cache;
	size_t i;

	if (json_array_size(caches) == 0)
		return;
	table_init(&t, "llrrrrrrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(caches, i, cache) cache_row(&t, cache);
	table_print(&t);
	table_fini(&t);
}

void print_device(const json_t *device)
{
	print_object(device);
	print_images(json_object_get(device, "images"));
	print_caches(json_object_get(device, "caches"));
	print_zones(json_object_get(device, "zones"));
	print_integrity(json_object_get(device, "integrity"));
	print_shmem(json_object_get(device, "shared_memory"));
	print_connections(json_object_get(device, "connections"));
}

void print_throttle(const json_t *limits)
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
		say_to(stdout, "no limits\n");
}

static void reactor_row(struct table *t, const json_t *r)
{
	static const char *const times[] = { "callback_ns", "kernel_ns", "poll_ns", "idle_ns" };
	int cpu = (int)json_integer_value(json_object_get(r, "cpu"));
	double all_ns = 0;
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", client_text(r, "name"));
	if (cpu < 0)
		table_cell(t, TABLE_DIM, "-");
	else if (json_is_false(json_object_get(r, "pinned")))
		table_cell(t, TABLE_YELLOW, "not %d", cpu);
	else
		table_cell(t, TABLE_PLAIN, "%d", cpu);
	table_cell(t, TABLE_PLAIN, "%s", format_count((double)client_number(r, "turns"), buf));
	table_cell(t, TABLE_PLAIN, "%s", format_count((double)client_number(r, "cqes"), buf));
	table_cell(t, TABLE_PLAIN, "%.1f",
		   client_number(r, "turns")
			   ? (double)client_number(r, "cqes") / (double)client_number(r, "turns")
			   : 0.0);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		all_ns += (double)client_number(r, times[i]);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		table_cell(t, TABLE_PLAIN, "%.1f%%",
			   all_ns > 0 ? 100 * (double)client_number(r, times[i]) / all_ns : 0.0);
	table_cell(t, TABLE_PLAIN, "%s", format_ns(client_number(r, "turn_ns_max"), buf));
	table_cell(t, client_number(r, "stalls") ? TABLE_YELLOW : TABLE_DIM, "%llu",
		   client_number(r, "stalls"));
	table_cell(t, client_number(r, "sq_full") ? TABLE_YELLOW : TABLE_DIM, "%llu",
		   client_number(r, "sq_full"));
	table_cell(t, client_number(r, "timers_late") ? TABLE_YELLOW : TABLE_DIM, "%llu",
		   client_number(r, "timers_late"));
	table_cell(t, client_number(r, "stale") ? TABLE_RED : TABLE_DIM, "%llu",
		   client_number(r, "stale"));
}

void print_reactors(const json_t *reactors)
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

static void inflight_row(struct table *t, const char *device, const json_t *io)
{
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", device);
	table_cell(t, TABLE_PLAIN, "%llu", client_number(io, "queue"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(io, "tag"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(io, "op"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(io, "sector"));
	table_cell(t, TABLE_PLAIN, "%s", format_bytes(client_number(io, "bytes"), buf));
	table_cell(t, TABLE_PLAIN, "%s", format_ns(client_number(io, "age_ns"), buf));
	table_cell(t, TABLE_PLAIN, "%s", client_text(io, "state"));
	table_cell(t, TABLE_PLAIN, "%s%s%s", client_text(io, "backend"),
		   client_text(io, "backend_state")[0] ? ": " : "",
		   client_text(io, "backend_state"));
}

void print_inflight(const json_t *data)
{
	static const char *const head[] = { "DEVICE", "QUEUE", "TAG",	"OP",	  "SECTOR",
					    "BYTES",  "AGE",   "STATE", "BACKEND" };
	const json_t *devices = json_object_get(data, "devices");
	json_t *device, *io;
	struct table t;
	size_t i, j, nr = 0;

	table_init(&t, "lrrlrrrll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(devices, i, device)
	{
		json_array_foreach(json_object_get(device, "ios"), j, io)
		{
			inflight_row(&t, client_text(device, "name"), io);
			nr++;
		}
	}
	if (nr > 0)
		table_print(&t);
	else
		say_to(stdout, "no I/O in the daemon\n");
	table_fini(&t);
	json_array_foreach(devices, i, device) if (client_number(device, "left_out"))
		say_to(stdout, "%s: and %llu more\n", client_text(device, "name"),
		       client_number(device, "left_out"));
}

static const char *result_of(const json_t *d)
{
	if (client_text(d, "error")[0])
		return client_text(d, "error");
	return json_is_true(json_object_get(d, "removed")) ? "removed" : "orphan";
}

static void print_orphan_row(struct table *t, const json_t *d)
{
	bool bad = client_text(d, "error")[0] != '\0', known = json_object_get(d, "state") != NULL;
	json_int_t server_pid = json_integer_value(json_object_get(d, "server_pid"));
	char size[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%llu", client_number(d, "id"));
	table_cell(t, TABLE_PLAIN, "%s", known ? client_text(d, "state") : "-");
	if (server_pid > 0)
		table_cell(t, TABLE_PLAIN, "%lld", (long long)server_pid);
	else
		table_cell(t, TABLE_DIM, "-");
	if (client_number(d, "size_bytes") > 0)
		table_cell(t, TABLE_PLAIN, "%s",
			   format_bytes(client_number(d, "size_bytes"), size));
	else
		table_cell(t, TABLE_DIM, "-");
	table_cell(t, TABLE_PLAIN, "%s", known ? client_text(d, "owner") : "-");
	table_cell(t, bad ? TABLE_RED : TABLE_PLAIN, "%s", result_of(d));
	table_cell(t, TABLE_PLAIN, "%s", client_text(d, "users"));
}

void print_orphans(const json_t *data)
{
	static const char *const head[] = { "ID",    "STATE",  "SERVER", "SIZE",
					    "OWNER", "RESULT", "USERS" };
	const json_t *devices = json_object_get(data, "devices");
	struct table t;
	json_t *d;
	size_t i;

	if (json_array_size(devices) == 0) {
		say_to(stdout, "no orphaned devices\n");
		return;
	}
	table_init(&t, "rlrrlll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(devices, i, d) print_orphan_row(&t, d);
	table_print(&t);
	table_fini(&t);
}

void print_resize(const json_t *data)
{
	uint64_t old_bytes = client_number(data, "old_size_bytes");
	uint64_t bytes = client_number(data, "size_bytes");
	const char *name = client_text(data, "name"), *note = client_text(data, "note");
	char old_size[FORMAT_BYTES], size[FORMAT_BYTES];

	format_bytes(old_bytes, old_size);
	format_bytes(bytes, size);
	if (bytes == old_bytes)
		say_to(stdout, "%s: %s, unchanged\n", name, size);
	else
		say_to(stdout, "%s: %s -> %s\n", name, old_size, size);
	if (note[0])
		say_to(stdout, "%s\n", note);
}

void print_json(const json_t *data)
{
	char *text = json_dumps(data, JSON_INDENT(2)), escape[PRINTABLE_ESCAPE_BYTES];
	size_t bytes = text ? strlen(text) : 0;
	uint32_t code;

	for (size_t at = 0, nr; at < bytes; at += nr) {
		nr = printable_next(text + at, bytes - at, escape);
		if (escape[0] && text[at] != '\n' && utf8_letter(text + at, nr, &code) > 0)
			say_to(stdout, "\\u%04x", code);
		else
			fwrite(text + at, 1, nr, stdout);
	}
	putchar('\n');
	free(text);
}
