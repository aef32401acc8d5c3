/*
 * Timers of one reactor: an intrusive pairing heap, so that arming allocates nothing and knows no
 * limit. Used only on the reactor's thread. Callbacks run in the reactor's turn, never from arm.
 */
#ifndef REACTOR_TIMER_H
#define REACTOR_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct timer;
typedef void timer_fn(struct timer *timer);

struct timer {
	timer_fn *fn;
	uint64_t deadline_ns;	       /* ring_clock_ns() */
	struct timer *child, *sibling; /* heap: first child, next of the same parent */
	struct timer *prev;	       /* previous sibling, or the parent of a first child */
	bool armed;
};

struct timer_heap {
	struct timer *root;
	uint64_t next_ns;  /* deadline of the root; none: RING_NO_TIMEOUT */
	uint64_t floor_ns; /* nothing is armed before: end of the last run */
};

#define TIMER_HEAP_INIT                                                                            \
	{                                                                                          \
		.next_ns = UINT64_MAX                                                              \
	}

static inline void timer_init(struct timer *timer, timer_fn *fn)
{
	*timer = (struct timer){ .fn = fn };
}

/* Arms, or moves when armed already. */
void timer_heap_arm(struct timer_heap *heap, struct timer *timer, uint64_t deadline_ns);

/* Harmless when not armed. */
void timer_heap_cancel(struct timer_heap *heap, struct timer *timer);

/*
 * Runs every timer due at now_ns, the earliest first; returns how many. A callback may arm and
 * cancel any timer; what it arms runs in the next call at the earliest.
 */
unsigned timer_heap_run(struct timer_heap *heap, uint64_t now_ns);

/* Deadline of the next timer, or RING_NO_TIMEOUT. */
static inline uint64_t timer_heap_next_ns(const struct timer_heap *heap)
{
	return heap->next_ns;
}

#endif
