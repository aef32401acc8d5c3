/* What can be asked of a tree about its zones: of its top, where alone a zoned node stands. */
#include "storage/zones.h"

#include <linux/blkzoned.h>

#include "storage/backend.h"

_Static_assert(sizeof(struct blk_zone) == BACKEND_ZONE_REPORT_BYTES, "of the kernel's interface");

bool backend_zones_look(const struct backend_queue *top, struct backend_zones_look *ret_look)
{
	if (!top->device->ops->look_zones)
		return false;
	top->device->ops->look_zones(top, ret_look);
	return true;
}

bool backend_spec_is_zoned(const struct backend_spec *spec)
{
	return spec->ops->is_zoned;
}
