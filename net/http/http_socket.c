/*
 * Sockets of libcurl, polled by the ring. Owns their ops. Reactor thread.
 *
 * Happy path: libcurl says what it waits for -> one poll -> libcurl is told -> it reads or writes
 * -> the next poll. Failure modes: there is no room for another one: the transfers on it end by
 * their time limit, told.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "net/http/http_client_internal.h"

static bool socket_is_free(const struct http_socket *s)
{
	return s->fd < 0 && s->poll.state == OP_IDLE && s->cancel.state == OP_IDLE;
}

static void socket_left(struct http_socket *s)
{
	if (s->client->is_leaving && socket_is_free(s))
		http_client_left(s->client);
}

static void socket_poll(struct op *op)
{
	struct http_socket *s = container_of(op, struct http_socket, poll);
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, socket_poll);
		return;
	}
	s->polled = s->wanted;
	io_uring_prep_poll_add(sqe, s->fd, s->polled);
	op_start(op, sqe);
}

static void socket_cancel(struct op *op)
{
	struct http_socket *s = container_of(op, struct http_socket, cancel);
	struct io_uring_sqe *sqe;

	if (!op_inflight(&s->poll)) {
		socket_left(s);
		return;
	}
	sqe = op_sqe(op);
	if (!sqe) {
		op_park(op, socket_cancel);
		return;
	}
	io_uring_prep_poll_remove(sqe, s->poll.user_data);
	op_start(op, sqe);
}

/*
 * Ends a poll that is not the one that is wanted. If another one is being cancelled still, this one
 * is when that has ended: socket_cancelled.
 */
static void socket_stop(struct http_socket *s)
{
	if (op_unpark(&s->poll))
		return;
	if (op_inflight(&s->poll) && s->cancel.state == OP_IDLE)
		socket_cancel(&s->cancel);
}

static void socket_go_on(struct http_socket *s)
{
	if (s->fd >= 0 && s->wanted && s != s->client->acting && s->poll.state == OP_IDLE)
		socket_poll(&s->poll);
}

static int socket_events(int res)
{
	int events = 0;

	if (res < 0)
		return CURL_CSELECT_ERR;
	if (res & (POLLIN | POLLHUP))
		events |= CURL_CSELECT_IN;
	if (res & POLLOUT)
		events |= CURL_CSELECT_OUT;
	if (res & POLLERR)
		events |= CURL_CSELECT_ERR;
	return events;
}

static void socket_polled(struct op *op, int res, uint32_t cqe_flags)
{
	struct http_socket *s = container_of(op, struct http_socket, poll);

	(void)cqe_flags;
	if (s->fd < 0) {
		socket_left(s);
		return;
	}
	/* Cancelled for another one. */
	if (res != -ECANCELED)
		http_client_act(s->client, s, socket_events(res));
	socket_go_on(s);
}

static void socket_cancelled(struct op *op, int res, uint32_t cqe_flags)
{
	struct http_socket *s = container_of(op, struct http_socket, cancel);

	(void)res;
	(void)cqe_flags;
	if (op_inflight(&s->poll) && (s->fd < 0 || s->polled != s->wanted))
		socket_stop(s);
	socket_left(s);
}

static struct http_socket *socket_take(struct http_client *c, int fd)
{
	for (unsigned i = 0; i < c->socket_nr; i++) {
		struct http_socket *s = &c->socket[i];

		if (!socket_is_free(s))
			continue;
		s->fd = fd;
		c->curl->curl_multi_assign(c->multi, fd, s);
		return s;
	}
	log_limited(LOG_LEVEL_WARN, "a web server's connection cannot be watched", "sockets=%u",
		    c->socket_nr);
	return NULL;
}

static void socket_forget(struct http_socket *s)
{
	s->fd = -1;
	s->wanted = 0;
	socket_stop(s);
}

int http_socket_want(CURL *easy, curl_socket_t fd, int what, void *client, void *socket)
{
	struct http_client *c = client;
	struct http_socket *s = socket;
	uint32_t wanted = 0;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (s)
			socket_forget(s);
		return 0;
	}
	if (!s)
		s = socket_take(c, fd);
	if (!s)
		return 0;
	if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
		wanted |= POLLIN;
	if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
		wanted |= POLLOUT;
	if (wanted != s->wanted)
		socket_stop(s);
	s->wanted = wanted;
	socket_go_on(s);
	return 0;
}

static int socket_init(struct http_socket *s, struct http_client *c)
{
	const struct op_owner owner = { .kind = OP_KIND_STREAM };
	int ret;

	ret = op_init(&s->poll, c->reactor, owner, socket_polled);
	return ret < 0 ? ret : op_init(&s->cancel, c->reactor, owner, socket_cancelled);
}

int http_sockets_init(struct http_client *c, unsigned nr)
{
	int ret = 0;

	c->socket = calloc(nr, sizeof(*c->socket));
	if (!c->socket)
		return -ENOMEM;
	c->socket_nr = nr;
	for (unsigned i = 0; i < nr; i++)
		c->socket[i] = (struct http_socket){ .client = c, .fd = -1 };
	for (unsigned i = 0; i < nr && ret == 0; i++)
		ret = socket_init(&c->socket[i], c);
	return ret;
}

void http_sockets_forget(struct http_client *c)
{
	for (unsigned i = 0; i < c->socket_nr; i++)
		socket_forget(&c->socket[i]);
}

bool http_sockets_are_free(const struct http_client *c)
{
	for (unsigned i = 0; i < c->socket_nr; i++)
		if (!socket_is_free(&c->socket[i]))
			return false;
	return true;
}

void http_sockets_fini(struct http_client *c)
{
	for (unsigned i = 0; i < c->socket_nr; i++) {
		op_fini(&c->socket[i].poll);
		op_fini(&c->socket[i].cancel);
	}
	free(c->socket);
}
