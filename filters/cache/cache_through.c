/*
 * Changes that go to the origin: writes of readthrough and writethrough, discards and zeroes of
 * all. The queue's reactor.
 *
 * Happy path of a write, block by block: the store's index has forgotten the units (else it waits
 * for a commit) -> they are not valid from now on -> the bytes go to the origin and, for units that
 * are kept, to the slot at the same time -> both have them: the units are valid. Kept are whole
 * units in writethrough, and what was valid before in both modes.
 *
 * Failure modes: the origin fails: so does the write, and the units stay invalid. The store fails:
 * nobody's error. Two changes that meet: what they both touch is not kept.
 */
#include "filters/cache/cache.h"

#include <errno.h>

#include "base/assert.h"
#include "base/util.h"

/* ---- who changes what ---- */

static struct list_node *cache_change_bucket(struct cache_device *d, uint64_t block)
{
	return &d->change[(block * 0x9e3779b97f4a7c15ull >> 32) % CACHE_CHANGE_BUCKETS];
}

/* Units of a block that a change touches. */
static uint64_t cache_change_units(const struct cache_device *d, const struct cache_io *s,
				   uint64_t block)
{
	uint64_t start = MAX(s->change_first, block << d->block_shift);
	uint64_t end = MIN(s->change_end, (block + 1) << d->block_shift);

	return start < end ? cache_units(start & (d->block_bytes - 1), end - start) : 0;
}

static uint64_t cache_list_changing(const struct cache_device *d, const struct list_node *list,
				    uint64_t block)
{
	uint64_t units = 0;

	list_for_each (node, list)
		units |= cache_change_units(d, list_entry(node, struct cache_io, change), block);
	return units;
}

uint64_t cache_changing(const struct cache_device *d, uint64_t block)
{
	const struct list_node *bucket =
		cache_change_bucket((struct cache_device *)(uintptr_t)d, block);

	return cache_list_changing(d, bucket, block) | cache_list_changing(d, &d->ranges, block);
}

static void cache_change_begin(struct cache_io *s, struct list_node *list, uint32_t bytes)
{
	s->now_bytes = bytes;
	s->change_first = cache_now(s);
	s->change_end = s->change_first + bytes;
	list_push_back(list, &s->change);
}

static void cache_change_end(struct cache_io *s)
{
	struct cache_device *d = s->d;

	list_remove(&s->change);
	d->wrote_at = d->flush_begun;
	cache_wake(d, &d->block_waiters);
}

/* ---- writes ---- */

/* Units of the block that a write covers as a whole; the last one of a device may be short. */
static uint64_t cache_whole_units(const struct cache_device *d, uint64_t start, uint64_t bytes)
{
	uint64_t within = start & (d->block_bytes - 1);
	uint64_t first = round_up(within, CACHE_UNIT_BYTES), end = within + bytes;

	if (start + bytes < d->origin_bytes)
		end = round_down(end, CACHE_UNIT_BYTES);
	return first < end ? cache_units(first, end - first) : 0;
}

/* The first ones that follow each other. */
static uint64_t cache_first_run(uint64_t units)
{
	unsigned first;

	if (units == 0)
		return 0;
	first = (unsigned)__builtin_ctzll(units);
	return cache_units((uint64_t)first * CACHE_UNIT_BYTES,
			   (uint64_t)cache_units_run(units, first) * CACHE_UNIT_BYTES);
}

/* What of a write is kept in the slot. */
static uint64_t cache_kept_units(const struct cache_io *s, const struct cache_slot *slot,
				 uint32_t bytes)
{
	const struct cache_device *d = s->d;
	uint64_t now = cache_now(s),
		 units = cache_units(now & (d->block_bytes - 1), bytes) & slot->valid;

	if (slot->is_evicting || d->keeps_nothing)
		return 0;
	if (d->mode == CACHE_WRITETHROUGH)
		units |= cache_whole_units(d, now, bytes);
	return cache_first_run(units & ~slot->owned & ~cache_changing(d, slot->block));
}

static void cache_through_stored(struct cache_io *s)
{
	struct cache_device *d = s->d;
	struct cache_slot *slot = s->slot;
	uint64_t good = s->owns & slot->will;

	slot->owned &= ~s->owns;
	slot->will &= ~s->owns;
	slot->pins--;
	slot->is_fresh = 1;
	slot->flushes = MAX(slot->flushes, d->flush_begun);
	if (s->answer[CACHE_ORIGIN] == 0 && s->answer[CACHE_STORE] == 0 && !d->is_off) {
		slot->valid |= good;
		cache_commit_later(d, slot);
	}
	if (s->answer[CACHE_STORE] < 0 && !s->is_cancelled)
		cache_store_failed(d, "a write cannot be kept in the store",
				   s->answer[CACHE_STORE]);
}

static void cache_through_ended(struct cache_io *s)
{
	if (s->slot)
		cache_through_stored(s);
	cache_change_end(s);
	cache_step_ended(s, s->answer[CACHE_ORIGIN]);
}

/* The part of the write that lies in the units that it owns. */
static void cache_store_piece(struct cache_io *s, uint64_t units)
{
	struct cache_device *d = s->d;
	uint64_t block_at = s->slot->block << d->block_shift;
	unsigned first = (unsigned)__builtin_ctzll(units);
	uint64_t start = block_at + (uint64_t)first * CACHE_UNIT_BYTES;
	uint64_t end = start + (uint64_t)cache_units_run(units, first) * CACHE_UNIT_BYTES;

	start = MAX(start, s->change_first);
	end = MIN(end, s->change_end);
	cache_piece(s, CACHE_STORE, (uint32_t)(start - s->change_first), (uint32_t)(end - start),
		    cache_slot_at(d->ix, s->slot) + (start - block_at));
}

