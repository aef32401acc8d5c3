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

void top_client_init(struct top_client *c, const char *path)
{
	*c = (struct top_client){ .path = path, .fd = -1 };
}

static void hang_up(struct top_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void forget(struct top_client *c)
{
	for (unsigned i = 0; i < c->reply_nr; i++)
		json_decref(c->replies[i]);
	c->reply_nr = 0;
	c->in_bytes = c->scanned = 0;
}

void top_client_fini(struct top_client *c)
{
	hang_up(c);
	forget(c);
	free(c->in);
	c->in = NULL;
	c->in_size = 0;
}

static void fail_with(struct top_client *c, const char *why)
{
	hang_up(c);
	c->state = TOP_CLIENT_FAILED;
	snprintf(c->error, sizeof(c->error), "%s", why);
}

static void fail_with_errno(struct top_client *c, int err)
{
	char text[CLIENT_TEXT_BYTES];

	client_no_connection(c->path, err, text, sizeof(text));
	fail_with(c, text);
}

/* ---- asking ---- */

/* Returns 0 or -errno; EAGAIN: ublkd does not accept. */
static int connect_now(struct top_client *c)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	if (strlen(c->path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, c->path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0 || connect(c->fd, (void *)&addr, sizeof(addr)) < 0)
		return -errno;
	return client_may_ask(c->fd) ? 0 : -EKEYREJECTED;
}

void top_client_ask(struct top_client *c, const char *requests, unsigned nr, uint64_t now_ns)
{
	size_t bytes = strlen(requests);
	ssize_t sent;
	int ret;

	hang_up(c);
	forget(c);
	c->question_nr = nr;
	c->state = TOP_CLIENT_WAITING;
	c->deadline_ns = now_ns + CLIENT_SECONDS * NS_PER_SEC;
	ret = connect_now(c);
	if (ret < 0) {
		fail_with_errno(c, -ret);
		return;
	}
	/* EPIPE: refused before it was asked (too many clients); the reason is there to be read. */
	sent = send(c->fd, requests, bytes, MSG_NOSIGNAL);
	if (sent < 0 && errno != EPIPE)
		fail_with_errno(c, errno);
	else if (sent >= 0 && (size_t)sent < bytes)
		fail_with_errno(c, EAGAIN);
}

/* ---- answers ---- */

/* Returns bytes, 0 at the end, -errno. */
static ssize_t read_more(struct top_client *c)
{
	ssize_t ret;

	if (c->in_size - c->in_bytes < READ_BYTES) {
		char *in = NULL;

		if (c->in_bytes < ANSWERS_BYTES_MAX)
			in = realloc(c->in, c->in_size * 2 + READ_BYTES);
		if (!in)
			return -ENOMEM;
		c->in = in;
		c->in_size = c->in_size * 2 + READ_BYTES;
	}
	ret = recv(c->fd, c->in + c->in_bytes, c->in_size - c->in_bytes, 0);
	if (ret < 0)
		return -errno;
	c->in_bytes += (size_t)ret;
	return ret;
}

static void take_line(struct top_client *c, size_t bytes)
{
	json_t *reply = json_loadb(c->in, bytes, 0, NULL);

	c->in_bytes -= bytes + 1;
	memmove(c->in, c->in + bytes + 1, c->in_bytes);
	c->scanned = 0;
	if (!json_is_object(reply)) {
		json_decref(reply);
		fail_with(c, "the answer is not JSON: is this ublkd?");
		return;
	}
	c->replies[c->reply_nr++] = reply;
	if (c->reply_nr == c->question_nr) {
		hang_up(c);
		c->state = TOP_CLIENT_DONE;
	}
}

static void take_lines(struct top_client *c)
{
	while (c->state == TOP_CLIENT_WAITING) {
		char *newline = memchr(c->in + c->scanned, '\n', c->in_bytes - c->scanned);

		c->scanned = c->in_bytes;
		if (!newline)
			return;
		take_line(c, (size_t)(newline - c->in));
	}
}

/* One that was refused as a whole has one answer for all. */
static void ended(struct top_client *c)
{
	const char *why = NULL;

	if (c->reply_nr > 0 && !json_is_true(json_object_get(c->replies[0], "ok")))
		why = json_string_value(json_object_get(c->replies[0], "error"));
	fail_with(c, why ? why : "ublkd exited before it answered");
}

void top_client_turn(struct top_client *c, uint64_t now_ns)
{
	ssize_t ret = 1;

	while (c->state == TOP_CLIENT_WAITING && ret > 0) {
		ret = read_more(c);
		if (ret > 0)
			take_lines(c);
		else if (ret == 0 || ret == -ECONNRESET)
			ended(c);
		else if (ret == -EINTR)
			ret = 1;
		else if (ret != -EAGAIN)
			fail_with_errno(c, (int)-ret);
	}
	if (c->state == TOP_CLIENT_WAITING && now_ns >= c->deadline_ns)
		fail_with_errno(c, EAGAIN);
}

const json_t *top_client_data(const struct top_client *c, unsigned idx, const char **ret_error)
{
	const json_t *reply = c->replies[idx];
	const char *error = json_string_value(json_object_get(reply, "error"));

	if (json_is_true(json_object_get(reply, "ok")))
		return json_object_get(reply, "data");
	*ret_error = error ? error : "the request was refused without a reason";
	return NULL;
}
