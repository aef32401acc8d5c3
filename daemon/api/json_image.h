/* The images that a device stands on, as JSON. Main thread. */
#ifndef DAEMON_API_JSON_IMAGE_H
#define DAEMON_API_JSON_IMAGE_H

#include <jansson.h>

#include "ublk/device/device.h"

/* A new reference, in the order of the configuration; NULL: there are none. */
json_t *json_images(const struct device *device);
/* The same of its caches. */
json_t *json_caches(const struct device *device);

#endif
