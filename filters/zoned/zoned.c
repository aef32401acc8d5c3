/*
 * Requests of a zoned device (zoned.h). The queue's reactor. Owns nothing.
 *
 * Happy path. READ: what is written comes from below, the rest is zeroes. WRITE and APPEND to a
 * zone with a pointer: the table gives the place, or refuses; the answer from below goes to the
 * table. An action on a whole zone: the zone is held, so that no write begins; when those under way
 * have ended, the table changes and a round of zoned_sync makes it durable.
 *
 * Failure modes: a request that touches a zone with a pointer and another one too is refused, as by
 * real drives; the block layer makes none. A write that fails below: zone_table_write_done.
 *
 * Over zones below, writes and actions are zoned_below.c's.
 */
#include "filters/zoned/zoned.h"

#include <errno.h>
#include <linux/blkzoned.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/util.h"

static enum backend_submit answer(struct backend_io *io, int result)
{
	io->result = result;
	return BACKEND_DONE;
}

/* ---- reads and writes ---- */

/* How a range lies in the zones. */
enum zoned_range {
	ZONED_RANGE_ONE,	  /* in one zone with a pointer */
	ZONED_RANGE_CONVENTIONAL, /* in conventional ones alone */
	ZONED_RANGE_ACROSS,
};

static enum zoned_range range_of(const struct zoned_device *d, const struct backend_io *io)
{
	uint32_t first = zone_of(&d->table, io->offset_bytes);
	uint32_t last = zone_of(&d->table, io->offset_bytes + io->length_bytes - 1);

	if (zone_is_conventional(&d->table, first) && zone_is_conventional(&d->table, last))
		return ZONED_RANGE_CONVENTIONAL;
	return first == last ? ZONED_RANGE_ONE : ZONED_RANGE_ACROSS;
}

enum backend_submit zoned_pass_down(struct backend_io *io, uint32_t at_bytes, uint32_t length_bytes)
{
	const struct zoned_device *d = io->queue->device->priv;
	struct zoned_io *z = io->priv;

	__atomic_store_n(&z->state, (uint8_t)ZONED_BELOW, __ATOMIC_RELAXED);
	backend_piece(io->child, io, at_bytes, length_bytes,
		      d->data_at + io->offset_bytes + at_bytes);
	if (io->op == BACKEND_ZONE_APPEND)
		io->child->op = BACKEND_WRITE;
	io->child->zone = io->zone;
	return backend_child_submit(io->child);
}

/* What is below has answered: returns the request's result. */
static int zoned_read_end(struct backend_io *io)
{
	const struct zoned_io *z = io->priv;

	if (io->child->result < 0)
		return io->child->result;
	return backend_data_put_zeroes(io, z->readable_bytes, io->length_bytes - z->readable_bytes);
}

static enum backend_submit zoned_read(struct zoned_device *d, struct backend_io *io)
{
	struct zoned_io *z = io->priv;

	z->readable_bytes = (uint32_t)MIN(zone_table_readable(&d->table, io->offset_bytes),
					  (uint64_t)io->length_bytes);
	if (z->readable_bytes == 0)
		return answer(io, backend_data_put_zeroes(io, 0, io->length_bytes));
	if (zoned_pass_down(io, 0, z->readable_bytes) == BACKEND_QUEUED)
		return BACKEND_QUEUED;
	io->throttle_ns += io->child->throttle_ns;
	return answer(io, zoned_read_end(io));
}

static int write_end(struct zoned_device *d, struct backend_io *io)
{
	uint32_t idx = zone_table_write_done(&d->table, io->tag, io->child->result == 0);

	if (d->table.now[idx].is_held)
		zoned_held_look(d);
	return io->child->result;
}

static enum backend_submit zoned_write(struct zoned_device *d, struct backend_io *io)
{
	int ret;

	if (d->below.lane)
		return zoned_below_write(d, io);
	ret = io->op == BACKEND_ZONE_APPEND
		      ? zone_table_append(&d->table, io->tag, &io->offset_bytes, io->length_bytes)
		      : zone_table_write(&d->table, io->tag, io->offset_bytes, io->length_bytes);
	if (ret < 0)
		return answer(io, ret);
	if (zoned_pass_down(io, 0, io->length_bytes) == BACKEND_QUEUED)
		return BACKEND_QUEUED;
	io->throttle_ns += io->child->throttle_ns;
	return answer(io, write_end(d, io));
}

