/* Between fleet.c and fleet_reload.c only. */
#ifndef DAEMON_FLEET_INTERNAL_H
#define DAEMON_FLEET_INTERNAL_H

#include "daemon/fleet.h"

/* A member in no state yet; settings becomes the fleet's. NULL: out of memory, told. */
struct member *fleet_new_member(struct fleet *f, struct device_settings *settings, bool from_file);

/* Begins to stop its device. */
void fleet_stop_member(struct fleet *f, struct member *m, bool force);

/* Replaces what it is to be started as afterwards; NULL: nothing. */
void fleet_set_next(struct member *m, struct device_settings *next);

/* Makes it WAITING as what it is to be next. */
void fleet_start_as_next(struct member *m);

#endif
