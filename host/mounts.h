/* What is mounted, as proc_pid_mountinfo(5) tells it. Any thread. */
#ifndef HOST_MOUNTS_H
#define HOST_MOUNTS_H

#include <stdbool.h>
#include <sys/types.h>

struct mount_info {
	int id, parent;
	dev_t dev; /* of the file system; major 0: it has a number of its own (btrfs, tmpfs, nfs) */
	const char *root, *point, *type, *source; /* without escapes */
	const char *options;			  /* of the file system */
	bool shared; /* mounts and umounts at it reach other namespaces */
	bool slave;  /* mounts and umounts of another namespace reach it */
};

/*
 * Calls fn for each mount in the order of the file (parents first), until it returns false. The
 * strings are gone after the call. 0, or -errno: the file cannot be read.
 */
int mounts_read(const char *mountinfo_path, bool (*fn)(const struct mount_info *mount, void *arg),
		void *arg);

#endif
