/*
 * Memory shared with the devices of test/rig/fake_device.h, which includes this: one change at a
 * time of all. Nothing can be shared with rigid...; what is shared with tight... fails in the end,
 * and with lame... does not end.
 */
#ifndef TEST_UNIT_DAEMON_FAKE_SHMEM_H
#define TEST_UNIT_DAEMON_FAKE_SHMEM_H

#include <ev.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ublk/device/device.h"

static struct device_shmem_end fake_shmem_end;
static struct ev_timer fake_shmem_timer;
static bool fake_shmem_busy, fake_shmem_read_only;
static unsigned fake_shmem_next;     /* number of the next buffer */
static uint64_t fake_shmem_restored; /* a bit for each number */

static inline void fake_shmem_ends(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct device *d = fake_shmem_end.device;

	(void)ev, (void)timer, (void)events;
	fake_shmem_busy = false;
	if (strncmp(d->spec.name, "tight", 5) == 0) {
		fake_shmem_end.err = -ENOMEM;
		snprintf(fake_shmem_end.words, sizeof(fake_shmem_end.words), "it is too tight");
	}
	d->host->event(d, DEVICE_EVENT_SHMEM, d->host->arg);
	if (fake_shmem_end.shares)
		close(fake_shmem_end.fd);
}

static inline int fake_shmem_begin(struct device *d, char *error, size_t error_bytes)
{
	if (strncmp(d->spec.name, "rigid", 5) == 0) {
		snprintf(error, error_bytes, "it shares nothing");
		return -EOPNOTSUPP;
	}
	fake_shmem_end = (struct device_shmem_end){ .device = d, .fd = -1 };
	fake_shmem_busy = true;
	ev_timer_init(&fake_shmem_timer, fake_shmem_ends, 0.002, 0.);
	if (strncmp(d->spec.name, "lame", 4) != 0)
		ev_timer_start(ev_default_loop(0), &fake_shmem_timer);
	return 0;
}

int device_shmem_share(struct device *d, int fd, bool read_only, char *error, size_t error_bytes)
{
	int ret = fake_shmem_begin(d, error, error_bytes);

	fake_shmem_read_only = read_only;
	if (ret < 0)
		return ret;
	fake_shmem_end.shares = true;
	fake_shmem_end.fd = dup(fd);
	fake_shmem_end.idx = fake_shmem_next++;
	return 0;
}

int device_shmem_unshare(struct device *d, unsigned idx, char *error, size_t error_bytes)
{
	int ret = fake_shmem_begin(d, error, error_bytes);

	if (ret == 0)
		fake_shmem_end.idx = idx;
	return ret;
}

void device_shmem_ended(const struct device *d, struct device_shmem_end *ret_end)
{
	(void)d;
	*ret_end = fake_shmem_end;
}

bool device_shmem_busy(const struct device *d)
{
	return fake_shmem_busy && fake_shmem_end.device == d;
}

int device_shmem_restore(struct device *d, unsigned idx, int fd)
{
	struct stat st;

	(void)d;
	if (fstat(fd, &st) < 0)
		return -errno;
	fake_shmem_restored |= 1ull << idx;
	return 0;
}

/* Of a device whose name begins with "shared": one. */
bool device_shmem_look(const struct device *d, unsigned idx, struct device_shmem_look *ret_look)
{
	if (strncmp(d->spec.name, "shared", 6) != 0 || idx != 3)
		return false;
	*ret_look = (struct device_shmem_look){ .bytes = 8192, .file = "memfd:x", .torn = true };
	return true;
}

#endif
