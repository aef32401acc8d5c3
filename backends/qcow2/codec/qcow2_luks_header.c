/*
 * Reads the header of LUKS1. Owns nothing; any thread. Failure modes: words. No number of the
 * header is used before it is known to be in its range; offsets are calculated in 64 bits from 32.
 */
#include "backends/qcow2/codec/qcow2_luks_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/big_endian.h"
#include "base/printable.h"
#include "base/util.h"

#define NAME_BYTES 32u
#define SLOT_BYTES 48u
#define SLOT_ENABLED 0x00ac71f3u
#define SLOT_DISABLED 0x0000deadu

enum field {
	AT_MAGIC = 0,
	AT_VERSION = 6,
	AT_CIPHER = 8,
	AT_MODE = 40,
	AT_HASH = 72,
	AT_KEY_BYTES = 108,
	AT_DIGEST = 112,
	AT_SALT = 132,
	AT_ITERATIONS = 164,
	AT_SLOTS = 208,
};

enum slot_field {
	IN_SLOT_STATE = 0,
	IN_SLOT_ITERATIONS = 4,
	IN_SLOT_SALT = 8,
	IN_SLOT_OFFSET = 40,
	IN_SLOT_STRIPES = 44
};

_Static_assert(AT_SLOTS + LUKS_SLOT_NR * SLOT_BYTES == QCOW2_LUKS_HEADER_BYTES,
	       "the header's size");

static const uint8_t magic[] = { 'L', 'U', 'K', 'S', 0xba, 0xbe };

static const struct {
	const char *name;
	uint32_t bytes;
} hashes[] = {
	[LUKS_SHA1] = { "sha1", 20 },
	[LUKS_SHA256] = { "sha256", 32 },
	[LUKS_SHA512] = { "sha512", 64 },
};

struct luks_reader {
	const uint8_t *at;
	size_t bytes;
	char *words;
};

uint32_t luks_hash_bytes(enum luks_hash hash)
{
	return hashes[hash].bytes;
}

__attribute__((format(printf, 3, 4))) static int luks_fail(const struct luks_reader *r, int err,
							   const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->words, QCOW2_LUKS_WORDS_BYTES, format, args);
	va_end(args);
	return err;
}

/* A name of the header, terminated there; NULL: it is not. */
static const char *luks_name(const struct luks_reader *r, enum field at)
{
	const char *name = (const char *)r->at + at;

	return memchr(name, '\0', NAME_BYTES) ? name : NULL;
}

static int luks_read_begin(const struct luks_reader *r)
{
	uint32_t version;

	if (r->bytes < QCOW2_LUKS_HEADER_BYTES || r->bytes > QCOW2_LUKS_BYTES_MAX)
		return luks_fail(r, -EINVAL,
				 "qcow2: the LUKS header has %zu bytes; %u to %u can be", r->bytes,
				 QCOW2_LUKS_HEADER_BYTES, QCOW2_LUKS_BYTES_MAX);
	if (memcmp(r->at + AT_MAGIC, magic, sizeof(magic)) != 0)
		return luks_fail(r, -EINVAL,
				 "qcow2: there is no LUKS header where the image says it is");
	version = (uint32_t)r->at[AT_VERSION] << 8 | r->at[AT_VERSION + 1];
	if (version == 1)
		return 0;
	return luks_fail(r, -EOPNOTSUPP,
			 "qcow2: the image is encrypted with version %" PRIu32
			 " of LUKS; known is 1, which qemu-img convert makes",
			 version);
}

/* A hash behind a colon means something for ESSIV only; QEMU and dm-crypt ignore it. */
static bool luks_is_plain64(const char *mode)
{
	static const char plain64[] = "xts-plain64";
	size_t len = strlen(plain64);

	return strncmp(mode, plain64, len) == 0 && (mode[len] == '\0' || mode[len] == ':');
}

static int luks_read_cipher(const struct luks_reader *r, struct luks_header *h)
{
	const char *cipher = luks_name(r, AT_CIPHER), *mode = luks_name(r, AT_MODE);
	char cipher_text[NAME_BYTES + 4], mode_text[NAME_BYTES + 4];

	if (!cipher || !mode)
		return luks_fail(r, -EINVAL,
				 "qcow2: the name of the cipher in the LUKS header has no end");
	if (strcmp(cipher, "aes") != 0 || !luks_is_plain64(mode))
		return luks_fail(
			r, -EOPNOTSUPP,
			"qcow2: the image is encrypted with %s-%s; known is "
			"aes-xts-plain64",
			printable(cipher_text, sizeof(cipher_text), cipher, strlen(cipher)),
			printable(mode_text, sizeof(mode_text), mode, strlen(mode)));
	h->key_bytes = be_get32(r->at + AT_KEY_BYTES);
	if (h->key_bytes == 48)
		return luks_fail(r, -EOPNOTSUPP,
				 "qcow2: the image is encrypted with AES-192; known are AES-128 "
				 "and AES-256");
	if (h->key_bytes != 32 && h->key_bytes != 64)
		return luks_fail(r, -EINVAL,
				 "qcow2: the LUKS header says that the key has %" PRIu32
				 " bytes; that of aes-xts-plain64 has 32 or 64",
				 h->key_bytes);
	return 0;
}

