/* The caches of the devices of test/rig/fake_device.h, which includes this. */
#ifndef TEST_UNIT_DAEMON_FAKE_CACHE_H
#define TEST_UNIT_DAEMON_FAKE_CACHE_H

#include <string.h>

#include "storage/look.h"
#include "ublk/device/device.h"

/* Of a device whose name begins with "cache": two, one over the other. */
bool device_cache(const struct device *d, unsigned idx, struct backend_cache_look *ret_look)
{
	if (strncmp(d->spec.name, "cache", 5) != 0 || idx > 1)
		return false;
	*ret_look = (struct backend_cache_look){ .node = idx ? "cache/backend" : d->spec.name,
						 .mode = idx ? "readthrough" : "writeback",
						 .is_off = idx,
						 .block_bytes = 65536,
						 .block_nr = 1000,
						 .used_nr = 100,
						 .dirty_bytes = idx ? 0 : 8192,
						 .hits = 30,
						 .misses = 10,
						 .hit_bytes = idx ? 0 : 3000,
						 .miss_bytes = idx ? 0 : 1000,
						 .filled_bytes = 2000,
						 .evicted = 7 };
	return true;
}

#endif
