/*
 * What the file or block device below can do: alignment of direct I/O, block sizes, discard.
 * Any thread, at open. Happy path: ask statx, ioctls and sysfs; nothing here changes a byte.
 * Failure modes: what cannot be asked is assumed absent; only `direct: on` insists.
 */
#include "backends/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

#define PAGE_BYTES 4096u

/* Alignment of direct I/O: 0 for impossible, this for what the file system does not tell. */
#define ALIGN_UNKNOWN UINT32_MAX

static uint32_t block_ioctl(const struct file_device *file, unsigned long request)
{
	unsigned value = 0;

	return ioctl(file->fd, request, &value) < 0 ? 0 : value;
}

static void direct_align(const struct file_device *file, uint32_t *ret_offset_bytes,
			 uint32_t *ret_mem_bytes)
{
	struct statx sx;

	*ret_offset_bytes = ALIGN_UNKNOWN;
	*ret_mem_bytes = 0;
	if (file->is_block)
		*ret_offset_bytes = block_ioctl(file, BLKSSZGET);
	/* Since Linux 6.1, for the file systems that answer. */
	if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) < 0 ||
	    !(sx.stx_mask & STATX_DIOALIGN))
		return;
	*ret_offset_bytes = sx.stx_dio_offset_align;
	*ret_mem_bytes = sx.stx_dio_mem_align;
}

static int set_direct(struct file_device *file, bool on)
{
	int flags = fcntl(file->fd, F_GETFL);

	if (flags < 0 || fcntl(file->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) < 0)
		return -errno;
	file->direct = on;
	return 0;
}

/* Reads one block at the second block's place, the least aligned offset there is. */
static int try_read(const struct backend_device *device)
{
	const struct file_device *file = device->priv;
	uint32_t block_bytes = device->open_params.logical_block_bytes;
	void *buf = aligned_alloc(PAGE_BYTES, round_up(block_bytes, PAGE_BYTES));
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	n = pread(file->fd, buf, block_bytes, block_bytes);
	free(buf);
	return n < 0 ? -errno : 0;
}

static int insist(struct backend_device *device, uint32_t align_bytes)
{
	const struct file_config *config = device->config;
	uint32_t block_bytes = device->open_params.logical_block_bytes;
	char cure[BACKEND_BLOCK_CURE_BYTES];
	int ret;

	if (align_bytes == 0)
		return backend_fail(device, -EINVAL,
				    "direct: on is impossible for %s: its file system has no "
				    "direct I/O; set direct: auto",
				    config->path);
	if (align_bytes != ALIGN_UNKNOWN && align_bytes > block_bytes)
		return backend_fail(
			device, -EINVAL, "direct: on for %s cannot serve blocks of %u bytes: %s",
			config->path, block_bytes, backend_block_cure(align_bytes, cure));
	ret = set_direct(device->priv, true);
	if (ret == 0 && align_bytes == ALIGN_UNKNOWN)
		ret = try_read(device);
	if (ret < 0)
		return backend_fail(
			device, ret, "direct: on failed for %s (%s): set direct: auto%s",
			config->path, errname(ret),
			block_bytes < BACKEND_BLOCK_BYTES_MAX ? ", or block_size: 4096" : "");
	return 0;
}

int file_choose_direct(struct backend_device *device)
{
	const struct file_config *config = device->config;
	struct file_device *file = device->priv;
	struct backend_limits *limits = &device->limits;
	uint32_t align_bytes, mem_bytes;
	int ret = 0;

	direct_align(file, &align_bytes, &mem_bytes);
	if (config->direct == FILE_DIRECT_ON)
		ret = insist(device, align_bytes);
	else if (config->direct == FILE_DIRECT_AUTO && align_bytes != 0 &&
		 align_bytes <= device->open_params.logical_block_bytes)
		set_direct(file, true); /* or not: buffered serves as well */
	if (ret < 0 || !file->direct || align_bytes == ALIGN_UNKNOWN)
		return ret;
	limits->logical_block_bytes = align_bytes;
	limits->dma_alignment_bytes = mem_bytes;
	return 0;
}

/* The folder in sysfs of a block device, of the whole disk for a partition; false: none. */
static bool disk_path(dev_t dev, char path[static 64])
{
	static const char *const form[] = { "/sys/dev/block/%u:%u", "/sys/dev/block/%u:%u/.." };
	char queue[96];

	for (size_t i = 0; i < ARRAY_SIZE(form); i++) {
		snprintf(path, 64, form[i], major(dev), minor(dev));
		snprintf(queue, sizeof(queue), "%s/queue", path);
		if (access(queue, F_OK) == 0)
			return true;
	}
	return false;
}

FILE *file_queue_limit_open(dev_t dev, const char *name)
{
	char disk[64], path[128];

	if (!disk_path(dev, disk))
		return NULL;
	snprintf(path, sizeof(path), "%s/queue/%s", disk, name);
	return fopen(path, "re");
}

uint64_t file_queue_limit(dev_t dev, const char *name)
{
	FILE *f = file_queue_limit_open(dev, name);
	unsigned long long value = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%llu", &value) != 1)
		value = 0;
	fclose(f);
	return value;
}

