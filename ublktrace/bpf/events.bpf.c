/*
 * `ublktrace record`: everything that happens to the requests of io_uring, with all that is known
 * of it, as one stream of records (ublktrace/events/event.h). What is there is attached by
 * ublktrace/record/capture.c: programs that not every kernel can have are "?".
 *
 * Here: io_uring, by its tracepoints, which kernels without kprobes have too; the way to them is
 * chosen in points.h. The system calls and io-wq's threads: calls.h; the block layer, the daemon
 * and context switches: around.h.
 */
#include "ublktrace/bpf/call.h"
#include "ublktrace/bpf/watch.h"
#include "ublktrace/bpf/worker_calls.h"

char LICENSE[] SEC("license") = "GPL";

enum {
	OP_URING_CMD = 46,    /* IORING_OP_URING_CMD */
	OP_URING_CMD128 = 64, /* IORING_OP_URING_CMD128, since 6.19 */
	SETUP_SQPOLL = 1 << 1,
	SETUP_SQE128 = 1 << 10,
	SETUP_REGISTERED_FD_ONLY = 1 << 15,
	SQE_FIXED_FILE = 1 << 0,
	TASK_IO_WORKER = 1 << 4, /* PF_IO_WORKER of include/linux/sched.h */
	CQE_MORE = 1 << 1,
	CQE_NOTIF = 1 << 3,
	OPCODE_UNKNOWN = 0xff, /* opcode of a completion without request */
};

static __always_inline bool events_is_command(__u32 opcode)
{
	return opcode == OP_URING_CMD || opcode == OP_URING_CMD128;
}

/* ---- submission ---- */

static __always_inline bool sqe_at(struct io_ring_ctx *ctx, __u32 at, struct io_uring_sqe *sqe)
{
	__u32 mask = ctx->sq_entries - 1, slot = at & mask;
	__u32 *array = ctx->sq_array;

	if (array)
		slot = KERNEL_CAST(io_uring, array + slot)->head;
	if (slot > mask)
		return false;
	if (ctx->flags & SETUP_SQE128)
		slot <<= 1;
	barrier_var(slot);
	slot &= 0xffff; /* for the verifier: a ring has 2^15 entries at most */
	return !bpf_probe_read_kernel(sqe, sizeof(*sqe),
				      (char *)ctx->sq_sqes + slot * sizeof(*sqe));
}

static __always_inline bool sqe_is_of(const struct io_uring_sqe *sqe, struct io_kiocb *req)
{
	return sqe->user_data == req->cqe.user_data && sqe->opcode == req->opcode;
}

/*
 * The SQE that io_submit_sqes (io_uring/io_uring.c) has just taken: the last one, or the one before
 * when it had two slots of a ring of mixed sizes. User space may change it meanwhile, so that what
 * does not fit the request is not it.
 */
static __always_inline bool sqe_of(struct io_kiocb *req, struct io_uring_sqe *sqe)
{
	struct io_ring_ctx *ctx = req->ctx;
	__u32 head = ctx->cached_sq_head;

	if (sqe_at(ctx, head - 1, sqe) && sqe_is_of(sqe, req))
		return true;
	if (sqe_at(ctx, head - 2, sqe) && sqe_is_of(sqe, req))
		return true;
	__builtin_memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = req->opcode;
	sqe->fd = -1;
	return false;
}

static __always_inline __s32 sqe_ublk_id(struct io_ring_ctx *ctx, const struct io_uring_sqe *sqe)
{
	if (sqe->flags & SQE_FIXED_FILE)
		return file_ublk_id(fixed_file(ctx, (__u32)sqe->fd));
	return file_ublk_id(fd_file(sqe->fd));
}

static __always_inline void flight_of(const struct io_uring_sqe *sqe, struct io_kiocb *req,
				      struct flight *f)
{
	f->submit_ns = bpf_ktime_get_ns();
	f->ring = (__u64)req->ctx;
	f->opcode = sqe->opcode;
	f->cpu = bpf_get_smp_processor_id();
	f->fd = sqe->fd;
	f->ublk_id = -1;
	if (events_is_command(f->opcode)) {
		f->cmd_op = (__u32)sqe->off;
		f->ublk_id = sqe_ublk_id(req->ctx, sqe);
	}
	if (f->ublk_id >= 0) { /* struct ublksrv_io_cmd */
		f->q_id = (__u16)sqe->cmd[0];
		f->tag = (__u16)(sqe->cmd[0] >> 16);
	}
}

static __always_inline void submit_send(struct io_kiocb *req, const struct io_uring_sqe *sqe,
					const struct flight *f)
{
	struct event *e = event_new(EVENT_SUBMIT, (__u64)req->ctx, (__u64)req, req->cqe.user_data);

	if (!e)
		return;
	event_levels(e, req->ctx);
	e->time_ns = f->submit_ns;
	e->sqe = (struct event_sqe){
		.opcode = f->opcode,
		.flags = sqe->flags,
		.ioprio = sqe->ioprio,
		.buf_index = sqe->buf_index,
		.personality = sqe->personality,
		.fd = sqe->fd,
		.len = sqe->len,
		.offset = sqe->off,
		.op_flags = sqe->op_flags,
		.cmd_op = f->cmd_op,
		.ublk_id = f->ublk_id,
		.sq_thread = req->ctx->flags & SETUP_SQPOLL ? 1 : 0,
	};
	if (events_is_command(f->opcode)) {
		e->sqe.cmd[0] = sqe->cmd[0];
		e->sqe.cmd[1] = sqe->cmd[1];
	}
	event_send(e);
}

