/*
 * Tables that are made: an L2 table for a part of the disk where nothing was ever written, a copy
 * of one that a snapshot has too, a block of reference counts. The owner's reactor.
 *
 * Happy path: a cluster is taken -> written, piece by piece -> entered into L1 or the reference
 * count table, not while a commit is under way -> those who wait are asked again. A new table is on
 * the disk before anything names it, so a commit may write L1 and the entries of the new table at
 * the same time: what the disk has of it is zeroes or all. A block of reference counts is durable
 * before, as it is not undone (qcow2_undo.c).
 *
 * Failure modes: a write fails: those who wait fail, and the cluster is given up.
 */
#include <errno.h>
#include <string.h>

#include "backends/qcow2/qcow2_owner.h"
#include "base/assert.h"
#include "base/util.h"

/* Tries to make a block of reference counts durable. */
#define FLUSHES_NR 3u

static struct qcow2_job *job_find(struct qcow2_owner *o, bool is_refblock, uint64_t idx)
{
	for (unsigned i = 0; i < QCOW2_JOBS_NR; i++)
		if (o->job[i].own && o->job[i].is_refblock == is_refblock && o->job[i].idx == idx)
			return &o->job[i];
	return NULL;
}

static struct qcow2_job *job_unused(struct qcow2_owner *o)
{
	for (unsigned i = 0; i < QCOW2_JOBS_NR; i++)
		if (!o->job[i].own)
			return &o->job[i];
	return NULL;
}

static int job_wait(struct qcow2_job *job, struct qcow2_io *s)
{
	list_push_back(&job->waiters, &s->waiting);
	return QCOW2_WAITS;
}

/* ---- its end ---- */

static void job_end(struct qcow2_owner *o, struct qcow2_job *job, int result)
{
	struct list_node waiters;

	list_init(&waiters);
	list_splice(&waiters, &job->waiters);
	o->t->freed_promised -= job->old != 0;
	qcow2_own_release(o->q, job->own);
	job->own = NULL;
	qcow2_owner_wake(o, &waiters, result);
	qcow2_owner_has_own(o);
}

static void job_begin_anew(struct qcow2_owner *o, struct qcow2_job *job);

static void enter_l2(struct qcow2_tables *t, struct qcow2_job *job)
{
	const struct qcow2_undo undo = {
		.kind = QCOW2_UNDO_TABLE,
		.what = job->idx,
		.old = atomic_load_explicit(&t->l1[job->idx], memory_order_relaxed),
		.host = job->host,
		.is_new = true,
	};

	qcow2_undo_add(t, &undo, job->losses);
	qcow2_mark_l1(t, job->idx);
	atomic_store_explicit(&t->l1[job->idx], job->host | QCOW2_COPIED, memory_order_release);
	qcow2_taken_end(t, job->taken_idx);
}

/* No commit is under way. */
static void job_enter(struct qcow2_owner *o, struct qcow2_job *job)
{
	struct qcow2_tables *t = o->t;

	/* What it has written is perhaps lost. */
	if (job->losses != qcow2_losses(o->d)) {
		job_begin_anew(o, job);
		return;
	}
	if (qcow2_undo_is_wanted(&o->commit))
		qcow2_undo_run(&o->commit);
	if (job->is_refblock) {
		qcow2_mark_reftable(t, job->idx);
		atomic_store_explicit(&t->reftable[job->idx], job->host, memory_order_relaxed);
		if (job->host + qcow2_cluster_bytes(&t->g) > atomic_load(&t->end_bytes))
			qcow2_tables_set_end(t, job->host + qcow2_cluster_bytes(&t->g));
	} else {
		enter_l2(t, job);
	}
	job_end(o, job, 0);
}

void qcow2_jobs_enter(struct qcow2_owner *o)
{
	for (unsigned i = 0; i < QCOW2_JOBS_NR; i++)
		if (o->job[i].own && o->job[i].is_ready && !qcow2_owner_commits(o))
			job_enter(o, &o->job[i]);
}

static void job_fail(struct qcow2_owner *o, struct qcow2_job *job, int err)
{
	/* No table names it: what is noted here falls with the next commit. */
	if (!job->is_refblock) {
		qcow2_taken_end(o->t, job->taken_idx);
		if (qcow2_freed_has_room(o->t, 1))
			qcow2_freed_add(o->t, job->host, qcow2_cluster_bytes(&o->t->g));
	}
	job_end(o, job, err);
}

/* ---- its bytes ---- */

static void job_go_on(struct qcow2_job *job);

static uint32_t job_bytes(const struct qcow2_owner *o, const struct qcow2_job *job)
{
	return (uint32_t)MIN(qcow2_cluster_bytes(&o->t->g) - job->at, o->d->chunk_bytes);
}

static void job_ready(struct qcow2_owner *o, struct qcow2_job *job)
{
	job->is_ready = true;
	if (!qcow2_owner_commits(o))
		job_enter(o, job);
}

static void job_begin_anew(struct qcow2_owner *o, struct qcow2_job *job)
{
	job->losses = qcow2_losses(o->d);
	job->at = 0;
	job->is_ready = false;
	job_go_on(job);
}

/* What was perhaps lost is written again, some times. */
static void job_flushed(struct qcow2_own *own, int result)
{
	struct qcow2_job *job = own->arg;
	struct qcow2_owner *o = own->owner;

	if (result == 0)
		job_ready(o, job);
	else if (++job->flush_nr == FLUSHES_NR)
		job_fail(o, job, result);
	else
		job_begin_anew(o, job);
}

