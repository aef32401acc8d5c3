/*
 * The owner: questions come in, wait for what they need, and are answered. One reactor, that of
 * queue 0; queues of others reach it by mail. Owns what is under way for the tables.
 *
 * Happy path: qcow2_owner_ask -> a handler -> qcow2_io_answered. Failure modes: a slice or a table
 * that cannot be read or written fails the questions that wait for it, and no others.
 */
#include "backends/qcow2/qcow2_owner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/util.h"
#include "backends/qcow2/qcow2_snapshot_change.h"

static void owner_run(struct qcow2_owner *o, struct qcow2_io *s);

/* ---- answers ---- */

static void answered_by_mail(struct mail *mail)
{
	qcow2_io_answered(container_of(mail, struct qcow2_io, mail));
}

static void owner_answer(struct qcow2_owner *o, struct qcow2_io *s, int answer)
{
	struct reactor *home = s->io->queue->reactor;

	if (answer < 0 && (s->ask == QCOW2_ASK_PUBLISH || s->ask == QCOW2_ASK_ABORT))
		qcow2_alloc_abandon(o, s);
	s->answer = answer;
	if (s->ask == QCOW2_ASK_SNAPSHOT)
		qcow2_snapshot_answered(o, s, answer);
	else if (home == o->reactor)
		qcow2_io_answered(s);
	else
		reactor_post(home, &s->mail, answered_by_mail);
}

void qcow2_owner_wake(struct qcow2_owner *o, struct list_node *waiters, int result)
{
	struct list_node woken, *node;

	list_init(&woken);
	list_splice(&woken, waiters);
	while ((node = list_pop_front(&woken))) {
		struct qcow2_io *s = list_entry(node, struct qcow2_io, waiting);

		if (result < 0)
			owner_answer(o, s, result);
		else
			owner_run(o, s);
	}
}

int qcow2_owner_starve(struct qcow2_owner *o, struct qcow2_io *s)
{
	list_push_back(&o->starved, &s->waiting);
	return QCOW2_WAITS;
}

void qcow2_owner_has_own(struct qcow2_owner *o)
{
	if (qcow2_owner_commits(o))
		qcow2_commit_pump(&o->commit);
	qcow2_owner_wake(o, &o->starved, 0);
}

/* ---- slices ---- */

static void load_ended(struct qcow2_own *own, int result)
{
	struct qcow2_load *load = own->arg;
	struct qcow2_owner *o = own->owner;
	struct list_node waiters, *node;
	struct qcow2_slot *slot = NULL;

	list_init(&waiters);
	list_splice(&waiters, &load->waiters);
	if (result == 0 && !load->is_stale)
		slot = qcow2_tables_install(o->t, load->at, own->own->buf, load->is_l2);
	load->own = NULL;
	qcow2_own_release(o->q, own);
	if (result == 0 && !slot && !load->is_stale) {
		/* Every slot that it could have is dirty. */
		while ((node = list_pop_front(&waiters)))
			qcow2_owner_hold(o, list_entry(node, struct qcow2_io, waiting));
	}
	qcow2_owner_wake(o, &waiters, result);
	qcow2_owner_has_own(o);
}

static struct qcow2_load *load_find(struct qcow2_owner *o, uint64_t at)
{
	for (unsigned i = 0; i < ARRAY_SIZE(o->load); i++)
		if (o->load[i].own && o->load[i].at == at && !o->load[i].is_stale)
			return &o->load[i];
	return NULL;
}

void qcow2_owner_forget_loads(struct qcow2_owner *o, uint64_t at)
{
	for (unsigned i = 0; i < ARRAY_SIZE(o->load); i++)
		if (o->load[i].at >= at && o->load[i].at < at + qcow2_cluster_bytes(&o->t->g))
			o->load[i].is_stale = true;
}

static struct qcow2_load *load_begin(struct qcow2_owner *o, uint64_t at, bool is_l2)
{
	struct qcow2_own *own = qcow2_own_take(o->q, true);
	struct qcow2_load *load = o->load;

	if (!own)
		return NULL;
	while (load->own)
		load++;
	load->own = own;
	load->at = at;
	load->is_l2 = is_l2;
	load->is_stale = false;
	own->arg = load;
	own->owner = o;
	qcow2_own_submit(own, o->d->data_idx, BACKEND_READ, at, NULL, o->t->slice_bytes,
			 load_ended);
	return load;
}

int qcow2_owner_slot(struct qcow2_owner *o, struct qcow2_io *s, uint64_t at, bool is_l2,
		     struct qcow2_slot **ret_slot)
{
	struct qcow2_slot *slot = qcow2_slot_find(o->t, at);
	struct qcow2_load *load;

	if (slot) {
		/* A table in use as two: the image is corrupt, and gets no worse. */
		if (slot->is_l2 != is_l2)
			return -EIO;
		qcow2_slot_touch(slot);
		*ret_slot = slot;
		return 0;
	}
	load = load_find(o, at);
	if (!load)
		load = load_begin(o, at, is_l2);
	if (!load)
		return qcow2_owner_starve(o, s);
	list_push_back(&load->waiters, &s->waiting);
	return QCOW2_WAITS;
}

