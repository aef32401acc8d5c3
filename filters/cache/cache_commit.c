/*
 * The index reaches the store. The queue's reactor.
 *
 *   what pages will say is decided -> DATA: a FLUSH -> PAGES are written, each to the place that
 *   the store does not rely on -> FLUSH -> who waits goes on
 *
 * Somebody waits for a commit, or enough has changed, or some time has passed. Who comes while one
 * is under way waits for the next one.
 *
 * Failure modes: the store fails: where nothing can be dirty it is given up (WIPE): its header says
 * so before another change reaches the origin, and the cache is off until the device is opened
 * again. With dirty blocks the commit fails, and so do those who wait for it.
 */
#include "filters/cache/cache.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

static void cache_commit_step(struct cache_device *d);

/* ---- its end ---- */

static bool cache_pages_are_dirty(const struct cache_index *ix)
{
	for (uint32_t i = 0; i < cache_page_nr(ix->header.slot_nr); i += 64)
		if (ix->page_dirty[i / 64])
			return true;
	return false;
}

static void cache_commit_timer_arm(struct cache_device *d)
{
	const struct cache_config *config = d->device->config;
	struct reactor *r = d->q->queue->reactor;

	if (!d->commit.timer.armed && !d->is_resting && !d->is_off)
		reactor_timer_arm(r, &d->commit.timer, r->now_ns + config->commit_ns);
}

static void cache_commit_over(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;
	int result = c->result;

	cache_naming_end(d->ix, result < 0);
	c->phase = CACHE_COMMIT_NONE;
	c->ended = c->begun;
	c->ended_result = result;
	if (result < 0)
		cache_store_failed(d, "the index cannot be written to the store", result);
	cache_evict_reap(d);
	cache_wake(d, &d->commit_waiters);
	if (c->is_wanted)
		cache_commit_want(d);
	else if (cache_pages_are_dirty(d->ix))
		cache_commit_timer_arm(d);
	cache_control_go_on(d);
}

/* ---- the store is given up ---- */

static void cache_wipe_over(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;

	if (c->result < 0)
		log_error("the store cannot be told that it counts no more: remove the cache file "
			  "before the device is opened again",
			  "node=%s error=%s", d->device->name, errname(c->result));
	c->phase = CACHE_COMMIT_NONE;
	/* Who has wanted one meanwhile goes past it. */
	c->is_wanted = false;
	c->ended = c->begun;
	c->ended_result = 0;
	d->is_wiped = true;
	cache_wake(d, &d->commit_waiters);
}

static void cache_wipe_begin(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;

	c->phase = CACHE_COMMIT_WIPE;
	c->begun++;
	c->result = 0;
	c->next = 0;
	c->wipe_nr = 0;
	d->ix->header.generation++;
	d->ix->header.instance = 0;
	cache_commit_step(d);
}

void cache_store_failed(struct cache_device *d, const char *what, int err)
{
	if (d->mode == CACHE_WRITEBACK) {
		log_limited(LOG_LEVEL_ERROR, "the store of a cache fails",
			    "node=%s what=\"%s\" error=%s", d->device->name, what, errname(err));
		return;
	}
	if (d->is_off)
		return;
	log_error("the store of a cache fails: the cache is off until the device is opened again",
		  "node=%s what=\"%s\" error=%s", d->device->name, what, errname(err));
	__atomic_store_n(&d->is_off, true, __ATOMIC_RELAXED);
	d->losses_seen = CACHE_STORE_IN_DOUBT;
	cache_index_set_off(d->ix);
	cache_commit_want(d);
}

/* ---- its steps ---- */

static void cache_commit_io_ended(struct cache_own *own, int result)
{
	struct cache_queue *q = own->own->queue->priv;
	struct cache_commit *c = &q->d->commit;

	cache_own_release(q, own);
	c->under_way--;
	if (result < 0 && c->result == 0)
		c->result = result;
	cache_commit_step(q->d);
}

static void cache_commit_issue(struct cache_device *d, struct cache_own *own, enum backend_op op,
			       uint64_t at)
{
	d->commit.under_way++;
	cache_own_submit(own, CACHE_STORE, op, at, NULL, op == BACKEND_FLUSH ? 0 : CACHE_PAGE_BYTES,
			 cache_commit_io_ended);
}

static bool cache_next_bytes(struct cache_device *d, void *buf, uint64_t *ret_at)
{
	struct cache_commit *c = &d->commit;

	if (c->phase == CACHE_COMMIT_PAGES)
		return cache_naming_next(d->ix, &c->next, buf, ret_at);
	if (c->next == CACHE_HEADER_NR)
		return false;
	cache_header_write(&d->ix->header, buf);
	*ret_at = c->next++ * (uint64_t)CACHE_PAGE_BYTES;
	return true;
}

/* Pages, or headers, as many at a time as there are requests. */
static void cache_commit_write(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;
	struct cache_own *own;
	uint64_t at = 0;

	while (c->result == 0 && (own = cache_own_take(d->q, CACHE_OWN_INDEX))) {
		if (!cache_next_bytes(d, own->own->buf, &at)) {
			cache_own_release(d->q, own);
			break;
		}
		cache_commit_issue(d, own, BACKEND_WRITE, at);
	}
}

