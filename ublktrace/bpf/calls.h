/*
 * System calls of io_uring and the threads of io-wq. The calls: by fentry and fexit where the
 * kernel can patch its functions, else by the tracepoints of all system calls, which slow every
 * call a little. The threads of io-wq: by fentry only.
 */
#ifndef UBLKTRACE_BPF_CALLS_H
#define UBLKTRACE_BPF_CALLS_H

#include "ublktrace/bpf/call.h"
#include "ublktrace/bpf/watch.h"
#include "ublktrace/bpf/worker_calls.h"

enum { NR_SETUP = 425, NR_ENTER = 426, NR_REGISTER = 427 }; /* of x86-64 and all others */
enum { ENTER_REGISTERED_RING = 1 << 4, REGISTER_REGISTERED_RING = 1u << 31 };

static __always_inline bool call_watched(void)
{
	return watch_on && group_watched(current_group());
}

static __always_inline void setup_begin(const struct pt_regs *regs)
{
	struct call c = { .nr = EVENT_SYSCALL_SETUP, .fd = -1, .arg1 = (__u32)regs->di };

	if (call_watched())
		call_begin(&c);
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

	c.registered = c.arg3 & ENTER_REGISTERED_RING;
	if (call_watched())
		call_begin(&c);
}

/* arg1: its opcode, arg2: the number of its arguments. */
static __always_inline void register_begin(const struct pt_regs *regs)
{
	struct call c = {
		.nr = EVENT_SYSCALL_REGISTER,
		.fd = (__s32)regs->di,
		.arg1 = (__u32)regs->si & ~REGISTER_REGISTERED_RING,
		.arg2 = (__u32)regs->r10,
		.registered = (__u32)regs->si & REGISTER_REGISTERED_RING,
	};

	if (call_watched())
		call_begin(&c);
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
