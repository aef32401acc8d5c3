/* Between the files that read a header. */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_HEADER_INTERNAL_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_HEADER_INTERNAL_H

#include "backends/qcow2/format/qcow2_header.h"

/* The first bytes of an image, and where its header says that things are. */
struct qcow2_reader {
	const uint8_t *at;
	size_t nr_bytes;
	uint64_t image_bytes;
	uint64_t backing_offset; /* 0: none */
	uint32_t backing_bytes;
	char *words; /* QCOW2_WORDS_BYTES */
};

/*
 * Extensions lie between the header and the name of the backing file; without one, the end of the
 * first cluster.
 */
uint64_t qcow2_extensions_end(const struct qcow2_reader *r, const struct qcow2_header *h);

struct qcow2_ext {
	uint32_t type, bytes;
	const uint8_t *data;
};

#define QCOW2_EXT_HEAD_BYTES 8u

/* *at: where it is, then where the next one is. 1: *ret is set; 0: there is none; or -errno. */
int qcow2_extension_next(const struct qcow2_reader *r, uint64_t end, uint64_t *at,
			 struct qcow2_ext *ret);

/* Puts what the extensions say into h, whose other fields are read. 0 or -errno with words. */
int qcow2_extensions_parse(const struct qcow2_reader *r, struct qcow2_header *h);

/* -EOPNOTSUPP with words: unknown, not 0, are incompatible bits; names are the image's own. */
int qcow2_features_fail(const struct qcow2_reader *r, const struct qcow2_header *h,
			uint64_t unknown);

#endif
