/*
 * The steps of a change of snapshots; their order is that of qcow2_snapshot_change.h. The owner's
 * reactor.
 *
 * Happy path: a step is called until it returns 0, again whenever what it has waited for has come.
 * Failure modes: before the header is written: qcow2_undo_steps; behind it: what is left over is
 * leaked.
 */
#include "backends/qcow2/qcow2_snapshot_op.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* ---- waiting ---- */

static int wait_for_commit(struct qcow2_snapshot_op *p)
{
	list_push_back(&p->o->held, &p->s.waiting);
	return QCOW2_WAITS;
}

static int begin_commit(struct qcow2_snapshot_op *p)
{
	list_push_back(&p->o->flushes, &p->s.waiting);
	qcow2_owner_commit(p->o);
	return QCOW2_WAITS;
}

/* A whole commit: tables and all data are durable. */
static int step_commit(struct qcow2_snapshot_op *p)
{
	if (p->sub == 1)
		return 0;
	if (qcow2_owner_commits(p->o))
		return wait_for_commit(p);
	p->sub = 1;
	return begin_commit(p);
}

/* Changes are held: no FLUSH that fails takes one back behind the back of a walk. */
static int step_settle(struct qcow2_snapshot_op *p)
{
	return qcow2_undo_nr(p->o->t) == 0 ? 0 : step_commit(p);
}

/* Counts of what was given up have fallen. */
static int step_reap(struct qcow2_snapshot_op *p)
{
	if (p->o->t->freed_nr == 0 && qcow2_undo_nr(p->o->t) == 0)
		return 0;
	if (qcow2_owner_commits(p->o))
		return wait_for_commit(p);
	p->sub = !p->sub;
	/* Requests that may be under way there end in a moment. */
	return p->sub ? begin_commit(p) : qcow2_snapshot_pause(p);
}

static bool epoch_is_quiet(const struct qcow2_snapshot_op *p, uint64_t epoch)
{
	return p->o->commit.is_quiet(&p->o->commit, epoch & 1);
}

static bool has_job(const struct qcow2_owner *o)
{
	for (unsigned i = 0; i < QCOW2_JOBS_NR; i++)
		if (o->job[i].own)
			return true;
	return false;
}

/* What was under way for tables has ended. */
static int step_hold_changes(struct qcow2_snapshot_op *p)
{
	qcow2_snapshot_hold(p, QCOW2_HOLDS_CHANGES);
	if (qcow2_owner_commits(p->o))
		return wait_for_commit(p);
	return list_empty(&p->o->allocs) && !has_job(p->o) ? 0 : qcow2_snapshot_pause(p);
}

static int step_hold_all(struct qcow2_snapshot_op *p)
{
	int ret;

	qcow2_snapshot_hold(p, QCOW2_HOLDS_ALL);
	if (qcow2_owner_commits(p->o))
		return wait_for_commit(p);
	ret = list_empty(&p->o->allocs) && !has_job(p->o) ? 0 : QCOW2_WAITS;
	/* In this order: a request of the one may have become one of the other. */
	return ret == 0 && epoch_is_quiet(p, 0) && epoch_is_quiet(p, 1) ? 0
									: qcow2_snapshot_pause(p);
}

/* Requests that have looked up before have ended. */
static int step_grace(struct qcow2_snapshot_op *p)
{
	uint64_t epoch = atomic_load_explicit(&p->d->epoch, memory_order_relaxed);

	if (p->sub == 0) {
		if (!epoch_is_quiet(p, epoch + 1))
			return qcow2_snapshot_pause(p);
		p->grace_epoch = epoch;
		p->sub = 1;
		atomic_store_explicit(&p->d->epoch, epoch + 1, memory_order_seq_cst);
	}
	/* A commit goes on to the next only when they have. */
	if (epoch > p->grace_epoch + 1 || epoch_is_quiet(p, p->grace_epoch))
		return 0;
	return qcow2_snapshot_pause(p);
}

/* ---- walks ---- */

static void note_progress(struct qcow2_snapshot_op *p)
{
	uint64_t part =
		p->walk.l1_entries ? (uint64_t)p->walk.l1_idx * 1000 / p->walk.l1_entries : 1000;
	uint64_t permille = (p->walks_done * 1000ull + part) / p->walk_nr;

	__atomic_store_n(&p->change->done_permille, (uint32_t)MIN(permille, 999ull),
			 __ATOMIC_RELAXED);
}

