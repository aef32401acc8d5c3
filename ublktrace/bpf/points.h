/*
 * The tracepoints of io_uring, each in two ways; one of them is attached
 * (ublktrace/record/capture_points.c).
 *
 * tp_NAME, for io_uring_NAME: as perf attaches, with the record that perf makes of it. No other
 * thread gets the CPU meanwhile (include/trace/perf.h), so that none is missed. NAME: by BTF, as
 * everything else here: since 7.0 a thread may be preempted in it, and until it goes on that
 * program is skipped for all others on its CPU
 * (__bpf_trace_run of kernel/trace/bpf_trace.c). It needs no tracefs and costs a little less, and
 * before 7.0 it misses none either.
 */
#ifndef UBLKTRACE_BPF_POINTS_H
#define UBLKTRACE_BPF_POINTS_H

#define KIOCB(pointer) KERNEL_CAST(io_kiocb, pointer)
#define RING_CTX(pointer) KERNEL_CAST(io_ring_ctx, pointer)

/* Records of tracepoints (include/trace/events/io_uring.h), by name as all else: CO-RE. */
struct trace_event_raw_io_uring_submit_req {
	void *req;
} CORE;
struct trace_event_raw_io_uring_queue_async_work {
	void *req;
} CORE;
struct trace_event_raw_io_uring_poll_arm {
	void *req;
	int mask;
} CORE;
struct trace_event_raw_io_uring_defer {
	void *req;
} CORE;
struct trace_event_raw_io_uring_link {
	void *req, *target_req;
} CORE;
struct trace_event_raw_io_uring_fail_link {
	void *req, *link;
} CORE;
struct trace_event_raw_io_uring_complete {
	void *ctx, *req;
	__u64 user_data;
	int res;
	unsigned int cflags;
} CORE;
struct trace_event_raw_io_uring_cqe_overflow {
	void *ctx;
	unsigned long long user_data;
	__s32 res;
	__u32 cflags;
} CORE;
struct trace_event_raw_io_uring_cqring_wait {
	void *ctx;
	int min_events;
} CORE;
struct trace_event_raw_io_uring_local_work_run {
	void *ctx;
	int count;
} CORE;
struct trace_event_raw_io_uring_task_work_run {
	unsigned int count;
} CORE;
struct trace_event_raw_io_uring_create {
	int fd;
	void *ctx;
	__u32 flags;
} CORE;

/* ---- submission ---- */

SEC("?tp_btf/io_uring_submit_req")
int BPF_PROG(submit_req, struct io_kiocb *req)
{
	events_submit(req, NULL);
	return 0;
}

SEC("?tp")
int tp_submit_req(struct trace_event_raw_io_uring_submit_req *r)
{
	events_submit(KIOCB(r->req), NULL);
	return 0;
}

/* An SQE that the kernel took and refused at once: it has no submit_req, but a CQE. Its record
 * lacks the file, and it is too rare to be preempted in. */
SEC("tp_btf/io_uring_req_failed")
int BPF_PROG(req_failed, const struct io_uring_sqe *sqe, struct io_kiocb *req, int error)
{
	events_submit(req, sqe);
	return 0;
}

/* ---- between submission and completion ---- */

/* The last argument is an int until 6.17, a bool since: not read. */
SEC("?tp_btf/io_uring_queue_async_work")
int BPF_PROG(queue_async_work, struct io_kiocb *req)
{
	go_async(req);
	return 0;
}

SEC("?tp")
int tp_queue_async_work(struct trace_event_raw_io_uring_queue_async_work *r)
{
	go_async(KIOCB(r->req));
	return 0;
}

SEC("?tp_btf/io_uring_poll_arm")
int BPF_PROG(poll_arm, struct io_kiocb *req, int mask)
{
	req_send(EVENT_POLL, req, (__u32)mask, 0);
	return 0;
}

SEC("?tp")
int tp_poll_arm(struct trace_event_raw_io_uring_poll_arm *r)
{
	req_send(EVENT_POLL, KIOCB(r->req), (__u32)r->mask, 0);
	return 0;
}

SEC("?tp_btf/io_uring_defer")
int BPF_PROG(defer, struct io_kiocb *req)
{
	req_send(EVENT_DEFER, req, 0, 0);
	return 0;
}

SEC("?tp")
int tp_defer(struct trace_event_raw_io_uring_defer *r)
{
	req_send(EVENT_DEFER, KIOCB(r->req), 0, 0);
	return 0;
}

