/*
 * The queues of a tree and their I/Os: memory and ties. Reactor threads. A queue is one allocation
 * with the private areas of all its I/Os, and two more for the requests of a node's own and their
 * buffers: nothing is allocated once a queue is open. The buffers take memory when they are first
 * used.
 *
 * Happy path: backend_queue_open from the bottom up, backend_io_init for each tag, requests (io.c),
 * backend_io_fini, backend_queue_close.
 * Failure modes: memory, or a backend that refuses: what was made is undone.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "storage/io_internal.h"
#include "storage/node.h"
#include "base/assert.h"
#include "base/util.h"

#define OWN_BUFFER_ALIGN 4096u

void *backend_area_alloc(size_t bytes)
{
	void *area = aligned_alloc(BACKEND_AREA_ALIGN, round_up(bytes, BACKEND_AREA_ALIGN));

	if (area)
		memset(area, 0, round_up(bytes, BACKEND_AREA_ALIGN));
	return area;
}

/* ---- how much ---- */

/* A node's private area has the children's I/Os behind it. */
static size_t child_ios_offset(const struct backend *ops)
{
	return round_up(ops->io_bytes, BACKEND_AREA_ALIGN);
}

static size_t child_ios_bytes(unsigned child_nr)
{
	return round_up(child_nr * sizeof(struct backend_io), BACKEND_AREA_ALIGN);
}

static size_t io_area_bytes(const struct backend *ops, unsigned child_nr)
{
	return child_ios_offset(ops) + child_ios_bytes(child_nr);
}

static size_t own_heads_bytes(const struct backend *ops)
{
	return round_up(ops->own_nr * sizeof(struct backend_own), BACKEND_AREA_ALIGN);
}

static size_t own_buffer_bytes(const struct backend *ops)
{
	return round_up(ops->own_bytes, OWN_BUFFER_ALIGN);
}

static size_t own_buffers_bytes(const struct backend *ops)
{
	return ops->own_nr * own_buffer_bytes(ops);
}

/* The children's queues have tags for the node's own requests too. */
static unsigned child_depth(const struct backend *ops, unsigned depth)
{
	return depth + ops->own_nr;
}

size_t backend_spec_queue_bytes(const struct backend_spec *spec, unsigned depth)
{
	const struct backend *ops = spec->ops;
	unsigned child_nr = 0;
	size_t bytes = 0;

	/* What is shared has a queue of its own. */
	for (const struct backend_spec *child = ops->shared ? NULL : spec->child; child;
	     child = child->sibling) {
		bytes += backend_spec_queue_bytes(child, child_depth(ops, depth));
		child_nr++;
	}
	return bytes + depth * io_area_bytes(ops, child_nr) + own_heads_bytes(ops) +
	       ops->own_nr * child_ios_bytes(child_nr) + own_buffers_bytes(ops);
}

/* ---- requests of a node's own ---- */

static void own_fini(struct backend_own *own)
{
	for (unsigned i = 0; i < own->queue->device->child_nr; i++)
		backend_io_fini(&own->child[i]);
}

static int own_init(struct backend_own *own, unsigned tag)
{
	unsigned idx = 0;

	for (struct backend_queue *child = own->queue->child; child; child = child->sibling) {
		struct backend_io *io = &own->child[idx++];
		int ret;

		list_init(&io->waiting);
		ret = backend_io_init(io, child, tag, NULL);
		if (ret < 0)
			return ret;
		io->driver_fd = -1;
	}
	return 0;
}

/* The tags behind the queue's. */
static int owns_init(struct backend_queue *queue)
{
	const struct backend *ops = queue->device->ops;
	size_t ios_bytes = child_ios_bytes(queue->device->child_nr);
	uint8_t *area = (uint8_t *)queue->own + own_heads_bytes(ops);

	for (unsigned i = 0; i < ops->own_nr; i++) {
		struct backend_own *own = &queue->own[i];
		int ret;

		own->queue = queue;
		own->child = (struct backend_io *)(area + i * ios_bytes);
		if (queue->own_buffers)
			own->buf = (uint8_t *)queue->own_buffers + i * own_buffer_bytes(ops);
		ret = own_init(own, queue->depth + i);
		if (ret < 0)
			return ret;
		list_push_back(&queue->own_free, &own->free);
	}
	return 0;
}

