/*
 * Owns the memory of devices and queues: each is one allocation with its private area behind it,
 * and a queue holds the private areas of all its I/Os. Nothing is allocated once a queue is open.
 *
 * Happy path: backend_open on the main thread, backend_queue_open and backend_io_init on each
 * reactor, then only wrap.c until everything is closed in the opposite order.
 * Failure modes: what open refuses is told in words; a half-open object is closed by the same
 * function as a whole one.
 */
#include "storage/backend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/stack.h"
#include "storage/wrap.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* Private areas start on cache lines of their own: queues of one device run on different cores. */
#define AREA_ALIGN 64u

static void *area_alloc(size_t bytes)
{
	void *area = aligned_alloc(AREA_ALIGN, round_up(bytes, AREA_ALIGN));

	if (area)
		memset(area, 0, round_up(bytes, AREA_ALIGN));
	return area;
}

int backend_fail(struct backend_device *device, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(device->error, sizeof(device->error), fmt, ap);
	va_end(ap);
	return err;
}

static struct backend_device *device_alloc(const struct backend *ops)
{
	size_t head_bytes = round_up(sizeof(struct backend_device), AREA_ALIGN);
	struct backend_device *device = area_alloc(head_bytes + ops->device_bytes);

	if (!device)
		return NULL;
	device->ops = ops;
	device->priv = (uint8_t *)device + head_bytes;
	return device;
}

/* What open found must make sense together with what the configuration asks for. */
static int check_limits(struct backend_device *device)
{
	struct backend_limits *limits = &device->limits;
	uint32_t block_bytes = device->open_params.logical_block_bytes;

	limits->physical_block_bytes = MAX(limits->physical_block_bytes, block_bytes);
	if (limits->logical_block_bytes > block_bytes)
		return backend_fail(device, -EINVAL,
				    "cannot serve blocks of %u bytes: set block_size: %u",
				    block_bytes, limits->logical_block_bytes);
	if (limits->size_bytes < block_bytes)
		return backend_fail(device, -EINVAL,
				    "is %llu bytes small: it needs one block of %u at least",
				    (unsigned long long)limits->size_bytes, block_bytes);
	if (limits->size_bytes % block_bytes != 0)
		return backend_fail(device, -EINVAL,
				    "size of %llu bytes is not a multiple of block_size: %u",
				    (unsigned long long)limits->size_bytes, block_bytes);
	return 0;
}

static int device_open(struct backend_device *device)
{
	int ret = device->ops->open ? device->ops->open(device) : 0;

	device->open_params.stored_fd = 0; /* the caller may close it now */
	if (ret < 0 && device->error[0] == '\0')
		return backend_fail(device, ret, "%s: cannot open: %s", device->ops->name,
				    errname(ret));
	return ret < 0 ? ret : check_limits(device);
}

static struct backend_device *device_new(const struct backend_spec *spec,
					 struct backend_device *child, const char *name,
					 const struct backend_open_params *open_params)
{
	struct backend_device *device = device_alloc(spec->ops);

	if (!device)
		return NULL;
	device->name = name;
	device->config = spec->config;
	device->open_params = *open_params;
	device->child = child;
	if (child)
		device->limits = child->limits;
	return device;
}

/* Recurses at most BACKEND_STACK_MAX deep. */
int backend_open(struct backend_device **ret_device, const struct backend_spec *spec,
		 const char *name, const struct backend_open_params *open_params, char *error,
		 size_t error_bytes)
{
	struct backend_device *child = NULL, *device;
	int ret = 0;

	ASSERT(spec->ops->is_filter == (spec->child != NULL));
	ASSERT(is_power_of_two(open_params->logical_block_bytes) &&
	       open_params->logical_block_bytes >= 512);
	if (spec->child)
		ret = backend_open(&child, spec->child, name, open_params, error, error_bytes);
	if (ret < 0)
		return ret;
	device = device_new(spec, child, name, open_params);
	if (!device) {
		snprintf(error, error_bytes, "out of memory");
		backend_close(child);
		return -ENOMEM;
	}
	ret = device_open(device);
	if (ret < 0) {
		snprintf(error, error_bytes, "%s", device->error);
		backend_close(device);
		return ret;
	}
	*ret_device = device;
	return 0;
}

void backend_close(struct backend_device *device)
{
	while (device) {
		struct backend_device *child = device->child;

		if (device->ops->close)
			device->ops->close(device);
		free(device);
		device = child;
	}
}

static const struct backend_device *bottom_of(const struct backend_device *device)
{
	while (device->child)
		device = device->child;
	return device;
}

void backend_identity(const struct backend_device *top, char text[BACKEND_IDENTITY_BYTES])
{
	const struct backend_device *device = bottom_of(top);

	if (device->ops->identity)
		device->ops->identity(device, text);
	else
		snprintf(text, BACKEND_IDENTITY_BYTES, "%s", device->ops->name);
}

int backend_stored_fd(const struct backend_device *top)
{
	const struct backend_device *device = bottom_of(top);

	return device->ops->stored_fd ? device->ops->stored_fd(device) : -1;
}

