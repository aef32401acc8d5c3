/* Waiting until a block device that the driver has made can be used by its path. */
#ifndef UBLKCTL_NODE_WAIT_H
#define UBLKCTL_NODE_WAIT_H

#include <stddef.h>

#define NODE_WAIT_SECONDS 10.0
#define NODE_WAIT_ERROR_BYTES 256

/* Where udev says what it has done; tests have their own. */
#define NODE_WAIT_UDEV "/run/udev"

/*
 * Until path is a block device, udev, if it runs, has finished with it (its links, owner and mode),
 * and it can be opened. Returns 0, or -ETIMEDOUT with the reason and the cure in words.
 */
int node_wait(const char *path, const char *udev_folder, double seconds,
	      char error[static NODE_WAIT_ERROR_BYTES]);

#endif
