/* The tables that are not of guest clusters: snapshots and bitmaps. */
#include <errno.h>
#include <inttypes.h>

#include "test/rig/qcow2/qcow2_oracle_check.h"

#define L1_BYTES_MAX (UINT64_C(32) << 20) /* as in QEMU */
#define SNAPSHOT_ENTRY_BYTES 40u
#define SNAPSHOTS_MAX 65536u /* as in QEMU */
#define BITMAP_ENTRY_BYTES 24u
#define BITMAP_IN_USE 1u

/* ---- snapshots ---- */

static void snapshot_fault(struct oracle_check *c, uint32_t idx, const char *why)
{
	oracle_fault(c, QCOW2_ORACLE_TABLE, "snapshot %" PRIu32 ": %s", idx, why);
}

/* Whether its L1 table is worth a look. */
static bool snapshot_judge(struct oracle_check *c, const struct oracle_snapshot *s, uint32_t idx)
{
	struct qcow2_oracle *o = c->o;

	if (o->info.version >= 3 && s->extra_bytes < 16)
		snapshot_fault(c, idx, "less extra data than version 3 has");
	if (oracle_unaligned(o, s->l1.offset) || s->l1.entries * 8 > L1_BYTES_MAX) {
		snapshot_fault(c, idx, "its L1 table is too large or not at a cluster");
		return false;
	}
	return true;
}

void oracle_snapshots_walk(struct oracle_check *c)
{
	struct qcow2_oracle *o = c->o;
	uint64_t at = o->snapshots_offset;

	if (oracle_unaligned(o, at) || at > INT64_MAX || o->info.snapshot_nr > SNAPSHOTS_MAX ||
	    (o->info.snapshot_nr && at >= o->file.bytes)) {
		oracle_fault(c, QCOW2_ORACLE_TABLE,
			     "snapshot table at 0x%" PRIx64 ", %" PRIu32 " entries", at,
			     o->info.snapshot_nr);
		return;
	}
	if (!o->info.snapshot_nr)
		return;
	if (o->info.data_file)
		oracle_fault(c, QCOW2_ORACLE_TABLE, "snapshots, with a data file");
	for (uint32_t i = 0; i < o->info.snapshot_nr; i++) {
		struct oracle_snapshot s = oracle_snapshot_at(o, at);

		if (at + SNAPSHOT_ENTRY_BYTES > o->file.bytes) {
			snapshot_fault(c, i, "behind the end of the file");
			break;
		}
		at += s.entry_bytes;
		s.l1.id = i + 2;
		if (snapshot_judge(c, &s, i))
			oracle_l1_walk(c, &s.l1);
	}
	oracle_refer(c, (struct oracle_range){ o->snapshots_offset, at - o->snapshots_offset },
		     KIND_SNAPSHOTS, 0);
}

/* 0 with the snapshot in o->snapshot_l1. */
static int snapshot_find(struct qcow2_oracle *o, int snapshot)
{
	uint64_t at = o->snapshots_offset;

	if (snapshot < 0 || (uint32_t)snapshot >= o->info.snapshot_nr)
		return -ENOENT;
	if (o->snapshot == snapshot)
		return 0;
	for (int i = 0; i < snapshot; i++)
		at += oracle_snapshot_at(o, at).entry_bytes;
	o->snapshot_l1 = oracle_snapshot_at(o, at).l1;
	o->snapshot = snapshot;
	return 0;
}

int oracle_l1_select(struct qcow2_oracle *o, int snapshot, const struct oracle_l1 **ret_l1)
{
	int err;

	*ret_l1 = &o->active;
	if (snapshot == QCOW2_ORACLE_ACTIVE)
		return 0;
	err = snapshot_find(o, snapshot);
	*ret_l1 = &o->snapshot_l1;
	return err;
}

int qcow2_oracle_snapshot_bytes(struct qcow2_oracle *o, int snapshot, uint64_t *ret_bytes)
{
	const struct oracle_l1 *l1;
	int err = oracle_l1_select(o, snapshot, &l1);

	if (!err)
		*ret_bytes = l1->disk_bytes;
	return err;
}

/* ---- bitmaps ---- */

/* An entry of the bitmap directory. */
struct bitmap {
	uint64_t table_offset, table_entries, entry_bytes;
	uint32_t flags, extra_bytes;
	uint8_t type, granularity_bits;
	uint16_t name_bytes;
};

