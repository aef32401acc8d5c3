/*
 * Where the bytes of a guest's offset are. Any reactor, without a lock: see qcow2_tables.h.
 */
#ifndef BACKENDS_QCOW2_QCOW2_LOOKUP_H
#define BACKENDS_QCOW2_QCOW2_LOOKUP_H

#include "backends/qcow2/qcow2_tables.h"

enum qcow2_kind {
	QCOW2_MISS, /* its slice is not in the cache: at slice_at */
	QCOW2_BAD,  /* the entry makes no sense */
	QCOW2_ZEROES,
	QCOW2_BELOW,  /* never written: what the backing file has, or zeroes */
	QCOW2_SHARED, /* in the image, and a snapshot has it too: to read only */
	QCOW2_DATA,   /* in the image, may be written in place */
	QCOW2_PACKED, /* a compressed cluster */
};

/* The first bytes of a range, which are all of one kind and lie one after the other. */
struct qcow2_run {
	enum qcow2_kind kind;
	uint64_t bytes;
	/*
	 * SHARED, DATA: where they are. PACKED: the entry. ZEROES, BELOW: of the cluster, when one
	 * is allocated; 0: none.
	 */
	uint64_t host;
	uint64_t slice_at; /* the slice that says so; 0: there is no L2 table */
};

/* What one entry says of the bytes from `within` of its cluster on: at most to the cluster's end.
 */
void qcow2_entry_run(const struct qcow2_tables *t, const void *slice, unsigned idx, uint64_t within,
		     struct qcow2_run *ret_run);

/*
 * bytes above 0, within the disk. ret_run->bytes is at most bytes. slice: instead of the cache, for
 * slice_at (of a miss), or NULL.
 */
void qcow2_lookup(const struct qcow2_tables *t, uint64_t offset, uint64_t bytes, const void *slice,
		  struct qcow2_run *ret_run);

/* Entry of L1 and the rest of the way. */
static inline unsigned qcow2_l1_shift(const struct qcow2_geometry *g)
{
	return g->cluster_bits + g->l2_bits;
}

static inline unsigned qcow2_l2_idx(const struct qcow2_geometry *g, uint64_t offset)
{
	return (unsigned)(offset >> g->cluster_bits) & ((1u << g->l2_bits) - 1);
}

static inline uint64_t qcow2_slice_at(const struct qcow2_tables *t, uint64_t table, unsigned l2_idx)
{
	return table + (uint64_t)(l2_idx >> t->slice_bits) * t->slice_bytes;
}

/*
 * The usual case in few instructions: all of the range in one cluster in place (or, to read, shared
 * with a snapshot). Returns its offset in the image, or 0: ask qcow2_lookup.
 */
static inline uint64_t qcow2_lookup_plain(const struct qcow2_tables *t, uint64_t offset,
					  uint32_t bytes, bool write)
{
	const struct qcow2_geometry *g = &t->g;
	uint64_t within = offset & (qcow2_cluster_bytes(g) - 1);
	unsigned idx = qcow2_l2_idx(g, offset);
	struct qcow2_slot *slot;
	uint64_t table, entry;
	uint32_t seq;

	if (within + bytes > qcow2_cluster_bytes(g) || g->l2_entry_bytes != 8)
		return 0;
	table = atomic_load_explicit(&t->l1[offset >> qcow2_l1_shift(g)], memory_order_relaxed) &
		QCOW2_OFFSET_MASK;
	slot = table ? qcow2_slot_find(t, qcow2_slice_at(t, table, idx)) : NULL;
	if (!slot)
		return 0;
	seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
	entry = qcow2_entry_load(qcow2_slot_data(t, slot), idx & ((1u << t->slice_bits) - 1));
	qcow2_fence(memory_order_acquire);
	if ((seq & 1) || !atomic_load_explicit(&slot->is_l2, memory_order_relaxed) ||
	    atomic_load_explicit(&slot->seq, memory_order_relaxed) != seq ||
	    atomic_load_explicit(&slot->at, memory_order_relaxed) != qcow2_slice_at(t, table, idx))
		return 0;
	if ((entry & (QCOW2_COMPRESSED | QCOW2_L2_RESERVED | QCOW2_ZERO)) ||
	    (write && !(entry & QCOW2_COPIED)) || !(entry & QCOW2_OFFSET_MASK))
		return 0;
	qcow2_slot_touch(slot);
	return (entry & QCOW2_OFFSET_MASK) + within;
}

#endif
