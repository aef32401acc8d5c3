/*
 * Reads and changes the header of an image. Pure, any thread.
 *
 * Happy path: magic, version -> geometry -> features -> where tables are -> extensions -> the name
 * of the backing file -> tables within their limits, none over another. Every refusal says which
 * field it is about. What QEMU takes and the format forbids is taken where nothing can go wrong by
 * it.
 */
#include "backends/qcow2/format/qcow2_header.h"

#include <errno.h>
#include <inttypes.h>

#include "backends/qcow2/format/qcow2_text.h"
#include "base/big_endian.h"
#include "backends/qcow2/format/qcow2_header_internal.h"
#include "base/util.h"

#define OFFSET_BITS 56
#define REFCOUNT_ORDER_V2 4
#define REFCOUNT_ORDER_MAX 6
/* A subcluster has 512 bytes at least. */
#define EXTENDED_CLUSTER_BITS_MIN 14u
#define SNAPSHOT_ENTRY_BYTES_MIN 40u

/* ---- the first fields: how to read the others ---- */

static int header_short(const struct qcow2_reader *r)
{
	return qcow2_fail(r->words, -EINVAL, "the image ends within its header, after %zu bytes",
			  r->nr_bytes);
}

static int header_magic(const struct qcow2_reader *r)
{
	if (r->nr_bytes < 4 || be_get32(r->at) != QCOW2_MAGIC)
		return qcow2_fail(r->words, -EINVAL,
				  "this is no qcow2 image: it does not begin with \"QFI\\xfb\"");
	return r->nr_bytes < QCOW2_V2_HEADER_BYTES ? header_short(r) : 0;
}

static int header_version(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint32_t version = be_get32(r->at + QCOW2_AT_VERSION);

	if (version < 2 || version > 3)
		return qcow2_fail(r->words, -EOPNOTSUPP,
				  "the image has version %" PRIu32
				  " of the format; known are 2 and "
				  "3: convert it with qemu-img convert -O qcow2",
				  version);
	h->g.version = (uint8_t)version;
	return 0;
}

static int header_cluster(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint32_t bits = be_get32(r->at + QCOW2_AT_CLUSTER_BITS);

	if (bits < QCOW2_CLUSTER_BITS_MIN || bits > QCOW2_CLUSTER_BITS_MAX)
		return qcow2_fail(r->words, -EINVAL,
				  "clusters have 2^%" PRIu32 " bytes; 2^%u to 2^%u can be", bits,
				  QCOW2_CLUSTER_BITS_MIN, QCOW2_CLUSTER_BITS_MAX);
	h->g.cluster_bits = (uint8_t)bits;
	return 0;
}

static int header_length(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint32_t bytes;

	h->header_bytes = QCOW2_V2_HEADER_BYTES;
	if (h->g.version == 2)
		return 0;
	if (r->nr_bytes < QCOW2_V3_HEADER_BYTES)
		return header_short(r);
	bytes = be_get32(r->at + QCOW2_AT_HEADER_BYTES);
	if (bytes < QCOW2_V3_HEADER_BYTES || bytes % 8 != 0 || bytes > qcow2_cluster_bytes(&h->g))
		return qcow2_fail(r->words, -EINVAL,
				  "the header says that it has %" PRIu32 " bytes: it has %u at "
				  "least, a multiple of 8, and a cluster at most",
				  bytes, QCOW2_V3_HEADER_BYTES);
	if (bytes > r->nr_bytes)
		return header_short(r);
	h->header_bytes = bytes;
	return 0;
}

/* Not yet the name: features come first, they are the better message. */
static int header_backing(struct qcow2_reader *r, const struct qcow2_header *h)
{
	uint64_t offset = be_get64(r->at + QCOW2_AT_BACKING_OFFSET);
	uint32_t bytes = be_get32(r->at + QCOW2_AT_BACKING_BYTES);
	uint64_t cluster_bytes = qcow2_cluster_bytes(&h->g);

	if (offset == 0)
		return 0;
	if (offset < h->header_bytes || offset > cluster_bytes)
		return qcow2_fail(r->words, -EINVAL,
				  "the name of the backing file is at offset %" PRIu64
				  ", not between the header and the end of the first cluster",
				  offset);
	if (bytes > QCOW2_BACKING_NAME_MAX || bytes > cluster_bytes - offset)
		return qcow2_fail(r->words, -EINVAL,
				  "the name of the backing file has %" PRIu32
				  " bytes: it has %u at most, and ends in the first cluster",
				  bytes, QCOW2_BACKING_NAME_MAX);
	r->backing_offset = offset;
	r->backing_bytes = bytes;
	return 0;
}

