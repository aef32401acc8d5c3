/*
 * System calls of io_uring and the threads of io-wq. The calls: by fentry and fexit where the
 * kernel can patch its functions, else by the tracepoints of all system calls, which slow every
 * call a little. The threads of io-wq: by fentry only.
 */
#ifndef TRACE_BPF_CALLS_H
#define TRACE_BPF_CALLS_H

#include "trace/bpf/watch.h"
#include "trace/bpf/worker.h"

enum { NR_SETUP = 425, NR_ENTER = 426, NR_REGISTER = 427 }; /* of x86-64 and all others */
enum { ENTER_REGISTERED_RING = 1 << 4, REGISTER_REGISTERED_RING = 1u << 31 };

/* Calls that have begun, by thread. */
struct call {
	__u64 start_ns, ring;
	__s32 fd;
	__u32 nr, arg1, arg2, arg3;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

static __always_inline void enter_send(const struct call *c, struct io_ring_ctx *ctx)
{
	struct event *e = event_new(EVENT_ENTER, c->ring, 0, 0);

	if (!e)
		return;
	event_levels(e, ctx);
	e->time_ns = c->start_ns;
	e->enter = (struct event_enter){
		.fd = c->fd, .to_submit = c->arg1, .min_complete = c->arg2, .flags = c->arg3
	};
	event_send(e);
}

static __always_inline void call_begin(struct call *c, bool registered)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct io_ring_ctx *ctx = NULL;

	if (c->nr != EVENT_SYSCALL_SETUP)
		ctx = fd_ring(c->fd, registered);
	if (ctx && !ring_wanted(ctx))
		return;
	if (!ctx && watch_ring_nr)
		return;
	c->ring = (__u64)ctx;
	c->start_ns = bpf_ktime_get_ns();
	remember(&calls, &thread, c);
	thread_seen();
	if (c->nr == EVENT_SYSCALL_ENTER)
		enter_send(c, ctx);
}

static __always_inline void call_end(__s64 ret)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct call *c = bpf_map_lookup_elem(&calls, &thread);
	struct event *e;

	if (!c)
		return;
	e = watch_on ? event_new(EVENT_SYSCALL, c->ring, 0, 0) : NULL;
	if (e) {
		e->syscall = (struct event_syscall){
			.start_ns = c->start_ns,
			.ret = ret,
			.nr = c->nr,
			.fd = c->fd,
			.arg1 = c->arg1,
			.arg2 = c->arg2,
			.arg3 = c->arg3,
		};
		event_send(e);
	}
	bpf_map_delete_elem(&calls, &thread);
}

static __always_inline bool call_watched(void)
{
	return watch_on && group_watched(current_group());
}

static __always_inline void setup_begin(const struct pt_regs *regs)
{
	struct call c = { .nr = EVENT_SYSCALL_SETUP, .fd = -1, .arg1 = (__u32)regs->di };

	if (call_watched())
		call_begin(&c, false);
}

static __always_inline void enter_begin(const struct pt_regs *regs)
{
	struct call c = {
		.nr = EVENT_SYSCALL_ENTER,
		.fd = (__s32)regs->di,
		.arg1 = (__u32)regs->si,
		.arg2 = (__u32)regs->dx,
		.arg3 = (__u32)regs->r10,
	};

	if (call_watched())
		call_begin(&c, c.arg3 & ENTER_REGISTERED_RING);
}

/* arg1: its opcode, arg2: the number of its arguments. */
static __always_inline void register_begin(const struct pt_regs *regs)
{
	struct call c = {
		.nr = EVENT_SYSCALL_REGISTER,
		.fd = (__s32)regs->di,
		.arg1 = (__u32)regs->si & ~REGISTER_REGISTERED_RING,
		.arg2 = (__u32)regs->r10,
	};

	if (call_watched())
		call_begin(&c, (__u32)regs->si & REGISTER_REGISTERED_RING);
}

SEC("?fentry/__x64_sys_io_uring_setup")
int BPF_PROG(setup_fentry, const struct pt_regs *regs)
{
	setup_begin(regs);
	return 0;
}

SEC("?fentry/__x64_sys_io_uring_enter")
int BPF_PROG(enter_fentry, const struct pt_regs *regs)
{
	enter_begin(regs);
	return 0;
}

SEC("?fentry/__x64_sys_io_uring_register")
int BPF_PROG(register_fentry, const struct pt_regs *regs)
{
	register_begin(regs);
	return 0;
}

SEC("?fexit/__x64_sys_io_uring_setup")
int BPF_PROG(setup_fexit, const struct pt_regs *regs, long ret)
{
	call_end(ret);
	return 0;
}

SEC("?fexit/__x64_sys_io_uring_enter")
int BPF_PROG(enter_fexit, const struct pt_regs *regs, long ret)
{
	call_end(ret);
	return 0;
}

SEC("?fexit/__x64_sys_io_uring_register")
int BPF_PROG(register_fexit, const struct pt_regs *regs, long ret)
{
	call_end(ret);
	return 0;
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(any_sys_enter, struct pt_regs *regs, long nr)
{
	if (nr == NR_ENTER)
		enter_begin(regs);
	else if (nr == NR_REGISTER)
		register_begin(regs);
	else if (nr == NR_SETUP)
		setup_begin(regs);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(any_sys_exit, struct pt_regs *regs, long ret)
{
	long nr = regs->orig_ax;

	if (nr == NR_ENTER || nr == NR_REGISTER || nr == NR_SETUP)
		call_end(ret);
	return 0;
}

/* ---- io-wq ---- */

SEC("?fentry/io_wq_submit_work")
int BPF_PROG(worker_begin, struct io_wq_work *work)
{
	__u64 address = (__u64)work - bpf_core_field_offset(struct io_kiocb, work);
	struct io_kiocb *req = KERNEL_CAST(io_kiocb, (void *)address);
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct work w = { .req = address };

	if (!req_wanted(req))
		return 0;
	w.ring = (__u64)req->ctx;
	w.user_data = req->cqe.user_data;
	work_of(&w, flight_find(req, req->ctx), req);
	remember(&works, &thread, &w);
	thread_seen();
	work_send(EVENT_WORKER, &w, 0);
	return 0;
}

SEC("?fexit/io_wq_submit_work")
int BPF_PROG(worker_end, struct io_wq_work *work)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct work *w = bpf_map_lookup_elem(&works, &thread);

	if (!w)
		return 0;
	if (watch_on)
		work_send(EVENT_WORKER_END, w, 0);
	bpf_map_delete_elem(&works, &thread);
	return 0;
}

#endif
