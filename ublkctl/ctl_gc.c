/*
 * Asks for orphans, or for their removal, and prints a row for each. Failure modes: no daemon
 * (told); what cannot be removed is printed with its reason, and makes the exit code 1.
 */
#include "ublkctl/ctl_gc.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/table.h"
#include "base/format.h"

static const char *text(const json_t *o, const char *key)
{
	const char *value = json_string_value(json_object_get(o, key));

	return value ? value : "";
}

static long long number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static const char *result_of(const json_t *d)
{
	if (text(d, "error")[0])
		return text(d, "error");
	return json_is_true(json_object_get(d, "removed")) ? "removed" : "orphan";
}

static void print_row(struct table *t, const json_t *d)
{
	bool bad = text(d, "error")[0] != '\0', known = json_object_get(d, "state") != NULL;
	char size[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%lld", number(d, "id"));
	table_cell(t, TABLE_PLAIN, "%s", known ? text(d, "state") : "-");
	if (number(d, "server_pid") > 0)
		table_cell(t, TABLE_PLAIN, "%lld", number(d, "server_pid"));
	else
		table_cell(t, TABLE_DIM, "-");
	if (number(d, "size_bytes") > 0)
		table_cell(t, TABLE_PLAIN, "%s",
			   format_bytes((uint64_t)number(d, "size_bytes"), size));
	else
		table_cell(t, TABLE_DIM, "-");
	table_cell(t, TABLE_PLAIN, "%s", known ? text(d, "owner") : "-");
	table_cell(t, bad ? TABLE_RED : TABLE_PLAIN, "%s", result_of(d));
	table_cell(t, TABLE_PLAIN, "%s", text(d, "users"));
}

static void print(const json_t *data)
{
	static const char *const head[] = { "ID",    "STATE",  "SERVER", "SIZE",
					    "OWNER", "RESULT", "USERS" };
	const json_t *devices = json_object_get(data, "devices");
	struct table t;
	json_t *d;
	size_t i;

	if (json_array_size(devices) == 0) {
		printf("no orphaned devices\n");
		return;
	}
	table_init(&t, "rlrrlll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(devices, i, d) print_row(&t, d);
	table_print(&t);
	table_fini(&t);
}

/* NULL, told: a word is no number. */
static json_t *read_ids(char **words)
{
	json_t *all = json_array();

	for (; *words; words++) {
		char *end;
		unsigned long id = strtoul(*words, &end, 10);

		if ((*words)[0] < '0' || (*words)[0] > '9' || *end || id >= INT32_MAX) {
			fprintf(stderr,
				"ublkctl: gc takes numbers of devices, as N in /dev/ublkcN, not "
				"%s\n",
				*words);
			json_decref(all);
			return NULL;
		}
		json_array_append_new(all, json_integer((json_int_t)id));
	}
	return all;
}

enum exit_code ctl_gc(const char *socket_path, char **ids, bool remove, bool json)
{
	json_t *list = read_ids(ids), *data;
	enum exit_code code;

	if (!list)
		return EXIT_USAGE;
	/* The daemon has a deadline of its own. */
	code = client_ask(
		socket_path,
		json_pack("{s:s, s:b, s:o}", "command", "gc", "remove", remove, "ids", list), 0,
		&data);
	if (code != EXIT_DONE)
		return code;
	if (json)
		ctl_print_json(data);
	else
		print(data);
	if (remove && number(data, "left") > 0)
		code = EXIT_REFUSED;
	json_decref(data);
	return code;
}