/*
 * Does the driver below take a request's pages however many they are? One that has no requests of
 * its own (no blk-mq: brd, zram, pmem) and named no limit shows the block layer's defaults
 * (blk_validate_limits: BLK_MAX_SEGMENTS, BLK_MAX_SEGMENT_SIZE), and nobody looks at them. Those
 * that stack (dm, md, multipath) have the limits of what they stand on, and do look.
 */
static bool takes_any_pages(dev_t dev, const struct backend_limits *limits)
{
	char disk[64], path[128];

	if (limits->max_segments != 128 || limits->max_segment_bytes != 65536)
		return false;
	if (!disk_path(dev, disk))
		return false;
	snprintf(path, sizeof(path), "%s/mq", disk);
	return access(path, F_OK) < 0;
}

static uint64_t queue_limit(const struct file_device *file, const char *name)
{
	return file_queue_limit(file->stat.st_rdev, name);
}

/* Of the device below; a file system on several devices, or on none, has no queue to ask. */
static void find_page_limits(struct backend_device *device)
{
	const struct file_device *file = device->priv;
	dev_t dev = file->is_block ? file->stat.st_rdev : file->stat.st_dev;
	struct backend_limits *limits = &device->limits;

	if (!file->direct)
		return;
	limits->max_segments = (uint32_t)file_queue_limit(dev, "max_segments");
	limits->max_segment_bytes = (uint32_t)file_queue_limit(dev, "max_segment_size");
	limits->virt_boundary_mask = file_queue_limit(dev, "virt_boundary_mask");
	if (takes_any_pages(dev, limits))
		limits->max_segments = limits->max_segment_bytes = 0;
}

/*
 * A hole punched behind the end of file and device changes nothing and tells whether the file
 * system knows how. Zeroed ranges cannot be tried so, they would allocate: file.c finds out.
 */
static bool can_punch(const struct backend_device *device)
{
	const struct file_device *file = device->priv;
	uint64_t end_bytes = MAX(device->limits.size_bytes, (uint64_t)file->stat.st_size);

	return fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)round_up(end_bytes, PAGE_BYTES), PAGE_BYTES) == 0;
}

static void find_file_limits(struct backend_device *device)
{
	struct file_device *file = device->priv;
	struct backend_limits *limits = &device->limits;
	uint32_t best_bytes = (uint32_t)file->stat.st_blksize;
	struct statfs fs;

	limits->physical_block_bytes = MIN(best_bytes, PAGE_BYTES);
	limits->io_opt_bytes = best_bytes > PAGE_BYTES ? best_bytes : 0;
	if (device->open_params.read_only)
		return;
	if (fstatfs(file->fd, &fs) == 0 && can_punch(device)) {
		limits->caps |= BACKEND_CAP_DISCARD;
		limits->discard_granularity_bytes = (uint32_t)fs.f_bsize;
	} else {
		atomic_store(&file->no_punch, true);
	}
}

/*
 * fallocate(PUNCH_HOLE) on a block device is WRITE ZEROES with deallocation allowed and without
 * fallback: it needs that command, not DISCARD, for which io_uring has a command of its own.
 */
static void find_block_discard(struct backend_device *device)
{
	struct file_device *file = device->priv;
	struct backend_limits *limits = &device->limits;

	atomic_store(&file->no_discard, queue_limit(file, "discard_max_bytes") == 0);
	atomic_store(&file->no_punch, queue_limit(file, "write_zeroes_max_bytes") == 0);
	if (atomic_load(&file->no_discard) && atomic_load(&file->no_punch))
		return;
	limits->caps |= BACKEND_CAP_DISCARD;
	limits->discard_granularity_bytes = (uint32_t)queue_limit(file, "discard_granularity");
}

static void find_block_limits(struct backend_device *device)
{
	const struct file_device *file = device->priv;
	struct backend_limits *limits = &device->limits;

	/* Also for buffered I/O: fallocate insists on whole sectors. */
	limits->logical_block_bytes = block_ioctl(file, BLKSSZGET);
	limits->physical_block_bytes = block_ioctl(file, BLKPBSZGET);
	limits->io_opt_bytes = block_ioctl(file, BLKIOOPT);
	if (queue_limit(file, "rotational"))
		limits->caps |= BACKEND_CAP_ROTATIONAL;
	if (!device->open_params.read_only)
		find_block_discard(device);
}

void file_find_limits(struct backend_device *device)
{
	const struct file_config *config = device->config;
	const struct file_device *file = device->priv;

	device->limits.caps = device->open_params.read_only ? BACKEND_CAP_READ_ONLY
							    : BACKEND_CAP_FLUSH | BACKEND_CAP_FUA |
								      BACKEND_CAP_WRITE_ZEROES;
	if (!device->open_params.read_only && !file->is_block && config->size_bytes == 0)
		device->limits.caps |= BACKEND_CAP_GROWS;
	if (file->is_block)
		find_block_limits(device);
	else
		find_file_limits(device);
	find_page_limits(device);
	if (file->is_zoned)
		file_find_zones(device);
}
