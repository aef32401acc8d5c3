/*
 * librbd and librados, loaded while ublkd runs, so that who has no Ceph needs neither. The rest of
 * the backend calls them by this table alone; tests put one of their own in its place.
 */
#ifndef BACKENDS_RBD_CEPH_API_H
#define BACKENDS_RBD_CEPH_API_H

#include <stddef.h>

#include <rados/librados.h>
#include <rbd/librbd.h>

/* All of them are in 16.2 (Pacific) and later. */
#define CEPH_RADOS_CALLS(X)                                                                        \
	X(rados_create2)                                                                           \
	X(rados_conf_read_file)                                                                    \
	X(rados_conf_set)                                                                          \
	X(rados_conf_get)                                                                          \
	X(rados_connect)                                                                           \
	X(rados_shutdown)                                                                          \
	X(rados_cluster_fsid)                                                                      \
	X(rados_getaddrs)                                                                          \
	X(rados_blocklist_add)                                                                     \
	X(rados_wait_for_latest_osdmap)                                                            \
	X(rados_ioctx_create)                                                                      \
	X(rados_ioctx_destroy)                                                                     \
	X(rados_ioctx_get_id)                                                                      \
	X(rados_ioctx_set_namespace)

#define CEPH_RBD_CALLS(X)                                                                          \
	X(rbd_open)                                                                                \
	X(rbd_open_read_only)                                                                      \
	X(rbd_close)                                                                               \
	X(rbd_get_size)                                                                            \
	X(rbd_get_id)                                                                              \
	X(rbd_get_features)                                                                        \
	X(rbd_get_stripe_unit)                                                                     \
	X(rbd_stat)                                                                                \
	X(rbd_resize2)                                                                             \
	X(rbd_lock_acquire)                                                                        \
	X(rbd_lock_get_owners)                                                                     \
	X(rbd_lock_get_owners_cleanup)                                                             \
	X(rbd_encryption_load)                                                                     \
	X(rbd_update_watch)                                                                        \
	X(rbd_update_unwatch)                                                                      \
	X(rbd_aio_create_completion)                                                               \
	X(rbd_aio_get_return_value)                                                                \
	X(rbd_aio_release)                                                                         \
	X(rbd_aio_read)                                                                            \
	X(rbd_aio_write2)                                                                          \
	X(rbd_aio_flush)                                                                           \
	X(rbd_aio_discard)                                                                         \
	X(rbd_aio_write_zeroes)

#define CEPH_FIELD(call) typeof(call) *call;

struct ceph_api {
	CEPH_RADOS_CALLS(CEPH_FIELD)
	CEPH_RBD_CALLS(CEPH_FIELD)
};

/*
 * Any thread that may wait for files. Loads the libraries once; they stay. Returns 0, or -ENOENT
 * with words that say what to install.
 */
int ceph_api_get(const struct ceph_api **ret_api, char *error, size_t error_bytes);

/* For tests, before anything of the backend: ceph_api_get returns this one. */
void ceph_api_use(const struct ceph_api *api);

#endif
