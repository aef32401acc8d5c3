/*
 * From a passphrase to the key of the image, by each key slot in turn (LUKS On-Disk Format
 * Specification 1.2.3, chapter 4 and "Master key recovery"): PBKDF2 makes a key of the passphrase,
 * which decrypts the stripes of the slot; these merge to the key of the image if the passphrase was
 * right, which the digest in the header tells.
 *
 * Owns its work memory, which holds secrets and is wiped. Any thread. Failure modes: words.
 */
#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>

#include "backends/qcow2/codec/qcow2_luks_internal.h"
#include "backends/qcow2/codec/qcow2_secret.h"
#include "base/util.h"

static const struct {
	gnutls_digest_algorithm_t digest;
	gnutls_mac_algorithm_t mac;
} algorithms[] = {
	[LUKS_SHA1] = { GNUTLS_DIG_SHA1, GNUTLS_MAC_SHA1 },
	[LUKS_SHA256] = { GNUTLS_DIG_SHA256, GNUTLS_MAC_SHA256 },
	[LUKS_SHA512] = { GNUTLS_DIG_SHA512, GNUTLS_MAC_SHA512 },
};

struct luks_work {
	struct qcow2_luks slot_key;
	uint8_t stripes[LUKS_KEY_BYTES_MAX * LUKS_STRIPES];
	struct {
		uint32_t number; /* big endian */
		uint8_t bytes[LUKS_KEY_BYTES_MAX];
	} hashed;
	uint8_t hash[LUKS_KEY_BYTES_MAX];
	uint8_t digest[LUKS_DIGEST_BYTES];
};

static int luks_error(int gnutls_error)
{
	if (gnutls_error == 0)
		return 0;
	return gnutls_error == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EIO;
}

static int luks_pbkdf2(enum luks_hash hash, const void *secret, size_t secret_bytes,
		       const uint8_t *salt, uint32_t iterations, uint8_t *ret_out, size_t out_bytes)
{
	const gnutls_datum_t from = { (uint8_t *)secret, (unsigned)secret_bytes };
	const gnutls_datum_t with = { (uint8_t *)salt, LUKS_SALT_BYTES };

	return luks_error(
		gnutls_pbkdf2(algorithms[hash].mac, &from, &with, iterations, ret_out, out_bytes));
}

/* The key that encrypts the stripes decrypts them in place; their sectors count from 0. */
static int luks_decrypt_stripes(struct luks_work *work, const struct luks_slot *slot)
{
	size_t bytes = (size_t)work->slot_key.key_bytes * LUKS_STRIPES;
	struct qcow2_luks_cipher *c = qcow2_luks_cipher_new(&work->slot_key);
	int ret;

	if (!c)
		return -ENOMEM;
	memcpy(work->stripes, slot->material, bytes);
	ret = qcow2_luks_decrypt(c, 0, work->stripes, bytes);
	qcow2_luks_cipher_free(c);
	return ret;
}

/* Each piece of the length of a hash becomes the hash of its number and itself. */
static int luks_diffuse(struct luks_work *work, enum luks_hash hash, uint8_t *at, size_t bytes)
{
	size_t piece_bytes = luks_hash_bytes(hash);

	for (uint32_t i = 0; i * piece_bytes < bytes; i++) {
		uint8_t *piece = at + i * piece_bytes;
		size_t nr = MIN(piece_bytes, bytes - i * piece_bytes);
		int ret;

		work->hashed.number = htobe32(i);
		memcpy(work->hashed.bytes, piece, nr);
		ret = gnutls_hash_fast(algorithms[hash].digest, &work->hashed,
				       sizeof(work->hashed.number) + nr, work->hash);
		if (ret < 0)
			return luks_error(ret);
		memcpy(piece, work->hash, nr);
	}
	return 0;
}

/* The anti-forensic splitter in reverse: every bit of the stripes is needed for every bit here. */
static int luks_merge(struct luks_work *work, enum luks_hash hash, struct qcow2_luks *luks)
{
	const uint8_t *stripe = work->stripes;
	int ret = 0;

	memset(luks->key, 0, sizeof(luks->key));
	for (uint32_t nr = 1; ret == 0; nr++, stripe += luks->key_bytes) {
		for (uint32_t i = 0; i < luks->key_bytes; i++)
			luks->key[i] ^= stripe[i];
		if (nr == LUKS_STRIPES)
			break;
		ret = luks_diffuse(work, hash, luks->key, luks->key_bytes);
	}
	return ret;
}

/* -EACCES: it is not the key. */
static int luks_check_key(struct luks_work *work, const struct luks_header *h,
			  const struct qcow2_luks *luks)
{
	int ret = luks_pbkdf2(h->hash, luks->key, luks->key_bytes, h->salt, h->iterations,
			      work->digest, LUKS_DIGEST_BYTES);

	if (ret < 0)
		return ret;
	return gnutls_memcmp(work->digest, h->digest, LUKS_DIGEST_BYTES) == 0 ? 0 : -EACCES;
}

static int luks_try_slot(struct luks_work *work, const struct luks_header *h,
			 const struct luks_slot *slot, const gnutls_datum_t *passphrase,
			 struct qcow2_luks *luks)
{
	int ret = luks_pbkdf2(h->hash, passphrase->data, passphrase->size, slot->salt,
			      slot->iterations, work->slot_key.key, h->key_bytes);

	if (ret == 0)
		ret = luks_decrypt_stripes(work, slot);
	if (ret == 0)
		ret = luks_merge(work, h->hash, luks);
	return ret < 0 ? ret : luks_check_key(work, h, luks);
}

static int luks_try_slots(struct luks_work *work, const struct luks_header *h,
			  const gnutls_datum_t *passphrase, struct qcow2_luks *luks)
{
	int ret = -EACCES;

	luks->key_bytes = work->slot_key.key_bytes = h->key_bytes;
	for (unsigned i = 0; i < LUKS_SLOT_NR && ret == -EACCES; i++) {
		if (h->slots[i].is_enabled)
			ret = luks_try_slot(work, h, &h->slots[i], passphrase, luks);
	}
	return ret;
}

static int luks_unlock_words(int err, char words[static QCOW2_LUKS_WORDS_BYTES])
{
	const char *why = "GnuTLS does not work";

	if (err == -EACCES)
		why = "no key slot of LUKS opens with this passphrase";
	else if (err == -ENOMEM)
		why = "no memory to unlock the image";
	snprintf(words, QCOW2_LUKS_WORDS_BYTES, "qcow2: %s", why);
	return err;
}

int qcow2_luks_unlock(struct qcow2_luks **ret_luks, const void *header, size_t nr_bytes,
		      const void *passphrase, size_t passphrase_bytes,
		      char words[static QCOW2_LUKS_WORDS_BYTES])
{
	const gnutls_datum_t secret = { (uint8_t *)passphrase, (unsigned)passphrase_bytes };
	struct luks_work *work = NULL;
	struct qcow2_luks *luks;
	struct luks_header h;
	int ret = qcow2_luks_header_parse(&h, header, nr_bytes, words);

	*ret_luks = NULL;
	if (ret < 0)
		return ret;
	luks = qcow2_secret_alloc(sizeof(*luks));
	work = qcow2_secret_alloc(sizeof(*work));
	ret = luks && work ? luks_try_slots(work, &h, &secret, luks) : -ENOMEM;
	qcow2_secret_free(work, sizeof(*work));
	if (ret == 0) {
		*ret_luks = luks;
		return 0;
	}
	qcow2_luks_free(luks);
	return luks_unlock_words(ret, words);
}
