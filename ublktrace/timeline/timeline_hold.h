/*
 * Holds records back until no earlier one is to be expected: those of several CPUs come only nearly
 * sorted. Main thread.
 */
#ifndef UBLKTRACE_TIMELINE_TIMELINE_HOLD_H
#define UBLKTRACE_TIMELINE_TIMELINE_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ublktrace/events/event.h"

#define HOLD_NS 1000000000ull /* of trace time */
#define HOLD_NR_MAX 65536u    /* at most so many, whatever their age: 12 MiB */

struct held {
	uint64_t time_ns;
	uint64_t number; /* those of one time keep their order */
	struct event *event;
};

/* All zero is empty. */
struct hold {
	struct held *heap;
	size_t nr, room;
	struct event **spare;
	size_t spare_nr, spare_room;
	uint64_t number, newest_ns;
};

void hold_put(struct hold *h, const struct event *e);
/* The earliest one, if it is old enough or all of them are asked for. Returns whether there is one.
 */
bool hold_take(struct hold *h, bool all, struct event *ret_event);
void hold_free(struct hold *h);

#endif