/* ---- the commit, by own requests ---- */

static void commit_io_ended(struct qcow2_own *own, int result)
{
	struct qcow2_owner *o = own->owner;
	struct qcow2_commit_io io = o->committing[own - o->q->own];

	io.buf = io.buf ? io.buf : own->own->buf;
	/* Before the request may be another's: a READ's bytes are in its buffer. */
	if (io.op == BACKEND_READ && result == 0)
		qcow2_tables_install(o->t, io.at, io.buf, false);
	qcow2_own_release(o->q, own);
	qcow2_commit_ended(&o->commit, &io, result);
	qcow2_owner_wake(o, &o->starved, 0);
}

static bool owner_issue(struct qcow2_commit *c, const struct qcow2_commit_io *io)
{
	struct qcow2_owner *o = container_of(c, struct qcow2_owner, commit);
	struct qcow2_own *own = qcow2_own_take(o->q, true);

	if (!own)
		return false;
	own->owner = o;
	o->committing[own - o->q->own] = *io;
	if (io->fill)
		io->fill(c, own->own->buf, io->at, io->bytes);
	qcow2_own_submit(own, io->child_idx, io->op, io->at, io->buf, io->bytes, commit_io_ended);
	return true;
}

static bool commit_is_quiet(struct qcow2_commit *c, unsigned epoch_idx)
{
	struct qcow2_owner *o = container_of(c, struct qcow2_owner, commit);

	qcow2_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < o->queue_nr; i++)
		if (o->queues[i] && atomic_load_explicit(&o->queues[i]->moving[epoch_idx],
							 memory_order_acquire) > 0)
			return false;
	return true;
}

static void commit_freed_cluster(struct qcow2_commit *c, uint64_t cluster)
{
	struct qcow2_owner *o = container_of(c, struct qcow2_owner, commit);

	o->next_cluster = MIN(o->next_cluster, cluster);
}

static void owner_commit_later(struct task *task);

static void commit_done(struct qcow2_commit *c, int result)
{
	struct qcow2_owner *o = container_of(c, struct qcow2_owner, commit);
	struct list_node flushes, held, *node;

	/* What was lost is told to the FLUSHes; the others need not fail. */
	bool again = result < 0 && !o->commits_again && c->flush_failed;

	list_init(&flushes);
	list_init(&held);
	list_splice(&flushes, &o->flushes);
	if (!again)
		list_splice(&held, &o->held);
	o->commits_again = again && !list_empty(&o->held);
	qcow2_jobs_enter(o);
	while ((node = list_pop_front(&flushes)))
		owner_answer(o, list_entry(node, struct qcow2_io, waiting), result);
	qcow2_owner_wake(o, &held, result);
	if (o->commits_again)
		reactor_defer(o->reactor, &o->commit_task, owner_commit_later);
}

void qcow2_owner_commit(struct qcow2_owner *o)
{
	if (!qcow2_owner_commits(o))
		qcow2_commit_begin(&o->commit);
}

/* Only while somebody waits for it: no queue is closed while a request is out, but of the guest's.
 */
static void owner_commit_later(struct task *task)
{
	struct qcow2_owner *o = container_of(task, struct qcow2_owner, commit_task);

	if (!list_empty(&o->held))
		qcow2_owner_commit(o);
}

int qcow2_owner_hold(struct qcow2_owner *o, struct qcow2_io *s)
{
	list_push_back(&o->held, &s->waiting);
	/* Not from inside of a handler, which may be a commit's own. */
	reactor_defer(o->reactor, &o->commit_task, owner_commit_later);
	return QCOW2_WAITS;
}

/* ---- questions ---- */

static int handle_map(struct qcow2_owner *o, struct qcow2_io *s)
{
	uint64_t at = s->bounce.own ? s->bounce.filled : qcow2_now(s);
	struct qcow2_slot *slot;
	struct qcow2_run run;

	qcow2_lookup(o->t, at, 1, NULL, &run);
	return run.kind == QCOW2_MISS ? qcow2_owner_slot(o, s, run.slice_at, true, &slot) : 0;
}

/* All requests are stopped, or not any more; or for ever. */
static int handle_pass(struct qcow2_owner *o, struct qcow2_io *s)
{
	(void)s;
	return atomic_load(&o->d->failure) ? -EIO : 0;
}

static int handle_flush(struct qcow2_owner *o, struct qcow2_io *s)
{
	int ret = handle_pass(o, s);

	if (ret < 0)
		return ret;
	if (qcow2_owner_commits(o)) {
		list_push_back(&o->held, &s->waiting);
		return QCOW2_WAITS;
	}
	s->flushes_itself = !qcow2_tables_are_dirty(o->t);
	if (s->flushes_itself)
		return 0;
	list_push_back(&o->flushes, &s->waiting);
	qcow2_owner_commit(o);
	return QCOW2_WAITS;
}

