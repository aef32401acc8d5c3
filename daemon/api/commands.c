/*
 * Reads a request, finds its command and answers. Main thread.
 *
 * Happy path: a line of JSON -> a row of the table -> an answer at once. add, del, resize,
 * snapshot, cache and gc answer later (commands_wait.c, commands_change.c, commands_snapshot.c,
 * commands_cache.c, commands_gc.c).
 * Failure modes: a line that is no JSON object is answered with an error and the connection is
 * closed, because the start of the next request is unknown; a wrong request is answered with an
 * error, and the connection stays open.
 */
#include "daemon/api/commands.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/api/commands_internal.h"
#include "daemon/api/json_device.h"
#include "daemon/api/json_inflight.h"
#include "daemon/api/json_reactor.h"
#include "daemon/wire/json_words.h"

struct member *commands_named(struct commands *c, struct socket_client *client,
			      const json_t *request)
{
	const char *name = json_string_value(json_object_get(request, "name"));
	struct member *m = name ? device_set_find(c->device_set, name) : NULL;
	json_t *text;

	if (!name) {
		socket_refuse(client, "the name of a device is missing", NULL);
	} else if (!m) {
		text = json_words_format("there is no device \"%s\"", name);
		socket_refuse(client, text ? json_string_value(text) : "out of memory", NULL);
		json_decref(text);
	}
	return m;
}

json_t *commands_for_each(struct commands *c, struct socket_client *client, const json_t *request,
			  json_t *(*fn)(const struct member *m, const void *arg), const void *arg)
{
	const struct member *named = NULL;
	json_t *all;

	if (json_object_get(request, "name")) {
		named = commands_named(c, client, request);
		if (!named)
			return NULL;
	}
	all = json_array();
	list_for_each (node, &c->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (!named || m == named)
			json_array_append_new(all, fn(m, arg));
	}
	return all;
}

/* ---- commands that answer at once ---- */

static void answer_list(struct commands *c, struct socket_client *client, const json_t *request)
{
	json_t *all = json_array();

	(void)request;
	list_for_each (node, &c->device_set->members)
		json_array_append_new(all, json_device_line(list_entry(node, struct member, node)));
	socket_answer(client, all);
}

static void answer_show(struct commands *c, struct socket_client *client, const json_t *request)
{
	const struct member *m = commands_named(c, client, request);

	if (m)
		socket_answer(client, json_device_full(m));
}

static json_t *stats_of_member(const struct member *m, const void *request)
{
	return json_device_stats(m, json_is_true(json_object_get(request, "buckets")),
				 json_is_true(json_object_get(request, "layer_buckets")));
}

static void answer_stats(struct commands *c, struct socket_client *client, const json_t *request)
{
	json_t *devices = commands_for_each(c, client, request, stats_of_member, request);

	if (devices)
		socket_answer(client, json_pack("{s:I, s:o}", "time_ns",
						(json_int_t)ring_clock_ns(), "devices", devices));
}

static void begin_upgrade(struct commands *c, struct socket_client *client, const json_t *request)
{
	const char *path = json_string_value(json_object_get(request, "path"));
	const char *why = upgrade_begin(c->upgrade, client, path);

	if (why)
		socket_refuse(client, why, NULL);
}

static void answer_version(struct commands *c, struct socket_client *client, const json_t *request)
{
	(void)c, (void)request;
	socket_answer(client, json_pack("{s:s}", "version", UBLKD_VERSION));
}

static void answer_reactors(struct commands *c, struct socket_client *client, const json_t *request)
{
	json_t *all = json_array();

	(void)request;
	for (unsigned i = 0; i < c->reactors->nr; i++) {
		json_t *one = json_reactor(c->reactors->reactor[i], c->reactors->cpu[i],
					   !c->reactors->away || !c->reactors->away[i]);

		json_object_set_new(one, "stuck_ns",
				    json_integer((json_int_t)watchdog_stuck_ns(c->watchdog, i)));
		json_object_set_new(one, "stuck_nr",
				    json_integer((json_int_t)watchdog_stuck_count(c->watchdog, i)));
		json_array_append_new(all, one);
	}
	json_array_append_new(all, json_reactor(c->control, -1, false));
	socket_answer(client, all);
}

static json_t *inflight_of_member(const struct member *m, const void *now_ns)
{
	json_t *one = json_inflight(m, JSON_INFLIGHT_IOS_MAX, *(const uint64_t *)now_ns);

	if (m->device && !m->ended)
		device_ask_driver(m->device);
	return one;
}

/* Asks the driver and the reactors too: their answers are in the answer to the next inflight. */
static void answer_inflight(struct commands *c, struct socket_client *client, const json_t *request)
{
	uint64_t now_ns = ring_clock_ns();
	json_t *devices = commands_for_each(c, client, request, inflight_of_member, &now_ns), *all;

	if (!devices)
		return;
	all = json_pack("{s:I, s:i, s:o, s:o}", "time_ns", (json_int_t)now_ns, "pid", (int)getpid(),
			"devices", devices, "reactors",
			json_reactors_alive(c->device_set, c->reactors, c->watchdog, now_ns));
	reactors_ping(c->reactors, now_ns);
	socket_answer(client, all);
}

/* What a client needs to keep a device in the configuration. */
static void answer_settings(struct commands *c, struct socket_client *client, const json_t *request)
{
	const char *path = c->config_path;
	const char *folder = c->settings ? c->settings->devices_dir : NULL;

	(void)request;
	socket_answer(client, json_pack("{s:o?, s:o?}", "config", path ? json_words(path) : NULL,
					"devices_dir", folder ? json_words(folder) : NULL));
}

