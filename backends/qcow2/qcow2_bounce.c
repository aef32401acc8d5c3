/*
 * Bytes that go through memory of ours: what surrounds a write in a new cluster (copy on write),
 * what is encrypted or compressed, and zeroes. The queue's reactor.
 *
 * Happy path of a write: take a buffer -> fill it, chunk by chunk: the request's own bytes, and
 * around them what the guest reads there now -> encrypt -> write -> next chunk -> then. Clusters
 * that fit the buffer take one write. In larger ones only what surrounds the request is copied, and
 * the request's bytes go as they are. Of a read: fill -> put into the request.
 *
 * Failure modes: an error ends it; clusters that were allocated for it are given back.
 */
#include "backends/qcow2/qcow2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/util.h"

static void bounce_go_on(struct qcow2_io *s);

static struct qcow2_device *bounce_device(const struct qcow2_io *s)
{
	return qcow2_device_of(s);
}

/* Where a byte of the guest is in the buffer. */
static uint8_t *buffer_at(const struct qcow2_io *s, uint64_t offset)
{
	return (uint8_t *)s->bounce.own->own->buf + (offset - s->bounce.at);
}

/* ---- its beginning and its end ---- */

static void bounce_end(struct qcow2_io *s, int result)
{
	void (*then)(struct qcow2_io * s) = s->bounce.then;

	qcow2_own_release(qcow2_queue_of(s), s->bounce.own);
	s->bounce.own = NULL;
	s->bounce.then = NULL;
	if (result < 0 && s->result == 0)
		s->result = result;
	then(s);
}

static void bounce_chunk_begin(struct qcow2_io *s)
{
	struct qcow2_bounce *b = &s->bounce;

	b->filled = b->at;
	b->chunk_end = MIN(b->end, b->at + bounce_device(s)->chunk_bytes);
}

static void bounce_take(struct qcow2_io *s)
{
	struct qcow2_queue *q = qcow2_queue_of(s);

	s->bounce.own = qcow2_own_take(q, false);
	if (!s->bounce.own) {
		qcow2_set_state(s, QCOW2_NEEDS_BUFFER);
		list_push_back(&q->waiting, &s->waiting);
		return;
	}
	s->bounce.own->arg = s;
	bounce_chunk_begin(s);
	bounce_go_on(s);
}

void qcow2_bounce_has_buffer(struct qcow2_io *s)
{
	if (s->bounce.then)
		bounce_take(s);
	else
		qcow2_io_go_on(s); /* it waited to read a slice */
}

static void begin_later(struct task *task)
{
	bounce_take(container_of(task, struct qcow2_io, task));
}

/* Later: it may be inside of submit, where nothing may come to its end. */
static void bounce_begin(struct qcow2_io *s, uint64_t at, uint64_t end, uint64_t host,
			 void (*then)(struct qcow2_io *s))
{
	s->bounce.at = at;
	s->bounce.end = end;
	s->bounce.host = host;
	s->bounce.then = then;
	qcow2_set_state(s, QCOW2_NEEDS_BUFFER);
	reactor_defer(s->io->queue->reactor, &s->task, begin_later);
}

/* ---- the buffer is filled ---- */

static void filled_by_read(struct qcow2_own *own, int result)
{
	struct qcow2_io *s = own->arg;
	struct qcow2_bounce *b = &s->bounce;

	if (result == 0 && b->is_secret)
		result = qcow2_luks_decrypt(qcow2_queue_of(s)->cipher, b->read_host,
					    buffer_at(s, b->filled), b->read_bytes);
	if (result < 0) {
		bounce_end(s, result);
		return;
	}
	b->filled += b->read_bytes;
	bounce_go_on(s);
}

/* True: under way. */
static bool fill_by_read(struct qcow2_io *s, unsigned child_idx, uint64_t host, uint64_t bytes)
{
	struct qcow2_bounce *b = &s->bounce;

	b->read_bytes = bytes;
	b->read_host = host;
	b->is_secret = bounce_device(s)->luks && child_idx == bounce_device(s)->guest_idx;
	qcow2_set_state(s, QCOW2_BOUNCE_FILL);
	qcow2_own_submit(b->own, child_idx, BACKEND_READ, host, buffer_at(s, b->filled), bytes,
			 filled_by_read);
	return true;
}

static bool fill_zeroes(struct qcow2_io *s, uint64_t bytes)
{
	memset(buffer_at(s, s->bounce.filled), 0, bytes);
	s->bounce.filled += bytes;
	return false;
}

/* What the file of an image lacks at its end is zeroes. */
static bool fill_in_place(struct qcow2_io *s, uint64_t host, uint64_t bytes)
{
	const struct qcow2_device *d = bounce_device(s);

	if (host >= d->guest_bytes)
		return fill_zeroes(s, bytes);
	return fill_by_read(s, d->guest_idx, host, MIN(bytes, d->guest_bytes - host));
}

