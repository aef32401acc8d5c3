/*
 * Reads, and how blocks come into the store and leave it. The queue's reactor.
 *
 * Happy path: bytes that are valid are a piece for the store; others are read from the origin into
 * a buffer, put into the request, which goes on, and written to the store behind its back. Who
 * wants units that somebody is fetching waits for that. A read that goes on where another one has
 * ended makes the fill as long as the block, and has the following blocks fetched.
 *
 * A block is given up by the clock: one that was read since the hand passed stays.
 *
 * Failure modes: the store cannot read, or has perhaps lost what was being read: the origin does,
 * but for dirty bytes: an I/O error. No slot, or a change of the block under way: the origin does
 * it and nothing is kept. No buffer: the read waits for one.
 */
#include "filters/cache/cache.h"

#include <errno.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/util.h"

/* ---- slots ---- */

void cache_evict_reap(struct cache_device *d)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < d->evicting_nr; i++) {
		struct cache_slot *slot = &d->ix->slot[d->evicting[i]];

		if (!slot->is_evicting)
			continue;
		if (slot->named || slot->moving || slot->pins || slot->owned) {
			d->evicting[nr++] = d->evicting[i];
			continue;
		}
		slot->is_evicting = 0;
		counter_add(&d->stats.evictions, 1);
		cache_slot_drop(d->ix, slot);
	}
	d->evicting_nr = nr;
}

static void cache_evict_one(struct cache_device *d, struct cache_slot *slot)
{
	slot->is_evicting = 1;
	d->evicting[d->evicting_nr++] = cache_slot_idx(d->ix, slot);
	if (!slot->named && !slot->moving)
		return;
	cache_page_touch(d->ix, slot);
	cache_commit_want(d);
}

uint32_t cache_evict_mark(const struct cache_device *d)
{
	uint32_t nr = d->ix->header.slot_nr / 32;

	return MIN(MAX(nr, 2u), CACHE_EVICT_NR / 2);
}

void cache_evict(struct cache_device *d)
{
	uint32_t wanted = cache_evict_mark(d);

	if (d->ix->unused_nr + d->evicting_nr >= wanted)
		return;
	while (d->ix->unused_nr + d->evicting_nr < 2 * wanted && d->evicting_nr < CACHE_EVICT_NR) {
		struct cache_slot *slot = cache_index_victim(d->ix);

		if (!slot)
			break;
		cache_evict_one(d, slot);
	}
	cache_evict_reap(d);
}

struct cache_slot *cache_slot_new(struct cache_device *d, uint64_t block)
{
	if (d->is_off || d->keeps_nothing)
		return NULL;
	cache_evict(d);
	return cache_slot_take(d->ix, block);
}

/* ---- fills ---- */

static void cache_fill_end(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;
	struct cache_slot *slot = own->slot;
	uint64_t kept = own->units & slot->valid;

	slot->owned &= ~own->units;
	slot->will &= ~own->units;
	slot->pins--;
	cache_own_release(q, own);
	cache_wake(q->d, &q->d->block_waiters);
	if (own->is_warm)
		cache_warm_filled(q->d, own, kept, result);
}

static void cache_fill_written(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;
	struct cache_device *d = q->d;
	struct cache_slot *slot = own->slot;

	if (result < 0) {
		cache_store_failed(d, "a block cannot be written to the store", result);
	} else if (!d->is_off) {
		slot->valid |= own->units & slot->will;
		slot->flushes =
			MAX(slot->flushes, d->is_doubtful ? CACHE_FLUSHES_NEVER : d->wrote_at);
		counter_add(&d->stats.filled_bytes, own->bytes);
		cache_commit_later(d, slot);
	}
	cache_fill_end(own, result);
}

/*
 * Who waits gets his bytes, or, when more than those were asked for, tries it with them alone. A
 * write into a part of a unit goes on when the store has the rest. True: s goes on now.
 */
