/*
 * See zone_table.h. Owns `now`.
 *
 * Happy path of a write: check -> open the zone if it is not -> note -> move the pointer -> (full).
 * Failure modes: none that leaves anything behind; each check comes before the first change.
 */
#include "filters/zoned/zone_table.h"

#include <errno.h>
#include <linux/blkzoned.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/util.h"
#include "filters/zoned/zone_below.h"

#define ZONE_SECTOR_SHIFT 9

/* ---- conditions ---- */

static enum zone_condition condition_of(const struct zone_table *t, uint32_t idx)
{
	return (enum zone_condition)t->zone[idx].condition;
}

static void zone_count(struct zone_table *t, enum zone_condition condition, int by)
{
	__atomic_store_n(&t->nr[condition], t->nr[condition] + (uint32_t)by, __ATOMIC_RELAXED);
}

/* The one setter. */
static void set_condition(struct zone_table *t, uint32_t idx, enum zone_condition to)
{
	enum zone_condition from = condition_of(t, idx);

	if (from == to)
		return;
	if (from == ZONE_IMPLICIT)
		list_remove(&t->now[idx].open);
	if (to == ZONE_IMPLICIT)
		list_push_back(&t->implicit, &t->now[idx].open);
	zone_count(t, from, -1);
	zone_count(t, to, 1);
	__atomic_store_n(&t->zone[idx].condition, (uint32_t)to, __ATOMIC_RELEASE);
	if (from == ZONE_FULL || to == ZONE_FULL)
		t->changed(t, idx);
}

static void set_written(struct zone_table *t, uint32_t idx, uint64_t bytes)
{
	__atomic_store_n(&t->zone[idx].written_bytes, bytes, __ATOMIC_RELEASE);
	t->changed(t, idx);
}

/* What an open zone becomes when it is not open any more. */
static enum zone_condition condition_when_closed(const struct zone_table *t, uint32_t idx)
{
	return t->zone[idx].written_bytes ? ZONE_CLOSED : ZONE_EMPTY;
}

static bool is_open(enum zone_condition condition)
{
	return condition == ZONE_IMPLICIT || condition == ZONE_EXPLICIT;
}

static uint32_t open_nr(const struct zone_table *t)
{
	return t->nr[ZONE_IMPLICIT] + t->nr[ZONE_EXPLICIT];
}

static bool may_be_active(const struct zone_table *t)
{
	return t->shape.active_nr_max == 0 || t->shape.is_below ||
	       open_nr(t) + t->nr[ZONE_CLOSED] < t->shape.active_nr_max;
}

/* Closes the zone that a write has opened first, when there must be one less. */
static int make_room(struct zone_table *t)
{
	uint32_t idx;

	if (t->shape.open_nr_max == 0 || open_nr(t) < t->shape.open_nr_max)
		return 0;
	if (list_empty(&t->implicit))
		return t->shape.is_below ? 0 : -ETOOMANYREFS;
	idx = (uint32_t)(list_entry(t->implicit.next, struct zone_now, open) - t->now);
	set_condition(t, idx, condition_when_closed(t, idx));
	return 0;
}

/* To IMPLICIT or EXPLICIT; what is open is left, but for the kind. */
static int open_as(struct zone_table *t, uint32_t idx, enum zone_condition to)
{
	enum zone_condition from = condition_of(t, idx);
	int ret = 0;

	if (from == ZONE_FULL)
		return -EIO;
	if (from == ZONE_EXPLICIT || from == to)
		return 0;
	/* Before another zone is closed for it, which may make that one EMPTY. */
	if (from == ZONE_EMPTY && !may_be_active(t))
		return -EOVERFLOW;
	if (!is_open(from))
		ret = make_room(t);
	if (ret == 0)
		set_condition(t, idx, to);
	return ret;
}

/* ---- writes of daemons before ---- */

static unsigned old_nr(const struct zone_table *t)
{
	return t->shape.depth * ZONE_OLD_FACTOR;
}

