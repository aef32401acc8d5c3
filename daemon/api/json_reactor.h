/* A reactor's loop statistics as JSON. Main thread. */
#ifndef DAEMON_API_JSON_REACTOR_H
#define DAEMON_API_JSON_REACTOR_H

#include <jansson.h>
#include <stdbool.h>

struct reactor;

/* A new reference, or NULL. cpu -1: the control reactor, on the main thread. pinned: to that CPU.
 */
json_t *json_reactor(struct reactor *r, int cpu, bool pinned);

#endif