void zoned_child_done(struct backend_io *child)
{
	struct zoned_device *d = child->queue->parent->device->priv;
	struct backend_io *io = child->parent;
	int result;

	if (!io) {
		backend_own_ended(child);
		return;
	}
	io->throttle_ns += child->throttle_ns;
	if (io->op == BACKEND_READ)
		result = zoned_read_end(io);
	else if (io->op == BACKEND_ZONE_MANAGE)
		result = zoned_below_act_end(d, io);
	else if (d->below.lane) {
		zoned_below_write_done(d, io);
		return;
	} else
		result = write_end(d, io);
	backend_io_complete(io, result);
}

/* ---- actions on zones ---- */

static enum backend_submit zoned_report(struct zoned_device *d, struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes);
	uint32_t at_bytes = 0;
	struct blk_zone zone;
	int ret = 0;

	while (ret == 0 && idx < d->shape.zone_nr && io->length_bytes - at_bytes >= sizeof(zone)) {
		zone_table_report(&d->table, idx++, &zone);
		ret = backend_data_put(io, at_bytes, &zone, sizeof(zone));
		at_bytes += (uint32_t)sizeof(zone);
	}
	if (ret == 0 && at_bytes < io->length_bytes)
		ret = backend_data_put_zeroes(io, at_bytes, io->length_bytes - at_bytes);
	return answer(io, ret);
}

void zoned_zones_of(const struct zoned_device *d, const struct backend_io *io, uint32_t *ret_first,
		    uint32_t *ret_end)
{
	bool is_all = io->zone == BACKEND_ZONE_RESET_ALL;

	*ret_first = is_all ? d->shape.conventional_nr : zone_of(&d->table, io->offset_bytes);
	*ret_end = is_all ? d->shape.zone_nr : *ret_first + 1;
}

static void set_held(struct zoned_device *d, const struct backend_io *io, bool is_held)
{
	uint32_t i, end;

	for (zoned_zones_of(d, io, &i, &end); i < end; i++)
		d->table.now[i].is_held = is_held;
}

void zoned_let_go(struct zoned_device *d, const struct backend_io *io)
{
	if (io->op == BACKEND_ZONE_MANAGE)
		set_held(d, io, false);
}

/* Whether none of its zones has a write under way. */
static bool zones_are_quiet(const struct zoned_device *d, const struct backend_io *io)
{
	uint32_t i, end;

	for (zoned_zones_of(d, io, &i, &end); i < end; i++)
		if (d->table.now[i].under_way_nr > 0)
			return false;
	return true;
}

static void reset_zone(struct zoned_device *d, uint32_t idx)
{
	if (d->memory.zone[idx].condition == ZONE_EMPTY)
		return;
	if (d->memory.zone[idx].written_bytes > 0)
		zoned_sync_trim(d, idx);
	zone_table_reset(&d->table, idx);
	counter_add(&d->resets, 1);
}

/* The zones are held and quiet. */
static enum backend_submit change_zones(struct zoned_device *d, struct backend_io *io)
{
	uint32_t i, end;

	if (d->below.lane)
		return zoned_below_act(d, io);
	for (zoned_zones_of(d, io, &i, &end); i < end; i++) {
		if (io->zone != BACKEND_ZONE_FINISH) {
			reset_zone(d, i);
		} else {
			zone_table_finish(&d->table, i);
			counter_add(&d->finishes, 1);
		}
	}
	zoned_sync_join(d, io->priv);
	return BACKEND_QUEUED;
}

void zoned_held_look(struct zoned_device *d)
{
	struct list_node *next;

	for (struct list_node *n = d->held.next; n != &d->held; n = next) {
		struct zoned_io *z = list_entry(n, struct zoned_io, waiting);

		next = n->next;
		if (!zones_are_quiet(d, z->io))
			continue;
		list_remove(n);
		if (change_zones(d, z->io) == BACKEND_DONE)
			backend_io_complete(z->io, z->io->result);
	}
}

