/* Every I/O in the daemon, as JSON. Main thread. */
#ifndef DAEMON_API_JSON_INFLIGHT_H
#define DAEMON_API_JSON_INFLIGHT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/devices/device_set.h"

/* I/Os of one device in the answer to the command inflight; the rest is counted. */
#define JSON_INFLIGHT_IOS_MAX 1000

/* A new reference, or NULL. ios_max: the answer has at most so many I/Os, the oldest first. */
json_t *json_inflight(const struct member *m, size_t ios_max, uint64_t now_ns);

#endif
