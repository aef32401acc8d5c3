/*
 * snapshot: internal snapshots of a device are listed, created, deleted, applied. Main thread.
 *
 * Happy path: list: what the node has, and what is under way, at once. Else: device_set_snapshot ->
 * its end: that is the answer. Failure modes: a refusal is answered at once; over the deadline the
 * answer says how far it is, and it goes on; the client disconnects: it is forgotten.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "daemon/api/device_wait.h"
#include "daemon/wire/json_words.h"

static const char *const snapshot_actions[] = {
	[BACKEND_SNAPSHOT_CREATE] = "create",
	[BACKEND_SNAPSHOT_DELETE] = "delete",
	[BACKEND_SNAPSHOT_APPLY] = "apply",
};

/* ---- list ---- */

static json_t *one_snapshot(const struct backend_device *node, unsigned idx)
{
	struct backend_snapshot s;

	node->ops->snapshots->get(node, idx, &s);
	return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I}", "id", json_words(s.id), "name",
			 json_words(s.name), "size_bytes", (json_int_t)s.size_bytes,
			 "vm_state_bytes", (json_int_t)s.vm_state_bytes, "time_s",
			 (json_int_t)s.sec, "time_ns", (json_int_t)s.nsec);
}

/* null: none is under way. */
static json_t *change_under_way(const struct device *device)
{
	struct device_snapshot_look look;

	device_snapshot_look(device, &look);
	if (!look.busy)
		return json_null();
	return json_pack("{s:s, s:o, s:I}", "action", snapshot_actions[look.op], "name",
			 json_words(look.name), "done_permille", (json_int_t)look.done_permille);
}

static void list_snapshots(struct socket_client *client, const struct member *m, const char *path)
{
	char words[DEVICE_ERROR_BYTES];
	struct backend_device *backend = member_backend(m);
	const struct backend_device *node;
	json_t *all;

	if (!backend) {
		socket_refuse(client, "the device does not run", NULL);
		return;
	}
	node = backend_snapshots_node(backend, path, words, sizeof(words));
	if (!node) {
		socket_refuse(client, words, NULL);
		return;
	}
	all = json_array();
	for (unsigned i = 0; i < node->ops->snapshots->nr(node); i++)
		json_array_append_new(all, one_snapshot(node, i));
	socket_answer(client, json_pack("{s:s, s:s, s:o, s:o}", "name", m->settings->options.name,
					"node", node->name, "snapshots", all, "change",
					change_under_way(m->device)));
}

/* ---- changes ---- */

static void snapshot_ended(struct device_wait *w, enum device_set_outcome outcome,
			   const char *words)
{
	if (outcome == DEVICE_SET_SNAPSHOT)
		socket_answer(w->client,
			      json_pack("{s:s}", "name", w->member->settings->options.name));
	else
		socket_refuse(w->client, words, NULL);
}

static bool snapshot_late(struct device_wait *w)
{
	struct device_snapshot_look look;
	char words[DEVICE_ERROR_BYTES];

	device_snapshot_look(w->member->device, &look);
	snprintf(
		words, sizeof(words),
		"is not done yet (%u %%); it goes on, and ublkctl snapshot list says how far it is",
		look.done_permille / 10);
	socket_refuse(w->client, words, NULL);
	return true;
}

static const struct device_wait_kind snapshot_wait = {
	.watch = device_set_watch_snapshot,
	.ended = snapshot_ended,
	.timer = snapshot_late,
};

static void change_snapshot(struct commands *c, struct socket_client *client, struct member *m,
			    const struct device_snapshot_wish *wish)
{
	char error[DEVICE_ERROR_BYTES] = "";
	struct device_wait *w = device_wait_new(c, client, m, &snapshot_wait);

	if (!w)
		return;
	if (device_set_snapshot(m, wish, error, sizeof(error)) == 0) {
		device_wait_begin(w);
		return;
	}
	socket_refuse(client, error, NULL);
	device_wait_drop(w);
}

/* -1: it is none of those that change anything. */
static int find_snapshot_action(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(snapshot_actions); i++)
		if (name && strcmp(snapshot_actions[i], name) == 0)
			return (int)i;
	return -1;
}

void commands_snapshot(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	const char *action = json_string_value(json_object_get(request, "action"));
	const char *node = json_string_value(json_object_get(request, "node"));
	int op = find_snapshot_action(action);
	struct device_snapshot_wish wish = {
		.op = (enum backend_snapshot_op)op,
		.name = json_string_value(json_object_get(request, "snapshot")),
		.node = node,
		.force = json_is_true(json_object_get(request, "force")),
	};

	if (!m)
		return;
	if (action && strcmp(action, "list") == 0)
		list_snapshots(client, m, node);
	else if (op < 0)
		socket_refuse(client, "action: expected list, create, delete or apply", NULL);
	else if (!wish.name)
		socket_refuse(client, "the name of a snapshot is missing", NULL);
	else
		change_snapshot(c, client, m, &wish);
}
