/*
 * The tables on their way to the disk, so that it holds an image without corruption at every
 * moment, whatever of what has not been flushed gets lost. The owner's reactor; at the end, when no
 * queue is open, the control reactor.
 *
 *   REFCOUNTS    counts, among them those of new clusters
 *   REFTABLE     the table of reference counts names new blocks of them, which are durable
 *   FLUSH_BELOW  data, copies and counts are durable, and so are new tables of L2 (zeroes)
 *   L2           ... before L2 names them; L1, which names new tables of L2
 *   FLUSH        all of it is durable: FLUSH of the guest is answered
 *   REAP         what no table on the disk names any more: counts fall, in memory
 *
 * No entry of L2 or L1 is changed meanwhile; reads and writes in place go on.
 *
 * Failure modes: a write or a FLUSH fails, or the storage has lost writes since the commit began:
 * all that it has written is dirty again, as none of it need be there, the FLUSHes that waited
 * fail, and the next commit tries again. What no table in memory has is undone: qcow2_undo.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/qcow2/qcow2_owner.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"

/* What a request of a commit is about, in its upper bits; below: a slot or a chunk. */
#define WHAT_SLOT (1u << 28)
#define WHAT_L1 (2u << 28)
#define WHAT_REFTABLE (3u << 28)
#define WHAT_FLUSH (4u << 28)
#define WHAT_COUNTS (5u << 28)
#define WHAT_TRIM (6u << 28)
#define WHAT_KIND (15u << 28)

/* ---- what is dirty ---- */

static bool chunk_is_dirty(const uint64_t *bitmap, unsigned chunk)
{
	return bitmap[chunk / 64] >> (chunk % 64) & 1;
}

static void mark_chunk(uint64_t *bitmap, uint64_t entry_idx)
{
	uint64_t chunk = entry_idx * 8 / QCOW2_CHUNK_BYTES;

	bitmap[chunk / 64] |= 1ull << (chunk % 64);
}

static bool any_chunk(const uint64_t *bitmap, uint32_t entries)
{
	for (unsigned i = 0; i < round_up(qcow2_chunk_nr(entries), 64) / 64; i++)
		if (bitmap[i])
			return true;
	return false;
}

static void note_change(struct qcow2_tables *t)
{
	if (!atomic_load_explicit(&t->is_changed, memory_order_relaxed))
		atomic_store_explicit(&t->is_changed, true, memory_order_release);
}

void qcow2_mark_dirty(struct qcow2_tables *t, struct qcow2_slot *slot)
{
	note_change(t);
	if (atomic_load_explicit(&slot->is_dirty, memory_order_relaxed))
		return;
	atomic_store_explicit(&slot->is_dirty, 1, memory_order_relaxed);
	t->dirty[t->dirty_nr++] = qcow2_slot_idx(t, slot);
}

void qcow2_mark_l1(struct qcow2_tables *t, uint64_t idx)
{
	note_change(t);
	mark_chunk(t->l1_dirty, idx);
}

void qcow2_mark_reftable(struct qcow2_tables *t, uint64_t idx)
{
	note_change(t);
	mark_chunk(t->reftable_dirty, idx);
}

bool qcow2_tables_are_dirty(const struct qcow2_tables *t)
{
	return atomic_load_explicit(&t->is_changed, memory_order_relaxed);
}

static bool freed_has(const struct qcow2_tables *t, enum qcow2_freed_stage stage)
{
	for (unsigned i = 0; i < QCOW2_FREED_NR && t->freed_nr > 0; i++)
		if (t->freed[i].stage == stage)
			return true;
	return false;
}

/* ---- requests ---- */

/* L1 and the reference count table are in the host's byte order in memory. */
static void fill_from(const _Atomic uint64_t *table, uint32_t entries, uint64_t first, void *buf,
		      uint64_t bytes)
{
	uint64_t *to = buf;

	for (uint64_t i = 0; i < bytes / 8; i++)
		to[i] = first + i < entries ? htobe64(atomic_load_explicit(&table[first + i],
									   memory_order_relaxed))
					    : 0;
}

static void fill_l1(struct qcow2_commit *c, void *buf, uint64_t at, uint64_t bytes)
{
	const struct qcow2_tables *t = c->d->t;

	fill_from(t->l1, t->l1_entries, (at - t->l1_offset) / 8, buf, bytes);
}

static void fill_reftable(struct qcow2_commit *c, void *buf, uint64_t at, uint64_t bytes)
{
	const struct qcow2_tables *t = c->d->t;

	fill_from(t->reftable, t->reftable_entries, (at - t->reftable_offset) / 8, buf, bytes);
}

