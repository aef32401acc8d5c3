/*
 * Which files a device's backends work on, and which URIs that storage/sharing.h tells apart, to
 * find two devices on one of them. Main thread.
 */
#ifndef DAEMON_SETTINGS_SETTINGS_RESOURCE_H
#define DAEMON_SETTINGS_SETTINGS_RESOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/errors.h"

struct device_settings;

/* One of them, and what the path led to when it was looked at. */
struct settings_resource {
	const char *path; /* as configured; the spec's */
	struct config_pos pos;
	bool is_uri; /* path is one; nothing is looked at */
	bool alone;  /* a URI: a node above it wants it alone */
	bool exists, is_block;
	bool only_read;	    /* by the device, or where it stands in it */
	const char *shared; /* the name under which it is shared (storage/sharing.h), or NULL */
	uint64_t dev, ino;  /* of the file; of a block device its own number and 0 */
	char *full;	    /* absolute path where nothing exists yet, or NULL */
};

struct settings_resources {
	struct settings_resource *all;
	unsigned nr;
};

/* Whether one of the paths is in this folder ("/dev/"). */
bool settings_has_path_in(const struct device_settings *d, const char *folder);

/*
 * From now on settings are read without a look at the file system, which may not answer: two paths
 * are one file when they are the same text. For a process that serves devices.
 */
void settings_resource_by_text(void);

/* Looks at the file system (again). Returns 0 or -ENOMEM. */
int settings_resource_read(struct device_settings *d);
void settings_resource_fini(struct settings_resources *r);

/*
 * What of a's is the same file or block device as one of b's, whatever the paths look like, and is
 * written by one of them, but not shared by them; NULL: nothing. With a for both: what it has
 * twice.
 */
const struct settings_resource *settings_same_file(const struct device_settings *a,
						   const struct device_settings *b);

/* Adds an error when two backends of one device would write to the same file. */
void settings_check_files(const struct device_settings *d, struct config_errors *e);

#endif
