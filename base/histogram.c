/* Reading side of the histogram: sums, quantiles. Runs in the control thread and in tools. */
#include "base/histogram.h"

uint64_t histogram_bucket_start_ns(unsigned idx)
{
	unsigned exp = idx >> HISTOGRAM_SUB_BITS;
	uint64_t sub = idx & (HISTOGRAM_SUB_NR - 1);

	if (exp == 0)
		return sub;
	return (HISTOGRAM_SUB_NR + sub) << (exp - 1);
}

void histogram_add(struct histogram *dst, const struct histogram *src)
{
	dst->sum_ns += __atomic_load_n(&src->sum_ns, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++)
		dst->bucket[i] += __atomic_load_n(&src->bucket[i], __ATOMIC_RELAXED);
}

uint64_t histogram_count(const struct histogram *h)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++)
		count += __atomic_load_n(&h->bucket[i], __ATOMIC_RELAXED);
	return count;
}

uint64_t histogram_quantile_ns(const struct histogram *h, double q)
{
	uint64_t count = histogram_count(h);
	uint64_t rank = (uint64_t)(q * (double)count);
	uint64_t seen = 0;

	if (count == 0)
		return 0;
	if (rank >= count)
		rank = count - 1;
	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++) {
		seen += h->bucket[i];
		if (seen > rank)
			return histogram_bucket_start_ns(i + 1) - 1;
	}
	return histogram_bucket_start_ns(HISTOGRAM_BUCKET_NR) - 1;
}

uint64_t histogram_mean_ns(const struct histogram *h)
{
	uint64_t count = histogram_count(h);

	return count ? h->sum_ns / count : 0;
}

/* A bucket below zero can only be the first; its debt was counted in the ones above it. */
void histogram_subtract(struct histogram *dst, const struct histogram *base)
{
	uint64_t debt = 0;

	dst->sum_ns -= MIN(dst->sum_ns, base->sum_ns);
	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++) {
		uint64_t less = base->bucket[i] + debt;
		uint64_t taken = MIN(dst->bucket[i], less);

		dst->bucket[i] -= taken;
		debt = less - taken;
	}
}

void histogram_bins(const struct histogram *h, const uint64_t *boundary_ns, size_t nr,
		    uint64_t *ret_bins)
{
	size_t bin = 0;

	for (size_t i = 0; i <= nr; i++)
		ret_bins[i] = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++) {
		while (bin < nr && histogram_bucket_start_ns(i) >= boundary_ns[bin])
			bin++;
		ret_bins[bin] += h->bucket[i];
	}
}

void histogram_octaves(const struct histogram *h, uint64_t counts[static HISTOGRAM_OCTAVE_NR])
{
	for (unsigned i = 0; i < HISTOGRAM_OCTAVE_NR; i++)
		counts[i] = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++) {
		uint64_t start_ns = histogram_bucket_start_ns(i);

		counts[start_ns ? log2_floor(start_ns) : 0] += h->bucket[i];
	}
}

uint64_t histogram_max_ns(const struct histogram *h)
{
	for (unsigned i = HISTOGRAM_BUCKET_NR; i-- > 0;)
		if (h->bucket[i])
			return histogram_bucket_start_ns(i + 1) - 1;
	return 0;
}

const char *queue_layer_name(enum queue_layer layer)
{
	static const char *const name[QUEUE_LAYER_NR] = { "total", "throttle", "daemon",
							  "backend" };

	return layer < QUEUE_LAYER_NR ? name[layer] : "?";
}
