/*
 * Writes images that have nothing in them yet. Pure, any thread.
 *
 * Happy path: options -> geometry -> how many clusters each table takes -> any part of the bytes.
 * All that the image consists of is in a row from its start: header, reference count table, the
 * blocks for the clusters that are there, L1 table. A part is made of no more than the options, so
 * that nobody has to hold the whole. Failure modes: options that exclude each other, names that do
 * not fit the first cluster, disks that tables within their limits cannot describe.
 */
#include "backends/qcow2/format/qcow2_create.h"

#include <errno.h>
#include <inttypes.h>

#include "base/big_endian.h"
#include "base/util.h"

#define CLUSTER_BYTES_DEFAULT 65536u
#define REFCOUNT_BITS_DEFAULT 16u
#define VERSION_DEFAULT 3u
#define EXTENDED_CLUSTER_BYTES_MIN 16384u
/* With the field of the compression type, padded. */
#define CREATE_V3_HEADER_BYTES 112u
#define FEATURE_BYTES 48u
#define FEATURES_CLUSTER_BYTES_OVER 4096u

/* Numbers of clusters, in the order in which they lie. */
struct create_layout {
	struct qcow2_geometry g;
	uint64_t l1_entries;
	uint64_t reftable_clusters, refblocks, l1_clusters;
	uint64_t all_clusters;
};

static uint64_t div_up(uint64_t n, unsigned bits)
{
	return (n >> bits) + ((n & ((1ull << bits) - 1)) != 0);
}

/* ---- options ---- */

static uint64_t create_cluster_bytes(const struct qcow2_create *c)
{
	return c->cluster_bytes ? c->cluster_bytes : CLUSTER_BYTES_DEFAULT;
}

static unsigned create_refcount_bits(const struct qcow2_create *c)
{
	return c->refcount_bits ? c->refcount_bits : REFCOUNT_BITS_DEFAULT;
}

static unsigned create_version(const struct qcow2_create *c)
{
	return c->version ? c->version : VERSION_DEFAULT;
}

static int create_numbers_check(const struct qcow2_create *c, char *words)
{
	uint64_t cluster_bytes = create_cluster_bytes(c);
	unsigned refcount_bits = create_refcount_bits(c), version = create_version(c);

	if (version != 2 && version != 3)
		return qcow2_fail(words, -EINVAL, "version %u: 2 and 3 can be", version);
	if (!is_power_of_two(cluster_bytes) || cluster_bytes < 1u << QCOW2_CLUSTER_BITS_MIN ||
	    cluster_bytes > 1u << QCOW2_CLUSTER_BITS_MAX)
		return qcow2_fail(words, -EINVAL,
				  "clusters of %" PRIu64
				  " bytes: a power of two from 512 to 2 MiB can be",
				  cluster_bytes);
	if (!is_power_of_two(refcount_bits) || refcount_bits > 64)
		return qcow2_fail(words, -EINVAL,
				  "reference counts of %u bits: a power of two from 1 to 64 can be",
				  refcount_bits);
	if (c->size_bytes % 512 != 0)
		return qcow2_fail(words, -EINVAL,
				  "a disk of %" PRIu64 " bytes: it must be a multiple of 512",
				  c->size_bytes);
	if (c->extended_l2 && cluster_bytes < EXTENDED_CLUSTER_BYTES_MIN)
		return qcow2_fail(words, -EINVAL,
				  "extended L2 entries need clusters of %u bytes at least",
				  EXTENDED_CLUSTER_BYTES_MIN);
	return 0;
}

/* What version 2 has no place for. */
static int create_version_check(const struct qcow2_create *c, char *words)
{
	const char *what = NULL;

	if (create_version(c) != 2)
		return 0;
	if (create_refcount_bits(c) != REFCOUNT_BITS_DEFAULT)
		what = "reference counts that have not 16 bits";
	else if (c->extended_l2)
		what = "extended L2 entries";
	else if (c->lazy_refcounts)
		what = "lazy reference counts";
	else if (c->zstd)
		what = "compression by zstd";
	else if (c->data_file_name)
		what = "an external data file";
	if (!what)
		return 0;
	return qcow2_fail(words, -EINVAL, "%s: version 3 of the format has it, version 2 not",
			  what);
}

static int create_text_check(const char *text, const char *what, size_t max, char *words)
{
	if (!text || (text[0] != '\0' && strlen(text) <= max))
		return 0;
	return qcow2_fail(words, -EINVAL, "the %s has %zu bytes; 1 to %zu can be", what,
			  strlen(text), max);
}