static bool commit_issue(struct qcow2_commit *c, const struct qcow2_commit_io *io)
{
	c->inflight++;
	if (c->issue(c, io))
		return true;
	c->inflight--;
	return false;
}

static bool issue_slot(struct qcow2_commit *c, uint32_t idx)
{
	struct qcow2_tables *t = c->d->t;
	struct qcow2_slot *slot = &t->slot[idx];
	struct qcow2_commit_io io = {
		.op = BACKEND_WRITE,
		.child_idx = c->d->data_idx,
		.at = atomic_load_explicit(&slot->at, memory_order_relaxed),
		.bytes = t->slice_bytes,
		.buf = qcow2_slot_data(t, slot),
		.what = WHAT_SLOT | idx,
	};

	/* In this order: a process that dies before the end of the commit has it dirty, or on its
	 * way. */
	slot->is_writing = 1;
	atomic_store_explicit(&slot->is_dirty, 0, memory_order_release);
	if (commit_issue(c, &io))
		return true;
	atomic_store_explicit(&slot->is_dirty, 1, memory_order_release);
	slot->is_writing = 0;
	return false;
}

/* The next chunk that is dirty, from c->next on; false: none. */
static bool next_chunk(struct qcow2_commit *c, const uint64_t *bitmap, uint32_t entries)
{
	while (c->next < qcow2_chunk_nr(entries)) {
		if (chunk_is_dirty(bitmap, c->next))
			return true;
		c->next++;
	}
	return false;
}

static bool issue_chunk(struct qcow2_commit *c, uint64_t table_at, uint32_t entries, uint32_t what,
			void (*fill)(struct qcow2_commit *, void *, uint64_t, uint64_t))
{
	uint64_t at = (uint64_t)c->next * QCOW2_CHUNK_BYTES;
	/* Tables fill whole clusters. */
	uint64_t end = round_up((uint64_t)entries * 8, qcow2_cluster_bytes(&c->d->t->g));
	struct qcow2_commit_io io = {
		.op = BACKEND_WRITE,
		.child_idx = c->d->data_idx,
		.at = table_at + at,
		.bytes = MIN(QCOW2_CHUNK_BYTES, end - at),
		.fill = fill,
		.what = what | c->next,
	};

	return commit_issue(c, &io);
}

/* ---- phases: each gives its requests one by one. True: issued one; false: none is left, or none
 * can be now (c->is_stuck) ---- */

static bool next_slot(struct qcow2_commit *c)
{
	const struct qcow2_tables *t = c->d->t;

	/* Those that were forgotten since the phase began. */
	while (c->batch_next < c->batch_nr &&
	       !atomic_load_explicit(&t->slot[c->batch[c->batch_next]].is_dirty,
				     memory_order_relaxed))
		c->batch_next++;
	if (c->batch_next == c->batch_nr)
		return false;
	c->is_stuck = !issue_slot(c, c->batch[c->batch_next]);
	if (c->is_stuck)
		return false;
	c->batch_next++;
	return true;
}

static bool next_flush(struct qcow2_commit *c)
{
	unsigned child[] = { c->d->data_idx, c->d->guest_idx };
	unsigned nr = child[0] == child[1] ? 1 : 2;
	struct qcow2_commit_io io = { .op = BACKEND_FLUSH, .what = WHAT_FLUSH };

	if (c->next >= nr)
		return false;
	io.child_idx = child[c->next];
	c->is_stuck = !commit_issue(c, &io);
	if (c->is_stuck)
		return false;
	c->next++;
	return true;
}

static bool next_reftable(struct qcow2_commit *c)
{
	struct qcow2_tables *t = c->d->t;

	if (!next_chunk(c, t->reftable_dirty, t->reftable_entries))
		return false;
	c->is_stuck = !issue_chunk(c, t->reftable_offset, t->reftable_entries, WHAT_REFTABLE,
				   fill_reftable);
	c->next += !c->is_stuck;
	return !c->is_stuck;
}

/* Slices first, then L1. */
static bool next_l2(struct qcow2_commit *c)
{
	struct qcow2_tables *t = c->d->t;

	if (c->batch_next < c->batch_nr)
		return next_slot(c);
	if (!next_chunk(c, t->l1_dirty, t->l1_entries))
		return false;
	c->is_stuck = !issue_chunk(c, t->l1_offset, t->l1_entries, WHAT_L1, fill_l1);
	c->next += !c->is_stuck;
	return !c->is_stuck;
}

