/*
 * A list of all requests that have come and not ended. Happy path: nothing modifies, or nothing
 * overlaps. It is as long as the queue is deep, and a READ does not look at it as long as no other
 * request modifies anything.
 */
#include "filters/integrity/integrity_range.h"

void integrity_ranges_init(struct integrity_ranges *r)
{
	list_init(&r->all);
	r->modifier_nr = r->held_nr = 0;
}

static bool ranges_collide(const struct integrity_range *a, const struct integrity_range *b)
{
	return (a->modifies || b->modifies) && a->start_bytes < b->end_bytes &&
	       b->start_bytes < a->end_bytes;
}

/* Whether one that came before it is in its way. */
static bool range_waits(const struct integrity_ranges *r, const struct integrity_range *range)
{
	for (const struct list_node *n = r->all.next; n != &r->all && n != &range->node;
	     n = n->next)
		if (ranges_collide(list_entry(n, struct integrity_range, node), range))
			return true;
	return false;
}

bool integrity_range_enter(struct integrity_ranges *r, struct integrity_range *range)
{
	range->is_held = (range->modifies || r->modifier_nr > 0) && range_waits(r, range);
	list_push_back(&r->all, &range->node);
	r->modifier_nr += range->modifies;
	r->held_nr += range->is_held;
	return !range->is_held;
}

void integrity_range_leave(struct integrity_ranges *r, struct integrity_range *range)
{
	list_remove(&range->node);
	r->modifier_nr -= range->modifies;
	r->held_nr -= range->is_held;
}

struct integrity_range *integrity_range_next(struct integrity_ranges *r)
{
	for (struct list_node *n = r->all.next; r->held_nr > 0 && n != &r->all; n = n->next) {
		struct integrity_range *range = list_entry(n, struct integrity_range, node);

		if (!range->is_held || range_waits(r, range))
			continue;
		range->is_held = false;
		r->held_nr--;
		return range;
	}
	return NULL;
}
