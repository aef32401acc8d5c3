/* The tables of guest clusters: where their entries lead, and what in an entry cannot be. */
#include <inttypes.h>

#include "test/rig/qcow2/qcow2_oracle_check.h"

/* An L2 entry and whose it is. */
struct entry {
	const struct oracle_l1 *l1;
	uint64_t guest_offset, value, bitmap;
};

static void entry_fault(struct oracle_check *c, const struct entry *e, const char *why)
{
	oracle_fault(c, QCOW2_ORACLE_ENTRY,
		     "L2 entry of 0x%" PRIx64 " (L1 %u): %s (0x%" PRIx64 ", 0x%" PRIx64 ")",
		     e->guest_offset, e->l1->id, why, e->value, e->bitmap);
}

static bool is_active(const struct oracle_l1 *l1)
{
	return l1->id == 1;
}

/* ---- references ---- */

static void compressed_walk(struct oracle_check *c, const struct entry *e)
{
	if (is_active(e->l1))
		c->report->compressed++;
	if (e->value & ENTRY_COPIED)
		entry_fault(c, e, "compressed, and COPIED");
	if (c->o->info.data_file)
		entry_fault(c, e, "compressed, with a data file");
	else if (e->bitmap)
		entry_fault(c, e, "compressed, with a bitmap of subclusters");
	else
		oracle_refer(c, oracle_compressed(c->o, e->value), KIND_COMPRESSED, e->l1->id);
}

static void bitmap_judge(struct oracle_check *c, const struct entry *e, bool allocated)
{
	if (e->bitmap >> 32 & e->bitmap)
		entry_fault(c, e, "a subcluster is allocated and reads as zeroes");
	else if ((uint32_t)e->bitmap && !allocated)
		entry_fault(c, e, "subclusters are allocated, the cluster is not");
}

/* A data file has each cluster where the guest sees it, the first one at 0 too. */
static void outside_walk(struct oracle_check *c, const struct entry *e)
{
	uint64_t offset = e->value & ENTRY_OFFSET;

	if ((offset || e->value & ENTRY_COPIED) && offset != e->guest_offset)
		entry_fault(c, e, "not where the guest's cluster is in the data file");
}

static void standard_walk(struct oracle_check *c, const struct entry *e)
{
	struct qcow2_oracle *o = c->o;
	uint64_t offset = e->value & ENTRY_OFFSET;
	bool zero_allowed = o->info.version >= 3 && !o->info.extended_l2;
	bool allocated = offset || (o->info.data_file && e->value & ENTRY_COPIED);

	if (is_active(e->l1)) {
		c->report->zero += e->value & ENTRY_ZERO || e->bitmap >> 32;
		c->report->data += allocated;
	}
	if (e->value & L2_RESERVED)
		entry_fault(c, e, "reserved bits");
	if (e->value & ENTRY_ZERO && !zero_allowed)
		entry_fault(c, e, "a zero flag where there is none");
	if (is_active(e->l1) && e->value & ENTRY_COPIED && !allocated)
		entry_fault(c, e, "COPIED, and no cluster");
	bitmap_judge(c, e, allocated);
	if (oracle_unaligned(o, offset))
		entry_fault(c, e, "not aligned");
	if (o->info.data_file)
		outside_walk(c, e);
	else if (offset)
		oracle_refer(c, (struct oracle_range){ offset, o->cluster_bytes }, KIND_DATA,
			     e->l1->id);
}

static void l2_walk(struct oracle_check *c, const struct oracle_l1 *l1, uint64_t l1_idx,
		    uint64_t l2_offset)
{
	struct qcow2_oracle *o = c->o;

	for (uint32_t i = 0; i < o->l2_entries; i++) {
		struct entry e = { .l1 = l1 };

		e.value = oracle_l2_entry(o, l2_offset, i, &e.bitmap);
		if (!(e.value | e.bitmap))
			continue;
		e.guest_offset = (l1_idx * o->l2_entries + i) << o->info.cluster_bits;
		if (e.value & ENTRY_COMPRESSED)
			compressed_walk(c, &e);
		else
			standard_walk(c, &e);
	}
}

void oracle_l1_walk(struct oracle_check *c, const struct oracle_l1 *l1)
{
	struct qcow2_oracle *o = c->o;

	oracle_refer(c, (struct oracle_range){ l1->offset, l1->entries * 8 }, KIND_L1, 0);
	for (uint64_t i = 0; i < l1->entries; i++) {
		uint64_t entry = oracle_window_get(o, &o->l1, l1->offset + i * 8, 8);
		uint64_t l2_offset = entry & ENTRY_OFFSET;

		if (!entry)
			continue;
		if (entry & L1_RESERVED || !l2_offset || oracle_unaligned(o, l2_offset))
			oracle_fault(c, QCOW2_ORACLE_ENTRY, "L1 %u, entry %" PRIu64 ": 0x%" PRIx64,
				     l1->id, i, entry);
		/* qemu-img goes on with what is there, and so is it here: what leaks depends on it
		 */
		oracle_refer(c, (struct oracle_range){ l2_offset, o->cluster_bytes }, KIND_L2,
			     l1->id);
		l2_walk(c, l1, i, l2_offset);
	}
}

/* ---- COPIED ---- */

static void copied_one(struct oracle_check *c, uint64_t entry, const char *what,
		       uint64_t guest_offset)
{
	struct qcow2_oracle *o = c->o;
	uint64_t idx = (entry & ENTRY_OFFSET) >> o->info.cluster_bits;
	uint32_t count = 0;

	if (idx < o->cluster_nr)
		count = o->info.dirty ? o->clusters[idx].refs : o->clusters[idx].count;
	c->report->copied_shared +=
		entry & ENTRY_COPIED && idx < o->cluster_nr && o->clusters[idx].refs > 1;
	if ((count == 1) != !!(entry & ENTRY_COPIED))
		oracle_fault(c, QCOW2_ORACLE_COPIED,
			     "%s of 0x%" PRIx64 ": 0x%" PRIx64 ", reference count %" PRIu32, what,
			     guest_offset, entry, count);
}

static void copied_l2(struct oracle_check *c, uint64_t l1_idx, uint64_t l2_offset)
{
	struct qcow2_oracle *o = c->o;

	for (uint32_t i = 0; i < o->l2_entries; i++) {
		uint64_t bitmap, entry = oracle_l2_entry(o, l2_offset, i, &bitmap);
		uint64_t guest_offset = (l1_idx * o->l2_entries + i) << o->info.cluster_bits;

		if (entry & ENTRY_COMPRESSED)
			continue;
		/* in a data file nothing is shared */
		if (o->info.data_file && entry & ENTRY_OFFSET && !(entry & ENTRY_COPIED))
			oracle_fault(c, QCOW2_ORACLE_COPIED,
				     "L2 entry of 0x%" PRIx64 ": not COPIED", guest_offset);
		else if (!o->info.data_file && entry & ENTRY_OFFSET)
			copied_one(c, entry, "L2 entry", guest_offset);
	}
}

void oracle_copied_judge(struct oracle_check *c)
{
	struct qcow2_oracle *o = c->o;
	uint64_t per_table = (uint64_t)o->l2_entries << o->info.cluster_bits;

	for (uint64_t i = 0; i < o->active.entries; i++) {
		uint64_t entry = oracle_window_get(o, &o->l1, o->active.offset + i * 8, 8);

		if (!(entry & ENTRY_OFFSET))
			continue;
		copied_one(c, entry, "L1 entry", i * per_table);
		copied_l2(c, i, entry & ENTRY_OFFSET);
	}
}
