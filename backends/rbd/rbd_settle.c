/*
 * A volatile cache and the hand over to another process: the cache ends with this one, so what it
 * has goes to the OSDs before. Owns struct ceph_settle; main thread, and the thread of librbd that
 * answers. No request of the device is under way.
 *
 * Happy path: acknowledged writes that no FLUSH has covered -> a FLUSH of our own -> answered:
 * settled -> abandon notes it in the record (rbd_fence.c), for the next process. Failure modes: it
 * fails: sent again with the next look; the image is lost: the writes are. The next FLUSH of the
 * device says so, here or there.
 */
#include "backends/rbd/rbd.h"

/* A thread of librbd. From the store on the device may be closed. */
static void settle_answered(rbd_completion_t completion, void *arg)
{
	struct ceph_device *d = arg;
	struct ceph_image *image = d->settle.image;
	int ret = (int)d->api->rbd_aio_get_return_value(completion);

	d->api->rbd_aio_release(completion);
	net_flush_end_own(&d->flush, ret);
	if (ret < 0)
		backend_owe(d->device);
	if (ceph_is_lost(ret))
		ceph_revive(d, image, ret);
	ceph_give_back_image(image);
	atomic_store(&d->settle.is_out, false);
}

static int settle_send(struct ceph_device *d, struct ceph_image *image)
{
	rbd_completion_t completion;
	int ret = d->api->rbd_aio_create_completion(d, settle_answered, &completion);

	if (ret < 0)
		return ret;
	d->settle.image = image;
	atomic_store(&d->settle.is_out, true);
	ret = d->api->rbd_aio_flush(image->rbd, completion);
	if (ret < 0) {
		atomic_store(&d->settle.is_out, false);
		d->api->rbd_aio_release(completion);
	}
	return ret;
}

static void settle_begin(struct ceph_device *d)
{
	struct ceph_image *image = ceph_take_image(d);
	int ret;

	if (!image)
		return;
	net_flush_begin_own(&d->flush);
	ret = settle_send(d, image);
	if (ret == 0)
		return;
	net_flush_end_own(&d->flush, ret);
	ceph_give_back_image(image);
}

bool ceph_settle(struct backend_device *device)
{
	struct ceph_device *d = device->priv;

	if (!d->flush.is_volatile)
		return true;
	if (atomic_load(&d->settle.is_out))
		return false;
	if (net_flush_is_settled(&d->flush))
		return true;
	settle_begin(d);
	return false;
}

void ceph_settle_stop(struct ceph_device *device)
{
	while (atomic_load(&device->settle.is_out))
		ceph_nap();
}

void ceph_abandon(struct backend_device *device)
{
	struct ceph_device *d = device->priv;

	/* A thread that opens the image again ends, as soon as it can. */
	atomic_store(&d->closing, true);
	ceph_fence_give_away(d, d->flush.is_volatile && net_flush_is_settled(&d->flush) &&
					!backend_is_owed(device));
}
