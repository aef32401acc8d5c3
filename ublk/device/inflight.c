/*
 * Looks at the tags of a queue while its reactor works on them. Main thread.
 *
 * Happy path: the queue answered `attached`, by mail: its memory is there until the main thread
 * itself posts the release. Every field is loaded whole; an I/O that changed meanwhile (another
 * state or start) is looked at again. Failure mode: one that never holds still is shown as it was
 * seen last; nothing but its numbers can be wrong.
 */
#include "ublk/device/inflight.h"

#include "base/util.h"
#include "ublk/device/device_internal.h"
#include "ublk/queue/queue_internal.h"

#define LOOKS_MAX 3

#define PEEK(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

_Static_assert((int)INFLIGHT_DONE == (int)TAG_DONE && (int)INFLIGHT_ARMED == (int)TAG_ARMED,
	       "the same states in the same order");

const char *inflight_state_name(enum inflight_state state)
{
	static const char *const name[INFLIGHT_STATE_NR] = { "down", "armed", "serving", "busy",
							     "done" };

	return state < INFLIGHT_STATE_NR ? name[state] : "?";
}

static bool has_tags(const struct device *d, unsigned queue)
{
	return d->attach_nr > 0 && d->attached_nr == d->attach_nr && queue < d->attach_nr &&
	       d->state != DEVICE_DRAINING && d->state != DEVICE_DELETING &&
	       d->state != DEVICE_GONE && d->state != DEVICE_FAILED && d->queues[queue].ios;
}

static bool is_io(enum tag_state state)
{
	return state == TAG_SERVING || state == TAG_BUSY || state == TAG_DONE;
}

static void look_once(const struct tag_io *io, enum tag_state state, struct inflight_io *ret_io)
{
	*ret_io = (struct inflight_io){
		.queue = io->queue->setup.idx,
		.tag = (uint16_t)tag_of(io),
		.state = (enum inflight_state)state,
		.op = PEEK(io->request.op),
		.sector = PEEK(io->request.offset_bytes) >> 9,
		.bytes = PEEK(io->request.length_bytes),
		.start_ns = PEEK(io->start_ns),
	};
	if (state == TAG_SERVING)
		ret_io->node = backend_io_where(&io->request, &ret_io->wait);
}

/* Returns the state; for an I/O with *ret_io filled. */
static enum tag_state look(const struct tag_io *io, struct inflight_io *ret_io)
{
	enum tag_state state = PEEK(io->state);

	for (unsigned i = 0; i < LOOKS_MAX && is_io(state); i++) {
		enum tag_state after;

		look_once(io, state, ret_io);
		after = PEEK(io->state);
		if (after == state && PEEK(io->start_ns) == ret_io->start_ns)
			break;
		state = after;
	}
	return state;
}

bool device_inflight(const struct device *d, unsigned queue, struct inflight_queue *ret_queue,
		     void (*fn)(const struct inflight_io *io, void *arg), void *arg)
{
	const struct queue *q;

	if (!has_tags(d, queue))
		return false;
	q = &d->queues[queue];
	*ret_queue = (struct inflight_queue){
		.depth = q->setup.depth,
		.reactor = q->setup.reactor->idx,
	};
	for (unsigned tag = 0; tag < q->setup.depth; tag++) {
		struct inflight_io io = { 0 };
		enum tag_state state = look(&q->ios[tag], &io);

		ret_queue->tags[state]++;
		/* One that changed at the last look is left to the next question. */
		if (is_io(state) && (enum tag_state)io.state == state)
			fn(&io, arg);
	}
	return true;
}

bool device_connection(const struct device *d, unsigned queue, unsigned idx,
		       struct net_connection_look *ret_connection)
{
	return has_tags(d, queue) &&
	       backend_connection(d->queues[queue].backend, idx, ret_connection);
}

bool device_image(const struct device *d, unsigned idx, struct backend_image_look *ret_look)
{
	unsigned queue = 0;

	*ret_look = (struct backend_image_look){ 0 };
	while (has_tags(d, queue) && backend_image(d->queues[queue].backend, idx, ret_look))
		queue++;
	return queue > 0;
}

bool device_zones(const struct device *d, struct backend_zones_look *ret_look)
{
	return has_tags(d, 0) && backend_zones_look(d->queues[0].backend, ret_look);
}

bool device_integrity(const struct device *d, struct backend_integrity_look *ret_look)
{
	return has_tags(d, 0) && backend_integrity_look(d->queues[0].backend, ret_look);
}

bool device_cache(const struct device *d, unsigned idx, struct backend_cache_look *ret_look)
{
	unsigned queue = 0;

	*ret_look = (struct backend_cache_look){ 0 };
	while (has_tags(d, queue) && backend_cache_at(d->queues[queue].backend, idx, ret_look))
		queue++;
	return queue > 0;
}

static bool command_owns(const struct queue *q, uint64_t user_data)
{
	const struct op *op = &q->ios[user_data_tag(user_data)].op;

	if (q->batch)
		return batch_owns(q, user_data_slot(user_data));
	return user_data_slot(PEEK(op->user_data)) == user_data_slot(user_data);
}

bool device_owns_op(const struct device *d, const struct reactor *reactor, uint64_t user_data)
{
	unsigned queue = user_data_queue(user_data), tag = user_data_tag(user_data);
	const struct queue *q;

	if (!has_tags(d, queue))
		return false;
	q = &d->queues[queue];
	if (q->setup.reactor != reactor)
		return false;
	if (user_data_kind(user_data) == OP_KIND_TAG)
		return tag < q->setup.depth && command_owns(q, user_data);
	/* The tags behind the queue's are of requests that a node has issued by itself. */
	return user_data_kind(user_data) == OP_KIND_BACKEND &&
	       (tag >= q->setup.depth || PEEK(q->ios[tag].state) == TAG_SERVING);
}
