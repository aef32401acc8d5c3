/*
 * Clusters that were taken and that no table names yet: of a write that is under way, of an L2
 * table that is being made. Noted in the memfd, so that the next process gives them back when this
 * one dies. The owner's reactor; revive: the main thread.
 *
 * Happy path: has_room -> add, behind the reference counts -> the table names it, or it is given
 * back -> end. A process dies before `end`: revive asks the tables, in which such a change is dirty
 * and therefore in memory, whether they name it. Dies it between two stores of one of these steps,
 * a cluster stays that nobody uses.
 */
#include "backends/qcow2/qcow2_owner.h"
#include "base/assert.h"

void qcow2_taken_init(struct qcow2_tables *t)
{
	t->taken_free_nr = 0;
	for (unsigned i = 0; i < QCOW2_TAKEN_NR; i++)
		if (t->taken[i].kind == QCOW2_TAKEN_NONE)
			t->taken_free[t->taken_free_nr++] = (uint16_t)i;
}

bool qcow2_taken_has_room(const struct qcow2_tables *t)
{
	/* Jobs always have some. */
	return t->taken_free_nr > QCOW2_JOBS_NR;
}

unsigned qcow2_taken_add(struct qcow2_tables *t, enum qcow2_taken_kind kind, uint64_t what,
			 uint64_t host, uint64_t nr)
{
	unsigned idx;

	ASSERT(t->taken_free_nr > 0);
	idx = t->taken_free[--t->taken_free_nr];
	t->taken[idx].what = what;
	t->taken[idx].host = host;
	t->taken[idx].nr = nr;
	__atomic_store_n(&t->taken[idx].kind, (uint64_t)kind, __ATOMIC_RELEASE);
	return idx;
}

void qcow2_taken_end(struct qcow2_tables *t, unsigned idx)
{
	ASSERT(t->taken[idx].kind != QCOW2_TAKEN_NONE);
	__atomic_store_n(&t->taken[idx].kind, (uint64_t)QCOW2_TAKEN_NONE, __ATOMIC_RELEASE);
	t->taken_free[t->taken_free_nr++] = (uint16_t)idx;
}

/* ---- after the process ---- */

struct qcow2_slot *qcow2_entry_slot(const struct qcow2_tables *t, uint64_t guest, unsigned *ret_idx)
{
	uint64_t table =
		atomic_load_explicit(&t->l1[guest >> qcow2_l1_shift(&t->g)], memory_order_relaxed) &
		QCOW2_OFFSET_MASK;
	unsigned idx = qcow2_l2_idx(&t->g, guest), words = t->g.l2_entry_bytes / 8u;

	*ret_idx = (idx & ((1u << t->slice_bits) - 1)) * words;
	return table ? qcow2_slot_find(t, qcow2_slice_at(t, table, idx)) : NULL;
}

/* What the L2 entry of a guest's offset names; 0: nothing, or its slice is not dirty. */
static uint64_t named_by_l2(const struct qcow2_tables *t, uint64_t guest)
{
	const struct qcow2_slot *slot;
	unsigned idx;

	slot = qcow2_entry_slot(t, guest, &idx);
	return slot ? qcow2_entry_load(qcow2_slot_data(t, slot), idx) & QCOW2_OFFSET_MASK : 0;
}

static bool is_named(const struct qcow2_tables *t, const struct qcow2_taken *taken, uint64_t i)
{
	uint64_t cluster = qcow2_cluster_bytes(&t->g), named;

	if (taken->kind == QCOW2_TAKEN_TABLE)
		named = atomic_load_explicit(&t->l1[taken->what], memory_order_relaxed) &
			QCOW2_OFFSET_MASK;
	else
		named = named_by_l2(t, taken->what + i * cluster);
	return named == taken->host + i * cluster;
}

/* The process has died in the middle of giving it back: somebody else may take it from now on. */
static bool is_given_back(const struct qcow2_tables *t, uint64_t host)
{
	const struct qcow2_slot *slot;
	uint64_t at;
	unsigned idx;

	at = qcow2_refcount_slice(t, host >> t->g.cluster_bits, &idx);
	slot = at ? qcow2_slot_find(t, at) : NULL;
	return slot && qcow2_refcount_get(qcow2_slot_data(t, slot), t->g.refcount_order, idx) == 0;
}

void qcow2_taken_revive(struct qcow2_tables *t)
{
	uint64_t cluster = qcow2_cluster_bytes(&t->g);

	for (unsigned i = 0; i < QCOW2_TAKEN_NR; i++) {
		struct qcow2_taken taken = t->taken[i];

		if (taken.kind == QCOW2_TAKEN_NONE)
			continue;
		/* First: when this process dies here, the next one must not give it back again. */
		__atomic_store_n(&t->taken[i].kind, (uint64_t)QCOW2_TAKEN_NONE, __ATOMIC_RELEASE);
		/* Without room for a note, after many deaths in a row, nobody uses it any more. */
		for (uint64_t c = 0; c < taken.nr; c++)
			if (!is_named(t, &taken, c) &&
			    !is_given_back(t, taken.host + c * cluster) &&
			    t->freed_nr < QCOW2_FREED_NR)
				qcow2_freed_add(t, taken.host + c * cluster, cluster);
	}
	qcow2_taken_init(t);
}
