/*
 * A request's way as long as it touches no table; see qcow2.h. Reactors.
 *
 * Happy path: submit -> all of it lies in place in one cluster -> a piece for `data` with the
 * request's own bytes, zero copy -> its end is the request's. Else: go_on, step by step, each for
 * as many bytes as lie one after the other: in place, zeroes, backing, compressed; a write where
 * nothing can be written in place asks the owner for clusters.
 *
 * Failure modes: the first error of a step is the request's; what it had allocated is given back.
 * An entry that makes no sense fails the requests that need it. cancel: the piece under way is
 * cancelled, and no further step begins.
 */
#include "backends/qcow2/qcow2.h"

#include <errno.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/util.h"

/* ---- pieces: whole parts of the request, as they are ---- */

static inline enum backend_submit submit_piece(struct qcow2_io *s, unsigned child_idx,
					       uint64_t host, uint64_t bytes)
{
	struct backend_io *child = &s->io->child[child_idx];

	backend_piece(child, s->io, (uint32_t)s->at_bytes, (uint32_t)bytes, host);
	child->flags = 0;
	s->now_bytes = bytes;
	return backend_child_submit(child);
}

static void image_piece_ended(struct qcow2_io *s, const struct backend_io *child)
{
	s->io->throttle_ns += child->throttle_ns;
	if (child->result < 0 && s->result == 0)
		s->result = child->result;
	s->at_bytes += s->now_bytes;
}

/* True: under way; false: it is done. What it looked up stays where it is: qcow2_moving_begin. */
static bool piece_in_place(struct qcow2_io *s, uint64_t host, uint64_t bytes)
{
	unsigned idx = qcow2_device_of(s)->guest_idx;

	qcow2_set_state(s, QCOW2_IN_PLACE);
	if (submit_piece(s, idx, host, bytes) == BACKEND_QUEUED)
		return true;
	image_piece_ended(s, &s->io->child[idx]);
	return false;
}

/* ---- steps ---- */

bool qcow2_below_is_zero(const struct qcow2_device *d, uint64_t offset)
{
	return offset >= d->backing_bytes;
}

static bool read_zeroes(struct qcow2_io *s, uint64_t bytes)
{
	int ret = backend_data_put_zeroes(s->io, (uint32_t)s->at_bytes, bytes);

	s->at_bytes += bytes;
	if (ret < 0)
		s->result = ret;
	return false;
}

/* What the file of an image lacks at its end is zeroes. */
static bool read_in_place(struct qcow2_io *s, uint64_t host, uint64_t bytes)
{
	uint64_t end = qcow2_device_of(s)->guest_bytes;

	if (host >= end)
		return read_zeroes(s, bytes);
	return piece_in_place(s, host, MIN(bytes, end - host));
}

static bool read_below(struct qcow2_io *s, uint64_t bytes)
{
	struct qcow2_device *d = qcow2_device_of(s);
	uint64_t now = qcow2_now(s);

	if (qcow2_below_is_zero(d, now))
		return read_zeroes(s, bytes);
	qcow2_set_state(s, QCOW2_FROM_BACKING);
	if (submit_piece(s, (unsigned)d->backing_idx, now, MIN(bytes, d->backing_bytes - now)) ==
	    BACKEND_QUEUED)
		return true;
	image_piece_ended(s, &s->io->child[d->backing_idx]);
	return false;
}

static void slice_loaded(struct qcow2_own *own, int result)
{
	struct qcow2_io *s = own->arg;

	if (result < 0) {
		s->loaded = NULL;
		qcow2_own_release(qcow2_queue_of(s), own);
		qcow2_io_fail(s, result);
		return;
	}
	qcow2_tables_install(qcow2_device_of(s)->t, s->loaded_at, own->own->buf, true);
	qcow2_io_go_on(s);
}

/* Of an image that is only read: by this queue, into the cache that all share. */
static bool load_slice(struct qcow2_io *s, uint64_t at)
{
	struct qcow2_queue *q = qcow2_queue_of(s);

	s->loaded = qcow2_own_take(q, false);
	if (!s->loaded) {
		qcow2_set_state(s, QCOW2_NEEDS_BUFFER);
		list_push_back(&q->waiting, &s->waiting);
		return true;
	}
	s->loaded->arg = s;
	s->loaded_at = at;
	qcow2_set_state(s, QCOW2_LOADING);
	qcow2_own_submit(s->loaded, q->d->data_idx, BACKEND_READ, at, NULL, q->d->t->slice_bytes,
			 slice_loaded);
	return true;
}

static bool find_slice(struct qcow2_io *s, uint64_t at)
{
	counter_add(&qcow2_queue_of(s)->misses, 1);
	if (!qcow2_device_of(s)->owner)
		return load_slice(s, at);
	qcow2_owner_ask(s, QCOW2_ASK_MAP);
	return true;
}

