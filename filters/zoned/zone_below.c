/*
 * See zone_below.h. Owns nothing; any thread.
 *
 * Sources: linux/blkzoned.h; block/blk-zoned.c (blk_revalidate_seq_zone), which wants all zones of
 * a device to have one size and all but conventional ones one capacity.
 */
#include "filters/zoned/zone_below.h"

#include <errno.h>
#include <linux/blkzoned.h>

#define ZONE_BELOW_SHIFT 9

static enum zone_condition condition_below(unsigned cond)
{
	switch (cond) {
	case BLK_ZONE_COND_EMPTY:
		return ZONE_EMPTY;
	case BLK_ZONE_COND_IMP_OPEN:
		return ZONE_IMPLICIT;
	case BLK_ZONE_COND_EXP_OPEN:
		return ZONE_EXPLICIT;
	case BLK_ZONE_COND_CLOSED:
		return ZONE_CLOSED;
	default: /* FULL, READONLY, OFFLINE, those to come */
		return ZONE_FULL;
	}
}

int zone_below_parse(const struct zone_shape *shape, uint32_t idx, const struct blk_zone *zone,
		     struct zone_kept *ret_kept)
{
	uint64_t start = ((uint64_t)idx * shape->zone_bytes) >> ZONE_BELOW_SHIFT;
	enum zone_condition condition = condition_below(zone->cond);
	uint64_t written_bytes = shape->capacity_bytes;

	if (zone->start != start || zone->len != shape->zone_bytes >> ZONE_BELOW_SHIFT)
		return -EIO;
	if (zone->type == BLK_ZONE_TYPE_CONVENTIONAL) {
		*ret_kept = (struct zone_kept){ .is_conventional = 1 };
		return 0;
	}
	if (condition == ZONE_EMPTY)
		written_bytes = 0;
	else if (condition != ZONE_FULL) {
		if (zone->wp < start || zone->wp - start > zone->len)
			return -EIO;
		written_bytes = (zone->wp - start) << ZONE_BELOW_SHIFT;
	}
	if (written_bytes > shape->capacity_bytes)
		return -EIO;
	*ret_kept = (struct zone_kept){ .written_bytes = written_bytes, .condition = condition };
	return 0;
}

static int below_refuse(struct zone_below_found *found, const char *words)
{
	found->words = words;
	return -EINVAL;
}

int zone_below_first_look(struct zone_below_found *found, struct zone_shape *shape, uint32_t idx,
			  const struct blk_zone *zone, struct zone_kept *ret_kept)
{
	bool is_conventional = zone->type == BLK_ZONE_TYPE_CONVENTIONAL;
	/* Of others nothing can be written, and their capacity may be told as 0. */
	bool is_alive = zone->cond != BLK_ZONE_COND_READONLY && zone->cond != BLK_ZONE_COND_OFFLINE;
	uint64_t capacity_sectors = zone->capacity ? zone->capacity : zone->len;
	uint64_t zone_sectors = shape->zone_bytes >> ZONE_BELOW_SHIFT;

	if (!is_conventional && zone->type != BLK_ZONE_TYPE_SEQWRITE_REQ)
		return below_refuse(found, "the backend below has zones that are neither "
					   "conventional nor written in order");
	if (!is_conventional && is_alive) {
		if (shape->capacity_bytes == 0 && capacity_sectors <= zone_sectors)
			shape->capacity_bytes = capacity_sectors << ZONE_BELOW_SHIFT;
		if (capacity_sectors != shape->capacity_bytes >> ZONE_BELOW_SHIFT)
			return below_refuse(found, "the backend below has zones of several "
						   "capacities, and the kernel wants one");
	}
	if (zone_below_parse(shape, idx, zone, ret_kept) < 0)
		return below_refuse(found, "the report of the backend below makes no sense: zones "
					   "of another size, or write pointers outside of them");
	found->conventional_nr += is_conventional;
	return 0;
}
