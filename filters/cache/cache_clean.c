/*
 * Dirty blocks come to the origin. The queue's reactor.
 *
 * Happy path: a slot's dirty units are read from the store -> written to the origin -> when some
 * slots have come so far, or no more are to be had, a FLUSH of the origin -> what was not written
 * again meanwhile is clean. It begins when a dirty block has waited for its time, when half of what
 * may be dirty is, and when a discard waits for it.
 *
 * Failure modes: the origin or the store fails, or the origin has lost some of them before the
 * FLUSH that succeeds: the blocks stay dirty and are tried again when their time has come again;
 * writes that wait for fewer dirty blocks fail.
 */
#include "filters/cache/cache.h"

#include <errno.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

static void cache_clean_later(struct task *task)
{
	cache_clean_kick(container_of(task, struct cache_device, clean_task));
}

/* ---- the end of some ---- */

static void cache_clean_settle(struct cache_device *d, bool is_durable)
{
	for (uint32_t i = 0; i < d->cleaned_nr; i++) {
		struct cache_slot *slot = &d->ix->slot[d->cleaned[i]];

		if (is_durable && slot->cleaning) {
			cache_slot_set_dirty(d->ix, slot, slot->dirty & ~slot->cleaning);
			cache_commit_later(d, slot);
		}
		slot->cleaning = 0;
		slot->is_cleaning = 0;
		slot->pins--;
	}
	d->cleaned_nr = 0;
	if (is_durable)
		cache_wake(d, &d->dirty_waiters);
	if (d->is_aside)
		cache_wake(d, &d->block_waiters);
}

/* Those that wait for fewer dirty blocks would wait for ever. */
static void cache_clean_failed(struct cache_device *d, int err)
{
	log_limited(LOG_LEVEL_WARN, "dirty blocks cannot be written to the origin",
		    "node=%s blocks=%u error=%s", d->device->name, d->ix->dirty_nr, errname(err));
	list_for_each (node, &d->dirty_waiters)
		list_entry(node, struct cache_io, waiting)->result = err;
	cache_wake(d, &d->dirty_waiters);
	d->clean_all = false;
	d->clean_waits = true;
	cache_control_go_on(d);
}

static void cache_clean_flushed(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;
	struct cache_device *d = q->d;

	d->clean_flushes = false;
	cache_look_for_losses(d);
	if (result == 0)
		d->flushed_nr = MAX(d->flushed_nr, own->offset);
	if (result == 0 && d->clean_lost)
		result = -EIO;
	d->clean_lost = false;
	cache_own_release(q, own);
	cache_clean_settle(d, result == 0);
	if (result < 0)
		cache_clean_failed(d, result);
	cache_clean_kick(d);
	cache_control_go_on(d);
}

static void cache_clean_flush(struct cache_device *d)
{
	struct cache_own *own = cache_own_take(d->q, CACHE_OWN_CLEAN);

	d->clean_flushes = true;
	own->offset = ++d->flush_begun;
	cache_own_submit(own, CACHE_ORIGIN, BACKEND_FLUSH, 0, NULL, 0, cache_clean_flushed);
}

/* ---- one slot ---- */

static void cache_clean_one_ended(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;
	struct cache_device *d = q->d;

	if (result < 0)
		own->slot->cleaning = 0;
	else
		counter_add(&d->stats.cleaned_bytes, own->bytes);
	d->cleaned[d->cleaned_nr++] = cache_slot_idx(d->ix, own->slot);
	cache_own_release(q, own);
	if (result < 0 && !d->is_resting)
		cache_clean_failed(d, result);
	cache_clean_kick(d);
}

static void cache_clean_read(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;

	/* What the store has lost meanwhile must not reach the origin. */
	cache_look_for_losses(q->d);
	if (result == 0 && q->d->is_lost)
		result = -EIO;
	if (result < 0) {
		cache_clean_one_ended(own, result);
		return;
	}
	cache_own_submit(own, CACHE_ORIGIN, BACKEND_WRITE, own->offset, NULL, own->bytes,
			 cache_clean_one_ended);
}

