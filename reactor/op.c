/* Slots and SQEs: from an owner's op to a CQE and back. Reactor thread only. */
#include "reactor/op.h"

#include <errno.h>

#include "base/assert.h"
#include "reactor/reactor.h"

/*
 * The generation belongs to the slot, not to the op: a free slot keeps it (in the bits above its
 * number), so that a late completion of its last owner is not taken for one of the next.
 */
_Static_assert(USER_DATA_SLOT_BITS + USER_DATA_GENERATION_BITS == 32, "fits in slot_free");

static int slot_take(struct reactor *r, uint32_t *ret_slot, uint64_t *ret_generation)
{
	*ret_generation = 0;
	if (r->slot_free_nr > 0) {
		uint32_t entry = r->slot_free[--r->slot_free_nr];

		*ret_slot = user_data_slot(entry);
		*ret_generation = entry >> USER_DATA_SLOT_BITS;
	} else if (r->slot_fresh < r->slot_nr) {
		*ret_slot = r->slot_fresh++;
	} else {
		return -ENOBUFS;
	}
	return 0;
}

static void slot_give(struct reactor *r, uint64_t user_data)
{
	uint32_t generation = (uint32_t)(user_data >> USER_DATA_GENERATION_SHIFT);

	r->slot[user_data_slot(user_data)] = NULL;
	r->slot_free[r->slot_free_nr++] =
		generation << USER_DATA_SLOT_BITS | user_data_slot(user_data);
}

int op_init(struct op *op, struct reactor *reactor, struct op_owner owner, op_fn *fn)
{
	uint64_t generation;
	uint32_t slot;
	int ret = slot_take(reactor, &slot, &generation);

	if (ret < 0)
		return ret;
	*op = (struct op){
		.user_data = user_data_make(owner.kind, owner.leg, owner.queue, owner.tag, slot) |
			     generation << USER_DATA_GENERATION_SHIFT,
		.fn = fn,
		.reactor = reactor,
	};
	list_init(&op->parked);
	reactor->slot[slot] = op;
	return 0;
}

void op_fini(struct op *op)
{
	struct reactor *r = op->reactor;

	if (!r)
		return;
	ASSERT(op->state != OP_INFLIGHT);
	op_unpark(op);
	slot_give(r, op->user_data);
	op->reactor = NULL;
}

struct io_uring_sqe *op_sqe_slow(struct op *op)
{
	struct reactor *r = op->reactor;
	struct io_uring_sqe *sqe;

	ASSERT(op->state == OP_IDLE);
	sqe = io_uring_get_sqe(&r->ring.uring);
	if (sqe)
		return sqe;
	/* Full: hand over what is there without waiting, then there is room unless the kernel is
	 * out of memory. */
	ring_enter(&r->ring, 0, 0);
	return io_uring_get_sqe(&r->ring.uring);
}

void op_sqe_room(struct reactor *r, unsigned nr)
{
	if (io_uring_sq_space_left(&r->ring.uring) < nr)
		ring_enter(&r->ring, 0, 0);
}

void op_park(struct op *op, op_retry_fn *retry)
{
	ASSERT(op->state == OP_IDLE);
	op->state = OP_PARKED;
	op->retry = retry;
	op->start_ns = op->reactor->now_ns;
	counter_add(&op->reactor->stats.sq_full, 1);
	list_push_back(&op->reactor->parked, &op->parked);
	op->reactor->pending |= REACTOR_PENDING_PARKED;
}

bool op_unpark(struct op *op)
{
	if (op->state != OP_PARKED)
		return false;
	list_remove(&op->parked);
	op->state = OP_IDLE;
	return true;
}
