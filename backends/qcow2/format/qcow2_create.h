/* What an image consists of that has nothing in it yet. Pure; any thread. */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_CREATE_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_CREATE_H

#include "backends/qcow2/format/qcow2_header.h"

struct qcow2_create {
	uint64_t size_bytes;
	uint64_t cluster_bytes; /* 0: 64 KiB */
	unsigned refcount_bits; /* 0: 16 */
	unsigned version;	/* 0: 3 */
	bool extended_l2, lazy_refcounts, zstd;
	const char *backing_name, *backing_format; /* NULL: none */
	const char *data_file_name;		   /* NULL: none */
	bool data_file_raw;
};

/*
 * -EINVAL with words for what cannot be; else how many bytes the new image has. A disk that could
 * not be filled, as the tables would grow beyond their limits, cannot be.
 */
int qcow2_create_check(const struct qcow2_create *c, uint64_t *ret_image_bytes,
		       char words[static QCOW2_WORDS_BYTES]);

/*
 * Bytes of the new image: nr_bytes from offset on, into buf. Header, reference count table and
 * blocks, L1 table, in this order and without a gap; a reference count table large enough for a
 * file of twice the disk and all that describes it, but no larger than QCOW2_REFTABLE_BYTES_MAX.
 * What is beyond qcow2_create_check's *ret_image_bytes is zeroes. c was checked. All clusters of
 * the disk are unallocated: a raw data file must read as zeroes.
 */
void qcow2_create_fill(const struct qcow2_create *c, uint64_t offset, void *buf, size_t nr_bytes);

#endif
