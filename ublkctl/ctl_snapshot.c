/*
 * ublkctl snapshot: internal snapshots of a device.
 *
 * Happy path: list prints a table; the others wait until ublkd says that it is done, and print
 * nothing. Failure modes: as of all commands that ask one question (ctl_commands.c).
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/format.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"
#include "ublkctl/print/table.h"

static void format_time(time_t seconds, char *buf, size_t bytes)
{
	struct tm tm;

	if (!localtime_r(&seconds, &tm) || strftime(buf, bytes, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		snprintf(buf, bytes, "-");
}

static void print_snapshots(const json_t *data)
{
	const json_t *change = json_object_get(data, "change"), *one;
	char size[FORMAT_BYTES], state[FORMAT_BYTES], when[40];
	struct table t;
	size_t i;

	table_init(&t, "llrrl");
	table_cell(&t, TABLE_BOLD, "ID");
	table_cell(&t, TABLE_BOLD, "NAME");
	table_cell(&t, TABLE_BOLD, "SIZE");
	table_cell(&t, TABLE_BOLD, "VM STATE");
	table_cell(&t, TABLE_BOLD, "CREATED");
	json_array_foreach(json_object_get(data, "snapshots"), i, one)
	{
		format_bytes(client_number(one, "size_bytes"), size);
		format_bytes(client_number(one, "vm_state_bytes"), state);
		format_time((time_t)client_number(one, "time_s"), when, sizeof(when));
		table_cell(&t, TABLE_PLAIN, "%s", client_text(one, "id"));
		table_cell(&t, TABLE_PLAIN, "%s", client_text(one, "name"));
		table_cell(&t, TABLE_PLAIN, "%s", size);
		table_cell(&t, TABLE_PLAIN, "%s", state);
		table_cell(&t, TABLE_PLAIN, "%s", when);
	}
	table_print(&t);
	table_fini(&t);
	if (json_is_object(change))
		say_to(stdout, "under way: %s %s, %llu %%\n", client_text(change, "action"),
		       client_text(change, "name"), client_number(change, "done_permille") / 10);
}

static void check_words(const struct ublkctl_args *a, bool is_list)
{
	if (!is_list && strcmp(a->action, "create") != 0 && strcmp(a->action, "delete") != 0 &&
	    strcmp(a->action, "apply") != 0)
		ublkctl_usage_error("snapshot takes list, create, delete or apply, not ",
				    a->action);
	if (is_list && a->words[0])
		ublkctl_usage_error("snapshot list takes only a device, unexpected: ", a->words[0]);
	if (!is_list && !a->words[0])
		ublkctl_usage_error("the name of the snapshot is missing after ", a->name);
	if (!is_list && a->words[1])
		ublkctl_usage_error("snapshot takes one name, unexpected: ", a->words[1]);
	if (a->force && strcmp(a->action, "apply") != 0)
		ublkctl_usage_error("--force applies to snapshot apply, not to ", a->action);
}

enum exit_code ublkctl_snapshot(const struct ublkctl_args *a)
{
	bool is_list = strcmp(a->action, "list") == 0;
	json_t *request;

	check_words(a, is_list);
	request = client_request("snapshot", a->name);
	json_object_set_new(request, "action", json_string(a->action));
	if (a->force)
		json_object_set_new(request, "force", json_true());
	client_set_text(&request, "snapshot", a->words[0]);
	client_set_text(&request, "node", a->node);
	return client_ask_and_print(a, request, is_list ? CLIENT_SECONDS : 0,
				    is_list ? print_snapshots : NULL);
}
