/*
 * Entries of L2 are changed: clusters for a write, their entry when the data is there, and
 * unmapping. The owner's reactor; each handler begins anew whenever what it has waited for has
 * come.
 *
 * Happy path: ALLOC finds the first run of clusters that cannot be written in place, takes clusters
 * and notes the allocation; the queue writes; PUBLISH stores the entries. Who wants the same
 * clusters meanwhile waits for that.
 *
 * Failure modes: no space: the request fails, and nothing has changed; the write fails: ABORT gives
 * back. A slice with an entry that makes no sense is never changed.
 */
#include <errno.h>

#include "backends/qcow2/qcow2_owner.h"
#include "base/assert.h"
#include "base/util.h"

static uint64_t cluster_of(const struct qcow2_tables *t)
{
	return qcow2_cluster_bytes(&t->g);
}

static unsigned entry_words(const struct qcow2_tables *t)
{
	return t->g.l2_entry_bytes / 8u;
}

static unsigned slice_idx(const struct qcow2_tables *t, uint64_t offset)
{
	return qcow2_l2_idx(&t->g, offset) & ((1u << t->slice_bits) - 1);
}

/* Up to where a slice says what is from offset on. */
static uint64_t slice_end(const struct qcow2_tables *t, uint64_t offset)
{
	uint64_t bytes = cluster_of(t) << t->slice_bits;

	return (offset & ~(bytes - 1)) + bytes;
}

/* ---- allocations under way ---- */

/* One that meets the clusters of a range; of several the first. */
static struct qcow2_alloc *alloc_meets(struct qcow2_owner *o, uint64_t at, uint64_t bytes)
{
	uint64_t cluster = cluster_of(o->t), start = round_down(at, cluster);
	struct qcow2_alloc *first = NULL;

	bytes = round_up(at + bytes, cluster) - start;
	for (struct list_node *n = o->allocs.next; n != &o->allocs; n = n->next) {
		struct qcow2_alloc *a = list_entry(n, struct qcow2_alloc, node);
		uint64_t a_start = round_down(a->guest, cluster);
		uint64_t a_bytes = round_up(a->guest + a->bytes, cluster) - a_start;

		if (qcow2_ranges_meet(start, bytes, a_start, a_bytes) &&
		    (!first || a->guest < first->guest))
			first = a;
	}
	return first;
}

/*
 * How much of a range, from its start on, no allocation is under way for. 0: the question waits for
 * one.
 */
static uint64_t range_free_of_allocs(struct qcow2_owner *o, struct qcow2_io *s, uint64_t at,
				     uint64_t bytes)
{
	struct qcow2_alloc *a = alloc_meets(o, at, bytes);
	uint64_t a_start;

	if (!a)
		return bytes;
	a_start = round_down(a->guest, cluster_of(o->t));
	if (a_start > at)
		return a_start - at;
	list_push_back(&a->waiters, &s->waiting);
	return 0;
}

static void alloc_end(struct qcow2_owner *o, struct qcow2_io *s)
{
	list_remove(&s->alloc.node);
	/* Behind the answer, which this is inside of. */
	list_splice(&o->asked, &s->alloc.waiters);
	if (!list_empty(&o->asked))
		qcow2_owner_ask_again(o);
}

void qcow2_allocs_are_stale(struct qcow2_owner *o, uint64_t guest)
{
	for (struct list_node *n = o->allocs.next; n != &o->allocs; n = n->next) {
		struct qcow2_alloc *a = list_entry(n, struct qcow2_alloc, node);

		a->is_stale |= !a->is_new &&
			       qcow2_ranges_meet(guest, cluster_of(o->t), a->guest, a->bytes);
	}
}

/* ---- the slice of an offset ---- */

/*
 * 0 with the slot of an L2 slice that is this image's alone, or WAITS, or -errno. The table is made
 * when there is none.
 */
static int own_slice(struct qcow2_owner *o, struct qcow2_io *s, uint64_t offset,
		     struct qcow2_slot **ret_slot)
{
	struct qcow2_tables *t = o->t;
	uint64_t l1_idx = offset >> qcow2_l1_shift(&t->g);
	uint64_t l1 = atomic_load_explicit(&t->l1[l1_idx], memory_order_relaxed);
	int ret;