static int create_names_check(const struct qcow2_create *c, char *words)
{
	int err;

	if (c->backing_format && !c->backing_name)
		return qcow2_fail(words, -EINVAL,
				  "a format of the backing file is given, but no backing file");
	if (c->data_file_raw && !c->data_file_name)
		return qcow2_fail(words, -EINVAL, "a raw data file needs its name");
	if (c->data_file_raw && c->backing_name)
		return qcow2_fail(words, -EINVAL,
				  "a raw data file and a backing file exclude each other");
	err = create_text_check(c->backing_name, "backing file's name", QCOW2_BACKING_NAME_MAX,
				words);
	err = err ? err
		  : create_text_check(c->backing_format, "backing file's format",
				      QCOW2_FORMAT_NAME_BYTES - 1, words);
	return err ? err
		   : create_text_check(c->data_file_name, "data file's name",
				       QCOW2_BACKING_NAME_MAX, words);
}

/* ---- clusters of the tables ---- */

static uint64_t reftable_clusters_of(const struct qcow2_geometry *g, uint64_t refblocks)
{
	return div_up(refblocks * 8, g->cluster_bits);
}

/*
 * Clusters of a reference count table for so many other clusters, the table's own and its blocks'
 * included. It grows from step to step until it describes itself.
 */
static uint64_t reftable_clusters_for(const struct qcow2_geometry *g, uint64_t other_clusters)
{
	uint64_t table = 0, blocks = 0, next;

	for (;;) {
		next = div_up(other_clusters + table + blocks, g->refblock_bits);
		if (next == blocks)
			return table;
		blocks = next;
		table = reftable_clusters_of(g, blocks);
	}
}

/* Clusters of the image, counts apart, when all of the disk is written so many times. */
static uint64_t create_full_clusters(const struct qcow2_create *c, const struct create_layout *l,
				     uint64_t times)
{
	uint64_t data = div_up(c->size_bytes, l->g.cluster_bits);

	return 1 + times * (l->l1_clusters + l->l1_entries + (c->data_file_name ? 0 : data));
}

/* 0: none that is small enough describes even one disk. */
static uint64_t create_reftable_clusters(const struct qcow2_create *c,
					 const struct create_layout *l)
{
	uint64_t max = QCOW2_REFTABLE_BYTES_MAX >> l->g.cluster_bits;
	uint64_t twice = reftable_clusters_for(&l->g, create_full_clusters(c, l, 2));

	if (twice <= max)
		return twice;
	return reftable_clusters_for(&l->g, create_full_clusters(c, l, 1)) <= max ? max : 0;
}

/* Blocks for the clusters that the new image has. */
static uint64_t create_refblocks(const struct create_layout *l)
{
	uint64_t others = 1 + l->reftable_clusters + l->l1_clusters, blocks = 0, next;

	while ((next = div_up(others + blocks, l->g.refblock_bits)) != blocks)
		blocks = next;
	return blocks;
}

/* Of options that are checked, but for the size. A disk of 0 bytes has an L1 table too. */
static void create_layout(const struct qcow2_create *c, struct create_layout *l)
{
	qcow2_geometry_init(&l->g, create_version(c), log2_floor(create_cluster_bytes(c)),
			    log2_floor(create_refcount_bits(c)), c->extended_l2);
	l->l1_entries = MAX(qcow2_l1_entries_for(&l->g, c->size_bytes), 1u);
	l->l1_clusters = div_up(l->l1_entries * 8, l->g.cluster_bits);
	if (l->l1_entries > QCOW2_L1_BYTES_MAX / 8)
		return;
	l->reftable_clusters = create_reftable_clusters(c, l);
	l->refblocks = create_refblocks(l);
	l->all_clusters = 1 + l->reftable_clusters + l->refblocks + l->l1_clusters;
}

/* ---- the first cluster ---- */

/* What fits into the header: bytes are counted, and written where out is not NULL. */
struct create_header {
	uint8_t *out;
	size_t bytes;
};

static void header_extension(struct create_header *w, enum qcow2_extension type, const void *data,
			     size_t bytes)
{
	if (w->out) {
		be_put32(w->out + w->bytes, type);
		be_put32(w->out + w->bytes + 4, (uint32_t)bytes);
		if (bytes != 0)
			memcpy(w->out + w->bytes + 8, data, bytes);
	}
	w->bytes += 8 + round_up(bytes, 8);
}