/* ---- REAP ---- */

/* What is durable waits for the requests that may be under way there; one epoch at a time. */
static void begin_epoch(struct qcow2_commit *c)
{
	struct qcow2_tables *t = c->d->t;
	uint64_t epoch;

	if (freed_has(t, QCOW2_FREED_WAITING) || !freed_has(t, QCOW2_FREED_DURABLE))
		return;
	epoch = atomic_load_explicit(&c->d->epoch, memory_order_relaxed);
	/* Those of the epoch before the last are under way still: later. */
	if (!c->is_quiet(c, (epoch + 1) & 1))
		return;
	for (unsigned i = 0; i < QCOW2_FREED_NR; i++)
		if (t->freed[i].stage == QCOW2_FREED_DURABLE)
			t->freed[i].stage = QCOW2_FREED_WAITING;
	atomic_store_explicit(&c->d->epoch, epoch + 1, memory_order_seq_cst);
}

static void end_epoch(struct qcow2_commit *c)
{
	struct qcow2_tables *t = c->d->t;
	uint64_t epoch = atomic_load_explicit(&c->d->epoch, memory_order_relaxed);

	if (!freed_has(t, QCOW2_FREED_WAITING) || !c->is_quiet(c, (epoch + 1) & 1))
		return;
	for (unsigned i = 0; i < QCOW2_FREED_NR; i++)
		if (t->freed[i].stage == QCOW2_FREED_WAITING)
			t->freed[i].stage = QCOW2_FREED_QUIET;
}

static void drop_count(struct qcow2_commit *c, uint64_t cluster)
{
	struct qcow2_tables *t = c->d->t;
	struct qcow2_slot *slot;
	uint64_t count;
	unsigned idx;

	slot = qcow2_slot_find(t, qcow2_refcount_slice(t, cluster, &idx));
	/* Counts in what is an L2 table too are left alone. */
	count = slot->is_l2
			? 0
			: qcow2_refcount_get(qcow2_slot_data(t, slot), t->g.refcount_order, idx);
	if (count == 0) {
		log_limited(LOG_LEVEL_WARN, "the image counts a cluster as unused that was in use",
			    "node=%s cluster=%llu", c->d->device->name,
			    (unsigned long long)cluster);
		return;
	}
	qcow2_mark_dirty(t, slot);
	qcow2_refcount_set(qcow2_slot_data(t, slot), t->g.refcount_order, idx, count - 1);
	if (count == 1 && c->freed_cluster)
		c->freed_cluster(c, cluster);
}

static bool issue_counts(struct qcow2_commit *c, uint64_t slice_at)
{
	struct qcow2_commit_io io = { .op = BACKEND_READ,
				      .child_idx = c->d->data_idx,
				      .at = slice_at,
				      .bytes = c->d->t->slice_bytes,
				      .what = WHAT_COUNTS };

	c->is_stuck = !commit_issue(c, &io);
	return !c->is_stuck;
}

static bool issue_trim(struct qcow2_commit *c)
{
	struct qcow2_commit_io io = { .op = BACKEND_DISCARD,
				      .child_idx = c->d->guest_idx,
				      .at = c->trim_at,
				      .bytes = c->trim_end - c->trim_at,
				      .what = WHAT_TRIM };

	c->is_stuck = !commit_issue(c, &io);
	if (c->is_stuck)
		c->trim_at = c->trim_end = 0;
	return !c->is_stuck;
}

/* One after the other: a slice that was read must still be there. */
static bool next_reap(struct qcow2_commit *c)
{
	struct qcow2_tables *t = c->d->t;
	uint64_t cluster_bytes = qcow2_cluster_bytes(&t->g), slice_at;
	unsigned idx;

	for (; c->next < QCOW2_FREED_NR && t->freed_nr > 0; c->next++) {
		struct qcow2_freed *f = &t->freed[c->next];

		if (c->inflight > 0)
			return false;
		if (f->stage != QCOW2_FREED_QUIET)
			continue;
		while (f->at < f->end) {
			uint64_t cluster = f->at >> t->g.cluster_bits;

			slice_at = qcow2_refcount_slice(t, cluster, &idx);
			if (slice_at && !qcow2_slot_find(t, slice_at))
				return issue_counts(c, slice_at);
			if (slice_at && qcow2_trim_next(c, f))
				return issue_trim(c);
			/* First: a process that dies here leaves a count too many, not too few. */
			__atomic_store_n(&f->at, round_down(f->at, cluster_bytes) + cluster_bytes,
					 __ATOMIC_RELEASE);
			if (slice_at)
				drop_count(c, cluster);
		}
		f->stage = QCOW2_FREED_NONE;
		t->freed_nr--;
	}
	return false;
}

