/*
 * The address space of a RAM disk, and how its size changes while it serves. Main thread.
 *
 * Reactors use `base` and `present` without a lock, so neither may ever move: open reserves more
 * address space than the size needs, and growing maps the longer memfd into it. Address space costs
 * nothing: the reservation is PROT_NONE, the bitmap is touched only where data is.
 *
 *   | memfd, map_bytes | reserved: PROT_NONE ........................ |
 *
 * Failure modes: less address space than wished (a limit, RLIMIT_AS): there is less room to grow;
 * no room left, or no free huge pages: growing is refused in words. A mapping of the kernel that
 * fails half way leaves a hole in the reservation, which is closed at once: the main thread is the
 * only one that maps, but for client libraries.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/mem/mem.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

/* 1024 devices of this fit in half of the 128 TiB that a process has. */
#define RESERVE_BYTES_MIN GIB(64)
#define RESERVE_FACTOR 8

static size_t bitmap_bytes(const struct mem_device *mem)
{
	return (size_t)round_up(mem_page(mem, mem->reserved_bytes), 64) / 8;
}

static int mem_reserve(struct mem_device *mem, uint64_t bytes)
{
	uint64_t space_bytes = bytes + mem->page_bytes;
	void *space = mmap(NULL, space_bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (space == MAP_FAILED)
		return -errno;
	/* Somebody's disk has no business in a core file. */
	madvise(space, space_bytes, MADV_DONTDUMP);
	mem->space = space;
	mem->space_bytes = space_bytes;
	mem->base = (uint8_t *)round_up((uintptr_t)space, mem->page_bytes);
	mem->reserved_bytes = bytes;
	return 0;
}

/* As much as there is of what may be wanted once. */
static int reserve_most(struct mem_device *mem)
{
	int ret = -ENOMEM;

	for (uint64_t factor = RESERVE_FACTOR; ret < 0 && factor > 0; factor /= 2) {
		uint64_t bytes;

		if (__builtin_mul_overflow(mem->map_bytes, factor, &bytes) || bytes > INT64_MAX)
			continue;
		if (factor > 1)
			bytes = MAX(bytes, round_up(RESERVE_BYTES_MIN, mem->page_bytes));
		ret = mem_reserve(mem, bytes);
	}
	return ret;
}

/* Pages of the memfd become usable at their place. */
static int map_part(struct mem_device *mem, uint64_t start_bytes, uint64_t end_bytes)
{
	void *at = mem->base + start_bytes;

	if (mmap(at, end_bytes - start_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 mem->fd, (off_t)start_bytes) == MAP_FAILED)
		return -errno;
	madvise(at, end_bytes - start_bytes, MADV_DONTDUMP);
	return 0;
}

/* Back to reserved, or nothing may grow to there any more. */
static void unmap_part(struct mem_device *mem, uint64_t start_bytes, uint64_t end_bytes)
{
	if (mmap(mem->base + start_bytes, end_bytes - start_bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		mem->reserved_bytes = start_bytes;
}

static int map_bitmap(struct mem_device *mem)
{
	void *addr = mmap(NULL, bitmap_bytes(mem), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (addr == MAP_FAILED)
		return -errno;
	mem->present = addr;
	mem->present_bytes = bitmap_bytes(mem);
	return 0;
}

int mem_map(struct mem_device *mem, const char **ret_what)
{
	int ret;

	*ret_what = "mmap";
	ret = reserve_most(mem);
	if (ret == 0)
		ret = map_part(mem, 0, mem->map_bytes);
	return ret == 0 ? map_bitmap(mem) : ret;
}

void mem_unmap(struct mem_device *mem)
{
	if (mem->present)
		munmap(mem->present, mem->present_bytes);
	if (mem->space)
		munmap(mem->space, mem->space_bytes);
}

/* ---- while it serves ---- */

static int fail_room(struct backend_device *device)
{
	const struct mem_device *mem = device->priv;
	char room[32];

	return backend_fail(device, -ENOSPC,
			    "memory can grow to %s only without being moved: stop the device and "
			    "start it with the new size",
			    option_format_size(mem->reserved_bytes, room, sizeof(room)));
}

static int mem_fail_grow(struct backend_device *device, int err)
{
	return backend_fail(device, err, "cannot get more memory: %s%s", errname(err),
			    err == -ENOMEM || err == -ENOSPC
				    ? " (with huge_pages: raise vm.nr_hugepages)"
				    : "");
}

static int mem_grow(struct backend_device *device, uint64_t size_bytes)
{
	struct mem_device *mem = device->priv;
	uint64_t map_bytes = round_up(size_bytes, mem->page_bytes);
	int ret = 0;

	if (map_bytes < size_bytes || map_bytes > mem->reserved_bytes)
		return fail_room(device);
	if (map_bytes <= mem->map_bytes)
		return 0;
	if (ftruncate(mem->fd, (off_t)map_bytes) < 0)
		return mem_fail_grow(device, -errno);
	ret = map_part(mem, mem->map_bytes, map_bytes);
	if (ret < 0) {
		unmap_part(mem, mem->map_bytes, map_bytes);
		/* Huge pages may be short: the file is what it was. */
		if (ftruncate(mem->fd, (off_t)mem->map_bytes) < 0)
			log_warn("memory stays longer than the device", "device=%s error=%s",
				 device->name, errname(errno));
		return mem_fail_grow(device, ret);
	}
	mem->map_bytes = map_bytes;
	return 0;
}

static enum backend_usage mem_usage(struct backend_device *device, uint64_t start_bytes,
				    uint64_t end_bytes)
{
	const struct mem_device *mem = device->priv;
	uint64_t last = mem_page(mem, end_bytes - 1);

	for (uint64_t page = mem_page(mem, start_bytes); page <= last; page++) {
		uint64_t bits = atomic_load(&mem->present[page / 64]);

		if (bits == 0)
			page |= 63;
		else if (bits >> (page % 64) & 1)
			return BACKEND_USED;
	}
	return BACKEND_UNUSED;
}

static void forget_pages(struct mem_device *mem, uint64_t first, uint64_t end)
{
	for (uint64_t page = first; page < end; page++) {
		/* Bits that were never set are not touched: that would cost memory. */
		if (atomic_load(&mem->present[page / 64]) == 0)
			page |= 63;
		else
			atomic_fetch_and(&mem->present[page / 64], ~(1ull << (page % 64)));
	}
}

/*
 * The part of the last page behind the end is zeroed, so that growing again shows zeroes: a hole
 * that is punched into a part of a page is one.
 */
static void mem_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	struct mem_device *mem = device->priv;
	uint64_t map_bytes = round_up(start_bytes, mem->page_bytes);

	(void)end_bytes;
	if (start_bytes < map_bytes &&
	    fallocate(mem->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start_bytes,
		      (off_t)(map_bytes - start_bytes)) < 0)
		log_warn("memory behind the end is not cleared", "device=%s error=%s", device->name,
			 errname(errno));
	if (map_bytes >= mem->map_bytes)
		return;
	if (ftruncate(mem->fd, (off_t)map_bytes) < 0) {
		log_warn("memory is not given back", "device=%s error=%s", device->name,
			 errname(errno));
		return;
	}
	unmap_part(mem, map_bytes, mem->map_bytes);
	forget_pages(mem, mem_page(mem, map_bytes), mem_page(mem, mem->map_bytes));
	mem->map_bytes = map_bytes;
}

const struct backend_resize mem_resize = {
	.grow = mem_grow,
	.usage = mem_usage,
	.shrink = mem_shrink,
};
