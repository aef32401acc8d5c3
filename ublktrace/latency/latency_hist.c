/*
 * The reading side of the histograms of `ublktrace latency`: sums, differences, quantiles. Pure;
 * any thread. Failure modes: none.
 */
#include "base/util.h"
#include "ublktrace/latency/latency_report.h"

uint64_t latency_bucket_start_ns(unsigned idx)
{
	unsigned exp = idx >> LATENCY_SUB_BITS;
	uint64_t sub = idx & (LATENCY_SUB_NR - 1);

	if (exp == 0)
		return sub;
	return (LATENCY_SUB_NR + sub) << (exp - 1);
}

uint64_t latency_hist_count(const struct latency_hist *h)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < LATENCY_BUCKET_NR; i++)
		count += h->bucket[i];
	return count;
}

void latency_hist_add(struct latency_hist *dst, const struct latency_hist *src)
{
	dst->sum_ns += src->sum_ns;
	dst->max_ns = MAX(dst->max_ns, src->max_ns);
	for (unsigned i = 0; i < LATENCY_BUCKET_NR; i++)
		dst->bucket[i] += src->bucket[i];
}

/* The last nanosecond of the last bucket in use; 0: none is. */
static uint64_t last_used_ns(const struct latency_hist *h)
{
	for (unsigned i = LATENCY_BUCKET_NR; i-- > 0;)
		if (h->bucket[i])
			return latency_bucket_start_ns(i + 1) - 1;
	return 0;
}

void latency_hist_subtract(struct latency_hist *dst, const struct latency_hist *base)
{
	dst->sum_ns -= MIN(dst->sum_ns, base->sum_ns);
	for (unsigned i = 0; i < LATENCY_BUCKET_NR; i++)
		dst->bucket[i] -= MIN(dst->bucket[i], base->bucket[i]);
	if (dst->bucket[LATENCY_BUCKET_NR - 1] == 0)
		dst->max_ns = MIN(dst->max_ns, last_used_ns(dst));
}

uint64_t latency_hist_quantile_ns(const struct latency_hist *h, double q)
{
	uint64_t count = latency_hist_count(h), seen = 0;
	uint64_t rank = (uint64_t)(q * (double)count);

	if (count == 0)
		return 0;
	rank = MIN(rank, count - 1);
	for (unsigned i = 0; i < LATENCY_BUCKET_NR - 1; i++) {
		seen += h->bucket[i];
		if (seen > rank)
			return MIN(latency_bucket_start_ns(i + 1) - 1, h->max_ns);
	}
	return h->max_ns; /* the last bucket has no end */
}

struct latency_summary latency_summarize(const struct latency_hist *h)
{
	uint64_t count = latency_hist_count(h);

	return (struct latency_summary){
		.count = count,
		.mean_ns = count ? h->sum_ns / count : 0,
		.p50_ns = latency_hist_quantile_ns(h, 0.5),
		.p90_ns = latency_hist_quantile_ns(h, 0.9),
		.p99_ns = latency_hist_quantile_ns(h, 0.99),
		.p999_ns = latency_hist_quantile_ns(h, 0.999),
		.max_ns = h->max_ns,
	};
}

static uint32_t number_at(const uint64_t *count, uint64_t rank)
{
	uint64_t seen = 0;

	for (uint32_t n = 0; n < LATENCY_LEVELS; n++) {
		seen += count[n];
		if (seen > rank)
			return n;
	}
	return 0;
}

struct latency_numbers latency_numbers(const uint64_t *count)
{
	struct latency_numbers r = { 0 };
	double sum = 0;

	for (uint32_t n = 0; n < LATENCY_LEVELS; n++) {
		r.count += count[n];
		sum += (double)n * (double)count[n];
	}
	if (!r.count)
		return r;
	r.mean = sum / (double)r.count;
	r.p50 = number_at(count, r.count / 2);
	r.p99 = number_at(count, r.count - 1 - r.count / 100);
	r.max = number_at(count, r.count - 1);
	return r;
}

void latency_batches(uint64_t *count)
{
	for (uint32_t n = 2; n < LATENCY_LEVELS; n++)
		count[n] = (count[n] + n - 1) / n; /* one may just be under way */
}