/*
 * What the store's index says of these units is, or will be, taken back; and what it does not say
 * yet, the commit that is waited for does not say either.
 */
static bool cache_is_named(struct cache_device *d, struct cache_slot *slot, uint64_t units)
{
	slot->ban |= units;
	if (!((slot->named | slot->moving) & units))
		return false;
	cache_page_touch(d->ix, slot);
	return true;
}

static bool cache_through_submit(struct cache_io *s, struct cache_slot *slot, uint64_t units,
				 uint32_t bytes)
{
	struct cache_device *d = s->d;
	uint64_t now = cache_now(s), kept = slot ? cache_kept_units(s, slot, bytes) : 0;

	s->slot = kept ? slot : NULL;
	s->owns = kept;
	s->answer[CACHE_STORE] = 0;
	if (slot) {
		slot->valid &= ~units;
		slot->will = (slot->will & ~units) | kept;
		slot->owned |= kept;
		slot->pins += kept != 0;
	}
	cache_change_begin(s, cache_change_bucket(d, now >> d->block_shift), bytes);
	cache_piece(s, CACHE_ORIGIN, 0, bytes, now);
	if (kept)
		cache_store_piece(s, kept);
	return cache_pieces_end(s, CACHE_PASSING, cache_through_ended);
}

bool cache_through_step(struct cache_io *s, uint32_t left)
{
	struct cache_device *d = s->d;
	uint64_t now = cache_now(s), block = now >> d->block_shift;
	uint64_t within = now & (d->block_bytes - 1);
	uint32_t bytes = (uint32_t)MIN((uint64_t)left, d->block_bytes - within);
	uint64_t units = cache_units(within, bytes);
	struct cache_slot *slot;

	/* The store is being told that it counts no more. */
	if (d->is_off && !d->is_wiped)
		return cache_commit_wait(s);
	slot = cache_find(d, block);
	if (slot && cache_is_named(d, slot, units))
		return cache_commit_wait(s);
	if (!slot && d->mode == CACHE_WRITETHROUGH && cache_whole_units(d, now, bytes))
		slot = cache_slot_new(d, block);
	if (cache_pass_waits(s))
		return true;
	return cache_through_submit(s, slot, units, bytes);
}

/* ---- DISCARD and WRITE_ZEROES ---- */

/* Calls fn for each slot in the range; returns whether one of the calls did. */
static bool cache_range_each(struct cache_io *s,
			     bool (*fn)(struct cache_device *d, struct cache_slot *slot,
					uint64_t units))
{
	struct cache_device *d = s->d;
	uint64_t first = s->change_first >> d->block_shift;
	uint64_t end = (s->change_end - 1) / d->block_bytes + 1;
	bool any = false;

	if (d->is_off)
		return false;
	if (end - first > d->ix->header.slot_nr) {
		for (uint32_t i = 0; i < d->ix->header.slot_nr; i++) {
			struct cache_slot *slot = &d->ix->slot[i];

			if (slot->is_used && slot->block >= first && slot->block < end)
				any |= fn(d, slot, cache_change_units(d, s, slot->block));
		}
		return any;
	}
	for (uint64_t block = first; block < end; block++) {
		struct cache_slot *slot = cache_slot_find(d->ix, block);

		if (slot)
			any |= fn(d, slot, cache_change_units(d, s, block));
	}
	return any;
}

static bool cache_range_invalidate(struct cache_device *d, struct cache_slot *slot, uint64_t units)
{
	(void)d;
	slot->valid &= ~units;
	slot->will &= ~units;
	return false;
}

/* Dirty bytes go to the origin first: what was flushed must be somewhere at each moment. */
static bool cache_range_is_dirty(struct cache_device *d, struct cache_slot *slot, uint64_t units)
{
	(void)d;
	(void)units;
	return slot->dirty || slot->is_cleaning;
}

/* Of writes that end in the slot. */
static bool cache_range_is_owned(struct cache_device *d, struct cache_slot *slot, uint64_t units)
{
	(void)d;
	return slot->owned & units;
}

static void cache_range_ended(struct cache_io *s)
{
	cache_change_end(s);
	cache_step_ended(s, s->answer[CACHE_ORIGIN]);
}

bool cache_range_step(struct cache_io *s, uint32_t left)
{
	struct cache_device *d = s->d;

	if (d->is_off && !d->is_wiped)
		return cache_commit_wait(s);
	s->change_first = cache_now(s);
	s->change_end = s->change_first + left;
	if (d->ix->dirty_nr > 0 && cache_range_each(s, cache_range_is_dirty)) {
		d->clean_all = true;
		cache_clean_kick(d);
		return cache_wait_for(s, &d->dirty_waiters, CACHE_WAITS_DIRTY);
	}
	if (d->mode == CACHE_WRITEBACK && cache_range_each(s, cache_range_is_owned))
		return cache_wait_for(s, &d->block_waiters, CACHE_WAITS_FILL);
	if (cache_range_each(s, cache_is_named))
		return cache_commit_wait(s);
	cache_range_each(s, cache_range_invalidate);
	cache_change_begin(s, &d->ranges, left);
	cache_piece(s, CACHE_ORIGIN, 0, left, s->change_first);
	return cache_pieces_end(s, CACHE_PASSING, cache_range_ended);
}
