/*
 * The last words of a cache, and its end. The control reactor, when no queue is open.
 *
 * Happy path: (what is dirty is named so -> dirty blocks are written to the origin, a few at a
 * time)
 * -> FLUSH of the origin: all that is kept is what the origin has for sure -> FLUSH of the store ->
 * pages -> FLUSH -> the origin's version (cache_version.c). So the next start finds all of it.
 *
 * Failure modes: the origin cannot be written, or does not answer for a minute, or the store loses
 * writes: its blocks stay dirty in the store's index. The next start writes them, or asks when
 * nobody can say which version the origin has then: it says none, or it did not answer. The store
 * cannot: what it says stays true, as after a cut.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "filters/cache/cache_visit.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

/* ---- requests ---- */

struct cache_visit *cache_visit_of(struct backend_visit *visit)
{
	struct cache_device *d = visit->device->priv;

	return d->visit;
}

struct cache_visit *cache_visit_new(struct cache_device *d)
{
	struct cache_visit *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->d = d;
	d->visit = v;
	v->buf = aligned_alloc(4096, CACHE_VISIT_BYTES);
	for (unsigned i = 0; i < CACHE_DRAINS_NR; i++)
		v->drain[i].buf = aligned_alloc(4096, CACHE_VISIT_BYTES);
	for (unsigned i = 0; v->buf && i < CACHE_DRAINS_NR; i++)
		if (!v->drain[i].buf)
			return NULL;
	return v->buf ? v : NULL;
}

void cache_visit_free(struct cache_device *d)
{
	struct cache_visit *v = d->visit;

	if (!v)
		return;
	for (unsigned i = 0; i < CACHE_DRAINS_NR; i++)
		free(v->drain[i].buf);
	cache_index_free(v->ix);
	free(v->buf);
	free(v);
	d->visit = NULL;
}

static void cache_visit_io_ended(struct backend_visit *visit, int result)
{
	struct cache_visit *v = cache_visit_of(visit);

	v->then(v, result);
}

void cache_visit_io(struct cache_visit *v, unsigned child_idx, enum backend_op op, uint64_t offset,
		    uint32_t bytes, const char *doing,
		    void (*then)(struct cache_visit *v, int result))
{
	int ret;

	v->visit->doing = doing;
	v->then = then;
	ret = backend_visit_io(v->visit, child_idx, op, offset, v->buf, bytes,
			       cache_visit_io_ended);
	if (ret < 0)
		then(v, ret);
}

/* ---- dirty blocks ---- */

static void cache_drain_pump(struct cache_visit *v);

/* The next run of dirty units that one request can have. */
static bool cache_drain_next(struct cache_visit *v, struct cache_drain *dr)
{
	struct cache_device *d = v->d;
	struct cache_slot *slot;
	unsigned first, run, most = MIN(CACHE_VISIT_BYTES, d->chunk_bytes) / CACHE_UNIT_BYTES;

	while (v->left == 0) {
		if (v->slot_idx == d->ix->header.slot_nr)
			return false;
		slot = &d->ix->slot[v->slot_idx++];
		v->left = slot->is_used ? slot->dirty : 0;
	}
	slot = &d->ix->slot[v->slot_idx - 1];
	first = (unsigned)__builtin_ctzll(v->left);
	run = MIN(cache_units_run(v->left, first), most);
	dr->offset = (slot->block << d->block_shift) + (uint64_t)first * CACHE_UNIT_BYTES;
	dr->at = cache_slot_at(d->ix, slot) + (uint64_t)first * CACHE_UNIT_BYTES;
	dr->bytes = (uint32_t)MIN((uint64_t)run * CACHE_UNIT_BYTES, d->origin_bytes - dr->offset);
	v->left &=
		~cache_units((uint64_t)first * CACHE_UNIT_BYTES, (uint64_t)run * CACHE_UNIT_BYTES);
	return true;
}

/* Visits do not say which request has ended: those of a step are all of them. */
static void cache_drain_ended(struct backend_visit *visit, int result)
{
	struct cache_visit *v = cache_visit_of(visit);

	v->ended_nr++;
	if (result < 0 && v->result == 0)
		v->result = result;
	if (--v->drain_nr == 0 && !v->is_given_up)
		cache_drain_pump(v);
}

static void cache_drain_issue(struct cache_visit *v, struct cache_drain *dr, unsigned child_idx,
			      enum backend_op op, uint64_t at)
{
	int ret = backend_visit_io(v->visit, child_idx, op, at, dr->buf, dr->bytes,
				   cache_drain_ended);

	if (ret < 0 && v->result == 0)
		v->result = ret;
	v->drain_nr += ret == 0;
}

