/*
 * What a failed FLUSH takes back. An allocation copies bytes of the guest that nobody will write
 * again, and an L2 table that is made is written once: until a FLUSH of the storage has succeeded
 * behind them they may be lost there, though the table in memory names them. So each entry that has
 * come to name such a place is noted with what it was before. The owner's reactor; at the end, when
 * no queue is open, the control reactor; revive: the main thread.
 *
 * Happy path: add, before the entry changes -> a commit's FLUSH below succeeds, and nothing was
 * lost since the oldest of them was begun: settle: what the entries named before is given up.
 *
 * Failure modes: something was lost: run: the entries are what they were, the last one first, and
 * the new places are given up. What the user wrote there is not written, which the FLUSH that
 * failed has told. A process dies: the notes are in the memfd, and the next one goes on with what
 * is left of them: it runs them before it serves when something was lost, or settles them later.
 */
#include <errno.h>

#include "backends/qcow2/qcow2_owner.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"

/* The host of a note that is none any more: no entry names it. */
#define NOWHERE 1u

static const struct qcow2_undo *note_of(const struct qcow2_tables *t, uint32_t idx)
{
	return &t->undo->note[idx];
}

uint32_t qcow2_losses(const struct qcow2_device *d)
{
	uint32_t losses = backend_losses(qcow2_child(d->device, d->data_idx));

	if (d->guest_idx != d->data_idx)
		losses += backend_losses(qcow2_child(d->device, d->guest_idx));
	return losses;
}

/* What an entry names, without what is said about it. */
static uint64_t place_of(uint64_t entry)
{
	return entry & QCOW2_COMPRESSED ? 0 : entry & QCOW2_OFFSET_MASK;
}

uint32_t qcow2_undo_nr(const struct qcow2_tables *t)
{
	return atomic_load_explicit(&t->undo->nr, memory_order_relaxed);
}

bool qcow2_undo_has_room(const struct qcow2_tables *t, unsigned nr)
{
	/* The rest is for tables that are being made. */
	return qcow2_undo_nr(t) + nr <= QCOW2_UNDO_NR - QCOW2_JOBS_NR;
}

/* Whether what it was before is given up when it is settled. */
static bool gives_up_old(const struct qcow2_undo *u)
{
	return u->is_new && (u->old & (QCOW2_COMPRESSED | QCOW2_OFFSET_MASK));
}

/* Where it stands: the next process finds it void as soon as the first of both is there. */
static void void_note(struct qcow2_undo *u)
{
	__atomic_store_n(&u->host, NOWHERE, __ATOMIC_RELEASE);
	u->is_new = 0;
}

static bool is_copy(const struct qcow2_undo *u)
{
	return u->kind == QCOW2_UNDO_TABLE && gives_up_old(u);
}

bool qcow2_undo_has_copy(const struct qcow2_tables *t, uint64_t l1_idx)
{
	uint32_t nr = t->undo_copy_nr ? qcow2_undo_nr(t) : 0;

	for (uint32_t i = 0; i < nr; i++)
		if (is_copy(note_of(t, i)) && note_of(t, i)->what == l1_idx)
			return true;
	return false;
}

/* Another part of the cluster that was noted last. */
static bool is_noted(const struct qcow2_tables *t, const struct qcow2_undo *u, uint32_t nr)
{
	const struct qcow2_undo *last = nr ? note_of(t, nr - 1) : NULL;

	return last && !u->is_new && last->kind == u->kind && last->what == u->what &&
	       last->host == u->host;
}

void qcow2_undo_add(struct qcow2_tables *t, const struct qcow2_undo *note, uint32_t losses)
{
	uint32_t nr = qcow2_undo_nr(t);

	/* Those of before were settled, or undone. */
	ASSERT(nr == 0 || t->undo->losses == losses);
	t->undo->losses = losses;
	if (is_noted(t, note, nr))
		return;
	ASSERT(nr < QCOW2_UNDO_NR);
	t->undo->note[nr] = *note;
	t->freed_promised += gives_up_old(note);
	t->undo_copy_nr += is_copy(note);
	/* Last: a process that dies before has noted nothing. */
	atomic_store_explicit(&t->undo->nr, nr + 1, memory_order_release);
}

bool qcow2_undo_is_wanted(const struct qcow2_commit *c)
{
	const struct qcow2_tables *t = c->d->t;

	return qcow2_undo_nr(t) > 0 && t->undo->losses != qcow2_losses(c->d);
}

/* ---- settled ---- */

static void give_up_old(struct qcow2_tables *t, const struct qcow2_undo *u)
{
	if (!gives_up_old(u))
		return;
	t->freed_promised--;
	if (u->kind == QCOW2_UNDO_TABLE)
		qcow2_freed_add(t, u->old & QCOW2_OFFSET_MASK, qcow2_cluster_bytes(&t->g));
	else
		qcow2_freed_add_entry(t, u->old);
}

/* The note goes first: a process that dies in between leaves a cluster that nobody uses. */
static struct qcow2_undo take_note(struct qcow2_tables *t, uint32_t idx)
{
	struct qcow2_undo u = *note_of(t, idx);

