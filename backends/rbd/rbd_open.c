/*
 * Opening, what was found, and the size. Helper; ceph_size_changed: threads of librbd.
 *
 * Happy path: the libraries, the target, the image -> limits -> the client is noted for who takes
 * the device over. Failure modes: words for the user.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/rbd/rbd.h"
#include "base/errname.h"
#include "base/hash.h"
#include "base/util.h"
#include "storage/resize.h"

/* A DISCARD is a request for each object. */
#define DISCARD_OBJECTS_MAX 256u
/* Stripe units below that are not worth a cut. */
#define BOUNDARY_BYTES_MIN (64u << 10)
/* LUKS2 works on sectors of this size; smaller writes would be read first. */
#define LUKS2_BLOCK_BYTES 4096u

static uint32_t limits_caps(const struct ceph_device *d)
{
	uint32_t caps = ceph_cache_is_volatile(d->config) ? BACKEND_CAP_FLUSH | BACKEND_CAP_FUA : 0;

	if (d->read_only)
		return BACKEND_CAP_READ_ONLY;
	/* Of what it encrypts librbd frees nothing: a discard is a write of encrypted zeroes. */
	if (d->config->encryption == CEPH_ENCRYPTION_NONE)
		caps |= BACKEND_CAP_DISCARD;
	return caps | BACKEND_CAP_WRITE_ZEROES;
}

static int limits_find(struct backend_device *device, const struct ceph_image *image)
{
	const struct ceph_device *d = device->priv;
	uint64_t size_bytes = 0, unit_bytes = 0;
	rbd_image_info_t info = { 0 };
	int ret = d->api->rbd_stat(image->rbd, &info, sizeof(info));

	if (ret == 0)
		ret = d->api->rbd_get_size(image->rbd, &size_bytes); /* without LUKS's header */
	if (ret == 0)
		ret = d->api->rbd_get_stripe_unit(image->rbd, &unit_bytes);
	if (ret < 0)
		return backend_fail(device, ret, "%s cannot be asked what it is: %s", d->address,
				    errname(ret));
	device->limits = (struct backend_limits){
		.caps = limits_caps(d),
		.logical_block_bytes =
			d->config->encryption == CEPH_ENCRYPTION_LUKS2 ? LUKS2_BLOCK_BYTES : 0,
		.io_opt_bytes = (uint32_t)MIN(unit_bytes, UINT32_MAX / 2),
		.discard_granularity_bytes = (uint32_t)MIN(info.obj_size, UINT32_MAX / 2),
		.max_discard_bytes = info.obj_size * DISCARD_OBJECTS_MAX,
		.boundary_bytes = unit_bytes >= BOUNDARY_BYTES_MIN && unit_bytes <= MIB(256)
					  ? (uint32_t)unit_bytes
					  : 0,
	};
	backend_set_found_size(device, size_bytes);
	if (size_bytes == 0)
		return backend_fail(device, -EINVAL, "%s is empty: see rbd resize", d->address);
	return 0;
}

static int open_target(struct backend_device *device)
{
	struct ceph_device *d = device->priv;
	int ret = ceph_api_get(&d->api, device->error, sizeof(device->error));

	if (ret == 0)
		ret = ceph_config_target(d->config, &d->target, device->error,
					 sizeof(device->error));
	if (ret < 0)
		return ret;
	ceph_target_format(&d->target, d->address, sizeof(d->address));
	d->read_only = device->open_params.read_only || d->target.snapshot[0];
	if (sched_getaffinity(0, sizeof(d->cpus), &d->cpus) < 0)
		return backend_fail(device, -errno, "sched_getaffinity: %s", errname(errno));
	ret = ceph_fence_open(d, device->open_params.stored_fd);
	return ret < 0 ? backend_fail(device, ret, "no memory for the client's record: %s",
				      errname(ret))
		       : 0;
}

static void open_identity(struct ceph_device *d, const struct ceph_image *image)
{
	uint64_t where = hash_text(HASH_START, d->target.namespace);
	char fsid[40] = "";

	d->api->rados_cluster_fsid(ceph_client_rados(image->client), fsid, sizeof(fsid));
	where = hash_text(where, d->target.snapshot);
	snprintf(d->identity, sizeof(d->identity), "rbd %s %lld %.24s %016llx", fsid,
		 (long long)d->api->rados_ioctx_get_id(image->ioctx), image->id,
		 (unsigned long long)where);
}

static int open_image(struct backend_device *device)
{
	struct ceph_device *d = device->priv;
	uint64_t unseen_bytes = 0;
	struct ceph_image *image;
	int ret = ceph_image_open(&image, d, device->error, sizeof(device->error));

	if (ret < 0)
		return ret;
	atomic_store(&d->image, image);
	open_identity(d, image);
	ret = limits_find(device, image);
	if (ret < 0)
		return ret;
	/* Not when the image has told of another one meanwhile. */
	atomic_compare_exchange_strong(&d->seen_bytes, &unseen_bytes, device->tail.found_bytes);
	return ceph_fence_note(d, image->client);
}

