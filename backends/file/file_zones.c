/*
 * Block devices with zones (zoned block devices: host-managed shingled disks, NVMe drives with
 * zones) for the node `zoned`, which writes each zone in order and tells its state as the device
 * below does (storage/zones.h). At open any thread; then the queue's reactor. Owns the helpers of a
 * queue and the memory of one report.
 *
 * Happy path: a ZONE_MANAGE waits for those before it -> an ioctl of linux/blkzoned.h on a helper
 * thread, as many as a report needs -> answered. One at a time: few come, each may take as long as
 * the device likes, and a tool that resets ten thousand zones needs no ten thousand threads.
 *
 * Failure modes: an ioctl fails, or there is no thread for it: the request gets the errno. A report
 * that the kernel cuts short of the last zone is told short: who asked looks at each zone. Nobody
 * can end an ioctl that hangs: the queue waits for it, as for any other I/O of the device.
 */
#include <errno.h>
#include <linux/blkzoned.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "backends/file/file.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "reactor/helper.h"
#include "storage/zones.h"

#define SECTOR_BYTES 512u
/* Zones that one ioctl asks for. */
#define FILE_REPORT_ZONES 1024u

/* ---- at open ---- */

/*
 * "host-managed" of none, host-aware, host-managed (block/blk-sysfs.c): since 6.9 the kernel takes
 * host-aware disks for ordinary ones, and they are written in any order everywhere.
 */
static bool is_host_managed(dev_t dev)
{
	FILE *f = file_queue_limit_open(dev, "zoned");
	char word[32] = "";

	if (!f)
		return false;
	if (fscanf(f, "%31s", word) != 1)
		word[0] = '\0';
	fclose(f);
	return strcmp(word, "host-managed") == 0;
}

int file_check_zones(struct backend_device *device)
{
	const struct file_config *config = device->config;
	struct file_device *file = device->priv;
	uint64_t block_bytes;

	if (!file->is_block || !is_host_managed(file->stat.st_rdev))
		return 0;
	if (!device->parent || !device->parent->ops->is_zoned) {
		/* Reads need no order. */
		if (device->open_params.read_only)
			return 0;
		return backend_fail(device, -EINVAL,
				    "%s is a zoned block device, whose zones are written in order: "
				    "set type: zoned with backend: {type: file, path: %s} directly "
				    "below it, or read_only: true",
				    config->path, config->path);
	}
	block_bytes = file_queue_limit(file->stat.st_rdev, "logical_block_size");
	/* Larger ones are refused because of that, without a cure. */
	if (!file->direct && block_bytes <= BACKEND_BLOCK_BYTES_MAX)
		return backend_fail(device, -EINVAL,
				    "%s is a zoned block device and needs direct I/O: set direct: "
				    "auto, and block_size: %llu",
				    config->path, (unsigned long long)block_bytes);
	if (config->size_bytes)
		return backend_fail(device, -EINVAL,
				    "%s is a zoned block device, which is served as a whole: leave "
				    "out size",
				    config->path);
	file->is_zoned = true;
	return 0;
}

void file_find_zones(struct backend_device *device)
{
	struct file_device *file = device->priv;
	struct backend_limits *limits = &device->limits;
	dev_t dev = file->stat.st_rdev;
	uint32_t zone_sectors = 0;

	if (ioctl(file->fd, BLKGETZONESZ, &zone_sectors) < 0 || zone_sectors == 0)
		zone_sectors = (uint32_t)file_queue_limit(dev, "chunk_sectors");
	/* Of zones that cannot be told from each other, the node over this one says so. */
	limits->zones = (struct backend_zone_limits){
		.bytes = zone_sectors ? (uint64_t)zone_sectors * SECTOR_BYTES : 1,
		.open_nr_max = (uint32_t)file_queue_limit(dev, "max_open_zones"),
		.active_nr_max = (uint32_t)file_queue_limit(dev, "max_active_zones"),
	};
	/* Since 5.11; a shingled disk with small logical blocks is written in physical ones. */
	limits->logical_block_bytes =
		MAX(limits->logical_block_bytes,
		    (uint32_t)file_queue_limit(dev, "zone_write_granularity"));
	file->zoned_bytes = limits->size_bytes;
	limits->size_bytes = limits->size_bytes / limits->zones.bytes * limits->zones.bytes;
	/* What discards a sequential zone is its reset. */
	limits->caps &= ~(uint32_t)(BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES);
	limits->discard_granularity_bytes = 0;
	if (limits->size_bytes < file->zoned_bytes)
		log_warn("the last zone is smaller than the others: it is left out",
			 "device=%s bytes=%llu", device->name,
			 (unsigned long long)(file->zoned_bytes - limits->size_bytes));
}

/* ---- commands ---- */

struct file_zones {
	struct backend_queue *queue;
	struct helpers *helpers;
	struct backend_io *io; /* whose turn it is; NULL: nobody's */
	/* Those behind it, a ring of the queue's depth. */
	struct backend_io **waiting;
	unsigned first, nr;
	/* Of the helper while the job runs, else of the reactor. */
	struct helper_job job;
	int result;
	uint32_t told_bytes; /* of a report, to its request */
	struct blk_zone_report *report;
};

static uint64_t zone_sector(const struct file_zones *z)
{
	return z->io->offset_bytes / SECTOR_BYTES;
}

