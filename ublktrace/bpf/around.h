/*
 * What is around io_uring: requests of ublk devices in the block layer, the probe points of ublkd
 * (base/probes.h), context switches, and processes that are started by watched ones.
 */
#ifndef UBLKTRACE_BPF_AROUND_H
#define UBLKTRACE_BPF_AROUND_H

#define BPF_USDT_MAX_SPEC_CNT 64 /* places of probes in one program */
#include <bpf/usdt.bpf.h>

#include "ublktrace/bpf/watch.h"
#include "ublktrace/bpf/worker_calls.h"

/* ---- processes ---- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 group = (__u32)child->tgid;
	__u8 one = 1;

	if (watch_all || parent->tgid == child->tgid || !group_watched((__u32)parent->tgid))
		return 0;
	remember(&groups, &group, &one);
	return 0;
}

/* Its number may become that of any other; those of many thousands have no room. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 group = (__u32)task->tgid;

	if (!watch_all && task->signal->live.counter == 0)
		bpf_map_delete_elem(&groups, &group);
	return 0;
}

/* ---- context switches ---- */

enum { STATE_DEAD = 0x80 }; /* TASK_DEAD of include/linux/sched.h: it never comes back */

static __always_inline void switch_send(struct task_struct *task, __u64 runs)
{
	__u32 thread = (__u32)task->pid;
	struct event *e;

	if (!group_watched((__u32)task->tgid))
		return;
	/* Of all processes: only threads that were seen with a ring. */
	if (watch_all && !bpf_map_lookup_elem(&threads, &thread))
		return;
	e = event_new(EVENT_SWITCH, 0, 0, 0);
	if (!e)
		return;
	e->pid = (__u32)task->tgid;
	e->tid = thread;
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), task->comm);
	e->value = runs;
	event_send(e);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (!watch_on)
		return 0;
	if (!(prev->__state & STATE_DEAD))
		switch_send(prev, 0);
	switch_send(next, 1);
	worker_switch(next);
	return 0;
}

/* ---- the block layer ---- */

/* Requests that were told, by the id of base/probes.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
} requests SEC(".maps");

#define REQ_OP_MASK 0xff /* include/linux/blk_types.h: REQ_OP_BITS */

/* Whether rq is one of a ublk device, and its id. */
static __always_inline bool request_id(struct request *rq, __u64 *ret_id)
{
	struct gendisk *disk = rq->q->disk;
	struct name n;
	__s32 device;

	if (!disk)
		return false;
	n = name_at(disk->disk_name);
	if (FIRST(5, n.first) != EIGHT('u', 'b', 'l', 'k', 'b', 0, 0, 0))
		return false;
	device = name_number(n);
	*ret_id = ublk_id_of((__u32)device, rq->mq_hctx->queue_num, (__u32)rq->tag & 0xffff);
	return device >= 0;
}

/* By its device, when a watched process serves that, or by who makes it. */
static __always_inline bool request_wanted(__u64 id)
{
	__u32 device = id >> 32;

	if (!id_sampled(id))
		return false;
	return bpf_map_lookup_elem(&devices, &device) || group_watched(current_group());
}

static __always_inline void request_send(__u32 type, struct request *rq, __u64 id, __s64 value)
{
	struct event *e = event_new(type, 0, 0, 0);

	if (!e)
		return;
	e->block.id = id;
	e->block.sector = rq->__sector;
	e->block.value = value;
	e->block.op = rq->cmd_flags & REQ_OP_MASK;
	e->block.has_op = 1;
	event_send(e);
}

/* By blk_mq_start_request, which ublk_drv calls for each request it takes. */
SEC("?tp_btf/block_rq_issue")
int BPF_PROG(rq_issue, struct request *rq)
{
	__u8 one = 1;
	__u64 id;

	if (!watch_on || !request_id(rq, &id) || !request_wanted(id))
		return 0;
	remember(&requests, &id, &one);
	request_send(EVENT_BLOCK_QUEUE, rq, id, rq->__data_len);
	return 0;
}

/* errno of a blk_status_t: block/blk-core.c, blk_errors. Not static: libbpf 1.1 cannot place it
 * then. */
const __u8 status_errno[32] = {
	[1] = 95,   /* NOTSUPP: EOPNOTSUPP */
	[2] = 110,  /* TIMEOUT: ETIMEDOUT */
	[3] = 28,   /* NOSPC: ENOSPC */
	[4] = 67,   /* TRANSPORT: ENOLINK */
	[5] = 121,  /* TARGET: EREMOTEIO */
	[6] = 52,   /* RESV_CONFLICT: EBADE */
	[7] = 61,   /* MEDIUM: ENODATA */
	[8] = 84,   /* PROTECTION: EILSEQ */
	[9] = 12,   /* RESOURCE: ENOMEM */
	[11] = 78,  /* DM_REQUEUE: EREMCHG */
	[12] = 11,  /* AGAIN: EAGAIN */
	[13] = 16,  /* DEV_RESOURCE: EBUSY */
	[14] = 109, /* ZONE_OPEN_RESOURCE: ETOOMANYREFS */
	[15] = 75,  /* ZONE_ACTIVE_RESOURCE: EOVERFLOW */
	[16] = 19,  /* OFFLINE: ENODEV */
	[17] = 62,  /* DURATION_LIMIT: ETIME */
	[19] = 22,  /* INVAL: EINVAL */
};

