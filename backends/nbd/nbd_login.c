/*
 * The beginning of a connection: the NBD handshake and, where nbds asks for it, TLS in the middle
 * of it. Works on the handshake and the TLS session of struct nbd_connection and calls neither the
 * connection nor the queue. Reactor thread.
 *
 * Happy path: begin -> greeting and options -> (START_TLS: bytes between the stream and tls.h, then
 * the stream takes TLS over) -> 1. What the handshake has to say is one piece; the next goes when
 * that is out. Failure modes: refused, or a broken protocol: -1 with words.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "backends/nbd/nbd.h"

__attribute__((format(printf, 3, 4))) static int
login_fail(struct nbd_login_error *e, enum backend_end end, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->words, sizeof(e->words), fmt, ap);
	va_end(ap);
	e->end = end;
	return -1;
}

static void login_say(struct nbd_connection *conn)
{
	const uint8_t *data;
	size_t bytes;

	if (conn->said_bytes > 0)
		return;
	conn->said_by_tls = nbd_login_is_tls(conn);
	bytes = conn->said_by_tls ? tls_output(conn->tls, &data)
				  : nbd_handshake_output(&conn->handshake, &data);
	if (bytes == 0)
		return;
	conn->said_bytes = bytes;
	stream_send(&conn->stream, data, bytes);
}

void nbd_login_begin(struct nbd_connection *conn)
{
	const struct nbd_device *nbd = conn->queue->nbd;
	struct nbd_handshake_config config = {
		.mode = NBD_HANDSHAKE_GO,
		.tls = nbd->uri.tls,
		.export_name = nbd->uri.export_name,
		.no_meta = true,
		.no_structured = nbd->found.simple,
		.no_extended = nbd->found.simple,
	};

	nbd_handshake_init(&conn->handshake, &config);
	login_say(conn);
}

static int login_go_on_with_tls(struct nbd_connection *conn, struct nbd_login_error *e)
{
	switch (tls_handshake(conn->tls)) {
	case TLS_MORE:
		login_say(conn);
		break;
	case TLS_DONE:
		/* The stream takes over when the last bytes that were sent without it are out. */
		if (conn->said_bytes > 0)
			break;
		stream_secure(&conn->stream, &tls_codec, conn->tls);
		nbd_handshake_tls_started(&conn->handshake);
		login_say(conn);
		break;
	case TLS_FAILED:
		return login_fail(e, BACKEND_END_REFUSED, "TLS: %s", tls_error(conn->tls));
	}
	return 0;
}

static int login_feed_tls(struct nbd_connection *conn, struct nbd_input *in,
			  struct nbd_login_error *e)
{
	while (in->at < in->end && nbd_login_is_tls(conn)) {
		size_t taken = tls_feed(conn->tls, in->at, (size_t)(in->end - in->at));

		in->at += taken;
		if (login_go_on_with_tls(conn, e) < 0)
			return -1;
		if (taken == 0)
			break;
	}
	if (in->at < in->end)
		return login_fail(e, BACKEND_END_PROTOCOL,
				  "TLS: the server sent more than was asked for");
	return 0;
}

int nbd_login_received(struct nbd_connection *conn, struct nbd_input *in, struct nbd_login_error *e)
{
	struct nbd_handshake *h = &conn->handshake;
	size_t used;

	if (nbd_login_is_tls(conn))
		return login_feed_tls(conn, in, e);
	nbd_handshake_feed(h, in->at, (size_t)(in->end - in->at), &used);
	in->at += used;
	switch (h->step) {
	case NBD_HANDSHAKE_MORE:
		login_say(conn);
		return 0;
	case NBD_HANDSHAKE_START_TLS:
		return login_go_on_with_tls(conn, e);
	case NBD_HANDSHAKE_DONE:
		return 1;
	case NBD_HANDSHAKE_FAILED:
		break;
	}
	return login_fail(e,
			  h->err == -ESHUTDOWN ? BACKEND_END_SHUTDOWN
			  : h->err == -EPROTO  ? BACKEND_END_PROTOCOL
					       : BACKEND_END_REFUSED,
			  "%s", h->error);
}

int nbd_login_sent(struct nbd_connection *conn, struct nbd_login_error *e)
{
	if (conn->said_by_tls)
		tls_sent(conn->tls, conn->said_bytes);
	else
		nbd_handshake_sent(&conn->handshake, conn->said_bytes);
	conn->said_bytes = 0;
	if (nbd_login_is_tls(conn))
		return login_go_on_with_tls(conn, e);
	login_say(conn);
	return 0;
}

void nbd_login_eof(struct nbd_connection *conn, char *words, size_t words_bytes)
{
	if (nbd_login_is_tls(conn)) {
		tls_eof(conn->tls);
		snprintf(words, words_bytes, "%s", tls_error(conn->tls));
	} else {
		nbd_handshake_eof(&conn->handshake);
		snprintf(words, words_bytes, "%s", conn->handshake.error);
	}
}
