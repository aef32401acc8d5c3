/*
 * One reactor: one thread, one io_uring, run to completion. It owns its op slots, timers, mailbox
 * and statistics; nothing here is locked. Only mailbox_post and the statistics may be touched from
 * other threads. The control thread has a reactor too (128-byte SQEs, turned by libev).
 *
 * One turn: enter the kernel (submit everything, wait) -> CQEs -> parked ops -> tasks -> mailbox ->
 * timers -> turn-end hooks (commits, in one batch). Callbacks never recurse into a turn. Between
 * submitting and sleeping it may poll for a while: busy_poll_ns.
 */
#ifndef REACTOR_REACTOR_H
#define REACTOR_REACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/flight.h"
#include "base/list.h"
#include "base/util.h"
#include "reactor/alarm.h"
#include "reactor/mailbox.h"
#include "reactor/op.h"
#include "reactor/prompt.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

/* Work to do later in this turn, or in the next when asked for by a task. Embedded; runs once. */
struct task;
typedef void task_fn(struct task *task);
struct task {
	task_fn *fn;
	struct list_node node;
};

/* Written by the reactor alone, read by anybody with relaxed loads. */
struct loop_stats {
	uint64_t turns;
	uint64_t cqes;
	uint64_t cqes_max;    /* most in one turn */
	uint64_t callback_ns; /* outside the kernel */
	uint64_t enter_ns;    /* inside io_uring_enter, asleep or not: see reactor_times */
	uint64_t poll_ns;     /* spent looking for work instead of sleeping */
	uint64_t poll_hits;   /* how often it came before the time was up */
	uint64_t turn_ns_max; /* longest stretch outside the kernel */
	uint64_t stalls;      /* turns above REACTOR_STALL_NS outside the kernel */
	uint64_t sq_full;     /* ops parked for want of an SQE */
	uint64_t stale;	      /* CQEs for a slot or generation that is not in flight */
	uint64_t mails;
	uint64_t timers;
	uint64_t timers_late; /* run more than REACTOR_TIMER_LATE_NS after their deadline */
};

/* What a turn is busy with when it is not in the callback of an op: values of reactor.doing. */
enum reactor_doing {
	REACTOR_DOING_NOTHING,
	REACTOR_DOING_RETRY, /* of an op that waited for an SQE */
	REACTOR_DOING_TASK,
	REACTOR_DOING_MAIL,
	REACTOR_DOING_TIMER,
	REACTOR_DOING_TURN_END,
	REACTOR_DOING_NR, /* from here on it is the op's user_data, whose kind is never 0 */
};

/*
 * Makes a reactor tell once that it has woken, so that a watcher may sleep as long as the reactor
 * does. The watcher's, but for the time from reactor_nudge to its mail.
 */
struct reactor_nudge {
	struct mail mail;
	mail_fn *fn;
	struct reactor *home; /* the watcher's, where the mail goes */
};

/* A look from outside: nothing but numbers that were true at about the same time. */
struct reactor_look {
	uint64_t turns;
	uint64_t code_since_ns; /* outside of the kernel since then, ring_clock_ns; 0: inside */
	uint64_t doing;		/* enum reactor_doing or user_data; inside: what it did last */
	bool mail;		/* waits to be read */
	bool cqes;		/* wait to be run, or are being run */
};

#define REACTOR_STALL_NS 10000000ull
#define REACTOR_TIMER_LATE_NS 10000000ull
#define REACTOR_OP_NR_DEFAULT (1u << USER_DATA_SLOT_BITS)
/* Slots that it takes for itself: its mailbox, its alarm, the look at prompt ops. */
#define REACTOR_OWN_OP_NR (2u + ALARM_TIMEOUT_NR)
#define REACTOR_FILE_NR 1024
#define REACTOR_GROUP_NR 1024
/* IORING_MAX_REG_BUFFERS: 8 bytes each in the kernel, made when first asked for. */
#define REACTOR_BUFFER_NR 16384

/*
 * Where the time of a reactor's thread went. A sleeping thread cannot say how long it slept, and a
 * clock of CPU time costs a system call: it is read only when somebody asks.
 */
struct reactor_times {
	uint64_t callback_ns; /* outside io_uring_enter, polling apart */
	uint64_t kernel_ns;   /* inside it and on a CPU: submission, task work, completion */
	uint64_t idle_ns;     /* inside it and off the CPU: asleep, or waiting for its turn */
	uint64_t poll_ns;     /* outside it and spinning: nothing done, yet a CPU kept busy */
};

struct reactor_params {
	unsigned idx; /* for names and statistics */
	unsigned sq_entries, cq_entries;
	unsigned op_nr;		   /* slots; 0: REACTOR_OP_NR_DEFAULT */
	bool control;		   /* 128-byte SQEs, no single issuer, an eventfd to watch */
	uint64_t busy_poll_ns;	   /* after a turn with CQEs, before it sleeps; 0: never */
	const char *flight_folder; /* of the flight recorder's file; NULL: in memory only */
};

