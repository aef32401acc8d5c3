/*
 * Zones as a zoned block device below reports them (struct blk_zone of linux/blkzoned.h): what they
 * mean for the table, and whether they are zones that a device of ours can have. Pure.
 */
#ifndef FILTERS_ZONED_ZONE_BELOW_H
#define FILTERS_ZONED_ZONE_BELOW_H

#include "filters/zoned/zone_table.h"

/*
 * One zone of a report. A zone that is read-only or offline, or of a condition that is not known
 * here, is one that is full: it is not written, and what can be read of it who is below says.
 * Returns 0; -EIO: not the zone at this place, or a write pointer outside of it.
 */
int zone_below_parse(const struct zone_shape *shape, uint32_t idx, const struct blk_zone *zone,
		     struct zone_kept *ret_kept);

/* What has been seen of the zones. */
struct zone_below_found {
	uint32_t conventional_nr;
	const char *words; /* for the user, static: what cannot be served; NULL: all is well */
};

/*
 * The same while a device is opened, zone by zone from 0 on: the first one that is not conventional
 * and can be written says the capacity of all (shape->capacity_bytes, 0 before; of what is full
 * before it, too). Returns 0 or -EINVAL with words.
 */
int zone_below_first_look(struct zone_below_found *found, struct zone_shape *shape, uint32_t idx,
			  const struct blk_zone *zone, struct zone_kept *ret_kept);

#endif
