/*
 * A request's way; see cache.h. The queue's reactor.
 *
 * Happy path: submit -> a READ that lies in the store as a whole is a piece for the store, with the
 * request's own bytes, zero copy -> its end is the request's. Else: step by step, each for as many
 * bytes as one thing can be said of. A step has pieces under way at the origin and the store, or
 * waits in one of the device's lists, and is begun anew when what it waited for may have come.
 *
 * Failure modes: an error of the origin is the request's; one of the store is, where nothing dirty
 * is lost, nobody's: the origin does the step. cancel: what waits ends, pieces are cancelled, and
 * no further step begins.
 */
#include "filters/cache/cache.h"

#include <errno.h>

#include "base/assert.h"
#include "base/util.h"

/* ---- waiting ---- */

static void cache_run_woken(struct task *task)
{
	struct cache_device *d = container_of(task, struct cache_device, wake_task);
	struct list_node now, *node;

	list_init(&now);
	list_splice(&now, &d->woken);
	while ((node = list_pop_front(&now)))
		cache_io_go_on(list_entry(node, struct cache_io, waiting));
}

void cache_wake(struct cache_device *d, struct list_node *waiters)
{
	if (list_empty(waiters))
		return;
	list_splice(&d->woken, waiters);
	reactor_defer(d->q->queue->reactor, &d->wake_task, cache_run_woken);
}

bool cache_wait_for(struct cache_io *s, struct list_node *waiters, enum cache_state state)
{
	cache_set_state(s, state);
	list_push_back(waiters, &s->waiting);
	return true;
}

/* ---- bytes for an origin that wants them in memory ---- */

static bool cache_origin_does(const struct cache_io *s)
{
	const struct backend_io *io = s->io;

	if ((io->op != BACKEND_READ && io->op != BACKEND_WRITE) || backend_io_in_memory(io))
		return true;
	return s->d->origin_data & (io->buf_index >= 0 ? BACKEND_DATA_FIXED : BACKEND_DATA_MOVES);
}

bool cache_pass_waits(struct cache_io *s)
{
	if (__builtin_expect(cache_origin_does(s), 1))
		return false;
	ASSERT(!s->pass);
	s->pass = cache_own_take(cache_queue_of(s), CACHE_OWN_PASS);
	return !s->pass && cache_wait_for(s, &s->d->pass_waiters, CACHE_WAITS_BUFFER);
}

/* The piece is of that buffer. Returns 0 or -errno. */
static int cache_pass_begin(struct cache_io *s, struct backend_io *child)
{
	void *buf = s->pass->own->buf;

	child->buf = buf;
	child->buf_index = -1;
	if (s->io->op == BACKEND_READ)
		return 0;
	return backend_data_get(s->io, s->at_bytes, buf, child->length_bytes);
}

static int cache_pass_ended(struct cache_io *s, int result)
{
	const struct backend_io *child = &s->io->child[CACHE_ORIGIN];

	if (result == 0 && s->io->op == BACKEND_READ)
		result = backend_data_put(s->io, s->at_bytes, s->pass->own->buf,
					  child->length_bytes);
	cache_own_release(cache_queue_of(s), s->pass);
	s->pass = NULL;
	cache_wake(s->d, &s->d->pass_waiters);
	return result;
}

/* ---- pieces ---- */

static void cache_piece_ended(struct cache_io *s, const struct backend_io *child)
{
	int result = child->result;

	if (__builtin_expect(s->pass && child == &s->io->child[CACHE_ORIGIN], 0))
		result = cache_pass_ended(s, result);
	s->answer[child - s->io->child] = result;
	s->io->throttle_ns = MAX(s->io->throttle_ns, child->throttle_ns);
}

/* False: it has ended. */
static bool cache_piece_begin(struct cache_io *s, struct backend_io *child)
{
	if (s->pass && child == &s->io->child[CACHE_ORIGIN]) {
		child->result = cache_pass_begin(s, child);
		if (child->result < 0)
			return false;
	}
	return backend_child_submit(child) == BACKEND_QUEUED;
}

void cache_piece(struct cache_io *s, unsigned child_idx, uint32_t skip_bytes, uint32_t bytes,
		 uint64_t offset)
{
	struct backend_io *child = &s->io->child[child_idx];

	backend_piece(child, s->io, s->at_bytes + skip_bytes, bytes, offset);
	if (child_idx == CACHE_STORE)
		child->flags = 0;
	else if (s->d->mode == CACHE_WRITEBACK)
		child->flags &= (uint8_t)~BACKEND_FUA; /* a flush follows */
	s->answer[child_idx] = 0;
	if (cache_piece_begin(s, child))
		s->pieces++;
	else
		cache_piece_ended(s, child);
}

bool cache_pieces_end(struct cache_io *s, enum cache_state state, void (*then)(struct cache_io *s))
{
	cache_set_state(s, state);
	s->then = then;
	if (s->pieces > 0)
		return true;
	then(s);
	return false;
}

void cache_step_ended(struct cache_io *s, int result)
{
	s->at_bytes += s->now_bytes;
	s->commit_nr = 0;
	if (result < 0 && s->result == 0)
		s->result = result;
}

static void cache_passed(struct cache_io *s)
{
	cache_step_ended(s, s->answer[CACHE_ORIGIN]);
}

