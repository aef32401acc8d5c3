/*
 * The memory of a mem device: a memfd and one shared mapping of it, both owned. Any thread, at open
 * and close.
 *
 * Happy path: create the memfd, or take over the one that a daemon before left parked -> map it ->
 * learn from SEEK_DATA which pages hold data. A memfd lives as long as anybody has it: it is parked
 * (open parameters.parked_fd, docs/recovery.md) and so outlives this process.
 * Failure modes: no memory, or a parked file that is not what the configuration says, are told in
 * words with the cure; whatever was done is undone by mem_close. Nothing is written to a parked
 * file here, so one that was refused is as it was.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "backends/mem/mem.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

const struct option mem_options[] = {
	[MEM_OPTION_SIZE] = { .name = "size",
			      .type = OPTION_SIZE,
			      .offset = offsetof(struct mem_config, size_bytes),
			      .min = 4096,
			      .max = INT64_MAX,
			      .flags = OPTION_REQUIRED,
			      .help = "Size of the device. Memory is allocated when data is "
				      "written, and freed when "
				      "it is discarded. The size may exceed the memory: a write "
				      "fails with ENOSPC "
				      "when the machine, or the daemon's control group, has no "
				      "free memory except "
				      "for a reserve." },
	[MEM_OPTION_HUGE_PAGES] = { .name = "huge_pages",
				    .type = OPTION_BOOL,
				    .offset = offsetof(struct mem_config, huge_pages),
				    .def = "false",
				    .help = "Use huge pages. The pool (vm.nr_hugepages) must have "
					    "enough free pages for "
					    "the whole size when the device starts. Memory is "
					    "freed in units of one huge "
					    "page." },
	OPTION_END,
};

static int mem_fail_open(struct backend_device *device, int err, const char *what)
{
	const struct mem_config *config = device->config;

	if (config->huge_pages && (err == -ENOMEM || err == -ENOSPC))
		return backend_fail(device, err,
				    "not enough free huge pages for %llu MiB: raise "
				    "vm.nr_hugepages, or set huge_pages: false",
				    (unsigned long long)(config->size_bytes >> 20));
	return backend_fail(device, err, "cannot get %llu MiB of memory: %s: %s",
			    (unsigned long long)(config->size_bytes >> 20), what, errname(err));
}

/* A device that is taken over has the size that it had, whatever was configured. */
static uint64_t wanted_bytes(const struct backend_device *device)
{
	const struct mem_config *config = device->config;

	return device->open_params.size_bytes ? device->open_params.size_bytes : config->size_bytes;
}

/* Finds the size of the file's pages, and of all of them. */
static int find_pages(struct backend_device *device)
{
	struct mem_device *mem = device->priv;
	struct statfs fs;

	if (fstatfs(mem->fd, &fs) < 0)
		return mem_fail_open(device, -errno, "fstatfs");
	mem->page_bytes = (uint64_t)fs.f_bsize;
	mem->page_shift = log2_floor(mem->page_bytes);
	mem->is_huge = (unsigned long)fs.f_type == HUGETLBFS_MAGIC;
	mem->map_bytes = round_up(wanted_bytes(device), mem->page_bytes);
	if (mem->map_bytes < wanted_bytes(device) || mem->map_bytes > INT64_MAX)
		return mem_fail_open(device, -EFBIG, "size");
	return 0;
}

static int mem_create_file(struct backend_device *device)
{
	const struct mem_config *config = device->config;
	struct mem_device *mem = device->priv;
	int ret;

	mem->fd = memfd_create("ublkd-mem", MFD_CLOEXEC | (config->huge_pages ? MFD_HUGETLB : 0));
	if (mem->fd < 0)
		return mem_fail_open(device, -errno, "memfd_create");
	ret = find_pages(device);
	if (ret < 0)
		return ret;
	if (ftruncate(mem->fd, (off_t)mem->map_bytes) < 0)
		return mem_fail_open(device, -errno, "ftruncate");
	return 0;
}

/* The cure for every refusal below: the content is thrown away only when the user asks for it. */
#define OR_REMOVE "or remove the device, which gives its content up"

static int mem_check_kind(struct backend_device *device)
{
	const struct mem_config *config = device->config;
	const struct mem_device *mem = device->priv;
	struct statfs fs;
	bool huge;

	if (fcntl(mem->fd, F_GET_SEALS) < 0 || fstatfs(mem->fd, &fs) < 0)
		return backend_fail(device, -EMEDIUMTYPE,
				    "what was kept for it is no memory: remove the device and add "
				    "it again");
	huge = (unsigned long)fs.f_type == HUGETLBFS_MAGIC;
	if (huge != config->huge_pages)
		return backend_fail(device, -EMEDIUMTYPE,
				    "its memory was made with huge_pages: %s: set that, " OR_REMOVE,
				    huge ? "true" : "false");
	return 0;
}