static bool fill_below(struct qcow2_io *s, uint64_t bytes)
{
	const struct qcow2_device *d = bounce_device(s);
	uint64_t from = s->bounce.filled;

	if (qcow2_below_is_zero(d, from))
		return fill_zeroes(s, bytes);
	return fill_by_read(s, (unsigned)d->backing_idx, from, MIN(bytes, d->backing_bytes - from));
}

static bool fill_unpacked(struct qcow2_io *s, uint64_t entry, uint64_t bytes)
{
	const uint8_t *cluster = qcow2_unpacked_find(qcow2_queue_of(s), entry);
	uint64_t mask = qcow2_cluster_bytes(&bounce_device(s)->header.g) - 1;

	if (!cluster) {
		qcow2_set_state(s, QCOW2_BOUNCE_FILL);
		qcow2_unpacked_ask(s, entry);
		return true;
	}
	memcpy(buffer_at(s, s->bounce.filled), cluster + (s->bounce.filled & mask), bytes);
	s->bounce.filled += bytes;
	return false;
}

/* The owner, or this queue, reads the slice; bounce_go_on looks again. */
static bool fill_missed(struct qcow2_io *s)
{
	counter_add(&qcow2_queue_of(s)->misses, 1);
	qcow2_owner_ask(s, QCOW2_ASK_MAP);
	return true;
}

static bool fill_run(struct qcow2_io *s, const struct qcow2_run *run)
{
	switch (run->kind) {
	case QCOW2_SHARED:
	case QCOW2_DATA:
		return fill_in_place(s, run->host, run->bytes);
	case QCOW2_PACKED:
		return fill_unpacked(s, run->host, run->bytes);
	case QCOW2_ZEROES:
		return fill_zeroes(s, run->bytes);
	case QCOW2_BELOW:
		return fill_below(s, run->bytes);
	case QCOW2_MISS:
		return fill_missed(s);
	case QCOW2_BAD:
		break;
	}
	bounce_end(s, -EIO);
	return true;
}

/* What the guest reads there now. */
static bool fill_old(struct qcow2_io *s, uint64_t bytes)
{
	struct qcow2_bounce *b = &s->bounce;
	struct qcow2_run run;

	if (s->io->op == BACKEND_READ) {
		/* It was looked up before: what is left of that run. */
		run = b->run;
		run.bytes = bytes;
		if (run.kind != QCOW2_PACKED)
			run.host += b->filled - qcow2_now(s);
	} else {
		qcow2_lookup(bounce_device(s)->t, b->filled, bytes, NULL, &run);
	}
	return fill_run(s, &run);
}

static bool fill_own(struct qcow2_io *s, uint64_t bytes)
{
	struct qcow2_bounce *b = &s->bounce;
	uint32_t at_bytes = (uint32_t)(b->filled - s->io->offset_bytes);
	int ret;

	if (s->is_zero)
		return fill_zeroes(s, bytes);
	ret = backend_data_get(s->io, at_bytes, buffer_at(s, b->filled), bytes);
	b->filled += bytes;
	if (ret < 0) {
		bounce_end(s, ret);
		return true;
	}
	return false;
}

/* True: under way, or at its end. */
static bool bounce_fill(struct qcow2_io *s)
{
	struct qcow2_bounce *b = &s->bounce;
	uint64_t start = qcow2_now(s), end = start + s->now_bytes;

	while (b->filled < b->chunk_end) {
		uint64_t bytes = b->chunk_end - b->filled;
		bool under_way;

		if (s->io->op == BACKEND_READ || b->filled >= end)
			under_way = fill_old(s, bytes);
		else if (b->filled < start)
			under_way = fill_old(s, MIN(bytes, start - b->filled));
		else
			under_way = fill_own(s, MIN(bytes, end - b->filled));
		if (under_way)
			return true;
	}
	return false;
}

/* ---- and emptied ---- */

static void bounce_chunk_done(struct qcow2_io *s, int result)
{
	struct qcow2_bounce *b = &s->bounce;

	b->host += b->chunk_end - b->at;
	b->at = b->chunk_end;
	if (result < 0 || b->at == b->end) {
		bounce_end(s, result);
		return;
	}
	bounce_chunk_begin(s);
	bounce_go_on(s);
}

static void bounce_written(struct qcow2_own *own, int result)
{
	bounce_chunk_done(own->arg, result);
}

static void bounce_chunk_write(struct qcow2_io *s)
{
	struct qcow2_bounce *b = &s->bounce;
	uint64_t bytes = b->chunk_end - b->at;
	int ret = 0;

	if (bounce_device(s)->luks)
		ret = qcow2_luks_encrypt(qcow2_queue_of(s)->cipher, b->host, b->own->own->buf,
					 bytes);
	if (ret < 0) {
		bounce_end(s, ret);
		return;
	}
	qcow2_set_state(s, QCOW2_BOUNCE_WRITE);
	qcow2_own_submit(b->own, bounce_device(s)->guest_idx, BACKEND_WRITE, b->host, NULL, bytes,
			 bounce_written);
}

