/*
 * What an NBD server sends in the transmission phase: an incremental parser of simple, structured
 * and extended replies over bytes in any pieces. Pure, no allocation; one per connection, its
 * owner's thread. It copies nothing but headers that are split between two pieces: payload is left
 * where it is, so that large payload can be received straight to where it belongs.
 *
 *	struct nbd_input in = { data, data + bytes };
 *	for (;;)
 *		switch (nbd_reply_next(&r, &in)) {
 *		case NBD_REPLY_MORE:
 *			receive more, into a new in
 *		case NBD_REPLY_PAYLOAD:
 *			the next r.bytes of the stream belong to r.slot, from r.at_bytes of its
 *			buffer on. Those of them that in has (perhaps none): copy, in.at += nr;
 *			or receive the rest directly. Then nbd_reply_took(&r, nr)
 *		case NBD_REPLY_ZEROES:
 *			r.bytes from r.at_bytes of r.slot's buffer are zeroes
 *		case NBD_REPLY_ERROR:
 *			r.error says what the server said about r.slot; for logs
 *		case NBD_REPLY_DONE:
 *			r.slot is answered with r.result, 0 or -errno, and is free
 *		case NBD_REPLY_BROKEN:
 *			r.error says how the server broke the protocol: hang up
 *		}
 *
 * What is checked, besides magics and lengths: the cookie is one that waits; the kind of chunk is
 * one for its command and for what was negotiated; it lies in its request; each byte of a READ that
 * succeeds comes exactly once. proto.md wants a client to hang up on all of these.
 */
#ifndef BACKENDS_NBD_NBD_REPLY_H
#define BACKENDS_NBD_NBD_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nbd/nbd_proto.h"
#include "backends/nbd/nbd_ranges.h"

/* More error chunks in one reply are too many. */
#define NBD_REPLY_ERRORS_MAX 16u
/* An error chunk: its fields, a text, and a little that a later protocol may add. */
#define NBD_REPLY_ERROR_BYTES_MAX (NBD_STRING_BYTES_MAX + 64u)

/* A request that waits for its reply. The owner has it, and its buffer. */
struct nbd_slot {
	uint64_t offset_bytes, length_bytes; /* as requested */
	uint16_t cmd, flags;		     /* as requested */
	/* The parser's. */
	bool waiting;
	bool has_content; /* a content chunk has come */
	uint16_t error_nr;
	int error; /* of the first error chunk, -errno */
	struct nbd_ranges ranges;
	uint32_t error_at[NBD_REPLY_ERRORS_MAX]; /* READ: relative to offset_bytes */
};

/* Before the request is sent. READ: 1 to UINT32_MAX bytes; no DISC: it has no reply. */
void nbd_slot_start(struct nbd_slot *slot, uint16_t cmd, uint16_t flags, uint64_t offset_bytes,
		    uint64_t length_bytes);

enum nbd_reply_mode { NBD_REPLIES_SIMPLE, NBD_REPLIES_STRUCTURED, NBD_REPLIES_EXTENDED };

enum nbd_reply_event {
	NBD_REPLY_MORE,
	NBD_REPLY_PAYLOAD,
	NBD_REPLY_ZEROES,
	NBD_REPLY_ERROR,
	NBD_REPLY_DONE,
	NBD_REPLY_BROKEN,
};

struct nbd_input {
	const uint8_t *at, *end;
};

struct nbd_reply {
	/* Of the last event. */
	struct nbd_slot *slot;
	uint64_t at_bytes, bytes;
	int result;
	char error[240]; /* printable */

	/* The parser's. */
	enum nbd_reply_mode mode;
	struct nbd_slot *(*lookup)(void *ctx, uint64_t cookie);
	void *ctx;
	uint8_t state;
	uint8_t have_bytes; /* in head */
	uint16_t chunk_flags, chunk_type;
	uint64_t chunk_bytes; /* of its payload */
	uint32_t left;	      /* bytes behind the fixed part of an error chunk */
	uint32_t text_bytes, text_have;
	int chunk_error;
	uint8_t head[32];
	char text[128];
};

/*
 * lookup: the slot of a cookie, NULL: of none that waits (a slot that is no longer waiting is as
 * good).
 */
void nbd_reply_init(struct nbd_reply *r, enum nbd_reply_mode mode,
		    struct nbd_slot *(*lookup)(void *ctx, uint64_t cookie), void *ctx);

enum nbd_reply_event nbd_reply_next(struct nbd_reply *r, struct nbd_input *in);

/* After PAYLOAD: so many bytes of it, at most r->bytes, are where they belong. */
void nbd_reply_took(struct nbd_reply *r, uint64_t bytes);

/* False between two replies: only then can a connection end cleanly. */
bool nbd_reply_is_inside(const struct nbd_reply *r);

#endif