static void cache_clean_one(struct cache_device *d, struct cache_slot *slot)
{
	struct cache_own *own = cache_own_take(d->q, CACHE_OWN_CLEAN);
	uint64_t units = slot->dirty & ~slot->owned;
	unsigned first = (unsigned)__builtin_ctzll(units);
	unsigned run = MIN(cache_units_run(units, first), d->chunk_bytes / CACHE_UNIT_BYTES);
	uint64_t within = (uint64_t)first * CACHE_UNIT_BYTES;

	own->slot = slot;
	own->units = cache_units(within, (uint64_t)run * CACHE_UNIT_BYTES);
	own->offset = (slot->block << d->block_shift) + within;
	own->bytes = (uint32_t)MIN((uint64_t)run * CACHE_UNIT_BYTES, d->origin_bytes - own->offset);
	slot->cleaning = own->units;
	slot->is_cleaning = 1;
	slot->pins++;
	cache_own_submit(own, CACHE_STORE, BACKEND_READ, cache_slot_at(d->ix, slot) + within, NULL,
			 own->bytes, cache_clean_read);
}

/* The next one that may be cleaned; NULL: none. */
static struct cache_slot *cache_clean_next(struct cache_device *d)
{
	uint32_t slot_nr = d->ix->header.slot_nr;

	for (uint32_t i = 0; i < slot_nr; i++) {
		struct cache_slot *slot = &d->ix->slot[d->clean_hand];

		d->clean_hand = d->clean_hand + 1 == slot_nr ? 0 : d->clean_hand + 1;
		if (slot->is_used && !slot->is_cleaning && (slot->dirty & ~slot->owned) &&
		    !cache_changing(d, slot->block))
			return slot;
	}
	return NULL;
}

/* ---- when ---- */

static void cache_clean_due(struct timer *timer)
{
	struct cache_device *d = container_of(timer, struct cache_device, clean_timer);

	d->clean_all = true;
	d->clean_waits = false;
	cache_clean_kick(d);
}

static bool cache_clean_wanted(const struct cache_device *d)
{
	return d->ix->dirty_nr > 0 && !d->clean_waits &&
	       (d->clean_all || d->ix->dirty_nr >= (d->dirty_max + 1) / 2);
}

static bool cache_clean_has_room(const struct cache_device *d)
{
	return d->cleaned_nr + d->q->nr[CACHE_OWN_CLEAN] < ARRAY_SIZE(d->cleaned) &&
	       d->q->nr[CACHE_OWN_CLEAN] < CACHE_CLEANS_NR;
}

/* Begins as many as there may be; false: there are no more. */
static bool cache_clean_some(struct cache_device *d)
{
	while (cache_clean_has_room(d)) {
		struct cache_slot *slot = cache_clean_next(d);

		if (!slot) {
			d->clean_all = !list_empty(&d->dirty_waiters);
			return false;
		}
		cache_clean_one(d, slot);
	}
	return true;
}

void cache_clean_kick(struct cache_device *d)
{
	struct reactor *r = d->q->queue->reactor;
	bool has_more = false;

	if (d->ix->dirty_nr == 0 && d->cleaned_nr == 0) {
		d->clean_all = false;
		cache_wake(d, &d->dirty_waiters);
		return;
	}
	if (d->is_resting || d->clean_flushes)
		return;
	if (cache_clean_wanted(d))
		has_more = cache_clean_some(d);
	if (d->cleaned_nr > 0 && d->q->nr[CACHE_OWN_CLEAN] == 0)
		cache_clean_flush(d);
	else if (!has_more && !d->clean_timer.armed && d->q->nr[CACHE_OWN_CLEAN] == 0)
		reactor_timer_arm(
			r, &d->clean_timer,
			r->now_ns + ((const struct cache_config *)d->device->config)->clean_ns);
}

/* ---- life ---- */

void cache_clean_init(struct cache_device *d)
{
	timer_init(&d->clean_timer, cache_clean_due);
	d->clean_all = d->clean_waits = d->clean_flushes = false;
	if (d->ix->dirty_nr > 0)
		reactor_defer(d->q->queue->reactor, &d->clean_task, cache_clean_later);
}

void cache_clean_fini(struct cache_device *d)
{
	cache_clean_settle(d, false);
	reactor_timer_cancel(d->q->queue->reactor, &d->clean_timer);
	task_cancel(&d->clean_task);
}

bool cache_clean_is_quiet(const struct cache_device *d)
{
	return d->q->nr[CACHE_OWN_CLEAN] == 0;
}
