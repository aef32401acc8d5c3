/*
 * Moves the bytes of the NBD handshake and of TLS by a stream. Owns the handshake; the stream and
 * the TLS session are lent, and nothing of their owner is called. Reactor thread.
 *
 * Happy path: begin -> greeting and options -> (START_TLS: bytes between the stream and tls.h, then
 * the stream takes TLS over) -> 1. What the handshake has to say is one piece; the next goes when
 * that is out. Failure modes: refused, or a broken protocol: -1 with words.
 */
#include "backends/nbd/nbd_login.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 3, 4))) static int login_fail(struct nbd_login_error *e,
							    enum net_end end, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->words, sizeof(e->words), fmt, ap);
	va_end(ap);
	e->end = end;
	return -1;
}

static void login_say(struct nbd_login *login)
{
	const uint8_t *data;
	size_t bytes;

	if (login->said_bytes > 0)
		return;
	bytes = nbd_handshake_output(&login->handshake, &data);
	if (bytes == 0)
		return;
	login->said_bytes = bytes;
	stream_send(login->tls.stream, data, bytes);
}

static void login_said(struct nbd_login *login)
{
	nbd_handshake_sent(&login->handshake, login->said_bytes);
	login->said_bytes = 0;
}

void nbd_login_begin(struct nbd_login *login, const struct nbd_handshake_config *wish)
{
	login->said_bytes = 0;
	nbd_handshake_init(&login->handshake, wish);
	login_say(login);
}

/* ret: tls_start's. */
static int login_go_on_with_tls(struct nbd_login *login, int ret, struct nbd_login_error *e)
{
	if (ret < 0)
		return login_fail(e, NET_END_REFUSED, "TLS: %s", tls_error(login->tls.tls));
	if (ret > 0) {
		nbd_handshake_tls_started(&login->handshake);
		login_say(login);
	}
	return 0;
}

static int login_feed_tls(struct nbd_login *login, struct nbd_input *in, struct nbd_login_error *e)
{
	size_t bytes = (size_t)(in->end - in->at), used;
	int ret = tls_start_received(&login->tls, in->at, bytes, &used);

	in->at += used;
	if (login_go_on_with_tls(login, ret, e) < 0)
		return -1;
	if (used < bytes)
		return login_fail(e, NET_END_PROTOCOL,
				  "TLS: the server sent more than was asked for");
	return 0;
}

int nbd_login_received(struct nbd_login *login, struct nbd_input *in, struct nbd_login_error *e)
{
	struct nbd_handshake *h = &login->handshake;
	size_t used;

	if (nbd_login_is_tls(login))
		return login_feed_tls(login, in, e);
	nbd_handshake_feed(h, in->at, (size_t)(in->end - in->at), &used);
	in->at += used;
	switch (h->step) {
	case NBD_HANDSHAKE_MORE:
		login_say(login);
		return 0;
	case NBD_HANDSHAKE_START_TLS:
		return login_go_on_with_tls(login, tls_start_begin(&login->tls), e);
	case NBD_HANDSHAKE_DONE:
		return 1;
	case NBD_HANDSHAKE_FAILED:
		break;
	}
	return login_fail(e,
			  h->err == -ESHUTDOWN ? NET_END_SHUTDOWN
			  : h->err == -EPROTO  ? NET_END_PROTOCOL
					       : NET_END_REFUSED,
			  "%s", h->error);
}

int nbd_login_sent(struct nbd_login *login, struct nbd_login_error *e)
{
	login_said(login);
	if (nbd_login_is_tls(login))
		return login_go_on_with_tls(login, tls_start_sent(&login->tls), e);
	login_say(login);
	return 0;
}

bool nbd_login_say_rest(struct nbd_login *login)
{
	struct stream *s = login->tls.stream;

	if (s->sent_bytes == s->queued_bytes)
		login_said(login);
	if (nbd_login_is_tls(login))
		return tls_start_say_rest(&login->tls);
	login_say(login);
	return login->said_bytes > 0;
}

void nbd_login_eof(struct nbd_login *login, char *words, size_t words_bytes)
{
	if (nbd_login_is_tls(login)) {
		tls_eof(login->tls.tls);
		snprintf(words, words_bytes, "%s", tls_error(login->tls.tls));
	} else {
		nbd_handshake_eof(&login->handshake);
		snprintf(words, words_bytes, "%s", login->handshake.error);
	}
}