/* From the kernel, which gives pages as they are touched: most devices use few of them, or none. */
static int own_buffers_map(struct backend_queue *queue)
{
	size_t bytes = own_buffers_bytes(queue->device->ops);
	void *buffers;

	if (bytes == 0)
		return 0;
	buffers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffers == MAP_FAILED)
		return -ENOMEM;
	queue->own_buffers = buffers;
	return 0;
}

static int owns_open(struct backend_queue *queue)
{
	const struct backend *ops = queue->device->ops;

	list_init(&queue->own_free);
	if (ops->own_nr == 0)
		return 0;
	if (own_buffers_map(queue) < 0)
		return -ENOMEM;
	queue->own = backend_area_alloc(own_heads_bytes(ops) +
					ops->own_nr * child_ios_bytes(queue->device->child_nr));
	return queue->own ? owns_init(queue) : -ENOMEM;
}

/* Also when it is open in part. */
static void owns_close(struct backend_queue *queue)
{
	for (unsigned i = 0; queue->own && i < queue->device->ops->own_nr; i++)
		if (queue->own[i].queue)
			own_fini(&queue->own[i]);
	free(queue->own);
	if (queue->own_buffers)
		munmap(queue->own_buffers, own_buffers_bytes(queue->device->ops));
}

struct backend_own *backend_own_take(struct backend_queue *queue)
{
	struct list_node *node = list_pop_front(&queue->own_free);

	return node ? list_entry(node, struct backend_own, free) : NULL;
}

void backend_own_release(struct backend_own *own)
{
	list_push_back(&own->queue->own_free, &own->free);
}

struct backend_own *backend_own_of(const struct backend_io *child)
{
	struct backend_queue *queue = child->queue->parent;

	ASSERT(!child->parent && child->tag >= queue->depth);
	return &queue->own[child->tag - queue->depth];
}

static void own_tell(struct backend_own *own)
{
	int result = own->under_way->result;

	own->under_way = NULL;
	own->done(own, result);
}

static void own_tell_later(struct task *task)
{
	own_tell(container_of(task, struct backend_own, task));
}

void backend_own_submit(struct backend_own *own, unsigned child_idx, enum backend_op op,
			uint64_t offset_bytes, void *buf, uint32_t bytes,
			void (*done)(struct backend_own *own, int result))
{
	struct backend_io *child = &own->child[child_idx];

	child->op = (uint8_t)op;
	child->flags = 0;
	child->offset_bytes = offset_bytes;
	child->length_bytes = bytes;
	child->buf = buf ? buf : own->buf;
	child->buf_index = -1;
	own->under_way = child;
	own->done = done;
	/* Inside of submit nobody may hear of it. */
	if (backend_child_submit(child) == BACKEND_DONE)
		reactor_defer(own->queue->reactor, &own->task, own_tell_later);
}

void backend_own_ended(struct backend_io *child)
{
	own_tell(backend_own_of(child));
}

void backend_own_cancel(struct backend_own *own)
{
	if (own->under_way)
		backend_child_cancel(own->under_way);
}

/* ---- queues ---- */

static struct backend_queue *io_queue_alloc(struct backend_device *device, unsigned depth)
{
	size_t head_bytes = round_up(sizeof(struct backend_queue), BACKEND_AREA_ALIGN);
	size_t queue_bytes = round_up(device->ops->queue_bytes, BACKEND_AREA_ALIGN);
	struct backend_queue *queue = backend_area_alloc(
		head_bytes + queue_bytes + depth * io_area_bytes(device->ops, device->child_nr));

	if (!queue)
		return NULL;
	queue->device = device;
	queue->priv = (uint8_t *)queue + head_bytes;
	queue->io_priv = (uint8_t *)queue->priv + queue_bytes;
	queue->depth = (uint16_t)depth;
	queue->free_for = &backend_this_thread;
	list_init(&queue->waiting);
	return queue;
}

