/*
 * CLOCK_MONOTONIC by the processor's counter: a reactor reads the clock twice a turn, and the vDSO
 * asks some 75 instructions for what a counter, a multiplication and an addition can tell. Used
 * only where the kernel itself keeps time by that counter (clocksource tsc), so that it runs
 * evenly.
 *
 * Each thread has its own view, set right by the real clock every TSC_CLOCK_WINDOW_NS: an error
 * lives no longer than that. On one thread the time never goes back; between threads it differs by
 * less than a microsecond, or, for such a window, by how long one of them was off its CPU.
 */
#ifndef REACTOR_TSC_CLOCK_H
#define REACTOR_TSC_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define TSC_CLOCK_WINDOW_NS 1000000ull

struct tsc_clock {
	uint64_t tsc, ns;	    /* when the real clock was read last */
	uint64_t ns_per_cycle_32;   /* times 2^32 */
	uint64_t window_cycles;	    /* 0: not measured yet, the real clock is read each time */
	uint64_t base_tsc, base_ns; /* from where on the rate is measured */
};

/* Whether the clock knows the time at counter value tsc without the real one, and what it is. */
static inline bool tsc_clock_knows(const struct tsc_clock *c, uint64_t tsc)
{
	return tsc - c->tsc < c->window_cycles;
}

static inline uint64_t tsc_clock_count(const struct tsc_clock *c, uint64_t tsc)
{
	return c->ns + ((tsc - c->tsc) * c->ns_per_cycle_32 >> 32);
}

/*
 * The part of ring_clock_ns that needs no counter to be tested: the time at counter value tsc.
 * real_ns is called when the real clock is needed: returns it, with *tsc the counter at that time
 * or after it. A counter of before would put this clock ahead of the real one, for as long as the
 * thread was off its CPU between the two readings.
 */
uint64_t tsc_clock_at(struct tsc_clock *c, uint64_t tsc, uint64_t (*real_ns)(uint64_t *tsc));

/* Whether this machine's kernel keeps time by the counter. Any thread; asks the kernel once. */
bool tsc_clock_usable(void);

#endif
