/* The header and its extensions: what they say, and what in them cannot be. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/rig/qcow2/qcow2_oracle_internal.h"

#define MAGIC 0x514649fbu
#define L1_BYTES_MAX (UINT64_C(32) << 20)      /* as in QEMU */
#define REFTABLE_BYTES_MAX (UINT64_C(8) << 20) /* as in QEMU */
#define HEADER_READ_BYTES 112u		       /* version 3 with compression_type */

enum extension {
	EXT_END = 0,
	EXT_BACKING_FORMAT = 0xe2792aca,
	EXT_BITMAPS = 0x23852875,
	EXT_CRYPTO = 0x0537be77,
	EXT_DATA_FILE = 0x44415441,
};

/* The header while it is read. */
struct header {
	uint8_t raw[HEADER_READ_BYTES];
	uint64_t incompatible, autoclear;
	uint64_t backing_offset, backing_bytes, l1_offset, l1_entries;
	uint64_t header_bytes, compression;
	bool has_bitmaps, has_crypto;
	char *words;
};

static int refuse(struct header *h, int err, const char *why)
{
	snprintf(h->words, QCOW2_ORACLE_WORDS_BYTES, "header: %s", why);
	return err;
}

static uint64_t field(const struct header *h, unsigned offset, unsigned bytes)
{
	return oracle_be(h->raw + offset, bytes);
}

/* ---- extensions ---- */

/* A string of the image, which is not terminated there. */
static int name_read(struct qcow2_oracle *o, struct header *h, char *ret_name, uint64_t offset,
		     uint64_t bytes)
{
	if (bytes >= QCOW2_ORACLE_NAME_BYTES)
		return refuse(h, -EINVAL, "a name is longer than 1023 bytes");
	if (oracle_file_read(&o->file, ret_name, bytes, offset))
		return refuse(h, -EIO, "a name cannot be read");
	ret_name[bytes] = 0;
	return 0;
}

static int crypto_read(struct qcow2_oracle *o, struct header *h, uint64_t at, uint64_t bytes)
{
	if (bytes != 16)
		return refuse(h, -EINVAL, "the encryption extension has a wrong length");
	o->crypto.offset = oracle_window_get(o, &o->table, at, 8);
	o->crypto.bytes = oracle_window_get(o, &o->table, at + 8, 8);
	if (oracle_unaligned(o, o->crypto.offset) || !o->crypto.offset)
		return refuse(h, -EINVAL, "the encryption header is not at a cluster");
	/* the LUKS partition header alone has 592 bytes */
	if (o->crypto.bytes < 592)
		return refuse(h, -EINVAL, "the encryption header is too short");
	h->has_crypto = true;
	return 0;
}

/* Without the feature bit what it says is stale: its clusters are nobody's. */
static int bitmaps_read(struct qcow2_oracle *o, struct header *h, uint64_t at, uint64_t bytes)
{
	h->has_bitmaps = true;
	if (!(h->autoclear & 1))
		return 0;
	if (bytes != 24)
		return refuse(h, -EINVAL, "the bitmaps extension has a wrong length");
	o->info.bitmap_nr = (uint32_t)oracle_window_get(o, &o->table, at, 4);
	o->bitmap_directory.bytes = oracle_window_get(o, &o->table, at + 8, 8);
	o->bitmap_directory.offset = oracle_window_get(o, &o->table, at + 16, 8);
	if (oracle_window_get(o, &o->table, at + 4, 4))
		return refuse(h, -EINVAL, "a reserved field of the bitmaps extension is not 0");
	if (!o->info.bitmap_nr || o->info.bitmap_nr > 65535)
		return refuse(h, -EINVAL, "the number of bitmaps is 0 or above 65535");
	if (oracle_unaligned(o, o->bitmap_directory.offset))
		return refuse(h, -EINVAL, "the bitmap directory is not at a cluster");
	/* an entry of 24 bytes, and a name of 1023 */
	if (!o->bitmap_directory.bytes || o->bitmap_directory.bytes > UINT64_C(65535) * 1048)
		return refuse(h, -EINVAL, "the bitmap directory has an impossible length");
	return 0;
}