static int walk(struct qcow2_snapshot_op *p, const struct qcow2_walk *what)
{
	int ret;

	if (p->sub == 0)
		p->walk = *what;
	p->sub = 1;
	ret = qcow2_walk_step(p->o, &p->s, &p->walk);
	note_progress(p);
	if (ret == QCOW2_YIELDS)
		return qcow2_snapshot_yield(p);
	p->walks_done += ret == 0;
	return ret;
}

/* The tables that a create counts, or an apply: of the disk, of the snapshot. */
static struct qcow2_walk raising_walk(const struct qcow2_snapshot_op *p)
{
	uint32_t entries = p->o->t->l1_entries;

	return (struct qcow2_walk){
		.l1 = qcow2_op_is_apply(p) ? p->l1 : NULL,
		.l1_entries = qcow2_op_is_apply(p) ? MIN(entries, p->snapshot.l1_entries) : entries,
		.addend = 1,
	};
}

static int step_judge(struct qcow2_snapshot_op *p)
{
	struct qcow2_walk what = raising_walk(p);

	what.judges = true;
	return walk(p, &what);
}

static int step_raise(struct qcow2_snapshot_op *p)
{
	struct qcow2_walk what = raising_walk(p);
	int ret = walk(p, &what);

	p->is_raised = true;
	p->raised_items = p->walk.item_nr;
	return ret;
}

static int step_judge_lower(struct qcow2_snapshot_op *p)
{
	const struct qcow2_walk what = {
		.l1 = p->l1, .l1_entries = p->snapshot.l1_entries, .addend = -1, .judges = true
	};

	return walk(p, &what);
}

static int step_lower(struct qcow2_snapshot_op *p)
{
	struct qcow2_walk what = { .l1 = p->l1,
				   .l1_entries = p->snapshot.l1_entries,
				   .addend = -1 };

	if (qcow2_op_is_apply(p)) {
		what.l1 = p->old_l1;
		what.l1_entries = p->o->t->l1_entries;
	}
	return walk(p, &what);
}

static int step_copied(struct qcow2_snapshot_op *p)
{
	const struct qcow2_walk what = { .l1_entries = p->o->t->l1_entries };

	return walk(p, &what);
}

/* ---- clusters for tables ---- */

/* One after the other, as tables lie. */
static int take_clusters(struct qcow2_snapshot_op *p, uint64_t wanted, uint64_t *ret_host)
{
	const struct qcow2_tables *t = p->o->t;
	uint64_t host, nr;
	bool is_fresh;
	int ret;

	/* Each block of counts begins with its own cluster. */
	if (wanted >= 1ull << t->g.refblock_bits) {
		snprintf(p->words, sizeof(p->words),
			 "a table of %llu clusters one after the other is needed: the clusters of "
			 "this image are too small for its size",
			 (unsigned long long)wanted);
		return -ENOSPC;
	}
	while (p->taken_nr < wanted) {
		if (!qcow2_freed_has_room(t, 1))
			return qcow2_owner_hold(p->o, &p->s);
		ret = qcow2_clusters_take(p->o, &p->s, wanted - p->taken_nr, &host, &nr, &is_fresh);
		if (ret != 0)
			return ret;
		if (p->taken_nr && host != p->taken_host + p->taken_nr * qcow2_op_cluster(p)) {
			qcow2_freed_add(p->o->t, p->taken_host, p->taken_nr * qcow2_op_cluster(p));
			p->taken_nr = 0;
		}
		p->taken_host = p->taken_nr ? p->taken_host : host;
		p->taken_nr += nr;
	}
	*ret_host = p->taken_host;
	p->taken_nr = 0;
	return 0;
}

static int step_take_l1(struct qcow2_snapshot_op *p)
{
	int ret = take_clusters(p, qcow2_op_l1_bytes(p) / qcow2_op_cluster(p), &p->l1_host);

	if (ret == 0)
		p->l1_clusters = qcow2_op_l1_bytes(p) / qcow2_op_cluster(p);
	return ret;
}

static int step_take_table(struct qcow2_snapshot_op *p)
{
	uint64_t nr = round_up(p->next->raw_bytes, qcow2_op_cluster(p)) / qcow2_op_cluster(p);
	int ret = nr ? take_clusters(p, nr, &p->table_host) : 0;

	if (ret == 0)
		p->table_clusters = nr;
	return ret;
}

/* What is written from here on must be there when the header names it: qcow2_step_header. */
static int step_begin_writes(struct qcow2_snapshot_op *p)
{
	p->losses = qcow2_losses(p->d);
	return 0;
}

