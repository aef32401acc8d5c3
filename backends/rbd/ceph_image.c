/*
 * One image, open. Owns struct ceph_image; threads that may block.
 *
 * Happy path: a client, the pool, the namespace, the image, its key, its lock, its watch. Failure
 * modes: each has words; what was opened is closed again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/rbd/rbd.h"
#include "base/errname.h"
#include "base/util.h"
#include "net/secret_file.h"

#define PASSPHRASE_BYTES_MAX 4096

struct image_words {
	char *error;
	size_t bytes;
};

__attribute__((format(printf, 3, 4))) static int image_fail(const struct image_words *w, int err,
							    const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(w->error, w->bytes, fmt, args);
	va_end(args);
	return err;
}

/* ---- the client ---- */

static const char *const cache_policies[] = {
	[CEPH_CACHE_WRITEAROUND] = "writearound",
	[CEPH_CACHE_WRITETHROUGH] = "writethrough",
	[CEPH_CACHE_WRITEBACK] = "writeback",
};

static unsigned image_seconds(uint64_t ns)
{
	return (unsigned)MIN((ns + NS_PER_SEC - 1) / NS_PER_SEC, 86400u);
}

/*
 * librbd cannot be asked to give a request up: only by a limit of all of them does one end whose
 * OSD is away, so that the device can be stopped. With on_disconnect: forever it is sent again.
 */
static unsigned image_request_s(const struct net_outage_config *outage)
{
	if (outage->outage_timeout_ns == OPTION_FOREVER)
		return 60;
	return image_seconds(MAX(outage->outage_timeout_ns, outage->timeout_ns));
}

static struct ceph_wish image_wish(const struct ceph_config *config)
{
	return (struct ceph_wish){
		.cluster = config->cluster,
		.user = config->user,
		.conf = config->conf,
		.mon_host = config->mon_host,
		.keyring = config->keyring,
		.key_file = config->key_file,
		.cache = cache_policies[config->cache],
		.options = config->options,
		.connect_s = image_seconds(config->outage.timeout_ns),
		.request_s = image_request_s(&config->outage),
		.image_nr_max = (unsigned)config->images_per_client,
		.derives = config->encryption != CEPH_ENCRYPTION_NONE,
	};
}

/* ---- open ---- */

static int image_open_pool(struct ceph_image *image, const struct image_words *w)
{
	const struct ceph_target *t = &image->device->target;
	const struct ceph_api *api = image->device->api;
	int ret = api->rados_ioctx_create(ceph_client_rados(image->client), t->pool, &image->ioctx);

	if (ret == -ENOENT)
		return image_fail(w, ret, "the cluster has no pool %s: see ceph osd pool ls",
				  t->pool);
	if (ret < 0)
		return image_fail(w, ret, "the pool %s cannot be opened: %s", t->pool,
				  errname(ret));
	if (t->namespace[0])
		api->rados_ioctx_set_namespace(image->ioctx, t->namespace);
	return 0;
}

static int image_open_failed(const struct ceph_image *image, const struct image_words *w, int err)
{
	const struct ceph_device *d = image->device;

	switch (-err) {
	case ENOENT:
		return image_fail(w, err, "there is no %s %s: see rbd ls --pool %s",
				  d->target.snapshot[0] ? "image or snapshot" : "image", d->address,
				  d->target.pool);
	case EPERM:
	case EACCES:
		return image_fail(w, err,
				  "client.%s may not use %s: give it mon 'profile rbd' and osd "
				  "'profile rbd pool=%s', or set read_only: true",
				  d->config->user, d->address, d->target.pool);
	case ETIMEDOUT:
		return image_fail(w, err, "%s cannot be opened: an OSD does not answer",
				  d->address);
	default:
		return image_fail(w, err, "%s cannot be opened: %s", d->address, errname(err));
	}
}

static int image_open_rbd(struct ceph_image *image, const struct image_words *w)
{
	const struct ceph_device *d = image->device;
	const char *snapshot = d->target.snapshot[0] ? d->target.snapshot : NULL;
	int ret;

	if (d->read_only)
		ret = d->api->rbd_open_read_only(image->ioctx, d->target.image, &image->rbd,
						 snapshot);
	else
		ret = d->api->rbd_open(image->ioctx, d->target.image, &image->rbd, NULL);
	if (ret < 0)
		return image_open_failed(image, w, ret);
	image->is_open = true;
	ret = d->api->rbd_get_id(image->rbd, image->id, sizeof(image->id));
	return ret < 0 ? image_open_failed(image, w, ret) : 0;
}

