/* Which file a device's backend works on, to find two devices on one file. Main thread. */
#ifndef DAEMON_SETTINGS_SETTINGS_RESOURCE_H
#define DAEMON_SETTINGS_SETTINGS_RESOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct device_settings;

/* What the path led to when it was looked at. */
struct settings_resource {
	bool exists, is_block;
	uint64_t dev, ino; /* of the file; of a block device its own number and 0 */
	char *full;	   /* absolute path where nothing exists yet, or NULL */
};

/* The option `path` of the lowest backend; NULL when it has none, or it was not given. */
const char *settings_path(const struct device_settings *d);

/*
 * From now on settings are read without a look at the file system, which may not answer: two paths
 * are one file when they are the same text. For a process that serves devices.
 */
void settings_resource_by_text(void);

/* Looks at the file system (again). Returns 0 or -ENOMEM. */
int settings_resource_read(struct device_settings *d);
void settings_resource_fini(struct settings_resource *r);

/* True when both work on the same file or block device, whatever the paths look like. */
bool settings_same_file(const struct device_settings *a, const struct device_settings *b);

#endif
