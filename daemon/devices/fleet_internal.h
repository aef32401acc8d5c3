/* Between fleet.c, fleet_start.c and fleet_reload.c only. */
#ifndef DAEMON_DEVICES_FLEET_INTERNAL_H
#define DAEMON_DEVICES_FLEET_INTERNAL_H

#include "daemon/devices/fleet.h"

/* A member in no state yet; settings becomes the fleet's. NULL: out of memory, told. */
struct member *fleet_new_member(struct fleet *f, struct device_settings *settings, bool from_file);

/* fleet_start.c: begins to start, or to adopt, what has no device. */
void fleet_start(struct fleet *f, struct member *m);

/* From the sweep: goes on with members whose backend is open, or could not be opened. */
void fleet_start_opened(struct fleet *f);

/* Nobody wants to know any more what becomes of the work on its backend. */
void fleet_forget_work(struct member *m);

/*
 * fleet_start.c: begins to close the backend of a device that has ended, or looks whether that is
 * done. True: it is under way, and the sweep comes back.
 */
bool fleet_close_backend(struct fleet *f, struct member *m);

/* The work on its backend is over its time, for m->error: it is late. */
void fleet_work_is_late(struct fleet *f, struct member *m);

/* For m->error, which is set: FAILED, for the sweep. */
void fleet_did_not_start(struct fleet *f, struct member *m);

/* What the settings say of the device. */
void fleet_fill_spec(const struct fleet *f, const struct member *m, struct device_spec *spec);

/* Begins to stop its device. */
void fleet_stop_member(struct fleet *f, struct member *m, bool force);

/* Replaces what it is to be started as afterwards; NULL: nothing. */
void fleet_set_next(struct member *m, struct device_settings *next);

/* Makes it WAITING as what it is to be next. */
void fleet_start_as_next(struct member *m);

#endif