/* ---- encryption ---- */

static int image_read_passphrase(const struct ceph_image *image, char *text, size_t *ret_bytes,
				 const struct image_words *w)
{
	const char *path = image->device->config->passphrase_file;
	size_t bytes;
	ssize_t nr;
	int fd = secret_file_open(path, FILE_SECRET, &bytes, w->error, w->bytes);

	if (fd < 0)
		return fd;
	nr = bytes <= PASSPHRASE_BYTES_MAX ? read(fd, text, PASSPHRASE_BYTES_MAX) : -1;
	close(fd);
	if (nr <= 0 || (nr == 1 && text[0] == '\n'))
		return image_fail(w, -EINVAL,
				  "passphrase_file: %s is empty, or longer than %d bytes", path,
				  PASSPHRASE_BYTES_MAX);
	*ret_bytes = (size_t)nr;
	return 0;
}

static int image_load_key(struct ceph_image *image, const char *text, size_t bytes)
{
	const struct ceph_api *api = image->device->api;
	rbd_encryption_luks1_format_options_t luks1 = { .passphrase = text,
							.passphrase_size = bytes };
	rbd_encryption_luks2_format_options_t luks2 = { .passphrase = text,
							.passphrase_size = bytes };

	if (image->device->config->encryption == CEPH_ENCRYPTION_LUKS1)
		return api->rbd_encryption_load(image->rbd, RBD_ENCRYPTION_FORMAT_LUKS1, &luks1,
						sizeof(luks1));
	return api->rbd_encryption_load(image->rbd, RBD_ENCRYPTION_FORMAT_LUKS2, &luks2,
					sizeof(luks2));
}

/*
 * Whether a line's end belongs to the passphrase depends on who has formatted the image: rbd of
 * Ceph 16 and 17 leaves it out, rbd of later ones and cryptsetup --key-file take it.
 */
static int image_try_passphrase(struct ceph_image *image, const char *text, size_t bytes)
{
	bool has_end = bytes > 0 && text[bytes - 1] == '\n';
	int ret = image_load_key(image, text, bytes - has_end);

	return ret == -EPERM && has_end ? image_load_key(image, text, bytes) : ret;
}

static int image_decrypt_failed(const struct ceph_image *image, const struct image_words *w,
				int err)
{
	const struct ceph_config *config = image->device->config;
	const char *address = image->device->address;
	const char *format = config->encryption == CEPH_ENCRYPTION_LUKS1 ? "LUKS1" : "LUKS2";

	switch (-err) {
	case EPERM:
		return image_fail(w, err, "passphrase_file: the passphrase in %s does not open %s",
				  config->passphrase_file, address);
	case EINVAL:
		return image_fail(w, err,
				  "encryption: %s has no header of %s: see rbd encryption format",
				  address, format);
	case ENOTSUP:
		return image_fail(w, err,
				  "%s is in %s with a cipher that librbd does not have: it has "
				  "aes-xts-plain64",
				  address, format);
	default:
		return image_fail(w, err, "%s cannot be decrypted: %s", address, errname(err));
	}
}

static int image_decrypt(struct ceph_image *image, const struct image_words *w)
{
	char text[PASSPHRASE_BYTES_MAX];
	size_t bytes = 0;
	int ret;

	if (image->device->config->encryption == CEPH_ENCRYPTION_NONE)
		return 0;
	ret = image_read_passphrase(image, text, &bytes, w);
	if (ret < 0)
		return ret;
	ceph_client_derive_begin(image->client);
	ret = image_try_passphrase(image, text, bytes);
	ceph_client_derive_end(image->client);
	explicit_bzero(text, sizeof(text));
	return ret < 0 ? image_decrypt_failed(image, w, ret) : 0;
}

/* ---- the lock ---- */

static int image_lock_held(struct ceph_image *image, const struct image_words *w)
{
	const struct ceph_api *api = image->device->api;
	rbd_lock_mode_t mode;
	char *owner = NULL;
	size_t nr = 1;

	if (api->rbd_lock_get_owners(image->rbd, &mode, &owner, &nr) < 0)
		return image_fail(w, -EROFS, "another client holds the lock of %s",
				  image->device->address);
	image_fail(w, -EROFS, "another client, %s, holds the lock of %s: see rbd lock ls %s", owner,
		   image->device->address, image->device->address);
	api->rbd_lock_get_owners_cleanup(&owner, nr);
	return -EROFS;
}

