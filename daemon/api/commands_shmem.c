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
#include <unistd.h>

#include "daemon/api/device_wait.h"

static void share_ended(struct device_wait *w, enum device_set_outcome outcome, const char *words)
{
	struct device_shmem_end end;

	if (outcome != DEVICE_SET_SHMEM) {
		socket_refuse(w->client, words, NULL);
		return;
	}
	device_shmem_ended(w->member->device, &end);
	socket_answer(w->client, json_pack("{s:s, s:i}", "name", w->member->settings->options.name,
					   "buffer", (int)end.idx));
}

static bool share_late(struct device_wait *w)
{
	socket_refuse(
		w->client,
		"is not done yet: the driver waits for the device's requests; it goes on, and "
		"ublkctl show lists the buffers",
		NULL);
	return true;
}

static const struct device_wait_kind share_wait = {
	.watch = device_set_watch_shmem,
	.ended = share_ended,
	.timer = share_late,
};

/* The end of either command: err is what its beginning returned, with words in error. */
static void answer_later(struct device_wait *w, int err, const char *error)
{
	if (err == 0) {
		device_wait_begin(w);
		return;
	}
	socket_refuse(w->client, error, NULL);
	device_wait_drop(w);
}

void commands_share(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	bool read_only = json_is_true(json_object_get(request, "read_only"));
	char error[DEVICE_ERROR_BYTES] = "";
	struct device_wait *w;
	int fd;

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
	w = device_wait_new(c, client, m, &share_wait);
	if (w)
		answer_later(w, device_set_share(m, fd, read_only, error, sizeof(error)), error);
	close(fd);
}

void commands_unshare(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	const char *text = json_string_value(json_object_get(request, "buffer"));
	char error[DEVICE_ERROR_BYTES] = "", end;
	struct device_wait *w;
	unsigned idx;

	if (!m)
		return;
	if (!text || sscanf(text, "%5u%c", &idx, &end) != 1) {
		socket_refuse(client, "buffer: expected the number of a shared buffer, like 0",
			      NULL);
		return;
	}
	w = device_wait_new(c, client, m, &share_wait);
	if (w)
		answer_later(w, device_set_unshare(m, idx, error, sizeof(error)), error);
}
