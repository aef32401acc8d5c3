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
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "config/option.h"
#include "daemon/api/commands_internal.h"
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

struct cache_wait {
	struct commands_pending pending;
	struct commands *commands;
	struct socket_client *client;
	struct member *member;
	struct device_set_watch watch;
	struct ev_timer look;
};

static void free_cache_wait(struct cache_wait *w)
{
	ev_timer_stop(w->commands->ev, &w->look);
	device_set_unwatch(&w->watch);
	free(w);
}

/* Nobody hears of its end. */
static void cancel_cache_wait(struct commands_pending *pending)
{
	struct cache_wait *w = container_of(pending, struct cache_wait, pending);

	device_cache_cancel(w->member->device);
	free_cache_wait(w);
}

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

static void on_cache_ended(struct device_set_watch *watch, enum device_set_outcome outcome,
			   const char *words)
{
	struct cache_wait *w = container_of(watch, struct cache_wait, watch);
	struct device_cache_look look;
	json_t *all, *more;

	if (outcome == DEVICE_SET_CACHE) {
		device_cache_look(w->member->device, &look);
		all = json_pack("{s:s, s:s}", "name", w->member->settings->options.name, "node",
				look.node);
		more = look.job->op == BACKEND_CACHE_WARM ? warm_answer(look.job)
							  : drop_answer(look.job);
		json_object_update(all, more);
		json_decref(more);
		socket_answer(w->client, all);
	} else {
		socket_refuse(w->client, words, NULL);
	}
	free_cache_wait(w);
}

/* Of one that has left the answer goes nowhere. */
static void on_cache_look(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct cache_wait *w = container_of(timer, struct cache_wait, look);

	(void)ev, (void)events;
	if (socket_client_left(w->client))
		device_cache_cancel(w->member->device);
}

static void wait_for_cache(struct commands *c, struct socket_client *client, struct member *m,
			   struct cache_wait *w)
{
	w->commands = c;
	w->client = client;
	w->member = m;
	w->pending.cancel = cancel_cache_wait;
	w->watch.fn = on_cache_ended;
	device_set_watch_cache(m, &w->watch);
	ev_timer_init(&w->look, on_cache_look, CACHE_CLIENT_SECONDS, CACHE_CLIENT_SECONDS);
	ev_timer_start(c->ev, &w->look);
	client->request = &w->pending;
}

static void begin_cache_command(struct commands *c, struct socket_client *client, struct member *m,
				const struct device_cache_wish *wish)
{
	char error[DEVICE_ERROR_BYTES] = "";
	struct cache_wait *w = calloc(1, sizeof(*w));

	if (!w) {
		socket_refuse(client, "out of memory", NULL);
		return;
	}
	if (device_set_cache_command(m, wish, error, sizeof(error)) == 0) {
		wait_for_cache(c, client, m, w);
		return;
	}
	socket_refuse(client, error, NULL);
	free(w);
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
