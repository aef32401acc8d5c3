/*
 * The size of a stack that serves: asks the lowest backend, where the bytes live, and keeps the
 * limits of all above it the same. One thread at a time, while reactors go on submitting.
 *
 * Happy path: backend_grow makes room, backend_set_size lets requests in. Failure modes: a backend
 * that cannot, or has no room: told in words, and nothing has changed.
 */
#include <errno.h>
#include <stdio.h>

#include "storage/backend.h"
#include "base/errname.h"
#include "base/util.h"

static struct backend_device *bottom_of(struct backend_device *device)
{
	while (device->child)
		device = device->child;
	return device;
}

bool backend_can_resize(const struct backend_device *device)
{
	while (device->child)
		device = device->child;
	return device->ops->resize;
}

static int fail_cannot(const struct backend_device *bottom, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "the backend %s cannot change its size", bottom->ops->name);
	return -EOPNOTSUPP;
}

static int with_words(const struct backend_device *bottom, int err, char *error, size_t error_bytes)
{
	if (err < 0)
		snprintf(error, error_bytes, "%s", bottom->error[0] ? bottom->error : errname(err));
	return err;
}

int backend_size_now(struct backend_device *device, uint64_t *ret_bytes, char *error,
		     size_t error_bytes)
{
	struct backend_device *bottom = bottom_of(device);
	uint64_t bytes;
	int ret;

	if (!bottom->ops->resize)
		return fail_cannot(bottom, error, error_bytes);
	if (!bottom->ops->resize->size_now) {
		snprintf(error, error_bytes, "the backend %s does not grow by itself: give a size",
			 bottom->ops->name);
		return -EOPNOTSUPP;
	}
	bottom->error[0] = '\0';
	ret = bottom->ops->resize->size_now(bottom, &bytes);
	if (ret == 0)
		*ret_bytes = round_down(bytes, bottom->open_params.logical_block_bytes);
	return with_words(bottom, ret, error, error_bytes);
}

int backend_grow(struct backend_device *device, uint64_t size_bytes, char *error,
		 size_t error_bytes)
{
	struct backend_device *bottom = bottom_of(device);

	if (!bottom->ops->resize)
		return fail_cannot(bottom, error, error_bytes);
	if (!bottom->ops->resize->grow)
		return 0;
	bottom->error[0] = '\0';
	return with_words(bottom, bottom->ops->resize->grow(bottom, size_bytes), error,
			  error_bytes);
}

enum backend_usage backend_usage(struct backend_device *device, uint64_t start_bytes,
				 uint64_t end_bytes)
{
	struct backend_device *bottom = bottom_of(device);

	if (!bottom->ops->resize || !bottom->ops->resize->usage)
		return BACKEND_UNUSED;
	return bottom->ops->resize->usage(bottom, start_bytes, end_bytes);
}

void backend_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	struct backend_device *bottom = bottom_of(device);

	if (bottom->ops->resize && bottom->ops->resize->shrink)
		bottom->ops->resize->shrink(bottom, start_bytes, end_bytes);
}

void backend_set_size(struct backend_device *device, uint64_t size_bytes)
{
	for (; device; device = device->child)
		__atomic_store_n(&device->limits.size_bytes, size_bytes, __ATOMIC_RELAXED);
}
