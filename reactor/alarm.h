/*
 * What wakes a reactor for its next timer. A time limit of io_uring_enter would do, and does for
 * short ones; but it makes the kernel set up, start and cancel a timer of its own each time that
 * the reactor sleeps, some 300 instructions, while the timers of a busy queue are seconds away. One
 * timeout in the ring for the next of them serves all sleeps until then. A timer that is armed
 * later for an earlier time gets the second timeout: the first stays, as its end is as harmless as
 * it is rare. Reactor thread only.
 */
#ifndef REACTOR_ALARM_H
#define REACTOR_ALARM_H

#include <liburing.h>

#include "reactor/op.h"

#define ALARM_TIMEOUT_NR 2u

struct alarm_timeout {
	struct op op;
	struct __kernel_timespec ts; /* the SQE points at it */
	uint64_t at_ns;		     /* when it goes off; UINT64_MAX: not set */
};

struct alarm {
	struct alarm_timeout timeouts[ALARM_TIMEOUT_NR];
	uint64_t at_ns; /* the first that goes off; UINT64_MAX: none is set */
	bool refused;	/* the kernel did not take one: not tried again */
};

/* Returns 0 or -errno (see op_init). */
int alarm_init(struct alarm *alarm, struct reactor *r);

/*
 * For the enter that comes next, which may sleep for sleep_ns (0: not at all, RING_NO_TIMEOUT: for
 * ever): the limit that it needs, with an alarm set where that is better.
 */
uint64_t alarm_limit_ns(struct alarm *alarm, uint64_t sleep_ns);

#endif