static void header_text_extension(struct create_header *w, enum qcow2_extension type,
				  const char *text)
{
	if (text)
		header_extension(w, type, text, strlen(text));
}

/* As QEMU 7 names them. */
static const struct {
	uint8_t type, bit;
	char name[FEATURE_BYTES - 2];
} feature_names[] = {
	{ 0, 0, "dirty bit" },
	{ 0, 1, "corrupt bit" },
	{ 0, 2, "external data file" },
	{ 0, 3, "compression type" },
	{ 0, 4, "extended L2 entries" },
	{ 1, 0, "lazy refcounts" },
	{ 2, 0, "bitmaps" },
	{ 2, 1, "raw external data" },
};
_Static_assert(sizeof(feature_names[0]) == FEATURE_BYTES, "an entry as it is in the image");

/* They help who does not know a feature; small clusters leave the room to names of files, as QEMU.
 */
static void header_feature_names(struct create_header *w, const struct qcow2_create *c)
{
	if (create_version(c) > 2 && create_cluster_bytes(c) > FEATURES_CLUSTER_BYTES_OVER)
		header_extension(w, QCOW2_EXT_FEATURE_NAMES, feature_names, sizeof(feature_names));
}

/* Extensions, then the backing file's name. Returns where that is. */
static size_t header_extensions(struct create_header *w, const struct qcow2_create *c)
{
	size_t at;

	header_text_extension(w, QCOW2_EXT_BACKING_FORMAT, c->backing_format);
	header_text_extension(w, QCOW2_EXT_DATA_FILE, c->data_file_name);
	header_feature_names(w, c);
	header_extension(w, QCOW2_EXT_END, NULL, 0);
	at = w->bytes;
	if (!c->backing_name)
		return at;
	if (w->out)
		memcpy(w->out + at, c->backing_name, strlen(c->backing_name));
	w->bytes += strlen(c->backing_name);
	return at;
}

static size_t create_fixed_bytes(const struct qcow2_create *c)
{
	return create_version(c) == 2 ? QCOW2_V2_HEADER_BYTES : CREATE_V3_HEADER_BYTES;
}

static int create_fits_check(const struct qcow2_create *c, char *words)
{
	struct create_header w = { .bytes = create_fixed_bytes(c) };

	header_extensions(&w, c);
	if (w.bytes <= create_cluster_bytes(c))
		return 0;
	return qcow2_fail(
		words, -EINVAL,
		"the names of files make a header of %zu bytes, which must fit one cluster "
		"of %" PRIu64 ": choose larger clusters or shorter names",
		w.bytes, create_cluster_bytes(c));
}

static uint64_t create_incompatible(const struct qcow2_create *c)
{
	return (c->data_file_name ? QCOW2_INCOMPAT_DATA_FILE : 0u) |
	       (c->zstd ? QCOW2_INCOMPAT_COMPRESSION : 0u) |
	       (c->extended_l2 ? QCOW2_INCOMPAT_EXTENDED_L2 : 0u);
}

/* All header fields that can change later, qcow2_header_update writes too. */
static void create_header_fields(const struct qcow2_create *c, const struct create_layout *l,
				 uint8_t *out)
{
	unsigned bits = l->g.cluster_bits;
	struct qcow2_header h = {
		.g = l->g,
		.size_bytes = c->size_bytes,
		.l1_entries = (uint32_t)l->l1_entries,
		.l1_offset = (1 + l->reftable_clusters + l->refblocks) << bits,
		.reftable_offset = 1ull << bits,
		.reftable_clusters = (uint32_t)l->reftable_clusters,
		.incompatible = create_incompatible(c),
		.compatible = c->lazy_refcounts ? QCOW2_COMPAT_LAZY_REFCOUNTS : 0,
		.autoclear = c->data_file_raw ? QCOW2_AUTOCLEAR_RAW_DATA_FILE : 0,
	};

	be_put32(out, QCOW2_MAGIC);
	be_put32(out + QCOW2_AT_VERSION, l->g.version);
	be_put32(out + QCOW2_AT_CLUSTER_BITS, bits);
	qcow2_header_update(out, &h);
	if (l->g.version == 2)
		return;
	be_put32(out + QCOW2_AT_REFCOUNT_ORDER, l->g.refcount_order);
	be_put32(out + QCOW2_AT_HEADER_BYTES, CREATE_V3_HEADER_BYTES);
	out[QCOW2_AT_COMPRESSION] = c->zstd ? QCOW2_COMPRESSION_ZSTD : QCOW2_COMPRESSION_ZLIB;
}

