/* Between delay.c, the filter, and delay_math.c, how long a delay is. */
#ifndef FILTERS_DELAY_H
#define FILTERS_DELAY_H

#include <stdint.h>

#include "base/prng.h"

enum delay_distribution {
	DELAY_FIXED,
	DELAY_UNIFORM,
	DELAY_NORMAL,
	DELAY_EXPONENTIAL,
	DELAY_PARETO,
};

struct delay_shape {
	enum delay_distribution distribution;
	uint64_t spread_ns; /* uniform: to either side; normal: the standard deviation */
	uint64_t max_ns;    /* longer ones are cut; 0: no limit */
};

/* One delay whose mean is mean_ns, but for what is cut at max_ns and below zero. */
uint64_t delay_draw(const struct delay_shape *shape, uint64_t mean_ns, struct prng *prng);

#endif
