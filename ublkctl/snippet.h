/*
 * The file NAME.yaml in daemon.devices_dir that keeps an attached device over a restart of the
 * daemon. Functions that fail have printed why to stderr.
 */
#ifndef UBLKCTL_SNIPPET_H
#define UBLKCTL_SNIPPET_H

#include <limits.h>
#include <stdbool.h>

/* One that is being written: begun, then kept or dropped. */
struct snippet {
	int folder_fd;
	char temporary[64]; /* hidden: the daemon passes it over */
	char name[64];
	char path[PATH_MAX];
};

/* Whether there is one for this device. */
bool snippet_exists(const char *folder, const char *name);

/*
 * Writes text to a temporary file in the folder, which is made when it is missing. Returns 0, or
 * -EEXIST when the device has a snippet already, or another -errno.
 */
int snippet_begin(struct snippet *s, const char *folder, const char *name, const char *text);

/* Gives it its name, durably; never over another one. Returns 0 or -errno. Ends s either way. */
int snippet_keep(struct snippet *s);
void snippet_drop(struct snippet *s);

/*
 * Removes the snippet of a device. Returns 0, -ENOENT (not printed) when there is none, -EBUSY when
 * the file holds anything else too, or another -errno.
 */
int snippet_remove(const char *folder, const char *name);

#endif