/* A ublk data command goes with its tag, as its I/O in the block layer and the daemon does. Of one
 * that has been prepared, the SQE is known. */
static __always_inline bool command_sampled(struct io_kiocb *req)
{
	const void *sqe = KERNEL_CAST(io_uring_cmd, &req->file)->sqe;
	__u64 head = read8(sqe, 0); /* opcode, flags, ioprio, fd */
	__u32 cmd_op = (__u32)read8(sqe, __builtin_offsetof(struct io_uring_sqe, off));
	__u64 cmd = read8(sqe, __builtin_offsetof(struct io_uring_sqe, cmd));
	__s32 ublk_id =
		file_ublk_id(head >> 8 & SQE_FIXED_FILE ? fixed_file(req->ctx, (__u32)(head >> 32))
							: fd_file((__s32)(head >> 32)));

	if (ublk_id < 0 || !event_cmd_has_tag(cmd_op))
		return request_sampled(req->cqe.user_data, req);
	return id_sampled(ublk_id_of((__u32)ublk_id, (__u16)cmd, (__u16)(cmd >> 16)));
}

static __always_inline bool submit_sampled(struct io_kiocb *req, const struct io_uring_sqe *refused)
{
	if (watch_sample <= 1)
		return true;
	if (refused || !events_is_command(req->opcode))
		return request_sampled(req->cqe.user_data, req);
	return command_sampled(req);
}

static __always_inline void device_serve(__s32 ublk_id)
{
	__u32 key = (__u32)ublk_id;
	__u8 one = 1;

	if (ublk_id >= 0 && !bpf_map_lookup_elem(&devices, &key))
		remember(&devices, &key, &one);
}

static __always_inline void submit_kept(struct io_kiocb *req, const struct io_uring_sqe *sqe,
					const struct flight *f)
{
	__u64 key = (__u64)req;

	if (!ring_wanted(req->ctx))
		return;
	thread_seen();
	device_serve(f->ublk_id);
	remember(&flights, &key, f);
	if (is_left_out(req))
		left_out_end(req);
	call_tell_sampled();
	submit_send(req, sqe, f);
}

static __always_inline void submit_left_out(struct io_kiocb *req)
{
	__u64 key = (__u64)req;

	/* of a request that was here before, whose COMPLETE was not seen */
	if (bpf_map_lookup_elem(&flights, &key))
		bpf_map_delete_elem(&flights, &key);
	leave_out(req);
}

/* refused: the SQE, when the kernel tells it; a request of an opcode that is none has another one
 * (io_init_req of io_uring/io_uring.c makes it a NOP). */
static __always_inline void events_submit(struct io_kiocb *req, const struct io_uring_sqe *refused)
{
	struct io_uring_sqe sqe;
	struct flight f = { 0 };

	if (!watch_on || !group_watched(current_group()))
		return;
	/* Most are left out: of those nothing else is asked. */
	if (!submit_sampled(req, refused)) {
		submit_left_out(req);
		return;
	}
	if (!refused || bpf_probe_read_kernel(&sqe, sizeof(sqe), refused))
		sqe_of(req, &sqe);
	flight_of(&sqe, req, &f);
	submit_kept(req, &sqe, &f);
}

/* ---- between submission and completion ---- */

/* Whether what happens to a request is told. */
static __always_inline bool req_wanted(struct io_kiocb *req)
{
	struct flight *f;

	if (!watch_on || is_left_out(req))
		return false;
	f = flight_find(req, req->ctx);
	if (f)
		return true;
	return group_watched(current_group()) && ring_wanted(req->ctx) &&
	       request_sampled(req->cqe.user_data, req);
}

static __always_inline void req_send(__u32 type, struct io_kiocb *req, __u64 value, __u64 other)
{
	struct event *e;

	if (!req_wanted(req))
		return;
	e = event_new(type, (__u64)req->ctx, (__u64)req, req->cqe.user_data);
	if (!e)
		return;
	e->value = value;
	e->other = other;
	event_send(e);
}

static __always_inline void go_async(struct io_kiocb *req)
{
	struct flight *f = flight_find(req, req->ctx);

	if (f)
		f->async = true;
	req_send(EVENT_ASYNC, req, 0, 0);
}

/* ---- completion ---- */

struct done {
	__u64 user_data;
	__s32 res;
	__u32 flags;
};

static __always_inline void complete_send(struct io_ring_ctx *ctx, __u64 req, const struct done *d,
					  const struct flight *f, bool aux)
{
	struct event *e = event_new(EVENT_COMPLETE, (__u64)ctx, req, d->user_data);

	if (!e)
		return;
	event_levels(e, ctx);
	e->cqe = (struct event_cqe){
		.res = d->res,
		.flags = d->flags,
		.submit_ns = f->submit_ns,
		.opcode = f->opcode,
		.aux = aux,
		.async = f->async,
		.submit_cpu = f->cpu,
		.fd = f->fd,
		.ublk_id = f->ublk_id,
		.cmd_op = f->cmd_op,
		.q_id = f->q_id,
		.tag = f->tag,
	};
	event_send(e);
}

