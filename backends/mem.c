/*
 * mem: a RAM disk. Owns a sparse memfd and one shared mapping of it; used by any number of queues
 * on any reactors without a lock.
 *
 * Happy path: READ and WRITE are a memcpy inside submit, DONE at once. DISCARD and WRITE_ZEROES
 * give whole pages back (mem_zero.c). There is no volatile cache: nothing to flush.
 *
 * `present` tells which pages may hold data. Reading a hole through the mapping would allocate its
 * page, so that `dd if=/dev/ublkbN` filled the memory of the machine: holes are read by memset.
 * And a page fault that finds no memory is a SIGBUS, so writes first ask for the page with
 * fallocate(2), whose failure is an errno; that costs one call per first touch, about what the
 * page faults that follow cost.
 *
 * Failure modes: ENOSPC of a write when the system has no memory left (strict overcommit, huge
 * pages used up); a cgroup's limit still means the OOM killer. Restarting the daemon loses the
 * data.
 */
#include "backends/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "backends/registry.h"
#include "base/errname.h"
#include "base/util.h"

struct mem_config {
	uint64_t size_bytes;
	bool huge_pages;
};

static const struct option mem_options[] = {
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct mem_config, size_bytes),
	  .min = 4096,
	  .max = INT64_MAX,
	  .flags = OPTION_REQUIRED,
	  .help = "Size of the device. Memory is used only for what was written and not "
		  "discarded." },
	{ .name = "huge_pages",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct mem_config, huge_pages),
	  .def = "false",
	  .help = "Use huge pages. The whole size must be free in the pool (vm.nr_hugepages) when "
		  "the device starts; memory is given back in units of one huge page." },
	OPTION_END,
};

static uint64_t page_of(const struct mem_device *mem, uint64_t offset_bytes)
{
	return offset_bytes >> mem->page_shift;
}

static bool is_present(const struct mem_device *mem, uint64_t page)
{
	return atomic_load(&mem->present[page / 64]) >> (page % 64) & 1;
}

uint64_t mem_run(const struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes,
		 bool *ret_present)
{
	uint64_t end = offset_bytes + length_bytes;
	uint64_t page = page_of(mem, offset_bytes);
	bool present = is_present(mem, page);

	do {
		page++;
	} while (page << mem->page_shift < end && is_present(mem, page) == present);
	*ret_present = present;
	return MIN(page << mem->page_shift, end) - offset_bytes;
}

static int allocate(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t start = round_down(offset_bytes, mem->page_bytes);
	uint64_t end = round_up(offset_bytes + length_bytes, mem->page_bytes);

	while (fallocate(mem->fd, FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start)) < 0)
		if (errno != EINTR)
			return -ENOSPC;
	return 0;
}

int mem_reserve(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes)
{
	bool present;

	if (mem_run(mem, offset_bytes, length_bytes, &present) == length_bytes && present)
		return 0;
	return allocate(mem, offset_bytes, length_bytes);
}

/*
 * After the bytes, not before: a discard in flight on another queue may have cleared the bit since
 * mem_reserve, and a page with data whose bit is clear would read as zeroes now and show its data
 * again when a neighbour is written.
 */
void mem_mark_present(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t last = page_of(mem, offset_bytes + length_bytes - 1);

	for (uint64_t page = page_of(mem, offset_bytes); page <= last; page++)
		if (!is_present(mem, page))
			atomic_fetch_or(&mem->present[page / 64], 1ull << (page % 64));
}

static int mem_read(struct mem_device *mem, struct backend_io *io)
{
	uint32_t done_bytes = 0;
	int ret = 0;

	while (done_bytes < io->length_bytes && ret == 0) {
		uint64_t offset_bytes = io->offset_bytes + done_bytes;
		bool present;
		uint64_t run_bytes =
			mem_run(mem, offset_bytes, io->length_bytes - done_bytes, &present);

		ret = present ? backend_data_put(io, done_bytes, mem->base + offset_bytes,
						 run_bytes)
			      : backend_data_put_zeroes(io, done_bytes, run_bytes);
		done_bytes += (uint32_t)run_bytes;
	}
	return ret;
}

static int mem_write(struct mem_device *mem, struct backend_io *io)
{
	int ret = mem_reserve(mem, io->offset_bytes, io->length_bytes);

	if (ret < 0)
		return ret;
	ret = backend_data_get(io, 0, mem->base + io->offset_bytes, io->length_bytes);
	/* Also after an error: some of it may be there. */
	mem_mark_present(mem, io->offset_bytes, io->length_bytes);
	return ret;
}

static enum backend_submit mem_submit(struct backend_io *io)
{
	struct mem_device *mem = io->queue->device->priv;

	io->result = 0;
	switch (io->op) {
	case BACKEND_READ:
		io->result = mem_read(mem, io);
		break;
	case BACKEND_WRITE:
		io->result = mem_write(mem, io);
		break;
	case BACKEND_DISCARD:
	case BACKEND_WRITE_ZEROES:
		return mem_zero_submit(io);
	}
	return BACKEND_DONE;
}

