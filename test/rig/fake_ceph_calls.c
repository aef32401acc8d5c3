/* Calls of librados and librbd that the fake answers at once. */
#include <errno.h>
#include <string.h>

#include "test/rig/fake_ceph_internal.h"

/* ---- clients ---- */

static int fake_rados_create2(rados_t *cluster, const char *name, const char *user, uint64_t flags)
{
	struct fake_client *c;
	int err = fake_enter("rados_create2");

	(void)flags;
	if (err < 0)
		return err;
	c = calloc(1, sizeof(*c));
	FAKE_CHECK(c);
	snprintf(c->conf[0].name, sizeof(c->conf[0].name), "cluster");
	snprintf(c->conf[0].value, sizeof(c->conf[0].value), "%s", name);
	snprintf(c->conf[1].name, sizeof(c->conf[1].name), "name");
	snprintf(c->conf[1].value, sizeof(c->conf[1].value), "%s", user);
	c->conf_nr = 2;
	fake_lock();
	list_push_back(&fake.clients, &c->node);
	fake_unlock();
	*cluster = c;
	return 0;
}

static int fake_rados_conf_set(rados_t cluster, const char *option, const char *value)
{
	struct fake_client *c = cluster;
	unsigned at = 0;
	int err = fake_enter("rados_conf_set");

	if (err < 0 || strcmp(option, "no_such_option") == 0)
		return err < 0 ? err : -ENOENT;
	fake_lock();
	FAKE_CHECK(c->nr == 0);
	while (at < c->conf_nr && strcmp(c->conf[at].name, option) != 0)
		at++;
	FAKE_CHECK(at < FAKE_CONF_MAX);
	snprintf(c->conf[at].name, sizeof(c->conf[at].name), "%s", option);
	snprintf(c->conf[at].value, sizeof(c->conf[at].value), "%s", value);
	c->conf_nr = MAX(c->conf_nr, at + 1);
	fake_unlock();
	return 0;
}

static int fake_rados_conf_get(rados_t cluster, const char *option, char *buf, size_t bytes)
{
	const struct fake_client *c = cluster;
	const char *value = "";
	int err = fake_enter("rados_conf_get");

	if (err < 0)
		return err;
	fake_lock();
	for (unsigned i = 0; i < c->conf_nr; i++)
		if (strcmp(c->conf[i].name, option) == 0)
			value = c->conf[i].value;
	err = snprintf(buf, bytes, "%s", value) < (int)bytes ? 0 : -ENAMETOOLONG;
	fake_unlock();
	return err;
}

static int fake_rados_conf_read_file(rados_t cluster, const char *path)
{
	int err = fake_enter("rados_conf_read_file");

	return err < 0 ? err : fake_rados_conf_set(cluster, "conf", path);
}

static int fake_rados_connect(rados_t cluster)
{
	struct fake_client *c = cluster;
	int err = fake_enter("rados_connect");

	if (err < 0)
		return err;
	fake_lock();
	FAKE_CHECK(c->nr == 0);
	c->nr = ++fake.client_nr;
	c->is_listed = fake.listed[c->nr / 8] >> c->nr % 8 & 1;
	fake_event("connect %u;", c->nr);
	fake_unlock();
	return 0;
}

static void fake_rados_shutdown(rados_t cluster)
{
	struct fake_client *c = cluster;

	fake_enter("rados_shutdown");
	fake_lock();
	FAKE_CHECK(c->ioctx_nr == 0);
	if (c->nr)
		fake_event("end %u;", c->nr);
	list_remove(&c->node);
	fake_unlock();
	free(c);
}

static int fake_rados_cluster_fsid(rados_t cluster, char *buf, size_t bytes)
{
	static const char fsid[] = "0f0e0d0c-0b0a-0908-0706-050403020100";
	const struct fake_client *c = cluster;

	fake_lock();
	FAKE_CHECK(c->nr > 0);
	fake_unlock();
	if (bytes < sizeof(fsid))
		return -ERANGE;
	memcpy(buf, fsid, sizeof(fsid));
	return (int)sizeof(fsid) - 1;
}

static int fake_rados_getaddrs(rados_t cluster, char **ret_addrs)
{
	const struct fake_client *c = cluster;
	char addrs[FAKE_ADDRS_BYTES];
	int err = fake_enter("rados_getaddrs");

	if (err < 0)
		return err;
	fake_addrs(c->nr, addrs);
	*ret_addrs = strdup(addrs);
	return 0;
}

static int fake_rados_blocklist_add(rados_t cluster, char *addrs, uint32_t seconds)
{
	const struct fake_client *c = cluster;
	int err = fake_enter("rados_blocklist_add");

	(void)seconds;
	if (err < 0)
		return err;
	fake_lock();
	FAKE_CHECK(c->nr > 0);
	fake_list_addrs(addrs, c->nr);
	fake_unlock();
	return 0;
}

static int fake_rados_wait_for_latest_osdmap(rados_t cluster)
{
	(void)cluster;
	return fake_enter("rados_wait_for_latest_osdmap");
}

