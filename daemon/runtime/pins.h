/*
 * Keeps reactors on their CPUs while CPUs go and come back. A reactor whose CPU cannot be used is
 * "away": it runs on any other CPU that the daemon may use, and is pinned again when its own is
 * back. Main thread.
 */
#ifndef DAEMON_RUNTIME_PINS_H
#define DAEMON_RUNTIME_PINS_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/runtime/reactors.h"

struct pins {
	struct ev_loop *ev;
	struct reactors *reactors;
	struct ev_prepare before_sleep;
	struct ev_timer timer;
	uint64_t looked_ns;
	double idle_seconds; /* of the timer while none is away; 0: it stands still */
};

/*
 * Looks whenever the main thread is awake, once a second at most; each second while one is away.
 * wakes: something wakes the main thread when a reactor has work (the watchdog). Otherwise it wakes
 * itself now and then.
 */
void pins_start(struct pins *p, struct ev_loop *ev, struct reactors *reactors, bool wakes);
/* Accepts a zeroed struct. */
void pins_stop(struct pins *p);

/* One look at all of them; returns whether one is away. Sets reactors->away. */
bool pins_look(struct reactors *reactors);

#endif
