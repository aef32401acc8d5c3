/*
 * Log-linear histogram of nanoseconds: each power of two is cut into 2^HISTOGRAM_SUB_BITS equal
 * buckets, so that a bucket is at most 1/16 wide of its value. One writer (the reactor), any
 * reader: buckets are only ever incremented, see base/counter.h.
 * A reader sees each count whole; counts of one moment need not be of the same instant.
 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/counter.h"
#include "base/util.h"

#define HISTOGRAM_SUB_BITS 4u
#define HISTOGRAM_SUB_NR (1u << HISTOGRAM_SUB_BITS)
/* Up to 2^40 ns, 18 minutes; what is longer lands in the last bucket. */
#define HISTOGRAM_EXP_MAX 40u
#define HISTOGRAM_BUCKET_NR ((HISTOGRAM_EXP_MAX - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUB_NR)

struct histogram {
	uint64_t bucket[HISTOGRAM_BUCKET_NR];
	uint64_t sum_ns;
};

/* What is not shorter than this lands in the last bucket. */
#define HISTOGRAM_END_NS (1ull << HISTOGRAM_EXP_MAX)

/*
 * For less than HISTOGRAM_END_NS. Values below HISTOGRAM_SUB_NR have a bucket each. Of the others
 * the number as a double (IEEE 754, exact below 2^53) has the bucket in its upper bits: the
 * exponent, and behind it the bits that follow the leading one.
 */
static inline unsigned histogram_index_short(uint64_t ns)
{
	const unsigned fraction_bits = 52, bias = 1023;
	double value = (double)(int64_t)ns;
	uint64_t bits;

	if (__builtin_expect(ns < HISTOGRAM_SUB_NR, 0))
		return (unsigned)ns;
	memcpy(&bits, &value, sizeof(bits));
	return (unsigned)(bits >> (fraction_bits - HISTOGRAM_SUB_BITS)) -
	       ((bias + HISTOGRAM_SUB_BITS - 1) << HISTOGRAM_SUB_BITS);
}

static inline unsigned histogram_index(uint64_t ns)
{
	return histogram_index_short(MIN(ns, HISTOGRAM_END_NS - 1));
}

/* For a caller that knows the bucket already. */
static inline void histogram_record_at(struct histogram *h, unsigned idx, uint64_t ns)
{
	counter_add(&h->sum_ns, ns);
	counter_add(&h->bucket[idx], 1);
}

static inline void histogram_record(struct histogram *h, uint64_t ns)
{
	histogram_record_at(h, histogram_index(ns), ns);
}

/* First nanosecond of a bucket; the bucket ends before that of idx + 1. */
uint64_t histogram_bucket_start_ns(unsigned idx);

/* dst += src; dst is private to the caller, src may be live. */
void histogram_add(struct histogram *dst, const struct histogram *src);

uint64_t histogram_count(const struct histogram *h);

/*
 * The value below which the fraction q (0 to 1) of the records lies, as the end of its bucket
 * minus one; 0 when the histogram is empty.
 */
uint64_t histogram_quantile_ns(const struct histogram *h, double q);

/*
 * dst -= base, where base is an earlier reading of what dst is a later one of: what was recorded in
 * between. The counts of successive differences add up to the count of the whole, exactly, also
 * when both were read while the writer went on: what a reading counted in bucket 0 for want of
 * knowing better (see device.c) and the next one elsewhere is not counted twice.
 */
void histogram_subtract(struct histogram *dst, const struct histogram *base);

/*
 * Counts in the nr + 1 bins [0, b0) [b0, b1) ... [bn-1, inf) of ascending boundaries. A bucket that
 * a boundary cuts counts where it starts: boundaries have the resolution of the buckets, 1/16.
 */
void histogram_bins(const struct histogram *h, const uint64_t *boundary_ns, size_t nr,
		    uint64_t *ret_bins);

/* Counts per power of two: octave i is [2^i, 2^(i+1)) ns, the first one also 0. */
#define HISTOGRAM_OCTAVE_NR HISTOGRAM_EXP_MAX
void histogram_octaves(const struct histogram *h, uint64_t ret_counts[static HISTOGRAM_OCTAVE_NR]);

/* The largest value there can have been: the end of the last bucket in use, minus one. */
uint64_t histogram_max_ns(const struct histogram *h);

/* Sum over count; 0 when empty. */
uint64_t histogram_mean_ns(const struct histogram *h);

/* ---- the layers that have one each ---- */

/*
 * Where an I/O spends its time. total = throttle + daemon + backend, by the reactor's clock, which
 * is read twice a turn: work done inside one turn (a memory copy, a decision) is the daemon's, and
 * what is waited for belongs to the layer that waits.
 */
enum queue_layer {
	QUEUE_LAYER_TOTAL,    /* fetched from the driver -> handed back */
	QUEUE_LAYER_THROTTLE, /* held back by a throttle filter */
	QUEUE_LAYER_DAEMON,   /* before the backend has it (also while that is busy), and after */
	QUEUE_LAYER_BACKEND,  /* backend submitted -> backend answered, without throttle */
	QUEUE_LAYER_NR,
};

/* As in JSON, metrics and tables: "total", "throttle", "daemon", "backend". */
const char *queue_layer_name(enum queue_layer layer);

#endif