/* A CQE whose SUBMIT we do not know: of several (aux), or from before us. */
static __always_inline void complete_unknown(struct io_ring_ctx *ctx, struct io_kiocb *req,
					     const struct done *d)
{
	struct flight f = { .opcode = OPCODE_UNKNOWN, .fd = -1, .ublk_id = -1 };
	bool aux = !req || d->flags & CQE_NOTIF;
	__u64 key = (__u64)ctx;
	struct ring *r = bpf_map_lookup_elem(&rings, &key);

	if (r ? !r->wanted : !group_watched(current_group()) || !ring_wanted(ctx))
		return;
	if (aux ? !sampled(d->user_data) : !request_sampled(d->user_data, req))
		return;
	if (!aux) {
		f.opcode = req->opcode;
		if (events_is_command(f.opcode))
			f.ublk_id = file_ublk_id(req->file);
		count(COUNT_UNMATCHED);
	}
	complete_send(ctx, (__u64)req, d, &f, aux);
}

/* The rest of a chain runs in the thread that its begin was handed to, without being queued. */
static __always_inline bool in_worker(void)
{
	return bpf_get_current_task_btf()->flags & TASK_IO_WORKER;
}

/* One that is not done stays left out. */
static __always_inline bool complete_left_out(struct io_kiocb *req, const struct done *d)
{
	if (!req || d->flags & CQE_NOTIF || !is_left_out(req))
		return false;
	if (!(d->flags & CQE_MORE))
		left_out_end(req);
	return true;
}

static __always_inline void complete_any(struct io_ring_ctx *ctx, struct io_kiocb *req,
					 const struct done *d)
{
	struct flight *f;
	__u64 key = (__u64)req;
	__u8 one = 1;

	if (!watch_on || complete_left_out(req, d))
		return;
	f = flight_find(req, ctx);
	if (f && in_worker())
		f->async = true;
	/* The notice of a zero-copy send is a request of the kernel's own, at an address used
	 * before. */
	if (!f || d->flags & CQE_NOTIF)
		complete_unknown(ctx, req, d);
	else {
		worker_posts(ctx, req, f, d->user_data);
		call_tell_sampled();
		complete_send(ctx, key, d, f, false);
	}
	if (watch_sample > 1 && f)
		bpf_map_update_elem(&reaps, &d->user_data, &one, BPF_ANY);
	if (f && !(d->flags & CQE_MORE))
		bpf_map_delete_elem(&flights, &key);
}

/* ---- of a ring as a whole ---- */

/* In a thread of the ring's process, or of any when the ring is known. */
static __always_inline struct event *events_of_ring(__u32 type, struct io_ring_ctx *ctx,
						    __u64 user_data)
{
	__u64 key = (__u64)ctx;
	struct ring *r;

	if (!watch_on)
		return NULL;
	r = bpf_map_lookup_elem(&rings, &key);
	if (r ? !r->wanted : !group_watched(current_group()) || !ring_wanted(ctx))
		return NULL;
	return event_new(type, key, 0, user_data);
}

static __always_inline void overflow(struct io_ring_ctx *ctx, const struct done *d)
{
	struct event *e;

	/* The request is not told here. */
	if (!sampled(d->user_data))
		return;
	e = events_of_ring(EVENT_OVERFLOW, ctx, d->user_data);
	if (!e)
		return;
	event_levels(e, ctx);
	e->cqe = (struct event_cqe){
		.res = d->res, .flags = d->flags, .opcode = OPCODE_UNKNOWN, .fd = -1, .ublk_id = -1
	};
	event_send(e);
}

static __always_inline void ring_send(__u32 type, struct io_ring_ctx *ctx, __s32 value)
{
	struct event *e = call_told() ? events_of_ring(type, ctx, 0) : NULL;

	if (!e)
		return;
	e->value = (__u32)value;
	event_send(e);
}

/* Of all rings of the thread. */
static __always_inline void task_work(__u32 nr)
{
	struct event *e;

	if (!watch_on || !nr || !group_watched(current_group()) || !call_told())
		return;
	e = event_new(EVENT_TASK_WORK, 0, 0, 0);
	if (!e)
		return;
	e->value = nr;
	event_send(e);
}

static __always_inline void ring_made(struct io_ring_ctx *ctx, int fd, __u32 flags)
{
	__u64 key = (__u64)ctx;

	if (!watch_on)
		return;
	if (!group_watched(current_group())) {
		/* there may have been one of ours */
		bpf_map_delete_elem(&rings, &key);
		return;
	}
	ring_learn(ctx, flags & SETUP_REGISTERED_FD_ONLY ? -1 : fd, false);
}

#include "ublktrace/bpf/around.h"
#include "ublktrace/bpf/calls.h"
#include "ublktrace/bpf/points.h"