/* Set with what is queued; a queue whose bit is set can be empty, for what it had is cancelled. */
enum reactor_pending {
	REACTOR_PENDING_PARKED = 1 << 0,
	REACTOR_PENDING_TASKS = 1 << 1,
	REACTOR_PENDING_MAIL = 1 << 2,
	REACTOR_PENDING_TURN_END = 1 << 3,
};

struct reactor {
	struct ring ring;
	uint64_t now_ns; /* read once after and once before the kernel, each turn */
	unsigned idx;
	unsigned simple_sqe_nr; /* size of the SQ; 0 with SQEs of 128 bytes: see op_sqe */

	struct op **slot;    /* slot number -> op, or NULL */
	uint32_t *slot_free; /* stack of free slot numbers, with their generations above */
	uint32_t slot_free_nr, slot_nr, slot_fresh; /* slots from slot_fresh on were never used */

	struct list_node parked; /* ops waiting for an SQE */
	struct list_node tasks;
	struct list_node turn_end; /* tasks at the end of this turn */
	struct list_node running;  /* those of one of the lists above whose turn it is */
	uint8_t pending;	   /* enum reactor_pending: what there may be to do */
	struct timer_heap timers;
	struct alarm alarm;
	struct prompt prompt;

	/* Written by other threads, and so a cache line apart from what each turn needs. */
	char apart_before[64];
	struct mailbox mailbox;
	struct reactor_nudge *nudge; /* set by any thread, taken by the reactor */
	char apart_behind[64];

	struct op mailbox_op;
	uint64_t mailbox_buf;

	uint64_t file_used[REACTOR_FILE_NR / 64];     /* bitmap of the registered file table */
	uint64_t buffer_used[REACTOR_BUFFER_NR / 64]; /* the same of the registered buffers */
	bool has_buffers;
	uint64_t group_used[REACTOR_GROUP_NR / 64]; /* and of the groups of provided buffers */
	struct flight_file *flight;		    /* not for control */
	int event_fd; /* control only: readable when a turn has something to do */
	bool in_turn;
	bool before_enter; /* it has an eventfd to clear, or polls */
	uint64_t busy_poll_ns;
	uint64_t polled_cqes; /* stats.cqes when it last polled: no new ones, no poll */
	struct loop_stats stats;
	uint64_t notable_ns; /* a turn not longer than this is neither the longest nor a stall */
	uint64_t code_since_ns, doing; /* as in struct reactor_look, and written as stats are */

	unsigned leaving; /* see reactor_leave_begin */

	clockid_t cpu_clock;	   /* of the thread that turns it */
	uint64_t cpu_start_ns;	   /* what that said at reactor_init */
	struct reactor_times seen; /* reactor_times: no counter of it ever falls */
};

/*
 * Call on the thread that will turn it. Returns 0 or -errno (see ring_init); nothing is left
 * behind on failure.
 */
int reactor_init(struct reactor *r, const struct reactor_params *params);

/*
 * Every op must have been given back, or belong to somebody who is leaving: those are waited for.
 * Accepts a zeroed reactor.
 */
void reactor_fini(struct reactor *r);

/* One turn. may_wait: sleep in the kernel until there is something to do. */
void reactor_turn(struct reactor *r, bool may_wait);

/* Turns, and sleeps, until a callback sets *stop. */
void reactor_run(struct reactor *r, const bool *stop);

/*
 * Main thread, while the reactor's thread lives: the times since reactor_init. For the control
 * reactor whatever else its thread does counts as kernel_ns. A thread that loses its CPU within a
 * callback makes kernel_ns too small by as much.
 */
void reactor_times(struct reactor *r, struct reactor_times *ret_times);

/* Any thread, while the reactor lives; works when it is stuck, and costs it nothing. */
void reactor_look(const struct reactor *r, struct reactor_look *ret_look);

/* Any thread. The reactor posts nudge->mail to its home in the next turn that it begins. */
static inline void reactor_nudge(struct reactor *r, struct reactor_nudge *nudge)
{
	__atomic_store_n(&r->nudge, nudge, __ATOMIC_RELEASE);
}

/*
 * Somebody whose owner is gone stays until the kernel has let go of it, and ends by itself soon,
 * whatever the world does: reactor_fini turns until then.
 */
static inline void reactor_leave_begin(struct reactor *r)
{
	r->leaving++;
}

static inline void reactor_leave_end(struct reactor *r)
{
	r->leaving--;
}

/* True when SQEs, parked ops or tasks wait for a turn: the control loop must not sleep then. */
bool reactor_has_work(const struct reactor *r);

/*
 * What has been prepared up to now, and whether the kernel has taken all of that (it may leave SQEs
 * for later) and every CQE that it has posted has been run.
 */
uint32_t reactor_sq_mark(const struct reactor *r);
bool reactor_sq_passed(const struct reactor *r, uint32_t mark);

/* The kernel keeps CQEs for which the CQ had no room: they come with the next enter. */
static inline bool reactor_cq_overflows(const struct reactor *r)
{
	return IO_URING_READ_ONCE(*r->ring.uring.sq.kflags) & IORING_SQ_CQ_OVERFLOW;
}

