/*
 * Which requests wait for which: of two on the same bytes, one of which modifies them, the later
 * one waits until the earlier one has ended. So none waits for ever. The queue's reactor; pure.
 */
#ifndef FILTERS_INTEGRITY_INTEGRITY_RANGE_H
#define FILTERS_INTEGRITY_INTEGRITY_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct integrity_range {
	struct list_node node; /* in all: in the order in which they came */
	uint64_t start_bytes, end_bytes;
	bool modifies;
	bool is_held;
};

struct integrity_ranges {
	struct list_node all;
	unsigned modifier_nr, held_nr;
};

void integrity_ranges_init(struct integrity_ranges *r);

/* Its bytes and modifies are set. False: it is held until integrity_range_next returns it. */
bool integrity_range_enter(struct integrity_ranges *r, struct integrity_range *range);

/* It has ended, or is not to begin. Others may go on now: ask integrity_range_next. */
void integrity_range_leave(struct integrity_ranges *r, struct integrity_range *range);

/* The first that is held and need not be any more: it is not, from here on. NULL: there is none. */
struct integrity_range *integrity_range_next(struct integrity_ranges *r);

#endif
