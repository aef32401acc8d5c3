/*
 * Sectors of an unlocked image. A key lives in memory of its own kind (qcow2_secret.h) until its
 * owner frees it; what GnuTLS expands it to lies in the ordinary heap and is wiped by GnuTLS with
 * the cipher. Failure modes: those of the header.
 */
#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "backends/qcow2/codec/qcow2_luks_internal.h"
#include "backends/qcow2/codec/qcow2_secret.h"
#include "base/assert.h"
#include "base/util.h"

#define IV_BYTES 16u

struct qcow2_luks_cipher {
	gnutls_cipher_hd_t aes;
};

void qcow2_luks_free(struct qcow2_luks *luks)
{
	qcow2_secret_free(luks, sizeof(*luks));
}

struct qcow2_luks_cipher *qcow2_luks_cipher_new(const struct qcow2_luks *luks)
{
	const gnutls_datum_t key = { (uint8_t *)luks->key, luks->key_bytes };
	gnutls_cipher_algorithm_t algorithm =
		luks->key_bytes == 64 ? GNUTLS_CIPHER_AES_256_XTS : GNUTLS_CIPHER_AES_128_XTS;
	struct qcow2_luks_cipher *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	if (gnutls_cipher_init(&c->aes, algorithm, &key, NULL) == 0)
		return c;
	free(c);
	return NULL;
}

void qcow2_luks_cipher_free(struct qcow2_luks_cipher *c)
{
	if (!c)
		return;
	gnutls_cipher_deinit(c->aes);
	free(c);
}

/* plain64: the number of the sector, little endian. */
static void luks_set_sector(struct qcow2_luks_cipher *c, uint64_t sector)
{
	uint8_t iv[IV_BYTES] = { 0 };
	uint64_t number = htole64(sector);

	memcpy(iv, &number, sizeof(number));
	gnutls_cipher_set_iv(c->aes, iv, sizeof(iv));
}

static int luks_sectors(struct qcow2_luks_cipher *c, uint64_t offset_bytes, uint8_t *at,
			size_t bytes, int (*aes)(const gnutls_cipher_hd_t, void *, size_t))
{
	ASSERT(offset_bytes % LUKS_SECTOR_BYTES == 0 && bytes % LUKS_SECTOR_BYTES == 0);
	for (size_t done = 0; done < bytes; done += LUKS_SECTOR_BYTES) {
		luks_set_sector(c, (offset_bytes + done) / LUKS_SECTOR_BYTES);
		if (aes(c->aes, at + done, LUKS_SECTOR_BYTES) < 0)
			return -EIO;
	}
	return 0;
}

int qcow2_luks_decrypt(struct qcow2_luks_cipher *c, uint64_t offset_bytes, void *buf, size_t bytes)
{
	return luks_sectors(c, offset_bytes, buf, bytes, gnutls_cipher_decrypt);
}

int qcow2_luks_encrypt(struct qcow2_luks_cipher *c, uint64_t offset_bytes, void *buf, size_t bytes)
{
	return luks_sectors(c, offset_bytes, buf, bytes, gnutls_cipher_encrypt);
}
