/*
 * The header of an image and its extensions: read from bytes that nobody has checked, and written.
 * Pure, no memory of its own; any thread.
 */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_HEADER_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_HEADER_H

#include "backends/qcow2/format/qcow2_base_note.h"
#include "backends/qcow2/format/qcow2_format.h"
#include "backends/qcow2/format/qcow2_words.h"

/* The header and its extensions end within it, and QEMU's do: they stay in the first cluster. */
#define QCOW2_HEADER_READ_BYTES 65536u
#define QCOW2_FORMAT_NAME_BYTES 16u

/* All of it in the host's byte order, checked: see qcow2_header_parse. */
struct qcow2_header {
	struct qcow2_geometry g;
	uint64_t size_bytes; /* of the disk */
	uint64_t l1_offset;
	uint32_t l1_entries;
	uint64_t reftable_offset;
	uint32_t reftable_clusters;
	uint32_t snapshot_nr;
	uint64_t snapshots_offset;
	uint32_t crypt;	      /* enum qcow2_crypt */
	uint32_t compression; /* enum qcow2_compression */
	uint64_t incompatible, compatible, autoclear;
	uint32_t header_bytes;
	/* Not terminated in the image, terminated here; "": none. */
	char backing_name[QCOW2_BACKING_NAME_MAX + 1];
	char backing_format[QCOW2_FORMAT_NAME_BYTES]; /* "": the image does not say */
	char data_file_name[QCOW2_BACKING_NAME_MAX + 1];
	bool base_note_is_other; /* it is not ours to change */
	struct qcow2_base_note base_note;
	uint64_t crypto_offset, crypto_bytes; /* of the LUKS header; 0: none */
	/* The directory of the bitmaps; nr 0: none. Only with QCOW2_AUTOCLEAR_BITMAPS valid. */
	uint32_t bitmap_nr;
	uint64_t bitmaps_offset, bitmaps_bytes;
};

/*
 * Reads the first bytes of an image (up to QCOW2_HEADER_READ_BYTES of them; fewer when it is
 * shorter). image_bytes: how long it is, UINT64_MAX: not known. Returns 0, or -errno with words for
 * the user: -EINVAL (no qcow2, or one that contradicts itself), -EOPNOTSUPP (what it needs is not
 * known here; unknown incompatible bits by their names in the image's own feature table, else by
 * number). Checked: version 2 or 3, all ranges of numbers, tables aligned to clusters and within
 * 2^56, limits above, an L1 table that covers the disk. Not checked: what the tables say, and
 * whether the image is marked dirty or corrupt.
 */
int qcow2_header_parse(struct qcow2_header *ret_h, const void *bytes, size_t nr_bytes,
		       uint64_t image_bytes, char words[static QCOW2_WORDS_BYTES]);

/* All are in range: fills in what follows from them. */
void qcow2_geometry_init(struct qcow2_geometry *g, unsigned version, unsigned cluster_bits,
			 unsigned refcount_order, bool extended_l2);

/* L1 entries that a disk of this size needs. */
uint64_t qcow2_l1_entries_for(const struct qcow2_geometry *g, uint64_t size_bytes);

/*
 * Changes fields of a header in place, in a copy of the image's first bytes (at least
 * h->header_bytes of them): features, size, L1 table, reference count table, snapshots. All else,
 * extensions and backing file too, stays as it is.
 */
void qcow2_header_update(void *bytes, const struct qcow2_header *h);

#endif
