/*
 * The last words of a zoned device, and its end. The control reactor, when no queue is open.
 *
 * Happy path: FLUSH of the child -> the pages that have changed -> FLUSH: the next start finds all
 * zones as they are, but none open. Failure modes: the child cannot be written: the table says what
 * it said after the last FLUSH, as after a power cut.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "filters/zoned/zoned_visit.h"

/* ---- visits ---- */

struct zoned_visit *zoned_visit_new(struct zoned_device *d, struct backend_visit *visit)
{
	struct zoned_visit *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->buf = aligned_alloc(ZONE_PAGE_BYTES, (size_t)2 * ZONE_PAGE_BYTES);
	if (!v->buf) {
		free(v);
		return NULL;
	}
	v->d = d;
	v->visit = visit;
	d->visit = v;
	return v;
}

static void zoned_visit_free(struct zoned_device *d)
{
	if (d->visit)
		free(d->visit->buf);
	free(d->visit);
	d->visit = NULL;
}

void zoned_visit_end(struct zoned_visit *v, int result, const char *words)
{
	struct backend_visit *visit = v->visit;

	if (words)
		backend_fail(v->d->device, result, "zoned: %s", words);
	zoned_visit_free(v->d);
	backend_visit_done(visit, result);
}

static void zoned_visit_io_ended(struct backend_visit *visit, int result)
{
	struct zoned_device *d = visit->device->priv;

	d->visit->then(d->visit, result);
}

void zoned_visit_io(struct zoned_visit *v, enum backend_op op, uint64_t offset, uint32_t bytes,
		    const char *doing, void (*then)(struct zoned_visit *v, int result))
{
	int ret;

	v->visit->doing = doing;
	v->then = then;
	ret = backend_visit_io(v->visit, 0, op, offset, v->buf, bytes, zoned_visit_io_ended);
	if (ret < 0)
		then(v, ret);
}

/* ---- close ---- */

static void zoned_closing_end(struct zoned_visit *v, int result)
{
	zoned_pages_end(v->d, result == 0);
	zoned_visit_end(v, result, NULL);
}

static void closing_page(struct zoned_visit *v, int result)
{
	uint64_t at;

	if (v->d->is_lost && result == 0)
		result = -EIO;
	if (result < 0)
		zoned_closing_end(v, result);
	else if (zoned_pages_next(v->d, v->buf, &at))
		zoned_visit_io(v, BACKEND_WRITE, at, ZONE_PAGE_BYTES, "writing the table of zones",
			       closing_page);
	else
		zoned_visit_io(v, BACKEND_FLUSH, 0, 0, "flushing the table of zones",
			       zoned_closing_end);
}

static void closing_flushed(struct zoned_visit *v, int result)
{
	zoned_has_lost(v->d);
	closing_page(v, result);
}

void zoned_close_async(struct backend_visit *visit)
{
	struct zoned_device *d = visit->device->priv;
	struct zoned_visit *v;

	if (d->is_read_only || d->is_lost || zoned_pages_are_clean(d)) {
		backend_visit_done(visit, d->is_lost ? -EIO : 0);
		return;
	}
	v = zoned_visit_new(d, visit);
	if (!v) {
		backend_visit_done(visit, -ENOMEM);
		return;
	}
	zoned_pages_begin(d);
	zoned_visit_io(v, BACKEND_FLUSH, 0, 0, "flushing the zones", closing_flushed);
}

void zoned_close(struct backend_device *device)
{
	struct zoned_device *d = device->priv;

	zoned_visit_free(d);
	zone_table_fini(&d->table);
	zoned_pages_free(&d->pages);
	free(d->trim);
	free(d->below.lane);
	free(d->below.compare);
	d->below.compare = NULL;
	d->trim = NULL;
	d->below.lane = NULL;
	if (d->device)
		zone_memory_free(&d->memory);
	if (d->stored_fd > 0)
		close(d->stored_fd);
	d->stored_fd = 0;
}
