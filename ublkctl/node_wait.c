/*
 * The kernel makes the node in devtmpfs, udev then gives it owner, mode and links, and writes what
 * it knows of the device to a file. Blocking, with a time limit.
 *
 * Happy path: nothing to wait for, or a few milliseconds. Failure modes: no node (no devtmpfs), a
 * udev that does not work: told with the cure at the end of the time limit.
 */
#include "ublkctl/node_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 10000000

static double node_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool udev_runs(const char *udev_folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/control", udev_folder);
	return access(path, F_OK) == 0;
}

/* sd-device has a device "initialized" when this file is there. */
static bool udev_knows(const char *udev_folder, dev_t number)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/data/b%u:%u", udev_folder, major(number), minor(number));
	return access(path, F_OK) == 0;
}

/* Whether it can be used; if not, why. */
static bool node_ready(const char *path, const char *udev_folder,
		       char error[static NODE_WAIT_ERROR_BYTES])
{
	struct stat st;
	int fd;

	if (stat(path, &st) < 0) {
		snprintf(error, NODE_WAIT_ERROR_BYTES,
			 "%s: %s: is devtmpfs mounted at /dev, as it must be?", path,
			 strerror(errno));
		return false;
	}
	if (!S_ISBLK(st.st_mode)) {
		snprintf(error, NODE_WAIT_ERROR_BYTES, "%s: not a block device: remove it", path);
		return false;
	}
	if (udev_runs(udev_folder) && !udev_knows(udev_folder, st.st_rdev)) {
		snprintf(error, NODE_WAIT_ERROR_BYTES,
			 "%s: udev has not finished with it: see its log (journalctl -u "
			 "systemd-udevd) and udevadm settle",
			 path);
		return false;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		snprintf(error, NODE_WAIT_ERROR_BYTES, "%s: %s", path, strerror(errno));
	else
		close(fd);
	return fd >= 0;
}

int node_wait(const char *path, const char *udev_folder, double seconds,
	      char error[static NODE_WAIT_ERROR_BYTES])
{
	const struct timespec pause = { .tv_nsec = POLL_NS };
	double end = node_now() + seconds;

	while (!node_ready(path, udev_folder, error)) {
		if (node_now() >= end)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}
