/* Between device_set.c, device_set_start.c and device_set_change.c only. */
#ifndef DAEMON_DEVICES_DEVICE_SET_INTERNAL_H
#define DAEMON_DEVICES_DEVICE_SET_INTERNAL_H

#include "daemon/devices/device_set.h"

/* ---- device_set.c ---- */

/* A member that is WAITING; settings becomes the device set's. NULL: out of memory, logged. */
struct member *device_set_new_member(struct device_set *set, struct device_settings *settings,
				     bool from_file);

/* Empties the list first: a watch may add another. */
void device_set_tell(struct list_node *watches, enum device_set_outcome outcome, const char *error);

/* Nobody waits for it any more. state, why: words. */
void device_set_is_late(struct member *m, const char *state, const char *why);

/* Begins to stop its device. */
void device_set_stop_member(struct device_set *set, struct member *m, bool force);

/* Replaces what it is to be started as afterwards; NULL: nothing. */
void device_set_set_next(struct member *m, struct device_settings *next);

/* Makes it WAITING as what it is to be next. */
void device_set_start_as_next(struct member *m);

/* ---- device_set_start.c ---- */

/* Begins to start, or to adopt, a member without a device. */
void device_set_start(struct device_set *set, struct member *m);

/* From the sweep: goes on with members whose backend is open, or could not be opened. */
void device_set_start_opened(struct device_set *set);

/* m->error says why: FAILED, for the sweep. */
void device_set_did_not_start(struct device_set *set, struct member *m);

/* The result of the work on its backend is not needed any more. */
void device_set_forget_work(struct member *m);

/*
 * Begins to close the backend of a device that has ended, or looks whether that is done. True: it
 * is under way, and the sweep comes back.
 */
bool device_set_close_backend(struct device_set *set, struct member *m);

/* What the settings say of the device. */
void device_set_fill_spec(const struct device_set *set, const struct member *m,
			  struct device_spec *spec);

/*
 * The driver said EEXIST to m: writes to text which device has its id (one of this daemon, of
 * another ublk server, or one that nobody serves), and the cure. folder: of the nodes, "/dev".
 */
void device_set_explain_id(const struct device_set *set, const struct member *m, const char *folder,
			   char *text, size_t bytes);

/* ---- device_set_change.c ---- */

/* The device says that a resize has ended. */
void device_set_resized(struct member *m);

/* The device says that a change of its snapshots has ended. */
void device_set_snapshot_ended(struct member *m);

/* The device says that a command to a cache of it has ended. */
void device_set_cache_ended(struct member *m);

/* ---- device_set_shmem.c ---- */

/* Memory is shared, or taken back, or that has failed. */
void device_set_shmem_ended(struct member *m);

/* Of a device that is being adopted, before it serves: what was shared with it. */
void device_set_restore_shmem(struct member *m);

/* ---- device_set_change.c ---- */

/* It is live: grows it, if a reload wanted that while it was being adopted. */
void device_set_size_when_live(struct member *m);

#endif
