/*
 * Derives the PSKs of NVMe/TCP. Owns nothing; any thread. Failure modes: words for text, -errno for
 * the rest.
 *
 * Configured PSK -> retained PSK (of this host) -> with the identity, the PSK of TLS. Each arrow is
 * HKDF-Extract without salt, then HKDF-Expand-Label (RFC 5869, RFC 8446 7.1) for as many bytes as
 * the hash has: one block.
 */
#include "backends/nvme/keys/nvme_tls_key.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/util.h"

#define SEED "NVMe-over-Fabrics"
#define CONTEXT_BYTES_MAX 255u
#define NAMES_BYTES_MAX (2 * 223u)
/* Its length, "tls13 " and the label, the context, each behind its length, the block's number. */
#define INFO_BYTES_MAX (2 + 1 + 32 + 1 + CONTEXT_BYTES_MAX + 1)

int nvme_tls_key_parse(struct nvme_tls_key *ret_key, const char *text, char *error,
		       size_t error_bytes)
{
	struct nvme_secret *secret = &ret_key->secret;
	int ret;

	if (strncmp(text, NVME_SECRET_DHCHAP, strlen(NVME_SECRET_DHCHAP)) == 0) {
		*ret_key = (struct nvme_tls_key){ 0 };
		snprintf(error, error_bytes,
			 "is a key for DH-HMAC-CHAP: one for TLS begins with " NVME_SECRET_TLS);
		return -EINVAL;
	}
	ret = nvme_secret_parse(secret, NVME_SECRET_TLS, text, error, error_bytes);
	if (ret < 0)
		return ret;
	if (secret->hash > NVME_HASH_SHA384)
		snprintf(error, error_bytes,
			 "names hash %02u: known are 00 (none), 01 (SHA-256) and 02 (SHA-384)",
			 secret->hash);
	else if (secret->bytes > NVME_TLS_PSK_BYTES_MAX)
		snprintf(error, error_bytes, "has a key of %u bytes: one for TLS has 32 or 48",
			 secret->bytes);
	else if (secret->hash && secret->bytes != nvme_hash_bytes(secret->hash))
		snprintf(error, error_bytes,
			 "has a key of %u bytes, which does not go with hash %02u: that has %u",
			 secret->bytes, secret->hash, nvme_hash_bytes(secret->hash));
	else
		return 0;
	explicit_bzero(ret_key, sizeof(*ret_key));
	return -EINVAL;
}

/* ---- HKDF ---- */

struct derivation {
	uint8_t hash;
	bool old_labels;
	const char *label, *context;
};

/* HkdfLabel; the number of the only block is behind it. */
static size_t put_info(const struct derivation *d, uint8_t info[static INFO_BYTES_MAX])
{
	uint32_t bytes = nvme_hash_bytes(d->hash);
	size_t label_bytes = strlen(d->label), context_bytes = strlen(d->context);
	uint8_t *at = info + 2;

	ASSERT(context_bytes <= CONTEXT_BYTES_MAX && label_bytes <= 32);
	info[0] = d->old_labels ? (uint8_t)bytes : 0;
	info[1] = d->old_labels ? 0 : (uint8_t)bytes;
	if (!d->old_labels)
		*at++ = (uint8_t)label_bytes;
	memcpy(at, d->label, label_bytes);
	at += label_bytes;
	if (!d->old_labels)
		*at++ = (uint8_t)context_bytes;
	memcpy(at, d->context, context_bytes);
	at += context_bytes;
	*at++ = 1;
	return (size_t)(at - info);
}

/* key: as many bytes as the hash has; it is replaced by what is derived from it. */
static int derive(const struct derivation *d, uint8_t *key)
{
	static const uint8_t no_salt[NVME_HASH_BYTES_MAX];
	uint32_t bytes = nvme_hash_bytes(d->hash);
	uint8_t info[INFO_BYTES_MAX], prk[NVME_HASH_BYTES_MAX];
	size_t info_bytes = put_info(d, info);
	int ret = nvme_hmac(d->hash, no_salt, bytes, key, bytes, prk);

	if (ret == 0)
		ret = nvme_hmac(d->hash, prk, bytes, info, info_bytes, key);
	explicit_bzero(prk, sizeof(prk));
	return ret;
}

/* ---- identities ---- */

/* Behind the names comes the HMAC of them with the retained PSK, in base64. */
static int put_digest(const struct nvme_tls_psk *psk, const struct nvme_tls_derivation *how,
		      char ret_digest[static 65])
{
	char names[NAMES_BYTES_MAX + sizeof("  " SEED)];
	uint8_t digest[NVME_HASH_BYTES_MAX];
	int nr = snprintf(names, sizeof(names), "%s %s " SEED, how->host_nqn, how->subsystem_nqn);
	int ret;

	ASSERT(nr < (int)sizeof(names));
	ret = nvme_hmac(psk->hash, psk->psk, psk->bytes, names, (size_t)nr, digest);
	if (ret == 0)
		nvme_secret_base64(ret_digest, digest, nvme_hash_bytes(psk->hash));
	return ret;
}

/* psk->psk: the retained PSK. context: what the PSK of TLS is tied to. */
static int put_identity(struct nvme_tls_psk *psk, const struct nvme_tls_derivation *how,
			char ret_context[static CONTEXT_BYTES_MAX + 1])
{
	int nr = snprintf(psk->identity, sizeof(psk->identity), "NVMe%dR%02u %s %s",
			  (int)how->version, psk->hash, how->host_nqn, how->subsystem_nqn);
	char digest[65];
	int ret;

	ASSERT(nr > 0 && (size_t)nr + 66 <= sizeof(psk->identity));
	if (how->version == NVME_TLS_V0) {
		if (nr > (int)CONTEXT_BYTES_MAX)
			return -ENAMETOOLONG;
		memcpy(ret_context, psk->identity, (size_t)nr + 1);
		return 0;
	}
	ret = put_digest(psk, how, digest);
	if (ret < 0)
		return ret; /* UNTESTED: GnuTLS out of order */
	snprintf(psk->identity + nr, sizeof(psk->identity) - (size_t)nr, " %s", digest);
	snprintf(ret_context, CONTEXT_BYTES_MAX + 1, "%02u %s", psk->hash, digest);
	return 0;
}

int nvme_tls_psk_derive(struct nvme_tls_psk *ret_psk, const struct nvme_tls_key *key,
			const struct nvme_tls_derivation *how)
{
	const struct nvme_secret *secret = &key->secret;
	char context[CONTEXT_BYTES_MAX + 1];
	struct nvme_tls_psk psk = { .bytes = secret->bytes };
	struct derivation d = { .old_labels = how->old_labels };
	int ret = 0;

	psk.hash = secret->bytes == 32 ? NVME_HASH_SHA256 : NVME_HASH_SHA384;
	ASSERT(secret->bytes == nvme_hash_bytes(psk.hash));
	d.hash = psk.hash;
	memcpy(psk.psk, secret->key, secret->bytes);
	if (secret->hash != NVME_HASH_NONE) {
		d.label = "tls13 HostNQN";
		d.context = how->host_nqn;
		ret = derive(&d, psk.psk);
	}
	if (ret == 0)
		ret = put_identity(&psk, how, context);
	if (ret == 0) {
		d.label = "tls13 nvme-tls-psk";
		d.context = context;
		ret = derive(&d, psk.psk);
	}
	if (ret == 0)
		*ret_psk = psk;
	else
		memset(ret_psk, 0, sizeof(*ret_psk));
	explicit_bzero(&psk, sizeof(psk));
	return ret;
}