/* They are this process's business no more: a whole zone begins anew or has ended. */
static void forget_old(struct zone_table *t, uint32_t idx)
{
	for (unsigned i = 0; i < old_nr(t); i++)
		if (t->old[i].state && zone_of(t, t->old[i].offset_bytes) == idx)
			t->old[i].state = ZONE_WRITE_NONE;
	for (unsigned i = 0; i < t->shape.depth; i++)
		if (t->write[i].state == ZONE_WRITE_DONE &&
		    zone_of(t, t->write[i].offset_bytes) == idx)
			t->write[i].state = ZONE_WRITE_NONE;
}

static struct zone_write *find_old_write(struct zone_table *t, uint64_t offset_bytes,
					 uint32_t length_bytes)
{
	for (unsigned i = 0; i < old_nr(t); i++) {
		struct zone_write *w = &t->old[i];

		if (w->state && !w->is_append && w->offset_bytes == offset_bytes &&
		    w->length_bytes == length_bytes)
			return w;
	}
	return NULL;
}

/* Only one that was not answered below: its place is nobody's. */
static struct zone_write *find_old_append(struct zone_table *t, uint32_t idx, uint32_t length_bytes)
{
	for (unsigned i = 0; i < old_nr(t); i++) {
		struct zone_write *w = &t->old[i];

		if (w->state == ZONE_WRITE_UNDER_WAY && w->is_append &&
		    zone_of(t, w->offset_bytes) == idx && w->length_bytes == length_bytes)
			return w;
	}
	return NULL;
}

/* Newer ones stand in front; what falls off the end came again in none of several lives. */
static void push_old(struct zone_table *t, const struct zone_write *w)
{
	memmove(t->old + 1, t->old, (old_nr(t) - 1) * sizeof(*t->old));
	t->old[0] = *w;
}

/* A kill in between leaves a write in both places, which is let through once more at worst. */
static void take_over_writes(struct zone_table *t)
{
	for (unsigned tag = 0; tag < t->shape.depth; tag++) {
		struct zone_write *w = &t->write[tag];

		if (w->state)
			push_old(t, w);
		w->state = ZONE_WRITE_NONE;
	}
}

/* ---- init ---- */

static bool zone_is_sane(const struct zone_table *t, const struct zone_kept *z)
{
	return z->condition < ZONE_CONDITION_NR && z->written_bytes <= t->shape.capacity_bytes;
}

/* The condition that goes with what is written; a kill may have come between the two. */
static enum zone_condition settled_condition(const struct zone_table *t, const struct zone_kept *z)
{
	enum zone_condition condition = (enum zone_condition)z->condition;

	if (condition == ZONE_FULL || z->written_bytes == t->shape.capacity_bytes)
		return ZONE_FULL;
	if (condition == ZONE_EMPTY && z->written_bytes > 0)
		return ZONE_CLOSED;
	if (condition == ZONE_CLOSED && z->written_bytes == 0)
		return ZONE_EMPTY;
	if (is_open(condition) && t->shape.open_nr_max && !t->shape.is_below &&
	    open_nr(t) == t->shape.open_nr_max)
		return z->written_bytes ? ZONE_CLOSED : ZONE_EMPTY;
	return condition;
}

static void settle_zone(struct zone_table *t, uint32_t idx)
{
	struct zone_kept *z = &t->zone[idx];
	enum zone_condition to;

	list_init(&t->now[idx].open);
	if (zone_is_conventional(t, idx))
		return;
	if (!zone_is_sane(t, z))
		*z = (struct zone_kept){ .condition = ZONE_FULL };
	to = settled_condition(t, z);
	z->condition = to;
	zone_count(t, to, 1);
	if (to == ZONE_IMPLICIT)
		list_push_back(&t->implicit, &t->now[idx].open);
}

