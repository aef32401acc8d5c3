/*
 * zlib and zstd for clusters. Owns their states. Failure modes: those of the header.
 *
 * zstd decompresses frame by frame and not as a stream: then it needs no window but the cluster
 * itself, so its memory does not depend on what the frame says. The price is that each frame is
 * walked twice, the first time from block header to block header.
 */
#include "backends/qcow2/codec/qcow2_decompress.h"

#include <errno.h>
#include <limits.h>
#include <zlib.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/util.h"

/* enum qcow2_compression of the format, which is a layer of its own. */
enum { TYPE_ZLIB, TYPE_ZSTD };

/* Raw deflate, window of 1 << 12: QEMU's block/qcow2-threads.c. */
#define DEFLATE_WINDOW_BITS (-12)

struct qcow2_decompress {
	unsigned type;
	z_stream zlib;
	ZSTD_DCtx *zstd;
};

/* ---- zlib ---- */

static int inflate_fill(z_stream *z, void *out, size_t out_bytes, const void *in, size_t in_bytes)
{
	int ret;

	if (inflateReset(z) != Z_OK)
		return -EIO;
	z->next_in = (void *)in;
	z->avail_in = (uInt)MIN(in_bytes, (size_t)UINT_MAX);
	z->next_out = out;
	z->avail_out = (uInt)out_bytes;
	ret = inflate(z, Z_FINISH);
	/* Z_BUF_ERROR: one of the two ran out. It is not an error when that was out. */
	if ((ret != Z_STREAM_END && ret != Z_BUF_ERROR) || z->avail_out > 0)
		return -EIO;
	return 0;
}

/*
 * inflate allocates its window when a stream first does not end with its output, and keeps it from
 * then on. Here is such a stream: a stored block of two bytes with room for one.
 */
static int inflate_warm(z_stream *z)
{
	static const unsigned char stored[] = { 1, 2, 0, 0xfd, 0xff, 'a', 'b' };
	unsigned char out;

	return inflate_fill(z, &out, 1, stored, sizeof(stored));
}

static bool inflate_new(z_stream *z)
{
	if (inflateInit2(z, DEFLATE_WINDOW_BITS) != Z_OK)
		return false;
	if (inflate_warm(z) == 0)
		return true;
	inflateEnd(z);
	return false;
}

/* ---- zstd ---- */

/*
 * A frame of today's format, or one to skip. The library may also know those of before 0.8, for
 * which it allocates.
 */
static bool zstd_is_frame(const uint8_t *in, size_t in_bytes)
{
	uint32_t magic;

	if (in_bytes < sizeof(magic))
		return false;
	magic = (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 |
		(uint32_t)in[3] << 24;
	return magic == ZSTD_MAGICNUMBER ||
	       (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

static int zstd_fill(ZSTD_DCtx *zstd, uint8_t *out, size_t out_bytes, const uint8_t *in,
		     size_t in_bytes)
{
	while (out_bytes > 0) {
		size_t frame_bytes, filled_bytes;

		if (!zstd_is_frame(in, in_bytes))
			return -EIO;
		frame_bytes = ZSTD_findFrameCompressedSize(in, in_bytes);
		if (ZSTD_isError(frame_bytes))
			return -EIO;
		filled_bytes = ZSTD_decompressDCtx(zstd, out, out_bytes, in, frame_bytes);
		if (ZSTD_isError(filled_bytes))
			return -EIO;
		out += filled_bytes;
		out_bytes -= filled_bytes;
		in += frame_bytes;
		in_bytes -= frame_bytes;
	}
	return 0;
}

/* ---- both ---- */

struct qcow2_decompress *qcow2_decompress_new(unsigned type)
{
	struct qcow2_decompress *d = calloc(1, sizeof(*d));
	bool is_ready = false;

	if (!d)
		return NULL;
	d->type = type;
	if (type == TYPE_ZLIB)
		is_ready = inflate_new(&d->zlib);
	else if (type == TYPE_ZSTD)
		is_ready = (d->zstd = ZSTD_createDCtx()) != NULL;
	if (is_ready)
		return d;
	free(d);
	return NULL;
}

void qcow2_decompress_free(struct qcow2_decompress *d)
{
	if (!d)
		return;
	if (d->type == TYPE_ZLIB)
		inflateEnd(&d->zlib);
	ZSTD_freeDCtx(d->zstd);
	free(d);
}

int qcow2_decompress(struct qcow2_decompress *d, void *out, size_t out_bytes, const void *in,
		     size_t in_bytes)
{
	ASSERT(out_bytes > 0 && out_bytes <= INT_MAX);
	if (d->type == TYPE_ZLIB)
		return inflate_fill(&d->zlib, out, out_bytes, in, in_bytes);
	return zstd_fill(d->zstd, out, out_bytes, in, in_bytes);
}
