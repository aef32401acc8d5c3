/*
 * What is asked of the histograms of one device: since when, and in which bins. The counters are
 * the reactors' and nobody else writes to them: a reset keeps a reading of them, and later readings
 * subtract it, so that no I/O is lost or counted twice. Main thread.
 */
#ifndef DAEMON_DEVICES_LATENCY_H
#define DAEMON_DEVICES_LATENCY_H

#include <stddef.h>
#include <stdint.h>

#include "ublk/device/device.h"

#define LATENCY_BOUNDARIES_MAX 256

struct latency_base;
struct latency_boundaries;

/* Zeroed: since the device's start, without boundaries. */
struct latency_view {
	struct latency_base *base;
	struct latency_boundaries *boundaries[BACKEND_OP_NR];
};

/* Forgets everything. Accepts a zeroed view. */
void latency_fini(struct latency_view *v);

/* From now on these ops (bits) count from zero, in each layer. Returns 0 or -ENOMEM. */
int latency_reset(struct latency_view *v, const struct device_stats *now, uint32_t ops);

/*
 * QEMU's block-latency-histogram-set: gives these ops boundaries, or none (nr 0), and resets them.
 * Returns 0, -EINVAL when the boundaries do not ascend from above 0, -E2BIG, or -ENOMEM; after an
 * error nothing has changed.
 */
int latency_set(struct latency_view *v, const struct device_stats *now, uint32_t ops,
		const uint64_t *boundary_ns, size_t nr);

/* The boundaries of an op and their number; NULL and 0: none. */
const uint64_t *latency_boundaries(const struct latency_view *v, enum backend_op op,
				   size_t *ret_nr);

/* What now counts more than at the last reset. */
void latency_view_read(const struct latency_view *v, const struct device_stats *now,
		       enum backend_op op, enum queue_layer layer, struct histogram *ret_histogram);

#endif
