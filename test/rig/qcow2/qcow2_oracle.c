/* The oracle's life, its windows over the image's tables, and where their entries lead. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/rig/qcow2/qcow2_oracle_internal.h"

struct qcow2_oracle *qcow2_oracle_create(void)
{
	return calloc(1, sizeof(struct qcow2_oracle));
}

void qcow2_oracle_destroy(struct qcow2_oracle *o)
{
	if (!o)
		return;
	oracle_unpack_end(o);
	free(o->clusters);
	free(o);
}

const struct qcow2_oracle_info *qcow2_oracle_info(const struct qcow2_oracle *o)
{
	return &o->info;
}

int oracle_file_read(const struct qcow2_oracle_file *file, void *buf, size_t n, uint64_t offset)
{
	size_t inside = 0;
	ssize_t got;

	if (offset < file->bytes)
		inside = n < file->bytes - offset ? n : file->bytes - offset;
	memset((uint8_t *)buf + inside, 0, n - inside);
	if (!inside)
		return 0;
	got = file->read(file->arg, buf, inside, offset);
	if (got < 0)
		return (int)got;
	memset((uint8_t *)buf + got, 0, inside - (size_t)got);
	return 0;
}

uint64_t oracle_window_get(struct qcow2_oracle *o, struct oracle_window *w, uint64_t offset,
			   unsigned bytes)
{
	if (offset < w->offset || offset - w->offset + bytes > w->bytes) {
		w->offset = offset;
		/* tables are read on from here; an offset near the end of the world gives zeroes */
		w->bytes = sizeof(w->data);
		if (oracle_file_read(&o->file, w->data, sizeof(w->data), offset)) {
			o->io_error = true;
			memset(w->data, 0, sizeof(w->data));
		}
	}
	return oracle_be(w->data + (offset - w->offset), bytes);
}

uint64_t oracle_l2_entry(struct qcow2_oracle *o, uint64_t l2_offset, uint32_t idx,
			 uint64_t *ret_bitmap)
{
	uint64_t at = l2_offset + (uint64_t)idx * o->l2_entry_bytes;
	uint64_t entry = oracle_window_get(o, &o->l2, at, 8);

	*ret_bitmap = o->info.extended_l2 ? oracle_window_get(o, &o->l2, at + 8, 8) : 0;
	return entry;
}

/* The upper part of the descriptor counts sectors beyond the first one. */
struct oracle_range oracle_compressed(const struct qcow2_oracle *o, uint64_t entry)
{
	uint64_t descriptor = entry & (ENTRY_COMPRESSED - 1);
	uint64_t offset = descriptor & ((UINT64_C(1) << o->csize_shift) - 1);
	uint64_t end = (offset & ~UINT64_C(511)) + ((descriptor >> o->csize_shift) + 1) * 512;

	return (struct oracle_range){ offset, end - offset };
}

struct oracle_snapshot oracle_snapshot_at(struct qcow2_oracle *o, uint64_t offset)
{
	struct oracle_window *w = &o->table;
	struct oracle_snapshot s = {
		.l1.offset = oracle_window_get(o, w, offset, 8),
		.l1.entries = oracle_window_get(o, w, offset + 8, 4),
		.l1.disk_bytes = o->info.size_bytes,
		.extra_bytes = (uint32_t)oracle_window_get(o, w, offset + 36, 4),
	};
	uint64_t id_bytes = oracle_window_get(o, w, offset + 12, 2);
	uint64_t name_bytes = oracle_window_get(o, w, offset + 14, 2);

	if (s.extra_bytes >= 16)
		s.l1.disk_bytes = oracle_window_get(o, w, offset + 48, 8);
	s.entry_bytes = (40 + s.extra_bytes + id_bytes + name_bytes + 7) & ~UINT64_C(7);
	return s;
}