/* ---- from phase to phase ---- */

/* Takes the dirty slots of a kind: what becomes dirty from now on is for the next commit. */
static void take_batch(struct qcow2_commit *c, bool is_l2)
{
	struct qcow2_tables *t = c->d->t;
	uint32_t left = 0;

	for (uint32_t i = 0; i < t->dirty_nr; i++) {
		if (t->slot[t->dirty[i]].is_l2 == is_l2)
			c->batch[c->batch_nr++] = t->dirty[i];
		else
			t->dirty[left++] = t->dirty[i];
	}
	t->dirty_nr = left;
}

static void enter_phase(struct qcow2_commit *c, enum qcow2_commit_phase phase)
{
	c->phase = phase;
	c->trim_at = c->trim_end = 0;
	c->next = 0;
	switch (phase) {
	case QCOW2_COMMIT_REFCOUNTS:
		take_batch(c, false);
		break;
	case QCOW2_COMMIT_L2:
		take_batch(c, true);
		break;
	case QCOW2_COMMIT_REAP:
		begin_epoch(c);
		end_epoch(c);
		break;
	case QCOW2_COMMIT_NONE:
	case QCOW2_COMMIT_REFTABLE:
	case QCOW2_COMMIT_FLUSH_BELOW:
	case QCOW2_COMMIT_FLUSH:
		break;
	}
}

static bool has_l2(const struct qcow2_tables *t)
{
	for (uint32_t i = 0; i < t->dirty_nr; i++)
		if (t->slot[t->dirty[i]].is_l2)
			return true;
	return any_chunk(t->l1_dirty, t->l1_entries);
}

static enum qcow2_commit_phase phase_after(const struct qcow2_commit *c)
{
	const struct qcow2_tables *t = c->d->t;

	switch (c->phase) {
	case QCOW2_COMMIT_REFCOUNTS:
		if (any_chunk(t->reftable_dirty, t->reftable_entries))
			return QCOW2_COMMIT_REFTABLE;
		return has_l2(t) ? QCOW2_COMMIT_FLUSH_BELOW : QCOW2_COMMIT_FLUSH;
	case QCOW2_COMMIT_REFTABLE:
		return has_l2(t) ? QCOW2_COMMIT_FLUSH_BELOW : QCOW2_COMMIT_FLUSH;
	case QCOW2_COMMIT_FLUSH_BELOW:
		return QCOW2_COMMIT_L2;
	case QCOW2_COMMIT_L2:
		return QCOW2_COMMIT_FLUSH;
	case QCOW2_COMMIT_FLUSH:
		return QCOW2_COMMIT_REAP;
	case QCOW2_COMMIT_REAP:
	case QCOW2_COMMIT_NONE:
		break;
	}
	return QCOW2_COMMIT_NONE;
}

/* All that was given up before is named by nothing on the disk. */
static void freed_are_durable(struct qcow2_tables *t)
{
	for (unsigned i = 0; i < QCOW2_FREED_NR && t->freed_nr > 0; i++)
		if (t->freed[i].stage == QCOW2_FREED_PENDING)
			t->freed[i].stage = QCOW2_FREED_DURABLE;
}

/* Tables that the commit has written: they are durable, or to be written again. */
static void settle_written(struct qcow2_commit *c, bool is_durable)
{
	struct qcow2_tables *t = c->d->t;

	for (uint32_t i = 0; i < c->batch_next; i++) {
		struct qcow2_slot *slot = &t->slot[c->batch[i]];

		/* Without a place: it was of a table that is no more. */
		if (!is_durable && atomic_load_explicit(&slot->at, memory_order_relaxed))
			qcow2_mark_dirty(t, slot);
		qcow2_slot_settled(t, slot, is_durable);
		slot->is_writing = 0;
	}
	/* Those of a phase that was not begun, or not to its end. */
	for (uint32_t i = c->batch_next; i < c->batch_nr; i++)
		t->dirty[t->dirty_nr++] = c->batch[i];
	c->batch_nr = c->batch_next = 0;
	if (!is_durable)
		return;
	/* None has been marked since it began. */
	memset(t->l1_dirty, 0, round_up(qcow2_chunk_nr(t->l1_entries), 64) / 8);
	memset(t->reftable_dirty, 0, round_up(qcow2_chunk_nr(t->reftable_entries), 64) / 8);
	/* What allocations have made dirty meanwhile is told anew. */
	if (t->dirty_nr == 0)
		atomic_store_explicit(&t->is_changed, false, memory_order_relaxed);
}