int zone_table_init(struct zone_table *t, const struct zone_shape *shape, struct zone_kept *zone,
		    struct zone_write *write, struct zone_write *old, bool is_again,
		    void (*changed)(struct zone_table *t, uint32_t idx))
{
	*t = (struct zone_table){
		.shape = *shape, .zone = zone, .write = write, .old = old, .changed = changed
	};
	list_init(&t->implicit);
	t->now = calloc(shape->zone_nr, sizeof(*t->now));
	if (!t->now)
		return -ENOMEM;
	for (uint32_t i = 0; i < shape->zone_nr; i++)
		settle_zone(t, i);
	if (is_again)
		take_over_writes(t);
	return 0;
}

void zone_table_fini(struct zone_table *t)
{
	free(t->now);
	t->now = NULL;
}

/* ---- writes ---- */

static int zone_refuse(struct zone_table *t, int err)
{
	counter_add(&t->refused, 1);
	return err;
}

static void zone_note(struct zone_table *t, unsigned tag, uint64_t offset_bytes,
		      uint32_t length_bytes, bool is_append)
{
	struct zone_write *w = &t->write[tag];

	/* In this order: what is under way is whole. */
	__atomic_store_n(&w->state, ZONE_WRITE_NONE, __ATOMIC_RELEASE);
	__atomic_store_n(&w->offset_bytes, offset_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&w->length_bytes, length_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&w->is_append, is_append, __ATOMIC_RELEASE);
	__atomic_store_n(&w->state, ZONE_WRITE_UNDER_WAY, __ATOMIC_RELEASE);
	t->now[zone_of(t, offset_bytes)].under_way_nr++;
	t->under_way_nr++;
}

/* The pointer moves to the end of this write, unless it is there. */
static void zone_advance(struct zone_table *t, uint32_t idx, uint64_t end_bytes)
{
	if (end_bytes > t->zone[idx].written_bytes)
		set_written(t, idx, end_bytes);
	if (t->zone[idx].written_bytes == t->shape.capacity_bytes)
		set_condition(t, idx, ZONE_FULL);
}

static int write_again(struct zone_table *t, unsigned tag, struct zone_write *w)
{
	uint32_t idx = zone_of(t, w->offset_bytes);
	uint64_t offset_bytes = w->offset_bytes;
	uint32_t length_bytes = w->length_bytes;

	zone_note(t, tag, offset_bytes, length_bytes, w->is_append);
	w->state = ZONE_WRITE_NONE;
	zone_advance(t, idx, offset_bytes - zone_start(t, idx) + length_bytes);
	counter_add(&t->redone, 1);
	return 0;
}

static bool has_room(const struct zone_table *t, uint32_t idx, uint32_t length_bytes)
{
	return condition_of(t, idx) != ZONE_FULL &&
	       length_bytes <= t->shape.capacity_bytes - t->zone[idx].written_bytes;
}

/* At the pointer. */
static int write_next(struct zone_table *t, unsigned tag, uint32_t idx, uint32_t length_bytes,
		      bool is_append)
{
	uint64_t at_bytes = t->zone[idx].written_bytes;
	int ret = has_room(t, idx, length_bytes) ? open_as(t, idx, ZONE_IMPLICIT) : -EIO;

	if (ret < 0)
		return zone_refuse(t, ret);
	zone_note(t, tag, zone_start(t, idx) + at_bytes, length_bytes, is_append);
	zone_advance(t, idx, at_bytes + length_bytes);
	return 0;
}

int zone_table_write(struct zone_table *t, unsigned tag, uint64_t offset_bytes,
		     uint32_t length_bytes)
{
	uint32_t idx = zone_of(t, offset_bytes);
	struct zone_write *w;

	if (t->now[idx].is_held)
		return zone_refuse(t, -EIO);
	if (offset_bytes - zone_start(t, idx) == t->zone[idx].written_bytes)
		return write_next(t, tag, idx, length_bytes, false);
	w = find_old_write(t, offset_bytes, length_bytes);
	return w ? write_again(t, tag, w) : zone_refuse(t, -EIO);
}