static void job_written(struct qcow2_own *own, int result)
{
	struct qcow2_job *job = own->arg;
	struct qcow2_owner *o = own->owner;

	if (result < 0) {
		job_fail(o, job, result);
		return;
	}
	job->at += job_bytes(o, job);
	if (job->at < qcow2_cluster_bytes(&o->t->g)) {
		job_go_on(job);
		return;
	}
	if (job->is_refblock)
		qcow2_own_submit(own, o->d->data_idx, BACKEND_FLUSH, 0, NULL, 0, job_flushed);
	else
		job_ready(o, job);
}

static void job_write(struct qcow2_owner *o, struct qcow2_job *job)
{
	qcow2_own_submit(job->own, o->d->data_idx, BACKEND_WRITE, job->host + job->at, NULL,
			 job_bytes(o, job), job_written);
}

/*
 * The table that is copied is as on the disk, unless a process has died in a create: what it had
 * not written yet is in the cache alone.
 */
static void job_take_dirty(const struct qcow2_owner *o, const struct qcow2_job *job, uint8_t *buf)
{
	const struct qcow2_tables *t = o->t;

	for (uint32_t at = 0; at < job_bytes(o, job); at += t->slice_bytes) {
		struct qcow2_slot *slot = qcow2_slot_find(t, job->old + job->at + at);

		if (slot && (atomic_load_explicit(&slot->is_dirty, memory_order_relaxed) ||
			     slot->is_writing))
			memcpy(buf + at, qcow2_slot_data(t, slot), t->slice_bytes);
	}
}

static void job_read(struct qcow2_own *own, int result)
{
	struct qcow2_job *job = own->arg;

	if (result < 0) {
		job_fail(own->owner, job, result);
		return;
	}
	job_take_dirty(own->owner, job, own->own->buf);
	job_write(own->owner, job);
}

/* The block counts its own cluster. */
static void fill_refblock(const struct qcow2_owner *o, const struct qcow2_job *job, void *buf)
{
	const struct qcow2_geometry *g = &o->t->g;
	uint64_t idx = (job->host >> g->cluster_bits) & ((1ull << g->refblock_bits) - 1);
	uint64_t at = ((idx << g->refcount_order) / 8) & ~7ull;
	unsigned first = (unsigned)(at * 8 >> g->refcount_order);

	if (at >= job->at && at < job->at + job_bytes(o, job))
		qcow2_refcount_set((uint8_t *)buf + (at - job->at), g->refcount_order,
				   (unsigned)idx - first, 1);
}

static void job_go_on(struct qcow2_job *job)
{
	struct qcow2_owner *o = job->own->owner;
	void *buf = job->own->own->buf;

	if (job->old) {
		qcow2_own_submit(job->own, o->d->data_idx, BACKEND_READ, job->old + job->at, NULL,
				 job_bytes(o, job), job_read);
		return;
	}
	memset(buf, 0, job_bytes(o, job));
	if (job->is_refblock)
		fill_refblock(o, job, buf);
	job_write(o, job);
}

/* ---- its beginning ---- */

static void job_begin(struct qcow2_owner *o, struct qcow2_job *job, struct qcow2_own *own,
		      bool is_refblock, uint64_t idx, uint64_t host)
{
	qcow2_tables_forget(o->t, host);
	qcow2_owner_forget_loads(o, host);
	job->own = own;
	job->is_refblock = is_refblock;
	job->is_ready = false;
	job->idx = idx;
	job->host = host;
	job->old = 0;
	job->at = 0;
	job->losses = qcow2_losses(o->d);
	job->flush_nr = 0;
	own->arg = job;
	own->owner = o;
}

int qcow2_job_l2(struct qcow2_owner *o, struct qcow2_io *s, uint64_t l1_idx)
{
	struct qcow2_job *job = job_find(o, false, l1_idx);
	struct qcow2_own *own;
	uint64_t host = 0, nr = 0;
	bool is_fresh = false;
	int ret;

	if (job)
		return job_wait(job, s);
	job = job_unused(o);
	own = job ? qcow2_own_take(o->q, true) : NULL;
	if (!own)
		return qcow2_owner_starve(o, s);
	ret = qcow2_freed_has_room(o->t, 2) && qcow2_undo_has_room(o->t, 1)
		      ? qcow2_clusters_take(o, s, 1, &host, &nr, &is_fresh)
		      : qcow2_owner_hold(o, s);
	if (ret != 0) {
		qcow2_own_release(o->q, own);
		return ret;
	}
	job_begin(o, job, own, false, l1_idx, host);
	job->taken_idx = qcow2_taken_add(o->t, QCOW2_TAKEN_TABLE, l1_idx, host, 1);
	job->old =
		atomic_load_explicit(&o->t->l1[l1_idx], memory_order_relaxed) & QCOW2_OFFSET_MASK;
	o->t->freed_promised += job->old != 0;
	job_wait(job, s);
	job_go_on(job);
	return QCOW2_WAITS;
}

int qcow2_job_refblock(struct qcow2_owner *o, struct qcow2_io *s, uint64_t idx, uint64_t cluster)
{
	struct qcow2_job *job = job_find(o, true, idx);
	struct qcow2_own *own;

	if (job)
		return job_wait(job, s);
	job = job_unused(o);
	own = job ? qcow2_own_take(o->q, true) : NULL;
	if (!own)
		return qcow2_owner_starve(o, s);
	job_begin(o, job, own, true, idx, cluster << o->t->g.cluster_bits);
	job_wait(job, s);
	job_go_on(job);
	return QCOW2_WAITS;
}
