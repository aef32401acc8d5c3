/* xorshift64*: small, seedable, good enough for jitter and simulation; never for secrets. */
#ifndef BASE_PRNG_H
#define BASE_PRNG_H

#include <stdint.h>

struct prng {
	uint64_t state;
};

static inline void prng_init(struct prng *p, uint64_t seed)
{
	p->state = seed ? seed * 0x9e3779b97f4a7c15ull | 1 : 0x9e3779b97f4a7c15ull;
}

static inline uint64_t prng_next(struct prng *p)
{
	p->state ^= p->state >> 12;
	p->state ^= p->state << 25;
	p->state ^= p->state >> 27;
	return p->state * 0x2545f4914f6cdd1dull;
}

/* Uniform enough in [0, n); n must not be 0. */
static inline uint64_t prng_below(struct prng *p, uint64_t n)
{
	return (prng_next(p) >> 16) % n;
}

/* True in about one of n calls; never for n == 0. */
static inline int prng_one_in(struct prng *p, uint64_t n)
{
	return n != 0 && prng_below(p, n) == 0;
}

#endif