int ceph_open(struct backend_device *device)
{
	struct ceph_device *d = device->priv;
	int ret;

	d->config = device->config;
	d->device = device;
	d->name = device->name;
	d->record_fd = -1;
	pthread_mutex_init(&d->news_lock, NULL);
	pthread_mutex_init(&d->record_lock, NULL);
	ret = open_target(device);
	if (ret < 0)
		return ret;
	net_flush_init(&d->flush, ceph_cache_is_volatile(d->config),
		       device->open_params.is_taken_over, &device->owed->unflushed, 0);
	/*
	 * A cache in the memory of the one before is gone with it, and what it had acknowledged,
	 * unless it has handed over in order.
	 */
	if (device->open_params.is_taken_over && !ceph_fence_was_clean(d) &&
	    net_flush_lost(&d->flush))
		backend_owe(device);
	return open_image(device);
}

void ceph_close(struct backend_device *device)
{
	struct ceph_device *d = device->priv;
	struct ceph_image *image;

	if (!d->config)
		return;
	ceph_settle_stop(d);
	ceph_revive_stop(d);
	image = atomic_exchange(&d->image, NULL);
	if (image)
		ceph_image_close(image);
	ceph_images_free(d);
	ceph_fence_close(d);
	pthread_mutex_destroy(&d->record_lock);
	pthread_mutex_destroy(&d->news_lock);
}

void ceph_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct ceph_device *d = device->priv;

	memcpy(text, d->identity, sizeof(d->identity));
}

/* ---- size ---- */

static void size_tell_shrunk(struct ceph_device *d, uint64_t now_bytes)
{
	char now[32], is[32];

	log_limited_by(&d->size_limit, LOG_LEVEL_ERROR,
		       "the image is smaller than the device: requests behind its end fail",
		       "device=%s image=%s image_size=%s device_size=%s", d->name, d->address,
		       option_format_size(now_bytes, now, sizeof(now)),
		       option_format_size(backend_size(d->device), is, sizeof(is)));
}

/* Whether an image of so many bytes has room for a larger device. */
static bool size_is_larger(const struct ceph_device *d, uint64_t bytes)
{
	return round_down(bytes, (uint64_t)d->device->open_params.logical_block_bytes) >
	       backend_size(d->device);
}

/* The one who hears of it is there while a queue is open. */
static void size_tell_grown(struct ceph_device *d)
{
	pthread_mutex_lock(&d->news_lock);
	if (d->news_queue_nr > 0)
		backend_has_grown(d->device);
	pthread_mutex_unlock(&d->news_lock);
}

void ceph_news_begin(struct ceph_device *d)
{
	pthread_mutex_lock(&d->news_lock);
	/* What was not told since it was opened. */
	if (d->news_queue_nr++ == 0 && size_is_larger(d, atomic_load(&d->seen_bytes)))
		backend_has_grown(d->device);
	pthread_mutex_unlock(&d->news_lock);
}

void ceph_news_end(struct ceph_device *d)
{
	pthread_mutex_lock(&d->news_lock);
	d->news_queue_nr--;
	pthread_mutex_unlock(&d->news_lock);
}

void ceph_size_changed(struct ceph_device *d, const struct ceph_image *image)
{
	uint64_t bytes, before;

	if (d->api->rbd_get_size(image->rbd, &bytes) < 0)
		return;
	before = atomic_exchange(&d->seen_bytes, bytes);
	if (before == 0 || before == bytes)
		return; /* not open yet; a snapshot was made */
	if (size_is_larger(d, bytes))
		size_tell_grown(d);
	else if (bytes < backend_size_needed(d->device))
		size_tell_shrunk(d, bytes);
}

static int ceph_size_now(struct backend_device *device, uint64_t *ret_bytes)
{
	const struct ceph_device *d = device->priv;

	*ret_bytes = atomic_load(&d->seen_bytes);
	return 0;
}

/* The image is made larger, as the user asks for it; it is never made smaller from here. */
static int ceph_grow(struct backend_device *device, uint64_t size_bytes)
{
	struct ceph_device *d = device->priv;
	struct ceph_image *image;
	int ret;

	if (size_bytes <= atomic_load(&d->seen_bytes))
		return 0;
	if (d->config->encryption != CEPH_ENCRYPTION_NONE)
		return backend_fail(device, -EOPNOTSUPP,
				    "the image is encrypted: let it grow by rbd resize, the device "
				    "follows");
	image = ceph_take_image(d);
	if (!image)
		return backend_fail(device, -EAGAIN, "the image is being opened again: try later");
	ret = d->api->rbd_resize2(image->rbd, size_bytes, false, NULL, NULL);
	ceph_give_back_image(image);
	if (ret < 0)
		return backend_fail(device, ret, "the image does not grow: %s", errname(ret));
	atomic_store(&d->seen_bytes, size_bytes);
	return 0;
}

const struct backend_resize ceph_resize = {
	.size_now = ceph_size_now,
	.grow = ceph_grow,
};
