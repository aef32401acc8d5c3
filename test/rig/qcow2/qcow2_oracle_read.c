/* What a guest reads: through the tables, subcluster by subcluster, to the data or the backing
 * file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/rig/qcow2/qcow2_oracle_internal.h"

/* One read on its way. */
struct reading {
	struct qcow2_oracle *o;
	const struct oracle_l1 *l1;
	const struct qcow2_oracle_file *backing;
};

/* ---- compressed clusters ---- */

static int buffers_prepare(struct qcow2_oracle *o)
{
	if (o->buffer_bytes == o->cluster_bytes)
		return 0;
	free(o->packed);
	free(o->unpacked);
	o->buffer_bytes = 0;
	/* the number of sectors has cluster_bits - 8 bits: up to twice a cluster */
	o->packed = calloc(2, o->cluster_bytes);
	o->unpacked = calloc(1, o->cluster_bytes);
	if (!o->packed || !o->unpacked)
		return -ENOMEM;
	o->buffer_bytes = o->cluster_bytes;
	return 0;
}

static int unpack_deflate(struct qcow2_oracle *o, size_t packed_bytes)
{
	int result;

	if (!o->deflate_ready && inflateInit2(&o->deflate, -15) != Z_OK)
		return -ENOMEM;
	o->deflate_ready = true;
	inflateReset(&o->deflate);
	o->deflate.next_in = o->packed;
	o->deflate.avail_in = (uInt)packed_bytes;
	o->deflate.next_out = o->unpacked;
	o->deflate.avail_out = (uInt)o->cluster_bytes;
	result = inflate(&o->deflate, Z_FINISH);
	/* what is behind the stream is not its own */
	if ((result != Z_STREAM_END && result != Z_BUF_ERROR) || o->deflate.avail_out)
		return -EIO;
	return 0;
}

static int unpack_zstd(struct qcow2_oracle *o, size_t packed_bytes)
{
	ZSTD_inBuffer in = { o->packed, packed_bytes, 0 };
	ZSTD_outBuffer out = { o->unpacked, o->cluster_bytes, 0 };

	if (!o->zstd)
		o->zstd = ZSTD_createDCtx();
	if (!o->zstd)
		return -ENOMEM;
	ZSTD_DCtx_reset(o->zstd, ZSTD_reset_session_only);
	while (out.pos < out.size) {
		size_t before = in.pos + out.pos,
		       result = ZSTD_decompressStream(o->zstd, &out, &in);

		if (ZSTD_isError(result) || in.pos + out.pos == before)
			return -EIO;
	}
	return 0;
}

int oracle_unpack(struct qcow2_oracle *o, uint64_t entry)
{
	struct oracle_range range = oracle_compressed(o, entry);
	int err = buffers_prepare(o);

	if (err)
		return err;
	if (o->unpacked_entry == entry)
		return 0;
	o->unpacked_entry = 0;
	if (range.offset >= o->file.bytes ||
	    oracle_file_read(&o->file, o->packed, range.bytes, range.offset))
		return -EIO;
	err = o->info.zstd ? unpack_zstd(o, range.bytes) : unpack_deflate(o, range.bytes);
	if (!err)
		o->unpacked_entry = entry;
	return err;
}

void oracle_unpack_end(struct qcow2_oracle *o)
{
	if (o->deflate_ready)
		inflateEnd(&o->deflate);
	ZSTD_freeDCtx(o->zstd);
	free(o->packed);
	free(o->unpacked);
}

/* ---- all others ---- */

static int backing_bytes_read(const struct reading *r, uint64_t offset, uint8_t *buf, size_t n)
{
	if (!r->backing) {
		memset(buf, 0, n);
		return 0;
	}
	return oracle_file_read(r->backing, buf, n, offset) ? -EIO : 0;
}

static int data_read(const struct reading *r, uint64_t at, uint8_t *buf, size_t n)
{
	struct qcow2_oracle *o = r->o;
	const struct qcow2_oracle_file *file = o->info.data_file ? &o->data : &o->file;

	if (!file->read || oracle_file_read(file, buf, n, at))
		return -EIO;
	if (o->info.crypt && file->decrypt)
		file->decrypt(file->arg, buf, n, at);
	return 0;
}

