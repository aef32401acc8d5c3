/*
 * Opening of the file backend: path, lock, size. Any thread, one per device: each call may block.
 * Owns the descriptor.
 *
 * Happy path: look what the path is -> open -> lock (file_lock.c) -> size -> direct I/O and limits
 * (file_limits.c). Failure modes: each is told in words with its cure; whatever was done is undone
 * by file_close, except a file that was created: it stays, empty or of its size.
 *
 * Block devices are opened O_EXCL, which a mounted file system or a RAID refuses; but not those
 * that are the base of images, which several devices read.
 *
 * An image ends anywhere. Below its format, the file has the blocks that it begins, one at least,
 * and what is beyond its end reads as zeroes (file.c), as with QEMU. So it is also created without
 * a size, empty: the format fills it, at this start or at the next one. So does a file of metadata,
 * where a block is a byte. Any other file that ends within a block: storage/resize.h.
 */
#include "backends/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/node.h"
#include "storage/resize.h"
#include "storage/version.h"

static const char *const auto_values[] = { "auto", "on", "off", NULL };

const struct option file_options[] = {
	[FILE_OPTION_PATH] = { .name = "path",
			       .type = OPTION_STRING,
			       .offset = offsetof(struct file_config, path),
			       .min = 1,
			       .flags = OPTION_REQUIRED,
			       .help = "A regular file or a block device. It is locked (option "
				       "lock); a file that another device or process has locked is "
				       "refused. A zoned block device stands directly below the "
				       "filter zoned, or is read_only." },
	[FILE_OPTION_SIZE] = { .name = "size",
			       .type = OPTION_SIZE,
			       .offset = offsetof(struct file_config, size_bytes),
			       .min = 512,
			       .max = INT64_MAX,
			       .help = "Size of the device. Default: the size of the file. A "
				       "smaller size serves the "
				       "beginning of the file; a larger one requires create: "
				       "true." },
	{ .name = "create",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct file_config, create),
	  .def = "false",
	  .help = "Create the file if it does not exist, and extend it (sparse) if it is shorter "
		  "than size. It is never truncated. Below an image format, and for metadata, no "
		  "size is needed: the file becomes as long as that needs." },
	{ .name = "direct",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct file_config, direct),
	  .values = auto_values,
	  .def = "auto",
	  .help = "Bypass the page cache (O_DIRECT). auto: if the file system supports it for "
		  "blocks of block_size." },
	{ .name = "lock",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct file_config, lock),
	  .values = auto_values,
	  .def = "auto",
	  .help = "Lock the file as QEMU does, so that no virtual machine and no qemu-img writes "
		  "to "
		  "an image that is in use here, and the other way round. auto: below an image "
		  "format, and of an image that is written also while its device waits for the "
		  "next ublkd; another file is locked as a whole, against every program that asks "
		  "for a lock. on: as QEMU in any case. off: no lock; nothing prevents that others "
		  "destroy what is written here." },
	OPTION_END,
};

static const char *file_path(const struct backend_device *device)
{
	const struct file_config *config = device->config;

	return config->path;
}

/* Where `create` would make no file that anybody wants, or none at all. */
static bool can_be_made_at(const char *path)
{
	bool is_device = strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0;
	char *copy = strdup(path);
	bool can = copy && !is_device && access(dirname(copy), F_OK) == 0;

	free(copy);
	return can;
}

/* With a cure that goes all the way: create: true alone does not, where more is in its way. */
static int fail_missing(struct backend_device *device)
{
	const struct file_device *file = device->priv;
	const char *path = file_path(device);

	if (device->open_params.read_only)
		return backend_fail(device, -ENOENT,
				    "%s does not exist, and a read_only device does not create it: "
				    "correct path",
				    path);
	if (!can_be_made_at(path))
		return backend_fail(device, -ENOENT, "%s does not exist: correct path", path);
	return backend_fail(device, -ENOENT,
			    "%s does not exist: set create: true%s, or correct path", path,
			    file->ends_anywhere ? "" : " and size");
}