/* ---- features ---- */

static int header_compression(const struct qcow2_reader *r, struct qcow2_header *h)
{
	bool marked = h->incompatible & QCOW2_INCOMPAT_COMPRESSION;

	if (h->header_bytes > QCOW2_AT_COMPRESSION)
		h->compression = r->at[QCOW2_AT_COMPRESSION];
	if (marked != (h->compression != QCOW2_COMPRESSION_ZLIB))
		return qcow2_fail(r->words, -EINVAL,
				  "the compression type is %" PRIu32
				  ", and the bit of another type than zlib is %s",
				  h->compression, marked ? "set" : "not set");
	if (h->compression > QCOW2_COMPRESSION_ZSTD)
		return qcow2_fail(r->words, -EOPNOTSUPP,
				  "clusters are compressed by a method that ublkd does not know "
				  "(type %" PRIu32 "); known are zlib and zstd",
				  h->compression);
	return 0;
}

static int header_raw_data_file(const struct qcow2_reader *r, const struct qcow2_header *h)
{
	if (!(h->autoclear & QCOW2_AUTOCLEAR_RAW_DATA_FILE))
		return 0;
	if (!(h->incompatible & QCOW2_INCOMPAT_DATA_FILE))
		return qcow2_fail(r->words, -EINVAL,
				  "the image is marked to have a raw data file, but not to have a "
				  "data file");
	if (r->backing_offset != 0 && r->backing_bytes != 0)
		return qcow2_fail(r->words, -EINVAL,
				  "the image has a raw data file and a backing file, which exclude "
				  "each other: take the backing file away with qemu-img rebase");
	return 0;
}

static int header_features(const struct qcow2_reader *r, struct qcow2_header *h)
{
	int err;

	if (h->g.version > 2) {
		h->incompatible = be_get64(r->at + QCOW2_AT_INCOMPATIBLE);
		h->compatible = be_get64(r->at + QCOW2_AT_COMPATIBLE);
		h->autoclear = be_get64(r->at + QCOW2_AT_AUTOCLEAR);
	}
	if (h->incompatible & ~(uint64_t)QCOW2_INCOMPAT_KNOWN)
		return qcow2_features_fail(r, h, h->incompatible & ~(uint64_t)QCOW2_INCOMPAT_KNOWN);
	err = header_compression(r, h);
	return err ? err : header_raw_data_file(r, h);
}

static int header_crypt(const struct qcow2_reader *r, struct qcow2_header *h)
{
	h->crypt = be_get32(r->at + QCOW2_AT_CRYPT);
	if (h->crypt == QCOW2_CRYPT_AES)
		return qcow2_fail(r->words, -EOPNOTSUPP,
				  "the image is encrypted by the old method of qcow2 (AES), which "
				  "is not safe: convert it to LUKS with qemu-img convert");
	if (h->crypt > QCOW2_CRYPT_LUKS)
		return qcow2_fail(r->words, -EOPNOTSUPP,
				  "the image is encrypted by a method that ublkd does not know "
				  "(%" PRIu32 "); known is LUKS",
				  h->crypt);
	return 0;
}

static int header_geometry(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint32_t order =
		h->g.version == 2 ? REFCOUNT_ORDER_V2 : be_get32(r->at + QCOW2_AT_REFCOUNT_ORDER);
	bool extended = h->incompatible & QCOW2_INCOMPAT_EXTENDED_L2;
	struct qcow2_geometry *g = &h->g;

	if (order > REFCOUNT_ORDER_MAX)
		return qcow2_fail(r->words, -EINVAL,
				  "reference counts have 2^%" PRIu32 " bits; 2^%u can be", order,
				  REFCOUNT_ORDER_MAX);
	if (extended && g->cluster_bits < EXTENDED_CLUSTER_BITS_MIN)
		return qcow2_fail(r->words, -EINVAL,
				  "extended L2 entries need clusters of 2^%u bytes at least, the "
				  "image has clusters of 2^%u",
				  EXTENDED_CLUSTER_BITS_MIN, g->cluster_bits);
	qcow2_geometry_init(g, g->version, g->cluster_bits, order, extended);
	return 0;
}

/* ---- tables ---- */

