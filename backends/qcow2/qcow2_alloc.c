/*
 * Clusters of the image are taken and given up. The owner's reactor.
 *
 * Happy path: take looks through reference counts from where it stopped last, for as many free
 * clusters one after the other as are wanted, and counts each once. What is given up is noted
 * (freed), and its counts fall when the disk does not name it any more and no request is under way
 * there: qcow2_commit.c. So a cluster is never used for something else while an old table, or an
 * old request, still leads to it.
 *
 * Failure modes: the storage has an end of its own, or the table of reference counts has: ENOSPC.
 * No room for notes: a commit makes some, and who wants it waits.
 */
#include <errno.h>
#include <string.h>

#include "backends/qcow2/qcow2_owner.h"
#include "base/assert.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/util.h"

/* ---- counts ---- */

static unsigned counts_of_slice(const struct qcow2_tables *t)
{
	return (t->slice_bytes * 8u) >> t->g.refcount_order;
}

uint64_t qcow2_refcount_slice(const struct qcow2_tables *t, uint64_t cluster, unsigned *ret_idx)
{
	uint64_t block = cluster >> t->g.refblock_bits;
	uint64_t at = block < t->reftable_entries
			      ? atomic_load_explicit(&t->reftable[block], memory_order_relaxed)
			      : 0;
	uint64_t idx = cluster & ((1ull << t->g.refblock_bits) - 1);

	*ret_idx = (unsigned)(idx % counts_of_slice(t));
	return at ? at + idx / counts_of_slice(t) * t->slice_bytes : 0;
}

static uint64_t count_get(const struct qcow2_tables *t, const struct qcow2_slot *slot, unsigned idx)
{
	return qcow2_refcount_get(qcow2_slot_data(t, slot), t->g.refcount_order, idx);
}

static void count_set(struct qcow2_tables *t, struct qcow2_slot *slot, unsigned idx, uint64_t n)
{
	qcow2_mark_dirty(t, slot);
	qcow2_refcount_set(qcow2_slot_data(t, slot), t->g.refcount_order, idx, n);
}

/* ---- taken ---- */

/* Where the storage ends, in clusters. */
static uint64_t cluster_limit(const struct qcow2_owner *o)
{
	return o->d->data_bytes >> o->t->g.cluster_bits;
}

/* What was given up becomes free with a commit. */
static int fail_no_space(struct qcow2_owner *o, struct qcow2_io *s, const char *what)
{
	if (o->t->freed_nr > 0)
		return qcow2_owner_hold(o, s);
	log_limited(LOG_LEVEL_ERROR, "no cluster can be allocated", "node=%s reason=\"%s\"",
		    o->d->device->name, what);
	return -ENOSPC;
}

/*
 * A count of 0 is believed, but for the tables that are in memory as a whole
 * (qcow2_range_is_table). Which L2 entry names a cluster nobody knows without reading all L2
 * tables. Nor can a slice be judged by the counts when it is loaded: queues load slices on their
 * reactors, the counts are the owner's, and those of the clusters that it names are perhaps not in
 * memory. So an image whose counts lie can lose its own data.
 */

/* From idx of a slice on: the first free one, and how many follow it. False: none. */
static bool counts_find_free(const struct qcow2_owner *o, const struct qcow2_slot *slot,
			     unsigned idx, uint64_t wanted, unsigned *ret_idx, uint64_t *ret_nr)
{
	unsigned end = counts_of_slice(o->t);

	while (idx < end && count_get(o->t, slot, idx) != 0)
		idx++;
	*ret_idx = idx;
	*ret_nr = 0;
	while (idx < end && *ret_nr < wanted && count_get(o->t, slot, idx) == 0) {
		idx++;
		(*ret_nr)++;
	}
	return *ret_nr > 0;
}

static void take_found(struct qcow2_owner *o, struct qcow2_slot *slot, unsigned idx,
		       uint64_t cluster, uint64_t nr, bool *ret_is_fresh)
{
	struct qcow2_tables *t = o->t;
	uint64_t end_bytes = (cluster + nr) << t->g.cluster_bits;
	uint64_t was_bytes = atomic_load_explicit(&t->end_bytes, memory_order_relaxed);

	for (unsigned i = 0; i < nr; i++)
		count_set(t, slot, idx + i, 1);
	*ret_is_fresh = o->d->data_grows && cluster << t->g.cluster_bits >= was_bytes;
	if (end_bytes > was_bytes)
		qcow2_tables_set_end(t, end_bytes);
	o->next_cluster = cluster + nr;
	counter_add(&o->allocations, nr);
}

