/*
 * What of a session is NBD's: the table of the protocol. Owns of each connection the handshake, the
 * headers of requests and the parser of replies. Reactor thread. It is called by net/session*.c,
 * and commands nbd_login.c and nbd_transfer.c.
 *
 * Happy path: the handshake asks for what the device was opened with -> ready -> requests are sent,
 * replies end them.
 *
 * A server that says that it is shutting down has not done the request: the request waits for
 * another connection as if it had been lost with this one, which ends when the others are answered.
 * What a lost connection had is sent again: every NBD request can be done twice, but see
 * net/flush.h.
 *
 * Failure modes: a handshake that is refused, a reply that breaks the protocol: the connection is
 * dropped, with words. A server that is not what it was when the device was opened (size, flags,
 * block sizes) makes the device fail: its users must not go on as if nothing had happened.
 */
#include <errno.h>
#include <stdlib.h>

#include "backends/nbd/nbd.h"
#include "storage/registry.h"
#include "base/util.h"

static int nbd_connection_init(struct session_connection *c)
{
	struct nbd_connection *conn = nbd_connection_of(c);

	conn->login.tls = (struct tls_start){ .stream = &c->stream, .tls = c->tls };
	conn->headers = calloc(c->session->params.depth, NBD_REQUEST_BYTES_MAX);
	return conn->headers ? 0 : -ENOMEM;
}

static void nbd_connection_fini(struct session_connection *c)
{
	free(nbd_connection_of(c)->headers);
}

/* ---- the handshake ---- */

static void nbd_connection_hello(struct session_connection *c)
{
	const struct nbd_device *nbd = nbd_queue_of(c)->nbd;
	struct nbd_handshake_config wish = {
		.mode = NBD_HANDSHAKE_GO,
		.tls = nbd->uri.tls,
		.export_name = nbd->uri.export_name,
		.no_meta = true,
		.no_structured = nbd->found.simple,
		.no_extended = nbd->found.simple,
	};

	nbd_login_begin(&nbd_connection_of(c)->login, &wish);
}

static void connection_is_ready(struct nbd_connection *conn)
{
	struct nbd_queue *q = nbd_queue_of(&conn->c);

	nbd_transfer_begin(conn);
	if (q->queue->idx == 0 && conn->c.idx == 0 && q->nbd->flush.is_volatile) {
		if (!net_witness_is(&q->nbd->witness, conn->c.stream.fd) &&
		    net_flush_lost(&q->nbd->flush))
			backend_owe(q->queue->device);
		backend_tell(q->queue->device, BACKEND_NEWS_STORED);
	}
	session_ready(&conn->c);
}

/* What came of bytes of the handshake: 1 it is done, 0 there is more to come, -1 it failed. */
static void connection_go_on(struct nbd_connection *conn, int ret, const struct nbd_login_error *e)
{
	struct nbd_device *nbd = nbd_queue_of(&conn->c)->nbd;

	if (ret < 0) {
		session_drop(&conn->c, e->end, "%s", e->words);
	} else if (ret > 0 && nbd_changed_note(nbd, &conn->login.handshake.export)) {
		session_drop(&conn->c, NET_END_CHANGED, "the export is not what it was");
	} else if (ret > 0) {
		connection_is_ready(conn);
	}
}

static size_t nbd_connection_hello_received(struct session_connection *c, const uint8_t *data,
					    size_t bytes)
{
	struct nbd_connection *conn = nbd_connection_of(c);
	struct nbd_input in = { data, data + bytes };
	struct nbd_login_error e;

	connection_go_on(conn, nbd_login_received(&conn->login, &in, &e), &e);
	/* What comes behind the handshake is a reply to nothing: the parser says so. */
	return (size_t)(in.at - data);
}

static void nbd_connection_hello_sent(struct session_connection *c)
{
	struct nbd_connection *conn = nbd_connection_of(c);
	struct nbd_login_error e;

	connection_go_on(conn, nbd_login_sent(&conn->login, &e), &e);
}

static const char *nbd_connection_hello_doing(const struct session_connection *c)
{
	const struct nbd_connection *conn = container_of(c, const struct nbd_connection, c);

	return nbd_login_is_tls(&conn->login) ? "the TLS handshake" : "the handshake";
}

/* Servers that do not accept a key say so by hanging up. */
static bool nbd_connection_hello_ended(struct session_connection *c, int err, char *words,
				       size_t bytes)
{
	struct nbd_connection *conn = nbd_connection_of(c);
	bool refuses = nbd_login_is_tls(&conn->login);

	if (err == -ECONNRESET)
		nbd_login_eof(&conn->login, words, bytes);
	return refuses;
}

static size_t nbd_connection_goodbye(struct session_connection *c, uint8_t *buf)
{
	return nbd_request_encode_disc(buf, nbd_connection_of(c)->login.handshake.export.extended);
}

/* ---- requests ---- */

