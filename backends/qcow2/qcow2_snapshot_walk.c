/*
 * Over all tables of an L1 table, to count what they lead to. The owner's reactor; slices come
 * through its cache, so memory is bounded, and a step ends with a slice.
 *
 * Happy path: an entry of L1 -> its table is counted -> its slices, one by one -> each cluster of
 * each entry is counted. Where counts fall the table is the last: it is read until then. An entry
 * is changed in one go, after all slices that this takes are there.
 *
 * Failure modes: an entry makes no sense, or a count would leave its range: words; a slice cannot
 * be read: its error.
 */
#include "backends/qcow2/qcow2_snapshot_change.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/util.h"

enum { WALK_TABLE_FIRST, WALK_ENTRIES, WALK_TABLE_LAST };

__attribute__((format(printf, 3, 4))) static int walk_fail(struct qcow2_walk *w, int err,
							   const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(w->words, sizeof(w->words), format, args);
	va_end(args);
	return err;
}

static uint64_t walk_l1(const struct qcow2_owner *o, const struct qcow2_walk *w)
{
	return w->l1 ? w->l1[w->l1_idx]
		     : atomic_load_explicit(&o->t->l1[w->l1_idx], memory_order_relaxed);
}

/* ---- counts ---- */

static int count_fits(const struct qcow2_owner *o, struct qcow2_walk *w, uint64_t count,
		      bool is_compressed)
{
	uint64_t max = qcow2_refcount_max(&o->t->g);

	if (count == 0)
		return walk_fail(w, -EIO,
				 "the image is corrupt: a cluster that is in use has a reference "
				 "count of 0: repair it with qemu-img check -r all");
	/* Several compressed clusters count the same one: at most as often as it is counted now. */
	if (w->addend > 0 && (count == max || (is_compressed && count > max / 2)))
		return walk_fail(w, -EOVERFLOW,
				 "reference counts of %u bits cannot count one more snapshot",
				 1u << o->t->g.refcount_order);
	return 0;
}

/* 0 with the new count of a cluster. */
static int count_cluster(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w,
			 uint64_t cluster, bool is_compressed, uint64_t *ret_count)
{
	struct qcow2_tables *t = o->t;
	struct qcow2_slot *slot = NULL;
	unsigned idx;
	uint64_t at = qcow2_refcount_slice(t, cluster, &idx);
	int ret = at ? qcow2_owner_slot(o, s, at, false, &slot) : count_fits(o, w, 0, false);

	if (ret != 0)
		return ret;
	*ret_count = qcow2_refcount_get(qcow2_slot_data(t, slot), t->g.refcount_order, idx);
	ret = count_fits(o, w, *ret_count, is_compressed);
	if (ret != 0 || w->judges || w->addend <= 0)
		return ret;
	(*ret_count)++;
	qcow2_mark_dirty(t, slot);
	qcow2_refcount_set(qcow2_slot_data(t, slot), t->g.refcount_order, idx, *ret_count);
	return 0;
}

/* ---- tables ---- */

static bool walk_sets_copied(const struct qcow2_walk *w)
{
	return !w->l1 && !w->judges && w->addend >= 0;
}

static uint64_t copied_as(uint64_t entry, uint64_t count)
{
	return count == 1 ? entry | QCOW2_COPIED : entry & ~QCOW2_COPIED;
}

static int walk_table(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w)
{
	struct qcow2_tables *t = o->t;
	uint64_t entry = walk_l1(o, w), table = entry & QCOW2_OFFSET_MASK, count;
	int ret;

	if (w->addend < 0 && !w->judges) {
		if (!qcow2_freed_has_room(t, 1))
			return qcow2_owner_hold(o, s);
		qcow2_freed_add(t, table, qcow2_cluster_bytes(&t->g));
		return 0;
	}
	ret = count_cluster(o, s, w, table >> t->g.cluster_bits, false, &count);
	if (ret != 0 || !walk_sets_copied(w) || copied_as(entry, count) == entry)
		return ret;
	qcow2_mark_l1(t, w->l1_idx);
	atomic_store_explicit(&t->l1[w->l1_idx], copied_as(entry, count), memory_order_release);
	return 0;
}

/* ---- entries of L2 ---- */

/* The clusters that an entry leads to, the first and how many. */
static void entry_clusters(const struct qcow2_tables *t, uint64_t entry, uint64_t *ret_first,
			   unsigned *ret_nr)
{
	uint64_t at = entry & QCOW2_OFFSET_MASK, bytes = 1;

	*ret_nr = 0;
	if (entry & QCOW2_COMPRESSED)
		qcow2_compressed_range(&t->g, entry, &at, &bytes);
	else if (at == 0)
		return;
	*ret_first = at >> t->g.cluster_bits;
	*ret_nr = (unsigned)(((at + bytes - 1) >> t->g.cluster_bits) - *ret_first + 1);
}

