/*
 * The one place where an SQE's 64-bit user_data is made and read. It is an index, never a pointer:
 * a stale or forged completion is detected, two runs of one seed look the same, and a tracer reads
 * kind, queue and tag straight from the io_uring tracepoints.
 *
 *   63        52 51 49 48  44 43      32 31      20 19        0
 *   generation   leg   kind   queue      tag        slot
 *
 * slot: index in the reactor's op table. tag, queue: those of the ublk device (0 elsewhere).
 * leg: which of several SQEs of one I/O. generation: counts the uses of the slot; it stands in the
 * top bits so that adding one wraps by itself.
 */
#ifndef REACTOR_USER_DATA_H
#define REACTOR_USER_DATA_H

#include <stdint.h>

enum op_kind {
	OP_KIND_MAILBOX = 1, /* read of the reactor's eventfd */
	OP_KIND_CONTROL,     /* ublk control command */
	OP_KIND_TAG,	     /* ublk FETCH or COMMIT_AND_FETCH of one tag */
	OP_KIND_BACKEND,     /* a backend's own I/O */
	OP_KIND_ALARM,	     /* timeout of the reactor's next timer */
	OP_KIND_STREAM,	     /* a connection to a peer: net/stream.h */
	OP_KIND_NR,
};

#define USER_DATA_SLOT_BITS 20
#define USER_DATA_TAG_SHIFT 20
#define USER_DATA_TAG_BITS 12
#define USER_DATA_QUEUE_SHIFT 32
#define USER_DATA_QUEUE_BITS 12
#define USER_DATA_KIND_SHIFT 44
#define USER_DATA_KIND_BITS 5
#define USER_DATA_LEG_SHIFT 49
#define USER_DATA_LEG_BITS 3
#define USER_DATA_GENERATION_SHIFT 52
#define USER_DATA_GENERATION_BITS 12
#define USER_DATA_GENERATION_ONE (1ull << USER_DATA_GENERATION_SHIFT)

#define USER_DATA_FIELD(value, shift, bits) (((value) >> (shift)) & ((1u << (bits)) - 1))

static inline uint64_t user_data_make(enum op_kind kind, unsigned leg, unsigned queue, unsigned tag,
				      unsigned slot)
{
	return (uint64_t)leg << USER_DATA_LEG_SHIFT | (uint64_t)kind << USER_DATA_KIND_SHIFT |
	       (uint64_t)queue << USER_DATA_QUEUE_SHIFT | (uint64_t)tag << USER_DATA_TAG_SHIFT |
	       slot;
}

static inline unsigned user_data_slot(uint64_t user_data)
{
	return USER_DATA_FIELD(user_data, 0, USER_DATA_SLOT_BITS);
}

static inline unsigned user_data_tag(uint64_t user_data)
{
	return USER_DATA_FIELD(user_data, USER_DATA_TAG_SHIFT, USER_DATA_TAG_BITS);
}

static inline unsigned user_data_queue(uint64_t user_data)
{
	return USER_DATA_FIELD(user_data, USER_DATA_QUEUE_SHIFT, USER_DATA_QUEUE_BITS);
}

static inline enum op_kind user_data_kind(uint64_t user_data)
{
	return USER_DATA_FIELD(user_data, USER_DATA_KIND_SHIFT, USER_DATA_KIND_BITS);
}

static inline unsigned user_data_leg(uint64_t user_data)
{
	return USER_DATA_FIELD(user_data, USER_DATA_LEG_SHIFT, USER_DATA_LEG_BITS);
}

#endif
