/*
 * Memory that clients share with devices, as far as it outlives this process: the driver keeps its
 * buffers with the device when its server dies, so the next daemon wants the same memory under the
 * same numbers ("shm-NAME/0" in the fd store). Main thread.
 *
 * What the fd store names is registered: it comes there after REG_BUF, and leaves before UNREG_BUF.
 * Failure modes: a daemon that dies in between leaves a buffer in the driver that nobody names.
 * Requests in it are copied; it goes with the device.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/errname.h"
#include "base/log.h"
#include "daemon/devices/device_notes.h"
#include "daemon/devices/device_set_internal.h"
#include "daemon/fdstore/fd_store.h"
#include "ublk/recovery.h"
#include "ublk/shmem.h"

#define SHMEM_NAME_BYTES 96

static void shmem_name(char name[static SHMEM_NAME_BYTES], const char *device, unsigned idx)
{
	snprintf(name, SHMEM_NAME_BYTES, "shm-%s/%u", device, idx);
}

static bool is_stored(const struct member *m)
{
	struct device_info info;

	device_info(m->device, &info);
	return m->device_set->state && m->device_set->fd_store && recovery_possible(info.flags);
}

static void shmem_store(const struct member *m, unsigned idx, int fd)
{
	char name[SHMEM_NAME_BYTES];

	shmem_name(name, m->settings->options.name, idx);
	if (is_stored(m))
		fd_store_put(m->device_set->fd_store, name, fd);
}

static void shmem_unstore(const struct member *m, unsigned idx)
{
	char name[SHMEM_NAME_BYTES];

	shmem_name(name, m->settings->options.name, idx);
	if (m->device_set->fd_store)
		fd_store_drop(m->device_set->fd_store, name);
}

void device_set_restore_shmem(struct member *m)
{
	for (unsigned i = 0; m->device_set->fd_store && i < SHMEM_BUFFERS_MAX; i++) {
		char name[SHMEM_NAME_BYTES];
		int fd, ret;

		shmem_name(name, m->settings->options.name, i);
		fd = fd_store_find(m->device_set->fd_store, name);
		if (fd < 0)
			continue;
		ret = device_shmem_restore(m->device, i, fd);
		if (ret < 0)
			log_warn("memory that a client shares cannot be mapped again: requests in "
				 "it are copied",
				 "device=%s buffer=%u error=%s", m->settings->options.name, i,
				 errname(ret));
	}
}

static int shmem_check_live(const struct member *m, char *error, size_t error_bytes)
{
	if (m->state == MEMBER_LIVE && m->device && !m->ended)
		return 0;
	snprintf(error, error_bytes,
		 "the device is not live (%s): try again when ublkctl list says that it is",
		 member_state_name(m));
	return -EBUSY;
}

int device_set_share(struct member *m, int fd, bool read_only, char *error, size_t error_bytes)
{
	int ret = shmem_check_live(m, error, error_bytes);

	return ret < 0 ? ret : device_shmem_share(m->device, fd, read_only, error, error_bytes);
}

int device_set_unshare(struct member *m, unsigned idx, char *error, size_t error_bytes)
{
	int ret = shmem_check_live(m, error, error_bytes);

	if (ret == 0)
		ret = device_shmem_unshare(m->device, idx, error, error_bytes);
	/* The driver is asked in the next turn. */
	if (ret == 0)
		shmem_unstore(m, idx);
	return ret;
}

void device_set_shmem_ended(struct member *m)
{
	const char *name = m->settings->options.name;
	struct device_shmem_end end;

	device_shmem_ended(m->device, &end);
	if (end.err == 0 && end.shares)
		shmem_store(m, end.idx, end.fd);
	if (end.err < 0)
		log_error(end.shares ? "memory was not shared with the device"
				     : "shared memory was not taken back",
			  "device=%s error=\"%s\"", name, end.words);
	else
		log_info(end.shares ? "a client shares memory with the device"
				    : "memory is shared with the device no more",
			 "device=%s buffer=%u", name, end.idx);
	device_set_tell(&m->shmem_changes, end.err < 0 ? DEVICE_SET_REFUSED : DEVICE_SET_SHMEM,
			end.words);
}
