/*
 * Writes of writeback: they end in the slot, and come to the origin later (cache_clean.c). The
 * queue's reactor.
 *
 * Happy path, block by block: the block has a slot -> units that are written in part are fetched
 * first -> units that the store's index calls clean are called dirty there first -> a piece for the
 * store -> dirty. A FLUSH waits for a commit, which names all that is dirty, and for the origin
 * when something went there.
 *
 * Failure modes: no slot, or it is aside: the origin does it. Too much is dirty: the write waits.
 * The store fails: so does the write, or the FLUSH.
 */
#include "filters/cache/cache.h"

#include <errno.h>

#include "base/assert.h"
#include "base/util.h"

/* Bytes that the write does not bring, and the slot does not have. */
static uint64_t cache_missing_units(const struct cache_io *s, const struct cache_slot *slot,
				    uint64_t units, uint32_t bytes)
{
	uint64_t first = cache_now(s), end = first + bytes, partial = 0;
	unsigned low = (unsigned)__builtin_ctzll(units), high = log2_floor(units);

	if (first % CACHE_UNIT_BYTES != 0)
		partial |= 1ull << low;
	if (end % CACHE_UNIT_BYTES != 0 && end < s->d->origin_bytes)
		partial |= 1ull << high;
	return partial & ~slot->valid;
}

/* A step: waits until one of them is there. */
static bool cache_back_fetch(struct cache_io *s, struct cache_slot *slot, uint64_t missing)
{
	struct cache_device *d = s->d;
	uint64_t one = missing & -missing;

	if ((slot->owned & one) || cache_changing(d, slot->block) ||
	    !cache_fill_begin(cache_queue_of(s), slot, one, s))
		return cache_wait_for(s, &d->block_waiters, CACHE_WAITS_FILL);
	cache_set_state(s, CACHE_FILLING);
	return true;
}

static void cache_back_ended(struct cache_io *s)
{
	struct cache_device *d = s->d;
	struct cache_slot *slot = s->slot;

	slot->owned &= ~s->owns;
	slot->pins--;
	d->back_nr--;
	if (s->answer[CACHE_STORE] == 0) {
		slot->valid |= s->owns;
		cache_slot_set_dirty(d->ix, slot, slot->dirty | s->owns);
	}
	cache_commit_later(d, slot);
	cache_clean_kick(d);
	cache_wake(d, &d->block_waiters);
	cache_step_ended(s, s->answer[CACHE_STORE]);
}

static bool cache_back_submit(struct cache_io *s, struct cache_slot *slot, uint64_t units,
			      uint32_t bytes)
{
	struct cache_device *d = s->d;
	uint64_t within = cache_now(s) & (d->block_bytes - 1);

	s->slot = slot;
	s->owns = units;
	s->now_bytes = bytes;
	slot->owned |= units;
	slot->pins++;
	d->back_nr++;
	slot->is_fresh = slot->was_used = 1;
	slot->cleaning &= ~units;
	/* A discard had asked for it; the next FLUSH names what is written now. */
	slot->ban &= ~units;
	/* From the first byte on; what is not valid yet is not anybody's. */
	cache_slot_set_dirty(d->ix, slot, slot->dirty | (units & slot->valid));
	cache_piece(s, CACHE_STORE, 0, bytes, cache_slot_at(d->ix, slot) + within);
	return cache_pieces_end(s, CACHE_STORING, cache_back_ended);
}

/* What the store's index calls clean, or is about to call something else. */
static bool cache_back_is_clean(struct cache_device *d, struct cache_slot *slot, uint64_t units)
{
	uint64_t clean = slot->named & units & ~slot->named_dirty;

	if (clean) {
		cache_slot_set_dirty(d->ix, slot, slot->dirty | (clean & slot->valid));
		/* Else they may be clean again whenever the store has said so of the others. */
		slot->cleaning &= ~units;
		cache_page_touch(d->ix, slot);
	}
	return clean || (slot->moving & units);
}

bool cache_back_step(struct cache_io *s, uint32_t left)
{
	struct cache_device *d = s->d;
	uint64_t now = cache_now(s), within = now & (d->block_bytes - 1), units, missing;
	uint32_t bytes = (uint32_t)MIN((uint64_t)left, d->block_bytes - within);
	struct cache_slot *slot = cache_find(d, now >> d->block_shift);

	units = cache_units(within, bytes);
	if (d->is_aside)
		return cache_aside_write_step(s, slot, units, left);
	if (!slot && d->ix->dirty_nr < d->dirty_max)
		slot = cache_slot_new(d, now >> d->block_shift);
	if (!slot)
		return cache_through_step(s, left);
	slot->is_evicting = 0;
	missing = cache_missing_units(s, slot, units, bytes);
	if (missing)
		return cache_back_fetch(s, slot, missing);
	if (slot->owned & units)
		return cache_wait_for(s, &d->block_waiters, CACHE_WAITS_FILL);
	if (!slot->dirty && d->ix->dirty_nr >= d->dirty_max) {
		cache_clean_kick(d);
		return cache_wait_for(s, &d->dirty_waiters, CACHE_WAITS_DIRTY);
	}
	if (cache_back_is_clean(d, slot, units))
		return cache_commit_wait(s);
	return cache_back_submit(s, slot, units, bytes);
}

/* ---- FLUSH ---- */

/*
 * FUA: what of it went to the origin may have been lost before the FLUSH that succeeds, by one that
 * somebody else has been told of. A FLUSH is judged by storage/io.c.
 */
static int cache_back_fua_judge(const struct cache_io *s)
{
	return s->io->op == BACKEND_FLUSH || s->losses == backend_losses(s->d->device->child)
		       ? 0
		       : -EIO;
}

static void cache_back_origin_flushed(struct cache_io *s)
{
	struct cache_device *d = s->d;
	int result = s->answer[CACHE_ORIGIN];

	cache_look_for_losses(d);
	if (result == 0)
		d->flushed_nr = MAX(d->flushed_nr, s->flush_nr);
	cache_step_ended(s, result ? result : cache_back_fua_judge(s));
}

static bool cache_back_flush_origin(struct cache_io *s)
{
	struct cache_device *d = s->d;
	struct backend_io *child = &s->io->child[CACHE_ORIGIN];

	s->is_flushed = true;
	s->now_bytes = 0;
	/* Another FLUSH that is under way may fail: it does not count before its end. */
	if (d->flushed_nr > d->wrote_at) {
		cache_step_ended(s, cache_back_fua_judge(s));
		return false;
	}
	s->flush_nr = ++d->flush_begun;
	backend_piece(child, s->io, 0, 0, 0);
	child->op = BACKEND_FLUSH;
	child->flags = 0;
	s->answer[CACHE_ORIGIN] = 0;
	if (backend_child_submit(child) == BACKEND_QUEUED)
		s->pieces++;
	else
		s->answer[CACHE_ORIGIN] = child->result;
	return cache_pieces_end(s, CACHE_FLUSHES, cache_back_origin_flushed);
}

bool cache_back_flush_step(struct cache_io *s)
{
	struct cache_commit *c = &s->d->commit;

	if (s->commit_nr == 0 || c->ended < s->commit_nr) {
		c->is_forced |= s->commit_nr == 0 || c->begun < s->commit_nr;
		return cache_commit_wait(s);
	}
	s->commit_nr = 0;
	if (c->ended_result < 0) {
		s->is_flushed = true;
		s->result = c->ended_result;
		return false;
	}
	return cache_back_flush_origin(s);
}
