/*
 * The controller's side of DH-HMAC-CHAP, without anything of the product but byte order: GnuTLS'
 * hashes piece by piece, GMP's ordinary numbers. Answers Authentication Send and Receive, as Linux'
 * target does; what a host sends must keep to the protocol. A test bends it: keys, what it
 * chooses, bytes of a message and its length.
 */
#ifndef TEST_RIG_NVME_FAKE_AUTH_H
#define TEST_RIG_NVME_FAKE_AUTH_H

#include <gmp.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>

#include "backends/nvme/protocol/nvme_proto.h"
#include "base/assert.h"
#include "base/util.h"

#define FAKE_HOST "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
#define FAKE_SUBSYSTEM "nqn.2024-01.com.example:disk"

/* As they are written in text, before they are transformed. */
struct fake_key {
	uint8_t hash;
	uint32_t bytes;
	uint8_t at[64];
};

/* Messages by their number; what a host sent. */
enum fake_said { FAKE_NEGOTIATE = 0, FAKE_REPLY = 2, FAKE_SUCCESS2 = 4, FAKE_FAILURE2 = 0xf0 };

struct fake_auth {
	struct fake_key host, controller; /* controller.bytes 0: it has none */
	uint8_t hash, group;
	/* Of the answer number bend_at (from 1): length, or byte at_byte. */
	unsigned bend_at, at_byte;
	uint8_t bend_xor;
	uint32_t bend_bytes; /* UINT32_MAX: as it is */
	uint8_t fail_why;    /* instead of a challenge: failure1 */

	uint8_t step; /* the message that is to be answered by Receive, or was last sent */
	uint8_t why, why2;
	uint16_t transaction;
	uint32_t s1, s2;
	bool asked, host_proved;
	uint8_t c1[64], c2[64], shared[1024];
	uint8_t last_reply[2048];
	uint32_t last_reply_bytes;
	unsigned receives_nr;
};

static inline void fake_auth_init(struct fake_auth *a, uint8_t hash, uint8_t group)
{
	memset(a, 0, sizeof(*a));
	a->hash = hash;
	a->group = group;
	a->bend_bytes = UINT32_MAX;
	a->s1 = 0x55667788;
	for (unsigned i = 0; i < 64; i++)
		a->c1[i] = (uint8_t)(0x80 + i);
}

static inline void fake_key_init(struct fake_key *key, uint8_t hash, uint32_t bytes, uint8_t mul,
				 uint8_t add)
{
	key->hash = hash;
	key->bytes = bytes;
	for (unsigned i = 0; i < bytes; i++)
		key->at[i] = (uint8_t)(i * mul + add);
}

static inline gnutls_mac_algorithm_t fake_mac(uint8_t hash)
{
	return hash == 1 ? GNUTLS_MAC_SHA256 : hash == 2 ? GNUTLS_MAC_SHA384 : GNUTLS_MAC_SHA512;
}

static inline uint32_t fake_bytes(uint8_t hash)
{
	return 16u + 16u * hash;
}

static inline const gnutls_datum_t *fake_prime(uint8_t group)
{
	switch (group) {
	case 1:
		return &gnutls_ffdhe_2048_group_prime;
	case 2:
		return &gnutls_ffdhe_3072_group_prime;
	case 3:
		return &gnutls_ffdhe_4096_group_prime;
	case 4:
		return &gnutls_ffdhe_6144_group_prime;
	default:
		ASSERT(group == 5);
		return &gnutls_ffdhe_8192_group_prime;
	}
}

/* base ^ (0x21 0x22 ...) */
static inline void fake_power(uint8_t group, const uint8_t *base, size_t base_bytes, uint8_t *ret)
{
	const gnutls_datum_t *prime = fake_prime(group);
	uint8_t private[32];
	mpz_t n[4];
	size_t nr;

	for (unsigned i = 0; i < sizeof(private); i++)
	private[i] = (uint8_t)(0x21 + i);
	for (unsigned i = 0; i < 4; i++)
		mpz_init(n[i]);
	mpz_import(n[0], base_bytes, 1, 1, 1, 0, base);
	mpz_import(n[1], sizeof(private), 1, 1, 1, 0, private);
	mpz_import(n[2], prime->size, 1, 1, 1, 0, prime->data);
	mpz_powm(n[3], n[0], n[1], n[2]);
	nr = (mpz_sizeinbase(n[3], 2) + 7) / 8;
	memset(ret, 0, prime->size);
	mpz_export(ret + prime->size - nr, NULL, 1, 1, 1, 0, n[3]);
	for (unsigned i = 0; i < 4; i++)
		mpz_clear(n[i]);
}

