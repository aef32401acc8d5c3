/* Which bytes of a READ have come, exactly: disjoint ranges in order. Pure, no allocation. */
#ifndef BACKENDS_NBD_NBD_RANGES_H
#define BACKENDS_NBD_NBD_RANGES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Ranges that touch become one: a reply in order needs one however many chunks it has, one in any
 * order as many as it has gaps at a time, plus one.
 */
#define NBD_RANGES_MAX 16u

struct nbd_ranges {
	uint32_t nr;
	struct nbd_range {
		uint32_t start, end;
	} range[NBD_RANGES_MAX];
};

static inline void nbd_ranges_init(struct nbd_ranges *r)
{
	r->nr = 0;
}

/*
 * Adds [start, end), not empty. Returns 0, -EEXIST: some of it was there, -E2BIG: too many gaps.
 * Unchanged on failure.
 */
int nbd_ranges_add(struct nbd_ranges *r, uint32_t start, uint32_t end);

/* All of [0, length), length not 0. */
static inline bool nbd_ranges_full(const struct nbd_ranges *r, uint32_t length)
{
	return r->nr == 1 && r->range[0].start == 0 && r->range[0].end == length;
}

#endif