/* Which of three: data at *ret_at, zeroes, or the backing file. */
enum where { WHERE_DATA, WHERE_ZERO, WHERE_BACKING };

static int where_is(const struct qcow2_oracle *o, uint64_t entry, uint64_t bitmap, uint64_t offset,
		    enum where *ret_where)
{
	unsigned sub = (unsigned)((offset & (o->cluster_bytes - 1)) / o->subcluster_bytes);
	uint64_t host = entry & ENTRY_OFFSET;
	bool allocated = host || (o->info.data_file && entry & ENTRY_COPIED);
	bool zero = entry & ENTRY_ZERO;

	if (oracle_unaligned(o, host) || entry & L2_RESERVED)
		return -EIO;
	if (o->info.extended_l2) {
		zero = bitmap >> 32 >> sub & 1;
		if ((bitmap >> sub & 1) && (zero || !allocated))
			return -EIO;
		allocated = bitmap >> sub & 1;
	}
	*ret_where = zero ? WHERE_ZERO : allocated ? WHERE_DATA : WHERE_BACKING;
	return 0;
}

/* n bytes within a subcluster, or within a cluster that has none. */
static int entry_read(const struct reading *r, uint64_t entry, uint64_t bitmap, uint64_t offset,
		      uint8_t *buf, size_t n)
{
	struct qcow2_oracle *o = r->o;
	uint64_t inside = offset & (o->cluster_bytes - 1);
	enum where where;
	int err;

	if (entry & ENTRY_COMPRESSED) {
		err = oracle_unpack(o, entry);
		if (!err)
			memcpy(buf, o->unpacked + inside, n);
		return err;
	}
	err = where_is(o, entry, bitmap, offset, &where);
	if (err)
		return err;
	if (where == WHERE_DATA)
		return data_read(r, (entry & ENTRY_OFFSET) + inside, buf, n);
	if (where == WHERE_BACKING)
		return backing_bytes_read(r, offset, buf, n);
	memset(buf, 0, n);
	return 0;
}

static int piece_read(const struct reading *r, uint64_t offset, uint8_t *buf, size_t n)
{
	struct qcow2_oracle *o = r->o;
	uint64_t cluster = offset >> o->info.cluster_bits;
	uint64_t l1_idx = cluster / o->l2_entries;
	uint64_t l1_entry = 0, entry, bitmap;

	/* the table of a snapshot may be short: what is behind it is not allocated */
	if (l1_idx < r->l1->entries)
		l1_entry = oracle_window_get(o, &o->l1, r->l1->offset + l1_idx * 8, 8);
	if (!(l1_entry & ENTRY_OFFSET))
		return backing_bytes_read(r, offset, buf, n);
	if (l1_entry & L1_RESERVED || oracle_unaligned(o, l1_entry & ENTRY_OFFSET))
		return -EIO;
	entry = oracle_l2_entry(o, l1_entry & ENTRY_OFFSET, (uint32_t)(cluster % o->l2_entries),
				&bitmap);
	return o->io_error ? -EIO : entry_read(r, entry, bitmap, offset, buf, n);
}

int qcow2_oracle_read(struct qcow2_oracle *o, const struct qcow2_oracle_file *backing, int snapshot,
		      uint64_t offset, void *buf, size_t n)
{
	struct reading r = { .o = o, .backing = backing };
	uint8_t *to = buf;
	int err = oracle_l1_select(o, snapshot, &r.l1);

	o->io_error = false;
	while (!err && n) {
		uint64_t left = o->subcluster_bytes - (offset & (o->subcluster_bytes - 1));
		size_t piece;

		if (offset >= r.l1->disk_bytes) {
			memset(to, 0, n);
			break;
		}
		if (left > r.l1->disk_bytes - offset)
			left = r.l1->disk_bytes - offset;
		piece = n < left ? n : left;
		err = piece_read(&r, offset, to, piece);
		offset += piece;
		to += piece;
		n -= piece;
	}
	return err;
}
