/*
 * A cache stands aside while a snapshot of what is below its origin is created or applied
 * (storage/cache_control.h). The queue's reactor, but for cache_above.
 *
 * Happy path of YIELD: from now on writes go to the origin, as in writethrough, and nothing becomes
 * dirty -> writes that are on their way to the store end, dirty blocks are written to the origin,
 * and that is flushed. Of EMPTY: from now on nothing is kept either -> that -> what is kept is
 * forgotten, by the store's index too (cache_drop.c). BACK: as before.
 *
 * Failure modes: the origin or the store fails, or it is cancelled: as before. A write that goes to
 * the origin meanwhile fails when that fails.
 */
#include "filters/cache/cache.h"

#include <errno.h>
#include <stdio.h>

#include "storage/snapshot.h"

/* ---- what may be: the control thread ---- */

/* The origin is no question: the cache stands aside. */
static const char *cache_above_create(const struct backend_device *device,
				      const struct backend_device *child)
{
	if (child == device->child)
		return NULL;
	return "keeps copies in its `store`, and a snapshot of that has not what the device has: "
	       "create one of the node of its `backend`";
}

static const char *cache_above_apply(const struct backend_device *device,
				     const struct backend_device *child)
{
	if (child == device->child)
		return NULL;
	return "would take old blocks in its `store` for those of its `backend`: remove the device "
	       "and the store, which is made anew";
}

const struct backend_above cache_above = { .create = cache_above_create,
					   .apply = cache_above_apply };

/* ---- aside, and back ---- */

void cache_aside_end(struct cache_device *d)
{
	d->is_aside = d->keeps_nothing = false;
	cache_wake(d, &d->block_waiters);
}

static void cache_aside_begin(struct cache_device *d)
{
	d->is_aside = true;
	d->keeps_nothing = d->control.job->op == BACKEND_CACHE_EMPTY;
	/* What has failed before is tried again. */
	d->clean_waits = false;
	/* What the origin has lost before is no reason to fail what is written from now on. */
	cache_look_for_losses(d);
	/* Those that wait for fewer dirty blocks need not. */
	cache_wake(d, &d->dirty_waiters);
}

static int cache_aside_fail(struct cache_device *d, int err, const char *words)
{
	snprintf(d->control.job->words, sizeof(d->control.job->words), "%s", words);
	return err;
}

/* 0: the origin has all, durably. */
static int cache_aside_drain(struct cache_device *d)
{
	if (d->ix->dirty_nr == 0 && d->back_nr == 0 && d->cleaned_nr == 0 && !d->clean_flushes &&
	    cache_clean_is_quiet(d))
		return 0;
	if (d->clean_waits)
		return cache_aside_fail(d, -EIO,
					"dirty blocks of the cache cannot be written to its "
					"`backend`: the log says why");
	d->clean_all = true;
	cache_clean_kick(d);
	return CACHE_CONTROL_WAITS;
}

/* Of one that is off the store's header must say so: its index would be believed after a cut. */
int cache_aside_step(struct cache_device *d)
{
	enum backend_cache_op op = d->control.job->op;
	int ret;

	if (op == BACKEND_CACHE_BACK) {
		cache_aside_end(d);
		return 0;
	}
	if (!d->is_aside)
		cache_aside_begin(d);
	if (d->is_lost)
		return cache_aside_fail(d, -EIO, atomic_load(&d->failure));
	if (d->is_off)
		return op == BACKEND_CACHE_YIELD || d->is_wiped ? 0 : CACHE_CONTROL_WAITS;
	ret = cache_aside_drain(d);
	return ret != 0 || op == BACKEND_CACHE_YIELD ? ret : cache_drop_step(d);
}

/* ---- a write meanwhile ---- */

bool cache_aside_write_step(struct cache_io *s, struct cache_slot *slot, uint64_t units,
			    uint32_t left)
{
	if (slot && (slot->dirty || slot->is_cleaning || (slot->owned & units)))
		return cache_wait_for(s, &s->d->block_waiters, CACHE_WAITS_DIRTY);
	return cache_through_step(s, left);
}
