/*
 * Histograms in the kernel, for `ublktrace latency`: four events for each I/O of a ublk device, two
 * for each request of a ring, no records. All of it on BTF tracepoints: no code of the kernel is
 * patched but their static calls.
 *
 * A ublk request is known by its queue and tag on both sides. Its way:
 *   block_rq_issue       the block layer gives it to the driver
 *   io_uring_complete    the URING_CMD that waited for this tag completes: the daemon has it
 *   io_uring_submit_req  the URING_CMD that commits it is taken from the SQ
 *   block_rq_complete    which runs inside of that command's issue, in the same thread
 * With UBLK_F_BATCH_IO one multishot CQE tells of many tags: there ublk_start_io is asked for the
 * dispatch, where that can be had.
 *
 * Tables are arrays with a few places to look at, so that the kernel needs no call for a look-up.
 */
#include "ublktrace/bpf/latency_queue.h"

char LICENSE[] SEC("license") = "GPL";

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid, one = 1;

	if (in_family(parent->tgid) && tgid != parent->tgid &&
	    bpf_map_update_elem(&family, &tgid, &one, BPF_ANY))
		COUNT(map_full);
	return 0;
}

/* ---- the block layer's ends of a ublk request */

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_issue, struct request *rq)
{
	struct queue *q = queue_of(rq);
	struct slot *s;

	if (!q)
		return 0;
	s = slot_of(q, rq->tag);
	s->dispatch_ns = 0;
	s->issue_ns = bpf_ktime_get_ns();
	return 0;
}

/* REQ_OP_* of include/linux/blk_types.h. */
INLINE __u32 op_class(__u32 op)
{
	switch (op) {
	case 0:
		return LATENCY_READ;
	case 1:
		return LATENCY_WRITE;
	case 2:
		return LATENCY_FLUSH;
	case 3:
		return LATENCY_DISCARD;
	case 9:
		return LATENCY_WRITE_ZEROES;
	default:
		return LATENCY_OTHER;
	}
}

/* When the commit that this thread is running was taken from the SQ; 0: it runs none. */
INLINE __u64 commit_time(void)
{
	struct latency_cpu *cpu = this_cpu();

	if (!cpu || !cpu->commit || cpu->task != bpf_get_current_task())
		return 0;
	if (cpu->commit == 1)
		cpu->commit = 0;
	return cpu->time_ns;
}

INLINE void stages_add(struct latency_block *b, struct slot *s, __u64 commit, __u64 now)
{
	__u64 dispatch = s->dispatch_ns, begin = s->issue_ns, end = now;

	hist_add(&b->stage[LATENCY_TOTAL], since(now, begin));
	if (dispatch) {
		hist_add(&b->stage[LATENCY_QUEUED], since(dispatch, begin));
		begin = dispatch;
	}
	if (commit) {
		hist_add(&b->stage[LATENCY_COMMIT], since(now, commit));
		end = commit;
	}
	if (dispatch && commit)
		hist_add(&b->stage[LATENCY_DAEMON], since(end, begin));
	else
		hist_add(&b->stage[LATENCY_UNSPLIT], since(end, begin));
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_complete, struct request *rq, __u8 error)
{
	__u32 op = rq->cmd_flags & REQ_OP_MASK, row;
	struct queue *q = queue_find(driver_data(rq));
	struct latency_block *b;
	struct slot *s;

	if (!q || q->state != QUEUE_UBLK)
		return 0;
	s = slot_of(q, rq->tag);
	row = q->row + op_class(op);
	b = bpf_map_lookup_elem(&block, &row);
	if (!b)
		return 0;
	if (!s->issue_ns) {
		COUNT(unmatched);
		return 0;
	}
	stages_add(b, s, commit_time(), bpf_ktime_get_ns());
	s->issue_ns = 0;
	if (error) {
		b->errors++;
		error_add(1, op, error, q->device);
	}
	return 0;
}

/* ---- requests of rings */

/* The number of a ublk command on /dev/ublkcN, or 0. */
INLINE __u32 ublk_command(__u32 cmd_op)
{
	__u32 number = cmd_op & 0xff, type = cmd_op >> 8 & 0xff;

	if (number < UBLK_IO_FETCH || number > UBLK_IO_FETCH_IO_CMDS)
		return 0;
	return type == 'u' || cmd_op < 0x100 ? number : 0;
}

INLINE struct io_uring_cmd *latency_command_of(struct io_kiocb *req)
{
	return bpf_rdonly_cast(&req->file, bpf_core_type_id_kernel(struct io_uring_cmd));
}

