/*
 * Writes and actions of a zoned device over zones below (zoned.h): a zoned block device. The
 * queue's reactor. Owns the lanes' lists.
 *
 * Happy path of a write: its turn -> the table gives the place -> the child -> the next one's turn.
 * One write of a zone is with the child at a time: the child wants them in order, what is on the
 * way there may be overtaken (a scheduler; a bio that would have had to wait and is submitted again
 * from another thread), and an append knows its place only when the write before it has succeeded,
 * since no program can ask a block device to append. So does the kernel with zones that it plugs
 * (block/blk-zoned.c, disk_zone_wplug_add_bio). Zones do not wait for each other.
 *
 * Happy path of an action: the child is asked; when it has done it, the table says so too. A report
 * is the child's; what it says of zones that have not changed meanwhile is taken into the table.
 *
 * Failure modes: a write fails below: how far the zone is written is asked there (a part of it may
 * be), and writes of the zone wait for the answer; without an answer they fail, and the next one
 * asks again. An action fails below: the same. Somebody else has changed zones of the device below:
 * seen with the first write that fails, or the next report.
 */
#include <errno.h>
#include <linux/blkzoned.h>

#include "base/counter.h"
#include "base/util.h"
#include "filters/zoned/zoned.h"

_Static_assert(sizeof(struct blk_zone) <= ZONE_PAGE_BYTES, "an own request asks for one");

static void zone_has_changed(struct zoned_device *d, uint32_t idx)
{
	d->below.lane[idx].changed_at = ++d->below.clock;
}

/* ---- asking how far a zone is written ---- */

static void lane_next(struct zoned_device *d, uint32_t idx);
static void ask_ended(struct backend_own *own, int result);

static uint32_t lane_idx(const struct zoned_device *d, const struct zoned_lane *lane)
{
	return (uint32_t)(lane - d->below.lane);
}

/* The first one that wants to be. */
static void ask_begin(struct zoned_device *d)
{
	struct zoned_lane *lane = list_entry(d->below.asking.next, struct zoned_lane, asking);

	d->below.asked_at = d->below.clock;
	backend_own_submit(d->sync.own, 0, BACKEND_ZONE_MANAGE,
			   zone_start(&d->table, lane_idx(d, lane)), NULL,
			   (uint32_t)sizeof(struct blk_zone), ask_ended);
}

static void zone_is_unsure(struct zoned_device *d, uint32_t idx)
{
	struct zoned_lane *lane = &d->below.lane[idx];
	bool is_idle = list_empty(&d->below.asking);

	if (zone_is_conventional(&d->table, idx))
		return;
	lane->is_unsure = true;
	if (!list_empty(&lane->asking))
		return;
	list_push_back(&d->below.asking, &lane->asking);
	if (is_idle)
		ask_begin(d);
}

/* Nobody knows where they would have to begin. */
static void lane_fail(struct zoned_device *d, uint32_t idx, int err)
{
	struct list_node failing, *node;

	list_init(&failing);
	list_splice(&failing, &d->below.lane[idx].waiting);
	while ((node = list_pop_front(&failing)))
		backend_io_complete(list_entry(node, struct zoned_io, waiting)->io, err);
}

static void ask_ended(struct backend_own *own, int result)
{
	struct zoned_device *d = own->queue->device->priv;
	struct zoned_lane *lane = list_entry(d->below.asking.next, struct zoned_lane, asking);
	uint32_t idx = lane_idx(d, lane);

	list_remove(&lane->asking);
	if (lane->changed_at > d->below.asked_at) {
		/* An action meanwhile has made it sure, or it is asked again. */
		if (lane->is_unsure)
			zone_is_unsure(d, idx);
	} else {
		if (result == 0)
			result = zone_table_learn(&d->table, idx, own->buf);
		lane->is_unsure = result < 0;
	}
	if (!list_empty(&d->below.asking) && !own->under_way)
		ask_begin(d);
	if (lane->is_unsure && list_empty(&lane->asking))
		lane_fail(d, idx, result);
	lane_next(d, idx);
}

