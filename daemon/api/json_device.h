/* Devices as JSON, for the control socket. Each returns a new reference, or NULL. Main thread. */
#ifndef DAEMON_API_JSON_DEVICE_H
#define DAEMON_API_JSON_DEVICE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/devices/device_set.h"

/* What its user has to know (storage/resize.h), in words; NULL: nothing. */
json_t *json_device_notes(const struct member *m);

/* A device in the answer to `list`. */
json_t *json_device_line(const struct member *m);

/* The answer to `show`. */
json_t *json_device_full(const struct member *m);

/* The limits in force of a throttle (throttle_find), by the names of its options. */
json_t *json_throttle(struct backend_device *throttle);

/*
 * Counters since the device's start. buckets: with each histogram as [[start_ns, count], ...], for
 * clients that take differences. layer_buckets: those of each layer.
 */
json_t *json_device_stats(const struct member *m, bool buckets, bool layer_buckets);

/* The counters of a member's device; zeroes when it has none that runs. */
void json_read_stats(const struct member *m, struct device_stats *ret_stats);

/* Adds the command that the driver has not answered, how long, and where it waits; or nothing. */
void json_set_command(json_t *object, const struct member *m);

#endif
