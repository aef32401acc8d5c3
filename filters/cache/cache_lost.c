/*
 * A child has perhaps lost writes (storage/owed.h). The queue's reactor; open: the control reactor.
 *
 * The origin: what was written there, or read from it behind a write, since its last good FLUSH is
 * in no state that is known; what the store has of it is not what the origin has, and is dropped.
 * What is dirty stays so: what was on its way to the origin (`cleaning`) is not clean by a FLUSH
 * that succeeds afterwards. Units that the store's index names are of before, and stay. What is
 * read from the origin from then on may be what it has lost, as from a page cache whose writing has
 * failed: it is used, but the store's index never names it.
 *
 * The store: readthrough and writethrough give it up, and what is being read there is read from the
 * origin. Of writeback the index on it is the truth, and what is dirty in memory is perhaps not:
 * nothing of it may reach the origin. The device fails all requests until it is opened again, from
 * that index.
 */
#include "filters/cache/cache.h"

#include <errno.h>

#include "base/log.h"
#include "storage/owed.h"

static struct backend_device *cache_child(const struct cache_device *d, unsigned idx)
{
	struct backend_device *origin = d->device->child;

	return idx == CACHE_ORIGIN ? origin : origin->sibling;
}

void cache_forget_unflushed(struct cache_device *d)
{
	for (uint32_t i = 0; i < d->ix->header.slot_nr; i++) {
		struct cache_slot *slot = &d->ix->slot[i];

		if (!slot->is_used)
			continue;
		if (slot->flushes >= d->flushed_nr)
			slot->valid &= slot->dirty | slot->named;
		/* What is under way may have reached the origin before. */
		slot->will = 0;
	}
}

static void cache_origin_lost(struct cache_device *d)
{
	log_limited(LOG_LEVEL_WARN,
		    "the origin of a cache has perhaps lost writes: what the cache had of them is "
		    "dropped",
		    "node=%s", d->device->name);
	d->is_doubtful = true;
	d->clean_lost |= d->cleaned_nr > 0 || (d->q && d->q->nr[CACHE_OWN_CLEAN] > 0);
	cache_forget_unflushed(d);
}

static void cache_store_lost(struct cache_device *d)
{
	if (d->mode != CACHE_WRITEBACK) {
		cache_store_failed(d, "it has perhaps lost writes", -EIO);
		return;
	}
	if (d->is_lost)
		return;
	d->is_lost = d->is_resting = true;
	d->losses_seen = CACHE_STORE_IN_DOUBT;
	list_for_each (node, &d->dirty_waiters)
		list_entry(node, struct cache_io, waiting)->result = -EIO;
	cache_wake(d, &d->dirty_waiters);
	/* For a process that adopts: the index on the store is to be read. */
	cache_index_set_lost(d->ix);
	atomic_store(
		&d->failure,
		"the store has perhaps lost writes that the origin does not have yet: what was "
		"flushed before is in it, and is there when the device is opened again");
	log_error("the store of a cache has perhaps lost writes: the device fails all requests "
		  "until it is opened again",
		  "node=%s", d->device->name);
}

/* Since it was asked last. */
static bool cache_has_lost(struct cache_device *d, unsigned idx)
{
	uint32_t losses = backend_losses(cache_child(d, idx));
	bool has = losses != d->losses[idx];

	d->losses[idx] = losses;
	/* Else the next FLUSH of the cleaner, or of a user who has heard of it, would fail. */
	if (has && idx == CACHE_ORIGIN)
		backend_owed_take(cache_child(d, idx), losses);
	return has;
}

bool cache_look_at_origin(struct cache_device *d)
{
	bool has = cache_has_lost(d, CACHE_ORIGIN);

	if (has)
		cache_origin_lost(d);
	return has;
}

bool cache_look_at_store(struct cache_device *d)
{
	return cache_has_lost(d, CACHE_STORE);
}

void cache_look_for_losses(struct cache_device *d)
{
	/* First: what is lost from now on is looked for again. */
	if (d->losses_seen != CACHE_STORE_IN_DOUBT)
		d->losses_seen = backend_losses_anywhere();
	cache_look_at_origin(d);
	if (!d->is_off && cache_has_lost(d, CACHE_STORE))
		cache_store_lost(d);
}

bool cache_losses_begin(struct cache_device *d)
{
	d->losses_seen = backend_losses_anywhere();
	d->losses[CACHE_ORIGIN] = backend_losses(cache_child(d, CACHE_ORIGIN));
	d->losses[CACHE_STORE] = backend_losses(cache_child(d, CACHE_STORE));
	return backend_was_owed(cache_child(d, CACHE_ORIGIN));
}
