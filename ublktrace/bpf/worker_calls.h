/*
 * What threads of io-wq work on. Where fentry cannot tell (calls.h), it is worked out: a thread
 * that posts a CQE itself has just done its request, which it began when it had nothing else to do.
 * Rings with DEFER_TASKRUN leave posting to their own task: their threads are not seen then.
 */
#ifndef UBLKTRACE_BPF_WORKER_CALLS_H
#define UBLKTRACE_BPF_WORKER_CALLS_H

#include "ublktrace/bpf/watch.h"

const volatile bool watch_workers; /* there is no fentry */

enum { PF_IO_WORKER = 0x10 }; /* include/linux/sched.h */

/* It cannot be read any more when it is done. */
struct work {
	__u64 ring, req, user_data;
	struct event_cqe cqe;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

/* Since when a thread of io-wq could begin with a request. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} workers_free SEC(".maps");

/* A request that follows another in its chain comes to the thread without queue_async_work. */
static __always_inline void work_of(struct work *w, struct flight *f, struct io_kiocb *req)
{
	w->cqe.opcode = f ? f->opcode : req->opcode;
	w->cqe.fd = f ? f->fd : -1;
	w->cqe.ublk_id = f ? f->ublk_id : -1;
	w->cqe.async = 1;
	if (!f)
		return;
	f->async = true;
	w->cqe.submit_ns = f->submit_ns;
	w->cqe.submit_cpu = f->cpu;
	w->cqe.cmd_op = f->cmd_op;
	w->cqe.q_id = f->q_id;
	w->cqe.tag = f->tag;
}

/* time_ns: 0 for now */
static __always_inline void work_send(__u32 type, const struct work *w, __u64 time_ns)
{
	struct event *e = event_new(type, w->ring, w->req, w->user_data);

	if (!e)
		return;
	event_levels(e, KERNEL_CAST(io_ring_ctx, (void *)w->ring));
	e->cqe = w->cqe;
	if (time_ns)
		e->time_ns = time_ns;
	event_send(e);
}

static __always_inline void worker_free(__u32 thread)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&workers_free, &thread, &now, BPF_ANY);
}

/* A thread gets the CPU. One that wakes to look for work has none yet. */
static __always_inline void worker_switch(struct task_struct *next)
{
	struct io_worker *worker;

	if (!watch_workers || !(next->flags & PF_IO_WORKER) || !group_watched((__u32)next->tgid))
		return;
	worker = KERNEL_CAST(io_worker, next->worker_private);
	if (!worker->cur_work)
		worker_free((__u32)next->pid);
}

/* A CQE is posted: both ends of the work, when a thread of io-wq does it. */
static __always_inline void worker_posts(struct io_ring_ctx *ctx, struct io_kiocb *req,
					 struct flight *f, __u64 user_data)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct work w = { .ring = (__u64)ctx, .req = (__u64)req, .user_data = user_data };
	__u64 *since;

	if (!watch_workers || !(bpf_get_current_task_btf()->flags & PF_IO_WORKER))
		return;
	since = bpf_map_lookup_elem(&workers_free, &thread);
	work_of(&w, f, req);
	thread_seen();
	work_send(EVENT_WORKER, &w, since && *since > f->submit_ns ? *since : f->submit_ns);
	work_send(EVENT_WORKER_END, &w, 0);
	worker_free(thread);
}

#endif
