/* What can be seen of the devices of test/rig/fake_device.h, which includes this. */
#ifndef TEST_UNIT_DAEMON_FAKE_LOOK_H
#define TEST_UNIT_DAEMON_FAKE_LOOK_H

#include <string.h>

#include "base/histogram.h"
#include "net/session_look.h"
#include "storage/look.h"
#include "ublk/device/device.h"

/* "..._again": the first of each kind is shared, and another device counts it. */
static inline bool fake_repeats(const struct device *d)
{
	return strstr(d->spec.name, "_again");
}

/* Of a device whose name begins with "image": one over another that is only read. */
bool device_image(const struct device *d, unsigned idx, struct backend_image_look *ret_look)
{
	if (strncmp(d->spec.name, "image", 5) != 0 || idx > 1)
		return false;
	*ret_look = (struct backend_image_look){ .format = "qcow2",
						 .node = idx ? "image/backing" : d->spec.name,
						 .file = idx ? NULL : "/srv/a.qcow2",
						 .depth = idx,
						 .is_read_only = idx,
						 .is_repeated = idx == 0 && fake_repeats(d),
						 .size_bytes = 1 << 30,
						 .cluster_bytes = 65536,
						 .end_bytes = 5 << 20,
						 .has_stored = idx == 0,
						 .stored_bytes = 4 << 20,
						 .slice_bytes = 4096,
						 .slice_nr = 3,
						 .slice_max = 64,
						 .is_dirty = idx == 0,
						 .misses = 11 + idx,
						 .allocations = 12,
						 .copies = 13,
						 .unpacked = 14 };
	return true;
}

/* Of a device whose name begins with "net": two queues with a connection each. */
bool device_connection(const struct device *d, unsigned queue, unsigned idx,
		       struct net_connection_look *ret_connection)
{
	static struct histogram wait, answer;

	if (strncmp(d->spec.name, "net", 3) != 0 || queue > 1 || idx > 0)
		return false;
	memset(&wait, 0, sizeof(wait));
	memset(&answer, 0, sizeof(answer));
	histogram_record(&wait, 5000);
	histogram_record(&answer, 70000);
	*ret_connection = (struct net_connection_look){
		.node = d->spec.name,
		.is_repeated = queue == 0 && fake_repeats(d),
		.server = "a.example:4420",
		.state = queue ? "waiting" : "connected",
		.since_ns = 1,
		.next_try_ns = queue ? UINT64_MAX / 2 : 0,
		.connects = 4,
		.lost = 3 + queue,
		.failed_tries = 7,
		.ends = { [NET_END_CLOSED] = 9, [NET_END_SILENT] = 1 + queue },
		.last_end = queue ? NET_END_SILENT : -1,
		.resent = 11,
		.answered = 800,
		.sends = 100,
		.sent_bytes = 32000,
		.receives = 200,
		.received_bytes = 64000,
		.wait = &wait,
		.answer = &answer,
	};
	return true;
}

#endif
