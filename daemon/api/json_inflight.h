/* Every I/O in the daemon, and whether the reactors turn, as JSON. Main thread. */
#ifndef DAEMON_API_JSON_INFLIGHT_H
#define DAEMON_API_JSON_INFLIGHT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/devices/device_set.h"
#include "daemon/runtime/reactors.h"
#include "daemon/devices/watchdog.h"

/* I/Os of one device that the control command tells; more are counted only. */
#define JSON_INFLIGHT_IOS_MAX 1000

/* New references, or NULL. ios_max: so many I/Os are told, the oldest first. */
json_t *json_inflight(const struct member *m, size_t ios_max, uint64_t now_ns);
json_t *json_inflight_reactors(const struct device_set *f, const struct reactors *rs,
			       const struct watchdog *watchdog, uint64_t now_ns);

#endif
