/* The connections of a device to its peer, as JSON. Main thread. */
#ifndef DAEMON_API_JSON_CONNECTION_H
#define DAEMON_API_JSON_CONNECTION_H

#include <jansson.h>
#include <stdint.h>

#include "ublk/device/device.h"

/* An array in the order of queues; a new reference. NULL: it has none, or no memory. */
json_t *json_connections(const struct device *device, uint64_t now_ns);

#endif
