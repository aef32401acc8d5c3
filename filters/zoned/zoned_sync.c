/*
 * Rounds that make durable what a zoned device has acknowledged. The queue's reactor. Owns no
 * memory; one request of the node's own serves all of a round, one step after the other.
 *
 *   DATA   FLUSH of the child: what the zones have had before this round is durable
 *   PAGES  the table says how far they were complete then, (nothing has changed: done)
 *   TABLE  FLUSH of the child: the table is durable
 *   TRIM   DISCARD of zones that were reset: nobody can read what they hold, nor write to them yet
 *
 * Who comes while a round is under way waits for the next one, which begins with its end. Failure
 * modes: a step before TRIM fails: all that wait for the round get its errno, and the pages are
 * written again by the next; a DISCARD fails: the space is not given back, nothing else. The round
 * is cancelled: it begins no further step, and fails unless the table is durable by then.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "filters/zoned/zoned.h"

static void sync_step_done(struct backend_own *own, int result);

static void sync_submit(struct zoned_device *d, enum zoned_sync_step step, enum backend_op op,
			uint64_t offset_bytes, uint32_t bytes)
{
	d->sync.step = step;
	backend_own_submit(d->sync.own, 0, op, offset_bytes, NULL, bytes, sync_step_done);
}

static void sync_set_state(struct zoned_io *z, enum zoned_io_state state)
{
	__atomic_store_n(&z->state, (uint8_t)state, __ATOMIC_RELAXED);
}

void zoned_sync_trim(struct zoned_device *d, uint32_t idx)
{
	if (!d->child_discards || d->trim[idx] != ZONED_TRIM_NONE)
		return;
	d->trim[idx] = ZONED_TRIM_WANTED;
	d->sync.trim_wanted_nr++;
}

static void take_trims(struct zoned_device *d)
{
	struct zoned_sync *s = &d->sync;

	for (uint32_t i = 0; i < d->shape.zone_nr && s->trim_wanted_nr > 0; i++) {
		if (d->trim[i] != ZONED_TRIM_WANTED)
			continue;
		d->trim[i] = ZONED_TRIM_NOW;
		s->trim_wanted_nr--;
		s->trim_nr++;
	}
	s->trim_idx = 0;
	s->trimmed_bytes = 0;
}

static void sync_begin(struct zoned_device *d)
{
	struct zoned_sync *s = &d->sync;

	list_splice(&s->running, &s->waiting);
	s->is_cancelled = false;
	for (struct list_node *n = s->running.next; n != &s->running; n = n->next)
		sync_set_state(container_of(n, struct zoned_io, waiting), ZONED_SYNCS);
	take_trims(d);
	zoned_pages_begin(d);
	sync_submit(d, ZONED_SYNC_DATA, BACKEND_FLUSH, 0, 0);
}

/* Those that are answered may submit others, which then wait. */
static void sync_end(struct zoned_device *d, int result)
{
	struct zoned_sync *s = &d->sync;
	struct list_node *node;

	while ((node = list_pop_front(&s->running))) {
		struct backend_io *io = container_of(node, struct zoned_io, waiting)->io;

		zoned_let_go(d, io);
		backend_io_complete(io, result);
	}
	s->step = ZONED_SYNC_IDLE;
	if (!list_empty(&s->waiting))
		sync_begin(d);
}

/* The next zone from trim_idx on whose space goes now. */
static bool find_trim(struct zoned_device *d)
{
	struct zoned_sync *s = &d->sync;

	while (s->trim_nr > 0 && d->trim[s->trim_idx] != ZONED_TRIM_NOW)
		s->trim_idx++;
	return s->trim_nr > 0;
}

static void end_trim(struct zoned_device *d)
{
	d->trim[d->sync.trim_idx] = ZONED_TRIM_NONE;
	d->sync.trim_nr--;
	d->sync.trimmed_bytes = 0;
}

/* The space stays until the zones are reset again. */
static void drop_trims(struct zoned_device *d)
{
	while (find_trim(d))
		end_trim(d);
}

/* Nothing is known of what the table says. */
static void sync_fail(struct zoned_device *d, int err)
{
	zoned_pages_end(d, false);
	drop_trims(d);
	sync_end(d, err);
}