/* The daemon has the request of this tag. */
INLINE void dispatched(struct io_uring_cmd *cmd, __u32 number)
{
	const void *pdu = (void *)cmd + bpf_core_field_offset(struct io_uring_cmd, pdu);
	struct queue *q;
	struct slot *s;

	if (number > UBLK_IO_COMMIT_AND_FETCH)
		return; /* the same request once more, or of many tags */
	if (!bpf_core_field_exists(struct ublk_uring_cmd_pdu, ubq))
		return;
	q = queue_find(read8(pdu, bpf_core_field_offset(struct ublk_uring_cmd_pdu, ubq)));
	if (!q || q->state != QUEUE_UBLK)
		return;
	s = slot_of(q, read8(pdu, bpf_core_field_offset(struct ublk_uring_cmd_pdu, tag)) & 0xffff);
	if (s->issue_ns)
		s->dispatch_ns = bpf_ktime_get_ns();
	else
		COUNT(unmatched);
}

/* Has the command waited for I/O, so that its time is no latency? */
INLINE bool is_fetch(__u32 number)
{
	return number == UBLK_IO_FETCH || number == UBLK_IO_COMMIT_AND_FETCH ||
	       number == UBLK_IO_NEED_GET_DATA || number == UBLK_IO_FETCH_IO_CMDS;
}

INLINE struct req *req_find(__u64 key)
{
	__u32 first = place(key);

	for (__u32 i = 0; i < PROBES; i++) {
		struct req *r = &reqs[(first + i) & (REQS - 1)];

		if (r->key == key)
			return r;
	}
	return NULL;
}

INLINE struct req *req_take(__u64 key)
{
	__u32 first = place(key);

	for (__u32 i = 0; i < PROBES; i++) {
		struct req *r = &reqs[(first + i) & (REQS - 1)];

		if (r->key == key)
			return r;
		if (!r->key && !__sync_val_compare_and_swap(&r->key, 0, key))
			return r;
	}
	return NULL;
}

/* The place of a ring; RINGS: there is no room. */
NOINLINE __u32 ring_row(__u64 ctx)
{
	__u32 first = place(ctx);

	for (__u32 i = 0; i < PROBES; i++) {
		__u32 idx = (first + i) & (RINGS - 1);
		struct latency_ring *r = bpf_map_lookup_elem(&rings, &idx);
		__u64 old;

		if (!r)
			break;
		old = r->ctx;
		if (!old)
			old = __sync_val_compare_and_swap(&r->ctx, 0, ctx);
		if (!old) {
			r->pid = bpf_get_current_pid_tgid() >> 32;
			bpf_get_current_comm(r->comm, sizeof(r->comm));
		}
		if (!old || old == ctx)
			return idx;
	}
	return RINGS;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring_submit, struct io_kiocb *req)
{
	struct io_ring_ctx *ring;
	__u64 now;
	__u32 number = 0;
	struct latency_cpu *cpu;
	struct req *r;

	if (!is_target())
		return 0;
	ring = req->ctx;
	now = bpf_ktime_get_ns();
	cpu = this_cpu();
	if (!cpu)
		return 0;
	level_add(cpu, LATENCY_BATCH,
		  ((struct io_ring_ctx___latency *)ring)->submit_state.submit_nr);
	if (cpu->turn++ % DEPTH_EVERY == 0) {
		level_add(cpu, LATENCY_SQ, ring->rings->sq.tail - ring->cached_sq_head);
		level_add(cpu, LATENCY_CQ, ring->cached_cq_tail - ring->rings->cq.head);
	}
	cpu->commit = 0;
	if (req->opcode == IORING_OP_URING_CMD)
		number = ublk_command(latency_command_of(req)->cmd_op);
	if (number == UBLK_IO_COMMIT_AND_FETCH || number == UBLK_IO_COMMIT_IO_CMDS) {
		cpu->task = bpf_get_current_task();
		cpu->time_ns = now;
		cpu->commit = number == UBLK_IO_COMMIT_AND_FETCH ? 1 : 2;
	}
	if (is_fetch(number)) {
		cpu->fetches++;
		return 0;
	}
	r = req_take(number_of(req));
	if (!r) {
		COUNT(map_full);
		return 0;
	}
	r->submit_ns = now;
	r->cpu = bpf_get_smp_processor_id();
	r->flags = 0;
	return 0;
}

