/* Small things everything needs: sizes, rounding, the owner of an embedded member. */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define MIN(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) min_a_ = (a);                                                        \
		__typeof__(b) min_b_ = (b);                                                        \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                 \
	})
#define MAX(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) max_a_ = (a);                                                        \
		__typeof__(b) max_b_ = (b);                                                        \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                 \
	})

/*
 * Zeroed memory for nr things of whole cache lines each, on the border of one; for free(3). NULL
 * without memory.
 */
static inline void *lines_zalloc(size_t nr, size_t bytes)
{
	size_t all_bytes;
	void *mem;

	if (__builtin_mul_overflow(nr, bytes, &all_bytes))
		return NULL;
	mem = aligned_alloc(64, all_bytes);
	return mem ? memset(mem, 0, all_bytes) : NULL;
}

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define TIB(n) ((uint64_t)(n) << 40)

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_SEC 1000000000ull

/* Of a hex digit, in any case; -1 if it is none. */
static inline int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static inline bool is_power_of_two(uint64_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* align must be a power of two. */
static inline uint64_t round_up(uint64_t n, uint64_t align)
{
	return (n + align - 1) & ~(align - 1);
}

static inline uint64_t round_down(uint64_t n, uint64_t align)
{
	return n & ~(align - 1);
}

/* floor(log2(n)); n must not be 0. */
static inline unsigned log2_floor(uint64_t n)
{
	/* Not 63 - clz, of which GCC makes more than the one instruction that it is. */
	return 63u ^ (unsigned)__builtin_clzll(n);
}

#endif
