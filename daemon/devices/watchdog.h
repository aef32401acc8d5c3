/*
 * Watches the reactors without waking them: one that has work and does not turn for a while is told
 * once, with what it does, and once more when it turns again. While all turn, the service manager
 * gets its sign of life. Main thread.
 */
#ifndef DAEMON_DEVICES_WATCHDOG_H
#define DAEMON_DEVICES_WATCHDOG_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/devices/device_set.h"
#include "daemon/runtime/reactors.h"

struct watchdog;
struct watched;

/* What is watched, and told; lives longer than the watchdog. */
struct watchdog_params {
	struct ev_loop *ev;
	const struct device_set *device_set;
	const struct reactors *reactors;
	struct reactor *home; /* the control reactor */
	uint64_t limit_ns;    /* how long a reactor may take; 0: nobody looks at them */
};

struct watchdog {
	struct watchdog_params params;
	struct watched *watched; /* one per reactor */
	struct ev_timer look;
	struct ev_timer alive; /* when the service manager wants to hear of us */
	struct ev_prepare before_sleep;
	unsigned quiet_nr; /* looks in a row in which no reactor had moved or had work */
	bool dozes;	   /* look is stopped: a reactor that wakes, or this thread, starts it */
	unsigned stuck_nr; /* reactors that are stuck now */
};

/* Returns 0 or -ENOMEM. */
int watchdog_start(struct watchdog *w, const struct watchdog_params *params);

/* After reactors_stop: a reactor may hold a mail of ours until then. Accepts a zeroed struct. */
void watchdog_stop(struct watchdog *w);

/*
 * For how long this reactor has been stuck, 0: it is not; and how often that has happened. Accepts
 * a zeroed struct.
 */
uint64_t watchdog_stuck_ns(const struct watchdog *w, unsigned idx);
uint64_t watchdog_stuck_count(const struct watchdog *w, unsigned idx);

#endif
