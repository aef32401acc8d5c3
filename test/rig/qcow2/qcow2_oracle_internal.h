/* What the parts of the oracle share: the header as numbers, and windows over the image's tables.
 */
#ifndef TEST_RIG_QCOW2_QCOW2_ORACLE_INTERNAL_H
#define TEST_RIG_QCOW2_QCOW2_ORACLE_INTERNAL_H

#include <zlib.h>
#include <zstd.h>

#include "test/rig/qcow2/qcow2_oracle.h"

#define WINDOW_BYTES 4096u

/* Bits of entries. */
#define ENTRY_COPIED (UINT64_C(1) << 63)
#define ENTRY_COMPRESSED (UINT64_C(1) << 62)
#define ENTRY_ZERO UINT64_C(1)
#define ENTRY_OFFSET UINT64_C(0x00fffffffffffe00)
#define L1_RESERVED UINT64_C(0x7f000000000001ff)
#define L2_RESERVED UINT64_C(0x3f000000000001fe)
#define BITMAP_RESERVED UINT64_C(0xff000000000001fe)
#define REFTABLE_RESERVED UINT64_C(0x1ff)

/* Up to 4 KiB of a table as they are in the file, zeroes behind its end. */
struct oracle_window {
	uint64_t offset, bytes; /* bytes 0: empty */
	uint8_t data[WINDOW_BYTES];
};

/* A run of clusters of the file. */
struct oracle_range {
	uint64_t offset, bytes;
};

/* An L1 table; COPIED means something in the active one alone. */
struct oracle_l1 {
	uint64_t offset, entries;
	uint64_t disk_bytes;
	unsigned id; /* from 1 */
};

/* One cluster of the file. */
struct oracle_cluster {
	uint32_t refs, count; /* count: from the refcount blocks, UINT32_MAX for more than fits */
	uint32_t last_l1;     /* id of the L1 whose tables referred to it last */
	uint16_t kinds;	      /* 1 << enum oracle_kind */
	uint16_t reserved;
};

struct qcow2_oracle {
	struct qcow2_oracle_file file, data;
	struct qcow2_oracle_info info;
	struct oracle_l1 active;
	struct oracle_range reftable, crypto, bitmap_directory;
	uint64_t snapshots_offset;
	bool io_error; /* a window could not be read since the check began */

	uint64_t cluster_bytes;
	uint32_t l2_entries, l2_entry_bytes, subcluster_bytes;
	uint32_t csize_shift; /* of a compressed cluster's descriptor */

	struct oracle_window l1, l2, table, block; /* table: reference count table and all others */

	struct oracle_cluster *clusters;
	uint64_t cluster_nr, cluster_capacity;

	/* The snapshot that was read last. */
	int snapshot;
	struct oracle_l1 snapshot_l1;

	/* Decompression; the buffers have a cluster each and were made for buffer_bytes. */
	z_stream deflate;
	bool deflate_ready;
	ZSTD_DCtx *zstd;
	uint8_t *packed, *unpacked;
	uint64_t buffer_bytes, unpacked_entry; /* the L2 entry whose data is in unpacked; 0: none */
};

/* An entry of the snapshot table. */
struct oracle_snapshot {
	struct oracle_l1 l1;
	uint32_t extra_bytes;
	uint64_t entry_bytes; /* with padding */
};

static inline uint64_t oracle_be(const uint8_t *p, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value = value << 8 | p[i];
	return value;
}

static inline bool oracle_unaligned(const struct qcow2_oracle *o, uint64_t offset)
{
	return offset & (o->cluster_bytes - 1);
}

/* n bytes of the image, zeroes behind its end; 0 or -errno. */
int oracle_file_read(const struct qcow2_oracle_file *file, void *buf, size_t n, uint64_t offset);
/* bytes (8 at most) at an offset, big endian; 0 where the file cannot be read (io_error is set). */
uint64_t oracle_window_get(struct qcow2_oracle *o, struct oracle_window *w, uint64_t offset,
			   unsigned bytes);
/* L2 entry idx of a table; the second half is 0 without extended entries. */
uint64_t oracle_l2_entry(struct qcow2_oracle *o, uint64_t l2_offset, uint32_t idx,
			 uint64_t *ret_bitmap);
/* Where the data of a compressed entry lies. */
struct oracle_range oracle_compressed(const struct qcow2_oracle *o, uint64_t entry);
/* The entry of the snapshot table at offset. */
struct oracle_snapshot oracle_snapshot_at(struct qcow2_oracle *o, uint64_t offset);
/* The L1 table of a snapshot, or the active one; 0 or -ENOENT. */
int oracle_l1_select(struct qcow2_oracle *o, int snapshot, const struct oracle_l1 **ret_l1);
/* A cluster that is compressed, in o->unpacked. */
int oracle_unpack(struct qcow2_oracle *o, uint64_t entry);
void oracle_unpack_end(struct qcow2_oracle *o);

#endif