static bool cache_fill_answer(struct cache_own *own, struct cache_io *s, int result)
{
	const uint8_t *buf = own->own->buf;

	if (s->io->op != BACKEND_READ) {
		s->now_bytes = 0;
		cache_step_ended(s, result);
		return result < 0 || !cache_wait_for(s, &s->d->block_waiters, CACHE_WAITS_FILL);
	}
	if (result < 0 && own->bytes > s->now_bytes) {
		s->avoids_store = true;
		return true;
	}
	if (result == 0)
		result = backend_data_put(s->io, s->at_bytes, buf + (cache_now(s) - own->offset),
					  s->now_bytes);
	cache_step_ended(s, result);
	return true;
}

static void cache_fill_read(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;
	struct cache_io *s = own->s;
	uint64_t within = own->offset & (q->d->block_bytes - 1);
	bool goes_on = false;

	own->s = NULL;
	if (s) {
		s->fill = NULL;
		goes_on = cache_fill_answer(own, s, result);
	}
	if (result < 0 || q->d->is_off || (own->units & own->slot->will) == 0)
		cache_fill_end(own, result);
	else
		cache_own_submit(own, CACHE_STORE, BACKEND_WRITE,
				 cache_slot_at(q->d->ix, own->slot) + within, NULL, own->bytes,
				 cache_fill_written);
	if (goes_on)
		cache_io_go_on(s);
}

struct cache_own *cache_fill_begin(struct cache_queue *q, struct cache_slot *slot, uint64_t units,
				   struct cache_io *s)
{
	unsigned first = (unsigned)__builtin_ctzll(units);
	struct cache_device *d = q->d;
	struct cache_own *own;
	uint64_t end;

	if (slot->is_evicting ||
	    q->nr[CACHE_OWN_FILL] + (s ? 0 : CACHE_FILLS_KEPT) >= CACHE_FILLS_NR)
		return NULL;
	own = cache_own_take(q, CACHE_OWN_FILL);
	own->slot = slot;
	own->units = units;
	own->offset = (slot->block << d->block_shift) + (uint64_t)first * CACHE_UNIT_BYTES;
	end = own->offset + (uint64_t)cache_units_run(units, first) * CACHE_UNIT_BYTES;
	own->bytes = (uint32_t)(MIN(end, d->origin_bytes) - own->offset);
	own->s = s;
	if (s)
		s->fill = own;
	ASSERT(!(slot->owned & units) && !(slot->valid & units));
	slot->owned |= units;
	slot->will |= units;
	slot->pins++;
	cache_own_submit(own, CACHE_ORIGIN, BACKEND_READ, own->offset, NULL, own->bytes,
			 cache_fill_read);
	return own;
}

uint64_t cache_fill_units(const struct cache_device *d, const struct cache_slot *slot,
			  unsigned from, unsigned to)
{
	uint64_t all = cache_units_all(d->block_bytes);
	unsigned run = cache_units_run(all & ~slot->valid & ~slot->owned, from);

	run = MIN(run, to - from);
	run = MIN(run, d->chunk_bytes / CACHE_UNIT_BYTES);
	return cache_units((uint64_t)from * CACHE_UNIT_BYTES, (uint64_t)run * CACHE_UNIT_BYTES);
}

/* ---- what will be read next ---- */

unsigned cache_block_units(const struct cache_device *d, uint64_t block)
{
	uint64_t at = block << d->block_shift;
	uint64_t bytes = MIN((uint64_t)d->block_bytes, d->origin_bytes - at);

	return (unsigned)((bytes + CACHE_UNIT_BYTES - 1) / CACHE_UNIT_BYTES);
}

/* True: the block is on its way, or somebody else's affair. */
static bool cache_prefetch_one(struct cache_queue *q, uint64_t block, bool is_first)
{
	struct cache_device *d = q->d;
	struct cache_slot *slot;

	if (cache_changing(d, block))
		return true;
	if (q->nr[CACHE_OWN_FILL] + CACHE_FILLS_KEPT >= CACHE_FILLS_NR)
		return false;
	slot = cache_slot_new(d, block);
	if (!slot)
		return false;
	slot->is_marker = is_first;
	counter_add(&d->stats.prefetches, 1);
	return cache_fill_begin(q, slot, cache_fill_units(d, slot, 0, cache_block_units(d, block)),
				NULL) != NULL;
}

