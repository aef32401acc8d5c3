/*
 * A range is fetched ahead (storage/cache_control.h). The queue's reactor.
 *
 * Happy path: from its beginning to its end, unit by unit: what is here, or on its way, is passed
 * over; of the rest few fills are under way at a time, which nobody waits for. The end of each
 * begins the next.
 *
 * No block is given up for it: it leaves as many slots unused as make a miss give up none.
 *
 * Failure modes: the origin or the store fails: it ends so. A block stays in the hands of others
 * for a while: it is passed over.
 */
#include "filters/cache/cache.h"

#include <stdio.h>

#include "base/counter.h"
#include "base/errname.h"
#include "base/util.h"

/* Blocks that are looked at in a turn. */
#define CACHE_WARM_LOOKS 1024u
/* So long it waits for a block that others are changing. */
#define CACHE_WARM_BUSY_NS (100 * NS_PER_MS)

/* The range, rounded to units. */
void cache_warm_init(struct cache_device *d)
{
	struct cache_control *c = &d->control;
	struct backend_cache_job *job = c->job;
	uint64_t end = job->length_bytes ? job->offset_bytes + job->length_bytes : d->origin_bytes;

	c->next = round_down(job->offset_bytes, CACHE_UNIT_BYTES);
	c->end = MIN(round_up(end, CACHE_UNIT_BYTES), d->origin_bytes);
	c->under_way = 0;
	c->busy_ns = 0;
	job->total_bytes = c->end - c->next;
}

/* Bytes of so many units from here on, which may be the last ones of the origin. */
static uint64_t cache_warm_bytes(const struct cache_device *d, unsigned units)
{
	return MIN((uint64_t)units * CACHE_UNIT_BYTES, d->origin_bytes - d->control.next);
}

/* counter: of the job; NULL: their end counts them. */
static void cache_warm_advance(struct cache_device *d, unsigned units, uint64_t *counter)
{
	uint64_t bytes = cache_warm_bytes(d, units);

	if (counter)
		counter_add(counter, bytes);
	d->control.next += bytes;
	d->control.busy_ns = 0;
}

static bool cache_warm_may_fill(const struct cache_device *d)
{
	unsigned all = d->q->nr[CACHE_OWN_FILL], own = d->control.under_way;

	return all + CACHE_FILLS_KEPT < CACHE_FILLS_NR && own < (all > own ? 1 : CACHE_WARM_NR);
}

/* Whether it has waited long enough. */
static bool cache_warm_gives_up_on(struct cache_device *d)
{
	uint64_t now_ns = d->q->queue->reactor->now_ns;

	if (d->control.busy_ns == 0)
		d->control.busy_ns = now_ns;
	return now_ns - d->control.busy_ns > CACHE_WARM_BUSY_NS;
}

static void cache_warm_fill(struct cache_device *d, struct cache_slot *slot, uint64_t units)
{
	struct cache_own *own = cache_fill_begin(d->q, slot, units, NULL);

	own->is_warm = true;
	slot->was_used = 1;
	d->control.under_way++;
	cache_warm_advance(d, (unsigned)__builtin_popcountll(units), NULL);
}

/* What is missing of a block from this unit on; slot NULL: it has none. False: not now. */
static bool cache_warm_missing(struct cache_device *d, struct cache_slot *slot, unsigned from,
			       unsigned to)
{
	struct backend_cache_job *job = d->control.job;
	uint64_t block = d->control.next >> d->block_shift;

	if (!cache_warm_may_fill(d))
		return false;
	if (cache_changing(d, block) || (slot && slot->is_evicting)) {
		if (!cache_warm_gives_up_on(d))
			return false;
		cache_warm_advance(d, to - from, &job->passed_bytes);
		return true;
	}
	if (!slot && d->ix->unused_nr > 2 * cache_evict_mark(d))
		slot = cache_slot_new(d, block);
	if (slot)
		cache_warm_fill(d, slot, cache_fill_units(d, slot, from, to));
	else
		job->is_full = true;
	return true;
}

/* The next units that one thing can be said of. False: not now. */
static bool cache_warm_some(struct cache_device *d)
{
	struct cache_control *c = &d->control;
	uint64_t block = c->next >> d->block_shift, at = block << d->block_shift;
	unsigned from = (unsigned)((c->next - at) / CACHE_UNIT_BYTES), to, run;
	struct cache_slot *slot = cache_slot_find(d->ix, block);
	uint64_t here = slot ? slot->valid | slot->owned : 0;

	to = (unsigned)MIN((c->end - at + CACHE_UNIT_BYTES - 1) / CACHE_UNIT_BYTES,
			   (uint64_t)cache_block_units(d, block));
	if (!(here >> from & 1))
		return cache_warm_missing(d, slot, from, to);
	run = MIN(cache_units_run(here, from), to - from);
	cache_warm_advance(d, run, &c->job->present_bytes);
	return true;
}

int cache_warm_step(struct cache_device *d)
{
	struct cache_control *c = &d->control;

	for (unsigned i = 0; c->next < c->end && !c->job->is_full && c->result == 0; i++) {
		if (i == CACHE_WARM_LOOKS)
			return CACHE_CONTROL_YIELDS;
		if (!cache_warm_some(d))
			return CACHE_CONTROL_WAITS;
	}
	return c->under_way > 0 ? CACHE_CONTROL_WAITS : c->result;
}

void cache_warm_filled(struct cache_device *d, const struct cache_own *own, uint64_t kept,
		       int result)
{
	struct cache_control *c = &d->control;
	uint64_t bytes = MIN((uint64_t)__builtin_popcountll(kept) * CACHE_UNIT_BYTES, own->bytes);

	c->under_way--;
	if (result < 0 && c->result == 0) {
		c->result = result;
		snprintf(c->job->words, sizeof(c->job->words),
			 "bytes from %llu on cannot be read from the origin, or not be written to "
			 "the store: %s",
			 (unsigned long long)own->offset, errname(result));
	} else if (result == 0) {
		counter_add(&c->job->fetched_bytes, bytes);
		counter_add(&c->job->passed_bytes, own->bytes - bytes);
	}
	cache_control_go_on(d);
}
