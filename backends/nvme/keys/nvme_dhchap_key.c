/* Keys of DH-HMAC-CHAP. Owns nothing; any thread. Failure modes: words. */
#include "backends/nvme/keys/nvme_dhchap_key.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/util.h"

#define SEED "NVMe-over-Fabrics"
/* A field of an NQN, and the seed. */
#define SEEDED_BYTES_MAX (256 + sizeof(SEED))

int nvme_dhchap_key_parse(struct nvme_dhchap_key *ret_key, const char *text, char *error,
			  size_t error_bytes)
{
	int ret;

	if (strncmp(text, NVME_SECRET_TLS, strlen(NVME_SECRET_TLS)) == 0) {
		*ret_key = (struct nvme_dhchap_key){ 0 };
		snprintf(error, error_bytes,
			 "is a key for TLS: one for DH-HMAC-CHAP begins with " NVME_SECRET_DHCHAP);
		return -EINVAL;
	}
	ret = nvme_secret_parse(&ret_key->secret, NVME_SECRET_DHCHAP, text, error, error_bytes);
	if (ret == 0 && ret_key->secret.hash > NVME_HASH_SHA512) {
		snprintf(error, error_bytes,
			 "names hash %02u: known are 00 (none), 01 (SHA-256), 02 (SHA-384) and 03 "
			 "(SHA-512)",
			 ret_key->secret.hash);
		explicit_bzero(ret_key, sizeof(*ret_key));
		ret = -EINVAL;
	}
	return ret;
}

int nvme_dhchap_key_transform(const struct nvme_dhchap_key *key, const char *nqn,
			      uint8_t ret_transformed[static NVME_HASH_BYTES_MAX])
{
	const struct nvme_secret *secret = &key->secret;
	char seeded[SEEDED_BYTES_MAX];
	int nr, ret;

	if (secret->hash == NVME_HASH_NONE) {
		memcpy(ret_transformed, secret->key, secret->bytes);
		return (int)secret->bytes;
	}
	nr = snprintf(seeded, sizeof(seeded), "%s" SEED, nqn);
	ASSERT(nr < (int)sizeof(seeded));
	ret = nvme_hmac(secret->hash, secret->key, secret->bytes, seeded, (size_t)nr,
			ret_transformed);
	return ret < 0 ? ret : (int)nvme_hash_bytes(secret->hash);
}