static void cache_commit_flush(struct cache_device *d, enum cache_commit_phase phase)
{
	d->commit.phase = phase;
	cache_commit_issue(d, cache_own_take(d->q, CACHE_OWN_INDEX), BACKEND_FLUSH, 0);
}

static void cache_wipe_step(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;

	if (c->result == 0 && c->next < CACHE_HEADER_NR) {
		cache_commit_write(d);
	} else if (c->result == 0 && c->next == CACHE_HEADER_NR) {
		c->next++;
		cache_commit_flush(d, CACHE_COMMIT_WIPE);
	} else if (c->result < 0 && ++c->wipe_nr < CACHE_WIPES_NR) {
		/* What a FLUSH has lost must be written again: without it the store would count. */
		c->result = 0;
		c->next = 0;
		cache_commit_write(d);
	} else {
		cache_wipe_over(d);
	}
}

/* Nothing is under way. */
static void cache_commit_next_phase(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;

	if (c->phase != CACHE_COMMIT_WIPE)
		cache_look_for_losses(d);
	if (d->is_lost && c->result == 0)
		c->result = -EIO;
	if (c->phase == CACHE_COMMIT_WIPE) {
		cache_wipe_step(d);
	} else if (c->result < 0 || c->phase == CACHE_COMMIT_FLUSH ||
		   (c->phase == CACHE_COMMIT_DATA && c->page_nr == 0)) {
		cache_commit_over(d);
	} else if (c->phase == CACHE_COMMIT_DATA) {
		c->phase = CACHE_COMMIT_PAGES;
		cache_commit_write(d);
	} else {
		cache_commit_flush(d, CACHE_COMMIT_FLUSH);
	}
}

static void cache_commit_step(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;

	if (c->phase == CACHE_COMMIT_PAGES)
		cache_commit_write(d);
	if (c->under_way == 0)
		cache_commit_next_phase(d);
}

/* ---- its beginning ---- */

static void cache_commit_begin(struct cache_device *d)
{
	const struct cache_naming naming = { .flush_matters = d->origin_flushes,
					     .flushed_nr = d->flushed_nr };
	struct cache_commit *c = &d->commit;
	bool names;

	c->begun++;
	c->result = 0;
	c->next = 0;
	c->page_nr = cache_naming_begin(d->ix, &naming, &names);
	if (c->page_nr == 0 && !c->is_forced) {
		cache_commit_over(d);
		return;
	}
	/* The first one of a life: what is read there now may not be durable. */
	if (names || c->is_forced || c->ended == 0) {
		c->is_forced = false;
		cache_commit_flush(d, CACHE_COMMIT_DATA);
		return;
	}
	c->phase = CACHE_COMMIT_PAGES;
	cache_commit_step(d);
}

/* Nothing of it may be named in the store any more. */
static void cache_commit_fail(struct cache_device *d)
{
	d->commit.ended = ++d->commit.begun;
	d->commit.ended_result = -EIO;
	cache_wake(d, &d->commit_waiters);
}

static void cache_commit_start(struct cache_device *d)
{
	struct cache_commit *c = &d->commit;

	if (c->phase != CACHE_COMMIT_NONE)
		return;
	c->is_wanted = false;
	cache_look_for_losses(d);
	if (d->is_lost)
		cache_commit_fail(d);
	else if (!d->is_off)
		cache_commit_begin(d);
	else if (!d->is_wiped)
		cache_wipe_begin(d);
	else
		cache_wake(d, &d->commit_waiters);
}

static void cache_commit_wanted(struct task *task)
{
	cache_commit_start(container_of(task, struct cache_device, commit.task));
}

static void cache_commit_due(struct timer *timer)
{
	cache_commit_start(container_of(timer, struct cache_device, commit.timer));
}

void cache_commit_want(struct cache_device *d)
{
	d->commit.is_wanted = true;
	if (d->commit.phase == CACHE_COMMIT_NONE)
		reactor_defer(d->q->queue->reactor, &d->commit.task, cache_commit_wanted);
}

bool cache_commit_wait(struct cache_io *s)
{
	struct cache_device *d = s->d;
	struct cache_commit *c = &d->commit;

	/* Else the store is being given up, and the step goes past it. */
	if (d->mode == CACHE_WRITEBACK && s->commit_nr > 0 && c->ended >= s->commit_nr &&
	    c->ended_result < 0) {
		s->now_bytes = 0;
		cache_step_ended(s, c->ended_result);
		return false;
	}
	if (s->commit_nr == 0 || c->ended >= s->commit_nr)
		s->commit_nr = c->begun + 1;
	cache_commit_want(d);
	return cache_wait_for(s, &d->commit_waiters, CACHE_WAITS_COMMIT);
}

void cache_commit_later(struct cache_device *d, const struct cache_slot *slot)
{
	if (slot)
		cache_page_touch(d->ix, slot);
	cache_commit_timer_arm(d);
}

/* ---- life ---- */

void cache_commit_init(struct cache_device *d)
{
	timer_init(&d->commit.timer, cache_commit_due);
	d->commit.phase = CACHE_COMMIT_NONE;
}

void cache_commit_fini(struct cache_device *d)
{
	reactor_timer_cancel(d->q->queue->reactor, &d->commit.timer);
	task_cancel(&d->commit.task);
}

bool cache_commit_is_quiet(const struct cache_device *d)
{
	return d->commit.phase == CACHE_COMMIT_NONE && !d->commit.is_wanted;
}