int qcow2_clusters_take(struct qcow2_owner *o, struct qcow2_io *s, uint64_t nr, uint64_t *ret_host,
			uint64_t *ret_nr, bool *ret_is_fresh)
{
	struct qcow2_tables *t = o->t;

	for (;;) {
		uint64_t cluster = o->next_cluster, at;
		struct qcow2_slot *slot;
		unsigned idx, found;
		int ret;

		if (cluster >= cluster_limit(o))
			return fail_no_space(o, s, "the storage below is full");
		if (cluster >> t->g.refblock_bits >= t->reftable_entries)
			return fail_no_space(o, s, "the image's table of reference counts is full");
		at = qcow2_refcount_slice(t, cluster, &idx);
		/* A block that is not there must not cost the image its tables. */
		if (at == 0 && qcow2_range_is_table(t, cluster << t->g.cluster_bits,
						    qcow2_cluster_bytes(&t->g))) {
			o->next_cluster = cluster + 1;
			continue;
		}
		if (at == 0)
			return qcow2_job_refblock(o, s, cluster >> t->g.refblock_bits, cluster);
		ret = qcow2_owner_slot(o, s, at, false, &slot);
		if (ret != 0)
			return ret;
		if (!counts_find_free(o, slot, idx, nr, &found, ret_nr)) {
			o->next_cluster = cluster - idx + counts_of_slice(t);
			continue;
		}
		cluster += found - idx;
		if (cluster >= cluster_limit(o)) {
			o->next_cluster = cluster;
			continue;
		}
		*ret_nr = MIN(*ret_nr, cluster_limit(o) - cluster);
		/* A count that lies must not cost the image its tables. */
		if (qcow2_range_is_table(t, cluster << t->g.cluster_bits,
					 *ret_nr << t->g.cluster_bits)) {
			o->next_cluster = cluster + 1;
			continue;
		}
		take_found(o, slot, found, cluster, *ret_nr, ret_is_fresh);
		*ret_host = cluster << t->g.cluster_bits;
		return 0;
	}
}

int qcow2_clusters_give_back(struct qcow2_owner *o, struct qcow2_io *s, uint64_t host, uint64_t nr)
{
	uint64_t cluster = host >> o->t->g.cluster_bits;
	struct qcow2_slot *slot;
	unsigned idx;
	int ret;

	/* They were taken from one slice. */
	ret = qcow2_owner_slot(o, s, qcow2_refcount_slice(o->t, cluster, &idx), false, &slot);
	if (ret != 0)
		return ret;
	for (unsigned i = 0; i < nr; i++)
		count_set(o->t, slot, idx + i, 0);
	o->next_cluster = MIN(o->next_cluster, cluster);
	return 0;
}

/* ---- given up ---- */

bool qcow2_freed_has_room(const struct qcow2_tables *t, unsigned nr)
{
	/* The rest is for what a process that dies has taken. */
	return t->freed_nr + t->freed_promised + nr <= QCOW2_FREED_NR - QCOW2_TAKEN_NR;
}

/* Behind one that is there already: a discard of many is one note. */
static bool freed_extend(struct qcow2_tables *t, uint64_t at, uint64_t bytes)
{
	struct qcow2_freed *last = &t->freed[t->freed_last];

	if (last->stage != QCOW2_FREED_PENDING || last->end != at ||
	    (at & (qcow2_cluster_bytes(&t->g) - 1)))
		return false;
	__atomic_store_n(&last->end, at + bytes, __ATOMIC_RELEASE);
	return true;
}

void qcow2_freed_add(struct qcow2_tables *t, uint64_t at, uint64_t bytes)
{
	if (freed_extend(t, at, bytes))
		return;
	for (unsigned i = 0; i < QCOW2_FREED_NR; i++) {
		struct qcow2_freed *f = &t->freed[i];

		if (f->stage != QCOW2_FREED_NONE)
			continue;
		f->at = at;
		f->end = at + bytes;
		__atomic_store_n(&f->stage, QCOW2_FREED_PENDING, __ATOMIC_RELEASE);
		t->freed_last = i;
		t->freed_nr++;
		return;
	}
	ASSERT(!"qcow2_freed_has_room is asked before");
}

void qcow2_freed_add_entry(struct qcow2_tables *t, uint64_t entry)
{
	uint64_t cluster = qcow2_cluster_bytes(&t->g), at, bytes;

	if (entry & QCOW2_COMPRESSED) {
		qcow2_compressed_range(&t->g, entry, &at, &bytes);
		/* One count in each cluster that it touches. */
		bytes = round_up(at + bytes, cluster) - round_down(at, cluster);
		/* Not from its start on, so that it is not taken for the end of another. */
		qcow2_freed_add(t, round_down(at, cluster) + 1, bytes - 1);
	} else if (entry & QCOW2_OFFSET_MASK) {
		qcow2_freed_add(t, entry & QCOW2_OFFSET_MASK, cluster);
	}
}
