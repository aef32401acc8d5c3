/*
 * Writes over zones below that the driver sends again after the death of a daemon, and of which the
 * write pointer does not say whether they are there (zoned.h). The queue's reactor. Owns nothing.
 *
 * An append that the dead daemon had under way may be below as a whole, and cannot be written to
 * its place once more. Nothing but its bytes says which one it was: several of one length may come
 * again, of which only one had begun. Of a zone that is full, or cannot be written any more, nobody
 * knows how far it is written: so it is with writes there.
 *
 * Happy path: what it had under way in the zone with the length of this one -> read from below,
 * page by page -> the same bytes: this one is answered with that place. Meanwhile the zone has a
 * write under way, as far as others can tell.
 *
 * Failure modes: other bytes, or none that can be read: the next one with that length is compared;
 * when there is none left, it is a new append. A write fails then. It is cancelled: it reads no
 * further, and fails, unless all of it has been found by then.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "filters/zoned/zoned.h"

static uint32_t page_bytes(const struct zoned_io *z)
{
	return MIN(z->io->length_bytes - z->compared_bytes, ZONE_PAGE_BYTES);
}

static enum backend_submit read_page(const struct zoned_device *d, struct zoned_io *z)
{
	struct backend_io *child = z->io->child;

	backend_piece(child, z->io, 0, page_bytes(z), z->old->offset_bytes + z->compared_bytes);
	child->op = BACKEND_READ;
	child->flags = 0;
	child->buf = d->below.compare + (size_t)z->io->tag * ZONE_PAGE_BYTES;
	child->buf_index = -1;
	return backend_child_submit(child);
}

static bool page_is_same(const struct zoned_device *d, struct zoned_io *z)
{
	uint8_t wanted[ZONE_PAGE_BYTES];

	return z->io->child->result == 0 &&
	       backend_data_get(z->io, z->compared_bytes, wanted, page_bytes(z)) == 0 &&
	       memcmp(wanted, d->below.compare + (size_t)z->io->tag * ZONE_PAGE_BYTES,
		      page_bytes(z)) == 0;
}

static void take_old(struct zoned_device *d, struct zoned_io *z, uint32_t nr)
{
	struct zone_table *t = &d->table;

	if (z->io->op == BACKEND_ZONE_APPEND)
		z->old = zone_table_old_append(t, zone_of(t, z->io->offset_bytes),
					       z->io->length_bytes, nr);
	else
		z->old = nr > 0 ? NULL
				: zone_table_old_of_full(t, z->io->offset_bytes,
							 z->io->length_bytes);
	z->old_nr = nr;
	z->compared_bytes = 0;
}

/* by 1: as by a write that is under way; by -1: it has ended. */
static void hold_zone(struct zoned_device *d, const struct zoned_io *z, int by)
{
	d->table.now[zone_of(&d->table, z->io->offset_bytes)].under_way_nr += (uint32_t)by;
	d->table.under_way_nr += (uint32_t)by;
}

/* All of it is there. */
static enum backend_submit again_found(struct zoned_device *d, struct zoned_io *z)
{
	hold_zone(d, z, -1);
	zone_table_found_again(&d->table, z->io->tag, z->old, &z->io->offset_bytes);
	z->old = NULL;
	return zoned_below_ended(d, z->io, 0);
}

/* It is not there, or nobody wants to know any more. */
static enum backend_submit again_not_found(struct zoned_device *d, struct zoned_io *z)
{
	struct backend_io *io = z->io;

	hold_zone(d, z, -1);
	z->old = NULL;
	if (io->op == BACKEND_ZONE_APPEND && !z->is_cancelled)
		return zoned_below_append(d, io);
	io->result = z->is_cancelled ? -ECANCELED : -EIO;
	return BACKEND_DONE;
}

enum backend_submit zoned_again_read(struct zoned_device *d, struct backend_io *io)
{
	struct zoned_io *z = io->priv;

	do {
		if (!page_is_same(d, z)) {
			take_old(d, z, z->old_nr + 1);
		} else {
			z->compared_bytes += page_bytes(z);
			if (z->compared_bytes == io->length_bytes)
				return again_found(d, z);
		}
		if (!z->old || z->is_cancelled)
			return again_not_found(d, z);
	} while (read_page(d, z) == BACKEND_DONE);
	return BACKEND_QUEUED;
}

bool zoned_again_begin(struct zoned_device *d, struct backend_io *io,
		       enum backend_submit *ret_submit)
{
	struct zoned_io *z = io->priv;
	uint32_t idx = zone_of(&d->table, io->offset_bytes);

	/* What the table refuses anyway. */
	if (d->table.now[idx].is_held ||
	    (io->op == BACKEND_ZONE_APPEND && io->offset_bytes != zone_start(&d->table, idx)))
		return false;
	take_old(d, z, 0);
	if (!z->old)
		return false;
	z->is_cancelled = false;
	hold_zone(d, z, 1);
	__atomic_store_n(&z->state, (uint8_t)ZONED_BELOW, __ATOMIC_RELAXED);
	*ret_submit = read_page(d, z) == BACKEND_QUEUED ? BACKEND_QUEUED : zoned_again_read(d, io);
	return true;
}
