/*
 * Leaky buckets as QEMU has them (util/throttle.c there), so that a limit means here what it means
 * there. Pure functions.
 *
 * A bucket leaks at avg and takes max * max_length_s before it is full (avg / 10, a tenth of a
 * second, without max). A request goes while no bucket of its direction is overfull, whatever its
 * length, and then fills them; who comes next waits until the excess has leaked. With
 * max_length_s > 1 a second bucket of max / 10, which leaks at max, keeps the burst itself at that
 * rate.
 */
#include "filters/throttle/throttle.h"

#include "base/util.h"

void throttle_state_set(struct throttle_state *s, const struct throttle_limits *limits,
			uint64_t now_ns)
{
	*s = (struct throttle_state){ .limits = *limits, .leaked_ns = now_ns };
}

static double leaked(double level, uint64_t rate, uint64_t delta_ns)
{
	double left = level - (double)rate * (double)delta_ns / (double)NS_PER_SEC;

	return MAX(left, 0.);
}

void throttle_leak(struct throttle_state *s, uint64_t now_ns)
{
	uint64_t delta_ns = now_ns - s->leaked_ns;

	/* Reactors read the clock at different times: another one can be ahead of this one. */
	if (now_ns <= s->leaked_ns)
		return;
	s->leaked_ns = now_ns;
	for (int i = 0; i < THROTTLE_BUCKET_NR; i++) {
		const struct throttle_rate *rate = &s->limits.rate[i];

		s->level[i] = leaked(s->level[i], rate->avg, delta_ns);
		if (rate->max_length_s > 1)
			s->burst_level[i] = leaked(s->burst_level[i], rate->max, delta_ns);
	}
}

/* Thirty years are for ever, and fit in whatever is added to them. */
#define WAIT_NS_MAX 1e18

static uint64_t time_for(double units, uint64_t rate)
{
	double wait_ns = units * (double)NS_PER_SEC / (double)rate;

	return wait_ns > 0. ? (uint64_t)MIN(wait_ns, WAIT_NS_MAX) : 0;
}

static uint64_t bucket_wait_ns(const struct throttle_state *s, enum throttle_bucket i)
{
	const struct throttle_rate *rate = &s->limits.rate[i];
	double size =
		rate->max ? (double)(rate->max * rate->max_length_s) : (double)rate->avg / 10.;

	if (rate->avg == 0)
		return 0;
	if (s->level[i] > size)
		return time_for(s->level[i] - size, rate->avg);
	if (rate->max_length_s > 1)
		return time_for(s->burst_level[i] - (double)rate->max / 10., rate->max);
	return 0;
}

static const enum throttle_bucket buckets_of[THROTTLE_DIR_NR][4] = {
	[THROTTLE_READ] = { THROTTLE_TOTAL_BYTES, THROTTLE_READ_BYTES, THROTTLE_TOTAL_IOPS,
			    THROTTLE_READ_IOPS },
	[THROTTLE_WRITE] = { THROTTLE_TOTAL_BYTES, THROTTLE_WRITE_BYTES, THROTTLE_TOTAL_IOPS,
			     THROTTLE_WRITE_IOPS },
};

uint64_t throttle_wait_ns(const struct throttle_state *s, enum throttle_dir dir)
{
	uint64_t wait_ns = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(buckets_of[dir]); i++)
		wait_ns = MAX(wait_ns, bucket_wait_ns(s, buckets_of[dir][i]));
	return wait_ns;
}

static void throttle_fill(struct throttle_state *s, enum throttle_bucket i, double units)
{
	s->level[i] += units;
	s->burst_level[i] += units;
}

void throttle_account(struct throttle_state *s, enum throttle_dir dir, uint64_t bytes)
{
	uint64_t size_bytes = s->limits.size_iops_bytes;
	double ops = size_bytes && bytes > size_bytes ? (double)bytes / (double)size_bytes : 1.;

	throttle_fill(s, buckets_of[dir][0], (double)bytes);
	throttle_fill(s, buckets_of[dir][1], (double)bytes);
	throttle_fill(s, buckets_of[dir][2], ops);
	throttle_fill(s, buckets_of[dir][3], ops);
}