static int extension_read(struct qcow2_oracle *o, struct header *h, uint32_t type, uint64_t at,
			  uint64_t bytes)
{
	switch (type) {
	case EXT_BACKING_FORMAT:
		return name_read(o, h, o->info.backing_format, at, bytes);
	case EXT_DATA_FILE:
		return name_read(o, h, o->info.data_file_name, at, bytes);
	case EXT_CRYPTO:
		return crypto_read(o, h, at, bytes);
	case EXT_BITMAPS:
		return bitmaps_read(o, h, at, bytes);
	default:
		return 0;
	}
}

/* They end at an end mark, at the name of the backing file, or with the cluster. */
static int extensions_read(struct qcow2_oracle *o, struct header *h)
{
	uint64_t end = h->backing_offset ? h->backing_offset : o->cluster_bytes;
	uint64_t at = h->header_bytes;

	while (at + 8 <= end) {
		uint32_t type = (uint32_t)oracle_window_get(o, &o->table, at, 4);
		uint64_t bytes = oracle_window_get(o, &o->table, at + 4, 4);
		int err;

		if (type == EXT_END)
			break;
		if (bytes > end - at - 8)
			return refuse(h, -EINVAL, "an extension is longer than its place");
		err = extension_read(o, h, type, at + 8, bytes);
		if (err)
			return err;
		at += 8 + ((bytes + 7) & ~UINT64_C(7));
	}
	return 0;
}

/* ---- fields ---- */

static int version_read(struct qcow2_oracle *o, struct header *h)
{
	o->info.version = (uint32_t)field(h, 4, 4);
	o->info.cluster_bits = (uint32_t)field(h, 20, 4);
	if (field(h, 0, 4) != MAGIC)
		return refuse(h, -EINVAL, "no qcow2 image");
	if (o->info.version != 2 && o->info.version != 3)
		return refuse(h, -ENOTSUP, "neither version 2 nor 3");
	if (o->info.cluster_bits < 9 || o->info.cluster_bits > 21)
		return refuse(h, -ENOTSUP, "clusters below 512 bytes or above 2 MiB");
	o->cluster_bytes = UINT64_C(1) << o->info.cluster_bits;
	o->csize_shift = 62 - (o->info.cluster_bits - 8);
	h->header_bytes = o->info.version == 2 ? 72 : field(h, 100, 4);
	if (o->info.version == 3 && (h->header_bytes < 104 || h->header_bytes % 8))
		return refuse(h, -EINVAL, "shorter than 104 bytes, or not a multiple of 8");
	if (h->header_bytes > o->cluster_bytes)
		return refuse(h, -EINVAL, "longer than a cluster");
	return 0;
}

static int features_read(struct qcow2_oracle *o, struct header *h)
{
	struct qcow2_oracle_info *info = &o->info;
	uint64_t order = 4;

	if (info->version == 3) {
		h->incompatible = field(h, 72, 8);
		info->lazy = field(h, 80, 8) & 1;
		h->autoclear = field(h, 88, 8);
		order = field(h, 96, 4);
		h->compression = h->header_bytes > 104 ? field(h, 104, 1) : 0;
	}
	if (h->incompatible & ~UINT64_C(0x1f))
		return refuse(h, -ENOTSUP, "unknown incompatible features");
	info->dirty = h->incompatible & 1;
	info->corrupt = h->incompatible & 2;
	info->data_file = h->incompatible & 4;
	info->zstd = h->incompatible & 8;
	info->extended_l2 = h->incompatible & 16;
	info->data_file_raw = h->autoclear & 2;
	if (order > 6)
		return refuse(h, -EINVAL, "reference counts of more than 64 bits");
	info->refcount_bits = 1u << order;
	if (h->compression > 1)
		return refuse(h, -ENOTSUP, "an unknown compression");
	if (info->zstd != (h->compression != 0))
		return refuse(h, -EINVAL, "compression field and feature contradict");
	if (info->extended_l2 && info->cluster_bits < 14)
		return refuse(h, -EINVAL, "clusters too small for subclusters");
	if (info->data_file_raw && !info->data_file)
		return refuse(h, -EINVAL, "a raw data file without a data file");
	return 0;
}

/* A table of 64 bit entries that the header points at. */
static int table_judge(struct qcow2_oracle *o, struct header *h, const char *what,
		       struct oracle_range range, uint64_t bytes_max)
{
	char why[QCOW2_ORACLE_WORDS_BYTES / 2];

