/* Keys of DH-HMAC-CHAP: Base 8.13.5. Pure, any thread. */
#ifndef BACKENDS_NVME_KEYS_NVME_DHCHAP_KEY_H
#define BACKENDS_NVME_KEYS_NVME_DHCHAP_KEY_H

#include "backends/nvme/keys/nvme_crypto.h"
#include "backends/nvme/keys/nvme_secret.h"

/* A host's key, or a controller's. The owner wipes it (explicit_bzero). */
struct nvme_dhchap_key {
	struct nvme_secret secret;
};

/*
 * text: "DHHC-1:0x:BASE64:", as nvme gen-dhchap-key makes it. Returns 0, or -EINVAL with words that
 * go on behind the name of the text.
 */
int nvme_dhchap_key_parse(struct nvme_dhchap_key *ret_key, const char *text, char *error,
			  size_t error_bytes);

/*
 * What takes part in the protocol: the key itself, or of it and of the NQN of whose key it is the
 * HMAC with the key's hash. Returns how many bytes, or -EIO (nvme_hmac).
 */
int nvme_dhchap_key_transform(const struct nvme_dhchap_key *key, const char *nqn,
			      uint8_t ret_transformed[static NVME_HASH_BYTES_MAX]);

#endif
