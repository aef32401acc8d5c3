/* Input that stands for what a peer answers: taken from its beginning, with nothing behind its end.
 */
#ifndef TEST_FUZZ_ANSWERS_H
#define TEST_FUZZ_ANSWERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

struct answers {
	const uint8_t *at, *end;
};

/* Returns how many there were. */
static inline size_t answers_take(struct answers *a, void *to, size_t bytes)
{
	size_t nr = MIN(bytes, (size_t)(a->end - a->at));

	memcpy(to, a->at, nr);
	a->at += nr;
	return nr;
}

/* XORs up to 15 pairs of (offset of 16 bits, byte) into the data: few bytes bend much. */
static inline void answers_bend(struct answers *a, uint8_t *data, uint32_t bytes)
{
	uint8_t pair[3], nr = 0;

	answers_take(a, &nr, 1);
	for (nr &= 15; nr > 0 && answers_take(a, pair, 3) == 3; nr--)
		if (bytes > 0)
			data[(pair[0] | pair[1] << 8) % bytes] ^= pair[2];
}

#endif