static int fail_open(struct backend_device *device, int err)
{
	const char *path = file_path(device);

	switch (err) {
	case -ENOENT:
		return fail_missing(device);
	case -EACCES:
	case -EPERM:
		return backend_fail(device, err, "%s: permission denied for user id %u", path,
				    geteuid());
	case -EROFS:
		return backend_fail(device, err,
				    "%s is on a read-only file system: set read_only: true", path);
	case -EBUSY:
		return backend_fail(device, err,
				    "%s is in use: mounted, or held by another program", path);
	case -EISDIR:
		return backend_fail(device, err, "%s is a directory, not a file or block device",
				    path);
	default:
		return backend_fail(device, err, "cannot open %s: %s", path, errname(err));
	}
}

static int check_type(struct backend_device *device, mode_t mode)
{
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	if (S_ISDIR(mode))
		return fail_open(device, -EISDIR);
	return backend_fail(device, -EINVAL, "%s is neither a regular file nor a block device",
			    file_path(device));
}

static int check_creation(struct backend_device *device)
{
	const struct file_config *config = device->config;
	const struct file_device *file = device->priv;

	if (!config->create || device->open_params.read_only)
		return fail_missing(device);
	if (config->size_bytes == 0 && !file->ends_anywhere)
		return backend_fail(device, -EINVAL, "%s does not exist: create: true needs size",
				    config->path);
	return 0;
}

static bool is_shared_base(const struct backend_device *device)
{
	return device->open_params.read_only && backend_is_in_image(device);
}

/* The type is checked before the open, which could wait for ever (a fifo) or do something (a tape).
 */
static int open_flags(struct backend_device *device, int *ret_flags)
{
	int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct stat stat_before;
	int ret;

	flags |= device->open_params.read_only ? O_RDONLY : O_RDWR;
	if (stat(file_path(device), &stat_before) == 0) {
		ret = check_type(device, stat_before.st_mode);
		if (S_ISBLK(stat_before.st_mode) && !is_shared_base(device))
			flags |= O_EXCL;
	} else if (errno == ENOENT) {
		ret = check_creation(device);
		flags |= O_CREAT;
	} else {
		ret = fail_open(device, -errno);
	}
	*ret_flags = flags;
	return ret;
}

/* A new file is not durable before its directory is: a FLUSH later syncs only the file. */
static int sync_directory(struct backend_device *device)
{
	char *path = strdup(file_path(device));
	int ret = 0;
	int fd;

	if (!path)
		return fail_open(device, -ENOMEM);
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(path);
	if (fd < 0 || fsync(fd) < 0)
		ret = backend_fail(device, -errno, "cannot sync the directory of %s: %s",
				   file_path(device), errname(errno));
	if (fd >= 0)
		close(fd);
	return ret;
}

static int open_path(struct backend_device *device)
{
	struct file_device *file = device->priv;
	int flags;
	int ret = open_flags(device, &flags);

	if (ret < 0)
		return ret;
	file->fd = open(file_path(device), flags, 0600);
	if (file->fd < 0 && errno == ENOENT && (flags & O_CREAT))
		return backend_fail(device, -ENOENT, "cannot create %s: its directory is missing",
				    file_path(device));
	if (file->fd < 0 && errno == EROFS && (flags & O_CREAT))
		return backend_fail(device, -EROFS,
				    "cannot create %s: its file system is read-only",
				    file_path(device));
	if (file->fd < 0)
		return fail_open(device, -errno);
	if (fstat(file->fd, &file->stat) < 0)
		return fail_open(device, -errno);
	ret = check_type(device, file->stat.st_mode);
	if (ret < 0)
		return ret;
	file->is_block = S_ISBLK(file->stat.st_mode);
	/*
	 * O_NONBLOCK was for the open only: io_uring would take it for "fail rather than wait".
	 * O_NOATIME is for the file's owner and root.
	 */
	if (fcntl(file->fd, F_SETFL, (flags & O_ACCMODE) | O_NOATIME) < 0 &&
	    fcntl(file->fd, F_SETFL, flags & O_ACCMODE) < 0)
		return fail_open(device, -errno);
	return flags & O_CREAT ? sync_directory(device) : 0;
}

/* Who had the lock until now may have written: the version is that of what is there from now on. */
static int stat_locked(struct backend_device *device)
{
	struct file_device *file = device->priv;

	return fstat(file->fd, &file->stat) < 0 ? fail_open(device, -errno) : 0;
}

