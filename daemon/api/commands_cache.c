/*
 * cache: what the caches of a device are doing, and commands to one of them. Main thread.
 *
 * Happy path: stats: what they say and what is under way, at once. warm, drop:
 * device_set_cache_command -> its end: that is the answer, as long as it takes.
 *
 * Failure modes: a refusal is answered at once; the client disconnects: the command ends soon.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "config/option.h"
#include "daemon/api/device_wait.h"
#include "daemon/api/json_image.h"

/* So often it is looked whether the client is there. */
#define CACHE_CLIENT_SECONDS 0.25

static const char *const cache_actions[] = {
	[BACKEND_CACHE_WARM] = "warm",
	[BACKEND_CACHE_DROP] = "drop",
};

/* ---- stats ---- */

static json_int_t job_number(const uint64_t *field)
{
	return (json_int_t)__atomic_load_n(field, __ATOMIC_RELAXED);
}

static json_t *json_cache_job(const struct device_cache_look *look)
{
	const struct backend_cache_job *job = look->job;

	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "action", cache_actions[job->op],
			 "node", look->node, "total_bytes", job_number(&job->total_bytes),
			 "fetched_bytes", job_number(&job->fetched_bytes), "present_bytes",
			 job_number(&job->present_bytes), "passed_bytes",
			 job_number(&job->passed_bytes), "dropped_bytes",
			 job_number(&job->dropped_bytes));
}

static void refuse_without_caches(struct socket_client *client, const struct member *m)
{
	char words[DEVICE_ERROR_BYTES];

	if (m->state != MEMBER_LIVE)
		snprintf(words, sizeof(words),
			 "the device is not live (%s): try again when ublkctl list says that it is",
			 member_state_name(m));
	else if (!device_backend(m->device) ||
		 backend_cache_node(device_backend(m->device), NULL, words, sizeof(words)))
		snprintf(words, sizeof(words), "the device does not run");
	socket_refuse(client, words, NULL);
}

static void answer_cache_stats(struct socket_client *client, const struct member *m)
{
	json_t *caches = m->device && !m->ended ? json_caches(m->device) : NULL;
	struct device_cache_look look;

	if (!caches) {
		refuse_without_caches(client, m);
		return;
	}
	device_cache_look(m->device, &look);
	socket_answer(client, json_pack("{s:s, s:o, s:o}", "name", m->settings->options.name,
					"caches", caches, "command",
					look.busy ? json_cache_job(&look) : json_null()));
}

/* ---- warm, drop ---- */

static json_t *warm_answer(const struct backend_cache_job *job)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:b}", "total_bytes", (json_int_t)job->total_bytes,
			 "fetched_bytes", (json_int_t)job->fetched_bytes, "present_bytes",
			 (json_int_t)job->present_bytes, "passed_bytes",
			 (json_int_t)job->passed_bytes, "full", job->is_full);
}

static json_t *drop_answer(const struct backend_cache_job *job)
{
	return json_pack("{s:I, s:I}", "dropped_bytes", (json_int_t)job->dropped_bytes,
			 "dirty_bytes", (json_int_t)job->dirty_bytes);
}

static void cache_ended(struct device_wait *w, enum device_set_outcome outcome, const char *words)
{
	struct device_cache_look look;
	json_t *all, *more;

	if (outcome != DEVICE_SET_CACHE) {
		socket_refuse(w->client, words, NULL);
		return;
	}
	device_cache_look(w->member->device, &look);
	all = json_pack("{s:s, s:s}", "name", w->member->settings->options.name, "node", look.node);
	more = look.job->op == BACKEND_CACHE_WARM ? warm_answer(look.job) : drop_answer(look.job);
	json_object_update(all, more);
	json_decref(more);
	socket_answer(w->client, all);
}

/* Nobody hears of its end. */
static void cache_client_left(struct device_wait *w)
{
	device_cache_cancel(w->member->device);
}

/* Of one that has left the answer goes nowhere. */
static bool cache_client_look(struct device_wait *w)
{
	if (socket_client_left(w->client))
		cache_client_left(w);
	return false;
}

static const struct device_wait_kind cache_wait = {
	.watch = device_set_watch_cache,
	.ended = cache_ended,
	.timer = cache_client_look,
	.timer_seconds = CACHE_CLIENT_SECONDS,
	.left = cache_client_left,
};

static void begin_cache_command(struct commands *c, struct socket_client *client, struct member *m,
				const struct device_cache_wish *wish)
{
	char error[DEVICE_ERROR_BYTES] = "";
	struct device_wait *w = device_wait_new(c, client, m, &cache_wait);

	if (!w)
		return;
	if (device_set_cache_command(m, wish, error, sizeof(error)) == 0) {
		device_wait_begin(w);
		return;
	}
	socket_refuse(client, error, NULL);
	device_wait_drop(w);
}

/* ---- the request ---- */

/* Absent: 0. False: it is no size, or 0 where that makes no sense; the client has its answer. */
static bool read_cache_size(struct socket_client *client, const json_t *request, const char *key,
			    uint64_t min, uint64_t *ret_bytes)
{
	const char *text = json_string_value(json_object_get(request, key));
	char words[DEVICE_ERROR_BYTES];

	*ret_bytes = 0;
	if (!text || (option_parse_size(text, ret_bytes) == 0 && *ret_bytes >= min))
		return true;
	snprintf(words, sizeof(words), "%s: expected a number of bytes%s, like 1048576 or 20GiB",
		 key, min ? " above 0" : "");
	socket_refuse(client, words, NULL);
	return false;
}

/* -1: it is none of those that do anything. */
static int find_cache_action(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(cache_actions); i++)
		if (name && strcmp(cache_actions[i], name) == 0)
			return (int)i;
	return -1;
}

void commands_cache(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	const char *action = json_string_value(json_object_get(request, "action"));
	int op = find_cache_action(action);
	struct device_cache_wish wish = {
		.op = (enum backend_cache_op)op,
		.node = json_string_value(json_object_get(request, "node")),
	};

	if (!m)
		return;
	if (action && strcmp(action, "stats") == 0)
		answer_cache_stats(client, m);
	else if (op < 0)
		socket_refuse(client, "action: expected stats, warm or drop", NULL);
	else if (read_cache_size(client, request, "offset", 0, &wish.offset_bytes) &&
		 read_cache_size(client, request, "length", 1, &wish.length_bytes))
		begin_cache_command(c, client, m, &wish);
}