static void cache_drained(struct cache_visit *v, int result)
{
	struct cache_device *d = v->d;

	reactor_timer_cancel(v->visit->reactor, &v->stuck);
	for (uint32_t i = 0; result == 0 && i < d->ix->header.slot_nr; i++)
		if (d->ix->slot[i].is_used && d->ix->slot[i].dirty) {
			cache_slot_set_dirty(d->ix, &d->ix->slot[i], 0);
			cache_page_touch(d->ix, &d->ix->slot[i]);
		}
	log_info(result == 0 ? "dirty blocks were written to the origin"
			     : "dirty blocks stay in the store: the next start writes them",
		 "node=%s blocks=%u took_ms=%llu error=%s", d->device->name, v->began_nr,
		 (unsigned long long)((ring_clock_ns() - v->began_ns) / NS_PER_MS),
		 errname(result));
	v->then(v, result);
}

/* What the origin has lost meanwhile is not there by a FLUSH that succeeds. */
static void cache_drain_flushed(struct backend_visit *visit, int result)
{
	struct cache_visit *v = cache_visit_of(visit);

	if (v->is_given_up)
		return;
	if (cache_look_at_origin(v->d) && result == 0)
		result = -EIO;
	cache_drained(v, result);
}

/* Those that were read are written. */
static void cache_drain_write(struct cache_visit *v)
{
	for (unsigned i = 0; i < CACHE_DRAINS_NR; i++)
		if (v->drain[i].is_busy) {
			v->drain[i].is_busy = false;
			cache_drain_issue(v, &v->drain[i], CACHE_ORIGIN, BACKEND_WRITE,
					  v->drain[i].offset);
		}
}

static void cache_drain_read(struct cache_visit *v)
{
	for (unsigned i = 0; i < CACHE_DRAINS_NR; i++) {
		v->drain[i].is_busy = cache_drain_next(v, &v->drain[i]);
		if (v->drain[i].is_busy)
			cache_drain_issue(v, &v->drain[i], CACHE_STORE, BACKEND_READ,
					  v->drain[i].at);
	}
}

/* Nothing is under way. */
static void cache_drain_pump(struct cache_visit *v)
{
	int ret;

	/* What the store has lost meanwhile must not reach the origin. */
	if (v->result == 0 && cache_look_at_store(v->d))
		v->result = -EIO;
	if (v->result == 0 && v->drain[0].is_busy)
		cache_drain_write(v);
	else if (v->result == 0)
		cache_drain_read(v);
	if (v->drain_nr > 0)
		return;
	ret = v->result ? v->result
			: backend_visit_io(v->visit, CACHE_ORIGIN, BACKEND_FLUSH, 0, NULL, 0,
					   cache_drain_flushed);
	if (ret < 0)
		cache_drained(v, ret);
}

void cache_drain_begin(struct cache_visit *v, void (*then)(struct cache_visit *v, int result))
{
	cache_look_at_origin(v->d);
	/* What it has lost before was told, or is not named by the index that was read. */
	cache_look_at_store(v->d);
	v->then = then;
	v->began_ns = ring_clock_ns();
	v->began_nr = v->d->ix->dirty_nr;
	v->visit->doing = "writing dirty blocks to the origin";
	/* As long as it takes; it can be cancelled. */
	v->visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	cache_drain_pump(v);
}

/* ---- the last commit ---- */

static void cache_last_end(struct cache_visit *v, int result)
{
	cache_naming_end(v->d->ix, result < 0);
	v->committed(v, result);
}

static void cache_last_page(struct cache_visit *v, int result)
{
	uint64_t at;

	if (result < 0)
		cache_last_end(v, result);
	else if (cache_naming_next(v->d->ix, &v->next, v->buf, &at))
		cache_visit_io(v, CACHE_STORE, BACKEND_WRITE, at, CACHE_PAGE_BYTES,
			       "writing the index", cache_last_page);
	else
		cache_visit_io(v, CACHE_STORE, BACKEND_FLUSH, 0, 0, "flushing the store",
			       cache_last_end);
}

void cache_last_commit(struct cache_visit *v, void (*then)(struct cache_visit *v, int result))
{
	/* When the origin could not be flushed, nothing new is said to be as it has it. */
	const struct cache_naming naming = { .flush_matters = v->is_careful };
	bool names;

	for (uint32_t i = 0; i < v->d->ix->header.slot_nr; i++) {
		struct cache_slot *slot = &v->d->ix->slot[i];

		slot->is_fresh = slot->is_evicting = 0;
		if (slot->is_used &&
		    (slot->named != slot->valid || slot->named_dirty != slot->dirty))
			cache_page_touch(v->d->ix, slot);
	}
	v->committed = then;
	v->next = 0;
	cache_naming_begin(v->d->ix, &naming, &names);
	cache_visit_io(v, CACHE_STORE, BACKEND_FLUSH, 0, 0, "flushing the store", cache_last_page);
}