static int fail_memory(struct backend_device *device, int err, const char *what)
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

static int create_file(struct backend_device *device)
{
	const struct mem_config *config = device->config;
	struct mem_device *mem = device->priv;
	struct statfs fs;

	mem->fd = memfd_create("ublkd-mem", MFD_CLOEXEC | (config->huge_pages ? MFD_HUGETLB : 0));
	if (mem->fd < 0)
		return fail_memory(device, -errno, "memfd_create");
	if (fstatfs(mem->fd, &fs) < 0)
		return fail_memory(device, -errno, "fstatfs");
	mem->page_bytes = (uint64_t)fs.f_bsize;
	mem->page_shift = log2_floor(mem->page_bytes);
	mem->map_bytes = round_up(config->size_bytes, mem->page_bytes);
	if (mem->map_bytes < config->size_bytes || mem->map_bytes > INT64_MAX)
		return fail_memory(device, -EFBIG, "size");
	if (ftruncate(mem->fd, (off_t)mem->map_bytes) < 0)
		return fail_memory(device, -errno, "ftruncate");
	return 0;
}

static size_t bitmap_bytes(const struct mem_device *mem)
{
	return (size_t)round_up(page_of(mem, mem->map_bytes), 64) / 8;
}

static int map_file(struct backend_device *device)
{
	struct mem_device *mem = device->priv;
	void *addr = mmap(NULL, mem->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mem->fd, 0);

	if (addr == MAP_FAILED)
		return fail_memory(device, -errno, "mmap");
	mem->base = addr;
	/* Somebody's disk has no business in a core file. */
	madvise(addr, mem->map_bytes, MADV_DONTDUMP);
	addr = mmap(NULL, bitmap_bytes(mem), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED)
		return fail_memory(device, -errno, "mmap");
	mem->present = addr;
	return 0;
}

static int mem_open(struct backend_device *device)
{
	const struct mem_config *config = device->config;
	struct mem_device *mem = device->priv;
	int ret = create_file(device);

	if (ret == 0)
		ret = map_file(device);
	if (ret < 0)
		return ret;
	device->limits = (struct backend_limits){
		.size_bytes = config->size_bytes,
		.caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES,
		.discard_granularity_bytes = (uint32_t)mem->page_bytes,
	};
	if (device->wishes.read_only)
		device->limits.caps |= BACKEND_CAP_READ_ONLY;
	return 0;
}

static void mem_close(struct backend_device *device)
{
	struct mem_device *mem = device->priv;

	if (mem->present)
		munmap(mem->present, bitmap_bytes(mem));
	if (mem->base)
		munmap(mem->base, mem->map_bytes);
	if (mem->fd >= 0)
		close(mem->fd);
}

/* Inodes count per file system, and huge pages have one of their own. */
static void mem_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct mem_device *mem = device->priv;
	struct stat st = { 0 };

	fstat(mem->fd, &st); /* of a memfd it cannot fail */
	snprintf(text, BACKEND_IDENTITY_BYTES, "memfd %u:%u:%llu", major(st.st_dev),
		 minor(st.st_dev), (unsigned long long)st.st_ino);
}

static int mem_parked_fd(const struct backend_device *device)
{
	const struct mem_device *mem = device->priv;

	return mem->fd;
}

static int mem_queue_init(struct backend_queue *queue)
{
	const struct mem_device *mem = queue->device->priv;
	struct mem_queue *q = queue->priv;

	q->file_slot = reactor_file_add(queue->reactor, mem->fd);
	return MIN(q->file_slot, 0);
}

static void mem_queue_fini(struct backend_queue *queue)
{
	struct mem_queue *q = queue->priv;

	reactor_file_remove(queue->reactor, q->file_slot);
}

static int mem_io_init(struct backend_io *io)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND,
				  .queue = io->queue->idx,
				  .tag = io->tag };
	struct mem_io *m = io->priv;

	m->io = io;
	return op_init(&m->op, io->queue->reactor, owner, mem_zero_punched);
}

static void mem_io_fini(struct backend_io *io)
{
	struct mem_io *m = io->priv;

	op_fini(&m->op);
}

const struct backend backend_mem = {
	.name = "mem",
	.summary = "a RAM disk: sparse, gone when the daemon ends",
	.options = mem_options,
	.config_bytes = sizeof(struct mem_config),
	.device_bytes = sizeof(struct mem_device),
	.queue_bytes = sizeof(struct mem_queue),
	.io_bytes = sizeof(struct mem_io),
	.data = BACKEND_DATA_MOVES,
	.open = mem_open,
	.close = mem_close,
	.queue_init = mem_queue_init,
	.queue_fini = mem_queue_fini,
	.io_init = mem_io_init,
	.io_fini = mem_io_fini,
	.submit = mem_submit,
	.identity = mem_identity,
	.parked_fd = mem_parked_fd,
};
