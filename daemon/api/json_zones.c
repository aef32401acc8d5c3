/* The zones of a device as JSON. Main thread. */
#include "daemon/api/json_zones.h"

#include "ublk/device/inflight.h"

json_t *json_zones(const struct device *device)
{
	struct backend_zones_look look;

	if (!device_zones(device, &look))
		return NULL;
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:I}",
		"zone_bytes", (json_int_t)look.zone_bytes, "capacity_bytes",
		(json_int_t)look.capacity_bytes, "zones", (json_int_t)look.zone_nr, "conventional",
		(json_int_t)look.conventional_nr, "max_open", (json_int_t)look.open_nr_max,
		"max_active", (json_int_t)look.active_nr_max, "empty", (json_int_t)look.empty_nr,
		"implicit_open", (json_int_t)look.implicit_nr, "explicit_open",
		(json_int_t)look.explicit_nr, "closed", (json_int_t)look.closed_nr, "full",
		(json_int_t)look.full_nr, "resets", (json_int_t)look.resets, "finishes",
		(json_int_t)look.finishes, "refused_writes", (json_int_t)look.refused,
		"redone_writes", (json_int_t)look.redone, "commits", (json_int_t)look.commits);
}
