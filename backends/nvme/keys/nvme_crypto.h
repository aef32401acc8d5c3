/*
 * Hashes, HMAC and finite field Diffie-Hellman as NVMe uses them: Base 8.13.5, RFC 2104, RFC 7919.
 * Pure, any thread, no allocation. GnuTLS hashes and has the groups' primes, GMP calculates; this
 * file hides both from the rest. What depends on a secret takes the same time for every secret.
 */
#ifndef BACKENDS_NVME_KEYS_NVME_CRYPTO_H
#define BACKENDS_NVME_KEYS_NVME_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers of DH-HMAC-CHAP and of keys in their text form: Linux NVME_AUTH_HASH_* */
enum nvme_hash {
	NVME_HASH_NONE = 0,
	NVME_HASH_SHA256 = 1,
	NVME_HASH_SHA384 = 2,
	NVME_HASH_SHA512 = 3,
};
#define NVME_HASH_BYTES_MAX 64u

/* 32, 48, 64; 0: NVME_HASH_NONE, or not a hash. */
uint32_t nvme_hash_bytes(uint8_t hash);

/* hash: one that has bytes. Return 0, or -EIO: GnuTLS is out of order (its own tests failed). */
int nvme_hash_data(uint8_t hash, const void *data, size_t bytes, uint8_t *ret_hash);
int nvme_hmac(uint8_t hash, const uint8_t *key, size_t key_bytes, const void *data, size_t bytes,
	      uint8_t *ret_hmac);

/* In a time that says nothing about where they differ. */
bool nvme_secret_equal(const uint8_t *a, const uint8_t *b, size_t bytes);

/* Linux NVME_AUTH_DHGROUP_* */
enum nvme_dh_group {
	NVME_DH_NULL = 0,
	NVME_DH_2048 = 1,
	NVME_DH_3072 = 2,
	NVME_DH_4096 = 3,
	NVME_DH_6144 = 4,
	NVME_DH_8192 = 5,
};
#define NVME_DH_GROUPS_NR 6u
#define NVME_DH_BYTES_MAX 1024u
/*
 * Of the private number, in every group: RFC 7919 5.2 wants 225 bits for the smallest and 400 for
 * the largest.
 */
#define NVME_DH_PRIVATE_BYTES 64u

/* Of a public or shared number; 0: NVME_DH_NULL, or not a group. */
uint32_t nvme_dh_bytes(uint8_t group);

/*
 * Numbers are big endian, as on the wire; the results have nvme_dh_bytes(group) bytes, which must
 * not be 0. Each takes about a millisecond with the group of 2048 bits, and 20 with that of 8192.
 */
void nvme_dh_public(uint8_t group, const uint8_t private[static NVME_DH_PRIVATE_BYTES],
		    uint8_t *ret_public);
/* Returns 0, or -EPROTO: the peer's number is not between 1 and the prime less 1 (RFC 7919 5.1). */
int nvme_dh_shared(uint8_t group, const uint8_t private[static NVME_DH_PRIVATE_BYTES],
		   const uint8_t *peer, size_t peer_bytes, uint8_t *ret_shared);

#endif