	t->undo_copy_nr -= is_copy(&u);
	void_note(&t->undo->note[idx]);
	return u;
}

/*
 * The first one first. A process may die in between, and the next one take the rest back: an entry
 * goes back in a copy of a table that stays, but a table that comes back names what its entries
 * were before the copy.
 */
void qcow2_undo_settle(struct qcow2_tables *t)
{
	uint32_t nr = qcow2_undo_nr(t);

	for (uint32_t i = 0; i < nr; i++) {
		struct qcow2_undo u = take_note(t, i);

		/* A table was written to its end. */
		if (u.kind == QCOW2_UNDO_TABLE && u.host != NOWHERE)
			qcow2_image_reaches(t, u.host + qcow2_cluster_bytes(&t->g));
		give_up_old(t, &u);
	}
	atomic_store_explicit(&t->undo->nr, 0, memory_order_release);
}

/* ---- taken back ---- */

/* Of a place that nothing names any more; without room for a note nobody uses it again. */
static void give_up_new(struct qcow2_tables *t, const struct qcow2_undo *u)
{
	if (!u->is_new)
		return;
	t->freed_promised -= gives_up_old(u);
	if (qcow2_freed_has_room(t, 1))
		qcow2_freed_add(t, u->host, qcow2_cluster_bytes(&t->g));
}

/* Whether the entry is still what the note made of it: false: it was unmapped since. */
static bool is_still_so(const struct qcow2_tables *t, const struct qcow2_undo *u)
{
	struct qcow2_slot *slot;
	unsigned idx;

	if (u->kind == QCOW2_UNDO_TABLE)
		return place_of(atomic_load_explicit(&t->l1[u->what], memory_order_relaxed)) ==
		       u->host;
	slot = qcow2_entry_slot(t, u->what, &idx);
	return slot && place_of(qcow2_entry_load(qcow2_slot_data(t, slot), idx)) == u->host;
}

static void restore_entry(struct qcow2_tables *t, const struct qcow2_undo *u)
{
	struct qcow2_slot *slot;
	unsigned idx;

	slot = qcow2_entry_slot(t, u->what, &idx);
	qcow2_mark_dirty(t, slot);
	if (t->g.l2_entry_bytes == 16)
		qcow2_entry_store_bits_first(slot, qcow2_slot_data(t, slot), idx, u->old,
					     u->old_bits);
	else
		qcow2_entry_store(qcow2_slot_data(t, slot), idx, u->old);
}

static void restore_table(struct qcow2_commit *c, const struct qcow2_undo *u)
{
	struct qcow2_tables *t = c->d->t;

	qcow2_mark_l1(t, u->what);
	atomic_store_explicit(&t->l1[u->what], u->old, memory_order_release);
	qcow2_tables_forget(t, u->host);
	qcow2_owner_forget_loads(c->d->owner, u->host);
}

static void undo_one(struct qcow2_commit *c, const struct qcow2_undo *u)
{
	struct qcow2_tables *t = c->d->t;

	if (!is_still_so(t, u)) {
		give_up_old(t, u);
		return;
	}
	if (u->kind == QCOW2_UNDO_TABLE) {
		restore_table(c, u);
	} else {
		restore_entry(t, u);
		qcow2_allocs_are_stale(c->d->owner, u->what);
	}
	give_up_new(t, u);
}

void qcow2_undo_run(struct qcow2_commit *c)
{
	struct qcow2_tables *t = c->d->t;
	uint32_t nr = qcow2_undo_nr(t);

	/* The note goes last: a process that dies in between leaves a place that nobody uses. */
	for (uint32_t i = nr; i-- > 0;) {
		undo_one(c, note_of(t, i));
		take_note(t, i);
		atomic_store_explicit(&t->undo->nr, i, memory_order_release);
	}
	backend_owe(c->d->device);
	/* Who has looked up before may still write to a place that is given up, and succeed when
	 * the failure has been told. */
	qcow2_fence(memory_order_seq_cst);
	c->owes |= !c->is_quiet(c, 0) || !c->is_quiet(c, 1);
	log_limited(
		LOG_LEVEL_WARN,
		"the storage of the image has perhaps lost writes: what was allocated since its "
		"last FLUSH is not written",
		"node=%s clusters=%u", c->d->device->name, nr);
}

/* ---- after the process ---- */

/* A note whose entry the process did not come to change must not give up what that names. */
void qcow2_undo_revive(struct qcow2_tables *t)
{
	uint32_t nr = MIN(qcow2_undo_nr(t), QCOW2_UNDO_NR);

	for (uint32_t i = 0; i < nr; i++) {
		struct qcow2_undo *u = &t->undo->note[i];

		/* In its place: this process may die here, too. */
		if (!is_still_so(t, u))
			void_note(u);
		t->freed_promised += gives_up_old(u);
		t->undo_copy_nr += is_copy(u);
	}
	while (nr > 0 && note_of(t, nr - 1)->host == NOWHERE)
		nr--;
	atomic_store_explicit(&t->undo->nr, nr, memory_order_relaxed);
}