bool cache_pass_by(struct cache_io *s, uint32_t bytes)
{
	s->now_bytes = bytes;
	cache_piece(s, CACHE_ORIGIN, 0, bytes, cache_now(s));
	return cache_pieces_end(s, CACHE_PASSING, cache_passed);
}

/* ---- FLUSH of the origin ---- */

static void cache_flushed(struct cache_io *s)
{
	struct cache_device *d = s->d;

	cache_look_for_losses(d);
	if (s->answer[CACHE_ORIGIN] == 0)
		d->flushed_nr = MAX(d->flushed_nr, s->flush_nr);
	cache_step_ended(s, s->answer[CACHE_ORIGIN]);
}

static bool cache_through_flush(struct cache_io *s)
{
	s->is_flushed = true;
	s->now_bytes = 0;
	s->flush_nr = ++s->d->flush_begun;
	cache_piece(s, CACHE_ORIGIN, 0, 0, 0);
	return cache_pieces_end(s, CACHE_FLUSHES, cache_flushed);
}

/* ---- steps ---- */

static bool cache_data_step(struct cache_io *s, uint32_t left)
{
	if (s->io->op == BACKEND_READ)
		return cache_read_step(s, left);
	if (s->io->op == BACKEND_WRITE)
		return s->d->mode == CACHE_WRITEBACK ? cache_back_step(s, left)
						     : cache_through_step(s, left);
	return cache_range_step(s, left);
}

/* What is done when all bytes are: a FLUSH, or what FUA asks for beyond. */
static bool cache_wants_flush(const struct cache_io *s)
{
	if (s->is_flushed || s->result < 0)
		return false;
	return s->io->op == BACKEND_FLUSH ||
	       (s->d->mode == CACHE_WRITEBACK && (s->io->flags & BACKEND_FUA));
}

/* True: under way; false: the request has come to its end. */
static bool cache_io_steps(struct cache_io *s)
{
	uint32_t length = s->io->length_bytes;

	while (s->at_bytes < length && s->result == 0) {
		if (s->is_cancelled)
			s->result = -ECANCELED;
		else if (cache_data_step(s, length - s->at_bytes))
			return true;
	}
	while (cache_wants_flush(s)) {
		if (s->is_cancelled)
			s->result = -ECANCELED;
		else if (s->d->mode == CACHE_WRITEBACK ? cache_back_flush_step(s)
						       : cache_through_flush(s))
			return true;
	}
	return false;
}

void cache_io_go_on(struct cache_io *s)
{
	if (s->d->is_lost && s->result == 0)
		s->result = -EIO;
	if (cache_io_steps(s))
		return;
	cache_set_state(s, CACHE_IDLE);
	backend_io_complete(s->io, s->result);
}

static void cache_io_begin(struct cache_io *s)
{
	s->result = 0;
	s->at_bytes = 0;
	s->commit_nr = 0;
	s->is_cancelled = s->is_flushed = s->avoids_store = false;
	if (__builtin_expect(s->io->flags & BACKEND_FUA, 0))
		s->losses = backend_losses(s->d->device->child);
}

void cache_rest_ends(struct cache_device *d)
{
	if (!d->is_resting || d->is_lost)
		return;
	d->is_resting = false;
	cache_clean_kick(d);
	cache_commit_later(d, NULL);
}

enum backend_submit cache_submit(struct backend_io *io)
{
	struct cache_io *s = io->priv;
	struct cache_device *d = s->d;
	struct cache_slot *slot;
	uint64_t at;

	cache_io_begin(s);
	if (__builtin_expect(d->is_resting, 0)) {
		cache_rest_ends(d);
		io->result = -EIO;
		if (d->is_lost)
			return BACKEND_DONE;
	}
	slot = io->op == BACKEND_READ ? cache_read_whole(d, io, &at) : NULL;
	if (__builtin_expect(slot != NULL, 1)) {
		s->slot = slot;
		s->now_bytes = io->length_bytes;
		cache_piece(s, CACHE_STORE, 0, io->length_bytes, at);
		if (cache_pieces_end(s, CACHE_HIT, cache_read_hit_ended))
			return BACKEND_QUEUED;
	}
	if (cache_io_steps(s))
		return BACKEND_QUEUED;
	cache_set_state(s, CACHE_IDLE);
	io->result = s->result;
	return BACKEND_DONE;
}

void cache_child_done(struct backend_io *child)
{
	struct cache_io *s;

	if (!child->parent) {
		backend_own_ended(child);
		return;
	}
	s = child->parent->priv;
	cache_piece_ended(s, child);
	if (--s->pieces > 0)
		return;
	s->then(s);
	cache_io_go_on(s);
}

void cache_cancel(struct backend_io *io)
{
	struct cache_io *s = io->priv;

	s->is_cancelled = true;
	if (!list_empty(&s->waiting)) {
		list_remove(&s->waiting);
	} else if (s->fill) {
		s->fill->s = NULL;
		s->fill = NULL;
	} else {
		/* The first may end the request. */
		s->pieces++;
		backend_child_cancel(&io->child[CACHE_ORIGIN]);
		backend_child_cancel(&io->child[CACHE_STORE]);
		if (--s->pieces > 0)
			return;
		s->then(s);
	}
	cache_io_go_on(s);
}