/* In as many requests as the child wants. */
static void trim_next(struct zoned_device *d)
{
	const struct backend_limits *child = &d->device->child->limits;
	struct zoned_sync *s = &d->sync;
	uint64_t left_bytes, bytes;

	if (s->trimmed_bytes == d->shape.zone_bytes)
		end_trim(d);
	if (s->is_cancelled)
		drop_trims(d);
	if (!find_trim(d)) {
		sync_end(d, 0);
		return;
	}
	left_bytes = d->shape.zone_bytes - s->trimmed_bytes;
	bytes = child->max_discard_bytes ? MIN(left_bytes, child->max_discard_bytes) : left_bytes;
	sync_submit(d, ZONED_SYNC_TRIM, BACKEND_DISCARD,
		    d->data_at + zone_start(&d->table, s->trim_idx) + s->trimmed_bytes,
		    (uint32_t)bytes);
	s->trimmed_bytes += bytes;
}

static void page_next(struct zoned_device *d)
{
	uint64_t at;
	bool is_any = zoned_pages_next(d, d->sync.own->buf, &at);

	if (is_any && d->is_read_only)
		sync_fail(d, -EIO);
	else if (is_any)
		sync_submit(d, ZONED_SYNC_PAGES, BACKEND_WRITE, at, ZONE_PAGE_BYTES);
	else if (d->sync.step == ZONED_SYNC_DATA)
		sync_end(d, 0);
	else
		sync_submit(d, ZONED_SYNC_TABLE, BACKEND_FLUSH, 0, 0);
}

static bool is_before_table(enum zoned_sync_step step)
{
	return step == ZONED_SYNC_DATA || step == ZONED_SYNC_PAGES;
}

bool zoned_has_lost(struct zoned_device *d)
{
	uint32_t losses = backend_losses(d->device->child);
	bool has = losses != d->losses;

	d->losses = losses;
	if (!has || d->is_lost || d->below.lane || !zoned_pages_are_owed(d))
		return has;
	d->is_lost = true;
	/* A FLUSH that was under way may yet be good, and settle what is owed. */
	zone_memory_set_lost(&d->memory);
	atomic_store(&d->failure, "what is below has perhaps lost writes: zones are written as far "
				  "as at the last good FLUSH when the device is opened again");
	log_error(
		"zones have perhaps lost writes: the device fails all requests until it is opened "
		"again",
		"node=%s", d->device->name);
	return has;
}

static void sync_step_done(struct backend_own *own, int result)
{
	struct zoned_device *d = own->queue->device->priv;
	bool is_flush = d->sync.step == ZONED_SYNC_DATA || d->sync.step == ZONED_SYNC_TABLE;

	if (is_flush && zoned_has_lost(d) && result == 0)
		result = -EIO;
	if (d->is_lost && result == 0)
		result = -EIO;
	if (result == 0 && d->sync.is_cancelled && is_before_table(d->sync.step))
		result = -ECANCELED;
	if (result < 0 && d->sync.step != ZONED_SYNC_TRIM) {
		sync_fail(d, result);
		return;
	}
	switch (d->sync.step) {
	case ZONED_SYNC_DATA:
	case ZONED_SYNC_PAGES:
		page_next(d);
		break;
	case ZONED_SYNC_TABLE:
		zoned_pages_end(d, true);
		trim_next(d);
		break;
	case ZONED_SYNC_TRIM:
		trim_next(d);
		break;
	case ZONED_SYNC_IDLE:
		ASSERT(!"a step of no round");
	}
}

void zoned_sync_join(struct zoned_device *d, struct zoned_io *z)
{
	sync_set_state(z, ZONED_WAITS_SYNC);
	list_push_back(&d->sync.waiting, &z->waiting);
	if (d->sync.step == ZONED_SYNC_IDLE)
		sync_begin(d);
}

void zoned_sync_cancel(struct zoned_device *d)
{
	d->sync.is_cancelled = true;
	backend_own_cancel(d->sync.own);
}

/* Its zones are let go: a DISCARD in the next round would hit what is written there until then. */
void zoned_sync_leave(struct zoned_device *d, const struct backend_io *io)
{
	uint32_t i, end;

	if (io->op != BACKEND_ZONE_MANAGE)
		return;
	for (zoned_zones_of(d, io, &i, &end); i < end; i++) {
		if (d->trim[i] != ZONED_TRIM_WANTED)
			continue;
		d->trim[i] = ZONED_TRIM_NONE;
		d->sync.trim_wanted_nr--;
	}
}