static void cache_prefetch(struct cache_queue *q, uint64_t block)
{
	struct cache_device *d = q->d;
	const struct cache_config *config = d->device->config;
	uint64_t end = (d->origin_bytes + d->block_bytes - 1) >> d->block_shift;
	unsigned nr = 0;

	end = MIN(end, block + 2 * config->prefetch);
	for (; block < end && nr < config->prefetch; block++) {
		if (cache_slot_find(d->ix, block))
			continue;
		if (!cache_prefetch_one(q, block, nr == 0))
			break;
		nr++;
	}
	if (nr > 0)
		q->stream[q->stream_hand++ % CACHE_STREAMS_NR].next = block << d->block_shift;
}

/* Whether a read at this offset goes on where one has ended; it ends at end. */
static bool cache_stream_goes_on(struct cache_queue *q, uint64_t offset, uint64_t end)
{
	for (unsigned i = 0; i < CACHE_STREAMS_NR; i++)
		if (q->stream[i].next == offset && offset > 0) {
			q->stream[i].next = end;
			return true;
		}
	q->stream[q->stream_hand++ % CACHE_STREAMS_NR].next = end;
	return false;
}

/* ---- steps ---- */

static bool cache_read_past(struct cache_io *s, uint32_t bytes)
{
	counter_add(&s->d->stats.passed_by, 1);
	return cache_pass_by(s, bytes);
}

static bool cache_read_miss(struct cache_io *s, struct cache_slot *slot, uint32_t bytes)
{
	struct cache_device *d = s->d;
	struct cache_queue *q = cache_queue_of(s);
	uint64_t now = cache_now(s), block = now >> d->block_shift, units;
	unsigned from = (unsigned)((now & (d->block_bytes - 1)) / CACHE_UNIT_BYTES), to;
	bool is_kept = !d->is_off && !d->keeps_nothing && !cache_changing(d, block), goes_on;

	/* To read past the store would cost the origin the same, and keep nothing. */
	if (is_kept && q->nr[CACHE_OWN_FILL] == CACHE_FILLS_NR)
		return cache_wait_for(s, &d->block_waiters, CACHE_WAITS_FILL);
	if (is_kept && !slot)
		slot = cache_slot_new(d, block);
	is_kept = is_kept && slot && !slot->is_evicting;
	if (!is_kept && cache_pass_waits(s))
		return true;
	counter_add(&d->stats.misses, 1);
	counter_add(&d->stats.missed_bytes, bytes);
	if (!is_kept)
		return cache_read_past(s, bytes);
	goes_on = cache_stream_goes_on(q, now, round_up(now + bytes, CACHE_UNIT_BYTES)) &&
		  ((const struct cache_config *)d->device->config)->prefetch > 0;
	to = (unsigned)(((now & (d->block_bytes - 1)) + bytes + CACHE_UNIT_BYTES - 1) /
			CACHE_UNIT_BYTES);
	units = cache_fill_units(d, slot, from, goes_on ? cache_block_units(d, block) : to);
	s->now_bytes = (uint32_t)MIN(
		(uint64_t)bytes,
		(block << d->block_shift) +
			((uint64_t)from + cache_units_run(units, from)) * CACHE_UNIT_BYTES - now);
	cache_fill_begin(q, slot, units, s);
	cache_set_state(s, CACHE_FILLING);
	if (goes_on)
		cache_prefetch(q, block + 1);
	return true;
}

/* What the store could not read. */
static void cache_read_failed(struct cache_io *s)
{
	struct cache_device *d = s->d;
	uint64_t now = cache_now(s);

	if (s->slot->dirty & cache_units(now & (d->block_bytes - 1), s->now_bytes)) {
		log_limited(LOG_LEVEL_ERROR, "a dirty block cannot be read from the store",
			    "node=%s offset_bytes=%llu", d->device->name, (unsigned long long)now);
		atomic_store(&d->failure,
			     "the store cannot read bytes that the origin does not have "
			     "yet: repair what `store` lies on");
		cache_step_ended(s, s->answer[CACHE_STORE]);
		return;
	}
	if (!s->is_cancelled)
		cache_store_failed(d, "the store cannot be read", s->answer[CACHE_STORE]);
	s->avoids_store = true;
}

