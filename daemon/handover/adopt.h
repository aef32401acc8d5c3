/* Devices that a daemon left behind when it died: docs/recovery.md. Main thread, at start. */
#ifndef DAEMON_HANDOVER_ADOPT_H
#define DAEMON_HANDOVER_ADOPT_H

#include "daemon/devices/device_set.h"
#include "daemon/runtime/loop.h"
#include "daemon/devices/state.h"
#include "ublk/control.h"

struct adopted {
	struct state_record *record;
	struct ublksrv_ctrl_dev_info info;
};

struct adoption {
	struct state_record *records;
	size_t record_nr, unreadable_nr;
	uint64_t *unnamed; /* marks of devices of ours that no note names */
	size_t unnamed_nr;
	bool look_only;
	struct adopted *found; /* of these records, what the driver still has and can recover */
	size_t found_nr;
};

/*
 * Compares the notes with what the driver has. Deletes from the driver what is named by a note and
 * cannot be recovered, and notes of what is not there; tells of what no note names. As long as
 * there is such a device, or a note that cannot be used, no in the fd store memory is dropped: its
 * owner is not known. The caller holds the lock of the control socket. look_only: their daemon, our
 * parent, lives and will hand them over; nothing is deleted or removed, and a note that cannot be
 * used, or a device of that daemon that no note names, is an error. Returns 0 or -errno, logged;
 * free it in every case.
 */
int adoption_find(struct adoption *a, struct loop *loop, struct device_set *f, bool look_only);

/* Begins to adopt all that was found; the device set takes it from there. */
void adoption_begin(struct adoption *a, struct device_set *f);

/* Accepts a zeroed one. */
void adoption_free(struct adoption *a);

#endif
