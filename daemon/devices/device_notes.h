/*
 * What a daemon leaves so that the next one can adopt its devices: a note of each (state.h), a mark
 * in the driver, memory in the fd store. Main thread; without a state folder (device_set.state
 * NULL) nothing is noted.
 */
#ifndef DAEMON_DEVICES_DEVICE_NOTES_H
#define DAEMON_DEVICES_DEVICE_NOTES_H

#include "daemon/devices/device_set.h"

/* How long I/O of a dead daemon may keep the backend busy before the adoption fails. */
#define NOTE_OUTAGE_TIMEOUT_NS (30 * NS_PER_SEC)

/* Of a device that is being adopted: how its daemon left it. */
struct member_past {
	struct device_past device; /* .identity points to the one below */
	char identity[BACKEND_IDENTITY_BYTES];
	uint64_t until_ns; /* for a busy backend, or one whose server does not answer */
	bool told;	   /* the log says that the backend did not answer */
	bool noted;	   /* the note says that a recovery was begun */
	bool begun;	   /* a recovery was begun, by this daemon or the last, and did not end */
};

/* Before the driver is asked for the device. Returns 0, or -errno with words. */
int note_adding(struct device_set *set, const struct member *m, char *error, size_t error_bytes);

/*
 * device_host.added: the device has its id, and nobody uses it yet. Also puts its memory in the fd
 * store.
 */
int note_added(struct device *device, void *device_set, char *error, size_t error_bytes);

/* device_host.stored: puts its memory in the fd store again. */
void note_stored(struct device *device, void *device_set);

/*
 * Before a command changes what the note of a live device says: whether there is room for a note.
 * Returns 0, or -errno with words.
 */
int note_before_change(struct device_set *set, struct member *m, char *error, size_t error_bytes);

/*
 * The device is LIVE, or its size has changed. If the note cannot be written, that is logged, and
 * tried again later; until then m->note_owed. The device serves meanwhile; after a crash the driver
 * knows its size.
 */
void note_serving(struct device_set *set, struct member *m);

/* With the device set: the timer for notes that are owed. */
void note_init(struct device_set *set);
void note_fini(struct device_set *set);

/* Before the driver is asked for a recovery. Failures are logged. */
void note_recovering(struct device_set *set, const struct member *m);

/* The driver has the device no more. */
void note_forget(struct device_set *set, const char *device);

#define NOTE_MEMORY_NAME_BYTES 96

/* The name in the fd store of the memory of a device's node: by the index of backend_stored_fd. */
void note_memory_name(char name[static NOTE_MEMORY_NAME_BYTES], const char *device, unsigned idx);

/* Whether a name there is of this device's memory, or of what clients share with it ("shm-"). */
bool note_memory_is_of(const char *name, const char *device);

/* What the fd store has for a device, by these indices: borrowed; -errno: nothing. */
void note_find_memory(const struct device_set *set, const struct member *m,
		      int ret_fds[static BACKEND_STORED_MAX]);

/*
 * m->owed_fd: the file of what it owes, for who opens its backend (state.h); 0: nothing is noted.
 * Of a new device it has its name from note_added on. Returns 0, or -errno with words.
 */
int note_open_owed(const struct device_set *set, struct member *m, char *error, size_t error_bytes);
void note_close_owed(struct member *m);

/*
 * The mark tells whose a device in the driver is, and which: a number that the driver keeps with it
 * (ublksrv_flags) and does not look at. Of the device `name` of the daemon with this control
 * socket.
 */
uint64_t mark_of(const char *control_path, const char *name);

/* Whether a device with this mark belongs to the daemon with this control socket. */
bool mark_is_of(uint64_t mark, const char *control_path);

/* Whether a device with this mark belongs to any ublkd. */
bool mark_is_ublkd(uint64_t mark);

#endif
