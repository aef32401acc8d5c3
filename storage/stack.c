/*
 * How a filter hands an I/O to the backend below it and gets the answer back. Reactor threads.
 *
 * Happy path: backend_forward copies the request into the child's I/O and submits it; when the
 * child is done, stack_child_done completes the filter's I/O with the same result.
 * Failure modes: a child that is BUSY. The I/O is parked in the filter's queue and submitted again
 * when another one of the child is complete, which must come: BUSY is legal only while one is in
 * flight. So a filter never sees BUSY and never says it.
 */
#include "storage/stack.h"

#include <errno.h>

#include "storage/backend.h"
#include "base/assert.h"

static void copy_request(struct backend_io *child, const struct backend_io *io)
{
	child->op = io->op;
	child->flags = io->flags;
	child->offset_bytes = io->offset_bytes;
	child->length_bytes = io->length_bytes;
	child->buf = io->buf;
	child->buf_index = io->buf_index;
	child->driver_fd = io->driver_fd;
	child->driver_pos = io->driver_pos;
}

static void retry(struct task *task);

/* The filter's own wait stands in its I/O already. */
static void take_answer(struct backend_io *io)
{
	io->result = io->child->result;
	io->throttle_ns += io->child->throttle_ns;
}

static void answer(struct backend_io *io)
{
	take_answer(io);
	backend_io_complete(io, io->result);
}

void stack_child_done(struct backend_io *child)
{
	struct backend_queue *queue = child->parent->queue;

	if (!list_empty(&queue->parked))
		reactor_defer(queue->reactor, &queue->retry, retry);
	answer(child->parent);
}

/* Submits in the order of parking until the child is BUSY again. */
static void retry(struct task *task)
{
	struct backend_queue *queue = container_of(task, struct backend_queue, retry);

	while (!list_empty(&queue->parked)) {
		struct backend_io *child =
			list_entry(queue->parked.next, struct backend_io, parked);
		enum backend_submit submit = backend_io_submit(child);

		if (submit == BACKEND_BUSY)
			return;
		list_remove(&child->parked);
		if (submit == BACKEND_DONE)
			answer(child->parent);
	}
}

/* Behind those that wait: whoever came first goes first. */
static enum backend_submit submit_child(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;
	enum backend_submit submit = BACKEND_BUSY;

	copy_request(io->child, io);
	if (list_empty(&queue->parked))
		submit = backend_io_submit(io->child);
	if (submit != BACKEND_BUSY)
		return submit;
	list_push_back(&queue->parked, &io->child->parked);
	return BACKEND_QUEUED;
}

enum backend_submit backend_forward(struct backend_io *io)
{
	enum backend_submit submit = submit_child(io);

	if (submit == BACKEND_DONE)
		take_answer(io);
	return submit;
}

void backend_forward_queued(struct backend_io *io)
{
	ASSERT(io->state == BACKEND_IO_QUEUED);
	if (submit_child(io) == BACKEND_DONE)
		answer(io);
}

void backend_forward_cancel(struct backend_io *io)
{
	struct backend_io *child = io->child;

	if (list_empty(&child->parked)) {
		backend_io_cancel(child);
		return;
	}
	list_remove(&child->parked);
	backend_io_complete(io, -ECANCELED);
}

static uint8_t state_of(const struct backend_io *io)
{
	return __atomic_load_n(&io->state, __ATOMIC_RELAXED);
}

const char *backend_wait_kind_name(enum backend_wait_kind kind)
{
	static const char *const name[BACKEND_WAIT_KIND_NR] = { "answer", "throttle", "delay" };

	return kind < BACKEND_WAIT_KIND_NR ? name[kind] : "?";
}

const char *backend_io_where(const struct backend_io *io, struct backend_wait *ret_wait)
{
	struct backend_wait wait = { .kind = BACKEND_WAIT_ANSWER };
	const struct backend *ops;

	if (state_of(io) != BACKEND_IO_QUEUED)
		return NULL;
	while (io->child && state_of(io->child) == BACKEND_IO_QUEUED)
		io = io->child;
	ops = io->queue->device->ops;
	if (ops->wait)
		wait = ops->wait(io);
	/* A filter that keeps nothing for itself waits in the list above. */
	if (!wait.words)
		wait.words =
			io->child ? "waiting for the busy backend below" : "waiting for an answer";
	*ret_wait = wait;
	return ops->name;
}
