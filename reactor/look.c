/*
 * A reactor as others see it. Any thread; the reactor goes on meanwhile, or is stuck: nothing here
 * waits for it, and nothing that a pointer of it leads to is touched, but by the dump of a process
 * that is about to end.
 */
#include <stdio.h>

#include "reactor/reactor.h"

void reactor_look(const struct reactor *r, struct reactor_look *ret_look)
{
	const struct io_uring_cq *cq = &r->ring.uring.cq;

	*ret_look = (struct reactor_look){
		.turns = __atomic_load_n(&r->stats.turns, __ATOMIC_RELAXED),
		.code_since_ns = __atomic_load_n(&r->code_since_ns, __ATOMIC_RELAXED),
		.doing = __atomic_load_n(&r->doing, __ATOMIC_RELAXED),
		.mail = !mailbox_empty(&r->mailbox),
		.cqes = __atomic_load_n(cq->ktail, __ATOMIC_RELAXED) !=
			__atomic_load_n(cq->khead, __ATOMIC_RELAXED),
	};
}

const char *op_kind_name(enum op_kind kind)
{
	static const char *const name[OP_KIND_NR] = {
		[OP_KIND_MAILBOX] = "mailbox", [OP_KIND_CONTROL] = "control",
		[OP_KIND_TAG] = "tag",	       [OP_KIND_BACKEND] = "backend",
		[OP_KIND_ALARM] = "alarm",     [OP_KIND_STREAM] = "stream",
	};

	return kind < OP_KIND_NR && name[kind] ? name[kind] : "?";
}

void reactor_dump_ops(const struct reactor *r, int fd)
{
	for (uint32_t slot = 0; slot < r->slot_fresh; slot++) {
		const struct op *op = r->slot[slot];

		if (!op || op->state == OP_IDLE)
			continue;
		dprintf(fd,
			"op reactor=%u slot=%u kind=%s queue=%u tag=%u leg=%u state=%s "
			"age_us=%llu\n",
			r->idx, slot, op_kind_name(user_data_kind(op->user_data)),
			user_data_queue(op->user_data), user_data_tag(op->user_data),
			user_data_leg(op->user_data),
			op->state == OP_INFLIGHT ? "inflight" : "parked",
			(unsigned long long)(r->now_ns - op->start_ns) / 1000);
	}
}