bool zoned_below_rest(struct backend_queue *queue)
{
	const struct zoned_device *d = queue->device->priv;

	return !d->below.lane || list_empty(&d->below.asking);
}

/* ---- writes ---- */

static bool lane_is_busy(const struct zoned_device *d, uint32_t idx)
{
	return d->table.now[idx].under_way_nr > 0 || d->below.lane[idx].is_unsure;
}

static void write_ended(struct zoned_device *d, uint32_t idx, unsigned tag, int result)
{
	zone_table_write_done(&d->table, tag, result == 0);
	zone_has_changed(d, idx);
	if (result < 0)
		zone_is_unsure(d, idx);
}

enum backend_submit zoned_below_ended(struct zoned_device *d, struct backend_io *io, int result)
{
	write_ended(d, zone_of(&d->table, io->offset_bytes), io->tag, result);
	io->result = result;
	return BACKEND_DONE;
}

/* It has its place, and so much of it is there. */
static enum backend_submit write_pass(struct zoned_device *d, struct backend_io *io,
				      uint32_t written_bytes)
{
	if (written_bytes == io->length_bytes)
		return zoned_below_ended(d, io, 0);
	if (zoned_pass_down(io, written_bytes, io->length_bytes - written_bytes) == BACKEND_QUEUED)
		return BACKEND_QUEUED;
	io->throttle_ns += io->child->throttle_ns;
	return zoned_below_ended(d, io, io->child->result);
}

enum backend_submit zoned_below_append(struct zoned_device *d, struct backend_io *io)
{
	io->result = zone_table_append(&d->table, io->tag, &io->offset_bytes, io->length_bytes);
	return io->result < 0 ? BACKEND_DONE : write_pass(d, io, 0);
}

/* Its turn has come. */
static enum backend_submit write_turn(struct zoned_device *d, struct backend_io *io)
{
	/* Of a write of the daemon before that comes again. */
	uint32_t written_bytes = (uint32_t)MIN(zone_table_readable(&d->table, io->offset_bytes),
					       (uint64_t)io->length_bytes);
	enum backend_submit submit;

	if (d->below.compare && zoned_again_begin(d, io, &submit))
		return submit;
	if (io->op == BACKEND_ZONE_APPEND)
		return zoned_below_append(d, io);
	io->result = zone_table_write(&d->table, io->tag, io->offset_bytes, io->length_bytes);
	return io->result < 0 ? BACKEND_DONE : write_pass(d, io, written_bytes);
}

/* Until one of them is with the child. */
static void lane_next(struct zoned_device *d, uint32_t idx)
{
	struct zoned_lane *lane = &d->below.lane[idx];

	while (!lane_is_busy(d, idx) && !list_empty(&lane->waiting)) {
		struct zoned_io *z =
			list_entry(list_pop_front(&lane->waiting), struct zoned_io, waiting);

		if (write_turn(d, z->io) == BACKEND_DONE)
			backend_io_complete(z->io, z->io->result);
	}
}

enum backend_submit zoned_below_write(struct zoned_device *d, struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes);
	struct zoned_lane *lane = &d->below.lane[idx];
	struct zoned_io *z = io->priv;

	if (!lane_is_busy(d, idx) && list_empty(&lane->waiting))
		return write_turn(d, io);
	__atomic_store_n(&z->state, (uint8_t)ZONED_WAITS_TURN, __ATOMIC_RELAXED);
	list_push_back(&lane->waiting, &z->waiting);
	if (lane->is_unsure)
		zone_is_unsure(d, idx);
	return BACKEND_QUEUED;
}

void zoned_below_write_done(struct zoned_device *d, struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes);
	const struct zoned_io *z = io->priv;

	if (!z->old)
		zoned_below_ended(d, io, io->child->result);
	else if (zoned_again_read(d, io) == BACKEND_QUEUED)
		return;
	lane_next(d, idx);
	if (d->table.now[idx].is_held)
		zoned_held_look(d);
	backend_io_complete(io, io->result);
}