/* It takes long, and is always the same. */
static inline const uint8_t *fake_public(uint8_t group)
{
	static uint8_t known[6][1024];

	if (!known[group][0] && !known[group][1])
		fake_power(group, (const uint8_t *)"\2", 1, known[group]);
	return known[group];
}

static inline uint32_t fake_transform(const struct fake_key *key, const char *nqn, uint8_t *ret)
{
	gnutls_hmac_hd_t h;

	if (key->hash == 0) {
		memcpy(ret, key->at, key->bytes);
		return key->bytes;
	}
	ASSERT(gnutls_hmac_init(&h, fake_mac(key->hash), key->at, key->bytes) == 0);
	gnutls_hmac(h, nqn, strlen(nqn));
	gnutls_hmac(h, "NVMe-over-Fabrics", 17);
	gnutls_hmac_deinit(h, ret);
	return fake_bytes(key->hash);
}

static inline void fake_response(const struct fake_auth *a, bool of_controller, uint8_t *ret)
{
	uint8_t key[64], challenge[64], numbers[7];
	uint32_t hash_bytes = fake_bytes(a->hash), key_bytes;
	gnutls_hmac_hd_t h;

	key_bytes = of_controller ? fake_transform(&a->controller, FAKE_SUBSYSTEM, key)
				  : fake_transform(&a->host, FAKE_HOST, key);
	memcpy(challenge, of_controller ? a->c2 : a->c1, hash_bytes);
	if (a->group > 0) {
		uint8_t session[64];

		gnutls_hash_fast((gnutls_digest_algorithm_t)fake_mac(a->hash), a->shared,
				 fake_prime(a->group)->size, session);
		ASSERT(gnutls_hmac_init(&h, fake_mac(a->hash), session, hash_bytes) == 0);
		gnutls_hmac(h, challenge, hash_bytes);
		gnutls_hmac_deinit(h, challenge);
	}
	nvme_put32(numbers, of_controller ? a->s2 : a->s1);
	nvme_put16(numbers + 4, a->transaction);
	numbers[6] = 0;
	ASSERT(gnutls_hmac_init(&h, fake_mac(a->hash), key, key_bytes) == 0);
	gnutls_hmac(h, challenge, hash_bytes);
	gnutls_hmac(h, numbers, 7);
	gnutls_hmac(h, of_controller ? "Controller" : "HostHost", of_controller ? 10 : 8);
	gnutls_hmac(h, of_controller ? FAKE_SUBSYSTEM : FAKE_HOST,
		    of_controller ? strlen(FAKE_SUBSYSTEM) : strlen(FAKE_HOST));
	gnutls_hmac(h, "", 1);
	gnutls_hmac(h, of_controller ? FAKE_HOST : FAKE_SUBSYSTEM,
		    of_controller ? strlen(FAKE_HOST) : strlen(FAKE_SUBSYSTEM));
	gnutls_hmac_deinit(h, ret);
}

/* ---- what a host sends ---- */

static inline void fake_take_negotiate(struct fake_auth *a, const uint8_t *at, uint32_t bytes)
{
	static const uint8_t hashes[] = { 1, 2, 3, 0 }, groups[] = { 0, 1, 2, 3, 4, 5, 0 };

	ASSERT(bytes == 72 && at[6] == 0 && at[7] == 1 && at[8] == 1 && at[9] == 0);
	ASSERT(at[10] == 3 && at[11] == 6);
	ASSERT(memcmp(at + 12, hashes, 4) == 0 && memcmp(at + 42, groups, 7) == 0);
	a->transaction = nvme_get16(at + 4);
}