static int file_extend(struct backend_device *device, uint64_t have_bytes)
{
	const struct file_config *config = device->config;
	const struct file_device *file = device->priv;
	const char *less = have_bytes >= device->open_params.logical_block_bytes
				   ? ": leave size out to take what is there"
				   : "";
	char have[32], want[32];

	option_format_size(have_bytes, have, sizeof(have));
	option_format_size(config->size_bytes, want, sizeof(want));
	if (file->is_block)
		return backend_fail(device, -ENOSPC,
				    "%s has %s, size wants %s, and a block device does not grow%s",
				    config->path, have, want, less);
	if (device->open_params.read_only)
		return backend_fail(device, -ENOSPC,
				    "%s has %s, size wants %s, and a read_only device does not let "
				    "it grow%s",
				    config->path, have, want, less);
	if (!config->create)
		return backend_fail(device, -ENOSPC,
				    "%s has %s, size wants %s: set create: true to let it grow",
				    config->path, have, want);
	if (ftruncate(file->fd, (off_t)config->size_bytes) < 0)
		return backend_fail(device, -errno, "cannot grow %s from %s to %s: %s",
				    config->path, have, want, errname(errno));
	return 0;
}

int file_found_size(struct backend_device *device, uint64_t *ret_bytes)
{
	const struct file_device *file = device->priv;
	struct stat stat;

	if (fstat(file->fd, &stat) < 0)
		return fail_open(device, -errno);
	*ret_bytes = (uint64_t)stat.st_size;
	if (file->is_block && ioctl(file->fd, BLKGETSIZE64, ret_bytes) < 0)
		return fail_open(device, -errno);
	return 0;
}

/* Only a file that may be written can grow. */
static int fail_less_than_block(struct backend_device *device, uint64_t have_bytes)
{
	const struct file_device *file = device->priv;
	const char *cure = "set size and create: true to let it grow";

	if (file->is_block)
		cure = have_bytes ? "a block device does not grow"
				  : "nothing is in this block device, as in a loop device that is "
				    "not set up";
	else if (device->open_params.read_only)
		cure = "there is nothing to read; a device that is not read_only can let it grow, "
		       "with size and create: true";
	return backend_fail(device, -EINVAL, "%s has %llu bytes, less than a block of %u: %s",
			    file_path(device), (unsigned long long)have_bytes,
			    device->open_params.logical_block_bytes, cure);
}

/* Of an image the blocks that it begins, and the first; of another file what resize.h says. */
static int whole_size(struct backend_device *device, uint64_t have_bytes)
{
	struct file_device *file = device->priv;
	uint32_t block_bytes = device->open_params.logical_block_bytes;

	if (file->ends_anywhere) {
		device->limits.size_bytes = round_up(MAX(have_bytes, 1ull), (uint64_t)block_bytes);
		return 0;
	}
	backend_set_found_size(device, have_bytes);
	if (device->limits.size_bytes == 0)
		return fail_less_than_block(device, have_bytes);
	/* Direct I/O asks for whole blocks: the end is seen when it comes. */
	if (device->tail.is_padded)
		file->zeroes_from_bytes = have_bytes;
	device->tail.is_padded = false;
	return 0;
}

static int file_find_size(struct backend_device *device)
{
	const struct file_config *config = device->config;
	uint64_t have_bytes = 0;
	int ret = file_found_size(device, &have_bytes);

	if (ret < 0)
		return ret;
	if (device->open_params.size_bytes && device->open_params.size_bytes <= have_bytes) {
		device->limits.size_bytes = device->open_params.size_bytes;
		if (config->size_bytes == 0)
			device->tail.found_bytes = have_bytes;
		return 0;
	}
	if (config->size_bytes == 0 || device->open_params.size_bytes)
		return whole_size(device, have_bytes);
	if (config->size_bytes % device->open_params.logical_block_bytes != 0)
		return backend_fail(device, -EINVAL, "size is not a multiple of block_size: %u",
				    device->open_params.logical_block_bytes);
	device->limits.size_bytes = config->size_bytes;
	return config->size_bytes > have_bytes ? file_extend(device, have_bytes) : 0;
}