/* ---- pools ---- */

static int fake_rados_ioctx_create(rados_t cluster, const char *pool, rados_ioctx_t *ret_ioctx)
{
	struct fake_client *c = cluster;
	struct fake_ioctx *ioctx;
	int err = fake_enter("rados_ioctx_create");

	if (err < 0 || strcmp(pool, fake.image->pool) != 0)
		return err < 0 ? err : -ENOENT;
	ioctx = calloc(1, sizeof(*ioctx));
	FAKE_CHECK(ioctx);
	ioctx->client = c;
	fake_lock();
	c->ioctx_nr++;
	fake_unlock();
	*ret_ioctx = ioctx;
	return 0;
}

static void fake_rados_ioctx_destroy(rados_ioctx_t io)
{
	struct fake_ioctx *ioctx = io;

	fake_lock();
	FAKE_CHECK(ioctx->handle_nr == 0 && ioctx->client->ioctx_nr > 0);
	ioctx->client->ioctx_nr--;
	fake_unlock();
	free(ioctx);
}

static int64_t fake_rados_ioctx_get_id(rados_ioctx_t io)
{
	const struct fake_ioctx *ioctx = io;

	fake_lock();
	FAKE_CHECK(ioctx->client->ioctx_nr > 0);
	fake_unlock();
	return 7;
}

static void fake_rados_ioctx_set_namespace(rados_ioctx_t io, const char *namespace)
{
	struct fake_ioctx *ioctx = io;

	snprintf(ioctx->namespace, sizeof(ioctx->namespace), "%s", namespace);
}

/* ---- images ---- */

static int image_find(const struct fake_ioctx *ioctx, const char *name, const char *snapshot)
{
	const struct fake_image *image = fake.image;

	if (ioctx->client->is_listed)
		return -ESHUTDOWN;
	if (strcmp(name, image->name) != 0 || strcmp(ioctx->namespace, image->namespace) != 0)
		return -ENOENT;
	return snapshot && strcmp(snapshot, image->snapshot) != 0 ? -ENOENT : 0;
}

static bool client_caches(const struct fake_client *c)
{
	bool on = false, keeps = false;

	for (unsigned i = 0; i < c->conf_nr; i++) {
		on |= strcmp(c->conf[i].name, "rbd_cache") == 0 &&
		      strcmp(c->conf[i].value, "true") == 0;
		keeps |= strcmp(c->conf[i].name, "rbd_cache_policy") == 0 &&
			 strcmp(c->conf[i].value, "writethrough") != 0;
	}
	return on && keeps;
}

static int handle_open(struct fake_ioctx *ioctx, const char *name, const char *snapshot,
		       bool read_only, rbd_image_t *ret_image)
{
	struct fake_handle *h = calloc(1, sizeof(*h));
	int err;

	FAKE_CHECK(h);
	fake_lock();
	err = image_find(ioctx, name, snapshot);
	if (err == 0) {
		h->ioctx = ioctx;
		h->client = ioctx->client;
		h->read_only = read_only;
		h->caches = client_caches(h->client);
		h->size_bytes = fake.image->size_bytes;
		list_init(&h->dirty);
		list_push_back(&fake.handles, &h->node);
		ioctx->handle_nr++;
		fake_event("open %u;", h->client->nr);
		*ret_image = h;
	}
	fake_unlock();
	if (err < 0)
		free(h);
	return err;
}

static int fake_rbd_open(rados_ioctx_t io, const char *name, rbd_image_t *ret_image,
			 const char *snapshot)
{
	int err = fake_enter("rbd_open");

	return err < 0 ? err : handle_open(io, name, snapshot, false, ret_image);
}

static int fake_rbd_open_read_only(rados_ioctx_t io, const char *name, rbd_image_t *ret_image,
				   const char *snapshot)
{
	int err = fake_enter("rbd_open_read_only");

	return err < 0 ? err : handle_open(io, name, snapshot, true, ret_image);
}

static int fake_rbd_close(rbd_image_t image)
{
	struct fake_handle *h = image;

	fake_enter("rbd_close");
	fake_lock();
	FAKE_CHECK(h->out_nr == 0 && !h->on_update);
	fake_cache_empty(h);
	fake_event("close %u;", h->client->nr);
	h->ioctx->handle_nr--;
	list_remove(&h->node);
	fake_unlock();
	free(h);
	return 0;
}

static int fake_rbd_get_size(rbd_image_t image, uint64_t *ret_bytes)
{
	const struct fake_handle *h = image;
	int err = fake_enter("rbd_get_size");

	if (err < 0)
		return err;
	fake_lock();
	*ret_bytes = h->size_bytes - h->header_bytes;
	fake_unlock();
	return 0;
}

static int fake_rbd_get_id(rbd_image_t image, char *id, size_t bytes)
{
	int err = fake_enter("rbd_get_id");

	(void)image;
	if (err < 0)
		return err;
	fake_lock();
	snprintf(id, bytes, "%s", fake.image->id);
	fake_unlock();
	return 0;
}