/* ---- finding the command ---- */

struct command {
	const char *name;
	void (*fn)(struct commands *c, struct socket_client *client, const json_t *request);
	/* Besides "command", after their type: s string, t text, b boolean, n list of integers. */
	const char *keys[8];
};

static const struct command commands[] = {
	{ "list", answer_list, { NULL } },
	{ "show", answer_show, { "sname" } },
	{ "stats", answer_stats, { "sname", "bbuckets", "blayer_buckets" } },
	{ "add", commands_add, { "tyaml", "sfile" } },
	{ "del", commands_del, { "sname", "bforce" } },
	{ "version", answer_version, { NULL } },
	{ "settings", answer_settings, { NULL } },
	{ "upgrade", begin_upgrade, { "spath" } },
	{ "reactors", answer_reactors, { NULL } },
	{ "throttle", commands_throttle, { "sname", "oset" } },
	{ "inflight", answer_inflight, { "sname" } },
	{ "histogram_get", commands_histogram_get, { "sname", "slayer", "sop" } },
	{ "histogram_set",
	  commands_histogram_set,
	  { "sname", "sop", "nboundaries", "nboundaries_read", "nboundaries_write",
	    "nboundaries_flush" } },
	{ "histogram_reset", commands_histogram_reset, { "sname", "sop" } },
	{ "resize", commands_resize, { "sname", "ssize", "bforce" } },
	{ "snapshot", commands_snapshot, { "sname", "saction", "ssnapshot", "snode", "bforce" } },
	{ "cache", commands_cache, { "sname", "saction", "snode", "soffset", "slength" } },
	{ "share", commands_share, { "sname", "bread_only" } },
	{ "unshare", commands_unshare, { "sname", "sbuffer" } },
	{ "gc", commands_gc, { "bremove", "nids" } },
	{ "blockstats", commands_blockstats, { "sname", "slayer" } },
};

/* NULL: none, or no text. */
static const char *name_in(const json_t *request)
{
	const json_t *name = json_object_get(request, "command");
	const char *text = json_string_value(name);

	return text && strlen(text) == json_string_length(name) ? text : NULL;
}

static bool is_list_of_integers(const json_t *value)
{
	json_t *item;
	size_t i;

	json_array_foreach(value, i, item) if (!json_is_integer(item)) return false;
	return json_is_array(value);
}

/* {"total_iops_sec": 100, "read_bytes_sec": "10M"} */
static bool is_settings(json_t *value)
{
	const char *key;
	json_t *each;

	json_object_foreach(value, key, each)
	{
		if (!json_is_string(each) && !json_is_integer(each))
			return false;
	}
	return json_is_object(value);
}

/* NUL in a name would make two names one; in a file it gets its place in an error. */
static bool value_fits(char type, json_t *value)
{
	if (type == 'o')
		return is_settings(value);
	if (type == 'b')
		return json_is_boolean(value);
	if (type == 't')
		return json_is_string(value);
	if (type == 'n')
		return is_list_of_integers(value);
	return json_is_string(value) &&
	       strlen(json_string_value(value)) == json_string_length(value);
}

static bool key_fits(const struct command *cmd, const char *key, json_t *value)
{
	if (strcmp(key, "command") == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(cmd->keys) && cmd->keys[i]; i++)
		if (strcmp(cmd->keys[i] + 1, key) == 0)
			return value_fits(cmd->keys[i][0], value);
	return false;
}

/* NULL: every key is one that the command knows, of the right type. */
static const char *wrong_key(const struct command *cmd, json_t *request)
{
	const char *key;
	json_t *value;

	json_object_foreach(request, key, value) if (!key_fits(cmd, key, value)) return key;
	return NULL;
}

/*
 * What another version of ublkctl may know and we do not. The answer has our version, so that
 * ublkctl can print both. fmt: takes what is unknown.
 */
static void refuse_unknown(struct socket_client *client, const char *fmt, const char *what)
{
	socket_answer_json(client,
			   json_pack("{s:b, s:o, s:s}", "ok", 0, "error",
				     json_words_format(fmt, what), "version", UBLKD_VERSION),
			   false);
}

static void run_command(struct commands *c, struct socket_client *client, json_t *request)
{
	const char *name = name_in(request), *key;
	const struct command *cmd = NULL;

	for (size_t i = 0; name && i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			cmd = &commands[i];
	key = cmd ? wrong_key(cmd, request) : NULL;
	if (!name)
		socket_refuse(client, "the request names no command", NULL);
	else if (!cmd)
		refuse_unknown(client, "ublkd " UBLKD_VERSION " does not know the command \"%s\"",
			       name);
	else if (key)
		refuse_unknown(client,
			       "ublkd " UBLKD_VERSION
			       " does not know the key \"%s\" of this command, or not its type",
			       key);
	else if (c->upgrade && c->upgrade->phase != UPGRADE_NONE)
		socket_refuse(client, "an upgrade is under way; try again", NULL);
	else
		cmd->fn(c, client, request);
}

static void on_command_line(struct socket_client *client, char *line, size_t bytes)
{
	struct commands *c = client->server->arg;
	json_error_t error;
	json_t *request = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);

	if (json_is_object(request))
		run_command(c, client, request);
	else
		socket_answer_json(
			client,
			json_pack(
				"{s:b, s:o}", "ok", 0, "error",
				json_words_format("a request must be a JSON object on one line: %s",
						  request ? "it is something else" : error.text)),
			true);
	json_decref(request);
}

void commands_attach(struct commands *c, struct socket_server *server)
{
	server->request = on_command_line;
	server->cancel = commands_cancel;
	server->arg = c;
}
