/*
 * op: one SQE in flight, embedded in its owner (container_of). The reactor's slot table leads from
 * a CQE's user_data back to it. Reactor thread only.
 *
 * Life: op_init takes a slot -> op_sqe + prep + op_start put it in flight -> its fn runs once per
 * CQE; with IORING_CQE_F_MORE it stays in flight -> ... -> op_fini gives the slot back.
 *
 * When the SQ is full and the kernel takes nothing, op_sqe returns NULL: call op_park and return;
 * `retry` runs in a later turn, when there is room. A tag is never dropped for want of an SQE.
 */
#ifndef REACTOR_OP_H
#define REACTOR_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "reactor/user_data.h"

struct io_uring_sqe;
struct op;
struct reactor;

/* res and cqe_flags as in struct io_uring_cqe. */
typedef void op_fn(struct op *op, int res, uint32_t cqe_flags);
typedef void op_retry_fn(struct op *op);

enum op_state { OP_IDLE, OP_PARKED, OP_INFLIGHT };

struct op {
	uint64_t user_data; /* with the generation of the present or the next use */
	op_fn *fn;
	struct reactor *reactor;
	enum op_state state;
	uint64_t start_ns; /* reactor time of op_start, or op_park */
	op_retry_fn *retry;
	struct list_node parked;
};

struct op_owner {
	enum op_kind kind;
	unsigned queue, tag, leg;
};

/* Returns 0 or -ENOBUFS when the table has no slot left. */
int op_init(struct op *op, struct reactor *reactor, struct op_owner owner, op_fn *fn);

/* The op must not be in flight. Accepts a zeroed op. */
void op_fini(struct op *op);

/* op_sqe and op_start: inline, in reactor.h */

/*
 * Makes room for nr SQEs in a row, as far as the SQ is that large: prepared without a turn in
 * between they go to the kernel in one enter, which no signal cuts in two.
 */
void op_sqe_room(struct reactor *r, unsigned nr);

/* Runs retry when SQEs are to be had again. */
void op_park(struct op *op, op_retry_fn *retry);

/* Forgets a parked retry; true when there was one. */
bool op_unpark(struct op *op);

static inline bool op_inflight(const struct op *op)
{
	return op->state == OP_INFLIGHT;
}

#endif
