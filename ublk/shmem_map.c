/*
 * Mappings of other processes' memory, and the handler of SIGBUS that keeps a missing page from
 * ending this process. Owns a table of the mappings, which the handler reads; main thread changes
 * it. The handler runs on whatever thread touched the page.
 *
 * Happy path: no SIGBUS. Failure modes: a page is missing: memory of our own takes its place and
 * the mapping is torn. The SIGBUS is of another address, or no memory can be had: what would have
 * happened without this handler happens.
 */
#include "ublk/shmem_map.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

static _Atomic(struct shmem_map *) mapped[SHMEM_MAPS_MAX];
static struct sigaction sigbus_before;
static bool sigbus_caught;

/* Async-signal-safe: loads, and mmap(2) as a bare system call. */
static bool replace_missing_page(uintptr_t at)
{
	for (unsigned i = 0; i < SHMEM_MAPS_MAX; i++) {
		struct shmem_map *map = atomic_load(&mapped[i]);
		uintptr_t base = map ? (uintptr_t)map->base : 0;

		if (!map || at < base || at - base >= map->bytes)
			continue;
		/* Before the page is there, so that who reads zeroes can know that they are none.
		 */
		atomic_store(&map->torn, true);
		return mmap((void *)(at & ~(uintptr_t)(map->page_bytes - 1)), map->page_bytes,
			    PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
			    0) != MAP_FAILED;
	}
	return false;
}

/*
 * Where nothing was replaced the access comes again, and finds the handler of before. So does a
 * signal that a process has sent (si_code <= 0), raised again.
 */
static void on_sigbus(int signo, siginfo_t *info, void *context)
{
	bool is_sent = info->si_code <= 0;
	int err = errno;

	(void)context;
	if (is_sent || !replace_missing_page((uintptr_t)info->si_addr))
		sigaction(signo, &sigbus_before, NULL);
	if (is_sent)
		raise(signo);
	errno = err;
}

static int catch_sigbus(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	if (sigbus_caught)
		return 0;
	sigfillset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, &sigbus_before) < 0)
		return -errno;
	sigbus_caught = true;
	return 0;
}

/* Nobody can find it in the table before it is whole. */
static int enter_in_table(struct shmem_map *map)
{
	for (unsigned i = 0; i < SHMEM_MAPS_MAX; i++) {
		struct shmem_map *none = NULL;

		if (atomic_compare_exchange_strong(&mapped[i], &none, map))
			return 0;
	}
	return -ENOSPC;
}

int shmem_map_open(struct shmem_map **ret_map, int fd, size_t bytes, size_t page_bytes,
		   bool read_only)
{
	int prot = PROT_READ | (read_only ? 0 : PROT_WRITE), ret = catch_sigbus();
	struct shmem_map *map;
	void *base;

	if (ret < 0)
		return ret;
	map = calloc(1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	ret = base == MAP_FAILED ? -errno : 0;
	*map = (struct shmem_map){ .base = base, .bytes = bytes, .page_bytes = page_bytes };
	if (ret == 0)
		ret = enter_in_table(map);
	if (ret == 0) {
		*ret_map = map;
		return 0;
	}
	if (base != MAP_FAILED)
		munmap(base, bytes);
	free(map);
	return ret;
}

void shmem_map_close(struct shmem_map *map)
{
	if (!map)
		return;
	for (unsigned i = 0; i < SHMEM_MAPS_MAX; i++) {
		struct shmem_map *same = map;

		atomic_compare_exchange_strong(&mapped[i], &same, NULL);
	}
	munmap(map->base, map->bytes);
	free(map);
}