static int queue_open_children(struct backend_queue *queue)
{
	unsigned depth = child_depth(queue->device->ops, queue->depth);
	struct backend_queue **end = &queue->child;
	struct backend_device *child = queue->device->child;

	for (; child; child = child->sibling) {
		int ret = backend_queue_open(end, child, queue->reactor, queue->idx, depth);

		if (ret < 0)
			return ret;
		(*end)->parent = queue;
		end = &(*end)->sibling;
	}
	return 0;
}

static void queue_close_children(struct backend_queue *queue)
{
	struct backend_queue *child = queue->child;

	while (child) {
		struct backend_queue *sibling = child->sibling;

		backend_queue_close(child);
		child = sibling;
	}
}

int backend_queue_open(struct backend_queue **ret_queue, struct backend_device *device,
		       struct reactor *reactor, unsigned idx, unsigned depth)
{
	struct backend_queue *queue = io_queue_alloc(device, depth);
	int ret;

	if (!queue)
		return -ENOMEM;
	queue->reactor = reactor;
	queue->idx = (uint16_t)idx;
	ret = queue_open_children(queue);
	if (ret == 0)
		ret = owns_open(queue);
	if (ret < 0) {
		owns_close(queue);
		queue_close_children(queue);
		free(queue);
		return ret;
	}
	if (device->ops->queue_init)
		ret = device->ops->queue_init(queue);
	if (ret < 0) {
		backend_queue_close(queue);
		return ret;
	}
	*ret_queue = queue;
	return 0;
}

bool backend_queue_rest(struct backend_queue *queue)
{
	bool rests = true;

	if (!queue)
		return true;
	if (queue->device->ops->rest)
		rests = queue->device->ops->rest(queue);
	for (struct backend_queue *c = queue->child; c && rests; c = c->sibling)
		rests = backend_queue_rest(c);
	return rests;
}

void backend_queue_close(struct backend_queue *queue)
{
	if (!queue)
		return;
	ASSERT(queue->free_for == &backend_this_thread);
	ASSERT(queue->inflight == 0);
	if (queue->device->ops->queue_fini)
		queue->device->ops->queue_fini(queue);
	owns_close(queue);
	task_cancel(&queue->retry);
	queue_close_children(queue);
	free(queue);
}

/* ---- their I/Os ---- */

static void child_ios_fini(struct backend_io *io)
{
	for (unsigned i = 0; io->child && i < io->queue->device->child_nr; i++)
		backend_io_fini(&io->child[i]);
}

static int child_ios_init(struct backend_io *io)
{
	struct backend_queue *child = io->queue->child;
	int ret = 0;

	if (!child)
		return 0;
	io->child = (struct backend_io *)((uint8_t *)io->priv +
					  child_ios_offset(io->queue->device->ops));
	for (unsigned i = 0; child && ret == 0; i++, child = child->sibling) {
		io->child[i].parent = io;
		list_init(&io->child[i].waiting);
		ret = backend_io_init(&io->child[i], child, io->tag, backend_forward_done);
	}
	return ret;
}

int backend_io_init(struct backend_io *io, struct backend_queue *queue, unsigned tag,
		    backend_done_fn *done)
{
	const struct backend *ops = queue->device->ops;
	int ret;

	ASSERT(tag < queue->depth);
	io->queue = queue;
	io->done = done;
	io->tag = (uint16_t)tag;
	io->state = BACKEND_IO_IDLE;
	io->buf_index = -1;
	io->priv = queue->io_priv + tag * io_area_bytes(ops, queue->device->child_nr);
	ret = child_ios_init(io);
	if (ret == 0 && ops->io_init)
		ret = ops->io_init(io);
	/* A zeroed I/O may be finished without having been tied. */
	if (ret < 0) {
		child_ios_fini(io);
		io->queue = NULL;
	}
	return ret;
}

void backend_io_fini(struct backend_io *io)
{
	if (!io->queue)
		return;
	ASSERT(io->state == BACKEND_IO_IDLE);
	if (io->queue->device->ops->io_fini)
		io->queue->device->ops->io_fini(io);
	child_ios_fini(io);
	io->queue = NULL;
}
