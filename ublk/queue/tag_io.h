/* One tag of a queue: shared by what serves it and what looks at it. */
#ifndef UBLK_QUEUE_TAG_IO_H
#define UBLK_QUEUE_TAG_IO_H

#include "ublk/queue/queue.h"

enum tag_state {
	TAG_DOWN,    /* not in the driver: before the FETCH, after an abort or a refusal */
	TAG_ARMED,   /* the driver may put a request in */
	TAG_SERVING, /* in the backend */
	TAG_BUSY,    /* the backend said BUSY: on the busy list */
	TAG_DONE,    /* waits for the commit at the end of the turn */
};

/* Where the bytes of a READ or WRITE are. */
enum tag_bytes {
	TAG_BYTES_THERE,   /* where the backend or the driver moves them by itself */
	TAG_BYTES_BY_HAND, /* copied by pread and pwrite, to and from request.buf */
	TAG_BYTES_SHMEM,   /* in memory that a client shares: request.buf is an address in it */
};

struct tag_io {
	struct op op; /* FETCH or COMMIT_AND_FETCH */
	struct backend_io request;
	uint64_t id;		      /* for the probes: base/probes.h */
	struct flight_key flight_key; /* decode() sets its op */
	uint64_t start_ns;	      /* when the request was fetched */
	uint64_t submit_ns;	      /* when the backend took it */
	uint64_t done_ns;	      /* when the backend answered */
	/* What hands it back together with others; result, bytes or -errno, of each COMMIT. */
	struct ublk_elem_header element;
	uint64_t copy_addr; /* for the driver's own copy: request.buf, or 0 */
	uint64_t reg_addr;  /* for AUTO_BUF_REG: registered buffer and flags, or 0 */
	uint8_t bytes_are;  /* enum tag_bytes */
	uint8_t shmem_idx;  /* TAG_BYTES_SHMEM: which buffer */
	bool committing; /* the command in flight is a COMMIT, which the driver may not have seen */
	enum tag_state state;
	struct queue *queue;
	struct list_node busy;
	uint64_t writes_before; /* FLUSH: queue_writes when it began */
} __attribute__((aligned(64)));

/* An I/O touches four cache lines of its tag, and a fifth when its backend is busy. */
_Static_assert(offsetof(struct tag_io, request) == 64, "line 0: the command");
_Static_assert(offsetof(struct tag_io, request.driver_pos) < 128, "line 1: the request");
_Static_assert(offsetof(struct tag_io, request.parent) < 192,
	       "line 2: what the backend adds to it");
_Static_assert(offsetof(struct tag_io, start_ns) == 192 && offsetof(struct tag_io, queue) < 256,
	       "line 3: times and answer");
_Static_assert(offsetof(struct tag_io, busy) >= 256, "line 4: what is rarely needed");

/* The one setter: inflight.c reads the state from the main thread. */
static inline void tag_set_state(struct tag_io *io, enum tag_state state)
{
	__atomic_store_n(&io->state, state, __ATOMIC_RELAXED);
}

static inline unsigned tag_of(const struct tag_io *io)
{
	return (unsigned)(io - io->queue->ios);
}

#endif
