/*
 * A file that changes its length while it is served. A helper, which may block; the reactors' I/O
 * goes on beside.
 *
 * Happy path: growing makes the file longer (sparse), or takes more of what is there; shrinking
 * cuts it. A block device has the size it has: growing takes in what it has grown below.
 *
 * Failure modes: no room (words), a file system that cannot tell data from holes (unknown, so that
 * it takes force), a truncate that is refused (logged: the file stays longer than the device). What
 * a file had beyond the end of the device is not the device's: such a file is not cut, but gets a
 * hole where the device was.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

static const char *file_resize_path(const struct backend_device *device)
{
	const struct file_config *config = device->config;

	return config->path;
}

static int file_grow(struct backend_device *device, uint64_t size_bytes)
{
	const struct file_device *file = device->priv;
	uint64_t have_bytes;
	char have[32];
	int ret = file_found_size(device, &have_bytes);

	if (ret < 0 || size_bytes <= have_bytes)
		return ret;
	if (file->is_block)
		return backend_fail(device, -ENOSPC,
				    "%s has %s: a block device grows below, then resize without a "
				    "size takes all of it",
				    file_resize_path(device),
				    option_format_size(have_bytes, have, sizeof(have)));
	if (ftruncate(file->fd, (off_t)size_bytes) < 0)
		return backend_fail(
			device, -errno, "cannot grow %s from %s: %s", file_resize_path(device),
			option_format_size(have_bytes, have, sizeof(have)), errname(errno));
	return 0;
}

static enum backend_usage file_usage(struct backend_device *device, uint64_t start_bytes,
				     uint64_t end_bytes)
{
	const struct file_device *file = device->priv;
	off_t data;

	if (file->is_block)
		return BACKEND_USAGE_UNKNOWN;
	/* The position that this moves is used by nobody: all I/O says where. */
	data = lseek(file->fd, (off_t)start_bytes, SEEK_DATA);
	if (data < 0)
		return errno == ENXIO ? BACKEND_UNUSED : BACKEND_USAGE_UNKNOWN;
	return (uint64_t)data < end_bytes ? BACKEND_USED : BACKEND_UNUSED;
}

static void file_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	const struct file_device *file = device->priv;
	uint64_t have_bytes;
	int ret = 0;

	if (file->is_block || file_found_size(device, &have_bytes) < 0)
		return;
	if (round_down(have_bytes, device->open_params.logical_block_bytes) > end_bytes)
		ret = fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)start_bytes, (off_t)(end_bytes - start_bytes));
	else if (have_bytes > start_bytes)
		ret = ftruncate(file->fd, (off_t)start_bytes);
	if (ret < 0)
		log_warn("file keeps what is beyond the end of the device",
			 "device=%s path=\"%s\" error=%s", device->name, file_resize_path(device),
			 errname(errno));
}

const struct backend_resize file_resize = {
	.size_now = file_found_size,
	.grow = file_grow,
	.usage = file_usage,
	.shrink = file_shrink,
};
