/* The memory that clients share with a device as JSON. */
#ifndef DAEMON_API_JSON_SHMEM_H
#define DAEMON_API_JSON_SHMEM_H

#include <jansson.h>

#include "ublk/device/device.h"

/* Main thread. A list, perhaps empty, or NULL: clients cannot share memory with it. */
json_t *json_shmem(const struct device *device);

#endif