/* The kernel's zero page, many times: it costs no memory. */
static int map_zeroes(struct backend_device *device)
{
	struct file_device *file = device->priv;
	void *addr = mmap(NULL, FILE_ZEROES_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (addr == MAP_FAILED)
		return backend_fail(device, -errno, "out of memory");
	file->zeroes = addr;
	return 0;
}

/* The number of a disk is given again to the next one; its sequence number is not. */
static void block_identity(struct file_device *file)
{
	uint64_t sequence = 0; /* the kernel counts them from 1 on */

	if (ioctl(file->fd, BLKGETDISKSEQ, &sequence) < 0)
		sequence = 0;
	snprintf(file->identity, sizeof(file->identity), "block %u:%u disk %llu",
		 major(file->stat.st_rdev), minor(file->stat.st_rdev),
		 (unsigned long long)sequence);
}

/*
 * Once, at open: a file system that does not answer any more would keep the main thread waiting.
 * File systems give the inode of a removed file to the next new one: the birth tells them apart.
 */
static int find_identity(struct backend_device *device)
{
	struct file_device *file = device->priv;
	struct statx stx = { 0 };

	if (file->is_block) {
		block_identity(file);
		return 0;
	}
	if (statx(file->fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) < 0 ||
	    !(stx.stx_mask & STATX_BTIME))
		stx.stx_btime = (struct statx_timestamp){ 0 };
	snprintf(file->identity, sizeof(file->identity), "file %u:%u:%llu born %lld.%09u",
		 major(file->stat.st_dev), minor(file->stat.st_dev),
		 (unsigned long long)file->stat.st_ino, (long long)stx.stx_btime.tv_sec,
		 stx.stx_btime.tv_nsec);
	return 0;
}

void file_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct file_device *file = device->priv;

	memcpy(text, file->identity, sizeof(file->identity));
}

static void file_version_words(const struct stat *stat, char words[BACKEND_VERSION_BYTES])
{
	snprintf(words, BACKEND_VERSION_BYTES, "file %llu of %llu bytes, changed %lld.%09ld",
		 (unsigned long long)stat->st_ino, (unsigned long long)stat->st_size,
		 (long long)stat->st_ctim.tv_sec, stat->st_ctim.tv_nsec);
}

/* As it was when it had been opened. A block device does not say what was written to it. */
static void file_version_found(const struct backend_device *device, struct backend_version *ret)
{
	const struct file_device *file = device->priv;

	if (file->is_block)
		return;
	ret->kind = BACKEND_VERSION_NOW;
	file_version_words(&file->stat, ret->found);
}

static int file_version_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	const struct file_device *file = device->priv;
	struct stat stat;

	if (file->is_block)
		return -EOPNOTSUPP;
	if (fstat(file->fd, &stat) < 0)
		return -errno;
	file_version_words(&stat, words);
	return 0;
}

const struct backend_version_ops file_version = { .found = file_version_found,
						  .now = file_version_now };

int file_open(struct backend_device *device)
{
	static int (*const steps[])(struct backend_device *) = {
		open_path,     file_lock,	   stat_locked,	     file_find_size,
		find_identity, file_choose_direct, file_check_zones, map_zeroes,
	};
	struct file_device *file = device->priv;

	file->fd = file->kept_fd = -1;
	file->name = device->name;
	file->in_image = backend_is_in_image(device);
	file->ends_anywhere = file->in_image || (device->as && device->as->is_bytewise);
	file->zeroes_from_bytes = file->in_image ? 0 : UINT64_MAX;
	list_init(&file->opened);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int ret = steps[i](device);

		if (ret < 0)
			return ret;
	}
	if (backend_was_owed(device))
		file_drop_cached(file);
	file_remember(file);
	file_find_limits(device);
	log_info("file opened", "device=%s path=\"%s\" size_bytes=%llu direct=%s", device->name,
		 file_path(device), (unsigned long long)device->limits.size_bytes,
		 file->direct ? "on" : "off");
	return 0;
}

void file_close(struct backend_device *device)
{
	struct file_device *file = device->priv;

	file_forget(file);
	if (file->zeroes)
		munmap((void *)(uintptr_t)file->zeroes, FILE_ZEROES_BYTES);
	if (file->fd < 0)
		return;
	file_unlock(file);
	close(file->fd);
	/* Its locks hold as long as the fd store has it. */
	if (file->kept_fd >= 0)
		close(file->kept_fd);
}

/* As far as this machine knows: it asks no server, which may be gone. */
void file_look(const struct backend_queue *queue, struct backend_image_look *look)
{
	const struct file_device *file = queue->device->priv;
	struct statx st;

	if (look->has_stored || file->is_block ||
	    statx(file->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BLOCKS, &st) < 0)
		return;
	look->has_stored = true;
	look->stored_bytes = st.stx_blocks * 512;
}
