/* Every I/O in the daemon, and whether the reactors turn, as JSON. Main thread. */
#ifndef DAEMON_API_JSON_INFLIGHT_H
#define DAEMON_API_JSON_INFLIGHT_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/devices/fleet.h"
#include "daemon/runtime/reactors.h"
#include "daemon/devices/watchdog.h"

/* New references, or NULL. */
json_t *json_inflight(const struct member *m, uint64_t now_ns);
json_t *json_inflight_reactors(const struct fleet *f, const struct reactors *rs,
			       const struct watchdog *watchdog, uint64_t now_ns);

#endif