static inline void fake_take_reply(struct fake_auth *a, const uint8_t *at, uint32_t bytes)
{
	uint32_t hash_bytes = fake_bytes(a->hash);
	uint32_t dh_bytes = a->group ? fake_prime(a->group)->size : 0;
	uint8_t want[64];

	ASSERT(bytes == 16 + 2 * hash_bytes + dh_bytes && at[6] == hash_bytes && at[7] == 0);
	ASSERT(at[8] <= 1 && at[9] == 0 && nvme_get16(at + 10) == dh_bytes);
	memcpy(a->last_reply, at, bytes);
	a->last_reply_bytes = bytes;
	if (a->group)
		fake_power(a->group, at + 16 + 2 * hash_bytes, dh_bytes, a->shared);
	a->asked = at[8];
	a->s2 = nvme_get32(at + 12);
	ASSERT(a->asked == (a->s2 != 0));
	memcpy(a->c2, at + 16 + hash_bytes, hash_bytes);
	fake_response(a, false, want);
	a->host_proved = memcmp(want, at + 16, hash_bytes) == 0;
	a->why = !a->host_proved || (a->asked && a->controller.bytes == 0) ? 1 : 0;
}

static inline void fake_auth_send(struct fake_auth *a, const uint8_t *sqe, const uint8_t *at,
				  uint32_t bytes)
{
	bool common = at[1] == FAKE_NEGOTIATE || at[1] == FAKE_FAILURE2;

	ASSERT(sqe[0] == 0x7f && sqe[4] == 5 && sqe[41] == 1 && sqe[42] == 1 && sqe[43] == 0xe9);
	ASSERT(nvme_get32(sqe + 44) == bytes && nvme_get32(sqe + 32) == bytes && sqe[39] == 0x01);
	ASSERT(bytes >= 8 && at[0] == !common && nvme_get16(at + 2) == 0);
	a->step = at[1];
	if (at[1] == FAKE_NEGOTIATE)
		return fake_take_negotiate(a, at, bytes);
	ASSERT(nvme_get16(at + 4) == a->transaction);
	if (at[1] == FAKE_REPLY)
		return fake_take_reply(a, at, bytes);
	if (at[1] == FAKE_SUCCESS2)
		ASSERT(a->asked && bytes == 16);
	else
		ASSERT(at[1] == FAKE_FAILURE2 && bytes == 8 && at[6] == 1);
	a->why2 = at[1] == FAKE_FAILURE2 ? at[7] : 0;
}

/* ---- what it gets ---- */

static inline uint32_t fake_put_challenge(const struct fake_auth *a, uint8_t *at)
{
	uint32_t hash_bytes = fake_bytes(a->hash);
	uint32_t dh_bytes = a->group ? fake_prime(a->group)->size : 0;

	at[0] = 1;
	at[1] = 1;
	at[6] = (uint8_t)hash_bytes;
	at[8] = a->hash;
	at[9] = a->group;
	nvme_put16(at + 10, (uint16_t)dh_bytes);
	nvme_put32(at + 12, a->s1);
	memcpy(at + 16, a->c1, hash_bytes);
	if (dh_bytes)
		memcpy(at + 16 + hash_bytes, fake_public(a->group), dh_bytes);
	return 16 + hash_bytes + dh_bytes;
}

static inline uint32_t fake_put_success1(const struct fake_auth *a, uint8_t *at)
{
	at[0] = 1;
	at[1] = 3;
	at[6] = (uint8_t)fake_bytes(a->hash);
	if (!a->asked)
		return 16;
	at[8] = 1;
	fake_response(a, true, at + 16);
	return 16 + fake_bytes(a->hash);
}

static inline uint32_t fake_put_failure1(uint8_t *at, uint8_t why)
{
	at[1] = 0xf1;
	at[6] = 1;
	at[7] = why;
	return 8;
}

/* at: room for 4096. Returns how many bytes it sends: as many as it has to say. */
static inline uint32_t fake_auth_receive(struct fake_auth *a, const uint8_t *sqe, uint8_t *at)
{
	uint32_t bytes;

	ASSERT(sqe[0] == 0x7f && sqe[4] == 6 && sqe[41] == 1 && sqe[42] == 1 && sqe[43] == 0xe9);
	ASSERT(nvme_get32(sqe + 44) == 4096 && nvme_get32(sqe + 32) == 4096 && sqe[39] == 0x5a);
	memset(at, 0, 4096);
	if (a->step == FAKE_NEGOTIATE)
		bytes = a->fail_why ? fake_put_failure1(at, a->fail_why)
				    : fake_put_challenge(a, at);
	else if (a->why)
		bytes = fake_put_failure1(at, a->why);
	else
		bytes = fake_put_success1(a, at);
	nvme_put16(at + 4, a->transaction);
	if (++a->receives_nr == a->bend_at) {
		at[a->at_byte] ^= a->bend_xor;
		bytes = MIN(bytes, a->bend_bytes);
	}
	return bytes;
}

#endif