SEC("?tp_btf/io_uring_link")
int BPF_PROG(link, struct io_kiocb *req, struct io_kiocb *target)
{
	req_send(EVENT_LINK, req, 0, (__u64)target);
	return 0;
}

SEC("?tp")
int tp_link(struct trace_event_raw_io_uring_link *r)
{
	req_send(EVENT_LINK, KIOCB(r->req), 0, (__u64)r->target_req);
	return 0;
}

SEC("?tp_btf/io_uring_fail_link")
int BPF_PROG(fail_link, struct io_kiocb *req, struct io_kiocb *link)
{
	req_send(EVENT_FAIL_LINK, link, 0, (__u64)req);
	return 0;
}

SEC("?tp")
int tp_fail_link(struct trace_event_raw_io_uring_fail_link *r)
{
	req_send(EVENT_FAIL_LINK, KIOCB(r->link), 0, (__u64)r->req);
	return 0;
}

/* ---- completion ---- */

SEC("?tp_btf/io_uring_complete")
int BPF_PROG(complete, struct io_ring_ctx *ring, void *req, struct io_uring_cqe *cqe)
{
	struct done d = { .user_data = cqe->user_data, .res = cqe->res, .flags = cqe->flags };

	complete_any(ring, KIOCB(req), &d);
	return 0;
}

/* Until 6.15. */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(complete_old, void *ring, void *req, __u64 user_data, int res, __u32 flags)
{
	struct done d = { .user_data = user_data, .res = res, .flags = flags };

	complete_any(RING_CTX(ring), KIOCB(req), &d);
	return 0;
}

SEC("?tp")
int tp_complete(struct trace_event_raw_io_uring_complete *r)
{
	struct done d = { .user_data = r->user_data, .res = r->res, .flags = r->cflags };

	complete_any(RING_CTX(r->ctx), KIOCB(r->req), &d);
	return 0;
}

/* ---- of a ring as a whole ---- */

SEC("?tp_btf/io_uring_cqe_overflow")
int BPF_PROG(cqe_overflow, void *ring, __u64 user_data, __s32 res, __u32 flags)
{
	struct done d = { .user_data = user_data, .res = res, .flags = flags };

	overflow(RING_CTX(ring), &d);
	return 0;
}

SEC("?tp")
int tp_cqe_overflow(struct trace_event_raw_io_uring_cqe_overflow *r)
{
	struct done d = { .user_data = r->user_data, .res = r->res, .flags = r->cflags };

	overflow(RING_CTX(r->ctx), &d);
	return 0;
}

SEC("?tp_btf/io_uring_cqring_wait")
int BPF_PROG(cqring_wait, void *ring, int min_events)
{
	ring_send(EVENT_WAIT, RING_CTX(ring), min_events);
	return 0;
}

SEC("?tp")
int tp_cqring_wait(struct trace_event_raw_io_uring_cqring_wait *r)
{
	ring_send(EVENT_WAIT, RING_CTX(r->ctx), r->min_events);
	return 0;
}

SEC("?tp_btf/io_uring_local_work_run")
int BPF_PROG(local_work_run, void *ring, int nr)
{
	if (nr > 0)
		ring_send(EVENT_TASK_WORK, RING_CTX(ring), nr);
	return 0;
}

SEC("?tp")
int tp_local_work_run(struct trace_event_raw_io_uring_local_work_run *r)
{
	if (r->count > 0)
		ring_send(EVENT_TASK_WORK, RING_CTX(r->ctx), r->count);
	return 0;
}

SEC("?tp_btf/io_uring_task_work_run")
int BPF_PROG(task_work_run, void *tctx, unsigned int nr)
{
	task_work(nr);
	return 0;
}

SEC("?tp")
int tp_task_work_run(struct trace_event_raw_io_uring_task_work_run *r)
{
	task_work(r->count);
	return 0;
}

SEC("?tp_btf/io_uring_create")
int BPF_PROG(create, int fd, void *ring, __u32 sq_entries, __u32 cq_entries, __u32 flags)
{
	ring_made(RING_CTX(ring), fd, flags);
	return 0;
}

SEC("?tp")
int tp_create(struct trace_event_raw_io_uring_create *r)
{
	ring_made(RING_CTX(r->ctx), r->fd, r->flags);
	return 0;
}

#endif