	if (!(l1 & QCOW2_OFFSET_MASK) || !(l1 & QCOW2_COPIED))
		return qcow2_job_l2(o, s, l1_idx);
	ret = qcow2_owner_slot(
		o, s, qcow2_slice_at(t, l1 & QCOW2_OFFSET_MASK, qcow2_l2_idx(&t->g, offset)), true,
		ret_slot);
	if (ret == 0 && (*ret_slot)->is_bad)
		return -EIO;
	return ret;
}

/* ---- ALLOC ---- */

/* As many as can be noted are under way. */
static int wait_for_alloc(struct qcow2_owner *o, struct qcow2_io *s)
{
	struct qcow2_alloc *a = list_entry(o->allocs.next, struct qcow2_alloc, node);

	ASSERT(!list_empty(&o->allocs));
	list_push_back(&a->waiters, &s->waiting);
	return QCOW2_WAITS;
}

/* A cluster that is there already, but reads as something else. */
static void use_allocated(struct qcow2_owner *o, struct qcow2_io *s, const struct qcow2_run *run)
{
	const struct qcow2_tables *t = o->t;
	uint64_t now = qcow2_now(s), start = round_down(now, cluster_of(t));
	uint64_t unit = 1ull << t->g.subcluster_bits;

	s->now_bytes = MIN(s->now_bytes, run->bytes);
	s->now_bytes = MIN(s->now_bytes, start + cluster_of(t) - now);
	s->alloc.guest = round_down(now, unit);
	s->alloc.bytes = round_up(now + s->now_bytes, unit) - s->alloc.guest;
	s->alloc.cluster_host = run->host;
	s->alloc.host = run->host + (s->alloc.guest - start);
	s->alloc.cluster_nr = 1;
	s->alloc.is_new = s->alloc.is_fresh = false;
}

/* Whether a cluster can only be written by a new one. */
static bool wants_new(const struct qcow2_tables *t, uint64_t entry)
{
	return (entry & QCOW2_COMPRESSED) || !(entry & QCOW2_COPIED) ||
	       (!(entry & QCOW2_OFFSET_MASK) && !t->has_data_file);
}

/* Clusters one after the other that do, up to end. */
static uint64_t count_new(const struct qcow2_tables *t, const struct qcow2_slot *slot,
			  uint64_t start, uint64_t end)
{
	const void *slice = qcow2_slot_data(t, slot);
	uint64_t nr = 0;

	for (uint64_t at = start; at < end; at += cluster_of(t), nr++)
		if (!wants_new(t, qcow2_entry_load(slice, slice_idx(t, at) * entry_words(t))))
			break;
	return nr;
}

/* With subclusters: whether what the old cluster has must come along as a whole. */
static bool copies_whole(const struct qcow2_tables *t, const struct qcow2_slot *slot,
			 uint64_t start)
{
	uint64_t entry =
		qcow2_entry_load(qcow2_slot_data(t, slot), slice_idx(t, start) * entry_words(t));

	return entry_words(t) == 1 || (entry & (QCOW2_OFFSET_MASK | QCOW2_COMPRESSED));
}

static void fill_new(struct qcow2_owner *o, struct qcow2_io *s, const struct qcow2_slot *slot,
		     uint64_t host, uint64_t nr)
{
	const struct qcow2_tables *t = o->t;
	uint64_t now = qcow2_now(s), start = round_down(now, cluster_of(t));
	uint64_t end = MIN(now + s->now_bytes, start + nr * cluster_of(t)), last;
	uint64_t unit = 1ull << t->g.subcluster_bits;

	last = round_down(end - 1, cluster_of(t));
	s->now_bytes = end - now;
	s->alloc.guest = copies_whole(t, slot, start) ? start : round_down(now, unit);
	end = copies_whole(t, slot, last) ? last + cluster_of(t) : round_up(end, unit);
	s->alloc.bytes = end - s->alloc.guest;
	s->alloc.cluster_host = host;
	s->alloc.host = host + (s->alloc.guest - start);
	s->alloc.cluster_nr = (unsigned)nr;
}