static int ioctl_report(struct file_zones *z, int fd)
{
	uint32_t told_nr = z->told_bytes / BACKEND_ZONE_REPORT_BYTES;
	uint32_t left_nr = z->io->length_bytes / BACKEND_ZONE_REPORT_BYTES - told_nr;
	uint64_t zone_sectors = z->queue->device->limits.zones.bytes / SECTOR_BYTES;

	z->report->sector = zone_sector(z) + told_nr * zone_sectors;
	z->report->nr_zones = MIN(left_nr, FILE_REPORT_ZONES);
	z->report->flags = 0;
	return ioctl(fd, BLKREPORTZONE, z->report) < 0 ? -errno : 0;
}

static int ioctl_action(const struct file_zones *z, int fd)
{
	static const unsigned long request[BACKEND_ZONE_ACTION_NR] = {
		[BACKEND_ZONE_RESET] = BLKRESETZONE,   [BACKEND_ZONE_RESET_ALL] = BLKRESETZONE,
		[BACKEND_ZONE_OPEN] = BLKOPENZONE,     [BACKEND_ZONE_CLOSE] = BLKCLOSEZONE,
		[BACKEND_ZONE_FINISH] = BLKFINISHZONE,
	};
	const struct file_device *file = z->queue->device->priv;
	struct blk_zone_range range = {
		.sector = zone_sector(z),
		.nr_sectors = z->queue->device->limits.zones.bytes / SECTOR_BYTES,
	};

	/* Of the whole device the kernel leaves out conventional zones (blkdev_reset_zones). */
	if (z->io->zone == BACKEND_ZONE_RESET_ALL)
		range = (struct blk_zone_range){ .nr_sectors = file->zoned_bytes / SECTOR_BYTES };
	return ioctl(fd, request[z->io->zone], &range) < 0 ? -errno : 0;
}

static void zones_work(struct helper_job *job)
{
	struct file_zones *z = container_of(job, struct file_zones, job);
	const struct file_device *file = z->queue->device->priv;

	z->result = z->io->zone == BACKEND_ZONE_REPORT ? ioctl_report(z, file->fd)
						       : ioctl_action(z, file->fd);
}

/* Before Linux 5.9 a report says nothing of capacities, and zones have no other one. */
static void add_capacities(struct blk_zone_report *report)
{
	for (uint32_t i = 0; !(report->flags & BLK_ZONE_REP_CAPACITY) && i < report->nr_zones; i++)
		report->zones[i].capacity = report->zones[i].len;
}

/* Returns 1: the request wants more zones than have come until now; else its result. */
static int report_told(struct file_zones *z)
{
	uint32_t left_bytes = z->io->length_bytes - z->told_bytes;
	uint32_t bytes = MIN(z->report->nr_zones, FILE_REPORT_ZONES) * BACKEND_ZONE_REPORT_BYTES;
	int ret;

	bytes = MIN(bytes, left_bytes);
	add_capacities(z->report);
	ret = backend_data_put(z->io, z->told_bytes, z->report->zones, bytes);
	z->told_bytes += bytes;
	left_bytes -= bytes;
	if (ret < 0 || left_bytes == 0)
		return ret;
	if (bytes > 0 && left_bytes >= BACKEND_ZONE_REPORT_BYTES)
		return 1;
	return backend_data_put_zeroes(z->io, z->told_bytes, left_bytes);
}

static void zones_ended(struct helper_job *job);

static int zones_start(struct file_zones *z)
{
	z->job = (struct helper_job){ .work = zones_work, .done = zones_ended };
	return helper_start(z->helpers, &z->job);
}

static int zones_begin(struct file_zones *z, struct backend_io *io)
{
	int ret;

	z->io = io;
	z->told_bytes = 0;
	ret = zones_start(z);
	if (ret < 0)
		z->io = NULL;
	return ret;
}

/* The turn of the next one, as long as none begins. */
static void zones_next(struct file_zones *z)
{
	while (!z->io && z->nr > 0) {
		struct backend_io *io = z->waiting[z->first];
		int ret;

		z->first = (z->first + 1) % z->queue->depth;
		z->nr--;
		ret = zones_begin(z, io);
		if (ret < 0)
			backend_io_complete(io, ret);
	}
}

static void zones_ended(struct helper_job *job)
{
	struct file_zones *z = container_of(job, struct file_zones, job);
	struct backend_io *io = z->io;
	int ret = z->result;

	if (ret == 0 && io->zone == BACKEND_ZONE_REPORT)
		ret = report_told(z);
	if (ret > 0)
		ret = zones_start(z) < 0 ? -EAGAIN : 1;
	if (ret > 0)
		return;
	z->io = NULL;
	backend_io_complete(io, ret);
	zones_next(z);
}

enum backend_submit file_zones_submit(struct file_zones *z, struct backend_io *io)
{
	int ret;

	if (z->io) {
		ASSERT(z->nr < z->queue->depth);
		z->waiting[(z->first + z->nr++) % z->queue->depth] = io;
		return BACKEND_QUEUED;
	}
	ret = zones_begin(z, io);
	if (ret == 0)
		return BACKEND_QUEUED;
	io->result = ret;
	return BACKEND_DONE;
}

struct file_zones *file_zones_create(struct backend_queue *queue, int *ret_err)
{
	struct file_zones *z = calloc(1, sizeof(*z));

	*ret_err = -ENOMEM;
	if (!z)
		return NULL;
	z->queue = queue;
	z->waiting = calloc(queue->depth, sizeof(struct backend_io *));
	z->report = malloc(sizeof(*z->report) + FILE_REPORT_ZONES * sizeof(struct blk_zone));
	if (z->waiting && z->report)
		*ret_err = helpers_create(&z->helpers, queue->reactor);
	return z;
}

void file_zones_free(struct file_zones *z)
{
	if (!z)
		return;
	ASSERT(!z->io);
	helpers_close(z->helpers);
	free(z->report);
	free(z->waiting);
	free(z);
}
