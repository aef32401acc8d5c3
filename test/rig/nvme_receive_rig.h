/*
 * Commands that wait on an NVMe/TCP connection, and what becomes of them when bytes of a target
 * come in pieces. Keeps a log of events, so that two ways of cutting the same bytes can be
 * compared, and checks what must always hold. For unit tests and the fuzzer.
 */
#ifndef TEST_RIG_NVME_RECEIVE_RIG_H
#define TEST_RIG_NVME_RECEIVE_RIG_H

#include <stdarg.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_receive.h"
#include "base/assert.h"
#include "base/prng.h"
#include "base/util.h"
#include "test/unit/base/printable_check.h"

#define RIG_SLOTS 8u
#define RIG_BUFFER_BYTES 8192u
#define RIG_LOG_BYTES 65536u

struct receive_rig {
	struct nvme_receive r;
	/* The identifier of slot i is 0x100 + i. */
	struct nvme_slot slot[RIG_SLOTS];
	uint8_t buffer[RIG_SLOTS][RIG_BUFFER_BYTES];
	uint32_t asked[RIG_SLOTS]; /* bytes of R2Ts, which must follow each other */
	unsigned answers[RIG_SLOTS];
	uint16_t status[RIG_SLOTS];
	bool keep_r2ts; /* they are not answered */
	enum nvme_receive_event last;
	size_t log_bytes;
	char log[RIG_LOG_BYTES];
};

static inline struct nvme_slot *rig_lookup(void *ctx, uint16_t cid)
{
	struct receive_rig *rig = ctx;

	return cid >= 0x100 && cid < 0x100 + RIG_SLOTS ? &rig->slot[cid - 0x100] : NULL;
}

static inline void rig_init(struct receive_rig *rig, const struct nvme_wire *wire)
{
	memset(rig, 0, sizeof(*rig));
	nvme_receive_init(&rig->r, wire, rig_lookup, rig);
}

static inline void rig_command(struct receive_rig *rig, unsigned i, enum nvme_direction direction,
			       uint32_t bytes, bool in_capsule)
{
	ASSERT(bytes <= RIG_BUFFER_BYTES);
	nvme_slot_start(&rig->slot[i], direction, bytes, in_capsule);
}