static void owner_run(struct qcow2_owner *o, struct qcow2_io *s)
{
	static int (*const handler[])(struct qcow2_owner *, struct qcow2_io *) = {
		[QCOW2_ASK_MAP] = handle_map,
		[QCOW2_ASK_ALLOC] = qcow2_handle_alloc,
		[QCOW2_ASK_PUBLISH] = qcow2_handle_publish,
		[QCOW2_ASK_ABORT] = qcow2_handle_abort,
		[QCOW2_ASK_UNMAP] = qcow2_handle_unmap,
		[QCOW2_ASK_FLUSH] = handle_flush,
		[QCOW2_ASK_PASS] = handle_pass,
		[QCOW2_ASK_SNAPSHOT] = qcow2_handle_snapshot,
	};
	int ret;

	if (qcow2_snapshot_holds(o, s))
		return;
	ret = handler[s->ask](o, s);
	if (ret != QCOW2_WAITS)
		owner_answer(o, s, ret);
}

static void run_asked(struct task *task)
{
	struct qcow2_owner *o = container_of(task, struct qcow2_owner, task);

	qcow2_owner_wake(o, &o->asked, 0);
}

void qcow2_owner_ask_again(struct qcow2_owner *o)
{
	reactor_defer(o->reactor, &o->task, run_asked);
}

static void asked_by_mail(struct mail *mail)
{
	struct qcow2_io *s = container_of(mail, struct qcow2_io, mail);

	owner_run(qcow2_device_of(s)->owner, s);
}

void qcow2_owner_ask(struct qcow2_io *s, enum qcow2_ask ask)
{
	struct qcow2_owner *o = qcow2_device_of(s)->owner;

	qcow2_moving_end(s);
	__atomic_store_n(&s->ask, ask, __ATOMIC_RELAXED);
	qcow2_set_state(s, QCOW2_ASKING);
	if (s->io->queue->reactor != o->reactor) {
		reactor_post(o->reactor, &s->mail, asked_by_mail);
		return;
	}
	list_push_back(&o->asked, &s->waiting);
	reactor_defer(o->reactor, &o->task, run_asked);
}

static void cancel_tables(struct qcow2_owner *o)
{
	for (unsigned i = 0; i < QCOW2_OWN_NR; i++)
		if (o->q->own[i].is_table)
			backend_own_cancel(o->q->own[i].own);
}

static void cancelled_by_mail(struct mail *mail)
{
	qcow2_io_cancelled(container_of(mail, struct qcow2_io, cancel_mail));
}

static void cancel_by_mail(struct mail *mail)
{
	struct qcow2_io *s = container_of(mail, struct qcow2_io, cancel_mail);

	cancel_tables(qcow2_device_of(s)->owner);
	reactor_post(s->io->queue->reactor, mail, cancelled_by_mail);
}

void qcow2_owner_cancel(struct qcow2_io *s)
{
	struct qcow2_owner *o = qcow2_device_of(s)->owner;

	if (s->io->queue->reactor == o->reactor) {
		cancel_tables(o);
		return;
	}
	s->is_cancelling = true;
	reactor_post(o->reactor, &s->cancel_mail, cancel_by_mail);
}

bool qcow2_owner_is_dirty(const struct qcow2_owner *o)
{
	return atomic_load_explicit(&o->t->is_changed, memory_order_acquire);
}

/* ---- life ---- */

struct qcow2_owner *qcow2_owner_new(struct qcow2_device *d)
{
	struct qcow2_owner *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->d = d;
	o->t = d->t;
	o->queue_nr = MAX(d->device->open_params.queue_nr, 1u);
	o->queues = calloc(o->queue_nr, sizeof(*o->queues));
	list_init(&o->asked);
	list_init(&o->starved);
	list_init(&o->held);
	list_init(&o->allocs);
	list_init(&o->flushes);
	for (unsigned i = 0; i < ARRAY_SIZE(o->load); i++)
		list_init(&o->load[i].waiters);
	for (unsigned i = 0; i < ARRAY_SIZE(o->job); i++)
		list_init(&o->job[i].waiters);
	if (!o->queues || qcow2_commit_init(&o->commit, d) < 0) {
		qcow2_owner_free(o);
		return NULL;
	}
	o->commit.issue = owner_issue;
	o->commit.done = commit_done;
	o->commit.is_quiet = commit_is_quiet;
	o->commit.freed_cluster = commit_freed_cluster;
	return o;
}

void qcow2_owner_free(struct qcow2_owner *o)
{
	if (!o)
		return;
	qcow2_commit_fini(&o->commit);
	free(o->queues);
	free(o);
}

void qcow2_owner_add_queue(struct qcow2_owner *o, struct qcow2_queue *q)
{
	unsigned idx = q->queue->idx;

	ASSERT(idx < o->queue_nr);
	o->queues[idx] = q;
	if (idx == 0) {
		o->q = q;
		o->reactor = q->queue->reactor;
	}
}

void qcow2_owner_remove_queue(struct qcow2_owner *o, struct qcow2_queue *q)
{
	o->queues[q->queue->idx] = NULL;
	if (o->q != q)
		return;
	o->reactor = NULL;
	task_cancel(&o->task);
	task_cancel(&o->commit_task);
}