/* Extensions with the longest names, and the backing file's. */
#define CREATE_HEADER_BYTES_MAX 3072u

static size_t create_header(const struct qcow2_create *c, const struct create_layout *l,
			    uint8_t out[static CREATE_HEADER_BYTES_MAX])
{
	struct create_header w = { .out = out, .bytes = create_fixed_bytes(c) };
	size_t name_at;

	memset(out, 0, CREATE_HEADER_BYTES_MAX);
	create_header_fields(c, l, out);
	name_at = header_extensions(&w, c);
	if (c->backing_name) {
		be_put64(out + QCOW2_AT_BACKING_OFFSET, name_at);
		be_put32(out + QCOW2_AT_BACKING_BYTES, (uint32_t)strlen(c->backing_name));
	}
	return w.bytes;
}

/* ---- any part of the image ---- */

struct create_part {
	uint64_t offset;
	uint8_t *buf;
	size_t nr_bytes;
};

/* What of bytes at offset is in the part. */
static void part_put(const struct create_part *part, uint64_t offset, const uint8_t *data,
		     size_t bytes)
{
	uint64_t from = MAX(offset, part->offset);
	uint64_t end = MIN(offset + bytes, part->offset + part->nr_bytes);

	if (from < end)
		memcpy(part->buf + (from - part->offset), data + (from - offset), end - from);
}

static void part_reftable(const struct create_part *part, const struct create_layout *l)
{
	uint64_t table = 1ull << l->g.cluster_bits;
	uint64_t first_block = (1 + l->reftable_clusters) << l->g.cluster_bits;

	for (uint64_t i = 0; i < l->refblocks; i++) {
		uint8_t entry[8];

		be_put64(entry, first_block + (i << l->g.cluster_bits));
		part_put(part, table + i * sizeof(entry), entry, sizeof(entry));
	}
}

/*
 * The blocks lie in a row, so that all their counts are one: byte idx of them, when the first
 * `ones` counts are 1 and the others 0.
 */
static uint8_t refcounts_byte(unsigned order, uint64_t ones, uint64_t idx)
{
	static const uint8_t pattern[] = { 0xff, 0x55, 0x11 };
	uint64_t width, before;

	if (order >= 3) {
		width = 1ull << (order - 3);
		return idx % width == width - 1 && idx / width < ones;
	}
	before = idx << (3 - order);
	if (before >= ones)
		return 0;
	return (uint8_t)(pattern[order] & ((1u << (MIN(ones - before, 8u >> order) << order)) - 1));
}

static void part_refblocks(const struct create_part *part, const struct create_layout *l)
{
	uint64_t start = (1 + l->reftable_clusters) << l->g.cluster_bits;
	uint64_t from = MAX(start, part->offset);
	uint64_t end =
		MIN(start + (l->refblocks << l->g.cluster_bits), part->offset + part->nr_bytes);

	for (uint64_t at = from; at < end; at++)
		part->buf[at - part->offset] =
			refcounts_byte(l->g.refcount_order, l->all_clusters, at - start);
}

/* ---- what others call ---- */

int qcow2_create_check(const struct qcow2_create *c, uint64_t *ret_image_bytes,
		       char words[static QCOW2_WORDS_BYTES])
{
	struct create_layout l = { 0 };
	int err = create_numbers_check(c, words);

	err = err ? err : create_version_check(c, words);
	err = err ? err : create_names_check(c, words);
	err = err ? err : create_fits_check(c, words);
	if (err)
		return err;
	create_layout(c, &l);
	if (l.reftable_clusters == 0)
		return qcow2_fail(words, -EINVAL,
				  "clusters of %" PRIu64
				  " bytes with reference counts of %u bits are "
				  "too small for a disk of %" PRIu64 ": choose larger clusters",
				  create_cluster_bytes(c), create_refcount_bits(c), c->size_bytes);
	*ret_image_bytes = l.all_clusters << l.g.cluster_bits;
	return 0;
}

void qcow2_create_fill(const struct qcow2_create *c, uint64_t offset, void *buf, size_t nr_bytes)
{
	struct create_part part = { .offset = offset, .buf = buf, .nr_bytes = nr_bytes };
	uint8_t header[CREATE_HEADER_BYTES_MAX];
	struct create_layout l = { 0 };

	memset(buf, 0, nr_bytes);
	create_layout(c, &l);
	part_put(&part, 0, header, create_header(c, &l, header));
	part_reftable(&part, &l);
	part_refblocks(&part, &l);
}
