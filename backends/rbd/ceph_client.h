/*
 * Clients of Ceph clusters: a rados handle each, with some fifteen threads of librados and librbd,
 * so several images share one. Any thread that may block.
 */
#ifndef BACKENDS_RBD_CEPH_CLIENT_H
#define BACKENDS_RBD_CEPH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/rbd/ceph_api.h"
#include "config/yaml.h"
#include "storage/look.h"

/* "10.0.0.1:0/1234567", the addresses of a client, as the cluster's blocklist names it. */
#define CEPH_ADDRS_BYTES 256

/* Whose, where and how; texts may be NULL. Images with the same wish share clients. */
struct ceph_wish {
	const char *cluster, *user;		   /* "ceph", "admin" without "client." */
	const char *conf;			   /* NULL: none is read */
	const char *mon_host, *keyring, *key_file; /* key_file: not open to everybody */
	const char *cache;			   /* value of rbd_cache_policy, NULL: no cache */
	const struct yaml_node *options;	   /* a map of scalars */
	unsigned connect_s;			   /* limit of connecting */
	unsigned request_s;			   /* limit of a request */
	unsigned image_nr_max;			   /* that share a client */
	bool derives; /* keys from passphrases: see ceph_client_derive_begin */
};

struct ceph_client;

/*
 * A connected client for one image more. Returns 0, or -errno with words for the user; it may take
 * connect_s. ret_is_older: it was connected before, for other images: it may be lost already, and
 * none of them has noticed.
 */
int ceph_client_get(struct ceph_client **ret_client, bool *ret_is_older, const struct ceph_api *api,
		    const struct ceph_wish *wish, char *error, size_t error_bytes);

/* The image is closed; the last one ends the client, which may block. Accepts NULL. */
void ceph_client_put(struct ceph_client *client);

/* The cluster takes nothing more from it: the next image gets another one. */
void ceph_client_lost(struct ceph_client *client);

/*
 * Around the computing of a key from a passphrase. One image of a client at a time: it takes
 * seconds of one of the two threads on which such a client answers requests, and up to 1 GiB of
 * memory.
 */
void ceph_client_derive_begin(struct ceph_client *client);
void ceph_client_derive_end(struct ceph_client *client);

rados_t ceph_client_rados(const struct ceph_client *client);
/* CEPH_ADDRS_BYTES at most; stays as long as the client. */
const char *ceph_client_addrs(const struct ceph_client *client);

/*
 * No request of the client with these addresses is done any more when this returns 0, and what is
 * done by `client` from now on comes behind. Returns 0 or -errno.
 */
int ceph_client_fence(const struct ceph_client *client, const char *addrs);

/* Any thread: the clients of the process, the images that have one, and their threads. */
void ceph_client_look(struct backend_library_look *ret_look);

#endif