static int alloc_take_new(struct qcow2_owner *o, struct qcow2_io *s, const struct qcow2_slot *slot)
{
	struct qcow2_tables *t = o->t;
	uint64_t now = qcow2_now(s), start = round_down(now, cluster_of(t)), host = start;
	uint64_t nr = count_new(t, slot, start, now + s->now_bytes), got = nr;
	int ret = 0;

	s->alloc.is_new = !t->has_data_file;
	s->alloc.is_fresh = false;
	if (s->alloc.is_new && !qcow2_taken_has_room(t))
		return wait_for_alloc(o, s);
	if (s->alloc.is_new)
		ret = qcow2_clusters_take(o, s, nr, &host, &got, &s->alloc.is_fresh);
	if (ret != 0)
		return ret;
	if (s->alloc.is_new)
		s->alloc.taken_idx = qcow2_taken_add(t, QCOW2_TAKEN_DATA, start, host, got);
	fill_new(o, s, slot, host, got);
	return 0;
}

int qcow2_handle_alloc(struct qcow2_owner *o, struct qcow2_io *s)
{
	uint64_t now = qcow2_now(s);
	struct qcow2_slot *slot = NULL;
	struct qcow2_run run;
	uint64_t bytes;
	int ret;

	s->alloc.bytes = 0;
	s->alloc.is_stale = false;
	s->alloc.losses = qcow2_losses(o->d);
	bytes = range_free_of_allocs(o, s, now, MIN(s->now_bytes, slice_end(o->t, now) - now));
	if (bytes == 0)
		return QCOW2_WAITS;
	ret = own_slice(o, s, now, &slot);
	if (ret != 0)
		return ret;
	qcow2_lookup(o->t, now, bytes, NULL, &run);
	if (run.kind == QCOW2_DATA)
		return 0;
	s->now_bytes = bytes;
	if (wants_new(o->t, qcow2_entry_load(qcow2_slot_data(o->t, slot),
					     slice_idx(o->t, now) * entry_words(o->t))))
		ret = alloc_take_new(o, s, slot);
	else
		use_allocated(o, s, &run);
	if (ret == 0)
		list_push_back(&o->allocs, &s->alloc.node);
	return ret;
}

void qcow2_entry_store_bits_first(struct qcow2_slot *slot, void *slice, unsigned idx,
				  uint64_t entry, uint64_t bits)
{
	qcow2_entry_store(slice, idx + 1, bits);
	atomic_fetch_add_explicit(&slot->seq, 2, memory_order_release);
	qcow2_fence(memory_order_release);
	qcow2_entry_store(slice, idx, entry);
}

/* ---- PUBLISH, ABORT ---- */

/* The bits of subclusters of one cluster that a range covers. */
static uint32_t sub_bits(const struct qcow2_tables *t, uint64_t start, uint64_t from, uint64_t end)
{
	unsigned first = (unsigned)((MAX(from, start) - start) >> t->g.subcluster_bits);
	unsigned nr = (unsigned)((MIN(end, start + cluster_of(t)) - start) >> t->g.subcluster_bits);

	return (uint32_t)(((1ull << nr) - 1) & ~((1ull << first) - 1));
}

static void publish_subclusters(struct qcow2_slot *slot, void *slice, unsigned idx, uint64_t entry,
				uint64_t bits)
{
	uint64_t old_bits = qcow2_entry_load(slice, idx + 1);

	if (qcow2_entry_load(slice, idx) & QCOW2_COMPRESSED) {
		qcow2_entry_store_bits_first(slot, slice, idx, entry, bits);
		return;
	}
	qcow2_entry_store(slice, idx, entry);
	/* The cluster first: who reads the bits first never finds one without it. */
	qcow2_fence(memory_order_release);
	qcow2_entry_store(slice, idx + 1, (old_bits | bits) & ~(bits << 32));
}

