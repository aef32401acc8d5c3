/*
 * GnuTLS and GMP for NVMe. Owns nothing; any thread. Failure modes: none but what the header says.
 *
 * GnuTLS 3.7 has no Diffie-Hellman of its own to call, but the primes; GMP is what it calculates
 * with itself. mpn_sec_* neither allocate nor branch on their operands.
 */
#include "backends/nvme/keys/nvme_crypto.h"

#include <errno.h>
#include <gmp.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/assert.h"
#include "base/util.h"

#define LIMB_BYTES sizeof(mp_limb_t)
#define LIMBS_MAX (NVME_DH_BYTES_MAX / LIMB_BYTES)
#define PRIVATE_LIMBS (NVME_DH_PRIVATE_BYTES / LIMB_BYTES)
/* A table of powers, 16 at least and 64 at most for a private number of 512 bits, and some more. */
#define SCRATCH_LIMBS (72 * LIMBS_MAX)

_Static_assert(GMP_NAIL_BITS == 0, "limbs are whole bytes");

static const struct hash {
	gnutls_digest_algorithm_t digest;
	gnutls_mac_algorithm_t mac;
	uint32_t bytes;
} hashes[] = {
	[NVME_HASH_SHA256] = { GNUTLS_DIG_SHA256, GNUTLS_MAC_SHA256, 32 },
	[NVME_HASH_SHA384] = { GNUTLS_DIG_SHA384, GNUTLS_MAC_SHA384, 48 },
	[NVME_HASH_SHA512] = { GNUTLS_DIG_SHA512, GNUTLS_MAC_SHA512, 64 },
};

uint32_t nvme_hash_bytes(uint8_t hash)
{
	return hash < ARRAY_SIZE(hashes) ? hashes[hash].bytes : 0;
}

int nvme_hash_data(uint8_t hash, const void *data, size_t bytes, uint8_t *ret_hash)
{
	ASSERT(nvme_hash_bytes(hash) > 0);
	return gnutls_hash_fast(hashes[hash].digest, data, bytes, ret_hash) < 0 ? -EIO : 0;
}

int nvme_hmac(uint8_t hash, const uint8_t *key, size_t key_bytes, const void *data, size_t bytes,
	      uint8_t *ret_hmac)
{
	int ret;

	ASSERT(nvme_hash_bytes(hash) > 0);
	ret = gnutls_hmac_fast(hashes[hash].mac, key, key_bytes, data, bytes, ret_hmac);
	return ret < 0 ? -EIO : 0;
}

bool nvme_secret_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	return gnutls_memcmp(a, b, bytes) == 0;
}

/* ---- Diffie-Hellman ---- */

static const gnutls_datum_t *dh_prime(uint8_t group)
{
	switch (group) {
	case NVME_DH_2048:
		return &gnutls_ffdhe_2048_group_prime;
	case NVME_DH_3072:
		return &gnutls_ffdhe_3072_group_prime;
	case NVME_DH_4096:
		return &gnutls_ffdhe_4096_group_prime;
	case NVME_DH_6144:
		return &gnutls_ffdhe_6144_group_prime;
	case NVME_DH_8192:
		return &gnutls_ffdhe_8192_group_prime;
	default:
		return NULL;
	}
}

uint32_t nvme_dh_bytes(uint8_t group)
{
	const gnutls_datum_t *prime = dh_prime(group);

	return prime ? prime->size : 0;
}

/* Limbs are the least significant first. */
static void dh_load(mp_limb_t *limbs, size_t limbs_nr, const uint8_t *at, size_t bytes)
{
	memset(limbs, 0, limbs_nr * LIMB_BYTES);
	for (size_t i = 0; i < bytes; i++)
		limbs[i / LIMB_BYTES] |= (mp_limb_t)at[bytes - 1 - i] << 8 * (i % LIMB_BYTES);
}

static void dh_store(uint8_t *at, size_t bytes, const mp_limb_t *limbs)
{
	for (size_t i = 0; i < bytes; i++)
		at[bytes - 1 - i] = (uint8_t)(limbs[i / LIMB_BYTES] >> 8 * (i % LIMB_BYTES));
}

/* base ^ private modulo the prime; base: as many limbs as the prime, and not 0. */
static void dh_power(const gnutls_datum_t *prime, const mp_limb_t *base, const uint8_t *private,
		     uint8_t *ret)
{
	size_t nr = prime->size / LIMB_BYTES;
	mp_limb_t modulus[LIMBS_MAX], power[LIMBS_MAX], exponent[PRIVATE_LIMBS];
	mp_limb_t scratch[SCRATCH_LIMBS];

	ASSERT(prime->size % LIMB_BYTES == 0 && nr <= LIMBS_MAX);
	ASSERT((size_t)mpn_sec_powm_itch((mp_size_t)nr, NVME_DH_PRIVATE_BYTES * 8, (mp_size_t)nr) <=
	       SCRATCH_LIMBS);
	dh_load(modulus, nr, prime->data, prime->size);
	dh_load(exponent, PRIVATE_LIMBS, private, NVME_DH_PRIVATE_BYTES);
	mpn_sec_powm(power, base, (mp_size_t)nr, exponent, NVME_DH_PRIVATE_BYTES * 8, modulus,
		     (mp_size_t)nr, scratch);
	dh_store(ret, prime->size, power);
	explicit_bzero(exponent, sizeof(exponent));
	explicit_bzero(power, sizeof(power));
	explicit_bzero(scratch, sizeof(scratch));
}

void nvme_dh_public(uint8_t group, const uint8_t private[static NVME_DH_PRIVATE_BYTES],
		    uint8_t *ret_public)
{
	const gnutls_datum_t *prime = dh_prime(group);
	mp_limb_t generator[LIMBS_MAX] = { 2 };

	ASSERT(prime);
	dh_power(prime, generator, private, ret_public);
}

/* 1 < it < prime - 1: others have powers that anybody knows. Nothing here is secret. */
static bool dh_is_public(const gnutls_datum_t *prime, const mp_limb_t *it)
{
	mp_size_t nr = (mp_size_t)(prime->size / LIMB_BYTES);
	mp_limb_t edge[LIMBS_MAX], one[LIMBS_MAX] = { 1 };

	dh_load(edge, (size_t)nr, prime->data, prime->size);
	mpn_sub_1(edge, edge, nr, 1);
	return mpn_cmp(it, one, nr) > 0 && mpn_cmp(it, edge, nr) < 0;
}

int nvme_dh_shared(uint8_t group, const uint8_t private[static NVME_DH_PRIVATE_BYTES],
		   const uint8_t *peer, size_t peer_bytes, uint8_t *ret_shared)
{
	const gnutls_datum_t *prime = dh_prime(group);
	mp_limb_t base[LIMBS_MAX];

	ASSERT(prime);
	if (peer_bytes > prime->size)
		return -EPROTO;
	dh_load(base, prime->size / LIMB_BYTES, peer, peer_bytes);
	if (!dh_is_public(prime, base))
		return -EPROTO;
	dh_power(prime, base, private, ret_shared);
	return 0;
}