static bool fail_bad(struct qcow2_io *s)
{
	log_limited(LOG_LEVEL_ERROR, "the image is corrupt: an entry of L2 makes no sense",
		    "node=%s offset_bytes=%llu", s->io->queue->device->name,
		    (unsigned long long)qcow2_now(s));
	s->result = -EIO;
	return false;
}

/* At once, when the queue has just unpacked it. */
static bool read_packed(struct qcow2_io *s, const struct qcow2_run *run)
{
	const uint8_t *cluster = qcow2_unpacked_find(qcow2_queue_of(s), run->host);
	uint64_t mask = qcow2_cluster_bytes(&qcow2_device_of(s)->header.g) - 1;
	int ret;

	if (!cluster) {
		qcow2_bounce_read(s, run);
		return true;
	}
	ret = backend_data_put(s->io, (uint32_t)s->at_bytes, cluster + (qcow2_now(s) & mask),
			       run->bytes);
	s->at_bytes += run->bytes;
	if (ret < 0)
		s->result = ret;
	return false;
}

/* True: under way. */
static bool read_run(struct qcow2_io *s, const struct qcow2_run *run)
{
	switch (run->kind) {
	case QCOW2_SHARED:
	case QCOW2_DATA:
		if (!qcow2_device_of(s)->luks)
			return read_in_place(s, run->host, run->bytes);
		qcow2_bounce_read(s, run);
		return true;
	case QCOW2_PACKED:
		return read_packed(s, run);
	case QCOW2_ZEROES:
		return read_zeroes(s, run->bytes);
	case QCOW2_BELOW:
		return read_below(s, run->bytes);
	case QCOW2_MISS:
		return find_slice(s, run->slice_at);
	case QCOW2_BAD:
		break;
	}
	return fail_bad(s);
}

static bool write_run(struct qcow2_io *s, const struct qcow2_run *run)
{
	switch (run->kind) {
	case QCOW2_DATA:
		if (!s->is_zero && !qcow2_device_of(s)->luks)
			return piece_in_place(s, run->host, run->bytes);
		qcow2_bounce_in_place(s, run->host, run->bytes);
		return true;
	case QCOW2_BAD:
		return fail_bad(s);
	case QCOW2_ZEROES:
	case QCOW2_BELOW:
	case QCOW2_SHARED:
	case QCOW2_PACKED:
	case QCOW2_MISS:
		break;
	}
	s->now_bytes = run->bytes;
	qcow2_owner_ask(s, QCOW2_ASK_ALLOC);
	return true;
}

/* Zeroes where zeroes are read already. */
static bool is_zero_already(const struct qcow2_io *s, struct qcow2_run *run)
{
	const struct qcow2_device *d = qcow2_device_of(s);

	if (!s->is_zero)
		return false;
	if (run->kind == QCOW2_ZEROES)
		return true;
	return run->kind == QCOW2_BELOW && qcow2_below_is_zero(d, qcow2_now(s));
}

static const void *loaded_slice(struct qcow2_io *s)
{
	return s->loaded ? s->loaded->own->buf : NULL;
}

static void drop_loaded(struct qcow2_io *s)
{
	struct qcow2_own *own = s->loaded;

	s->loaded = NULL;
	if (own)
		qcow2_own_release(qcow2_queue_of(s), own);
}

/* What a READ, WRITE or the edge of a WRITE_ZEROES does next. True: under way. */
static bool data_step(struct qcow2_io *s, uint64_t bytes)
{
	struct qcow2_device *d = qcow2_device_of(s);
	struct qcow2_run run;

	qcow2_moving_begin(s);
	qcow2_lookup(d->t, qcow2_now(s), bytes, loaded_slice(s), &run);
	drop_loaded(s);
	if (s->io->op == BACKEND_READ)
		return read_run(s, &run);
	if (!is_zero_already(s, &run))
		return write_run(s, &run);
	s->at_bytes += run.bytes;
	return false;
}

/* DISCARD and WRITE_ZEROES: whole clusters by their entries, edges like writes, or not at all. */
static bool unmap_step(struct qcow2_io *s, uint64_t left)
{
	const struct qcow2_device *d = qcow2_device_of(s);
	uint64_t cluster = qcow2_cluster_bytes(&d->header.g), now = qcow2_now(s);
	uint64_t edge = cluster - (now & (cluster - 1));
	/* The last cluster of a disk may be a part of one. */
	bool is_last = now + left == backend_size(s->io->queue->device);

	if (edge == cluster && (left >= cluster || is_last)) {
		s->now_bytes = is_last ? left : round_down(left, cluster);
		qcow2_owner_ask(s, QCOW2_ASK_UNMAP);
		return true;
	}
	edge = MIN(edge, left);
	if (s->is_zero)
		return data_step(s, edge);
	s->at_bytes += edge;
	return false;
}

