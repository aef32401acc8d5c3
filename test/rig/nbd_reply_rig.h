/*
 * Requests that wait on an NBD connection, and what becomes of them when bytes of a server come in
 * pieces. Keeps a log of events, so that two ways of cutting the same bytes can be compared, and
 * counts how often each byte of each READ came. For unit tests and the fuzzer.
 */
#ifndef TEST_RIG_NBD_REPLY_RIG_H
#define TEST_RIG_NBD_REPLY_RIG_H

#include <stdarg.h>
#include <stdio.h>

#include "backends/nbd/nbd_reply.h"
#include "base/assert.h"
#include "base/prng.h"
#include "base/util.h"
#include "test/unit/base/printable_check.h"

#define RIG_SLOTS 8u
#define RIG_BUFFER_BYTES 4096u
#define RIG_LOG_BYTES 65536u

struct reply_rig {
	struct nbd_reply r;
	/* The cookie of slot i is 100 + i. */
	struct nbd_slot slot[RIG_SLOTS];
	uint8_t buffer[RIG_SLOTS][RIG_BUFFER_BYTES];
	uint8_t times[RIG_SLOTS][RIG_BUFFER_BYTES]; /* that a byte of a READ came */
	unsigned answers[RIG_SLOTS];
	int result[RIG_SLOTS];
	enum nbd_reply_event last;
	size_t log_bytes;
	char log[RIG_LOG_BYTES];
};

static inline struct nbd_slot *rig_lookup(void *ctx, uint64_t cookie)
{
	struct reply_rig *rig = ctx;

	return cookie >= 100 && cookie < 100 + RIG_SLOTS ? &rig->slot[cookie - 100] : NULL;
}

static inline void rig_init(struct reply_rig *rig, enum nbd_reply_mode mode)
{
	memset(rig, 0, sizeof(*rig));
	nbd_reply_init(&rig->r, mode, rig_lookup, rig);
}

static inline void rig_request(struct reply_rig *rig, unsigned i, uint16_t cmd, uint16_t flags,
			       uint64_t offset, uint64_t length)
{
	ASSERT(cmd != NBD_CMD_READ || length <= RIG_BUFFER_BYTES);
	nbd_slot_start(&rig->slot[i], cmd, flags, offset, length);
}

__attribute__((format(printf, 2, 3))) static inline void rig_log(struct reply_rig *rig,
								 const char *fmt, ...)
{
	size_t room = sizeof(rig->log) - rig->log_bytes;
	va_list args;
	int nr;

	va_start(args, fmt);
	nr = vsnprintf(rig->log + rig->log_bytes, room, fmt, args);
	va_end(args);
	if ((size_t)nr < room)
		rig->log_bytes += (size_t)nr;
}

static inline void rig_came(struct reply_rig *rig, uint64_t at, uint64_t bytes)
{
	size_t i = (size_t)(rig->r.slot - rig->slot);

	ASSERT(rig->r.slot->cmd == NBD_CMD_READ && rig->r.slot->waiting);
	ASSERT(at <= rig->r.slot->length_bytes && bytes <= rig->r.slot->length_bytes - at);
	for (uint64_t b = at; b < at + bytes; b++)
		ASSERT(++rig->times[i][b] == 1);
}

static inline void rig_payload(struct reply_rig *rig, struct nbd_input *in)
{
	size_t i = (size_t)(rig->r.slot - rig->slot);
	uint64_t nr = MIN(rig->r.bytes, (uint64_t)(in->end - in->at));

	rig_came(rig, rig->r.at_bytes, nr);
	memcpy(rig->buffer[i] + rig->r.at_bytes, in->at, nr);
	in->at += nr;
	nbd_reply_took(&rig->r, nr);
}

static inline void rig_done(struct reply_rig *rig)
{
	const struct nbd_slot *slot = rig->r.slot;
	size_t i = (size_t)(slot - rig->slot);

	ASSERT(!slot->waiting && ++rig->answers[i] == 1);
	rig->result[i] = rig->r.result;
	ASSERT(rig->r.result <= 0);
	if (slot->cmd == NBD_CMD_READ && rig->r.result == 0)
		for (uint64_t b = 0; b < slot->length_bytes; b++)
			ASSERT(rig->times[i][b] == 1);
	rig_log(rig, "done %zu %d\n", i, rig->r.result);
}

static inline void rig_check_text(const char *text)
{
	check_printable(text);
}

/* Until all of the piece is used, or the connection is broken. */
static inline void rig_feed(struct reply_rig *rig, const uint8_t *data, size_t bytes)
{
	struct nbd_input in = { .at = data, .end = data + bytes };
	size_t i;

	do {
		rig->last = nbd_reply_next(&rig->r, &in);
		ASSERT(in.at <= in.end);
		i = rig->r.slot ? (size_t)(rig->r.slot - rig->slot) : 0;
		if (rig->last == NBD_REPLY_PAYLOAD) {
			/* Receive directly is the other way; here it is the end of the piece. */
			if (in.at == in.end)
				return;
			rig_payload(rig, &in);
		} else if (rig->last == NBD_REPLY_ZEROES) {
			rig_came(rig, rig->r.at_bytes, rig->r.bytes);
			memset(rig->buffer[i] + rig->r.at_bytes, 0, rig->r.bytes);
			rig_log(rig, "zeroes %zu %llu+%llu\n", i,
				(unsigned long long)rig->r.at_bytes,
				(unsigned long long)rig->r.bytes);
		} else if (rig->last == NBD_REPLY_ERROR) {
			rig_check_text(rig->r.error);
			rig_log(rig, "error %zu %d %s\n", i, rig->r.result, rig->r.error);
		} else if (rig->last == NBD_REPLY_DONE) {
			rig_done(rig);
		}
	} while (rig->last != NBD_REPLY_MORE && rig->last != NBD_REPLY_BROKEN);
	if (rig->last == NBD_REPLY_BROKEN)
		rig_check_text(rig->r.error);
	else
		ASSERT(in.at == in.end);
}

/* In pieces of 1 to max bytes. Each is fed from memory of its own size: ASan sees its borders. */
static inline void rig_feed_pieces(struct reply_rig *rig, const uint8_t *data, size_t bytes,
				   struct prng *p, size_t max)
{
	for (size_t at = 0; at < bytes && rig->last != NBD_REPLY_BROKEN;) {
		size_t nr = MIN(bytes - at, 1 + prng_below(p, max));
		uint8_t *piece = malloc(nr);

		ASSERT(piece);
		memcpy(piece, data + at, nr);
		rig_feed(rig, piece, nr);
		free(piece);
		at += nr;
	}
	if (rig->last == NBD_REPLY_BROKEN)
		rig_log(rig, "broken: %s\n", rig->r.error);
	rig_log(rig, "%s\n", nbd_reply_is_inside(&rig->r) ? "inside" : "between");
}

/* The same came of it, in the same order, with the same data. */
static inline void rig_same(const struct reply_rig *a, const struct reply_rig *b)
{
	ASSERT(strcmp(a->log, b->log) == 0);
	ASSERT(memcmp(a->buffer, b->buffer, sizeof(a->buffer)) == 0);
	ASSERT(memcmp(a->times, b->times, sizeof(a->times)) == 0);
	ASSERT(memcmp(a->answers, b->answers, sizeof(a->answers)) == 0);
}

#endif
