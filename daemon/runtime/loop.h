/*
 * The main thread's loop: libev, and inside it the control reactor, whose ring libev watches
 * through an eventfd. Main thread.
 */
#ifndef DAEMON_RUNTIME_LOOP_H
#define DAEMON_RUNTIME_LOOP_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "reactor/reactor.h"

struct loop {
	struct ev_loop *ev;
	struct reactor control;
	struct ev_io readable;
	struct ev_prepare before_sleep;
	struct ev_check after_sleep;
	struct ev_timer wakeup;
	const bool *until; /* loop_run_until: what it waits for */
};

/* Returns 0 or -errno of the control ring. */
int loop_init(struct loop *loop);
/*
 * Waits, for some seconds at most, for those who are leaving the control reactor
 * (reactor_leave_begin), while the data reactors and helpers that they need are there. Returns
 * whether all have left. Accepts a zeroed loop.
 */
bool loop_leave(struct loop *loop);
/* Accepts a zeroed loop. No op of the control reactor may be in flight. */
void loop_fini(struct loop *loop);

/* Runs until *flag is set or timeout_ns has passed; returns *flag. */
bool loop_run_until(struct loop *loop, const bool *flag, uint64_t timeout_ns);

#endif
