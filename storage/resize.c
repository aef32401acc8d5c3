/*
 * The size of storage as it was found, at open. And the size of a tree while its queues serve: on a
 * helper, which may block, but for backend_can_resize, backend_check_size and backend_set_size
 * (storage/backend.h).
 *
 * Happy path: backend_grow makes room in every leaf, and backend_set_size then lets requests in.
 * Leaf here is also a node that sizes itself: what is below it is left alone.
 * Failure modes: a leaf that refuses says why, and is named; a size that cannot be changed stays as
 * it was, but for the leaves that have grown already.
 */
#include <errno.h>
#include <stdio.h>

#include "storage/life_internal.h"
#include "storage/resize.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

/* ---- storage that ends within a block ---- */

static void tail_tell_left_out(const struct backend_device *device, uint64_t bytes)
{
	uint32_t left_out_bytes = (uint32_t)(bytes % device->open_params.logical_block_bytes);

	if (left_out_bytes)
		log_warn("the storage ends within a block: its last bytes are left out",
			 "node=%s size_bytes=%llu left_out_bytes=%u", device->name,
			 (unsigned long long)bytes, left_out_bytes);
}

void backend_set_found_size(struct backend_device *device, uint64_t bytes)
{
	uint32_t block_bytes = device->open_params.logical_block_bytes;
	bool is_only_read =
		device->open_params.read_only || (device->limits.caps & BACKEND_CAP_READ_ONLY);
	uint64_t whole_bytes = round_down(bytes, (uint64_t)block_bytes);

	device->tail = (struct backend_tail){ .found_bytes = bytes };
	device->limits.size_bytes = whole_bytes;
	if (whole_bytes == bytes)
		return;
	/* A device keeps the size that it has: it may have been made before there was padding. */
	device->tail.is_padded =
		is_only_read && (whole_bytes == 0 || device->open_params.size_bytes != whole_bytes);
	if (device->tail.is_padded) {
		device->limits.size_bytes = whole_bytes + block_bytes;
		device->limits.caps |= BACKEND_CAP_READ_ONLY;
		log_info("the storage ends within a block: zeroes follow",
			 "node=%s size_bytes=%llu zeroes_bytes=%llu", device->name,
			 (unsigned long long)bytes,
			 (unsigned long long)(device->limits.size_bytes - bytes));
	} else {
		tail_tell_left_out(device, bytes);
	}
}

static uint64_t tail_load(const struct backend_device *device)
{
	return __atomic_load_n(&device->tail.found_bytes, __ATOMIC_RELAXED);
}

static void tail_found(struct backend_device *device, uint64_t bytes)
{
	uint64_t before_bytes = tail_load(device);

	if (before_bytes == 0 || before_bytes == bytes)
		return;
	__atomic_store_n(&device->tail.found_bytes, bytes, __ATOMIC_RELAXED);
	tail_tell_left_out(device, bytes);
}

/* It has grown, or was cut: the storage has become as long. */
static void tail_follow(struct backend_device *device)
{
	uint64_t size_bytes = backend_size(device), found_bytes = tail_load(device);

	if (found_bytes && (size_bytes > found_bytes ||
			    found_bytes - size_bytes >= device->open_params.logical_block_bytes))
		__atomic_store_n(&device->tail.found_bytes, size_bytes, __ATOMIC_RELAXED);
}

uint64_t backend_size_needed(const struct backend_device *device)
{
	uint64_t found_bytes = tail_load(device), size_bytes = backend_size(device);

	return device->tail.is_padded ? MIN(size_bytes, found_bytes) : size_bytes;
}

/* ---- the size of a tree ---- */

static uint64_t size_below(const struct backend_device *device, uint64_t size_bytes)
{
	const struct backend *ops = device->ops;

	return ops->size_below ? ops->size_below(device->config, device->child_nr, size_bytes)
			       : size_bytes;
}

static uint64_t size_over(const struct backend_device *device, uint64_t child_bytes)
{
	const struct backend *ops = device->ops;

	return ops->size_over ? ops->size_over(device->config, device->child_nr, child_bytes)
			      : child_bytes;
}

/* The nearest filter above that lays out more than a block of this node at a time; NULL: none. */
static const struct backend_device *laid_out_by(const struct backend_device *node)
{
	const struct backend_device *above = node->parent;

	while (above && !above->ops->sizes_itself && !above->ops->size_over)
		above = above->parent;
	return above && above->ops->size_over ? above : NULL;
}

uint32_t backend_left_out(const struct backend_device *node)
{
	uint64_t found_bytes = tail_load(node), used_bytes = backend_size(node);
	uint64_t step_bytes = node->open_params.logical_block_bytes;
	const struct backend_device *above = laid_out_by(node);

	if (step_bytes == 0 || found_bytes % step_bytes == 0)
		return 0;
	if (above) {
		uint64_t over_bytes = size_over(above, used_bytes);

		used_bytes = size_below(above, over_bytes);
		step_bytes = size_below(above, over_bytes + 1) - used_bytes;
	}
	/* More is no part of a block or chunk: a smaller size was configured. */
	return found_bytes > used_bytes && found_bytes - used_bytes < step_bytes
		       ? (uint32_t)(found_bytes - used_bytes)
		       : 0;
}

/* Its size is not made of its children's. */
static bool sizes_itself(const struct backend_device *device)
{
	return !device->child || device->ops->sizes_itself;
}

