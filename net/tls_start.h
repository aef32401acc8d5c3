/*
 * tls_start: the TLS handshake of a client on a stream that is open, at its beginning or in the
 * middle of what a protocol says in clear text; then the stream carries TLS (stream_secure). The
 * protocol hands it what the stream says. Reactor thread; allocates nothing.
 *
 *	tls_start_begin    what the protocol said before may still be on its way
 *	received           tls_start_received
 *	sent, all of it    tls_start_sent
 * until one of them does not return 0.
 */
#ifndef NET_TLS_START_H
#define NET_TLS_START_H

#include "net/stream.h"
#include "net/tls.h"

struct tls_start {
	/* The owner's, before it begins. */
	struct stream *stream;
	struct tls *tls; /* a new one, or reset; the stream's from the end on */
	size_t said_bytes;
};

/* All return 1: the stream is secured; 0: there is more to come; -1: tls_error says why not. */
int tls_start_begin(struct tls_start *start);
/* *ret_used: fewer than bytes when the peer sent more than it was asked for. */
int tls_start_received(struct tls_start *start, const uint8_t *data, size_t bytes,
		       size_t *ret_used);
int tls_start_sent(struct tls_start *start);

/* After -1, and when all before is sent: says the rest, an alert. Returns whether there is some. */
bool tls_start_say_rest(struct tls_start *start);

#endif
