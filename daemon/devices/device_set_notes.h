/*
 * What the device set notes about its devices, so that the next daemon can adopt them; and what it
 * knows of those that it adopts itself. Main thread. Without a state folder (device set->state
 * NULL) nothing is noted.
 */
#ifndef DAEMON_DEVICES_DEVICE_SET_NOTES_H
#define DAEMON_DEVICES_DEVICE_SET_NOTES_H

#include "daemon/devices/device_set.h"

/* How long a dead daemon's I/O may hold the backend before adopting is given up. */
#define KEEP_OUTAGE_TIMEOUT_NS (30 * NS_PER_SEC)

/* Of a device that is being adopted: how its daemon left it. */
struct member_past {
	struct device_past device; /* .identity points to the one below */
	char identity[BACKEND_IDENTITY_BYTES];
	uint64_t until_ns; /* for a busy backend, or one whose server does not answer */
	bool told;	   /* that its backend could not be asked */
	bool noted;	   /* that a recovery was begun */
	bool begun;	   /* one was, in this life or the last, and did not come to its end */
};

/* Before the driver is asked for the device. Returns 0, or -errno with words. */
int keep_adding(struct device_set *f, const struct member *m, char *error, size_t error_bytes);

/* device_host.added: it has its id, and nobody uses it yet. Also parks its memory. */
int keep_added(struct device *device, void *device_set, char *error, size_t error_bytes);

/*
 * Before a command changes what stands in the note of a live device: whether there is room for a
 * note. Returns 0, or -errno with words.
 */
int keep_before_change(struct device_set *f, struct member *m, char *error, size_t error_bytes);

/*
 * It is LIVE, or its size has changed. What cannot be written now is logged, and written later:
 * until then keep_is_owed. The device serves meanwhile; of its size after a crash the driver tells.
 */
void keep_serving(struct device_set *f, struct member *m);
static inline bool keep_is_owed(const struct member *m)
{
	return m->note_owed;
}

/* With the device set: the timer for what is owed. */
void keep_init(struct device_set *f);
void keep_fini(struct device_set *f);

/* Before the driver is asked for a recovery. Failures are logged. */
void keep_recovering(struct device_set *f, const struct member *m);

/* It is gone from the driver. */
void keep_forget(struct device_set *f, const char *name);

/* The name under which a device's memory is in the fd store. */
void fd_store_mem_name(char name[static 64], const char *device);

/*
 * Before another recovery of a device of which one was begun: makes it possible where the driver is
 * older than Linux 6.16.
 */
void keep_sweep(const struct device_set *f, const struct member *m);

/* NULL: out of memory. */
struct member_past *keep_past(const struct state_record *record,
			      const struct ublksrv_ctrl_dev_info *info);

#endif