__attribute__((format(printf, 2, 3))) static inline void rig_log(struct receive_rig *rig,
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

static inline unsigned rig_slot_idx(const struct receive_rig *rig)
{
	ASSERT(rig->r.slot >= rig->slot && rig->r.slot < rig->slot + RIG_SLOTS);
	return (unsigned)(rig->r.slot - rig->slot);
}

static inline void rig_payload(struct receive_rig *rig, struct nvme_input *in)
{
	unsigned i = rig_slot_idx(rig);
	uint32_t nr = (uint32_t)MIN((size_t)rig->r.bytes, (size_t)(in->end - in->at));
	uint8_t *place = rig->buffer[i] + rig->r.at_bytes;

	ASSERT(rig->slot[i].direction == NVME_DATA_IN && rig->slot[i].waiting);
	ASSERT(rig->r.at_bytes == rig->slot[i].came_bytes);
	ASSERT(nr <= rig->slot[i].data_bytes - rig->r.at_bytes);
	memcpy(place, in->at, nr);
	in->at += nr;
	nvme_receive_took(&rig->r, place, nr);
}

static inline void rig_r2t(struct receive_rig *rig)
{
	unsigned i = rig_slot_idx(rig);

	ASSERT(rig->slot[i].direction == NVME_DATA_OUT && rig->slot[i].waiting);
	ASSERT(rig->r.bytes > 0 && rig->r.at_bytes == rig->asked[i]);
	rig->asked[i] += rig->r.bytes;
	ASSERT(rig->asked[i] <= rig->slot[i].data_bytes);
	ASSERT(rig->slot[i].r2t_nr <= rig->r.wire.r2t_nr);
	rig_log(rig, "r2t %u %u+%u tag %u\n", i, rig->r.at_bytes, rig->r.bytes, rig->r.ttag);
	if (!rig->keep_r2ts)
		nvme_slot_r2t_answered(rig->r.slot);
}

static inline void rig_done(struct receive_rig *rig)
{
	unsigned i = rig_slot_idx(rig);
	const struct nvme_slot *slot = &rig->slot[i];

	ASSERT(!slot->waiting && ++rig->answers[i] == 1);
	rig->status[i] = rig->r.cqe.status;
	if (rig->r.cqe.status == 0) {
		ASSERT(!slot->digest_error);
		if (slot->direction == NVME_DATA_IN && !slot->short_ok)
			ASSERT(slot->came_bytes == slot->data_bytes);
		if (slot->direction == NVME_DATA_OUT)
			ASSERT(slot->asked_bytes == slot->data_bytes);
	}
	rig_log(rig, "done %u 0x%x result 0x%llx\n", i, rig->r.cqe.status,
		(unsigned long long)rig->r.cqe.result);
}

static inline void rig_check_text(const char *text)
{
	ASSERT(*text);
	check_printable(text);
}

static inline void rig_ended(struct receive_rig *rig)
{
	uint8_t term[NVME_PDU_TERM_BYTES_MAX];
	uint32_t nr = nvme_receive_term(&rig->r, term);

	rig_check_text(rig->r.error);
	ASSERT(rig->r.err < 0);
	if (rig->last == NVME_RECEIVE_TERMINATED) {
		ASSERT(nr == 0);
		return;
	}
	ASSERT(nr >= NVME_PDU_TERM_BYTES && nr <= sizeof(term));
	ASSERT(term[0] == NVME_PDU_H2C_TERM && nvme_get32(term + 4) == nr);
	ASSERT(nvme_get16(term + 8) >= NVME_FES_HEADER_FIELD &&
	       nvme_get16(term + 8) <= NVME_FES_UNSUPPORTED);
}

static inline bool rig_has_ended(const struct receive_rig *rig)
{
	return rig->last == NVME_RECEIVE_BROKEN || rig->last == NVME_RECEIVE_TERMINATED;
}

/* Until all of the piece is used, or the connection is at its end. */
static inline void rig_feed(struct receive_rig *rig, const uint8_t *data, size_t bytes)
{
	struct nvme_input in = { .at = data, .end = data + bytes };

	do {
		rig->last = nvme_receive_next(&rig->r, &in);
		ASSERT(in.at <= in.end);
		if (rig->last == NVME_RECEIVE_PAYLOAD) {
			/* Receive directly is the other way; here it is the end of the piece. */
			if (in.at == in.end)
				return;
			rig_payload(rig, &in);
		} else if (rig->last == NVME_RECEIVE_READY) {
			rig_log(rig, "ready %u %u\n", rig->r.wire.cpda,
				rig->r.wire.maxh2cdata_bytes);
			ASSERT(rig->r.wire.maxh2cdata_bytes >= NVME_MAXH2CDATA_MIN);
		} else if (rig->last == NVME_RECEIVE_R2T) {
			rig_r2t(rig);
		} else if (rig->last == NVME_RECEIVE_DONE) {
			rig_done(rig);
		}
	} while (rig->last != NVME_RECEIVE_MORE && !rig_has_ended(rig));
	if (rig_has_ended(rig))
		rig_ended(rig);
	else
		ASSERT(in.at == in.end);
}

/* In pieces of 1 to max bytes. Each is fed from memory of its own size: ASan sees its borders. */
static inline void rig_feed_pieces(struct receive_rig *rig, const uint8_t *data, size_t bytes,
				   struct prng *p, size_t max)
{
	for (size_t at = 0; at < bytes && !rig_has_ended(rig);) {
		size_t nr = MIN(bytes - at, 1 + prng_below(p, max));
		uint8_t *piece = malloc(nr);

		ASSERT(piece);
		memcpy(piece, data + at, nr);
		rig_feed(rig, piece, nr);
		free(piece);
		at += nr;
	}
	if (rig->last == NVME_RECEIVE_BROKEN)
		rig_log(rig, "broken %u %u: %s\n", rig->r.fes, rig->r.fei, rig->r.error);
	else if (rig->last == NVME_RECEIVE_TERMINATED)
		rig_log(rig, "terminated: %s\n", rig->r.error);
	else
		rig_log(rig, "%s\n", nvme_receive_is_inside(&rig->r) ? "inside" : "between");
}

/* The same came of it, in the same order, with the same data. */
static inline void rig_same(const struct receive_rig *a, const struct receive_rig *b)
{
	uint8_t term_a[NVME_PDU_TERM_BYTES_MAX] = { 0 }, term_b[NVME_PDU_TERM_BYTES_MAX] = { 0 };

	if (strcmp(a->log, b->log) != 0)
		fprintf(stderr, "# %s# but\n# %s", a->log, b->log);
	ASSERT(strcmp(a->log, b->log) == 0);
	ASSERT(memcmp(a->buffer, b->buffer, sizeof(a->buffer)) == 0);
	ASSERT(memcmp(a->asked, b->asked, sizeof(a->asked)) == 0);
	ASSERT(memcmp(a->answers, b->answers, sizeof(a->answers)) == 0);
	ASSERT(nvme_receive_term(&a->r, term_a) == nvme_receive_term(&b->r, term_b));
	ASSERT(memcmp(term_a, term_b, sizeof(term_a)) == 0);
}

#endif