static void publish_cluster(struct qcow2_tables *t, struct qcow2_slot *slot,
			    const struct qcow2_alloc *a, uint64_t start, uint64_t host)
{
	unsigned words = entry_words(t), idx = slice_idx(t, start) * words;
	void *slice = qcow2_slot_data(t, slot);
	const struct qcow2_undo undo = {
		.kind = QCOW2_UNDO_ENTRY,
		.what = start,
		.old = qcow2_entry_load(slice, idx),
		.old_bits = words == 2 ? qcow2_entry_load(slice, idx + 1) : 0,
		.host = host,
		.is_new = a->is_new,
	};

	qcow2_undo_add(t, &undo, a->losses);
	if (words == 1)
		qcow2_entry_store(slice, idx, host | QCOW2_COPIED);
	else
		publish_subclusters(slot, slice, idx, host | QCOW2_COPIED,
				    sub_bits(t, start, a->guest, a->guest + a->bytes));
}

/* What it has written is perhaps lost, or its place is: the request begins this step anew. */
static int begin_write_anew(struct qcow2_owner *o, struct qcow2_io *s)
{
	int ret = qcow2_handle_abort(o, s);

	if (ret == 0)
		s->now_bytes = 0;
	return ret;
}

int qcow2_handle_publish(struct qcow2_owner *o, struct qcow2_io *s)
{
	struct qcow2_alloc *a = &s->alloc;
	struct qcow2_tables *t = o->t;
	uint64_t start = round_down(a->guest, cluster_of(t));
	struct qcow2_slot *slot = NULL;
	int ret;

	if (a->is_stale || a->losses != qcow2_losses(o->d))
		return begin_write_anew(o, s);
	if (qcow2_owner_commits(o) || !qcow2_freed_has_room(t, a->cluster_nr) ||
	    !qcow2_undo_has_room(t, a->cluster_nr))
		return qcow2_owner_hold(o, s);
	ret = own_slice(o, s, start, &slot);
	if (ret != 0)
		return ret;
	if (qcow2_undo_is_wanted(&o->commit)) {
		qcow2_undo_run(&o->commit);
		return qcow2_handle_publish(o, s);
	}
	/* First: a process that dies in the middle leaves nothing changed that is not dirty. */
	qcow2_mark_dirty(t, slot);
	for (unsigned i = 0; i < a->cluster_nr; i++)
		publish_cluster(t, slot, a, start + i * cluster_of(t),
				a->cluster_host + i * cluster_of(t));
	if (a->is_new)
		qcow2_taken_end(t, a->taken_idx);
	alloc_end(o, s);
	return 0;
}

int qcow2_handle_abort(struct qcow2_owner *o, struct qcow2_io *s)
{
	int ret = 0;

	if (s->alloc.is_new)
		ret = qcow2_clusters_give_back(o, s, s->alloc.cluster_host, s->alloc.cluster_nr);
	/* Of an error qcow2_alloc_abandon makes the best. */
	if (ret != 0)
		return ret;
	if (s->alloc.is_new)
		qcow2_taken_end(o->t, s->alloc.taken_idx);
	alloc_end(o, s);
	return 0;
}

/* What never came to be named falls with a commit, if a note of it fits; else it is a leak. */
void qcow2_alloc_abandon(struct qcow2_owner *o, struct qcow2_io *s)
{
	const struct qcow2_alloc *a = &s->alloc;

	/* First: noted in both places they would be given back twice after a death. */
	if (a->is_new)
		qcow2_taken_end(o->t, a->taken_idx);
	if (a->is_new && qcow2_freed_has_room(o->t, 1))
		qcow2_freed_add(o->t, a->cluster_host, a->cluster_nr * cluster_of(o->t));
	alloc_end(o, s);
}

/* ---- UNMAP ---- */

/* What an entry becomes. */
struct change {
	uint64_t entry, bits;
	bool frees;
};

static bool reads_zero(const struct qcow2_tables *t, uint64_t entry, uint64_t bits, bool below_zero)
{
	if (entry & QCOW2_COMPRESSED)
		return false;
	if (entry_words(t) == 2)
		return (uint32_t)bits == 0 && (below_zero || bits >> 32 == UINT32_MAX);
	return (entry & QCOW2_ZERO) || (!(entry & QCOW2_OFFSET_MASK) && below_zero);
}

