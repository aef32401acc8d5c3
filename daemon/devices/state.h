/*
 * What outlives the daemon: a folder with one file per device (docs/recovery.md). Main thread; each
 * call is a few system calls on a small file.
 */
#ifndef DAEMON_DEVICES_STATE_H
#define DAEMON_DEVICES_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/backend.h"
#include "daemon/runtime/path.h"
#include "daemon/settings/settings.h"

enum state_phase {
	STATE_ADDING,  /* the driver may have a device with our mark for it, of any id, unserved */
	STATE_SERVING, /* it has this id */
	STATE_RECOVERING, /* it has this id, and a recovery was begun and not ended */
};

struct state_record {
	char name[SETTINGS_NAME_MAX + 1];
	enum state_phase phase;
	int64_t id;	/* -1 while ADDING */
	bool from_file; /* as in struct member */
	uint64_t size_bytes;
	char identity[BACKEND_IDENTITY_BYTES];
	struct device_settings *settings; /* as it was configured */
};

struct state {
	int fd; /* of the folder */
	char path[256];
};

/* The folder of a daemon with these settings; path must hold 256 bytes. */
void state_path(const struct daemon_settings *settings, char path[static 256]);

/*
 * Makes the folder where missing (0700). Returns 0; or -EPERM when it is not our own or could be
 * replaced by others (path.h), or another -errno, with words.
 */
int state_open(struct state *s, const char *path, char words[static PATH_WORDS_BYTES]);
/* Accepts a zeroed one. */
void state_close(struct state *s);

/*
 * Before a device is started: 0 when it has no file or one that can be used, and replaced; -EEXIST
 * when its file cannot be used, why is logged; or another -errno.
 */
int state_check(const struct state *s, const char *name);

/* Replaces the file of the device as a whole. Returns 0, or -errno: then it is what it was. */
int state_write(const struct state *s, const struct state_record *record);

/*
 * The file of what a device owes (storage/owed.h), for who opens its backend: the descriptor is the
 * caller's, or -errno. open: as a process before has left it; when there is none, nothing is owed.
 * new: it has no name before link gives it one; whatever had that is no more. link: 0 or -errno.
 */
int state_open_owed(const struct state *s, const char *name);
int state_new_owed(const struct state *s);
int state_link_owed(const struct state *s, const char *name, int fd);

/* The files of a device, also when there are none. Failures are logged. */
void state_remove(const struct state *s, const char *name);

/*
 * Reads all notes: each file NAME.json. Those that cannot be used (another version, no JSON, a
 * configuration that this program does not understand, a name that no device can have, not our own
 * file) are logged, left alone and counted in *ret_unreadable. Returns 0 or -errno; the caller
 * frees the records.
 */
int state_load(const struct state *s, struct state_record **ret_records, size_t *ret_nr,
	       size_t *ret_unreadable);
void state_free(struct state_record *records, size_t nr);

/* Removes notes that were never completed. Not while another process may write in the folder. */
void state_clean(const struct state *s);

/* Hands the settings over to the caller. */
struct device_settings *state_take(struct state_record *record);

#endif