static int header_l1(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint64_t need;

	h->size_bytes = be_get64(r->at + QCOW2_AT_SIZE);
	h->l1_entries = be_get32(r->at + QCOW2_AT_L1_ENTRIES);
	h->l1_offset = be_get64(r->at + QCOW2_AT_L1_OFFSET);
	need = qcow2_l1_entries_for(&h->g, h->size_bytes);
	if (need > h->l1_entries)
		return qcow2_fail(r->words, -EINVAL,
				  "the L1 table has %" PRIu32 " entries, a disk of %" PRIu64
				  " bytes needs %" PRIu64,
				  h->l1_entries, h->size_bytes, need);
	if (h->l1_entries > QCOW2_L1_BYTES_MAX / 8)
		return qcow2_fail(r->words, -EINVAL,
				  "the L1 table has %" PRIu32 " entries; %u can be", h->l1_entries,
				  QCOW2_L1_BYTES_MAX / 8);
	return 0;
}

static int header_reftable(const struct qcow2_reader *r, struct qcow2_header *h)
{
	uint32_t max = QCOW2_REFTABLE_BYTES_MAX >> h->g.cluster_bits;

	h->reftable_offset = be_get64(r->at + QCOW2_AT_REFTABLE_OFFSET);
	h->reftable_clusters = be_get32(r->at + QCOW2_AT_REFTABLE_CLUSTERS);
	if (h->reftable_clusters == 0 || h->reftable_clusters > max)
		return qcow2_fail(r->words, -EINVAL,
				  "the reference count table has %" PRIu32
				  " clusters; 1 to %" PRIu32 " can be",
				  h->reftable_clusters, max);
	return 0;
}

static int header_snapshots(const struct qcow2_reader *r, struct qcow2_header *h)
{
	h->snapshot_nr = be_get32(r->at + QCOW2_AT_SNAPSHOT_NR);
	h->snapshots_offset = be_get64(r->at + QCOW2_AT_SNAPSHOTS_OFFSET);
	if (h->snapshot_nr > QCOW2_SNAPSHOTS_MAX)
		return qcow2_fail(r->words, -EINVAL,
				  "the image has %" PRIu32 " internal snapshots; %u can be",
				  h->snapshot_nr, QCOW2_SNAPSHOTS_MAX);
	if (h->snapshot_nr != 0 && h->incompatible & QCOW2_INCOMPAT_DATA_FILE)
		return qcow2_fail(r->words, -EINVAL,
				  "the image has an external data file and internal snapshots, "
				  "which exclude each other");
	return 0;
}

/* What the header points at. bytes 0: nothing. */
struct header_range {
	const char *what;
	uint64_t offset, bytes;
};

static int header_range_check(const struct qcow2_reader *r, const struct qcow2_geometry *g,
			      const struct header_range *range)
{
	const uint64_t max = 1ull << OFFSET_BITS;
	const char *why = NULL;

	if (range->offset % qcow2_cluster_bytes(g) != 0)
		why = "not on the border of a cluster";
	else if (range->offset == 0)
		why = "where the header is";
	else if (range->offset > max || range->bytes > max - range->offset)
		why = "beyond 2^56, where no cluster can be";
	else if (range->offset + range->bytes > r->image_bytes)
		why = "beyond the end of the image: is it a whole copy?";
	if (!why)
		return 0;
	return qcow2_fail(r->words, -EINVAL, "the %s is at offset %" PRIu64 ", %s", range->what,
			  range->offset, why);
}

/* Ranges are checked, so that nothing overflows. */
static bool header_range_overlaps(const struct qcow2_geometry *g, const struct header_range *a,
				  const struct header_range *b)
{
	uint64_t a_end = round_up(a->offset + a->bytes, qcow2_cluster_bytes(g));
	uint64_t b_end = round_up(b->offset + b->bytes, qcow2_cluster_bytes(g));

	return a->bytes != 0 && b->bytes != 0 && a->offset < b_end && b->offset < a_end;
}

static int header_ranges_check(const struct qcow2_reader *r, const struct qcow2_header *h)
{
	const struct header_range range[] = {
		{ "L1 table", h->l1_offset, (uint64_t)h->l1_entries * 8 },
		{ "reference count table", h->reftable_offset,
		  (uint64_t)h->reftable_clusters << h->g.cluster_bits },
		{ "table of snapshots", h->snapshots_offset,
		  (uint64_t)h->snapshot_nr * SNAPSHOT_ENTRY_BYTES_MIN },
		{ "LUKS header", h->crypto_offset, h->crypto_bytes },
		{ "directory of bitmaps", h->bitmaps_offset, h->bitmaps_bytes },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(range); i++) {
		int err = range[i].bytes == 0 ? 0 : header_range_check(r, &h->g, &range[i]);

		if (err)
			return err;
		for (unsigned j = 0; j < i; j++) {
			if (header_range_overlaps(&h->g, &range[i], &range[j]))
				return qcow2_fail(r->words, -EINVAL,
						  "the %s and the %s lie over each other",
						  range[j].what, range[i].what);
		}
	}
	return 0;
}

