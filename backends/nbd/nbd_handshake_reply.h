/*
 * Between nbd_handshake.c, which knows what is asked when and what an answer means for it, and
 * nbd_handshake_reply.c, which reads what the answers carry.
 */
#ifndef BACKENDS_NBD_NBD_HANDSHAKE_REPLY_H
#define BACKENDS_NBD_NBD_HANDSHAKE_REPLY_H

#include "backends/nbd/nbd_handshake.h"

/* Ends the handshake with these words and -errno. */
void nbd_handshake_fail(struct nbd_handshake *h, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A reply that is neither ACK nor an error, in h->in: takes it in, or fails. */
void nbd_handshake_take_data(struct nbd_handshake *h);

/* Size and flags, wherever they were said. False: it failed. */
bool nbd_handshake_take_size(struct nbd_handshake *h, uint64_t size_bytes, uint16_t flags);

/* An error reply that ends the handshake, in h->in: into words. */
void nbd_handshake_take_refusal(struct nbd_handshake *h);

#endif