static bool is_any_held(const struct zoned_device *d, const struct backend_io *io)
{
	uint32_t i, end;

	for (zoned_zones_of(d, io, &i, &end); i < end; i++)
		if (d->table.now[i].is_held)
			return true;
	return false;
}

/* A RESET that would change nothing, also on disk: tools reset all zones of a new device. */
static bool is_reset_already(const struct zoned_device *d, const struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes), page = idx / ZONE_PAGE_ENTRIES;

	return io->zone == BACKEND_ZONE_RESET && d->memory.zone[idx].condition == ZONE_EMPTY &&
	       !d->pages.is_dirty[page] && !d->pages.is_now[page];
}

enum backend_submit zoned_change(struct zoned_device *d, struct backend_io *io)
{
	struct zoned_io *z = io->priv;

	if (is_any_held(d, io))
		return answer(io, -EIO);
	if (!d->below.lane && is_reset_already(d, io))
		return answer(io, 0);
	set_held(d, io, true);
	if (zones_are_quiet(d, io))
		return change_zones(d, io);
	__atomic_store_n(&z->state, (uint8_t)ZONED_HELD, __ATOMIC_RELAXED);
	list_push_back(&d->held, &z->waiting);
	return BACKEND_QUEUED;
}

static enum backend_submit zoned_manage(struct zoned_device *d, struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes);
	bool is_one = io->offset_bytes == zone_start(&d->table, idx) &&
		      !zone_is_conventional(&d->table, idx);

	switch ((enum backend_zone_action)io->zone) {
	case BACKEND_ZONE_REPORT:
		return zoned_report(d, io);
	case BACKEND_ZONE_RESET_ALL:
		return zoned_change(d, io);
	case BACKEND_ZONE_RESET:
	case BACKEND_ZONE_FINISH:
		return is_one ? zoned_change(d, io) : answer(io, -EIO);
	case BACKEND_ZONE_OPEN:
		return answer(io, is_one ? zone_table_open(&d->table, idx) : -EIO);
	case BACKEND_ZONE_CLOSE:
		return answer(io, is_one ? zone_table_close(&d->table, idx) : -EIO);
	case BACKEND_ZONE_ACTION_NR:
		break;
	}
	return answer(io, -EOPNOTSUPP);
}

/* ---- all of them ---- */

enum backend_submit zoned_submit(struct backend_io *io)
{
	struct zoned_device *d = io->queue->device->priv;

	if (__builtin_expect(d->is_lost, 0))
		return answer(io, -EIO);
	if (io->op == BACKEND_FLUSH && d->below.lane)
		return backend_forward_to(io, 0, io->offset_bytes);
	if (io->op == BACKEND_FLUSH) {
		zoned_sync_join(d, io->priv);
		return BACKEND_QUEUED;
	}
	if (io->op == BACKEND_ZONE_MANAGE)
		return d->below.lane ? zoned_below_manage(d, io) : zoned_manage(d, io);
	switch (range_of(d, io)) {
	case ZONED_RANGE_ONE:
		return io->op == BACKEND_READ ? zoned_read(d, io) : zoned_write(d, io);
	case ZONED_RANGE_CONVENTIONAL:
		if (io->op != BACKEND_ZONE_APPEND)
			return backend_forward_to(io, 0, d->data_at + io->offset_bytes);
		break;
	case ZONED_RANGE_ACROSS:
		break;
	}
	return answer(io, -EIO);
}

/*
 * A request that waits ends at once: what it waits for is cancelled too, and with the end of that
 * it would go below, where nobody cancels it any more.
 */
void zoned_cancel(struct backend_io *io)
{
	struct zoned_device *d = io->queue->device->priv;
	struct zoned_io *z = io->priv;

	z->is_cancelled = true;
	if (backend_child_cancel(io->child) || list_empty(&z->waiting))
		return;
	if (z->state == ZONED_SYNCS) {
		zoned_sync_cancel(d);
		return;
	}
	list_remove(&z->waiting);
	if (z->state == ZONED_WAITS_SYNC)
		zoned_sync_leave(d, io);
	zoned_let_go(d, io);
	backend_io_complete(io, -ECANCELED);
}
