/*
 * share, unshare: memory of clients for a device (docs/shared-memory.md). Main thread.
 *
 * Happy path: the descriptor that came along with the request -> device_set_share -> the driver has
 * it: the answer is the buffer's number. unshare the same with the number.
 *
 * Failure modes: no descriptor, or a refusal: answered at once. The driver waits for requests
 * longer than a client is let wait: that is the answer, and the command goes on.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "daemon/api/commands_internal.h"

struct shmem_wait {
	struct commands_pending pending;
	struct commands *commands;
	struct socket_client *client;
	struct member *member;
	struct device_set_watch watch;
	struct ev_timer deadline;
};

static void free_shmem_wait(struct shmem_wait *w)
{
	ev_timer_stop(w->commands->ev, &w->deadline);
	device_set_unwatch(&w->watch);
	free(w);
}

static void cancel_shmem_wait(struct commands_pending *pending)
{
	free_shmem_wait(container_of(pending, struct shmem_wait, pending));
}

static void on_shmem_ended(struct device_set_watch *watch, enum device_set_outcome outcome,
			   const char *words)
{
	struct shmem_wait *w = container_of(watch, struct shmem_wait, watch);
	struct device_shmem_end end;

	if (outcome == DEVICE_SET_SHMEM) {
		device_shmem_ended(w->member->device, &end);
		socket_answer(w->client,
			      json_pack("{s:s, s:i}", "name", w->member->settings->options.name,
					"buffer", (int)end.idx));
	} else {
		socket_refuse(w->client, words, NULL);
	}
	free_shmem_wait(w);
}

static void on_shmem_deadline(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct shmem_wait *w = container_of(timer, struct shmem_wait, deadline);

	(void)ev, (void)events;
	socket_refuse(
		w->client,
		"is not done yet: the driver waits for the device's requests; it goes on, and "
		"ublkctl show lists the buffers",
		NULL);
	free_shmem_wait(w);
}

static void wait_for_shmem(struct commands *c, struct socket_client *client, struct member *m,
			   struct shmem_wait *w)
{
	w->commands = c;
	w->client = client;
	w->member = m;
	w->pending.cancel = cancel_shmem_wait;
	w->watch.fn = on_shmem_ended;
	device_set_watch_shmem(m, &w->watch);
	ev_timer_init(&w->deadline, on_shmem_deadline, c->answer_seconds, 0.);
	ev_timer_start(c->ev, &w->deadline);
	client->request = &w->pending;
}

/* The end of either command: err is what its beginning returned, with words in error. */
static void answer_later(struct commands *c, struct socket_client *client, struct member *m,
			 struct shmem_wait *w, int err, const char *error)
{
	if (err == 0) {
		wait_for_shmem(c, client, m, w);
		return;
	}
	free(w);
	socket_refuse(client, error, NULL);
}

void commands_share(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	bool read_only = json_is_true(json_object_get(request, "read_only"));
	char error[DEVICE_ERROR_BYTES] = "out of memory";
	struct shmem_wait *w;
	int fd, ret = -1;

	if (!m)
		return;
	fd = socket_take_fd(client);
	if (fd < 0) {
		socket_refuse(client,
			      "the request has no descriptor: send one along with it (SCM_RIGHTS, "
			      "unix(7)), or use ublkctl share",
			      NULL);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (w)
		ret = device_set_share(m, fd, read_only, error, sizeof(error));
	close(fd);
	answer_later(c, client, m, w, ret, error);
}

void commands_unshare(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	const char *text = json_string_value(json_object_get(request, "buffer"));
	char error[DEVICE_ERROR_BYTES] = "out of memory", end;
	struct shmem_wait *w;
	unsigned idx;
	int ret = -1;

	if (!m)
		return;
	if (!text || sscanf(text, "%5u%c", &idx, &end) != 1) {
		socket_refuse(client, "buffer: expected the number of a shared buffer, like 0",
			      NULL);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (w)
		ret = device_set_unshare(m, idx, error, sizeof(error));
	answer_later(c, client, m, w, ret, error);
}
