/* A device's counters in the shape of QEMU's query-blockstats, for who has scripts for that. */
#ifndef DAEMON_API_JSON_BLOCKSTATS_H
#define DAEMON_API_JSON_BLOCKSTATS_H

#include <jansson.h>

#include "daemon/devices/device_set.h"

/* {"device","qdev","stats"}; the histograms are of the given layer. A new reference, or NULL. */
json_t *json_blockstats(const struct member *m, enum queue_layer layer);

/* {"boundaries","bins"} of what was recorded since the last reset; boundaries may be none. */
json_t *json_bins(const struct histogram *h, const uint64_t *boundary_ns, size_t nr);

#endif
