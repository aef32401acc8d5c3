/*
 * What one client leaves to the next: a record, in memory that outlives the process
 * (struct backend's stored_fd), of the addresses of the client that serves the device. Owns
 * record_fd. Helper, and the thread of rbd_revive.c; never both. Main thread: the end of it.
 *
 * Happy path: the record is empty, the device's first client is noted. Taken over after a crash, by
 * an upgrade, or opened anew here: the client in the record goes to the cluster's blocklist first,
 * so that none of its writes lands later, and its exclusive lock is free at once (librbd takes the
 * lock of a listed owner without waiting for its watch to expire). Failure modes: the cluster does
 * not list it: the image is not opened. The image is lost while the device is handed over: from
 * then on the record is the next process's, whose client must not be listed by this one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/rbd/rbd.h"
#include "base/errname.h"

static const char record_magic[] = "ublkd rbd client 1\n";

struct record {
	char magic[sizeof(record_magic)];
	char addrs[CEPH_ADDRS_BYTES];
	bool is_clean; /* older ones end before */
};

/* From outside: what is no record of ours counts as none. */
static bool record_read(int fd, struct record *r)
{
	memset(r, 0, sizeof(*r));
	return pread(fd, r, sizeof(*r), 0) >= (ssize_t)offsetof(struct record, is_clean) &&
	       memcmp(r->magic, record_magic, sizeof(r->magic)) == 0 &&
	       r->addrs[sizeof(r->addrs) - 1] == '\0' && r->addrs[0] != '\0';
}

int ceph_fence_open(struct ceph_device *device, int stored_fd)
{
	int fd = stored_fd > 0 ? fcntl(stored_fd, F_DUPFD_CLOEXEC, 3)
			       : memfd_create("ublkd-rbd-client", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	device->record_fd = fd;
	return 0;
}

void ceph_fence_close(struct ceph_device *device)
{
	if (device->record_fd >= 0)
		close(device->record_fd);
	device->record_fd = -1;
}

int ceph_stored_fd(const struct backend_device *device)
{
	const struct ceph_device *d = device->priv;

	return d->record_fd;
}

int ceph_fence_predecessor(struct ceph_device *device, struct ceph_client *client, char *error,
			   size_t error_bytes)
{
	struct record r;
	int ret;

	if (device->read_only || !record_read(device->record_fd, &r) ||
	    strcmp(r.addrs, ceph_client_addrs(client)) == 0)
		return 0;
	/* Asked behind the reading: what was read is of before then. */
	if (atomic_load(&device->is_given_away)) {
		snprintf(error, error_bytes, "%s is handed over to another process",
			 device->address);
		return -ECANCELED;
	}
	ret = ceph_client_fence(client, r.addrs);
	if (ret < 0) {
		snprintf(error, error_bytes,
			 "the client that served %s before, %s, cannot be put on the cluster's "
			 "blocklist: %s; client.%s needs mon 'profile rbd'",
			 device->address, r.addrs, errname(ret), device->config->user);
		return ret;
	}
	log_info("the client that served the image before is on the cluster's blocklist",
		 "device=%s image=%s client=%s", device->name, device->address, r.addrs);
	return 0;
}

int ceph_fence_note(struct ceph_device *device, const struct ceph_client *client)
{
	struct record r = { 0 };
	int ret = -ECANCELED;

	memcpy(r.magic, record_magic, sizeof(r.magic));
	snprintf(r.addrs, sizeof(r.addrs), "%s", ceph_client_addrs(client));
	pthread_mutex_lock(&device->record_lock);
	if (!atomic_load(&device->is_given_away))
		ret = pwrite(device->record_fd, &r, sizeof(r), 0) == sizeof(r) ? 0 : -EIO;
	pthread_mutex_unlock(&device->record_lock);
	return ret;
}

static void fence_note_clean(const struct ceph_device *device)
{
	struct record r;

	if (!record_read(device->record_fd, &r))
		return;
	r.is_clean = true;
	/* Should that fail, a FLUSH of the next one fails. */
	(void)!pwrite(device->record_fd, &r, sizeof(r), 0);
}

void ceph_fence_give_away(struct ceph_device *device, bool is_clean)
{
	pthread_mutex_lock(&device->record_lock);
	atomic_store(&device->is_given_away, true);
	if (is_clean)
		fence_note_clean(device);
	pthread_mutex_unlock(&device->record_lock);
}

bool ceph_fence_was_clean(const struct ceph_device *device)
{
	struct record r;

	return record_read(device->record_fd, &r) && r.is_clean;
}