static int luks_read_hash(const struct luks_reader *r, struct luks_header *h)
{
	const char *name = luks_name(r, AT_HASH);
	char text[NAME_BYTES + 4];

	if (!name)
		return luks_fail(r, -EINVAL,
				 "qcow2: the name of the hash in the LUKS header has no end");
	for (unsigned i = 0; i < ARRAY_SIZE(hashes); i++) {
		if (strcmp(name, hashes[i].name) == 0) {
			h->hash = (enum luks_hash)i;
			return 0;
		}
	}
	return luks_fail(r, -EOPNOTSUPP,
			 "qcow2: LUKS with the hash \"%s\"; known are sha1, sha256 and sha512",
			 printable(text, sizeof(text), name, strlen(name)));
}

static int luks_read_digest(const struct luks_reader *r, struct luks_header *h)
{
	h->digest = r->at + AT_DIGEST;
	h->salt = r->at + AT_SALT;
	h->iterations = be_get32(r->at + AT_ITERATIONS);
	if (h->iterations > 0)
		return 0;
	return luks_fail(r, -EINVAL, "qcow2: the LUKS header says that the key is hashed 0 times");
}

static int luks_read_material(const struct luks_reader *r, struct luks_header *h, unsigned nr)
{
	const uint8_t *at = r->at + AT_SLOTS + nr * SLOT_BYTES;
	uint64_t offset = (uint64_t)be_get32(at + IN_SLOT_OFFSET) * LUKS_SECTOR_BYTES;
	uint64_t bytes = (uint64_t)h->key_bytes * LUKS_STRIPES;
	uint32_t stripes = be_get32(at + IN_SLOT_STRIPES);

	if (stripes != LUKS_STRIPES)
		return luks_fail(r, -EINVAL,
				 "qcow2: key slot %u of LUKS has %" PRIu32 " stripes; it has %u",
				 nr, stripes, LUKS_STRIPES);
	if (offset < QCOW2_LUKS_HEADER_BYTES || offset + bytes > r->bytes)
		return luks_fail(r, -EINVAL,
				 "qcow2: key slot %u of LUKS is at offset %" PRIu64
				 " and has %" PRIu64 " bytes; it lies between %u and %zu",
				 nr, offset, bytes, QCOW2_LUKS_HEADER_BYTES, r->bytes);
	h->slots[nr].material = r->at + offset;
	return 0;
}

static int luks_read_slot(const struct luks_reader *r, struct luks_header *h, unsigned nr)
{
	const uint8_t *at = r->at + AT_SLOTS + nr * SLOT_BYTES;
	uint32_t state = be_get32(at + IN_SLOT_STATE);

	if (state == SLOT_DISABLED)
		return 0;
	if (state != SLOT_ENABLED)
		return luks_fail(r, -EINVAL,
				 "qcow2: key slot %u of LUKS is neither enabled nor disabled", nr);
	h->slots[nr].is_enabled = true;
	h->slots[nr].salt = at + IN_SLOT_SALT;
	h->slots[nr].iterations = be_get32(at + IN_SLOT_ITERATIONS);
	if (h->slots[nr].iterations == 0)
		return luks_fail(r, -EINVAL,
				 "qcow2: key slot %u of LUKS hashes the passphrase 0 times", nr);
	return luks_read_material(r, h, nr);
}

/* What PBKDF2 calculates for all slots (RFC 8018 5.2): below 2^37. */
static uint64_t luks_hmac_nr(const struct luks_header *h)
{
	uint32_t hash_bytes = luks_hash_bytes(h->hash);
	uint64_t per_key = (h->key_bytes + hash_bytes - 1) / hash_bytes, nr = 0;

	for (unsigned i = 0; i < LUKS_SLOT_NR; i++) {
		if (h->slots[i].is_enabled)
			nr += h->slots[i].iterations * per_key + h->iterations;
	}
	return nr;
}

int qcow2_luks_header_parse(struct luks_header *ret_h, const void *header, size_t nr_bytes,
			    char words[static QCOW2_LUKS_WORDS_BYTES])
{
	const struct luks_reader r = { header, nr_bytes, words };
	int ret = luks_read_begin(&r);

	*ret_h = (struct luks_header){ 0 };
	if (ret == 0)
		ret = luks_read_cipher(&r, ret_h);
	if (ret == 0)
		ret = luks_read_hash(&r, ret_h);
	if (ret == 0)
		ret = luks_read_digest(&r, ret_h);
	for (unsigned i = 0; ret == 0 && i < LUKS_SLOT_NR; i++)
		ret = luks_read_slot(&r, ret_h, i);
	if (ret == 0 && luks_hmac_nr(ret_h) > LUKS_HMAC_NR_MAX)
		ret = luks_fail(&r, -EINVAL,
				"qcow2: to unlock the image would take %" PRIu64
				" rounds of hashing; %llu can be",
				luks_hmac_nr(ret_h), LUKS_HMAC_NR_MAX);
	return ret;
}
