/* How many bytes of the heap are in use: what I/Os keep is a leak, or memory that should have been
 * there before. */
#ifndef TEST_RIG_HEAP_H
#define TEST_RIG_HEAP_H

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
