/* The zones of a device as JSON. */
#ifndef DAEMON_API_JSON_ZONES_H
#define DAEMON_API_JSON_ZONES_H

#include <jansson.h>

#include "ublk/device/device.h"

/* Main thread. An object, or NULL: it has none. */
json_t *json_zones(const struct device *device);

#endif
