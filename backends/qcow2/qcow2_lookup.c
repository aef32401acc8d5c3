/*
 * From a guest's offset to where its bytes are: any reactor, without a lock. Owns nothing.
 *
 * Happy path: L1 entry -> the slice in the cache -> entries of it, as long as they go on in the
 * same way. Failure modes: the slice is not there, or was replaced while it was read: MISS, and who
 * asked has it read; an entry that makes no sense: BAD.
 */
#include "backends/qcow2/qcow2_lookup.h"

#include "base/util.h"

/* Of an image without subclusters. */
static void plain_entry_run(const struct qcow2_tables *t, uint64_t entry, uint64_t within,
			    struct qcow2_run *run)
{
	uint64_t host = entry & QCOW2_OFFSET_MASK;

	run->bytes = qcow2_cluster_bytes(&t->g) - within;
	run->host = host;
	if (entry & QCOW2_ZERO)
		run->kind = QCOW2_ZEROES;
	else if (host == 0 && !(t->has_data_file && (entry & QCOW2_COPIED)))
		run->kind = QCOW2_BELOW;
	else
		run->kind = entry & QCOW2_COPIED ? QCOW2_DATA : QCOW2_SHARED;
	if (run->kind == QCOW2_DATA || run->kind == QCOW2_SHARED)
		run->host += within;
}

/* With subclusters: as far as all of them are of the same kind. */
static void sub_entry_run(const struct qcow2_tables *t, uint64_t entry, uint64_t bits,
			  uint64_t within, struct qcow2_run *run)
{
	uint32_t allocated = (uint32_t)bits, zero = (uint32_t)(bits >> 32);
	unsigned shift = t->g.subcluster_bits, first = (unsigned)(within >> shift), nr = first;
	bool is_allocated = allocated >> first & 1, is_zero = zero >> first & 1;

	while (nr < QCOW2_SUBCLUSTER_NR && (allocated >> nr & 1) == is_allocated &&
	       (zero >> nr & 1) == is_zero)
		nr++;
	run->bytes = ((uint64_t)nr << shift) - within;
	run->host = entry & QCOW2_OFFSET_MASK;
	if (is_allocated && run->host == 0 && !t->has_data_file) {
		run->kind = QCOW2_MISS; /* between two stores of the owner: look again */
	} else if (is_allocated) {
		run->kind = entry & QCOW2_COPIED ? QCOW2_DATA : QCOW2_SHARED;
		run->host += within;
	} else {
		run->kind = is_zero ? QCOW2_ZEROES : QCOW2_BELOW;
	}
}

void qcow2_entry_run(const struct qcow2_tables *t, const void *slice, unsigned idx, uint64_t within,
		     struct qcow2_run *ret_run)
{
	unsigned words = t->g.l2_entry_bytes / 8u;
	/* The bits first: the owner stores them last when a cluster comes, first when it goes. */
	uint64_t bits = words == 2 ? qcow2_entry_load(slice, idx * words + 1) : 0, entry;

	qcow2_fence(memory_order_acquire);
	entry = qcow2_entry_load(slice, idx * words);
	if (entry & QCOW2_COMPRESSED) {
		ret_run->kind = QCOW2_PACKED;
		ret_run->bytes = qcow2_cluster_bytes(&t->g) - within;
		ret_run->host = entry;
	} else if (entry & QCOW2_L2_RESERVED) {
		ret_run->kind = QCOW2_BAD;
		ret_run->bytes = qcow2_cluster_bytes(&t->g) - within;
		ret_run->host = 0;
	} else if (words == 1) {
		plain_entry_run(t, entry, within, ret_run);
	} else {
		sub_entry_run(t, entry, bits, within, ret_run);
	}
}

static bool goes_on(const struct qcow2_run *run, const struct qcow2_run *next)
{
	if (next->kind != run->kind)
		return false;
	if (run->kind == QCOW2_DATA || run->kind == QCOW2_SHARED)
		return next->host == run->host + run->bytes;
	return run->kind == QCOW2_ZEROES || run->kind == QCOW2_BELOW;
}

/* Within one slice. */
static void slice_run(const struct qcow2_tables *t, const void *slice, uint64_t offset,
		      uint64_t bytes, struct qcow2_run *run)
{
	unsigned nr = 1u << t->slice_bits, idx = qcow2_l2_idx(&t->g, offset) & (nr - 1);

	qcow2_entry_run(t, slice, idx, offset & (qcow2_cluster_bytes(&t->g) - 1), run);
	while (run->bytes < bytes) {
		uint64_t at = offset + run->bytes;
		struct qcow2_run next;

		if ((at & (qcow2_cluster_bytes(&t->g) - 1)) == 0 && ++idx == nr)
			break;
		qcow2_entry_run(t, slice, idx, at & (qcow2_cluster_bytes(&t->g) - 1), &next);
		if (!goes_on(run, &next))
			break;
		run->bytes += next.bytes;
	}
	run->bytes = MIN(run->bytes, bytes);
}

/* False: it was replaced meanwhile. */
static bool cached_run(const struct qcow2_tables *t, uint64_t at, uint64_t offset, uint64_t bytes,
		       struct qcow2_run *run)
{
	struct qcow2_slot *slot = qcow2_slot_find(t, at);
	uint32_t seq;

	if (!slot)
		return false;
	seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
	slice_run(t, qcow2_slot_data(t, slot), offset, bytes, run);
	qcow2_fence(memory_order_acquire);
	qcow2_slot_touch(slot);
	return !(seq & 1) && atomic_load_explicit(&slot->is_l2, memory_order_relaxed) &&
	       atomic_load_explicit(&slot->seq, memory_order_relaxed) == seq &&
	       atomic_load_explicit(&slot->at, memory_order_relaxed) == at;
}

void qcow2_lookup(const struct qcow2_tables *t, uint64_t offset, uint64_t bytes, const void *slice,
		  struct qcow2_run *ret_run)
{
	const struct qcow2_geometry *g = &t->g;
	uint64_t l1_bytes = 1ull << qcow2_l1_shift(g);
	uint64_t table =
		atomic_load_explicit(&t->l1[offset >> qcow2_l1_shift(g)], memory_order_relaxed) &
		QCOW2_OFFSET_MASK;

	bytes = MIN(bytes, l1_bytes - (offset & (l1_bytes - 1)));
	*ret_run = (struct qcow2_run){ .kind = QCOW2_BELOW, .bytes = bytes };
	if (table == 0)
		return;
	ret_run->slice_at = qcow2_slice_at(t, table, qcow2_l2_idx(g, offset));
	if (slice) {
		slice_run(t, slice, offset, bytes, ret_run);
	} else if (!cached_run(t, ret_run->slice_at, offset, bytes, ret_run)) {
		ret_run->kind = QCOW2_MISS;
		ret_run->bytes = bytes;
	}
}
