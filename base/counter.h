/*
 * Statistics of the data path: one thread counts, any other reads with relaxed loads and never sees
 * half a number. Counters of the same moment need not be of the same instant.
 */
#ifndef BASE_COUNTER_H
#define BASE_COUNTER_H

#include <stdint.h>

/*
 * The one writer's add, a dozen times in each I/O. Of a relaxed load and store compilers make three
 * instructions and an address in a register; of `+=`, which would be the one that it takes, they
 * may make anything, as another thread reads.
 */
static inline void counter_add(uint64_t *counter, uint64_t n)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
	__asm__("addq %1, %0" : "+m"(*counter) : "er"(n) : "cc");
#else
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#endif
}

/* By any thread. */
static inline uint64_t counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void counter_max(uint64_t *counter, uint64_t n)
{
	if (__builtin_expect(n > *counter, 0))
		__atomic_store_n(counter, n, __ATOMIC_RELAXED);
}

#endif