/* Zeroes without a cluster, or nothing at all where what is below is zeroes. */
static void change_to_nothing(const struct qcow2_tables *t, bool below_zero, struct change *c)
{
	c->frees = c->entry & (QCOW2_COMPRESSED | QCOW2_OFFSET_MASK);
	c->entry = 0;
	if (entry_words(t) == 2)
		c->bits = below_zero ? 0 : (uint64_t)UINT32_MAX << 32;
	else if (!below_zero)
		c->entry = QCOW2_ZERO;
}

static void change_to_zeroes(const struct qcow2_tables *t, struct change *c)
{
	if (entry_words(t) == 2)
		c->bits = (uint64_t)UINT32_MAX << 32;
	else
		c->entry |= QCOW2_ZERO;
}

static struct change unmap_change(const struct qcow2_tables *t, const struct qcow2_io *s,
				  uint64_t entry, uint64_t bits, bool below_zero)
{
	struct change c = { .entry = entry, .bits = bits };
	bool keeps = s->is_zero && (s->io->flags & BACKEND_NOUNMAP) && t->g.version >= 3 &&
		     (entry & QCOW2_COPIED) && !(entry & QCOW2_COMPRESSED);
	bool is_allocated = entry & (QCOW2_COMPRESSED | QCOW2_OFFSET_MASK);

	if (!s->is_zero && !is_allocated)
		return c;
	/* Version 2 has no zeroes: what is below would show. */
	if (t->g.version < 3 && !below_zero)
		return c;
	if (keeps)
		change_to_zeroes(t, &c);
	else if (is_allocated || !reads_zero(t, entry, bits, below_zero))
		change_to_nothing(t, below_zero, &c);
	return c;
}

/* Before and after: a process that dies in between leaves a cluster that nobody uses, no more. */
static void unmap_cluster(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_slot *slot,
			  uint64_t at)
{
	struct qcow2_tables *t = o->t;
	void *slice = qcow2_slot_data(t, slot);
	unsigned words = entry_words(t), idx = slice_idx(t, at) * words;
	uint64_t entry = qcow2_entry_load(slice, idx);
	uint64_t bits = words == 2 ? qcow2_entry_load(slice, idx + 1) : 0;
	struct change c = unmap_change(t, s, entry, bits, qcow2_below_is_zero(o->d, at));

	if (c.entry == entry && c.bits == bits)
		return;
	qcow2_mark_dirty(t, slot);
	if (words == 2)
		qcow2_entry_store_bits_first(slot, slice, idx, c.entry, c.bits);
	else
		qcow2_entry_store(slice, idx, c.entry);
	if (c.frees)
		qcow2_freed_add_entry(t, entry);
}

/* There is no L2 table: nothing is there to unmap, and perhaps zeroes to say. */
static bool is_done_without_table(const struct qcow2_owner *o, const struct qcow2_io *s)
{
	uint64_t now = qcow2_now(s);
	uint64_t l1 = atomic_load_explicit(&o->t->l1[now >> qcow2_l1_shift(&o->t->g)],
					   memory_order_relaxed);

	return !(l1 & QCOW2_OFFSET_MASK) && (!s->is_zero || qcow2_below_is_zero(o->d, now));
}

int qcow2_handle_unmap(struct qcow2_owner *o, struct qcow2_io *s)
{
	struct qcow2_tables *t = o->t;
	uint64_t now = qcow2_now(s), bytes, done = 0;
	struct qcow2_slot *slot = NULL;
	int ret;

	if (qcow2_owner_commits(o) || !qcow2_freed_has_room(t, 2))
		return qcow2_owner_hold(o, s);
	bytes = range_free_of_allocs(o, s, now, MIN(s->now_bytes, slice_end(t, now) - now));
	if (bytes == 0)
		return QCOW2_WAITS;
	s->now_bytes = bytes;
	if (is_done_without_table(o, s))
		return 0;
	ret = own_slice(o, s, now, &slot);
	if (ret != 0)
		return ret;
	if (qcow2_undo_has_copy(t, now >> qcow2_l1_shift(&t->g)))
		return qcow2_owner_hold(o, s);
	for (; done < bytes && qcow2_freed_has_room(t, 1); done += cluster_of(t))
		unmap_cluster(o, s, slot, now + done);
	s->now_bytes = MIN(done, bytes);
	return 0;
}
