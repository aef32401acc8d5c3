/*
 * What stands behind the header: extensions, and in them the names of features. Pure, any thread.
 *
 * Unknown extensions are passed over. One that says something about the image may be there once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "backends/qcow2/format/qcow2_text.h"
#include "base/big_endian.h"
#include "backends/qcow2/format/qcow2_header_internal.h"
#include "base/printable.h"
#include "base/util.h"

#define CRYPTO_BYTES 16u
#define BITMAPS_BYTES 24u
/* What QEMU takes (block/qcow2.h). */
#define BITMAPS_MAX 65535u
#define BITMAPS_DIRECTORY_BYTES_MAX (64u << 20)
#define BITMAPS_ENTRY_BYTES_MIN 24u
/* An entry of the table of names: type of the feature, number of the bit, name. */
#define FEATURE_BYTES 48u
#define FEATURE_NAME_BYTES 46u
#define FEATURE_INCOMPATIBLE 0

uint64_t qcow2_extensions_end(const struct qcow2_reader *r, const struct qcow2_header *h)
{
	return r->backing_offset ? r->backing_offset : qcow2_cluster_bytes(&h->g);
}

static int extension_cut(const struct qcow2_reader *r, uint64_t at, uint64_t limit)
{
	return qcow2_fail(r->words, -EINVAL,
			  "the header extension at offset %" PRIu64
			  " ends beyond the header's room of %" PRIu64 " bytes",
			  at, limit);
}

int qcow2_extension_next(const struct qcow2_reader *r, uint64_t end, uint64_t *at,
			 struct qcow2_ext *ret)
{
	uint64_t limit = MIN(end, (uint64_t)r->nr_bytes), from = *at;

	if (from >= end)
		return 0;
	if (from + QCOW2_EXT_HEAD_BYTES > limit)
		return extension_cut(r, from, limit);
	ret->type = be_get32(r->at + from);
	ret->bytes = be_get32(r->at + from + 4);
	ret->data = r->at + from + QCOW2_EXT_HEAD_BYTES;
	if (ret->type == QCOW2_EXT_END)
		return 0;
	if (ret->bytes > limit - from - QCOW2_EXT_HEAD_BYTES)
		return extension_cut(r, from, limit);
	*at = from + QCOW2_EXT_HEAD_BYTES + round_up(ret->bytes, 8);
	return 1;
}

/* ---- what each says ---- */

static int extension_length_fail(const struct qcow2_reader *r, const char *what, uint32_t bytes)
{
	return qcow2_fail(r->words, -EINVAL, "the header extension of %s has %" PRIu32 " bytes",
			  what, bytes);
}

static int extension_backing_format(const struct qcow2_reader *r, struct qcow2_header *h,
				    const struct qcow2_ext *ext)
{
	if (ext->bytes >= sizeof(h->backing_format))
		return extension_length_fail(r, "the backing file's format", ext->bytes);
	qcow2_text(h->backing_format, ext->data, ext->bytes);
	return 0;
}

/* Of an image without a data file it is what is left of an old one. */
static int extension_data_file(const struct qcow2_reader *r, struct qcow2_header *h,
			       const struct qcow2_ext *ext)
{
	if (!(h->incompatible & QCOW2_INCOMPAT_DATA_FILE))
		return 0;
	if (ext->bytes >= sizeof(h->data_file_name))
		return extension_length_fail(r, "the data file's name", ext->bytes);
	qcow2_text(h->data_file_name, ext->data, ext->bytes);
	return 0;
}

static int extension_crypto(const struct qcow2_reader *r, struct qcow2_header *h,
			    const struct qcow2_ext *ext)
{
	if (h->crypt != QCOW2_CRYPT_LUKS)
		return qcow2_fail(r->words, -EINVAL,
				  "the image has a LUKS header, and says that it is not encrypted");
	if (ext->bytes != CRYPTO_BYTES)
		return extension_length_fail(r, "the LUKS header", ext->bytes);
	h->crypto_offset = be_get64(ext->data);
	h->crypto_bytes = be_get64(ext->data + 8);
	if (h->crypto_bytes == 0)
		return qcow2_fail(r->words, -EINVAL, "the LUKS header has 0 bytes");
	return 0;
}

