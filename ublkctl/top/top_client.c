/*
 * Questions and answers without waiting. Owns the connection, the text that came, and the answers.
 *
 * Happy path: ask connects and sends (a Unix socket takes it at once), turn reads until there are
 * as many lines as questions. Failure modes: nobody listens, a daemon that is stopped (the
 * deadline), one that ends in between, lines that are no JSON: FAILED, in words.
 */
#include "ublkctl/top/top_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"

#define READ_BYTES 65536
#define ANSWERS_BYTES_MAX (256u << 20)

void top_client_init(struct top_client *l, const char *path)
{
	*l = (struct top_client){ .path = path, .fd = -1 };
}

static void hang_up(struct top_client *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static void forget(struct top_client *l)
{
	for (unsigned i = 0; i < l->reply_nr; i++)
		json_decref(l->replies[i]);
	l->reply_nr = 0;
	l->in_bytes = l->scanned = 0;
}

void top_client_fini(struct top_client *l)
{
	hang_up(l);
	forget(l);
	free(l->in);
	l->in = NULL;
	l->in_size = 0;
}

static void fail(struct top_client *l, const char *why)
{
	hang_up(l);
	l->state = TOP_CLIENT_FAILED;
	snprintf(l->error, sizeof(l->error), "%s", why);
}

static void fail_errno(struct top_client *l, int err)
{
	char text[CLIENT_TEXT_BYTES];

	client_no_connection(l->path, err, text, sizeof(text));
	fail(l, text);
}

/* ---- asking ---- */

/* Returns 0 or -errno; EAGAIN: ublkd does not accept. */
static int connect_now(struct top_client *l)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	if (strlen(l->path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, l->path);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || connect(l->fd, (void *)&addr, sizeof(addr)) < 0)
		return -errno;
	return client_may_ask(l->fd) ? 0 : -EKEYREJECTED;
}

void top_client_ask(struct top_client *l, const char *requests, unsigned nr, uint64_t now_ns)
{
	size_t bytes = strlen(requests);
	ssize_t sent;
	int ret;

	hang_up(l);
	forget(l);
	l->question_nr = nr;
	l->state = TOP_CLIENT_WAITING;
	l->deadline_ns = now_ns + CLIENT_SECONDS * NS_PER_SEC;
	ret = connect_now(l);
	if (ret < 0) {
		fail_errno(l, -ret);
		return;
	}
	/* EPIPE: refused before it was asked (too many clients); the reason is there to be read. */
	sent = send(l->fd, requests, bytes, MSG_NOSIGNAL);
	if (sent < 0 && errno != EPIPE)
		fail_errno(l, errno);
	else if (sent >= 0 && (size_t)sent < bytes)
		fail_errno(l, EAGAIN);
}

/* ---- answers ---- */

/* Returns bytes, 0 at the end, -errno. */
static ssize_t read_more(struct top_client *l)
{
	ssize_t ret;

	if (l->in_size - l->in_bytes < READ_BYTES) {
		char *in = NULL;

		if (l->in_bytes < ANSWERS_BYTES_MAX)
			in = realloc(l->in, l->in_size * 2 + READ_BYTES);
		if (!in)
			return -ENOMEM;
		l->in = in;
		l->in_size = l->in_size * 2 + READ_BYTES;
	}
	ret = recv(l->fd, l->in + l->in_bytes, l->in_size - l->in_bytes, 0);
	if (ret < 0)
		return -errno;
	l->in_bytes += (size_t)ret;
	return ret;
}

static void take_line(struct top_client *l, size_t bytes)
{
	json_t *reply = json_loadb(l->in, bytes, 0, NULL);

	l->in_bytes -= bytes + 1;
	memmove(l->in, l->in + bytes + 1, l->in_bytes);
	l->scanned = 0;
	if (!json_is_object(reply)) {
		json_decref(reply);
		fail(l, "the answer is not JSON: is this ublkd?");
		return;
	}
	l->replies[l->reply_nr++] = reply;
	if (l->reply_nr == l->question_nr) {
		hang_up(l);
		l->state = TOP_CLIENT_DONE;
	}
}

static void take_lines(struct top_client *l)
{
	while (l->state == TOP_CLIENT_WAITING) {
		char *newline = memchr(l->in + l->scanned, '\n', l->in_bytes - l->scanned);

		l->scanned = l->in_bytes;
		if (!newline)
			return;
		take_line(l, (size_t)(newline - l->in));
	}
}

/* One that was refused as a whole has one answer for all. */
static void ended(struct top_client *l)
{
	const char *why = NULL;

	if (l->reply_nr > 0 && !json_is_true(json_object_get(l->replies[0], "ok")))
		why = json_string_value(json_object_get(l->replies[0], "error"));
	fail(l, why ? why : "ublkd exited before it answered");
}

void top_client_turn(struct top_client *l, uint64_t now_ns)
{
	ssize_t ret = 1;

	while (l->state == TOP_CLIENT_WAITING && ret > 0) {
		ret = read_more(l);
		if (ret > 0)
			take_lines(l);
		else if (ret == 0 || ret == -ECONNRESET)
			ended(l);
		else if (ret == -EINTR)
			ret = 1;
		else if (ret != -EAGAIN)
			fail_errno(l, (int)-ret);
	}
	if (l->state == TOP_CLIENT_WAITING && now_ns >= l->deadline_ns)
		fail_errno(l, EAGAIN);
}

const json_t *top_client_data(const struct top_client *l, unsigned idx, const char **ret_error)
{
	const json_t *reply = l->replies[idx];
	const char *error = json_string_value(json_object_get(reply, "error"));

	if (json_is_true(json_object_get(reply, "ok")))
		return json_object_get(reply, "data");
	*ret_error = error ? error : "the request was refused without a reason";
	return NULL;
}
