/* Between device_set.c, device_set_start.c and device_set_reload.c only. */
#ifndef DAEMON_DEVICES_DEVICE_SET_INTERNAL_H
#define DAEMON_DEVICES_DEVICE_SET_INTERNAL_H

#include "daemon/devices/device_set.h"

/* A member in no state yet; settings becomes the device set's. NULL: out of memory, told. */
struct member *device_set_new_member(struct device_set *f, struct device_settings *settings,
				     bool from_file);

/* device_set_start.c: begins to start, or to adopt, what has no device. */
void device_set_start(struct device_set *f, struct member *m);

/* From the sweep: goes on with members whose backend is open, or could not be opened. */
void device_set_start_opened(struct device_set *f);

/* Nobody wants to know any more what becomes of the work on its backend. */
void device_set_forget_work(struct member *m);

/*
 * device_set_start.c: begins to close the backend of a device that has ended, or looks whether that
 * is done. True: it is under way, and the sweep comes back.
 */
bool device_set_close_backend(struct device_set *f, struct member *m);

/* The work on its backend is over its time, for m->error: it is late. */
void device_set_work_is_late(struct device_set *f, struct member *m);

/* For m->error, which is set: FAILED, for the sweep. */
void device_set_did_not_start(struct device_set *f, struct member *m);

/* What the settings say of the device. */
void device_set_fill_spec(const struct device_set *f, const struct member *m,
			  struct device_spec *spec);

/* Begins to stop its device. */
void device_set_stop_member(struct device_set *f, struct member *m, bool force);

/* Replaces what it is to be started as afterwards; NULL: nothing. */
void device_set_set_next(struct member *m, struct device_settings *next);

/* Makes it WAITING as what it is to be next. */
void device_set_start_as_next(struct member *m);

#endif