const char *backend_end_name(enum backend_end end)
{
	static const char *const name[BACKEND_END_NR] = { "closed",    "unreachable", "refused",
							  "silent",    "protocol",    "shutdown",
							  "cancelled", "changed" };

	return end < BACKEND_END_NR ? name[end] : "?";
}

bool backend_connection(const struct backend_queue *top, unsigned idx,
			struct backend_connection *ret_connection)
{
	const struct backend_queue *q = top;

	while (q->child)
		q = q->child;
	return q->device->ops->connection && q->device->ops->connection(q, idx, ret_connection);
}

const char *backend_failure(const struct backend_device *top)
{
	const struct backend_device *device = bottom_of(top);

	return device->ops->failure ? device->ops->failure(device) : NULL;
}

void backend_abandon(const struct backend_device *top)
{
	const struct backend_device *device = bottom_of(top);

	if (device->ops->abandon)
		device->ops->abandon((struct backend_device *)(uintptr_t)device);
}

/* A filter's private area has the child's I/O behind it. */
static size_t child_io_offset(const struct backend *ops)
{
	return round_up(ops->io_bytes, AREA_ALIGN);
}

static size_t io_area_bytes(const struct backend *ops)
{
	size_t child_bytes = ops->is_filter ? sizeof(struct backend_io) : 0;

	return child_io_offset(ops) + round_up(child_bytes, AREA_ALIGN);
}

size_t backend_spec_io_bytes(const struct backend_spec *spec)
{
	size_t bytes = 0;

	for (; spec; spec = spec->child)
		bytes += io_area_bytes(spec->ops);
	return bytes;
}

static struct backend_queue *queue_alloc(struct backend_device *device, unsigned depth)
{
	size_t head_bytes = round_up(sizeof(struct backend_queue), AREA_ALIGN);
	size_t queue_bytes = round_up(device->ops->queue_bytes, AREA_ALIGN);
	struct backend_queue *queue =
		area_alloc(head_bytes + queue_bytes + depth * io_area_bytes(device->ops));

	if (!queue)
		return NULL;
	queue->device = device;
	queue->priv = (uint8_t *)queue + head_bytes;
	queue->io_priv = (uint8_t *)queue->priv + queue_bytes;
	return queue;
}

int backend_queue_open(struct backend_queue **ret_queue, struct backend_device *device,
		       struct reactor *reactor, unsigned idx, unsigned depth)
{
	struct backend_queue *queue = queue_alloc(device, depth);
	int ret = 0;

	if (!queue)
		return -ENOMEM;
	queue->reactor = reactor;
	queue->idx = (uint16_t)idx;
	queue->depth = (uint16_t)depth;
	queue->free_for = wrap_this_thread();
	list_init(&queue->parked);
	if (device->child)
		ret = backend_queue_open(&queue->child, device->child, reactor, idx, depth);
	if (ret < 0) {
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

void backend_queue_close(struct backend_queue *queue)
{
	while (queue) {
		struct backend_queue *child = queue->child;

		wrap_check_queue_close(queue);
		if (queue->device->ops->queue_fini)
			queue->device->ops->queue_fini(queue);
		task_cancel(&queue->retry);
		free(queue);
		queue = child;
	}
}

static int child_io_init(struct backend_io *io)
{
	const struct backend *ops = io->queue->device->ops;

	if (!ops->is_filter)
		return 0;
	io->child = (struct backend_io *)((uint8_t *)io->priv + child_io_offset(ops));
	io->child->parent = io;
	list_init(&io->child->parked);
	return backend_io_init(io->child, io->queue->child, io->tag, stack_child_done);
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
	io->priv = queue->io_priv + tag * io_area_bytes(ops);
	ret = child_io_init(io);
	if (ret == 0 && ops->io_init) {
		ret = ops->io_init(io);
		if (ret < 0 && io->child)
			backend_io_fini(io->child);
	}
	/* A zeroed I/O may be finished without having been tied. */
	if (ret < 0)
		io->queue = NULL;
	return ret;
}

void backend_io_fini(struct backend_io *io)
{
	if (!io->queue)
		return;
	ASSERT(io->state == BACKEND_IO_IDLE);
	if (io->queue->device->ops->io_fini)
		io->queue->device->ops->io_fini(io);
	if (io->child)
		backend_io_fini(io->child);
	io->queue = NULL;
}

const char *backend_op_name(enum backend_op op)
{
	static const char *const name[BACKEND_OP_NR] = {
		[BACKEND_READ] = "read",
		[BACKEND_WRITE] = "write",
		[BACKEND_FLUSH] = "flush",
		[BACKEND_DISCARD] = "discard",
		[BACKEND_WRITE_ZEROES] = "write_zeroes",
	};

	return op < BACKEND_OP_NR ? name[op] : "?";
}

int backend_errno_map(int err)
{
	switch (err) {
	case -ENOSPC:
	case -EIO:
	case -EOPNOTSUPP:
	case -ETIMEDOUT:
	case -ENOLINK:
	case -EREMOTEIO:
	case -ENODATA:
	case -EILSEQ:
	case -ENOMEM:
		return err;
	case -EDQUOT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}
