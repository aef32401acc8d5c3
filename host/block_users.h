/*
 * Who uses a block device, and whatever stands on it (block_tree.h): decided by device numbers,
 * whatever the nodes are called and in whatever mount namespace a file system is mounted. Any
 * thread, also two at once; reads /proc and /sys, asks loop devices, opens neither the device nor
 * anything on it. For ten thousand processes it takes about a second.
 */
#ifndef HOST_BLOCK_USERS_H
#define HOST_BLOCK_USERS_H

#include <stddef.h>

/* From the harmless to what must not be cut off. */
enum block_users {
	BLOCK_USERS_NONE,      /* nobody, as far as anything can tell */
	BLOCK_USERS_TRANSIENT, /* only probes of udev: gone in a moment */
	BLOCK_USERS_UNKNOWN,   /* nobody seen, but not all could be looked at */
	BLOCK_USERS_REAL,
};

/*
 * Looks at a disk ("ublkb3") and its partitions for: devices and loop devices over it, swap,
 * mounted file systems in all mount namespaces that /proc shows, file systems and journals that are
 * mounted nowhere any more or out of sight, targets of nvmet and LIO, open descriptors.
 *
 * Writes them in words to text ("mounted on /mnt, open by fio[123]"), cut when there are many; for
 * UNKNOWN what could not be looked at. "" for NONE.
 *
 * Not to be seen: a descriptor that is on its way through a socket, or that only an io_uring or a
 * mapping still has; a thread's own table of descriptors.
 */
enum block_users block_users_find(const char *disk, char *text, size_t text_bytes);

#endif