static struct bitmap bitmap_at(struct qcow2_oracle *o, uint64_t offset)
{
	struct oracle_window *w = &o->table;
	struct bitmap b = {
		.table_offset = oracle_window_get(o, w, offset, 8),
		.table_entries = oracle_window_get(o, w, offset + 8, 4),
		.flags = (uint32_t)oracle_window_get(o, w, offset + 12, 4),
		.type = (uint8_t)oracle_window_get(o, w, offset + 16, 1),
		.granularity_bits = (uint8_t)oracle_window_get(o, w, offset + 17, 1),
		.name_bytes = (uint16_t)oracle_window_get(o, w, offset + 18, 2),
		.extra_bytes = (uint32_t)oracle_window_get(o, w, offset + 20, 4),
	};

	b.entry_bytes = BITMAP_ENTRY_BYTES + (uint64_t)b.extra_bytes + b.name_bytes;
	b.entry_bytes = (b.entry_bytes + 7) & ~UINT64_C(7);
	return b;
}

/* Why this entry cannot be; NULL: it can. */
static const char *bitmap_judge_entry(const struct qcow2_oracle *o, const struct bitmap *b)
{
	uint64_t bits;

	if (b->flags & ~7u)
		return "reserved flags";
	if (b->type != 1)
		return "an unknown type";
	if (b->granularity_bits < 9 || b->granularity_bits > 31)
		return "a granularity that QEMU does not take";
	if (!b->name_bytes || b->name_bytes > 1023)
		return "a name of no length that can be";
	if (b->extra_bytes)
		return "extra data, which nobody has defined";
	if (!b->table_offset || oracle_unaligned(o, b->table_offset) || !b->table_entries)
		return "its table is empty or not at a cluster";
	if (b->table_entries * o->cluster_bytes > UINT64_C(0x20000000))
		return "larger than QEMU takes";
	bits = (o->info.size_bytes >> b->granularity_bits) +
	       !!(o->info.size_bytes & ((UINT64_C(1) << b->granularity_bits) - 1));
	if (!(b->flags & BITMAP_IN_USE) &&
	    b->table_entries != (bits + o->cluster_bytes * 8 - 1) / (o->cluster_bytes * 8))
		return "its table is not of the disk's size";
	return NULL;
}

static void bitmap_fault(struct oracle_check *c, uint32_t idx, const char *why)
{
	oracle_fault(c, QCOW2_ORACLE_TABLE, "bitmap %" PRIu32 ": %s", idx, why);
}

static void bitmap_table_walk(struct oracle_check *c, const struct bitmap *b, uint32_t idx)
{
	struct qcow2_oracle *o = c->o;

	oracle_refer(c, (struct oracle_range){ b->table_offset, b->table_entries * 8 },
		     KIND_BITMAP_TABLE, 0);
	for (uint64_t i = 0; i < b->table_entries; i++) {
		uint64_t entry = oracle_window_get(o, &o->l1, b->table_offset + i * 8, 8);
		uint64_t offset = entry & ENTRY_OFFSET;

		if (entry & BITMAP_RESERVED || (offset && entry & 1) || oracle_unaligned(o, offset))
			oracle_fault(c, QCOW2_ORACLE_ENTRY,
				     "bitmap %" PRIu32 ", entry %" PRIu64 ": 0x%" PRIx64, idx, i,
				     entry);
		else if (offset)
			oracle_refer(c, (struct oracle_range){ offset, o->cluster_bytes },
				     KIND_BITMAP, 0);
	}
}

/* Two passes: when one entry of the directory is broken, it is not known where the others are. */
static bool directory_judge(struct oracle_check *c)
{
	struct qcow2_oracle *o = c->o;
	uint64_t at = o->bitmap_directory.offset, end = at + o->bitmap_directory.bytes;

	for (uint32_t i = 0; i < o->info.bitmap_nr; i++) {
		struct bitmap b = bitmap_at(o, at);
		const char *why = bitmap_judge_entry(o, &b);

		if (b.entry_bytes > end - at)
			why = "longer than the directory";
		if (why) {
			bitmap_fault(c, i, why);
			return false;
		}
		at += b.entry_bytes;
	}
	if (at != end)
		oracle_fault(c, QCOW2_ORACLE_TABLE,
			     "bitmaps: the directory is longer than its entries");
	return at == end;
}

void oracle_bitmaps_walk(struct oracle_check *c)
{
	struct qcow2_oracle *o = c->o;
	uint64_t at = o->bitmap_directory.offset;

	if (o->info.bitmaps_missing)
		oracle_fault(c, QCOW2_ORACLE_TABLE, "bitmaps, but no extension says where");
	if (!o->info.bitmap_nr)
		return;
	oracle_refer(c, o->bitmap_directory, KIND_BITMAP_DIRECTORY, 0);
	if (!directory_judge(c))
		return;
	for (uint32_t i = 0; i < o->info.bitmap_nr; i++) {
		struct bitmap b = bitmap_at(o, at);

		bitmap_table_walk(c, &b, i);
		at += b.entry_bytes;
	}
}