static void entry_set_copied(struct qcow2_tables *t, struct qcow2_slot *slot, unsigned word,
			     uint64_t entry, uint64_t count)
{
	if ((entry & QCOW2_COMPRESSED) || copied_as(entry, count) == entry)
		return;
	qcow2_mark_dirty(t, slot);
	qcow2_entry_store(qcow2_slot_data(t, slot), word, copied_as(entry, count));
}

static int give_up_entry(struct qcow2_owner *o, struct qcow2_io *s, uint64_t entry)
{
	if (!qcow2_freed_has_room(o->t, 1))
		return qcow2_owner_hold(o, s);
	qcow2_freed_add_entry(o->t, entry);
	return 0;
}

static int walk_entry(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w,
		      struct qcow2_slot *slot)
{
	struct qcow2_tables *t = o->t;
	unsigned word = (w->l2_idx & ((1u << t->slice_bits) - 1)) * (t->g.l2_entry_bytes / 8u);
	uint64_t entry = qcow2_entry_load(qcow2_slot_data(t, slot), word), first, count;
	unsigned nr;

	entry_clusters(t, entry, &first, &nr);
	if (nr == 0)
		return 0;
	if (w->addend < 0)
		return w->judges ? 0 : give_up_entry(o, s, entry);
	for (; w->cluster_idx < nr; w->cluster_idx++) {
		int ret = count_cluster(o, s, w, first + w->cluster_idx, entry & QCOW2_COMPRESSED,
					&count);

		if (ret != 0)
			return ret;
		if (walk_sets_copied(w))
			entry_set_copied(t, slot, word, entry, count);
	}
	w->cluster_idx = 0;
	return 0;
}

/* The rest of a slice. */
static int walk_slice(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w)
{
	const struct qcow2_tables *t = o->t;
	uint64_t table = walk_l1(o, w) & QCOW2_OFFSET_MASK;
	struct qcow2_slot *slot = NULL;
	int ret;

	do {
		/* Again for each entry: to load a count may have cost the slot. */
		ret = qcow2_owner_slot(o, s, qcow2_slice_at(t, table, w->l2_idx), true, &slot);
		if (ret == 0 && slot->is_bad)
			ret = walk_fail(w, -EIO,
					"the image is corrupt: an entry of an L2 table makes no "
					"sense: repair it with qemu-img check -r all");
		if (ret == 0 && w->items_max && w->item_nr == w->items_max)
			return 0;
		if (ret == 0)
			ret = walk_entry(o, s, w, slot);
		if (ret != 0)
			return ret;
		w->item_nr++;
		w->l2_idx++;
	} while (w->l2_idx & ((1u << t->slice_bits) - 1));
	return 0;
}

/* ---- one after the other ---- */

static void walk_next_table(struct qcow2_walk *w)
{
	w->l1_idx++;
	w->l2_idx = 0;
	w->phase = WALK_TABLE_FIRST;
}

/* With a limit the order is that of what is taken back. */
static bool table_is_last(const struct qcow2_walk *w)
{
	return w->addend < 0 && !w->items_max;
}

static int walk_phase(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w)
{
	bool is_here = (w->phase == WALK_TABLE_LAST) == table_is_last(w);
	int ret;

	if (w->phase == WALK_ENTRIES) {
		ret = walk_slice(o, s, w);
		if (ret == 0 && w->l2_idx == 1u << o->t->g.l2_bits)
			w->phase++;
		return ret;
	}
	ret = is_here ? walk_table(o, s, w) : 0;
	if (ret != 0)
		return ret;
	w->item_nr += is_here;
	if (w->phase++ == WALK_TABLE_LAST)
		walk_next_table(w);
	/* What others have too has no COPIED, and stays so. */
	else if (!w->l1 && w->addend == 0 && !(walk_l1(o, w) & QCOW2_COPIED))
		walk_next_table(w);
	return 0;
}

int qcow2_walk_step(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w)
{
	int ret;

	if (qcow2_owner_commits(o)) {
		list_push_back(&o->held, &s->waiting);
		return QCOW2_WAITS;
	}
	while (w->l1_idx < w->l1_entries && !(walk_l1(o, w) & QCOW2_OFFSET_MASK))
		walk_next_table(w);
	if (w->l1_idx == w->l1_entries || (w->items_max && w->item_nr == w->items_max))
		return 0;
	ret = walk_phase(o, s, w);
	return ret == 0 ? QCOW2_YIELDS : ret;
}
