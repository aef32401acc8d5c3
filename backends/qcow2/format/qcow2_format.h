/*
 * qcow2 as bytes: numbers of the format and what an entry of a table says. Pure; any thread. Source
 * of all: QEMU, docs/interop/qcow2.rst. Everything on disk is big endian.
 *
 * A guest's offset goes through two tables, in clusters of 512 B to 2 MiB: L1 -> L2 -> cluster in
 * the image. Each cluster of the image has a reference count, found through two tables as well:
 * reference count table -> block -> count of 1 to 64 bits.
 */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_FORMAT_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QCOW2_MAGIC 0x514649fbu /* "QFI\xfb" */

#define QCOW2_CLUSTER_BITS_MIN 9u
#define QCOW2_CLUSTER_BITS_MAX 21u
/* What QEMU takes (block/qcow2.h): bytes of the L1 table and of the reference count table. */
#define QCOW2_L1_BYTES_MAX (32u << 20)
#define QCOW2_REFTABLE_BYTES_MAX (8u << 20)
#define QCOW2_SNAPSHOTS_MAX 65536u
#define QCOW2_BACKING_NAME_MAX 1023u
#define QCOW2_V2_HEADER_BYTES 72u
#define QCOW2_V3_HEADER_BYTES 104u

/* Where the fields of the header are. */
#define QCOW2_AT_VERSION 4
#define QCOW2_AT_BACKING_OFFSET 8
#define QCOW2_AT_BACKING_BYTES 16
#define QCOW2_AT_CLUSTER_BITS 20
#define QCOW2_AT_SIZE 24
#define QCOW2_AT_CRYPT 32
#define QCOW2_AT_L1_ENTRIES 36
#define QCOW2_AT_L1_OFFSET 40
#define QCOW2_AT_REFTABLE_OFFSET 48
#define QCOW2_AT_REFTABLE_CLUSTERS 56
#define QCOW2_AT_SNAPSHOT_NR 60
#define QCOW2_AT_SNAPSHOTS_OFFSET 64
#define QCOW2_AT_INCOMPATIBLE 72
#define QCOW2_AT_COMPATIBLE 80
#define QCOW2_AT_AUTOCLEAR 88
#define QCOW2_AT_REFCOUNT_ORDER 96
#define QCOW2_AT_HEADER_BYTES 100
#define QCOW2_AT_COMPRESSION 104

enum qcow2_incompatible {
	QCOW2_INCOMPAT_DIRTY = 1u << 0,
	QCOW2_INCOMPAT_CORRUPT = 1u << 1,
	QCOW2_INCOMPAT_DATA_FILE = 1u << 2,
	QCOW2_INCOMPAT_COMPRESSION = 1u << 3,
	QCOW2_INCOMPAT_EXTENDED_L2 = 1u << 4,
	QCOW2_INCOMPAT_KNOWN = (1u << 5) - 1,
};

enum qcow2_compatible { QCOW2_COMPAT_LAZY_REFCOUNTS = 1u << 0 };

enum qcow2_autoclear {
	QCOW2_AUTOCLEAR_BITMAPS = 1u << 0,
	QCOW2_AUTOCLEAR_RAW_DATA_FILE = 1u << 1,
};

/*
 * A number, never 0, that was drawn when the image was opened here to be written (qcow2_mark.c).
 * The format has it that who opens an image to write clears the bits that he does not know.
 */
#define QCOW2_AUTOCLEAR_MARK (0xffffffffull << 32)

enum qcow2_crypt { QCOW2_CRYPT_NONE, QCOW2_CRYPT_AES, QCOW2_CRYPT_LUKS };
enum qcow2_compression { QCOW2_COMPRESSION_ZLIB, QCOW2_COMPRESSION_ZSTD };

enum qcow2_extension {
	QCOW2_EXT_END = 0,
	QCOW2_EXT_BACKING_FORMAT = 0xe2792aca,
	QCOW2_EXT_FEATURE_NAMES = 0x6803f857,
	QCOW2_EXT_BITMAPS = 0x23852875,
	QCOW2_EXT_CRYPTO = 0x0537be77,
	QCOW2_EXT_DATA_FILE = 0x44415441,
	QCOW2_EXT_BASE_NOTE = 0x75624276, /* ublkd's own: qcow2_base_note.h */
};

/* Bits of an entry of L1, or of L2 that is not compressed. */
#define QCOW2_COPIED (1ull << 63) /* its reference count is exactly 1: may be written in place */
#define QCOW2_COMPRESSED (1ull << 62) /* L2 */
#define QCOW2_ZERO (1ull << 0)	      /* L2 of version 3 without subclusters: reads as zeroes */
#define QCOW2_OFFSET_MASK 0x00fffffffffffe00ull
/* Bits that a valid entry has not. */
#define QCOW2_L1_RESERVED 0x7f000000000001ffull
#define QCOW2_L2_RESERVED 0x3f000000000001feull

#define QCOW2_SUBCLUSTER_NR 32u /* of an entry of an extended L2 table */

/* What the header fixes for the life of an image. */
struct qcow2_geometry {
	uint8_t cluster_bits;
	uint8_t l2_entry_bytes;	 /* 8; 16: with subclusters */
	uint8_t l2_bits;	 /* entries of an L2 table: 1 << l2_bits */
	uint8_t refcount_order;	 /* a count has 1 << refcount_order bits */
	uint8_t refblock_bits;	 /* counts of a block: 1 << refblock_bits */
	uint8_t subcluster_bits; /* bytes of a subcluster: 1 << subcluster_bits; else cluster_bits
				  */
	uint8_t version;
};

static inline uint64_t qcow2_cluster_bytes(const struct qcow2_geometry *g)
{
	return 1ull << g->cluster_bits;
}

/* The largest count that fits. */
static inline uint64_t qcow2_refcount_max(const struct qcow2_geometry *g)
{
	return g->refcount_order == 6 ? UINT64_MAX : (1ull << (1u << g->refcount_order)) - 1;
}

/*
 * Where a compressed cluster lies: from *ret_offset on, any byte of the image, and at most
 * *ret_bytes long, to the end of a sector of 512.
 */
static inline void qcow2_compressed_range(const struct qcow2_geometry *g, uint64_t entry,
					  uint64_t *ret_offset, uint64_t *ret_bytes)
{
	unsigned bits = 62 - (g->cluster_bits - 8u);
	uint64_t sectors = (entry & (QCOW2_COMPRESSED - 1)) >> bits;

	*ret_offset = entry & ((1ull << bits) - 1);
	*ret_bytes = (sectors + 1) * 512 - (*ret_offset & 511);
}

/* Count idx of a block in memory; for widths below 8 the first count has the lowest bits. */
uint64_t qcow2_refcount_get(const void *block, unsigned order, unsigned idx);
/* value fits. */
void qcow2_refcount_set(void *block, unsigned order, unsigned idx, uint64_t value);

#endif