static void commit_end(struct qcow2_commit *c)
{
	int result = c->result;

	if (c->phase != QCOW2_COMMIT_REAP)
		settle_written(c, false);
	c->phase = QCOW2_COMMIT_NONE;
	/* Before anybody hears of the failure, so that what he writes then is not undone. */
	if (result < 0 && qcow2_undo_is_wanted(c))
		qcow2_undo_run(c);
	c->done(c, result);
}

/* A FLUSH has succeeded; it proves nothing about what was lost before. */
static int flush_proves(const struct qcow2_commit *c)
{
	return qcow2_losses(c->d) == c->losses && !qcow2_undo_is_wanted(c) ? 0 : -EIO;
}

/* The requests of a phase have ended. True: so has the commit. */
static bool phase_ended(struct qcow2_commit *c)
{
	bool is_flush = c->phase == QCOW2_COMMIT_FLUSH_BELOW || c->phase == QCOW2_COMMIT_FLUSH;

	if (is_flush && c->result == 0) {
		c->result = flush_proves(c);
		c->flush_failed |= c->result < 0;
	}
	if (c->result < 0)
		return true;
	if (is_flush)
		qcow2_undo_settle(c->d->t);
	if (c->phase == QCOW2_COMMIT_FLUSH) {
		freed_are_durable(c->d->t);
		settle_written(c, true);
	}
	enter_phase(c, phase_after(c));
	return c->phase == QCOW2_COMMIT_NONE;
}

static bool next_request(struct qcow2_commit *c)
{
	switch (c->phase) {
	case QCOW2_COMMIT_REFCOUNTS:
		return next_slot(c);
	case QCOW2_COMMIT_REFTABLE:
		return next_reftable(c);
	case QCOW2_COMMIT_L2:
		return next_l2(c);
	case QCOW2_COMMIT_FLUSH_BELOW:
	case QCOW2_COMMIT_FLUSH:
		return next_flush(c);
	case QCOW2_COMMIT_REAP:
		return next_reap(c);
	case QCOW2_COMMIT_NONE:
		break;
	}
	return false;
}

void qcow2_commit_pump(struct qcow2_commit *c)
{
	do {
		c->is_stuck = false;
		while (c->result == 0 && next_request(c))
			;
		if (c->inflight > 0 || (c->is_stuck && c->result == 0))
			return;
	} while (!phase_ended(c));
	/* It may be gone then. */
	commit_end(c);
}

/* ---- ends of requests ---- */

void qcow2_commit_ended(struct qcow2_commit *c, const struct qcow2_commit_io *io, int result)
{
	c->inflight--;
	if ((io->what & WHAT_KIND) == WHAT_TRIM) {
		/* The space stays in use below: no harm to the image. */
		c->no_trim |= result < 0;
		result = 0;
	}
	c->flush_failed |= result < 0 && (io->what & WHAT_KIND) == WHAT_FLUSH;
	if (result < 0 && c->result == 0) {
		c->result = result;
		log_limited(LOG_LEVEL_ERROR, "the tables of the image cannot be written",
			    "node=%s offset_bytes=%llu", c->d->device->name,
			    (unsigned long long)io->at);
	}
	/* There was no room for counts in the cache: the next commit goes on. */
	if ((io->what & WHAT_KIND) == WHAT_COUNTS && !qcow2_slot_find(c->d->t, io->at))
		c->next = QCOW2_FREED_NR;
	qcow2_commit_pump(c);
}

/* ---- life ---- */

int qcow2_commit_init(struct qcow2_commit *c, struct qcow2_device *d)
{
	c->d = d;
	c->batch = calloc(qcow2_slot_nr(d->t), sizeof(*c->batch));
	return c->batch ? 0 : -ENOMEM;
}

void qcow2_commit_fini(struct qcow2_commit *c)
{
	free(c->batch);
}

void qcow2_commit_begin(struct qcow2_commit *c)
{
	ASSERT(c->phase == QCOW2_COMMIT_NONE);
	if (c->owes)
		backend_owe(c->d->device);
	c->owes = false;
	if (qcow2_undo_is_wanted(c))
		qcow2_undo_run(c);
	c->result = 0;
	c->flush_failed = false;
	c->losses = qcow2_losses(c->d);
	enter_phase(c, QCOW2_COMMIT_REFCOUNTS);
	qcow2_commit_pump(c);
}
