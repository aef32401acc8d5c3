/*
 * Any bytes as the LUKS header of a qcow2 image, up to where the passphrase is needed. The first
 * two bytes say how long the header is in KiB with its key slots: what the input does not have of
 * it is zeroes; 0: as long as the input. What must hold: what the header points at lies within it;
 * numbers are in their ranges; words are words.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/qcow2/codec/qcow2_luks_header.h"
#include "base/assert.h"
#include "base/util.h"
#include "fuzz.h"

#define LENGTH_MAX (QCOW2_LUKS_BYTES_MAX + KIB(2))

const char *const fuzz_words[] = {
	"LUKS\xba\xbe",
	"aes",
	"twofish",
	"xts-plain64",
	"xts-plain64:sha1",
	"sha1",
	"sha256",
	"sha512",
	"\xac\x71\xf3",
	"\xde\xad",
	"\x0f\xa0",
	"\xff\xff\xff\xff",
	"\x80",
	"\x01\xf4",
	NULL,
};

static void check_inside(const uint8_t *at, size_t bytes, const uint8_t *header, size_t nr_bytes)
{
	ASSERT(at >= header && (size_t)(at - header) <= nr_bytes);
	ASSERT(bytes <= nr_bytes - (size_t)(at - header));
}

static void check_slot(const struct luks_header *h, const struct luks_slot *slot,
		       const uint8_t *header, size_t nr_bytes)
{
	size_t bytes = (size_t)h->key_bytes * LUKS_STRIPES;

	if (!slot->is_enabled)
		return;
	ASSERT(slot->iterations > 0 && slot->iterations <= LUKS_HMAC_NR_MAX);
	check_inside(slot->salt, LUKS_SALT_BYTES, header, QCOW2_LUKS_HEADER_BYTES);
	check_inside(slot->material, bytes, header, nr_bytes);
	ASSERT((size_t)(slot->material - header) >= QCOW2_LUKS_HEADER_BYTES);
}

static void check_header(const struct luks_header *h, const uint8_t *header, size_t nr_bytes)
{
	ASSERT(h->key_bytes == 32 || h->key_bytes == 64);
	ASSERT(h->iterations > 0 && luks_hash_bytes(h->hash) >= 20);
	check_inside(h->salt, LUKS_SALT_BYTES, header, QCOW2_LUKS_HEADER_BYTES);
	check_inside(h->digest, LUKS_DIGEST_BYTES, header, QCOW2_LUKS_HEADER_BYTES);
	for (unsigned i = 0; i < LUKS_SLOT_NR; i++)
		check_slot(h, &h->slots[i], header, nr_bytes);
}

static void parse(const uint8_t *header, size_t nr_bytes)
{
	char words[QCOW2_LUKS_WORDS_BYTES] = "";
	struct luks_header h;
	int ret = qcow2_luks_header_parse(&h, header, nr_bytes, words);

	if (ret == 0) {
		ASSERT(words[0] == '\0');
		check_header(&h, header, nr_bytes);
		return;
	}
	ASSERT(ret == -EINVAL || ret == -EOPNOTSUPP);
	ASSERT(words[0] && memchr(words, '\0', sizeof(words)));
	fuzz_expect_printable(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t *zeroes;
	size_t nr_bytes;

	if (bytes < 2)
		return 0;
	nr_bytes = MIN(KIB((size_t)data[0] << 8 | data[1]), LENGTH_MAX);
	data += 2;
	bytes -= 2;
	if (nr_bytes <= bytes) {
		parse(data, bytes);
		return 0;
	}
	if (!zeroes)
		zeroes = calloc(1, LENGTH_MAX);
	ASSERT(zeroes);
	memcpy(zeroes, data, bytes);
	parse(zeroes, nr_bytes);
	memset(zeroes, 0, bytes);
	return 0;
}