/* Without its bit, a program that knows no bitmaps has written to the image: they say nothing. */
static int extension_bitmaps(const struct qcow2_reader *r, struct qcow2_header *h,
			     const struct qcow2_ext *ext)
{
	uint64_t bytes;
	uint32_t nr;

	if (!(h->autoclear & QCOW2_AUTOCLEAR_BITMAPS))
		return 0;
	if (ext->bytes != BITMAPS_BYTES)
		return extension_length_fail(r, "bitmaps", ext->bytes);
	nr = be_get32(ext->data);
	bytes = be_get64(ext->data + 8);
	if (nr == 0 || nr > BITMAPS_MAX || bytes > BITMAPS_DIRECTORY_BYTES_MAX ||
	    bytes / BITMAPS_ENTRY_BYTES_MIN < nr || be_get32(ext->data + 4) != 0)
		return qcow2_fail(r->words, -EINVAL,
				  "%" PRIu32 " bitmaps in a directory of %" PRIu64
				  " bytes cannot be",
				  nr, bytes);
	h->bitmap_nr = nr;
	h->bitmaps_bytes = bytes;
	h->bitmaps_offset = be_get64(ext->data + 16);
	return 0;
}

static int extension_base_note(const struct qcow2_reader *r, struct qcow2_header *h,
			       const struct qcow2_ext *ext)
{
	(void)r;
	h->base_note_is_other = !qcow2_base_note_read(&h->base_note, ext->data, ext->bytes);
	return 0;
}

/* ---- all of them ---- */

static const struct {
	enum qcow2_extension type;
	const char *what;
	int (*take)(const struct qcow2_reader *r, struct qcow2_header *h,
		    const struct qcow2_ext *ext);
} kinds[] = {
	{ QCOW2_EXT_BACKING_FORMAT, "the backing file's format", extension_backing_format },
	{ QCOW2_EXT_DATA_FILE, "the data file's name", extension_data_file },
	{ QCOW2_EXT_CRYPTO, "the LUKS header", extension_crypto },
	{ QCOW2_EXT_BITMAPS, "bitmaps", extension_bitmaps },
	{ QCOW2_EXT_BASE_NOTE, "the base's version", extension_base_note },
};

static int extension_take(const struct qcow2_reader *r, struct qcow2_header *h,
			  const struct qcow2_ext *ext, unsigned *seen)
{
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (ext->type != kinds[i].type)
			continue;
		if (*seen & 1u << i)
			return qcow2_fail(r->words, -EINVAL,
					  "the header extension of %s is there twice",
					  kinds[i].what);
		*seen |= 1u << i;
		return kinds[i].take(r, h, ext);
	}
	return 0;
}

int qcow2_extensions_parse(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint64_t at = h->header_bytes, end = qcow2_extensions_end(r, h);
	struct qcow2_ext ext = { 0 };
	unsigned seen = 0;
	int err;

	while ((err = qcow2_extension_next(r, end, &at, &ext)) > 0) {
		err = extension_take(r, h, &ext, &seen);
		if (err < 0)
			return err;
	}
	if (err == 0 && h->crypt == QCOW2_CRYPT_LUKS && h->crypto_bytes == 0)
		return qcow2_fail(r->words, -EINVAL,
				  "the image is encrypted with LUKS and does not say where the "
				  "LUKS header is");
	return err;
}

/* ---- names of features ---- */

/* The name that the table gives to an incompatible bit; NULL: it has none. */
static const uint8_t *feature_name(const struct qcow2_ext *ext, unsigned bit)
{
	for (uint32_t at = 0; ext->bytes - at >= FEATURE_BYTES; at += FEATURE_BYTES) {
		const uint8_t *entry = ext->data + at;

		if (entry[0] == FEATURE_INCOMPATIBLE && entry[1] == bit && entry[2] != '\0')
			return entry + 2;
	}
	return NULL;
}

/* A header that is broken behind its features has no names. */
static const uint8_t *feature_find(const struct qcow2_reader *r, const struct qcow2_header *h,
				   unsigned bit)
{
	uint64_t at = h->header_bytes, end = qcow2_extensions_end(r, h);
	struct qcow2_ext ext = { 0 };

	while (qcow2_extension_next(r, end, &at, &ext) > 0) {
		if (ext.type == QCOW2_EXT_FEATURE_NAMES)
			return feature_name(&ext, bit);
	}
	return NULL;
}

int qcow2_features_fail(const struct qcow2_reader *r, const struct qcow2_header *h,
			uint64_t unknown)
{
	unsigned bit = (unsigned)__builtin_ctzll(unknown);
	int more_nr = __builtin_popcountll(unknown) - 1;
	const uint8_t *found = feature_find(r, h, bit);
	char more[24] = "", name[FEATURE_NAME_BYTES + 1];

	if (more_nr > 0)
		snprintf(more, sizeof(more), " and %d more", more_nr);
	if (!found)
		return qcow2_fail(r->words, -EOPNOTSUPP,
				  "the image needs a feature without a name (incompatible bit %u)"
				  "%s, which ublkd does not know",
				  bit, more);
	printable(name, sizeof(name), found, strnlen((const char *)found, FEATURE_NAME_BYTES));
	return qcow2_fail(r->words, -EOPNOTSUPP,
			  "the image needs the feature \"%s\" (incompatible bit %u)%s, which ublkd "
			  "does not know",
			  name, bit, more);
}