INLINE void row_add(struct latency_uring *u, struct req *r)
{
	hist_add(&u->hist, since(bpf_ktime_get_ns(), r->submit_ns));
	if (r->flags & REQ_ASYNC)
		u->async++;
	if (r->flags & REQ_POLLED)
		u->polled++;
	if (r->cpu != bpf_get_smp_processor_id())
		u->migrated++;
}

/* A request with several CQEs (multishot) counts with its first. */
INLINE void completed(struct io_ring_ctx *ring, struct io_kiocb *req, int res, __u32 cqe_flags)
{
	struct req *r = req_find(number_of(req));
	__u32 row = by_ring ? ring_row(number_of(ring)) : req->opcode;
	struct latency_uring *u;

	if (!r) {
		COUNT(unmatched);
		return;
	}
	u = bpf_map_lookup_elem(&uring, &row);
	if (!u) {
		COUNT(map_full);
	} else if (r->submit_ns) {
		row_add(u, r);
		if (res < 0)
			u->errors++;
	}
	if (res < 0)
		error_add(0, req->opcode, -res, -1);
	r->submit_ns = 0;
	if (!(cqe_flags & IORING_CQE_F_MORE))
		r->key = 0;
}

INLINE int latency_complete(struct io_ring_ctx *ring, struct io_kiocb *req, int res,
			    __u32 cqe_flags)
{
	__u32 number = 0;

	/* Requests complete in a thread of the process that submitted them. */
	if (!is_target())
		return 0;
	if (!req) {
		COUNT(aux);
		return 0;
	}
	req = REQ(req);
	ring = RING(ring);
	if (req->opcode == IORING_OP_URING_CMD) {
		struct io_uring_cmd *cmd = latency_command_of(req);

		number = ublk_command(cmd->cmd_op);
		if (number && res >= 0)
			dispatched(cmd, number);
	}
	if (!is_fetch(number))
		completed(ring, req, res, cqe_flags);
	else if (res < 0)
		error_add(0, IORING_OP_URING_CMD, -res, -1);
	return 0;
}

/* Until Linux 6.15 the CQE comes in pieces, then as one. */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(uring_complete_pieces, struct io_ring_ctx *ring, struct io_kiocb *req, __u64 user_data,
	     int res, unsigned int cqe_flags)
{
	return latency_complete(ring, req, res, cqe_flags);
}

SEC("?tp_btf/io_uring_complete")
int BPF_PROG(uring_complete_cqe, struct io_ring_ctx *ring, struct io_kiocb *req,
	     struct io_uring_cqe *cqe)
{
	return latency_complete(ring, req, cqe->res, cqe->flags);
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(uring_async, struct io_kiocb *req)
{
	struct req *r = req_find(number_of(REQ(req)));

	if (r)
		r->flags |= REQ_ASYNC;
	return 0;
}

SEC("tp_btf/io_uring_poll_arm")
int BPF_PROG(uring_poll, struct io_kiocb *req)
{
	struct req *r = req_find(number_of(REQ(req)));

	if (r)
		r->flags |= REQ_POLLED;
	return 0;
}

/* CQEs of a batch: from one wait to the next. */
SEC("tp_btf/io_uring_cqring_wait")
int BPF_PROG(uring_wait, struct io_ring_ctx *ring)
{
	struct latency_cpu *cpu;
	__u32 tail, row;
	struct latency_ring *r;

	if (!is_target())
		return 0;
	ring = RING(ring);
	tail = ring->cached_cq_tail;
	row = ring_row(number_of(ring));
	r = bpf_map_lookup_elem(&rings, &row);
	cpu = this_cpu();
	if (!r || !cpu)
		return 0;
	/* more than its CQ holds: another ring was at this address before */
	if (r->waits++ && tail != r->cq_tail && tail - r->cq_tail <= ring->cq_entries)
		level_add(cpu, LATENCY_REAP, tail - r->cq_tail);
	r->cq_tail = tail;
	return 0;
}

/* For queues that are dispatched in batches, each tag for itself; in the others as well, and there
 * a little too early: what io_uring_complete says comes later and replaces it. */
SEC("?fentry/ublk_start_io")
int BPF_PROG(ublk_start, void *ubq, struct request *rq)
{
	struct queue *q = queue_find(driver_data(rq));
	struct slot *s = q && q->state == QUEUE_UBLK ? slot_of(q, rq->tag) : NULL;

	if (s && s->issue_ns)
		s->dispatch_ns = bpf_ktime_get_ns();
	return 0;
}