static int nbd_connection_send(struct session_connection *c, struct session_request *r)
{
	struct nbd_io *n = nbd_io_of(r);

	if (n->io->op == BACKEND_FLUSH)
		net_flush_begin(&nbd_queue_of(c)->nbd->flush, &n->flush);
	nbd_transfer_send(nbd_connection_of(c), n);
	return 0;
}

static void nbd_connection_left(struct session_connection *c, struct session_request *r)
{
	nbd_transfer_left(nbd_connection_of(c), nbd_io_of(r));
}

static void nbd_connection_done(struct session_request *r, int result)
{
	backend_io_complete(nbd_io_of(r)->io, result);
}

static const char *nbd_connection_request_name(const struct session_request *r)
{
	return nbd_cmd_name(container_of(r, const struct nbd_io, request)->slot.cmd);
}

static void nbd_connection_lost(struct session_connection *c)
{
	struct nbd_queue *q = nbd_queue_of(c);

	if (net_flush_lost(&q->nbd->flush))
		backend_owe(q->queue->device);
}

static int nbd_connection_may_resend(struct session_request *r)
{
	struct nbd_io *n = nbd_io_of(r);
	struct nbd_device *nbd = n->io->queue->device->priv;

	return net_flush_may_resend(&nbd->flush, &n->flush) ? 0 : -EIO;
}

static bool nbd_connection_fails_fast(const struct session_request *r)
{
	const struct backend_io *io = container_of(r, const struct nbd_io, request)->io;
	const struct nbd_device *nbd = io->queue->device->priv;

	return nbd->config->outage.fail_fast && (io->flags & BACKEND_FAIL_FAST);
}

static bool nbd_connection_is_over(const struct session *s)
{
	const struct nbd_queue *q = container_of(s, const struct nbd_queue, session);

	return net_has_changed(&q->nbd->changed);
}

/* ---- replies ---- */

static void connection_note_answer(struct nbd_device *nbd, struct nbd_io *n, int result)
{
	const struct backend_io *io = n->io;

	if (io->op == BACKEND_FLUSH)
		net_flush_answered(&nbd->flush, &n->flush, result);
	else if ((io->op == BACKEND_WRITE || io->op == BACKEND_WRITE_ZEROES) &&
		 !(io->flags & BACKEND_FUA))
		net_flush_wrote(&nbd->flush);
}

/* Behind the last reply of a connection that is leaving anything else breaks the protocol. */
static void connection_take_replies(struct nbd_connection *conn, struct nbd_input in)
{
	struct nbd_device *nbd = nbd_queue_of(&conn->c)->nbd;
	struct nbd_io *n;
	int ret, result;

	while ((ret = nbd_transfer_received(conn, &in, &n, &result)) > 0) {
		if (result == -ESHUTDOWN) {
			/* "it MUST initiate a soft disconnect" (proto.md) */
			session_retire(&conn->c);
			session_refuse(&conn->c, &nbd_protocol, &n->request);
		} else {
			connection_note_answer(nbd, n, result);
			session_answer(&conn->c, &nbd_protocol, &n->request, result);
		}
	}
	if (ret < 0)
		session_drop(&conn->c, NET_END_PROTOCOL, "the server broke the protocol: %s",
			     conn->reply.error);
}

static void nbd_connection_received(struct session_connection *c, const uint8_t *data, size_t bytes)
{
	connection_take_replies(nbd_connection_of(c), (struct nbd_input){ data, data + bytes });
}

/* Straight to its place; the parser follows. Behind the last byte it may have more to say. */
static void nbd_connection_received_into(struct session_connection *c, size_t bytes)
{
	struct nbd_connection *conn = nbd_connection_of(c);

	nbd_reply_took(&conn->reply, bytes);
	if (c->stream.into_bytes == 0)
		connection_take_replies(conn, (struct nbd_input){ NULL, NULL });
}

const struct session_protocol nbd_protocol = {
	.connection_bytes = sizeof(struct nbd_connection),
	.pieces_nr = 2, /* header and data */
	.connection_init = nbd_connection_init,
	.connection_fini = nbd_connection_fini,
	.hello = nbd_connection_hello,
	.hello_received = nbd_connection_hello_received,
	.hello_sent = nbd_connection_hello_sent,
	.hello_doing = nbd_connection_hello_doing,
	.hello_ended = nbd_connection_hello_ended,
	.send = nbd_connection_send,
	.received = nbd_connection_received,
	.received_into = nbd_connection_received_into,
	.left = nbd_connection_left,
	.done = nbd_connection_done,
	.request_name = nbd_connection_request_name,
	.lost = nbd_connection_lost,
	.may_resend = nbd_connection_may_resend,
	.fails_fast = nbd_connection_fails_fast,
	.is_over = nbd_connection_is_over,
	.goodbye = nbd_connection_goodbye,
};

int nbd_connection_submit(struct nbd_queue *q, struct nbd_io *n)
{
	return session_submit(&q->session, &nbd_protocol, &n->request);
}
