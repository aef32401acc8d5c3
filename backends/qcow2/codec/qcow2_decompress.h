/* Compressed clusters. Pure but for the memory of the library; one thread at a time for each. */
#ifndef BACKENDS_QCOW2_CODEC_QCOW2_DECOMPRESS_H
#define BACKENDS_QCOW2_CODEC_QCOW2_DECOMPRESS_H

#include <stddef.h>

struct qcow2_decompress;

/*
 * type: enum qcow2_compression. All memory that it will ever need is allocated here (zlib: 12 KiB,
 * zstd: 160 KiB). NULL: there is none, or type is none of them.
 */
struct qcow2_decompress *qcow2_decompress_new(unsigned type);
void qcow2_decompress_free(struct qcow2_decompress *d); /* accepts NULL */

/*
 * Fills exactly out_bytes (1 to 2 GiB) from at most in_bytes; what is behind the end of the stream
 * is ignored (raw deflate with a window of 4 KiB; a zstd frame, or several, with a window of any
 * size). Returns 0; -EIO: the stream is broken or holds less. As with QEMU, a stream of deflate may
 * hold more, and is not looked at where out ends; a zstd frame that holds more is broken. After
 * -EIO what is in out has no meaning. Never allocates, never writes beyond out_bytes.
 */
int qcow2_decompress(struct qcow2_decompress *d, void *out, size_t out_bytes, const void *in,
		     size_t in_bytes);

#endif