static __always_inline __s64 request_result(__u32 status, __u32 bytes)
{
	if (!status)
		return bytes;
	status &= 31;
	return status_errno[status] ? -(__s64)status_errno[status] : -5; /* IOERR: EIO */
}

/* A request may end in parts: it is over when all its bytes are. */
SEC("?tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, __u32 status, unsigned int bytes)
{
	bool over = bytes >= rq->__data_len;
	__u64 id;

	if (!watch_on || !request_id(rq, &id) || !id_sampled(id))
		return 0;
	if (!bpf_map_lookup_elem(&requests, &id)) {
		if (!request_wanted(id))
			return 0;
		count(COUNT_UNMATCHED);
	}
	request_send(EVENT_BLOCK_COMPLETE, rq, id, request_result(status, bytes));
	if (over)
		bpf_map_delete_elem(&requests, &id);
	return 0;
}

/* ---- the daemon ---- */

/* An argument is read when it is wanted: that takes longer than to leave an I/O out. */
static __always_inline __u64 probe_arg(struct pt_regs *ctx, __u64 nr)
{
	long value = 0;

	bpf_usdt_arg(ctx, nr, &value);
	return (__u64)value;
}

static __always_inline struct event *daemon_event(__u32 type, __u64 id)
{
	struct event *e = watch_on && id_sampled(id) ? event_new(type, 0, 0, 0) : NULL;

	if (e)
		e->block.id = id;
	return e;
}

SEC("?usdt")
int BPF_USDT(io_fetch, __u64 id)
{
	struct event *e = daemon_event(EVENT_DAEMON_FETCH, id);

	if (!e)
		return 0;
	e->block.op = (__u32)probe_arg(ctx, 1);
	e->block.has_op = 1;
	e->block.sector = probe_arg(ctx, 2);
	e->block.value = (__s64)probe_arg(ctx, 3);
	event_send(e);
	return 0;
}

SEC("?usdt")
int BPF_USDT(io_submit, __u64 id)
{
	struct event *e = daemon_event(EVENT_DAEMON_SUBMIT, id);

	if (e)
		event_send(e);
	return 0;
}

SEC("?usdt")
int BPF_USDT(io_busy, __u64 id)
{
	struct event *e = daemon_event(EVENT_DAEMON_BUSY, id);

	if (e)
		event_send(e);
	return 0;
}

SEC("?usdt")
int BPF_USDT(io_done, __u64 id)
{
	struct event *e = daemon_event(EVENT_DAEMON_DONE, id);

	if (!e)
		return 0;
	e->block.value = (__s64)probe_arg(ctx, 1);
	event_send(e);
	return 0;
}

SEC("?usdt")
int BPF_USDT(io_commit, __u64 id)
{
	struct event *e = daemon_event(EVENT_DAEMON_COMMIT, id);

	if (!e)
		return 0;
	e->block.op = (__u32)probe_arg(ctx, 1);
	e->block.has_op = 1;
	e->block.value = (__s64)probe_arg(ctx, 2);
	e->block.layer_ns[0] = probe_arg(ctx, 3);
	e->block.layer_ns[1] = probe_arg(ctx, 4);
	e->block.layer_ns[2] = probe_arg(ctx, 5);
	event_send(e);
	return 0;
}

/* With a sample, only what COMPLETE has told: a CQE does not name its request. */
static __always_inline bool reap_wanted(__u64 user_data)
{
	if (watch_sample <= 1)
		return true;
	return bpf_map_lookup_elem(&reaps, &user_data) && !bpf_map_delete_elem(&reaps, &user_data);
}

SEC("?usdt")
int BPF_USDT(cqe_reap)
{
	__u64 user_data = probe_arg(ctx, 1);
	struct io_ring_ctx *ring;
	struct event *e;

	if (!watch_on || !reap_wanted(user_data))
		return 0;
	ring = fd_ring((__s32)probe_arg(ctx, 0), false);
	if (!ring || !ring_wanted(ring))
		return 0;
	e = event_new(EVENT_REAP, (__u64)ring, 0, user_data);
	if (!e)
		return 0;
	event_levels(e, ring);
	e->cqe = (struct event_cqe){
		.res = (__s32)probe_arg(ctx, 2), .opcode = OPCODE_UNKNOWN, .fd = -1, .ublk_id = -1
	};
	event_send(e);
	return 0;
}

#endif