int zone_table_append(struct zone_table *t, unsigned tag, uint64_t *offset_bytes,
		      uint32_t length_bytes)
{
	uint32_t idx = zone_of(t, *offset_bytes);
	struct zone_write *w;
	int ret;

	if (t->now[idx].is_held || *offset_bytes != zone_start(t, idx) ||
	    zone_is_conventional(t, idx))
		return zone_refuse(t, -EIO);
	w = t->shape.is_below ? NULL : find_old_append(t, idx, length_bytes);
	ret = w ? write_again(t, tag, w) : write_next(t, tag, idx, length_bytes, true);
	if (ret == 0)
		*offset_bytes = t->write[tag].offset_bytes;
	return ret;
}

/* The end of a failed write is the pointer, so that none follows it. */
static void give_back(struct zone_table *t, uint32_t idx, const struct zone_write *w)
{
	uint64_t at_bytes = w->offset_bytes - zone_start(t, idx);

	if (at_bytes + w->length_bytes != t->zone[idx].written_bytes)
		return;
	/* Full by this write: it needs again what it has given up with that. */
	if (condition_of(t, idx) == ZONE_FULL && at_bytes > 0 && !may_be_active(t))
		return;
	set_written(t, idx, at_bytes);
	if (!is_open(condition_of(t, idx)))
		set_condition(t, idx, condition_when_closed(t, idx));
}

uint32_t zone_table_write_done(struct zone_table *t, unsigned tag, bool is_good)
{
	struct zone_write *w = &t->write[tag];
	uint32_t idx = zone_of(t, w->offset_bytes);

	ASSERT(w->state == ZONE_WRITE_UNDER_WAY && t->now[idx].under_way_nr > 0);
	if (!is_good)
		give_back(t, idx, w);
	__atomic_store_n(&w->state, is_good ? ZONE_WRITE_DONE : ZONE_WRITE_NONE, __ATOMIC_RELEASE);
	t->now[idx].under_way_nr--;
	t->under_way_nr--;
	return idx;
}

/* ---- zones below ---- */

/* Of such a write something is there. */
static bool is_written_below(const struct zone_table *t, const struct zone_write *w)
{
	uint64_t readable_bytes;

	if (w->offset_bytes >= t->shape.zone_nr * t->shape.zone_bytes)
		return false;
	readable_bytes = zone_table_readable(t, w->offset_bytes);
	return w->is_append ? w->state == ZONE_WRITE_UNDER_WAY && readable_bytes >= w->length_bytes
			    : readable_bytes > 0;
}

unsigned zone_table_forget_unwritten(struct zone_table *t)
{
	unsigned left_nr = 0;

	for (unsigned i = 0; i < old_nr(t); i++) {
		struct zone_write *w = &t->old[i];

		if (w->state && !is_written_below(t, w))
			w->state = ZONE_WRITE_NONE;
		left_nr += w->state != ZONE_WRITE_NONE;
	}
	return left_nr;
}

struct zone_write *zone_table_old_append(struct zone_table *t, uint32_t idx, uint32_t length_bytes,
					 unsigned nr)
{
	for (unsigned i = 0; i < old_nr(t); i++) {
		struct zone_write *w = &t->old[i];

		if (w->state && w->is_append && zone_of(t, w->offset_bytes) == idx &&
		    w->length_bytes == length_bytes && nr-- == 0)
			return w;
	}
	return NULL;
}

struct zone_write *zone_table_old_of_full(struct zone_table *t, uint64_t offset_bytes,
					  uint32_t length_bytes)
{
	struct zone_write *w = find_old_write(t, offset_bytes, length_bytes);

	return w && w->state == ZONE_WRITE_UNDER_WAY &&
			       condition_of(t, zone_of(t, offset_bytes)) == ZONE_FULL
		       ? w
		       : NULL;
}

void zone_table_found_again(struct zone_table *t, unsigned tag, struct zone_write *w,
			    uint64_t *offset_bytes)
{
	*offset_bytes = w->offset_bytes;
	write_again(t, tag, w);
}