	if (range.bytes <= bytes_max && !oracle_unaligned(o, range.offset) &&
	    range.offset <= INT64_MAX - range.bytes)
		return 0;
	snprintf(why, sizeof(why), "%s is too large or not at a cluster", what);
	return refuse(h, -EINVAL, why);
}

static int tables_read(struct qcow2_oracle *o, struct header *h)
{
	struct oracle_l1 *l1 = &o->active;
	uint64_t covered;
	int err;

	o->info.size_bytes = field(h, 24, 8);
	o->info.snapshot_nr = (uint32_t)field(h, 60, 4);
	o->snapshots_offset = field(h, 64, 8);
	o->l2_entry_bytes = o->info.extended_l2 ? 16 : 8;
	o->l2_entries = (uint32_t)(o->cluster_bytes / o->l2_entry_bytes);
	o->subcluster_bytes = (uint32_t)(o->cluster_bytes / (o->info.extended_l2 ? 32 : 1));
	o->reftable = (struct oracle_range){ field(h, 48, 8), field(h, 56, 4) * o->cluster_bytes };
	*l1 = (struct oracle_l1){ field(h, 40, 8), field(h, 36, 4), o->info.size_bytes, 1 };
	err = table_judge(o, h, "the L1 table",
			  (struct oracle_range){ l1->offset, l1->entries * 8 }, L1_BYTES_MAX);
	if (!err)
		err = table_judge(o, h, "the reference count table", o->reftable,
				  REFTABLE_BYTES_MAX);
	if (err)
		return err;
	covered = l1->entries * o->l2_entries; /* clusters: below 2^40 */
	if ((o->info.size_bytes + o->cluster_bytes - 1) >> o->info.cluster_bits > covered ||
	    o->info.size_bytes > INT64_MAX)
		return refuse(h, -EINVAL, "the L1 table is too small for the disk");
	return 0;
}

static int crypt_read(struct qcow2_oracle *o, struct header *h)
{
	o->info.crypt = (uint32_t)field(h, 32, 4);
	if (o->info.crypt > 2)
		return refuse(h, -ENOTSUP, "an unknown encryption");
	if (h->has_crypto != (o->info.crypt == 2))
		return refuse(h, -EINVAL, "LUKS and its extension: one without the other");
	return 0;
}

static int backing_read(struct qcow2_oracle *o, struct header *h)
{
	h->backing_offset = field(h, 8, 8);
	h->backing_bytes = field(h, 16, 4);
	if (!h->backing_offset)
		return 0;
	if (h->backing_offset > o->cluster_bytes ||
	    h->backing_bytes > o->cluster_bytes - h->backing_offset)
		return refuse(h, -EINVAL, "the backing file's name is not in the first cluster");
	return name_read(o, h, o->info.backing_name, h->backing_offset, h->backing_bytes);
}

static int header_read(struct qcow2_oracle *o, struct header *h)
{
	int err = oracle_file_read(&o->file, h->raw, sizeof(h->raw), 0);

	if (err)
		return refuse(h, err, "cannot be read");
	err = version_read(o, h);
	if (!err)
		err = features_read(o, h);
	if (!err)
		err = backing_read(o, h);
	if (!err)
		err = tables_read(o, h);
	if (!err)
		err = extensions_read(o, h);
	if (!err)
		err = crypt_read(o, h);
	o->info.bitmaps_missing = (h->autoclear & 1) && !h->has_bitmaps;
	return err;
}

int qcow2_oracle_open(struct qcow2_oracle *o, const struct qcow2_oracle_file *file,
		      const struct qcow2_oracle_file *data,
		      char words[static QCOW2_ORACLE_WORDS_BYTES])
{
	struct header h = { .words = words };

	words[0] = 0;
	o->file = *file;
	o->data = data ? *data : (struct qcow2_oracle_file){ 0 };
	o->info = (struct qcow2_oracle_info){ 0 };
	o->crypto = o->bitmap_directory = (struct oracle_range){ 0 };
	o->l1.bytes = o->l2.bytes = o->table.bytes = o->block.bytes = 0;
	o->snapshot = QCOW2_ORACLE_ACTIVE;
	o->unpacked_entry = 0;
	o->io_error = false;
	return header_read(o, &h);
}