static int fake_rbd_get_features(rbd_image_t image, uint64_t *ret_features)
{
	int err = fake_enter("rbd_get_features");

	(void)image;
	*ret_features = fake.image->features;
	return err;
}

static int fake_rbd_get_stripe_unit(rbd_image_t image, uint64_t *ret_bytes)
{
	int err = fake_enter("rbd_get_stripe_unit");

	(void)image;
	*ret_bytes = fake.image->stripe_unit_bytes;
	return err;
}

static int fake_rbd_stat(rbd_image_t image, rbd_image_info_t *info, size_t bytes)
{
	const struct fake_handle *h = image;
	int err = fake_enter("rbd_stat");

	FAKE_CHECK(bytes == sizeof(*info));
	fake_lock();
	*info = (rbd_image_info_t){ .size = h->size_bytes, .obj_size = fake.image->object_bytes };
	fake_unlock();
	return err;
}

static int fake_rbd_resize2(rbd_image_t image, uint64_t size_bytes, bool allow_shrink,
			    librbd_progress_fn_t cb, void *arg)
{
	struct fake_handle *h = image;
	int err = fake_enter("rbd_resize2");

	(void)cb;
	(void)arg;
	if (err < 0)
		return err;
	fake_lock();
	FAKE_CHECK(allow_shrink || size_bytes >= fake.image->size_bytes);
	if (h->client->is_listed)
		err = -ESHUTDOWN;
	else
		fake.image->size_bytes = h->size_bytes = size_bytes;
	if (err == 0)
		fake_tell_all();
	fake_unlock();
	return err;
}

/* ---- locks ---- */

static int fake_rbd_lock_acquire(rbd_image_t image, rbd_lock_mode_t mode)
{
	int err = fake_enter("rbd_lock_acquire");

	(void)image;
	FAKE_CHECK(mode == RBD_LOCK_MODE_EXCLUSIVE);
	return err < 0 ? err : fake.image->lock_owner[0] ? -EROFS : 0;
}

static int fake_rbd_lock_get_owners(rbd_image_t image, rbd_lock_mode_t *mode, char **owners,
				    size_t *nr)
{
	int err = fake_enter("rbd_lock_get_owners");

	(void)image;
	FAKE_CHECK(*nr >= 1);
	if (err < 0 || !fake.image->lock_owner[0])
		return err < 0 ? err : -ENOENT;
	*mode = RBD_LOCK_MODE_EXCLUSIVE;
	owners[0] = strdup(fake.image->lock_owner);
	*nr = 1;
	return 0;
}

static void fake_rbd_lock_get_owners_cleanup(char **owners, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free(owners[i]);
}

/* ---- encryption: a header in front of the data, as LUKS has ---- */

static int fake_rbd_encryption_load(rbd_image_t image, rbd_encryption_format_t format,
				    rbd_encryption_options_t opts, size_t bytes)
{
	/* Both formats' options look the same. */
	const rbd_encryption_luks1_format_options_t *luks = opts;
	struct fake_handle *h = image;
	size_t key_bytes = strlen(fake.image->passphrase);
	int err = fake_enter("rbd_encryption_load");

	FAKE_CHECK(bytes == sizeof(*luks));
	if (err < 0)
		return err;
	if (key_bytes == 0 || format != fake.image->format)
		return -EINVAL;
	if (luks->passphrase_size != key_bytes ||
	    memcmp(luks->passphrase, fake.image->passphrase, key_bytes) != 0)
		return -EPERM;
	fake_lock();
	h->header_bytes = FAKE_LUKS_HEADER_BYTES;
	fake_unlock();
	return 0;
}

/* ---- news ---- */

static int fake_rbd_update_watch(rbd_image_t image, uint64_t *ret_watch, rbd_update_callback_t cb,
				 void *arg)
{
	struct fake_handle *h = image;
	int err = fake_enter("rbd_update_watch");

	if (err < 0)
		return err;
	fake_lock();
	FAKE_CHECK(!h->on_update && !h->read_only);
	h->on_update = cb;
	h->on_update_arg = arg;
	*ret_watch = 1;
	fake_unlock();
	return 0;
}

/* As librbd does, it waits for a callback that runs. */
static int fake_rbd_update_unwatch(rbd_image_t image, uint64_t watch)
{
	struct fake_handle *h = image;

	fake_enter("rbd_update_unwatch");
	fake_lock();
	FAKE_CHECK(watch == 1 && h->on_update);
	while (h->is_telling)
		pthread_cond_wait(&fake.changed, &fake.lock);
	h->on_update = NULL;
	h->has_news = false;
	fake_unlock();
	return 0;
}

#define FAKE_FIELD(call) .call = fake_##call,

const struct ceph_api fake_api = { CEPH_RADOS_CALLS(FAKE_FIELD) CEPH_RBD_CALLS(FAKE_FIELD) };