/* ---- close ---- */

static void cache_close_end(struct cache_visit *v, int result)
{
	struct backend_visit *visit = v->visit;

	cache_visit_free(v->d);
	backend_visit_done(visit, result);
}

static void cache_closed(struct cache_visit *v, int result)
{
	if (result < 0)
		cache_close_end(v, result);
	else
		cache_version_close(v, 0, cache_close_end);
}

static const char *cache_next_start(bool asks)
{
	return asks ? "asks whether to write them there" : "writes them there";
}

/* What is said to whoever stopped the device: it is not where he may look for it. */
static void cache_closed_dirty(struct cache_visit *v, int result)
{
	struct cache_device *d = v->d;
	struct backend_version version;

	if (result < 0) {
		cache_close_end(v, result);
		return;
	}
	backend_version(d->device->child, &version);
	result = backend_fail(d->device, -EIO,
			      "%llu bytes are in its `store` alone, as its `backend` did not take "
			      "them: a start with this cache %s",
			      (unsigned long long)d->ix->dirty_units * CACHE_UNIT_BYTES,
			      cache_next_start(version.kind == BACKEND_VERSION_NONE));
	cache_version_close(v, result, cache_close_end);
}

static void cache_origin_flushed(struct cache_visit *v, int result)
{
	if (result < 0)
		cache_closed(v, result);
	else
		cache_last_commit(v, cache_closed);
}

static void cache_close_drained(struct cache_visit *v, int result)
{
	v->is_careful = result < 0;
	cache_last_commit(v, v->is_careful ? cache_closed_dirty : cache_closed);
}

/* What is under way is cancelled, and nobody hears of it; its memory is its own until cache_close.
 */
static void cache_given_up(struct cache_visit *v, int result)
{
	(void)result;
	reactor_timer_cancel(v->visit->reactor, &v->stuck);
	backend_visit_done(v->visit, -ETIMEDOUT);
}

/* All that is dirty is named so. */
static void cache_give_up(struct cache_visit *v)
{
	struct backend_version version;

	backend_version(v->d->device->child, &version);
	log_warn("the origin does not answer: dirty blocks stay in the store", "node=%s blocks=%u",
		 v->d->device->name, v->began_nr);
	backend_fail(v->d->device, -ETIMEDOUT,
		     "%llu bytes are in its `store` alone, as its `backend` does not answer: a "
		     "start with this cache %s",
		     (unsigned long long)v->d->ix->dirty_units * CACHE_UNIT_BYTES,
		     cache_next_start(version.kind != BACKEND_VERSION_LASTING));
	v->is_given_up = true;
	cache_version_void(v, cache_given_up);
}

static void cache_drain_look(struct timer *timer)
{
	struct cache_visit *v = container_of(timer, struct cache_visit, stuck);
	bool is_stuck = v->ended_nr == v->stuck_nr;

	if (v->is_given_up) {
		/* Nor does the store. */
		cache_given_up(v, -ETIMEDOUT);
		return;
	}
	v->stuck_nr = v->ended_nr;
	reactor_timer_arm(v->visit->reactor, &v->stuck, ring_clock_ns() + CACHE_STUCK_NS);
	if (is_stuck)
		cache_give_up(v);
}

static void cache_close_named(struct cache_visit *v, int result)
{
	if (result < 0) {
		cache_closed(v, result);
		return;
	}
	timer_init(&v->stuck, cache_drain_look);
	reactor_timer_arm(v->visit->reactor, &v->stuck, ring_clock_ns() + CACHE_STUCK_NS);
	cache_drain_begin(v, cache_close_drained);
}

void cache_close_async(struct backend_visit *visit)
{
	struct cache_device *d = visit->device->priv;
	struct cache_visit *v;

	if (d->is_off || d->is_lost) {
		backend_visit_done(visit, d->is_lost ? -EIO : 0);
		return;
	}
	v = cache_visit_new(d);
	if (!v) {
		cache_visit_free(d);
		backend_visit_done(visit, -ENOMEM);
		return;
	}
	v->visit = visit;
	v->is_careful = d->ix->dirty_nr > 0;
	if (v->is_careful) {
		visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
		cache_last_commit(v, cache_close_named);
	} else {
		cache_visit_io(v, CACHE_ORIGIN, BACKEND_FLUSH, 0, 0, "flushing the origin",
			       cache_origin_flushed);
	}
}

void cache_close(struct backend_device *device)
{
	struct cache_device *d = device->priv;

	cache_visit_free(d);
	if (d->stored_fd > 0)
		close(d->stored_fd);
	d->stored_fd = 0;
	cache_index_free(d->ix);
	d->ix = NULL;
}