static int mem_check_size(struct backend_device *device)
{
	struct mem_device *mem = device->priv;
	bool same_device = device->open_params.size_bytes > 0;
	char have[32], want[32];
	struct stat st;

	if (fstat(mem->fd, &st) < 0)
		return mem_fail_open(device, -errno, "fstat");
	/* Longer: its daemon died while it changed its size, or keeps what a shrink did not cut. */
	if (same_device && (uint64_t)st.st_size > mem->map_bytes)
		mem->map_bytes = (uint64_t)st.st_size;
	if ((uint64_t)st.st_size == mem->map_bytes)
		return 0;
	option_format_size((uint64_t)st.st_size, have, sizeof(have));
	option_format_size(wanted_bytes(device), want, sizeof(want));
	return backend_fail(device, -EMEDIUMTYPE,
			    "its memory has %s, size wants %s: set size: %s, " OR_REMOVE, have,
			    want, have);
}

static int take_stored_file(struct backend_device *device)
{
	struct mem_device *mem = device->priv;
	int ret;

	/* 0 would be no wish. */
	mem->fd = fcntl(device->open_params.stored_fd, F_DUPFD_CLOEXEC, 3);
	if (mem->fd < 0)
		return mem_fail_open(device, -errno, "dup");
	ret = mem_check_kind(device);
	if (ret == 0)
		ret = find_pages(device);
	return ret < 0 ? ret : mem_check_size(device);
}

static int map_file(struct backend_device *device)
{
	const char *what;
	int ret = mem_map(device->priv, &what);

	return ret < 0 ? mem_fail_open(device, ret, what) : 0;
}

/*
 * What a write has asked for but not filled before its daemon died counts as a hole, and reads as
 * zeroes either way. On hugetlbfs all of a file is data: its holes are merely taken from the pool
 * when they are read, and the whole size is reserved there anyway.
 */
static int find_present(struct backend_device *device)
{
	struct mem_device *mem = device->priv;
	off_t data = lseek(mem->fd, 0, SEEK_DATA), hole;

	while (data >= 0) {
		hole = lseek(mem->fd, data, SEEK_HOLE);
		if (hole <= data)
			return mem_fail_open(device, hole < 0 ? -errno : -EIO, "SEEK_HOLE");
		mem_mark_present(mem, (uint64_t)data, (uint64_t)(hole - data));
		data = lseek(mem->fd, hole, SEEK_DATA);
	}
	return errno == ENXIO ? 0 : mem_fail_open(device, -errno, "SEEK_DATA");
}

static int get_memory(struct backend_device *device)
{
	bool parked = device->open_params.stored_fd > 0;
	int ret = parked ? take_stored_file(device) : mem_create_file(device);

	if (ret == 0)
		ret = map_file(device);
	if (ret == 0 && parked)
		ret = find_present(device);
	if (ret == 0 && parked)
		log_info("memory taken over", "device=%s", device->name);
	return ret;
}

int mem_open(struct backend_device *device)
{
	struct mem_device *mem = device->priv;
	int ret;

	mem->fd = -1;
	ret = get_memory(device);
	if (ret < 0)
		return ret;
	device->limits = (struct backend_limits){
		.size_bytes = wanted_bytes(device),
		.caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES,
		.discard_granularity_bytes = (uint32_t)mem->page_bytes,
	};
	if (device->open_params.read_only)
		device->limits.caps |= BACKEND_CAP_READ_ONLY;
	return 0;
}

void mem_close(struct backend_device *device)
{
	struct mem_device *mem = device->priv;

	mem_unmap(mem);
	if (mem->fd >= 0)
		close(mem->fd);
}

/* Inodes count per file system, and huge pages have one of their own. */
void mem_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct mem_device *mem = device->priv;
	struct stat st = { 0 };

	fstat(mem->fd, &st); /* of a memfd it cannot fail */
	snprintf(text, BACKEND_IDENTITY_BYTES, "memfd %u:%u:%llu", major(st.st_dev),
		 minor(st.st_dev), (unsigned long long)st.st_ino);
}

int mem_stored_fd(const struct backend_device *device)
{
	const struct mem_device *mem = device->priv;

	return mem->fd;
}

/* Huge pages are no longer a part of it: their pool has them whether they are used or not. */
uint64_t mem_memory_bytes(const void *config)
{
	const struct mem_config *c = config;

	return c->huge_pages ? 0 : c->size_bytes;
}
