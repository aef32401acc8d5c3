/*
 * Opens the image again, with a new client, when the cluster does not serve the old one any more.
 * Owns the thread that does it, which lives as long as that takes.
 *
 * The order makes every answer true:
 *   1. the device has no image: requests are held. A queue that has taken the old one already is
 *      counted in out_nr;
 *   2. the new client puts the old one on the blocklist (rbd_fence.c): what librbd still has of
 *      ours, also a write whose answer was not waited for, is done or never will be. librbd answers
 *      the rest with -ESHUTDOWN, and it is held, too;
 *   3. the image is opened; if it is another one, the device fails in words. If it is smaller,
 *      that is told, and requests behind its end fail;
 *   4. the device has the new image: what is held is sent;
 *   5. when librbd has answered all that the old image had, it is closed.
 * Failure modes: 2 or 3 fail: tried again, with pauses that grow to 5 s, until the device closes or
 * is handed over to another process.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/rbd/rbd.h"
#include "base/errname.h"
#include "base/thread.h"
#include "base/util.h"

#define PAUSE_MIN_MS 100u
#define PAUSE_MAX_MS 5000u
#define POLL_MS 10u

void ceph_nap(void)
{
	const struct timespec step = { .tv_nsec = (long)(POLL_MS * NS_PER_MS) };

	nanosleep(&step, NULL);
}

static void revive_pause(struct ceph_device *d, unsigned ms)
{
	for (unsigned i = 0; i < ms / POLL_MS && !atomic_load(&d->closing); i++)
		ceph_nap();
}

/* Requests of an image end by themselves, at the latest by the limit of a request. */
static void revive_drain(struct ceph_image *image)
{
	while (atomic_load(&image->out_nr) > 0)
		ceph_nap();
}

static bool revive_is_same(struct ceph_device *d, const struct ceph_image *old,
			   const struct ceph_image *image)
{
	char how[NET_CHANGED_BYTES];

	if (strcmp(old->id, image->id) == 0)
		return true;
	snprintf(how, sizeof(how), "its id was %s, is %s", old->id, image->id);
	net_changed_note(&d->changed, "the image", how, d->name, d->address);
	return false;
}

static void revive_serve(struct ceph_device *d, struct ceph_image *old, struct ceph_image *image)
{
	int ret = ceph_fence_note(d, image->client);

	if (ret < 0 && ret != -ECANCELED)
		log_warn("the new client of the image cannot be noted", "device=%s", d->name);
	if (ret == -ECANCELED || !revive_is_same(d, old, image)) {
		ceph_image_close(image);
		return;
	}
	ceph_size_changed(d, image);
	log_info("the image is open again", "device=%s image=%s client=%s", d->name, d->address,
		 ceph_client_addrs(image->client));
	/* Last: from now on it may be lost again, and closed by another thread. */
	atomic_store(&d->image, image);
}

/* False: the device closes. */
static bool revive_open(struct ceph_image *old, struct ceph_image **ret_image)
{
	struct ceph_device *d = old->device;
	unsigned pause_ms = PAUSE_MIN_MS;
	char error[BACKEND_ERROR_BYTES];

	while (!atomic_load(&d->closing)) {
		if (ceph_image_open(ret_image, d, error, sizeof(error)) == 0)
			return true;
		log_limited_by(&d->again_limit, LOG_LEVEL_WARN, "the image cannot be opened again",
			       "device=%s image=%s why=\"%s\"", d->name, d->address, error);
		revive_pause(d, pause_ms);
		pause_ms = MIN(pause_ms * 2, PAUSE_MAX_MS);
	}
	return false;
}

static void *revive_run(void *arg)
{
	struct ceph_image *old = arg, *image;
	struct ceph_device *d = old->device;

	ceph_client_lost(old->client);
	if (revive_open(old, &image))
		revive_serve(d, old, image);
	revive_drain(old);
	ceph_image_close(old);
	atomic_fetch_sub(&d->revive_nr, 1); /* the device may be gone now */
	return NULL;
}

/* Not pinned to the CPU of the reactor that starts it; with a stack that librbd is used to. */
static int revive_start(struct ceph_device *d, struct ceph_image *old)
{
	const struct thread_params params = {
		.name = "rbd-revive", .cpus = &d->cpus, .run = revive_run, .arg = old
	};

	return thread_start(NULL, &params);
}

static const char *revive_words(int err)
{
	switch (-err) {
	case ESHUTDOWN:
		return "the cluster has put the client on its blocklist";
	case ETIMEDOUT:
		return "the cluster has not answered a request in time";
	default:
		return errname(err);
	}
}

void ceph_revive(struct ceph_device *device, struct ceph_image *image, int err)
{
	struct ceph_image *expected = image;
	int ret;

	/* Whoever takes the image away is the one who revives it. */
	if (!atomic_compare_exchange_strong(&device->image, &expected, NULL))
		return;
	log_limited_by(&device->lost_limit, LOG_LEVEL_WARN, "the image is lost",
		       "device=%s image=%s client=%s why=\"%s\"", device->name, device->address,
		       ceph_client_addrs(image->client), revive_words(err));
	/* Each FLUSH that the image has says by itself what became of it. */
	if (net_flush_lost(&device->flush))
		backend_owe(device->device);
	atomic_fetch_add(&device->lost_nr, 1);
	atomic_fetch_add(&device->revive_nr, 1);
	ret = revive_start(device, image);
	if (ret == 0)
		return;
	/* The next request that fails tries again. */
	log_error("no thread to open the image again", "device=%s error=%s", device->name,
		  errname(ret));
	atomic_fetch_sub(&device->revive_nr, 1);
	atomic_store(&device->image, image);
}

void ceph_revive_stop(struct ceph_device *device)
{
	atomic_store(&device->closing, true);
	while (atomic_load(&device->revive_nr) > 0)
		ceph_nap();
}
