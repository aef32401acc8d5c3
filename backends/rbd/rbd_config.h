/* What the user can configure of an RBD image. Needs nothing of Ceph. */
#ifndef BACKENDS_RBD_RBD_CONFIG_H
#define BACKENDS_RBD_RBD_CONFIG_H

#include "net/options.h"
#include "storage/backend.h"

#define CEPH_NAME_BYTES 256

enum ceph_exclusive { CEPH_EXCLUSIVE_AUTO, CEPH_EXCLUSIVE_HOLD, CEPH_EXCLUSIVE_OFF };
enum ceph_cache {
	CEPH_CACHE_OFF,
	CEPH_CACHE_WRITEAROUND,
	CEPH_CACHE_WRITETHROUGH,
	CEPH_CACHE_WRITEBACK
};
enum ceph_encryption { CEPH_ENCRYPTION_NONE, CEPH_ENCRYPTION_LUKS1, CEPH_ENCRYPTION_LUKS2 };

struct ceph_config {
	char *uri;
	char *pool, *namespace, *image, *snapshot; /* instead of the URI */
	char *conf, *cluster, *user, *mon_host, *keyring, *key_file;
	char *passphrase_file;
	int exclusive, cache, encryption; /* enums of these names */
	uint64_t images_per_client;
	struct yaml_node *options;
	struct net_outage_config outage;
};

/* What is acknowledged is in the memory of the client, until a FLUSH. */
static inline bool ceph_cache_is_volatile(const struct ceph_config *config)
{
	return config->cache == CEPH_CACHE_WRITEBACK || config->cache == CEPH_CACHE_WRITEAROUND;
}

extern const struct option ceph_options[];
extern const struct backend_uri ceph_backend_uri;

/* Which image; "" for what is not said. */
struct ceph_target {
	char pool[CEPH_NAME_BYTES], namespace[CEPH_NAME_BYTES];
	char image[CEPH_NAME_BYTES], snapshot[CEPH_NAME_BYTES];
};

/* ---- rbd_options.c ---- */

/* Which image. Any thread. Returns 0, or -EINVAL with words for the user. */
int ceph_config_target(const struct ceph_config *config, struct ceph_target *ret_target,
		       char *error, size_t error_bytes);
void ceph_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* ---- rbd_word.c ---- */

/* "rbd:pool/namespace/image@snapshot", namespace and snapshot as one likes. As above. */
int ceph_word_parse(const char *word, struct ceph_target *ret_target, char *error,
		    size_t error_bytes);
/* "pool/namespace/image@snapshot". Returns buf. */
const char *ceph_target_format(const struct ceph_target *target, char *buf, size_t buf_bytes);

/* ---- ceph_api.c, or rbd_without.c where ublkd was built without Ceph ---- */

/* Any thread that may wait for files: 0, or -errno with words that say what to install. */
extern int (*const ceph_library_check)(char *error, size_t error_bytes);

#endif
