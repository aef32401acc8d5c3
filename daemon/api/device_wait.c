/*
 * Owns the wait from device_wait_begin to its end. Happy path: the watch hears of the end, the kind
 * answers, the wait is freed. Failure modes: it takes longer than a client is let wait, or the
 * client disconnects: the wait is freed, the device goes on.
 */
#include "daemon/api/device_wait.h"

#include <stdlib.h>

#include "base/util.h"

struct device_wait *device_wait_new(struct commands *c, struct socket_client *client,
				    struct member *m, const struct device_wait_kind *kind)
{
	struct device_wait *w = calloc(1, sizeof(*w));

	if (!w) {
		socket_refuse(client, "out of memory", NULL);
		return NULL;
	}
	w->kind = kind;
	w->commands = c;
	w->client = client;
	w->member = m;
	return w;
}

void device_wait_drop(struct device_wait *w)
{
	free(w);
}

static void device_wait_over(struct device_wait *w)
{
	ev_timer_stop(w->commands->ev, &w->timer);
	device_set_unwatch(&w->watch);
	free(w);
}

static void device_wait_cancel(struct commands_pending *pending)
{
	struct device_wait *w = container_of(pending, struct device_wait, pending);

	if (w->kind->left)
		w->kind->left(w);
	device_wait_over(w);
}

static void device_wait_ended(struct device_set_watch *watch, enum device_set_outcome outcome,
			      const char *words)
{
	struct device_wait *w = container_of(watch, struct device_wait, watch);

	w->kind->ended(w, outcome, words);
	device_wait_over(w);
}

static void device_wait_timer(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct device_wait *w = container_of(timer, struct device_wait, timer);

	(void)ev, (void)events;
	if (w->kind->timer(w))
		device_wait_over(w);
}

void device_wait_begin(struct device_wait *w)
{
	double seconds = w->kind->timer_seconds;

	if (seconds == 0)
		seconds = w->commands->answer_seconds;
	w->pending.cancel = device_wait_cancel;
	w->watch.fn = device_wait_ended;
	w->kind->watch(w->member, &w->watch);
	ev_timer_init(&w->timer, device_wait_timer, seconds, seconds);
	ev_timer_start(w->commands->ev, &w->timer);
	w->client->request = &w->pending;
}