/* ---- all of it ---- */

static int header_backing_name(const struct qcow2_reader *r, struct qcow2_header *h)
{
	if (r->backing_offset == 0)
		return 0;
	if (r->backing_offset > r->nr_bytes || r->backing_bytes > r->nr_bytes - r->backing_offset)
		return qcow2_fail(r->words, -EINVAL,
				  "the name of the backing file ends beyond the first %zu bytes",
				  r->nr_bytes);
	qcow2_text(h->backing_name, r->at + r->backing_offset, r->backing_bytes);
	return 0;
}

static int header_fields(struct qcow2_reader *r, struct qcow2_header *h)
{
	static int (*const steps[])(const struct qcow2_reader *, struct qcow2_header *) = {
		header_features, header_crypt,	   header_geometry,	   header_l1,
		header_reftable, header_snapshots, qcow2_extensions_parse, header_backing_name,
	};
	int err = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(steps) && err == 0; i++)
		err = steps[i](r, h);
	return err;
}

int qcow2_header_parse(struct qcow2_header *ret_h, const void *bytes, size_t nr_bytes,
		       uint64_t image_bytes, char words[static QCOW2_WORDS_BYTES])
{
	struct qcow2_reader r = {
		.at = bytes,
		.nr_bytes = MIN((uint64_t)nr_bytes, image_bytes),
		.image_bytes = image_bytes,
		.words = words,
	};
	int err;

	memset(ret_h, 0, sizeof(*ret_h));
	err = header_magic(&r);
	err = err ? err : header_version(&r, ret_h);
	err = err ? err : header_cluster(&r, ret_h);
	err = err ? err : header_length(&r, ret_h);
	err = err ? err : header_backing(&r, ret_h);
	err = err ? err : header_fields(&r, ret_h);
	return err ? err : header_ranges_check(&r, ret_h);
}

void qcow2_geometry_init(struct qcow2_geometry *g, unsigned version, unsigned cluster_bits,
			 unsigned refcount_order, bool extended_l2)
{
	unsigned entry_bits = extended_l2 ? 4 : 3;

	*g = (struct qcow2_geometry){
		.cluster_bits = (uint8_t)cluster_bits,
		.l2_entry_bytes = (uint8_t)(1u << entry_bits),
		.l2_bits = (uint8_t)(cluster_bits - entry_bits),
		.refcount_order = (uint8_t)refcount_order,
		.refblock_bits = (uint8_t)(cluster_bits + 3 - refcount_order),
		.subcluster_bits = (uint8_t)(extended_l2 ? cluster_bits - 5 : cluster_bits),
		.version = (uint8_t)version,
	};
}

uint64_t qcow2_l1_entries_for(const struct qcow2_geometry *g, uint64_t size_bytes)
{
	unsigned bits = g->cluster_bits + g->l2_bits;

	return (size_bytes >> bits) + ((size_bytes & ((1ull << bits) - 1)) != 0);
}

void qcow2_header_update(void *bytes, const struct qcow2_header *h)
{
	uint8_t *at = bytes;

	be_put64(at + QCOW2_AT_SIZE, h->size_bytes);
	be_put32(at + QCOW2_AT_L1_ENTRIES, h->l1_entries);
	be_put64(at + QCOW2_AT_L1_OFFSET, h->l1_offset);
	be_put64(at + QCOW2_AT_REFTABLE_OFFSET, h->reftable_offset);
	be_put32(at + QCOW2_AT_REFTABLE_CLUSTERS, h->reftable_clusters);
	be_put32(at + QCOW2_AT_SNAPSHOT_NR, h->snapshot_nr);
	be_put64(at + QCOW2_AT_SNAPSHOTS_OFFSET, h->snapshots_offset);
	if (h->g.version == 2)
		return;
	be_put64(at + QCOW2_AT_INCOMPATIBLE, h->incompatible);
	be_put64(at + QCOW2_AT_COMPATIBLE, h->compatible);
	be_put64(at + QCOW2_AT_AUTOCLEAR, h->autoclear);
}
