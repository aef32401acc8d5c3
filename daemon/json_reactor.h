/* A reactor's loop statistics as JSON. Main thread. */
#ifndef DAEMON_JSON_REACTOR_H
#define DAEMON_JSON_REACTOR_H

#include <jansson.h>

struct reactor;

/* A new reference, or NULL. cpu -1: the control reactor, on the main thread. */
json_t *json_reactor(struct reactor *r, int cpu);

#endif
