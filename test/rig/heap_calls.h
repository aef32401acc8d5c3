/* How often this process allocated: memory that came and went again is seen too (heap.h: that which
 * stayed). Only with a sanitizer, whose hooks these are; libraries count as well. */
#ifndef TEST_RIG_HEAP_CALLS_H
#define TEST_RIG_HEAP_CALLS_H

#include <stddef.h>
#include <stdint.h>

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

/* Once; 0 for ever without a sanitizer. */
static inline void heap_calls_start(void)
{
	if (__sanitizer_install_malloc_and_free_hooks)
		__sanitizer_install_malloc_and_free_hooks(heap_calls_malloc, heap_calls_free);
}

#endif
