/*
 * Memory that another process shares with this one, mapped. Its owner can take pages of it away at
 * any time: by a truncation, or by a hole where no page can be had for it again (a file system or a
 * pool of huge pages that is full). An access would then be a SIGBUS, which ends a process. Here it
 * puts a page of zeroes in the place of the missing one, marks the mapping as torn, and goes on.
 *
 * An access of the kernel for us (a read(2) into such a page) is EFAULT, as for any bad address.
 */
#ifndef UBLK_SHMEM_MAP_H
#define UBLK_SHMEM_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the whole process. */
#define SHMEM_MAPS_MAX 1024u

struct shmem_map {
	uint8_t *base;
	size_t bytes, page_bytes;
	_Atomic bool torn; /* a page was missing: what is read there and written is lost */
};

/*
 * Main thread. Maps the first `bytes` bytes of fd, which stays the caller's. page_bytes: of the
 * file's pages, a power of two that divides bytes. Waits for no storage: pages come when they are
 * touched. Returns 0 or -errno; -ENOSPC: there are SHMEM_MAPS_MAX.
 */
int shmem_map_open(struct shmem_map **ret_map, int fd, size_t bytes, size_t page_bytes,
		   bool read_only);

/* Main thread; nobody may touch it any more. Accepts NULL. */
void shmem_map_close(struct shmem_map *map);

/* Any thread. */
static inline bool shmem_map_torn(const struct shmem_map *map)
{
	return atomic_load_explicit(&map->torn, memory_order_relaxed);
}

#endif