int zone_table_learn(struct zone_table *t, uint32_t idx, const struct blk_zone *zone)
{
	struct zone_kept found;
	int ret = zone_below_parse(&t->shape, idx, zone, &found);

	if (ret == 0 && found.is_conventional != t->zone[idx].is_conventional)
		ret = -EIO;
	if (ret < 0 || found.is_conventional)
		return ret;
	if (found.written_bytes != t->zone[idx].written_bytes)
		set_written(t, idx, found.written_bytes);
	set_condition(t, idx, (enum zone_condition)found.condition);
	return 0;
}

uint64_t zone_table_readable(const struct zone_table *t, uint64_t offset_bytes)
{
	uint32_t idx = zone_of(t, offset_bytes);
	uint64_t at_bytes = offset_bytes - zone_start(t, idx);
	uint64_t written_bytes = t->zone[idx].written_bytes;

	return written_bytes > at_bytes ? written_bytes - at_bytes : 0;
}

/* ---- actions on a zone ---- */

int zone_table_open(struct zone_table *t, uint32_t idx)
{
	return zone_is_conventional(t, idx) ? -EIO : open_as(t, idx, ZONE_EXPLICIT);
}

int zone_table_close(struct zone_table *t, uint32_t idx)
{
	enum zone_condition condition = condition_of(t, idx);

	if (zone_is_conventional(t, idx))
		return -EIO;
	if (is_open(condition))
		set_condition(t, idx, condition_when_closed(t, idx));
	return is_open(condition) || condition == ZONE_CLOSED ? 0 : -EIO;
}

int zone_table_finish(struct zone_table *t, uint32_t idx)
{
	ASSERT(t->now[idx].under_way_nr == 0);
	if (zone_is_conventional(t, idx))
		return -EIO;
	forget_old(t, idx);
	set_condition(t, idx, ZONE_FULL);
	return 0;
}

int zone_table_reset(struct zone_table *t, uint32_t idx)
{
	ASSERT(t->now[idx].under_way_nr == 0);
	if (zone_is_conventional(t, idx))
		return -EIO;
	forget_old(t, idx);
	/* In this order: killed in between it is what it was (settled_condition). */
	set_condition(t, idx, ZONE_EMPTY);
	if (t->zone[idx].written_bytes)
		set_written(t, idx, 0);
	return 0;
}

static uint8_t cond_of(enum zone_condition condition)
{
	static const uint8_t cond[ZONE_CONDITION_NR] = {
		[ZONE_EMPTY] = BLK_ZONE_COND_EMPTY,	  [ZONE_IMPLICIT] = BLK_ZONE_COND_IMP_OPEN,
		[ZONE_EXPLICIT] = BLK_ZONE_COND_EXP_OPEN, [ZONE_CLOSED] = BLK_ZONE_COND_CLOSED,
		[ZONE_FULL] = BLK_ZONE_COND_FULL,
	};

	return cond[condition];
}

void zone_table_report(const struct zone_table *t, uint32_t idx, struct blk_zone *ret_zone)
{
	const struct zone_kept *z = &t->zone[idx];
	uint64_t start = zone_start(t, idx) >> ZONE_SECTOR_SHIFT;
	uint64_t len = t->shape.zone_bytes >> ZONE_SECTOR_SHIFT;

	*ret_zone = (struct blk_zone){ .start = start, .len = len, .capacity = len };
	if (zone_is_conventional(t, idx)) {
		ret_zone->type = BLK_ZONE_TYPE_CONVENTIONAL;
		ret_zone->cond = BLK_ZONE_COND_NOT_WP;
		ret_zone->wp = UINT64_MAX;
		return;
	}
	ret_zone->type = BLK_ZONE_TYPE_SEQWRITE_REQ;
	ret_zone->cond = cond_of((enum zone_condition)z->condition);
	ret_zone->capacity = t->shape.capacity_bytes >> ZONE_SECTOR_SHIFT;
	ret_zone->wp = z->condition == ZONE_FULL ? start + len
						 : start + (z->written_bytes >> ZONE_SECTOR_SHIFT);
}