/* ---- it is durable: what it replaces is given up ---- */

static void give_up(struct qcow2_snapshot_op *p, uint64_t host, uint64_t bytes)
{
	if (bytes)
		qcow2_freed_add(p->o->t, host, round_up(bytes, qcow2_op_cluster(p)));
}

static int step_adopt(struct qcow2_snapshot_op *p)
{
	struct qcow2_tables *t = p->o->t;
	uint64_t old_offset = p->d->header.snapshots_offset;

	if (!qcow2_freed_has_room(t, 2))
		return qcow2_owner_hold(p->o, &p->s);
	if (p->d->snapshots)
		give_up(p, old_offset, p->d->snapshots->raw_bytes);
	if (!qcow2_op_is_create(p))
		give_up(p, p->snapshot.l1_offset, (uint64_t)p->snapshot.l1_entries * 8);
	t->snapshots_offset = p->header.snapshots_offset;
	t->snapshots_bytes = p->next->raw_bytes;
	p->d->header = p->header;
	p->is_adopted = true;
	return 0;
}

static int step_adopt_l1(struct qcow2_snapshot_op *p)
{
	struct qcow2_tables *t = p->o->t;

	if (!qcow2_freed_has_room(t, 1))
		return qcow2_owner_hold(p->o, &p->s);
	give_up(p, t->l1_offset, qcow2_op_l1_bytes(p));
	for (uint32_t i = 0; i < t->l1_entries; i++) {
		uint64_t entry = i < p->snapshot.l1_entries ? p->l1[i] & ~QCOW2_COPIED : 0;

		p->old_l1[i] = atomic_load_explicit(&t->l1[i], memory_order_relaxed);
		atomic_store_explicit(&t->l1[i], entry, memory_order_relaxed);
	}
	p->d->header = p->header;
	qcow2_tables_set_l1(t, p->header.l1_offset);
	p->is_adopted = true;
	return 0;
}

/* ---- taken back ---- */

static int step_undo_raise(struct qcow2_snapshot_op *p)
{
	struct qcow2_walk what = raising_walk(p);

	if (p->raised_items == 0)
		return 0;
	what.addend = -1;
	what.items_max = p->raised_items;
	return walk(p, &what);
}

static int step_undo_take(struct qcow2_snapshot_op *p)
{
	if (!qcow2_freed_has_room(p->o->t, 3))
		return qcow2_owner_hold(p->o, &p->s);
	give_up(p, p->l1_host, p->l1_clusters * qcow2_op_cluster(p));
	give_up(p, p->table_host, p->table_clusters * qcow2_op_cluster(p));
	give_up(p, p->taken_host, p->taken_nr * qcow2_op_cluster(p));
	return 0;
}

/* Only where it went. */
static int step_undo_copied(struct qcow2_snapshot_op *p)
{
	return qcow2_op_is_create(p) && p->is_raised ? step_copied(p) : 0;
}

qcow2_snapshot_step *const qcow2_create_steps[] = {
	step_judge,
	step_take_l1,
	step_take_table,
	step_hold_changes,
	step_settle,
	step_raise,
	step_grace,
	/* What the header is to name. */
	step_begin_writes,
	qcow2_step_write_l1,
	qcow2_step_write_table,
	step_commit,
	qcow2_step_header,
	step_adopt,
	NULL,
};

qcow2_snapshot_step *const qcow2_delete_steps[] = {
	qcow2_step_read_l1,
	step_judge_lower,
	step_take_table,
	/* What the header is to name. */
	step_begin_writes,
	qcow2_step_write_table,
	step_commit,
	qcow2_step_header,
	step_adopt,
	step_lower,
	step_hold_changes,
	step_reap,
	step_copied,
	step_commit,
	NULL,
};
qcow2_snapshot_step *const qcow2_apply_steps[] = {
	qcow2_step_read_l1,
	step_judge,
	step_take_l1,
	step_hold_all,
	step_settle,
	step_raise,
	/* What the header is to name. */
	step_begin_writes,
	qcow2_step_write_l1,
	step_commit,
	qcow2_step_header,
	step_adopt_l1,
	step_lower,
	step_reap,
	step_copied,
	step_commit,
	NULL,
};

qcow2_snapshot_step *const qcow2_undo_steps[] = {
	step_undo_raise, step_undo_take, step_reap, step_undo_copied, step_commit, NULL,
};