static enum backend_submit flush_step(struct qcow2_io *s);

/* FUA: all of it is done, and is flushed like a FLUSH, with the tables that it has changed. */
static bool wants_flush(const struct qcow2_io *s)
{
	return (s->io->flags & BACKEND_FUA) && s->result == 0 && !s->is_flushed;
}

static void begin_fua(struct qcow2_io *s)
{
	s->at_bytes = 0;
	s->is_flushed = false;
	s->losses = s->io->flags & BACKEND_FUA ? backend_losses(s->io->queue->device) : 0;
}

/*
 * FUA: what was written was perhaps lost before the flush that has succeeded, by one of somebody
 * else's, or where it was written was taken back (qcow2_undo.c), which is a loss too.
 */
static bool is_lost(const struct qcow2_io *s)
{
	return (s->io->flags & BACKEND_FUA) && s->result == 0 &&
	       s->losses != backend_losses(s->io->queue->device);
}

/* Stopped as a whole, by a change of snapshots. Read behind moving_begin: see qcow2_moving_begin.
 */
static inline bool io_is_stopped(struct qcow2_io *s)
{
	qcow2_moving_begin(s);
	return __builtin_expect(
		atomic_load_explicit(&qcow2_device_of(s)->is_stopped, memory_order_relaxed), 0);
}

/* Until a step is under way, or the request has come to its end. */
static enum backend_submit io_steps(struct qcow2_io *s)
{
	uint64_t length = s->io->length_bytes;

	while (s->at_bytes < length && s->result == 0) {
		if (s->is_cancelled) {
			s->result = -ECANCELED;
		} else if (io_is_stopped(s)) {
			qcow2_owner_ask(s, QCOW2_ASK_PASS);
			return BACKEND_QUEUED;
		} else if (s->io->op > BACKEND_WRITE ? unmap_step(s, length - s->at_bytes)
						     : data_step(s, length - s->at_bytes)) {
			return BACKEND_QUEUED;
		}
		qcow2_moving_end(s);
	}
	drop_loaded(s);
	if (wants_flush(s) && flush_step(s) == BACKEND_QUEUED)
		return BACKEND_QUEUED;
	if (is_lost(s)) {
		begin_fua(s);
		return io_steps(s);
	}
	s->io->result = s->result;
	return BACKEND_DONE;
}

void qcow2_io_go_on(struct qcow2_io *s)
{
	qcow2_moving_end(s);
	if (io_steps(s) != BACKEND_DONE)
		return;
	qcow2_set_state(s, QCOW2_IDLE);
	/* A mail of it is on its way: qcow2_io_cancelled. */
	if (!s->is_cancelling)
		backend_io_complete(s->io, s->result);
}

void qcow2_io_cancelled(struct qcow2_io *s)
{
	s->is_cancelling = false;
	if (s->state == QCOW2_IDLE)
		backend_io_complete(s->io, s->result);
}

void qcow2_io_fail(struct qcow2_io *s, int err)
{
	if (s->result == 0)
		s->result = err;
	qcow2_io_go_on(s);
}

/* ---- FLUSH ---- */

/* s->now_bytes counts the children under way. */
static bool flush_child(struct qcow2_io *s, unsigned idx)
{
	struct backend_io *child = &s->io->child[idx];

	backend_piece(child, s->io, 0, 0, 0);
	child->op = BACKEND_FLUSH;
	child->flags = 0;
	if (backend_child_submit(child) == BACKEND_QUEUED)
		return true;
	if (child->result < 0 && s->result == 0)
		s->result = child->result;
	return false;
}

static void flush_children(struct qcow2_io *s)
{
	const struct qcow2_device *d = qcow2_device_of(s);

	qcow2_set_state(s, QCOW2_FLUSHING);
	s->now_bytes = flush_child(s, d->data_idx);
	if (d->guest_idx != d->data_idx)
		s->now_bytes += flush_child(s, d->guest_idx);
}

/* ---- answers of the owner ---- */

void qcow2_io_answered(struct qcow2_io *s)
{
	if (s->answer < 0 && s->result == 0 && !s->bounce.own)
		s->result = s->answer;
	switch (s->ask) {
	case QCOW2_ASK_ALLOC:
		if (s->answer == 0 && s->alloc.bytes > 0) {
			qcow2_bounce_alloc(s);
			return;
		}
		break;
	case QCOW2_ASK_PUBLISH:
	case QCOW2_ASK_UNMAP:
		s->at_bytes += s->now_bytes;
		break;
	case QCOW2_ASK_FLUSH:
		if (s->answer == 0 && s->flushes_itself) {
			flush_children(s);
			if (s->now_bytes > 0)
				return;
		}
		break;
	case QCOW2_ASK_MAP:
		if (s->bounce.own) {
			qcow2_bounce_looked(s);
			return;
		}
		break;
	case QCOW2_ASK_ABORT:
	case QCOW2_ASK_PASS:
	case QCOW2_ASK_SNAPSHOT:
		break;
	}
	qcow2_io_go_on(s);
}

