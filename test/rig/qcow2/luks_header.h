/*
 * A LUKS1 header that the test makes, with key slots: the other half of what qcow2_luks_unlock does
 * (LUKS On-Disk Format Specification 1.2.3), written apart from it. QEMU opens what comes of it.
 */
#ifndef TEST_RIG_QCOW2_LUKS_HEADER_H
#define TEST_RIG_QCOW2_LUKS_HEADER_H

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/big_endian.h"
#include "base/prng.h"
#include "base/util.h"

#define LUKS_PASSPHRASE "geheim"
#define LUKS_STRIPES_NR 4000u
#define LUKS_SLOT_AT(nr) (208u + 48u * (nr))
#define LUKS_MATERIAL_AT 4096u /* of slot 0, which has the key; the others are disabled */

struct luks_made {
	const char *hash, *mode;
	uint32_t key_bytes;
	uint8_t *header;
	size_t header_bytes;
	uint8_t key[64];
};

static inline void luks_random(struct prng *p, uint8_t *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)prng_next(p);
}

static inline void luks_derive(const struct luks_made *m, const void *from, size_t from_bytes,
			       uint8_t *salt, uint32_t iterations, uint8_t *ret, size_t bytes)
{
	const gnutls_datum_t secret = { (uint8_t *)from, (unsigned)from_bytes };
	const gnutls_datum_t with = { salt, 32 };

	ASSERT(gnutls_pbkdf2(gnutls_mac_get_id(m->hash), &secret, &with, iterations, ret, bytes) ==
	       0);
}

static inline void luks_diffuse_key(const struct luks_made *m, uint8_t *key)
{
	gnutls_digest_algorithm_t digest = gnutls_digest_get_id(m->hash);
	uint32_t hash_bytes = gnutls_hash_get_len(digest);
	uint8_t in[4 + 64], out[64];

	for (uint32_t at = 0; at < m->key_bytes; at += hash_bytes) {
		uint32_t bytes = MIN(hash_bytes, m->key_bytes - at);

		be_put32(in, at / hash_bytes);
		memcpy(in + 4, key + at, bytes);
		ASSERT(gnutls_hash_fast(digest, in, 4 + bytes, out) == 0);
		memcpy(key + at, out, bytes);
	}
}

/* Noise, but for the last stripe: what merges with the noise to the key. */
static inline void luks_split(const struct luks_made *m, struct prng *p, uint8_t *stripes)
{
	uint8_t sum[64] = { 0 };

	luks_random(p, stripes, (size_t)(LUKS_STRIPES_NR - 1) * m->key_bytes);
	for (unsigned nr = 1; nr < LUKS_STRIPES_NR; nr++, stripes += m->key_bytes) {
		for (uint32_t i = 0; i < m->key_bytes; i++)
			sum[i] ^= stripes[i];
		luks_diffuse_key(m, sum);
	}
	for (uint32_t i = 0; i < m->key_bytes; i++)
		stripes[i] = sum[i] ^ m->key[i];
}

static inline void luks_encrypt_stripes(const struct luks_made *m, uint8_t *slot, uint8_t *stripes)
{
	uint8_t slot_key[64], iv[16] = { 0 };
	const gnutls_datum_t key = { slot_key, m->key_bytes };
	gnutls_cipher_hd_t aes;

	luks_derive(m, LUKS_PASSPHRASE, strlen(LUKS_PASSPHRASE), slot + 8, 1100, slot_key,
		    m->key_bytes);
	ASSERT(gnutls_cipher_init(&aes,
				  m->key_bytes == 64 ? GNUTLS_CIPHER_AES_256_XTS
						     : GNUTLS_CIPHER_AES_128_XTS,
				  &key, NULL) == 0);
	for (uint32_t sector = 0; sector < m->key_bytes * LUKS_STRIPES_NR / 512; sector++) {
		iv[0] = (uint8_t)sector;
		iv[1] = (uint8_t)(sector >> 8);
		gnutls_cipher_set_iv(aes, iv, sizeof(iv));
		ASSERT(gnutls_cipher_encrypt(aes, stripes + sector * 512, 512) == 0);
	}
	gnutls_cipher_deinit(aes);
}

/* As QEMU lays it out: each slot has its place, on the border of 4 KiB. */
static inline void luks_lay_out(struct luks_made *m, uint32_t sectors, struct prng *p)
{
	static const uint8_t begin[] = { 'L', 'U', 'K', 'S', 0xba, 0xbe, 0, 1 };
	uint8_t *h = m->header;

	memcpy(h, begin, sizeof(begin));
	snprintf((char *)h + 8, 32, "aes");
	snprintf((char *)h + 40, 32, "%s", m->mode);
	snprintf((char *)h + 72, 32, "%s", m->hash);
	be_put32(h + 104, 8 + 8 * sectors);
	be_put32(h + 108, m->key_bytes);
	luks_random(p, h + 132, 32);
	be_put32(h + 164, 1000);
	snprintf((char *)h + 168, 40, "2c624ed1-96a1-4d50-8d5a-a0f4a1ba59f2");
	for (unsigned i = 0; i < 8; i++) {
		be_put32(h + LUKS_SLOT_AT(i), i == 0 ? 0x00ac71f3 : 0xdead);
		be_put32(h + LUKS_SLOT_AT(i) + 4, i == 0 ? 1100 : 0);
		luks_random(p, h + LUKS_SLOT_AT(i) + 8, 32);
		be_put32(h + LUKS_SLOT_AT(i) + 40, 8 + i * sectors);
		be_put32(h + LUKS_SLOT_AT(i) + 44, LUKS_STRIPES_NR);
	}
}

/* hash, mode and key_bytes say what it is like; the owner frees m->header. */
static inline void luks_make(struct luks_made *m)
{
	uint32_t sectors = (uint32_t)round_up(m->key_bytes * LUKS_STRIPES_NR / 512, 8);
	struct prng p;

	prng_init(&p, m->key_bytes);
	m->header_bytes = LUKS_MATERIAL_AT + 8 * sectors * 512;
	m->header = calloc(1, m->header_bytes);
	ASSERT(m->header);
	luks_lay_out(m, sectors, &p);
	luks_random(&p, m->key, m->key_bytes);
	luks_derive(m, m->key, m->key_bytes, m->header + 132, 1000, m->header + 112, 20);
	luks_split(m, &p, m->header + LUKS_MATERIAL_AT);
	luks_encrypt_stripes(m, m->header + LUKS_SLOT_AT(0), m->header + LUKS_MATERIAL_AT);
}

#endif