/* It was lost there while it was read: other bytes may have come. */
static void cache_read_doubtful(struct cache_io *s)
{
	struct cache_device *d = s->d;

	cache_look_for_losses(d);
	if (d->is_off)
		s->avoids_store = true;
	else
		cache_step_ended(s, d->is_lost ? -EIO : 0);
}

void cache_read_hit_ended(struct cache_io *s)
{
	s->slot->pins--;
	if (__builtin_expect(s->answer[CACHE_STORE] < 0, 0))
		cache_read_failed(s);
	else if (__builtin_expect(cache_read_is_doubtful(s->d), 0))
		cache_read_doubtful(s);
	else
		cache_step_ended(s, 0);
}

static void cache_slot_read(struct cache_queue *q, struct cache_slot *slot, uint32_t bytes)
{
	slot->pins++;
	slot->was_used = 1;
	counter_add(&q->d->stats.hits, 1);
	counter_add(&q->d->stats.hit_bytes, bytes);
	if (__builtin_expect(slot->is_marker, 0)) {
		slot->is_marker = 0;
		cache_prefetch(q, slot->block + 1);
	}
}

struct cache_slot *cache_read_whole(struct cache_device *d, const struct backend_io *io,
				    uint64_t *ret_at)
{
	uint64_t within = io->offset_bytes & (d->block_bytes - 1), units;
	struct cache_slot *slot;

	if (within + io->length_bytes > d->block_bytes)
		return NULL;
	slot = cache_find(d, io->offset_bytes >> d->block_shift);
	units = cache_units(within, io->length_bytes);
	if (!slot || (slot->valid & units) != units)
		return NULL;
	*ret_at = cache_slot_at(d->ix, slot) + within;
	cache_slot_read(io->queue->priv, slot, io->length_bytes);
	return slot;
}

static bool cache_read_hit(struct cache_io *s, struct cache_slot *slot, uint32_t bytes)
{
	uint64_t within = cache_now(s) & (s->d->block_bytes - 1);

	s->slot = slot;
	s->now_bytes = bytes;
	cache_slot_read(cache_queue_of(s), slot, bytes);
	cache_piece(s, CACHE_STORE, 0, bytes, cache_slot_at(s->d->ix, slot) + within);
	return cache_pieces_end(s, CACHE_HIT, cache_read_hit_ended);
}

bool cache_read_step(struct cache_io *s, uint32_t left)
{
	struct cache_device *d = s->d;
	uint64_t now = cache_now(s), within = now & (d->block_bytes - 1);
	uint32_t bytes = (uint32_t)MIN((uint64_t)left, d->block_bytes - within);
	unsigned unit = (unsigned)(within / CACHE_UNIT_BYTES), run;
	struct cache_slot *slot;

	if (s->avoids_store) {
		if (cache_pass_waits(s))
			return true;
		s->avoids_store = false;
		return cache_pass_by(s, s->now_bytes);
	}
	slot = cache_find(d, now >> d->block_shift);
	if (!slot)
		return cache_read_miss(s, NULL, bytes);
	if ((slot->owned & ~slot->valid) >> unit & 1)
		return cache_wait_for(s, &d->block_waiters, CACHE_WAITS_FILL);
	run = slot->valid >> unit & 1 ? cache_units_run(slot->valid, unit)
				      : cache_units_run(~slot->valid & ~slot->owned, unit);
	bytes = (uint32_t)MIN((uint64_t)bytes, ((uint64_t)unit + run) * CACHE_UNIT_BYTES - within);
	return slot->valid >> unit & 1 ? cache_read_hit(s, slot, bytes)
				       : cache_read_miss(s, slot, bytes);
}
