/*
 * Glue between libev and the control reactor. Main thread.
 *
 * Happy path: before libev sleeps, the prepare watcher turns the reactor until it has nothing left
 * to do, so that SQEs prepared by any callback are submitted, and sets a timer for the reactor's
 * next deadline; while libev sleeps, a CQE makes the eventfd readable.
 *
 * What runs from inside a turn (completions, reactor timers) must not use ev_feed_event: it would
 * run after the prepare watcher and prepare SQEs that nobody submits. A timer of zero seconds is
 * the way to defer: it runs in the next round, before the next prepare.
 *
 * Failure mode: the kernel takes no SQEs for want of memory; then the loop polls until it does.
 */
#include "daemon/runtime/loop.h"

#include <errno.h>
#include <signal.h>

#include "base/util.h"

#define CONTROL_SQ_ENTRIES 256
#define CONTROL_CQ_ENTRIES 1024
#define CONTROL_OP_NR 65536
#define TURNS_PER_ROUND_MAX 16
#define POLL_SECONDS 0.001
#define LEAVE_NS (5 * NS_PER_SEC)

static double seconds_until(const struct loop *loop, uint64_t deadline_ns)
{
	uint64_t now_ns = ring_clock_ns();

	if (reactor_has_work(&loop->control))
		return POLL_SECONDS;
	if (deadline_ns <= now_ns)
		return 0;
	/* Rounded up a little: waking just before the deadline would only sleep again. */
	return (double)(deadline_ns - now_ns) / NS_PER_SEC + 0.0001;
}

static void set_wakeup(struct loop *loop)
{
	uint64_t deadline_ns = reactor_next_deadline_ns(&loop->control);

	ev_timer_stop(loop->ev, &loop->wakeup);
	if (deadline_ns == RING_NO_TIMEOUT && !reactor_has_work(&loop->control))
		return;
	ev_now_update(loop->ev);
	ev_timer_set(&loop->wakeup, seconds_until(loop, deadline_ns), 0.);
	ev_timer_start(loop->ev, &loop->wakeup);
}

static bool loop_has_work(const struct loop *loop)
{
	return reactor_has_work(&loop->control) ||
	       reactor_next_deadline_ns(&loop->control) <= ring_clock_ns();
}

static void on_loop_before_sleep(struct ev_loop *ev, struct ev_prepare *w, int events)
{
	struct loop *loop = container_of(w, struct loop, before_sleep);

	(void)events;
	for (int i = 0; i < TURNS_PER_ROUND_MAX && loop_has_work(loop); i++)
		reactor_turn(&loop->control, false);
	/* What is waited for came in these turns: libev knows nothing of it and would sleep. */
	if (loop->until && *loop->until)
		ev_break(ev, EVBREAK_ONE);
	set_wakeup(loop);
}

/*
 * The reactor reads the clock only in its turns, and may not have had one for long: whatever runs
 * now and sets a deadline would set it in the past.
 */
static void on_after_sleep(struct ev_loop *ev, struct ev_check *w, int events)
{
	struct loop *loop = container_of(w, struct loop, after_sleep);

	(void)ev, (void)events;
	loop->control.now_ns = ring_clock_ns();
}

static void on_loop_readable(struct ev_loop *ev, struct ev_io *w, int events)
{
	struct loop *loop = container_of(w, struct loop, readable);

	(void)ev, (void)events;
	reactor_turn(&loop->control, false);
}

/* The prepare watcher does the work; this only ends the sleep. */
static void on_wakeup(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)ev, (void)w, (void)events;
}

int loop_init(struct loop *loop)
{
	struct reactor_params params = {
		.idx = UINT32_MAX, /* data reactors count from 0 */
		.sq_entries = CONTROL_SQ_ENTRIES,
		.cq_entries = CONTROL_CQ_ENTRIES,
		.op_nr = CONTROL_OP_NR,
		.control = true,
	};
	int ret;

	*loop = (struct loop){ .ev = ev_default_loop(EVFLAG_AUTO) };
	if (!loop->ev)
		return -ENOMEM;
	/* libev would reap every child, also one whose end somebody here asks for. */
	signal(SIGCHLD, SIG_DFL);
	ret = reactor_init(&loop->control, &params);
	if (ret < 0) {
		*loop = (struct loop){ 0 };
		return ret;
	}
	ev_io_init(&loop->readable, on_loop_readable, loop->control.event_fd, EV_READ);
	ev_io_start(loop->ev, &loop->readable);
	ev_prepare_init(&loop->before_sleep, on_loop_before_sleep);
	ev_set_priority(&loop->before_sleep, EV_MINPRI);
	ev_prepare_start(loop->ev, &loop->before_sleep);
	ev_check_init(&loop->after_sleep, on_after_sleep);
	ev_set_priority(&loop->after_sleep, EV_MAXPRI);
	ev_check_start(loop->ev, &loop->after_sleep);
	ev_timer_init(&loop->wakeup, on_wakeup, 0., 0.);
	return 0;
}

struct leaving {
	struct timer deadline;
	bool is_late;
};

static void on_leave_late(struct timer *timer)
{
	container_of(timer, struct leaving, deadline)->is_late = true;
}

bool loop_leave(struct loop *loop)
{
	struct reactor *control = &loop->control;
	struct leaving l = { .is_late = false };

	if (control->leaving == 0)
		return true;
	timer_init(&l.deadline, on_leave_late);
	reactor_timer_arm(control, &l.deadline, ring_clock_ns() + LEAVE_NS);
	while (control->leaving > 0 && !l.is_late)
		reactor_turn(control, true);
	reactor_timer_cancel(control, &l.deadline);
	return control->leaving == 0;
}

void loop_fini(struct loop *loop)
{
	if (!loop->ev)
		return;
	ev_timer_stop(loop->ev, &loop->wakeup);
	ev_check_stop(loop->ev, &loop->after_sleep);
	ev_prepare_stop(loop->ev, &loop->before_sleep);
	ev_io_stop(loop->ev, &loop->readable);
	reactor_fini(&loop->control);
	ev_loop_destroy(loop->ev);
	*loop = (struct loop){ 0 };
}

static void on_loop_timeout(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)events;
	*(bool *)w->data = true;
	ev_break(ev, EVBREAK_ONE);
}

bool loop_run_until(struct loop *loop, const bool *flag, uint64_t timeout_ns)
{
	struct ev_timer timer;
	bool timed_out = false;

	ev_now_update(loop->ev);
	ev_timer_init(&timer, on_loop_timeout, (double)timeout_ns / NS_PER_SEC, 0.);
	timer.data = &timed_out;
	ev_timer_start(loop->ev, &timer);
	loop->until = flag;
	while (!*flag && !timed_out)
		ev_run(loop->ev, EVRUN_ONCE);
	loop->until = NULL;
	ev_timer_stop(loop->ev, &timer);
	return *flag;
}
