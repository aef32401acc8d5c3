/*
 * All that the origin has too is forgotten (storage/cache_control.h). The queue's reactor.
 *
 * Happy path: slot by slot, all but dirty units is valid no more, and what fills bring that are
 * under way is not used -> a commit: the store's index has forgotten it -> slots that hold nothing
 * have no block any more, unless somebody uses them again.
 *
 * Failure mode: the index cannot be written: it ends so; in memory all is forgotten, what the store
 * says is true still.
 */
#include "filters/cache/cache.h"

#include <stdio.h>

#include "base/counter.h"
#include "base/errname.h"
#include "base/util.h"

/* Slots that are looked at in a turn. */
#define CACHE_DROP_SLOTS 4096u

void cache_drop_init(struct cache_device *d)
{
	d->control.phase = CACHE_DROP_MARK;
	d->control.slot_idx = 0;
}

static void cache_drop_forget(struct cache_device *d, struct cache_slot *slot)
{
	unsigned units = (unsigned)__builtin_popcountll(slot->valid & ~slot->dirty);

	counter_add(&d->control.job->dropped_bytes, (uint64_t)units * CACHE_UNIT_BYTES);
	slot->valid &= slot->dirty;
	slot->will = 0;
	if ((slot->named | slot->moving) & ~slot->valid)
		cache_page_touch(d->ix, slot);
}

static void cache_drop_free(struct cache_device *d, struct cache_slot *slot)
{
	/* Those that are being evicted stand in a list. */
	if (slot->valid || slot->dirty || slot->named || slot->moving || slot->owned ||
	    slot->pins || slot->is_evicting)
		return;
	cache_slot_drop(d->ix, slot);
}

/* Some of the slots. Whether those were the last ones. */
static bool cache_drop_each(struct cache_device *d,
			    void (*fn)(struct cache_device *d, struct cache_slot *slot))
{
	struct cache_control *c = &d->control;
	uint32_t end = MIN(c->slot_idx + CACHE_DROP_SLOTS, d->ix->header.slot_nr);

	for (; c->slot_idx < end; c->slot_idx++)
		if (d->ix->slot[c->slot_idx].is_used)
			fn(d, &d->ix->slot[c->slot_idx]);
	return end == d->ix->header.slot_nr;
}

static int cache_drop_mark(struct cache_device *d)
{
	struct cache_control *c = &d->control;

	if (!cache_drop_each(d, cache_drop_forget))
		return CACHE_CONTROL_YIELDS;
	c->phase = CACHE_DROP_COMMIT;
	c->commit_nr = d->commit.begun + 1;
	cache_commit_want(d);
	return CACHE_CONTROL_WAITS;
}

static int cache_drop_commit(struct cache_device *d)
{
	struct cache_control *c = &d->control;
	int result = d->commit.ended_result;

	if (d->commit.ended < c->commit_nr)
		return CACHE_CONTROL_WAITS;
	if (result < 0)
		snprintf(c->job->words, sizeof(c->job->words),
			 "the index cannot be written to the store: %s", errname(result));
	c->phase = CACHE_DROP_FREE;
	c->slot_idx = 0;
	return result < 0 ? result : CACHE_CONTROL_YIELDS;
}

static int cache_drop_rest(struct cache_device *d)
{
	return cache_drop_each(d, cache_drop_free) ? 0 : CACHE_CONTROL_YIELDS;
}

int cache_drop_step(struct cache_device *d)
{
	static int (*const step[])(struct cache_device * d) = {
		[CACHE_DROP_MARK] = cache_drop_mark,
		[CACHE_DROP_COMMIT] = cache_drop_commit,
		[CACHE_DROP_FREE] = cache_drop_rest,
	};

	return step[d->control.phase](d);
}
