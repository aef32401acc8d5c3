/* The metadata that a device keeps, as JSON. */
#ifndef DAEMON_API_JSON_INTEGRITY_H
#define DAEMON_API_JSON_INTEGRITY_H

#include <jansson.h>

#include "ublk/device/device.h"

/* Main thread. An object, or NULL: it keeps none. */
json_t *json_integrity(const struct device *device);

#endif