static void bounce_chunk_put(struct qcow2_io *s)
{
	struct qcow2_bounce *b = &s->bounce;

	bounce_chunk_done(s, backend_data_put(s->io, (uint32_t)(b->at - s->io->offset_bytes),
					      b->own->own->buf, b->chunk_end - b->at));
}

static void bounce_go_on(struct qcow2_io *s)
{
	if (bounce_fill(s))
		return;
	if (s->io->op == BACKEND_READ)
		bounce_chunk_put(s);
	else
		bounce_chunk_write(s);
}

void qcow2_bounce_looked(struct qcow2_io *s)
{
	if (s->answer < 0)
		bounce_end(s, s->answer);
	else
		bounce_go_on(s);
}

/* ---- what it is used for ---- */

static void step_done(struct qcow2_io *s)
{
	s->at_bytes += s->now_bytes;
	qcow2_io_go_on(s);
}

void qcow2_bounce_read(struct qcow2_io *s, const struct qcow2_run *run)
{
	uint64_t now = qcow2_now(s);

	s->bounce.run = *run;
	s->now_bytes = run->bytes;
	bounce_begin(s, now, now + run->bytes, 0, step_done);
}

void qcow2_bounce_in_place(struct qcow2_io *s, uint64_t host, uint64_t bytes)
{
	uint64_t now = qcow2_now(s);

	s->now_bytes = bytes;
	bounce_begin(s, now, now + bytes, host, step_done);
}

/* ---- new clusters ---- */

static uint64_t written_end(const struct qcow2_io *s)
{
	return s->alloc.guest + s->alloc.bytes;
}

static uint64_t alloc_host(const struct qcow2_io *s, uint64_t offset)
{
	return s->alloc.host + (offset - s->alloc.guest);
}

static void alloc_written(struct qcow2_io *s)
{
	qcow2_owner_ask(s, s->result < 0 ? QCOW2_ASK_ABORT : QCOW2_ASK_PUBLISH);
}

/*
 * Whether nothing has to be written to these bytes of new clusters: the guest reads zeroes there,
 * and so does the file.
 */
static bool needs_no_copy(const struct qcow2_io *s, uint64_t at, uint64_t end)
{
	const struct qcow2_device *d = bounce_device(s);
	struct qcow2_run run;

	if (at == end)
		return true;
	if (!s->alloc.is_fresh || d->luks)
		return false;
	for (; at < end; at += run.bytes) {
		qcow2_lookup(d->t, at, end - at, NULL, &run);
		if (run.kind != QCOW2_ZEROES &&
		    !(run.kind == QCOW2_BELOW && qcow2_below_is_zero(d, at)))
			return false;
	}
	return true;
}

static void copy_tail(struct qcow2_io *s)
{
	uint64_t end = qcow2_now(s) + s->now_bytes;

	if (s->result < 0 || needs_no_copy(s, end, written_end(s)))
		alloc_written(s);
	else
		bounce_begin(s, end, written_end(s), alloc_host(s, end), alloc_written);
}

/* The request's bytes as they are. */
static void write_middle(struct qcow2_io *s)
{
	struct backend_io *child = &s->io->child[bounce_device(s)->guest_idx];

	if (s->result < 0) {
		alloc_written(s);
		return;
	}
	qcow2_set_state(s, QCOW2_IN_PLACE);
	s->moves_middle = true;
	backend_piece(child, s->io, (uint32_t)s->at_bytes, (uint32_t)s->now_bytes,
		      alloc_host(s, qcow2_now(s)));
	child->flags = 0;
	if (backend_child_submit(child) == BACKEND_DONE)
		qcow2_bounce_moved(s, child);
}

void qcow2_bounce_moved(struct qcow2_io *s, const struct backend_io *child)
{
	s->moves_middle = false;
	s->io->throttle_ns += child->throttle_ns;
	if (child->result < 0 && s->result == 0)
		s->result = child->result;
	copy_tail(s);
}

void qcow2_bounce_alloc(struct qcow2_io *s)
{
	uint64_t start = qcow2_now(s), end = start + s->now_bytes;
	bool no_head = needs_no_copy(s, s->alloc.guest, start);
	bool no_tail = needs_no_copy(s, end, written_end(s));
	bool is_small = s->alloc.bytes <= bounce_device(s)->chunk_bytes && !(no_head && no_tail);

	if (!no_head || !no_tail)
		counter_add(&qcow2_queue_of(s)->copies, 1);
	qcow2_moving_begin(s);
	if (s->is_zero || bounce_device(s)->luks || is_small)
		bounce_begin(s, no_head ? start : s->alloc.guest, no_tail ? end : written_end(s),
			     alloc_host(s, no_head ? start : s->alloc.guest), alloc_written);
	else if (no_head)
		write_middle(s);
	else
		bounce_begin(s, s->alloc.guest, start, s->alloc.host, write_middle);
}