/* Of tables, or of what an apply is about to change: it may have failed. */
static bool flush_asks(const struct qcow2_device *d)
{
	return d->owner && (qcow2_owner_is_dirty(d->owner) ||
			    atomic_load_explicit(&d->is_stopped, memory_order_relaxed));
}

static enum backend_submit flush_step(struct qcow2_io *s)
{
	s->is_flushed = true;
	if (flush_asks(qcow2_device_of(s))) {
		qcow2_owner_ask(s, QCOW2_ASK_FLUSH);
		return BACKEND_QUEUED;
	}
	flush_children(s);
	s->io->result = s->result;
	return s->now_bytes > 0 ? BACKEND_QUEUED : BACKEND_DONE;
}

/* ---- where requests come in, and pieces of them end ---- */

static void io_begin(struct qcow2_io *s)
{
	s->result = 0;
	s->at_bytes = 0;
	s->is_cancelled = s->is_flushed = false;
	s->is_zero = s->io->op == BACKEND_WRITE_ZEROES;
}

enum backend_submit qcow2_submit(struct backend_io *io)
{
	struct qcow2_io *s = io->priv;
	struct qcow2_device *d = io->queue->device->priv;
	enum backend_submit submit;
	uint64_t host;

	io_begin(s);
	if (io->op != BACKEND_READ && io->op != BACKEND_FLUSH)
		qcow2_set_changed(d);
	if (io->op <= BACKEND_WRITE && !d->luks && !(io->flags & BACKEND_FUA)) {
		host = io_is_stopped(s)
			       ? 0
			       : qcow2_lookup_plain(d->t, io->offset_bytes, io->length_bytes,
						    io->op == BACKEND_WRITE);
		if (__builtin_expect(host != 0 && host + io->length_bytes <= d->guest_bytes, 1)) {
			qcow2_set_state(s, QCOW2_IN_PLACE);
			submit = submit_piece(s, d->guest_idx, host, io->length_bytes);
			if (submit == BACKEND_QUEUED)
				return submit;
			qcow2_moving_end(s);
			io->result = io->child[d->guest_idx].result;
			return submit;
		}
	}
	if (io->op == BACKEND_FLUSH)
		return flush_step(s);
	begin_fua(s);
	submit = io_steps(s);
	if (submit == BACKEND_DONE)
		qcow2_set_state(s, QCOW2_IDLE);
	return submit;
}

static void flush_ended(struct qcow2_io *s, const struct backend_io *child)
{
	if (child->result < 0 && s->result == 0)
		s->result = child->result;
	if (--s->now_bytes == 0)
		qcow2_io_go_on(s);
}

/* Nearly all: the piece was the whole request, and all is well. */
static inline bool is_whole_in_place(const struct qcow2_io *s, const struct backend_io *child)
{
	return s->state == QCOW2_IN_PLACE && child->result == 0 &&
	       s->now_bytes == s->io->length_bytes && !s->moves_middle && !s->is_cancelling &&
	       !(s->io->flags & BACKEND_FUA);
}

void qcow2_child_done(struct backend_io *child)
{
	struct qcow2_io *s;

	if (!child->parent) {
		backend_own_ended(child);
		return;
	}
	s = child->parent->priv;
	if (__builtin_expect(is_whole_in_place(s, child), 1)) {
		s->io->throttle_ns += child->throttle_ns;
		qcow2_moving_end(s);
		qcow2_set_state(s, QCOW2_IDLE);
		backend_io_complete(s->io, 0);
		return;
	}
	if (s->state == QCOW2_FLUSHING) {
		flush_ended(s, child);
		return;
	}
	if (s->moves_middle) {
		qcow2_bounce_moved(s, child);
		return;
	}
	image_piece_ended(s, child);
	qcow2_io_go_on(s);
}

void qcow2_cancel(struct backend_io *io)
{
	struct qcow2_io *s = io->priv;

	s->is_cancelled = true;
	for (unsigned i = 0; i < io->queue->device->child_nr; i++)
		backend_child_cancel(&io->child[i]);
	qcow2_own_cancel(s);
	if (s->state == QCOW2_ASKING && !s->is_cancelling)
		qcow2_owner_cancel(s);
}
