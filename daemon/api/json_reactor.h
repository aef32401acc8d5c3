/* Reactors as JSON. Main thread. Each returns a new reference, or NULL. */
#ifndef DAEMON_API_JSON_REACTOR_H
#define DAEMON_API_JSON_REACTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/devices/device_set.h"
#include "daemon/devices/watchdog.h"
#include "daemon/runtime/reactors.h"

/* Loop statistics. cpu -1: the control reactor, on the main thread. pinned: to that CPU. */
json_t *json_reactor(struct reactor *r, int cpu, bool pinned);

/* For how long each of rs has not turned, and what it does meanwhile, as far as known. */
json_t *json_reactors_alive(const struct device_set *f, const struct reactors *rs,
			    const struct watchdog *watchdog, uint64_t now_ns);

#endif
