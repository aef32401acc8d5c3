/*
 * The system call of io_uring that a thread is in: calls.h knows its begin and its end. With a
 * sample an io_uring_enter is told when a request of the sample is submitted or completed in it, as
 * if it had been at its begin, and else not at all: most calls have none.
 */
#ifndef UBLKTRACE_BPF_CALL_H
#define UBLKTRACE_BPF_CALL_H

#include "ublktrace/bpf/watch.h"

struct call {
	__u32 thread; /* 0: free */
	__s32 fd;
	__u64 start_ns, ring;
	__u32 nr, arg1, arg2, arg3;
	bool registered; /* fd is the number of a registered ring */
	bool told;
};

/* By thread: the first free place of a few. Calls that end unseen leave theirs taken, until their
 * thread calls again. */
#define CALL_NR 16384u
#define CALL_PROBES 4u
static struct call calls[CALL_NR];

static __always_inline struct call *call_at(__u32 thread, __u32 probe)
{
	return &calls[(thread + probe) & (CALL_NR - 1)];
}

static __always_inline struct call *current_call(void)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid(), i;

	for (i = 0; i < CALL_PROBES; i++)
		if (call_at(thread, i)->thread == thread)
			return call_at(thread, i);
	return NULL;
}

/* NULL: there is no place. */
static __always_inline struct call *call_take(void)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid(), i;
	struct call *c = current_call();

	for (i = 0; !c && i < CALL_PROBES; i++)
		if (!__sync_val_compare_and_swap(&call_at(thread, i)->thread, 0, thread))
			c = call_at(thread, i);
	return c;
}

static __always_inline void call_free(struct call *c)
{
	c->thread = 0;
}

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

/* Told or not: it is settled. One of a ring that is not wanted is over for us. */
static __always_inline void call_tell(struct call *c)
{
	struct io_ring_ctx *ctx = NULL;

	if (c->nr != EVENT_SYSCALL_SETUP)
		ctx = fd_ring(c->fd, c->registered);
	if (ctx ? !ring_wanted(ctx) : watch_ring_nr > 0) {
		call_free(c);
		return;
	}
	c->told = true;
	c->ring = (__u64)ctx;
	thread_seen();
	if (c->nr == EVENT_SYSCALL_ENTER)
		enter_send(c, ctx);
}

/* A request of the sample passes. */
static __always_inline void call_tell_sampled(void)
{
	struct call *c;

	if (watch_sample <= 1)
		return;
	c = current_call();
	if (c && !c->told)
		call_tell(c);
}

/* Whether what happens in the current call is told. */
static __always_inline bool call_told(void)
{
	struct call *c;

	if (watch_sample <= 1)
		return true;
	c = current_call();
	return c && c->told;
}

static __always_inline void call_begin(const struct call *begin)
{
	struct call *c = call_take();

	if (!c) {
		count(COUNT_MAP_FULL);
		return;
	}
	c->fd = begin->fd;
	c->nr = begin->nr;
	c->arg1 = begin->arg1;
	c->arg2 = begin->arg2;
	c->arg3 = begin->arg3;
	c->registered = begin->registered;
	c->told = false;
	c->start_ns = bpf_ktime_get_ns();
	if (watch_sample <= 1 || c->nr != EVENT_SYSCALL_ENTER)
		call_tell(c);
}

static __always_inline void syscall_send(const struct call *c, __s64 ret)
{
	struct event *e = event_new(EVENT_SYSCALL, c->ring, 0, 0);

	if (!e)
		return;
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

static __always_inline void call_end(__s64 ret)
{
	struct call *c = current_call();

	if (!c)
		return;
	if (watch_on && c->told)
		syscall_send(c, ret);
	call_free(c);
}

#endif
