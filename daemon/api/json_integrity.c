/* The metadata that a device keeps, as JSON. Main thread. */
#include "daemon/api/json_integrity.h"

#include "ublk/device/inflight.h"

json_t *json_integrity(const struct device *device)
{
	const struct backend_integrity_limits *limits;
	struct backend_integrity_look look;

	if (!device_integrity(device, &look))
		return NULL;
	limits = &look.limits;
	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:b, s:b, s:I, s:I, s:I, s:I}", "checksum",
			 backend_checksum_names[limits->checksum], "metadata_bytes",
			 limits->metadata_bytes, "interval_bytes", 1 << limits->interval_shift,
			 "pi_offset", limits->tuple_at, "tag_bytes", limits->tag_bytes, "reftag",
			 limits->has_reftag, "capable", limits->is_capable, "reads",
			 (json_int_t)look.reads, "writes", (json_int_t)look.writes, "forgotten",
			 (json_int_t)look.forgotten, "held", (json_int_t)look.held);
}