/* Deadline of the next timer (ring_clock_ns), or RING_NO_TIMEOUT. */
uint64_t reactor_next_deadline_ns(const struct reactor *r);

/*
 * Runs the task later in this turn, once however often it is asked for; one that defers itself
 * runs in the next turn. A task starts zeroed.
 */
void reactor_defer(struct reactor *r, struct task *task, task_fn *fn);

/* The same at the end of this turn, when now_ns has just been read again. */
void reactor_at_turn_end(struct reactor *r, struct task *task, task_fn *fn);

/* Forgets a task that waits; harmless otherwise. Call it before a task is freed. */
static inline void task_cancel(struct task *task)
{
	if (task->node.next)
		list_remove(&task->node);
}

static inline void reactor_timer_arm(struct reactor *r, struct timer *timer, uint64_t deadline_ns)
{
	timer_heap_arm(&r->timers, timer, deadline_ns);
}

static inline void reactor_timer_cancel(struct reactor *r, struct timer *timer)
{
	timer_heap_cancel(&r->timers, timer);
}

/* Registers fd in the ring's file table; returns the slot for IOSQE_FIXED_FILE, or -errno. */
int reactor_file_add(struct reactor *r, int fd);
void reactor_file_remove(struct reactor *r, int slot);

/*
 * A range of nr slots in the ring's table of registered buffers, for the driver to fill; returns
 * the first, or -ENOSPC when there is no such range, or another -errno.
 */
int reactor_buffers_add(struct reactor *r, unsigned nr);
/* Accepts a negative first. */
void reactor_buffers_remove(struct reactor *r, int first, unsigned nr);

/*
 * A group of provided buffers with this memory as its ring: nr entries, page-aligned. Returns the
 * group, or -ENOSPC, or another -errno.
 */
int reactor_group_add(struct reactor *r, void *mem, unsigned nr);
/* Accepts a negative group. */
void reactor_group_remove(struct reactor *r, int group);

/* What op_sqe does when that is not simple. */
struct io_uring_sqe *op_sqe_slow(struct op *op);

/*
 * What io_uring_get_sqe does, without what only other rings need. NULL: op_sqe_slow may have one.
 * For those who have a slow path of their own; others call op_sqe.
 */
static inline struct io_uring_sqe *op_sqe_at_hand(struct op *op)
{
	struct reactor *r = op->reactor;
	struct io_uring_sq *sq = &r->ring.uring.sq;
	unsigned tail = sq->sqe_tail;

	if (__builtin_expect(op->state != OP_IDLE ||
				     tail - IO_URING_READ_ONCE(*sq->khead) >= r->simple_sqe_nr,
			     0))
		return NULL;
	sq->sqe_tail = tail + 1;
	return &sq->sqes[tail & sq->ring_mask];
}

/*
 * An SQE to prepare for this idle op, or NULL. Each SQE got must be started before the next is
 * asked for. On a ring with 128-byte SQEs the second half is the caller's to clear.
 */
static inline struct io_uring_sqe *op_sqe(struct op *op)
{
	struct io_uring_sqe *sqe = op_sqe_at_hand(op);

	return __builtin_expect(!sqe, 0) ? op_sqe_slow(op) : sqe;
}

/* After the prep_* call, which would overwrite what this sets. */
static inline void op_start(struct op *op, struct io_uring_sqe *sqe)
{
	op->user_data += USER_DATA_GENERATION_ONE;
	op->state = OP_INFLIGHT;
	op->start_ns = op->reactor->now_ns;
	sqe->user_data = op->user_data;
}

/* A timeout in the ring at a time of ring_clock_ns(); *ts must last until the op ends. */
static inline void op_start_timeout(struct op *op, struct io_uring_sqe *sqe,
				    struct __kernel_timespec *ts, uint64_t at_ns)
{
	ts->tv_sec = (long long)(at_ns / NS_PER_SEC);
	ts->tv_nsec = (long long)(at_ns % NS_PER_SEC);
	io_uring_prep_timeout(sqe, ts, 0, IORING_TIMEOUT_ABS);
	op_start(op, sqe);
}

/*
 * The same as op_start for an op of a data reactor whose CQE the enter that submits it posts,
 * whatever the outcome, and whose success asks for nothing more: that enter does not end its sleep
 * for it. See prompt.h.
 */
static inline void op_start_prompt(struct op *op, struct io_uring_sqe *sqe)
{
	op_start(op, sqe);
	prompt_add(&op->reactor->prompt);
}

/* Any thread. */
static inline void reactor_post(struct reactor *r, struct mail *mail, mail_fn *fn)
{
	mailbox_post(&r->mailbox, mail, fn);
}

/*
 * Prints every op in flight (kind, queue, tag, leg, age) to fd as key=value lines, without
 * allocating: for the assertion hook and debugging.
 */
void reactor_dump_ops(const struct reactor *r, int fd);

const char *op_kind_name(enum op_kind kind);

#endif