/* The children whose sizes make this one's: the first; NULL: there are none. */
static struct backend_device *first_sized(const struct backend_device *device)
{
	return sizes_itself(device) ? NULL : device->child;
}

bool backend_can_resize(const struct backend_device *device)
{
	if (sizes_itself(device))
		return device->ops->resize;
	for (const struct backend_device *c = device->child; c; c = c->sibling)
		if (!backend_can_resize(c))
			return false;
	return device->child_nr == 1 || device->ops->size_over;
}

int backend_check_size(const struct backend_device *device, uint64_t size_bytes, char *error,
		       size_t error_bytes)
{
	uint64_t below_bytes = size_below(device, size_bytes);
	uint64_t over_bytes = size_over(device, below_bytes);

	if (over_bytes != size_bytes) {
		snprintf(error, error_bytes,
			 "%s cannot have %llu bytes: the next size that it can have is %llu",
			 device->ops->name, (unsigned long long)size_bytes,
			 (unsigned long long)over_bytes);
		return -EINVAL;
	}
	for (const struct backend_device *c = first_sized(device); c; c = c->sibling) {
		int ret = backend_check_size(c, below_bytes, error, error_bytes);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int resize_unsupported(const struct backend_device *leaf, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "the backend %s cannot change its size", leaf->ops->name);
	return -EOPNOTSUPP;
}

static int resize_result(const struct backend_device *leaf, int err, char *error,
			 size_t error_bytes)
{
	if (err < 0)
		snprintf(error, error_bytes, "%s", leaf->error[0] ? leaf->error : errname(err));
	return err;
}

static int leaf_size_now(struct backend_device *leaf, uint64_t *ret_bytes, char *error,
			 size_t error_bytes)
{
	uint64_t bytes;
	int ret;

	if (!leaf->ops->resize)
		return resize_unsupported(leaf, error, error_bytes);
	if (!leaf->ops->resize->size_now) {
		snprintf(error, error_bytes, "the backend %s does not grow by itself: give a size",
			 leaf->ops->name);
		return -EOPNOTSUPP;
	}
	leaf->error[0] = '\0';
	ret = leaf->ops->resize->size_now(leaf, &bytes);
	if (ret == 0) {
		tail_found(leaf, bytes);
		*ret_bytes = round_down(bytes, leaf->open_params.logical_block_bytes);
	}
	return resize_result(leaf, ret, error, error_bytes);
}

int backend_size_now(struct backend_device *device, uint64_t *ret_bytes, char *error,
		     size_t error_bytes)
{
	uint64_t smallest_bytes = UINT64_MAX;

	if (sizes_itself(device))
		return leaf_size_now(device, ret_bytes, error, error_bytes);
	for (struct backend_device *c = device->child; c; c = c->sibling) {
		uint64_t bytes = 0;
		int ret = backend_size_now(c, &bytes, error, error_bytes);

		if (ret < 0)
			return ret;
		smallest_bytes = MIN(smallest_bytes, bytes);
	}
	*ret_bytes = size_over(device, smallest_bytes);
	return 0;
}

uint64_t backend_size_below(const struct backend_device *device, uint64_t size_bytes)
{
	return size_below(device, size_bytes);
}

int backend_device_grow(struct backend_device *device, uint64_t size_bytes)
{
	const struct backend_resize *resize = device->ops->resize;
	int ret = 0;

	device->error[0] = '\0';
	if (sizes_itself(device) && !resize)
		return backend_fail(device, -EOPNOTSUPP, "the backend %s cannot change its size",
				    device->ops->name);
	/* A leaf beside smaller ones may be large enough already. */
	if (resize && resize->grow && size_bytes > backend_size(device))
		ret = resize->grow(device, size_bytes);
	if (ret < 0 && device->error[0] == '\0')
		backend_fail(device, ret, "%s", errname(ret));
	return ret;
}

static enum backend_usage leaf_usage(struct backend_device *leaf, uint64_t start_bytes,
				     uint64_t end_bytes)
{
	if (!leaf->ops->resize || !leaf->ops->resize->usage)
		return BACKEND_UNUSED;
	return leaf->ops->resize->usage(leaf, start_bytes, end_bytes);
}

enum backend_usage backend_usage(struct backend_device *device, uint64_t start_bytes,
				 uint64_t end_bytes)
{
	enum backend_usage all = BACKEND_UNUSED;

	if (sizes_itself(device))
		return leaf_usage(device, start_bytes, end_bytes);
	for (struct backend_device *c = device->child; c && all != BACKEND_USED; c = c->sibling) {
		enum backend_usage one = backend_usage(c, size_below(device, start_bytes),
						       size_below(device, end_bytes));

		if (one != BACKEND_UNUSED)
			all = one;
	}
	return all;
}

void backend_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	if (sizes_itself(device) && device->ops->resize && device->ops->resize->shrink)
		device->ops->resize->shrink(device, start_bytes, end_bytes);
	for (struct backend_device *c = first_sized(device); c; c = c->sibling)
		backend_shrink(c, size_below(device, start_bytes), size_below(device, end_bytes));
}

void backend_set_size(struct backend_device *device, uint64_t size_bytes)
{
	__atomic_store_n(&device->limits.size_bytes, size_bytes, __ATOMIC_RELAXED);
	tail_follow(device);
	for (struct backend_device *c = first_sized(device); c; c = c->sibling)
		backend_set_size(c, size_below(device, size_bytes));
}

void backend_has_grown(const struct backend_device *leaf)
{
	backend_tell(leaf, BACKEND_NEWS_GROWN);
}
