/*
 * Devices of a filter tree: opened from the bottom up, closed from the top down, asked who they are
 * and resized. A device is one allocation with its private area behind it. open, close and resizing
 * run on a helper, which may block; what else is here on the main thread (storage/backend.h).
 *
 * Happy path: backend_open, queues of io.c open and close, backend_close. backend_grow makes room
 * and backend_set_size then lets requests in.
 * Failure modes: a backend that refuses says why in words; a device that is half open is closed by
 * the same function as a whole one; a size that cannot be changed stays as it was.
 */
#include "storage/backend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

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
	size_t head_bytes = round_up(sizeof(struct backend_device), BACKEND_AREA_ALIGN);
	struct backend_device *device = backend_area_alloc(head_bytes + ops->device_bytes);

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

/* Where the bytes live: the lowest one. */
static struct backend_device *device_bottom(const struct backend_device *device)
{
	while (device->child)
		device = device->child;
	return (struct backend_device *)(uintptr_t)device;
}

void backend_identity(const struct backend_device *top, char text[BACKEND_IDENTITY_BYTES])
{
	const struct backend_device *device = device_bottom(top);

	if (device->ops->identity)
		device->ops->identity(device, text);
	else
		snprintf(text, BACKEND_IDENTITY_BYTES, "%s", device->ops->name);
}

int backend_stored_fd(const struct backend_device *top)
{
	const struct backend_device *device = device_bottom(top);

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
	const struct backend_device *device = device_bottom(top);

	return device->ops->failure ? device->ops->failure(device) : NULL;
}

void backend_abandon(const struct backend_device *top)
{
	struct backend_device *device = device_bottom(top);

	if (device->ops->abandon)
		device->ops->abandon(device);
}

/* ---- size, while queues serve ---- */

bool backend_can_resize(const struct backend_device *device)
{
	return device_bottom(device)->ops->resize;
}

static int resize_unsupported(const struct backend_device *bottom, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "the backend %s cannot change its size", bottom->ops->name);
	return -EOPNOTSUPP;
}

static int resize_result(const struct backend_device *bottom, int err, char *error,
			 size_t error_bytes)
{
	if (err < 0)
		snprintf(error, error_bytes, "%s", bottom->error[0] ? bottom->error : errname(err));
	return err;
}

int backend_size_now(struct backend_device *device, uint64_t *ret_bytes, char *error,
		     size_t error_bytes)
{
	struct backend_device *bottom = device_bottom(device);
	uint64_t bytes;
	int ret;

	if (!bottom->ops->resize)
		return resize_unsupported(bottom, error, error_bytes);
	if (!bottom->ops->resize->size_now) {
		snprintf(error, error_bytes, "the backend %s does not grow by itself: give a size",
			 bottom->ops->name);
		return -EOPNOTSUPP;
	}
	bottom->error[0] = '\0';
	ret = bottom->ops->resize->size_now(bottom, &bytes);
	if (ret == 0)
		*ret_bytes = round_down(bytes, bottom->open_params.logical_block_bytes);
	return resize_result(bottom, ret, error, error_bytes);
}

int backend_grow(struct backend_device *device, uint64_t size_bytes, char *error,
		 size_t error_bytes)
{
	struct backend_device *bottom = device_bottom(device);

	if (!bottom->ops->resize)
		return resize_unsupported(bottom, error, error_bytes);
	if (!bottom->ops->resize->grow)
		return 0;
	bottom->error[0] = '\0';
	return resize_result(bottom, bottom->ops->resize->grow(bottom, size_bytes), error,
			     error_bytes);
}

enum backend_usage backend_usage(struct backend_device *device, uint64_t start_bytes,
				 uint64_t end_bytes)
{
	struct backend_device *bottom = device_bottom(device);

	if (!bottom->ops->resize || !bottom->ops->resize->usage)
		return BACKEND_UNUSED;
	return bottom->ops->resize->usage(bottom, start_bytes, end_bytes);
}

void backend_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	struct backend_device *bottom = device_bottom(device);

	if (bottom->ops->resize && bottom->ops->resize->shrink)
		bottom->ops->resize->shrink(bottom, start_bytes, end_bytes);
}

void backend_set_size(struct backend_device *device, uint64_t size_bytes)
{
	for (; device; device = device->child)
		__atomic_store_n(&device->limits.size_bytes, size_bytes, __ATOMIC_RELAXED);
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
