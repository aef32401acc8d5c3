/*
 * Threads: their io_uring syscalls, with what the kernel does inside of them, and beside them when
 * they were off the CPU. Owns struct thread. Main thread.
 *
 * Happy path: ENTER begins a slice, WAIT one in it, SYSCALL ends both. Failure modes: an end
 * without a begin is drawn from its own start; a begin without an end is ended by the next begin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ublktrace/events/names.h"
#include "ublktrace/timeline/timeline_internal.h"

#define OFF_CPU " off CPU"

static const char *thread_name(const struct event *e, const char *what, char *name, size_t bytes)
{
	char comm[COMM_TEXT_BYTES];

	snprintf(name, bytes, "%s %u%s", comm_text(e->comm, comm), e->tid, what);
	return name;
}

static struct track *thread_track(struct timeline *t, const struct thread *thread,
				  const struct event *e, const char *what)
{
	char name[TIMELINE_NAME_BYTES];

	return track_new(&t->tracks, thread->process->id, thread_name(e, what, name, sizeof(name)));
}

/* It begins with the name of who made it: exec and prctl(PR_SET_NAME) come later. */
static void thread_rename(struct timeline *t, struct thread *thread, const struct event *e)
{
	char name[TIMELINE_NAME_BYTES];

	if (!strncmp(thread->comm, e->comm, sizeof(thread->comm)))
		return;
	memcpy(thread->comm, e->comm, sizeof(thread->comm));
	process_of(t, e);
	track_rename(thread->calls, thread->process->id, thread_name(e, "", name, sizeof(name)));
	if (thread->off)
		track_rename(thread->off, thread->process->id,
			     thread_name(e, OFF_CPU, name, sizeof(name)));
}

struct thread *thread_of(struct timeline *t, const struct event *e)
{
	struct thread *thread = map_get(&t->threads, e->tid, 0);

	if (thread) {
		/* a number may be used again by another process */
		if (map_get(&t->processes, e->pid, 0) == thread->process) {
			thread_rename(t, thread, e);
			return thread;
		}
		track_end_to(thread->calls, e->time_ns, 0);
		if (thread->off)
			track_end_to(thread->off, e->time_ns, 0);
		free(map_remove(&t->threads, e->tid, 0));
	}
	thread = memory_zalloc(sizeof(*thread));
	thread->process = process_of(t, e);
	memcpy(thread->comm, e->comm, sizeof(thread->comm));
	thread->calls = thread_track(t, thread, e, "");
	map_put(&t->threads, e->tid, 0, thread);
	return thread;
}

struct slice_ref thread_call(struct timeline *t, const struct event *e)
{
	struct thread *thread = map_get(&t->threads, e->tid, 0);

	if (!thread || !thread->calls->depth)
		return (struct slice_ref){ 0 };
	return (struct slice_ref){ .track = thread->calls, .seq = thread->calls->open[0] };
}

/* ---- syscalls ---- */

static void enter_args(struct slice_ref s, int fd, uint32_t to_submit, uint32_t min_complete,
		       uint32_t flags)
{
	char text[128];

	slice_arg(s, "fd", fd);
	slice_arg(s, "to_submit", to_submit);
	slice_arg(s, "min_complete", min_complete);
	slice_arg_copy(s, "flags", name_enter_flags(flags, text, sizeof(text)));
}

static void on_enter(struct thread *thread, const struct event *e)
{
	struct slice_ref s;

	if (thread->calls->depth) {
		slice_arg_text(track_top(thread->calls), "end", "not seen");
		track_end_to(thread->calls, e->time_ns, 0);
	}
	if (e->ring)
		thread->ring = e->ring;
	s = track_begin(thread->calls, e->time_ns, "io_uring_enter");
	enter_args(s, e->enter.fd, e->enter.to_submit, e->enter.min_complete, e->enter.flags);
}

static void syscall_args(struct slice_ref s, const struct event_syscall *call)
{
	if (call->nr == EVENT_SYSCALL_ENTER) {
		enter_args(s, call->fd, call->arg1, call->arg2, call->arg3);
		return;
	}
	if (call->nr == EVENT_SYSCALL_REGISTER)
		slice_arg(s, "fd", call->fd);
	slice_arg(s, call->nr == EVENT_SYSCALL_SETUP ? "entries" : "opcode", call->arg1);
	if (call->nr == EVENT_SYSCALL_REGISTER)
		slice_arg(s, "nr_args", call->arg3);
}

static void on_syscall(struct thread *thread, const struct event *e)
{
	static const char *const names[] = {
		[EVENT_SYSCALL_SETUP] = "io_uring_setup",
		[EVENT_SYSCALL_ENTER] = "io_uring_enter",
		[EVENT_SYSCALL_REGISTER] = "io_uring_register",
	};
	const struct event_syscall *call = &e->syscall;
	struct slice_ref s = { .track = thread->calls };

	if (call->nr > EVENT_SYSCALL_REGISTER)
		return;
	if (call->nr == EVENT_SYSCALL_ENTER && thread->calls->depth) {
		s.seq = thread->calls->open[0];
	} else {
		track_end_to(thread->calls, call->start_ns, 0);
		s = track_begin(thread->calls, call->start_ns, names[call->nr]);
		syscall_args(s, call);
	}
	slice_arg_result(s, call->ret);
	track_end_to(thread->calls, e->time_ns, 0);
}

/* Only inside of a call that is open: it ends with it. */
static void on_wait(struct thread *thread, const struct event *e)
{
	if (thread->calls->depth != 1)
		return;
	slice_arg(track_begin(thread->calls, e->time_ns, "wait"), "min_events", (int64_t)e->value);
}

/* ---- off the CPU ---- */

static void on_switch(struct timeline *t, struct thread *thread, const struct event *e)
{
	if (!thread->off)
		thread->off = thread_track(t, thread, e, OFF_CPU);
	if (e->value == 0) {
		track_end_to(thread->off, e->time_ns, 0);
		slice_arg(track_begin(thread->off, e->time_ns, "off CPU"), "cpu", e->cpu);
	} else {
		slice_arg(track_top(thread->off), "back_on_cpu", e->cpu);
		track_end_to(thread->off, e->time_ns, 0);
	}
}

void thread_event(struct timeline *t, const struct event *e)
{
	struct thread *thread = thread_of(t, e);

	switch ((enum event_type)e->type) {
	case EVENT_ENTER:
		on_enter(thread, e);
		break;
	case EVENT_SYSCALL:
		on_syscall(thread, e);
		break;
	case EVENT_WAIT:
		on_wait(thread, e);
		break;
	case EVENT_TASK_WORK:
		slice_arg(track_point(thread->calls, e->time_ns, "task work"), "count",
			  (int64_t)e->value);
		break;
	case EVENT_SWITCH:
		on_switch(t, thread, e);
		break;
	default:
		break;
	}
}
