/*
 * The steps of a change of snapshots; their order is that of qcow2_snapshot_change.h. The owner's
 * reactor.
 *
 * Happy path: a step is called until it returns 0, again whenever what it has waited for has come.
 * Failure modes: the header cannot be written: the one before is, so that nothing has changed;
 * where that fails too, nothing that the new one may name is given back.
 */
#include "backends/qcow2/qcow2_snapshot_op.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static uint64_t op_cluster(const struct qcow2_snapshot_op *p)
{
	return qcow2_cluster_bytes(&p->o->t->g);
}

static bool is_create(const struct qcow2_snapshot_op *p)
{
	return p->change->op == BACKEND_SNAPSHOT_CREATE;
}

static bool is_apply(const struct qcow2_snapshot_op *p)
{
	return p->change->op == BACKEND_SNAPSHOT_APPLY;
}

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

/* Counts of what was given up have fallen. */
static int step_reap(struct qcow2_snapshot_op *p)
{
	if (p->o->t->freed_nr == 0)
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

/* ---- requests of its own ---- */

static void op_io_ended(struct qcow2_own *own, int result)
{
	struct qcow2_snapshot_op *p = own->arg;

	p->io_result = result;
	p->io_ended = true;
	qcow2_snapshot_yield(p);
}

static int take_own(struct qcow2_snapshot_op *p)
{
	if (p->own)
		return 0;
	p->own = qcow2_own_take(p->o->q, true);
	if (!p->own)
		return qcow2_owner_starve(p->o, &p->s);
	p->own->arg = p;
	p->own->owner = p->o;
	return 0;
}

void qcow2_snapshot_drop_own(struct qcow2_snapshot_op *p)
{
	if (!p->own)
		return;
	qcow2_own_release(p->o->q, p->own);
	p->own = NULL;
	qcow2_owner_has_own(p->o);
}

/* By p->own and its buffer; to be called again until it does not return WAITS. */
static int op_io(struct qcow2_snapshot_op *p, unsigned child_idx, enum backend_op op, uint64_t at,
		 uint64_t bytes)
{
	if (!p->io_ended) {
		qcow2_own_submit(p->o->q, p->own, child_idx, op, at, NULL, bytes, op_io_ended);
		return QCOW2_WAITS;
	}
	p->io_ended = false;
	return p->io_result;
}

static uint64_t op_chunk(const struct qcow2_snapshot_op *p, uint64_t left)
{
	return MIN(left, (uint64_t)p->d->chunk_bytes);
}

/* Writes bytes from `at` on; fill fills the buffer. */
static int write_table_at(struct qcow2_snapshot_op *p, uint64_t host, uint64_t bytes,
			  void (*fill)(const struct qcow2_snapshot_op *p, void *buf, uint64_t at,
				       uint64_t bytes))
{
	while (p->at < bytes) {
		uint64_t chunk = op_chunk(p, bytes - p->at);
		int ret = take_own(p);

		if (ret != 0)
			return ret;
		if (!p->io_ended)
			fill(p, p->own->own->buf, p->at, chunk);
		ret = op_io(p, p->d->data_idx, BACKEND_WRITE, host + p->at, chunk);
		if (ret != 0)
			return ret;
		p->at += chunk;
	}
	qcow2_snapshot_drop_own(p);
	return 0;
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
		.l1 = is_apply(p) ? p->l1 : NULL,
		.l1_entries = is_apply(p) ? MIN(entries, p->snapshot.l1_entries) : entries,
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

	if (is_apply(p)) {
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

/* ---- the L1 table of the snapshot ---- */

static int judge_entry(struct qcow2_snapshot_op *p, uint64_t entry)
{
	const struct qcow2_tables *t = p->o->t;
	uint64_t table = entry & QCOW2_OFFSET_MASK;

	if (table == 0)
		return 0;
	if (!(table & (op_cluster(p) - 1)) && !(entry & QCOW2_L1_RESERVED) &&
	    table < atomic_load_explicit(&t->end_bytes, memory_order_relaxed) &&
	    !qcow2_range_is_table(t, table, op_cluster(p)))
		return 0;
	snprintf(p->words, sizeof(p->words),
		 "the image is corrupt: an entry of the L1 table of the snapshot makes no sense: "
		 "repair it with qemu-img check -r all");
	return -EIO;
}

static int take_l1(struct qcow2_snapshot_op *p, uint64_t bytes)
{
	const uint64_t *from = p->own->own->buf;
	uint64_t first = p->at / 8;
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < bytes / 8; i++) {
		if (first + i >= p->snapshot.l1_entries)
			break;
		p->l1[first + i] = be64toh(from[i]);
		ret = judge_entry(p, p->l1[first + i]);
	}
	return ret;
}

static int step_read_l1(struct qcow2_snapshot_op *p)
{
	uint64_t block = p->d->device->open_params.logical_block_bytes;
	uint64_t bytes = round_up((uint64_t)p->snapshot.l1_entries * 8, block);

	while (p->at < bytes) {
		uint64_t chunk = op_chunk(p, bytes - p->at);
		int ret = take_own(p);

		if (ret == 0)
			ret = op_io(p, p->d->data_idx, BACKEND_READ, p->snapshot.l1_offset + p->at,
				    chunk);
		if (ret == 0)
			ret = take_l1(p, chunk);
		if (ret != 0)
			return ret;
		p->at += chunk;
	}
	qcow2_snapshot_drop_own(p);
	return 0;
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
		if (p->taken_nr && host != p->taken_host + p->taken_nr * op_cluster(p)) {
			qcow2_freed_add(p->o->t, p->taken_host, p->taken_nr * op_cluster(p));
			p->taken_nr = 0;
		}
		p->taken_host = p->taken_nr ? p->taken_host : host;
		p->taken_nr += nr;
	}
	*ret_host = p->taken_host;
	p->taken_nr = 0;
	return 0;
}

static uint64_t l1_bytes(const struct qcow2_snapshot_op *p)
{
	return round_up((uint64_t)p->o->t->l1_entries * 8, op_cluster(p));
}

static int step_take_l1(struct qcow2_snapshot_op *p)
{
	int ret = take_clusters(p, l1_bytes(p) / op_cluster(p), &p->l1_host);

	if (ret == 0)
		p->l1_clusters = l1_bytes(p) / op_cluster(p);
	return ret;
}

static int step_take_table(struct qcow2_snapshot_op *p)
{
	uint64_t nr = round_up(p->next->raw_bytes, op_cluster(p)) / op_cluster(p);
	int ret = nr ? take_clusters(p, nr, &p->table_host) : 0;

	if (ret == 0)
		p->table_clusters = nr;
	return ret;
}

/* ---- tables are written ---- */

static void fill_new_l1(const struct qcow2_snapshot_op *p, void *buf, uint64_t at, uint64_t bytes)
{
	const struct qcow2_tables *t = p->o->t;
	uint64_t *to = buf;

	for (uint64_t i = 0; i < bytes / 8; i++) {
		uint64_t idx = at / 8 + i, entry = 0;

		if (idx < t->l1_entries)
			entry = is_apply(p)
					? p->l1[idx]
					: atomic_load_explicit(&t->l1[idx], memory_order_relaxed);
		to[i] = htobe64(entry & ~QCOW2_COPIED);
	}
}

static int step_write_l1(struct qcow2_snapshot_op *p)
{
	return write_table_at(p, p->l1_host, l1_bytes(p), fill_new_l1);
}

static void fill_table(const struct qcow2_snapshot_op *p, void *buf, uint64_t at, uint64_t bytes)
{
	uint64_t left = p->next->raw_bytes > at ? p->next->raw_bytes - at : 0;

	memset(buf, 0, bytes);
	memcpy(buf, p->next->raw + at, MIN(bytes, left));
}

static int step_write_table(struct qcow2_snapshot_op *p)
{
	if (is_create(p) && p->at == 0)
		qcow2_snapshots_place_last(p->next, p->l1_host);
	return write_table_at(p, p->table_host, p->table_clusters * op_cluster(p), fill_table);
}

/* ---- the header ---- */

enum { HEADER_READ, HEADER_WRITE, HEADER_FLUSH, HEADER_RESTORE, HEADER_RESTORE_FLUSH };

static void set_header(struct qcow2_snapshot_op *p)
{
	if (is_apply(p)) {
		p->header.l1_offset = p->l1_host;
		return;
	}
	p->header.snapshot_nr = p->next->nr;
	p->header.snapshots_offset = p->next->nr ? p->table_host : 0;
}

static int header_io(struct qcow2_snapshot_op *p)
{
	uint64_t block = p->d->device->open_params.logical_block_bytes;
	void *buf = p->own->own->buf;

	switch (p->sub) {
	case HEADER_READ:
		return op_io(p, p->d->data_idx, BACKEND_READ, 0,
			     op_chunk(p, round_up(MAX(p->header.header_bytes, 512u), block)));
	case HEADER_WRITE:
	case HEADER_RESTORE:
		if (!p->io_ended)
			qcow2_header_update(buf,
					    p->sub == HEADER_WRITE ? &p->header : &p->d->header);
		/* All that changes is in its first sector. */
		return op_io(p, p->d->data_idx, BACKEND_WRITE, 0, block);
	default:
		return op_io(p, p->d->data_idx, BACKEND_FLUSH, 0, 0);
	}
}

/* Of a write that has failed nobody knows what is there: the header from before goes there. */
static int header_failed(struct qcow2_snapshot_op *p, int err)
{
	if (p->sub == HEADER_READ)
		return err;
	if (p->sub > HEADER_FLUSH) {
		qcow2_tables_set_l1(p->o->t, p->d->header.l1_offset);
		return p->io_result;
	}
	snprintf(p->words, sizeof(p->words), "the header of the image cannot be written");
	p->io_result = err;
	p->sub = HEADER_RESTORE;
	return 0;
}

static int step_header(struct qcow2_snapshot_op *p)
{
	int ret = take_own(p);

	while (ret == 0) {
		if (p->sub == HEADER_WRITE) {
			set_header(p);
			p->is_published = true;
			if (is_apply(p))
				qcow2_tables_unfill(p->o->t);
		}
		ret = header_io(p);
		if (ret == QCOW2_WAITS)
			return ret;
		if (ret < 0)
			ret = header_failed(p, ret);
		else if (p->sub == HEADER_FLUSH)
			break;
		else if (p->sub == HEADER_RESTORE_FLUSH) {
			p->is_published = false;
			qcow2_tables_set_l1(p->o->t, p->d->header.l1_offset);
			ret = -EIO;
		} else {
			p->sub++;
		}
	}
	if (ret <= 0)
		qcow2_snapshot_drop_own(p);
	return ret;
}

/* ---- it is durable: what it replaces is given up ---- */

static void give_up(struct qcow2_snapshot_op *p, uint64_t host, uint64_t bytes)
{
	if (bytes)
		qcow2_freed_add(p->o->t, host, round_up(bytes, op_cluster(p)));
}

static int step_adopt(struct qcow2_snapshot_op *p)
{
	struct qcow2_tables *t = p->o->t;
	uint64_t old_offset = p->d->header.snapshots_offset;

	if (!qcow2_freed_has_room(t, 2))
		return qcow2_owner_hold(p->o, &p->s);
	if (p->d->snapshots)
		give_up(p, old_offset, p->d->snapshots->raw_bytes);
	if (!is_create(p))
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
	give_up(p, t->l1_offset, l1_bytes(p));
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
	give_up(p, p->l1_host, p->l1_clusters * op_cluster(p));
	give_up(p, p->table_host, p->table_clusters * op_cluster(p));
	give_up(p, p->taken_host, p->taken_nr * op_cluster(p));
	return 0;
}

/* Only where it went. */
static int step_undo_copied(struct qcow2_snapshot_op *p)
{
	return is_create(p) && p->is_raised ? step_copied(p) : 0;
}

qcow2_snapshot_step *const qcow2_create_steps[] = {
	step_judge,    step_take_l1,	 step_take_table, step_hold_changes, step_raise, step_grace,
	step_write_l1, step_write_table, step_commit,	  step_header,	     step_adopt, NULL,
};

qcow2_snapshot_step *const qcow2_delete_steps[] = {
	step_read_l1,
	step_judge_lower,
	step_take_table,
	step_write_table,
	step_commit,
	step_header,
	step_adopt,
	step_lower,
	step_hold_changes,
	step_reap,
	step_copied,
	step_commit,
	NULL,
};

qcow2_snapshot_step *const qcow2_apply_steps[] = {
	step_read_l1,  step_judge,  step_take_l1, step_hold_all, step_raise,
	step_write_l1, step_commit, step_header,  step_adopt_l1, step_lower,
	step_reap,     step_copied, step_commit,  NULL,
};

qcow2_snapshot_step *const qcow2_undo_steps[] = {
	step_undo_raise, step_undo_take, step_reap, step_undo_copied, step_commit, NULL,
};