/* ---- actions ---- */

/* The report has come: of what has changed since it was asked for, it may say how it was. */
static void report_learn(struct zoned_device *d, const struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes);
	const struct zoned_io *z = io->priv;
	const struct blk_zone *zone = io->buf;

	if (!backend_io_in_memory(io))
		return;
	for (uint32_t nr = io->length_bytes / BACKEND_ZONE_REPORT_BYTES;
	     nr > 0 && idx < d->shape.zone_nr; nr--, idx++, zone++) {
		const struct zone_now *now = &d->table.now[idx];

		if (now->under_way_nr == 0 && !now->is_held &&
		    d->below.lane[idx].changed_at <= z->asked_at)
			zone_table_learn(&d->table, idx, zone);
	}
}

/* The child has done it: so does the table. */
static void act_on_table(struct zoned_device *d, const struct backend_io *io, uint32_t idx)
{
	switch ((enum backend_zone_action)io->zone) {
	case BACKEND_ZONE_RESET:
	case BACKEND_ZONE_RESET_ALL:
		if (d->memory.zone[idx].condition != ZONE_EMPTY)
			counter_add(&d->resets, 1);
		zone_table_reset(&d->table, idx);
		d->below.lane[idx].is_unsure = false;
		break;
	case BACKEND_ZONE_FINISH:
		zone_table_finish(&d->table, idx);
		d->below.lane[idx].is_unsure = false;
		counter_add(&d->finishes, 1);
		break;
	case BACKEND_ZONE_OPEN:
		zone_table_open(&d->table, idx);
		break;
	case BACKEND_ZONE_CLOSE:
		zone_table_close(&d->table, idx);
		break;
	case BACKEND_ZONE_REPORT:
	case BACKEND_ZONE_ACTION_NR:
		break;
	}
}

static bool is_change(const struct backend_io *io)
{
	return io->zone == BACKEND_ZONE_RESET || io->zone == BACKEND_ZONE_RESET_ALL ||
	       io->zone == BACKEND_ZONE_FINISH;
}

int zoned_below_act_end(struct zoned_device *d, struct backend_io *io)
{
	int result = io->child->result;
	uint32_t i, end;

	if (io->zone == BACKEND_ZONE_REPORT) {
		if (result == 0)
			report_learn(d, io);
		return result;
	}
	for (zoned_zones_of(d, io, &i, &end); i < end; i++) {
		if (zone_is_conventional(&d->table, i))
			continue;
		zone_has_changed(d, i);
		if (result == 0)
			act_on_table(d, io, i);
		else
			zone_is_unsure(d, i);
	}
	if (is_change(io))
		zoned_let_go(d, io);
	return result;
}

enum backend_submit zoned_below_act(struct zoned_device *d, struct backend_io *io)
{
	if (zoned_pass_down(io, 0, io->length_bytes) == BACKEND_QUEUED)
		return BACKEND_QUEUED;
	io->throttle_ns += io->child->throttle_ns;
	io->result = zoned_below_act_end(d, io);
	return BACKEND_DONE;
}

enum backend_submit zoned_below_manage(struct zoned_device *d, struct backend_io *io)
{
	uint32_t idx = zone_of(&d->table, io->offset_bytes);
	struct zoned_io *z = io->priv;

	if (io->zone == BACKEND_ZONE_RESET_ALL)
		return zoned_change(d, io);
	if (io->zone != BACKEND_ZONE_REPORT && (io->offset_bytes != zone_start(&d->table, idx) ||
						zone_is_conventional(&d->table, idx))) {
		io->result = -EIO;
		return BACKEND_DONE;
	}
	z->asked_at = d->below.clock;
	return is_change(io) ? zoned_change(d, io) : zoned_below_act(d, io);
}