static int image_lock(struct ceph_image *image, const struct image_words *w)
{
	const struct ceph_device *d = image->device;
	uint64_t features = 0;
	bool has_lock;
	int ret = d->api->rbd_get_features(image->rbd, &features);

	if (ret < 0)
		return image_open_failed(image, w, ret);
	has_lock = features & RBD_FEATURE_EXCLUSIVE_LOCK;
	if (d->read_only || d->config->exclusive == CEPH_EXCLUSIVE_AUTO)
		return 0;
	if (d->config->exclusive == CEPH_EXCLUSIVE_OFF)
		return has_lock ? image_fail(w, -EINVAL,
					     "exclusive: off wants an image without that feature: "
					     "rbd feature disable %s object-map,fast-diff,"
					     "exclusive-lock",
					     d->address)
				: 0;
	if (!has_lock)
		return image_fail(w, -EINVAL,
				  "exclusive: hold wants an image with that feature: rbd feature "
				  "enable %s exclusive-lock",
				  d->address);
	ret = d->api->rbd_lock_acquire(image->rbd, RBD_LOCK_MODE_EXCLUSIVE);
	if (ret == -EROFS || ret == -EBUSY)
		return image_lock_held(image, w);
	return ret < 0 ? image_fail(w, ret, "the lock of %s cannot be had: %s", d->address,
				    errname(ret))
		       : 0;
}

/* ---- the watch ---- */

static void image_on_update(void *arg)
{
	const struct ceph_image *image = arg;

	ceph_size_changed(image->device, image);
}

/* librbd watches no image that is opened read-only: then nobody tells. */
static int image_watch(struct ceph_image *image, const struct image_words *w)
{
	const struct ceph_device *d = image->device;
	int ret;

	if (d->read_only)
		return 0;
	ret = d->api->rbd_update_watch(image->rbd, &image->watch, image_on_update, image);
	if (ret < 0)
		return image_fail(w, ret, "%s cannot be watched: %s", d->address, errname(ret));
	image->is_watched = true;
	return 0;
}

/* ---- all of it ---- */

void ceph_image_close(struct ceph_image *image)
{
	const struct ceph_api *api = image->device->api;

	if (image->is_watched)
		api->rbd_update_unwatch(image->rbd, image->watch);
	if (image->is_open)
		api->rbd_close(image->rbd);
	if (image->ioctx)
		api->rados_ioctx_destroy(image->ioctx);
	ceph_client_put(image->client);
	image->is_watched = image->is_open = false;
	image->ioctx = NULL;
	image->client = NULL;
}

static int image_open_steps(struct ceph_image *image, const struct image_words *w)
{
	struct ceph_device *d = image->device;
	const struct ceph_wish wish = image_wish(d->config);
	int ret = ceph_client_get(&image->client, &image->has_older_client, d->api, &wish, w->error,
				  w->bytes);

	if (ret == 0)
		ret = ceph_fence_predecessor(d, image->client, w->error, w->bytes);
	if (ret == 0)
		ret = image_open_pool(image, w);
	if (ret == 0)
		ret = image_open_rbd(image, w);
	if (ret == 0)
		ret = image_decrypt(image, w);
	if (ret == 0)
		ret = image_lock(image, w);
	return ret == 0 ? image_watch(image, w) : ret;
}

/*
 * True: the client, which was other images', is on the blocklist. It is not taken again; each time
 * there is one less of those that were connected before.
 */
static bool image_client_is_stale(struct ceph_image *image)
{
	bool is_stale = image->client && image->has_older_client;

	if (is_stale)
		ceph_client_lost(image->client);
	ceph_image_close(image);
	return is_stale;
}

int ceph_image_open(struct ceph_image **ret_image, struct ceph_device *device, char *error,
		    size_t error_bytes)
{
	const struct image_words words = { error, error_bytes };
	struct ceph_image *image = lines_zalloc(1, sizeof(*image));
	int ret;

	if (!image)
		return image_fail(&words, -ENOMEM, "out of memory");
	image->device = device;
	do {
		ret = image_open_steps(image, &words);
	} while (ret == -ESHUTDOWN && image_client_is_stale(image));
	if (ret < 0) {
		ceph_image_close(image);
		free(image);
		return ret;
	}
	image->older = device->images;
	device->images = image;
	*ret_image = image;
	return 0;
}

void ceph_images_free(struct ceph_device *device)
{
	struct ceph_image *image, *older;

	for (image = device->images; image; image = older) {
		older = image->older;
		free(image);
	}
	device->images = NULL;
}
