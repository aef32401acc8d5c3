/* Random delays by inversion of their distribution functions (normal: Box and Muller). Pure. */
#include "filters/delay.h"

#include <math.h>

#include "base/util.h"

/* Thirty years: what is added to it still fits. */
#define DELAY_NS_MAX 1e18

/* Uniform in (0, 1]: its logarithm is finite. */
static double unit(struct prng *prng)
{
	return (double)((prng_next(prng) >> 11) + 1) * 0x1p-53;
}

static double standard_normal(struct prng *prng)
{
	double radius = sqrt(-2. * log(unit(prng)));

	return radius * cos(2. * M_PI * unit(prng));
}

static double delay_draw_ns(const struct delay_shape *shape, double mean, struct prng *prng)
{
	double spread = (double)shape->spread_ns;

	switch (shape->distribution) {
	case DELAY_FIXED:
		break;
	case DELAY_UNIFORM:
		return mean + spread * (2. * unit(prng) - 1.);
	case DELAY_NORMAL:
		return mean + spread * standard_normal(prng);
	case DELAY_EXPONENTIAL:
		return -mean * log(unit(prng));
	case DELAY_PARETO:
		/* Of shape 2: its mean is twice the smallest value. */
		return mean / 2. / sqrt(unit(prng));
	}
	return mean;
}

uint64_t delay_draw(const struct delay_shape *shape, uint64_t mean_ns, struct prng *prng)
{
	double max_ns = shape->max_ns ? (double)shape->max_ns : DELAY_NS_MAX;
	double delay_ns = delay_draw_ns(shape, (double)mean_ns, prng);

	return delay_ns > 0. ? (uint64_t)MIN(delay_ns, max_ns) : 0;
}
