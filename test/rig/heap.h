/* How many bytes of the heap are in use: what I/Os keep is a leak, or memory that should have been
 * there before. And how often it was asked for memory. */
#ifndef TEST_RIG_HEAP_H
#define TEST_RIG_HEAP_H

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* Present in the sanitizers' builds, where mallinfo2 knows nothing. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static inline uint64_t heap_used_bytes(void)
{
	if (__sanitizer_get_current_allocated_bytes)
		return __sanitizer_get_current_allocated_bytes();
	return mallinfo2().uordblks;
}

/* Exact with a sanitizer; otherwise chunks in malloc's own caches count as allocated. */
static inline int64_t heap_grew_bytes(uint64_t before_bytes)
{
	int64_t noise_bytes = __sanitizer_get_current_allocated_bytes ? 0 : 16384;
	int64_t grew_bytes = (int64_t)(heap_used_bytes() - before_bytes);

	return grew_bytes > noise_bytes ? grew_bytes : 0;
}

/*
 * First in main: the program begins anew without malloc's own caches. Their chunks count as in use,
 * and a library that asks for many sizes fills them by some KiB each time, up to more than 100.
 */
static inline void heap_without_caches(char **argv)
{
	if (__sanitizer_get_current_allocated_bytes)
		return;
	if (!getenv("GLIBC_TUNABLES")) {
		setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0", 1);
		execv("/proc/self/exe", argv);
	}
	/* Not for what it starts. */
	unsetenv("GLIBC_TUNABLES");
}

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
					      void (*on_free)(const volatile void *))
	__attribute__((weak));

static volatile uint64_t heap_calls_nr;

static inline void heap_calls_malloc(const volatile void *mem, size_t bytes)
{
	(void)mem;
	(void)bytes;
	heap_calls_nr++;
}

static inline void heap_calls_free(const volatile void *mem)
{
	(void)mem;
}

/*
 * From here on heap_calls_nr counts the allocations of the process, those of libraries too: memory
 * that came and went again is seen. Once; without a sanitizer it stays 0.
 */
static inline void heap_calls_start(void)
{
	if (__sanitizer_install_malloc_and_free_hooks)
		__sanitizer_install_malloc_and_free_hooks(heap_calls_malloc, heap_calls_free);
}

#endif
