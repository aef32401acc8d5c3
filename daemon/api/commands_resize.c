/*
 * resize: a live device gets another size; answered when it has it. Main thread.
 *
 * Happy path: the size is read ("20GiB", "+1GiB", none for the backend's own growth) ->
 * device_set_resize
 * -> its end is the answer. Failure modes: what is refused is answered at once, also that the new
 * size could not be noted, before anything has changed; a backend that
 * keeps a shrink waiting: after the deadline the answer says so, and the device goes on; the client
 * goes away: it is forgotten.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "config/option.h"
#include "daemon/api/commands_internal.h"
#include "daemon/devices/device_set_notes.h"

struct resize_wait {
	struct commands_pending pending;
	struct commands *commands;
	struct socket_client *client;
	struct member *member;
	struct device_set_watch watch;
	struct ev_timer deadline;
};

static json_t *answer_of(const char *name, uint64_t from_bytes, uint64_t to_bytes,
			 const char *words)
{
	return json_pack("{s:s, s:I, s:I, s:s}", "name", name, "old_size_bytes",
			 (json_int_t)from_bytes, "size_bytes", (json_int_t)to_bytes, "note", words);
}

static void free_wait(struct resize_wait *w)
{
	ev_timer_stop(w->commands->ev, &w->deadline);
	device_set_unwatch(&w->watch);
	free(w);
}

static void cancel(struct commands_pending *pending)
{
	free_wait(container_of(pending, struct resize_wait, pending));
}

/* It is no success, and it is not undone either: users may have seen the new size. */
static void refuse_unnoted(struct resize_wait *w, uint64_t bytes)
{
	char words[DEVICE_ERROR_BYTES];

	snprintf(words, sizeof(words),
		 "has its new size, %llu bytes, but that cannot be noted in %s (see the log); it "
		 "is tried again",
		 (unsigned long long)bytes, w->commands->device_set->state->path);
	socket_refuse(w->client, words, NULL);
}

static void on_end(struct device_set_watch *watch, enum device_set_outcome outcome,
		   const char *words)
{
	struct resize_wait *w = container_of(watch, struct resize_wait, watch);
	struct device_resized r;

	device_resized(w->member->device, &r);
	if (outcome == DEVICE_SET_RESIZED && keep_is_owed(w->member))
		refuse_unnoted(w, r.to_bytes);
	else if (outcome == DEVICE_SET_RESIZED)
		socket_answer(w->client, answer_of(w->member->settings->options.name, r.from_bytes,
						   r.to_bytes, words));
	else
		socket_refuse(w->client, words, NULL);
	free_wait(w);
}

static void on_deadline(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct resize_wait *w = container_of(timer, struct resize_wait, deadline);

	(void)ev, (void)events;
	socket_refuse(w->client, "is not done yet; it goes on", NULL);
	free_wait(w);
}

static void wait_for(struct resize_wait *w)
{
	w->pending.cancel = cancel;
	w->watch.fn = on_end;
	device_set_watch_resize(w->member, &w->watch);
	ev_timer_init(&w->deadline, on_deadline, w->commands->answer_seconds, 0.);
	ev_timer_start(w->commands->ev, &w->deadline);
	w->client->request = &w->pending;
}

static uint64_t size_of(const struct member *m)
{
	struct device_info info = { 0 };

	if (m->device && !m->ended)
		device_info(m->device, &info);
	return info.size_bytes;
}

/* text NULL: 0, the backend's own. False: it is no size. */
static bool read_size(const struct member *m, const char *text, uint64_t *ret_bytes)
{
	bool relative = text && text[0] == '+';

	*ret_bytes = 0;
	if (!text)
		return true;
	if (option_parse_size(text + relative, ret_bytes) < 0 || *ret_bytes == 0)
		return false;
	return !relative || !__builtin_add_overflow(*ret_bytes, size_of(m), ret_bytes);
}

static void begin(struct resize_wait *w, uint64_t size_bytes, bool force)
{
	char error[DEVICE_ERROR_BYTES] = "";
	uint64_t is_bytes = size_of(w->member);
	int ret = 0;

	/* While nothing has changed yet. */
	if (w->member->state == MEMBER_LIVE)
		ret = keep_before_change(w->commands->device_set, w->member, error, sizeof(error));
	if (ret == 0)
		ret = device_set_resize(w->member, size_bytes, force, error, sizeof(error));
	if (ret == 0) {
		wait_for(w);
		return;
	}
	if (ret == -EALREADY)
		socket_answer(w->client,
			      answer_of(w->member->settings->options.name, is_bytes, is_bytes, ""));
	else
		socket_refuse(w->client, error, NULL);
	free(w);
}

void commands_resize(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	struct resize_wait *w;
	uint64_t size_bytes;

	if (!m)
		return;
	if (!read_size(m, json_string_value(json_object_get(request, "size")), &size_bytes)) {
		socket_refuse(client, "size: expected a number of bytes, like 20GiB or +512MiB",
			      NULL);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		socket_refuse(client, "out of memory", NULL);
		return;
	}
	w->commands = c;
	w->client = client;
	w->member = m;
	list_init(&w->watch.node);
	begin(w, size_bytes, json_is_true(json_object_get(request, "force")));
}
