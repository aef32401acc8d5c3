/*
 * Pre-shared keys of NVMe/TCP over TLS 1.3: from the text that both sides are given to the key and
 * the identity that TLS uses. TCP 3.6.1; Linux drivers/nvme/common/auth.c. Pure, any thread.
 */
#ifndef BACKENDS_NVME_KEYS_NVME_TLS_KEY_H
#define BACKENDS_NVME_KEYS_NVME_TLS_KEY_H

#include "backends/nvme/keys/nvme_crypto.h"
#include "backends/nvme/keys/nvme_secret.h"

#define NVME_TLS_PSK_BYTES_MAX 48u
/* "NVMe1R02 ", two names of 223 bytes, the digest of SHA-384 in base64, what is between, a NUL */
#define NVME_TLS_IDENTITY_BYTES (9u + 2 * 224u + 64u + 1)

/* The configured PSK. The owner wipes it (explicit_bzero). */
struct nvme_tls_key {
	struct nvme_secret secret;
};

/*
 * text: "NVMeTLSkey-1:0x:BASE64:", as nvme gen-tls-key makes it; 00: it is used as it is, 01, 02:
 * each host has its own, made of it by SHA-256 or SHA-384. Returns 0, or -EINVAL with words that go
 * on behind the name of the text.
 */
int nvme_tls_key_parse(struct nvme_tls_key *ret_key, const char *text, char *error,
		       size_t error_bytes);

/* How the identity is made: the target must do it alike. */
enum nvme_tls_version {
	NVME_TLS_V0 = 0, /* "NVMe0R01 HOST SUBSYSTEM": TCP 1.0 */
	NVME_TLS_V1 = 1, /* and a digest of the key behind it: TCP 1.1 */
};

struct nvme_tls_derivation {
	enum nvme_tls_version version;
	/*
	 * As older libnvme does, and its functions *_compat: HkdfLabel without the lengths of its
	 * parts, and little endian. Other keys come of it.
	 */
	bool old_labels;
	const char *host_nqn, *subsystem_nqn; /* at most 223 bytes each */
};

/* What TLS is given. The owner wipes it. */
struct nvme_tls_psk {
	uint8_t hash; /* of the cipher suite: NVME_HASH_SHA256 or NVME_HASH_SHA384 */
	uint32_t bytes;
	uint8_t psk[NVME_TLS_PSK_BYTES_MAX];
	char identity[NVME_TLS_IDENTITY_BYTES];
};

/*
 * Returns 0, -ENAMETOOLONG: of version 0 only, names of more than 245 bytes together do not fit; or
 * -EIO (nvme_hmac). *ret_psk holds nothing then.
 */
int nvme_tls_psk_derive(struct nvme_tls_psk *ret_psk, const struct nvme_tls_key *key,
			const struct nvme_tls_derivation *how);

#endif
