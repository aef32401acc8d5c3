/*
 * The leaky buckets in virtual time: against the closed form of a busy device, against numbers
 * worked out for QEMU's own unit tests, and which options go together, word for word.
 */
#include <math.h>

#include "storage/spec.h"
#include "filters/throttle/throttle.h"
#include "base/prng.h"
#include "test/rig/config_check.h"

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-6;
}

static struct throttle_limits no_limits(void)
{
	struct throttle_limits limits = { 0 };

	for (int i = 0; i < THROTTLE_BUCKET_NR; i++)
		limits.rate[i].max_length_s = 1;
	return limits;
}

static struct throttle_state state_of(enum throttle_bucket bucket, uint64_t avg, uint64_t max,
				      uint64_t length_s)
{
	struct throttle_limits limits = no_limits();
	struct throttle_state s;

	limits.rate[bucket] = (struct throttle_rate){ avg, max, length_s };
	throttle_state_set(&s, &limits, 0);
	return s;
}

/* ---- one bucket ---- */

static void test_leak(void **state)
{
	struct throttle_state s = state_of(THROTTLE_TOTAL_BYTES, 150, 15, 1);
	double *level = &s.level[THROTTLE_TOTAL_BYTES];
	double *burst_level = &s.burst_level[THROTTLE_TOTAL_BYTES];
	uint64_t now_ns = 0;

	(void)state;
	*level = 1.5;
	/* the time of one unit */
	throttle_leak(&s, now_ns += NS_PER_SEC / 150);
	assert_true(near(*level, 0.5));
	throttle_leak(&s, now_ns += NS_PER_SEC / 150);
	assert_true(near(*level, 0));
	throttle_leak(&s, now_ns += NS_PER_SEC / 150);
	assert_true(*level == 0);

	*burst_level = 6;
	s.limits.rate[THROTTLE_TOTAL_BYTES] = (struct throttle_rate){ 150, 250, 2 };
	throttle_leak(&s, now_ns += NS_PER_SEC / 100);
	assert_true(near(*burst_level, 3.5));
	throttle_leak(&s, now_ns += NS_PER_SEC / 100);
	assert_true(near(*burst_level, 1));
	throttle_leak(&s, now_ns += NS_PER_SEC / 100);
	assert_true(*burst_level == 0);
}

/* A reactor behind another one neither leaks nor makes the next one leak twice. */
static void test_clock_behind(void **state)
{
	struct throttle_state s = state_of(THROTTLE_TOTAL_IOPS, 10, 0, 1);

	(void)state;
	throttle_leak(&s, 5 * NS_PER_SEC);
	s.level[THROTTLE_TOTAL_IOPS] = 100;
	throttle_leak(&s, 4 * NS_PER_SEC);
	throttle_leak(&s, 5 * NS_PER_SEC);
	assert_true(near(s.level[THROTTLE_TOTAL_IOPS], 100));
	throttle_leak(&s, 6 * NS_PER_SEC);
	assert_true(near(s.level[THROTTLE_TOTAL_IOPS], 90));
}

static uint64_t wait_at(uint64_t avg, uint64_t max, uint64_t length_s, double level)
{
	struct throttle_state s = state_of(THROTTLE_READ_IOPS, avg, max, length_s);

	s.level[THROTTLE_READ_IOPS] = level;
	return throttle_wait_ns(&s, THROTTLE_READ);
}

static void test_wait(void **state)
{
	(void)state;
	assert_int_equal(wait_at(0, 0, 1, 1e9), 0);  /* no limit */
	assert_int_equal(wait_at(150, 0, 1, 15), 0); /* a tenth of a second's worth */
	assert_int_equal(wait_at(150, 0, 1, 9), 0);  /* less */
	assert_int_equal(wait_at(150, 0, 1, 15.5), NS_PER_SEC / 150 / 2); /* half a request more */
	assert_int_equal(wait_at(150, 200, 1, 200), 0);
	assert_int_equal(wait_at(150, 200, 1, 201), NS_PER_SEC / 150);
	assert_int_equal(wait_at(150, 200, 3, 600), 0);
	assert_int_equal(wait_at(150, 200, 3, 601), NS_PER_SEC / 150);
	/* an excess of ages is no overflow */
	assert_int_equal(wait_at(1, 0, 1, 1e30), 1000000000000000000ull);
}

/* 200 per second for 2.2 seconds, with avg 10 and bursts of 2 seconds: QEMU's numbers. */
static void test_burst(void **state)
{
	struct throttle_state s = state_of(THROTTLE_WRITE_IOPS, 10, 200, 2);

	(void)state;
	for (uint64_t i = 0; i < 22; i++) {
		for (int n = 0; n < 20; n++)
			throttle_account(&s, THROTTLE_WRITE, 512);
		throttle_leak(&s, (i + 1) * NS_PER_SEC / 10);
		assert_true(near(s.burst_level[THROTTLE_WRITE_IOPS], 0));
		assert_true(near(s.level[THROTTLE_WRITE_IOPS], (double)(i + 1) * 19));
		/* The leak of 2 seconds allows a tenth more; then (418 - 400) / 10 seconds. */
		assert_int_equal(throttle_wait_ns(&s, THROTTLE_WRITE),
				 i < 21 ? 0 : 1800 * NS_PER_MS);
	}
}

static void check_account(uint64_t bytes, uint64_t size_bytes, double ops)
{
	struct throttle_limits limits = no_limits();
	struct throttle_state s;

	limits.size_iops_bytes = size_bytes;
	throttle_state_set(&s, &limits, 0);
	throttle_account(&s, THROTTLE_READ, bytes);
	throttle_account(&s, THROTTLE_WRITE, bytes);
	assert_true(near(s.level[THROTTLE_TOTAL_BYTES], 2. * (double)bytes));
	assert_true(near(s.level[THROTTLE_READ_BYTES], (double)bytes));
	assert_true(near(s.level[THROTTLE_WRITE_BYTES], (double)bytes));
	assert_true(near(s.level[THROTTLE_TOTAL_IOPS], 2 * ops));
	assert_true(near(s.level[THROTTLE_READ_IOPS], ops));
	assert_true(near(s.level[THROTTLE_WRITE_IOPS], ops));
	assert_memory_equal(s.level, s.burst_level, sizeof(s.level));
}

static void test_account(void **state)
{
	(void)state;
	check_account(512, 0, 1);
	check_account(1024, 0, 1);
	check_account(1024, 4096, 1); /* shorter ones are never less than one */
	check_account(4096, 4096, 1);
	check_account(6144, 4096, 1.5);
	check_account(64 * 512, 13 * 512, 64.0 / 13);
}

static void test_directions(void **state)
{
	struct throttle_state s = state_of(THROTTLE_READ_BYTES, 1000, 0, 1);

	(void)state;
	throttle_account(&s, THROTTLE_WRITE, 100000);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_READ), 0);
	throttle_account(&s, THROTTLE_READ, 1100);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_READ), NS_PER_SEC);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_WRITE), 0);

	s = state_of(THROTTLE_TOTAL_BYTES, 1000, 0, 1);
	throttle_account(&s, THROTTLE_WRITE, 600);
	throttle_account(&s, THROTTLE_READ, 600);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_READ), 1100 * NS_PER_MS);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_WRITE), 1100 * NS_PER_MS);
}

static void test_longest_wait_counts(void **state)
{
	struct throttle_limits limits = no_limits();
	struct throttle_state s;

	(void)state;
	limits.rate[THROTTLE_TOTAL_IOPS].avg = 10;
	limits.rate[THROTTLE_TOTAL_BYTES].avg = 4096;
	throttle_state_set(&s, &limits, 0);
	throttle_account(&s, THROTTLE_READ, 8192);
	throttle_account(&s, THROTTLE_READ, 0);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_READ), 1900 * NS_PER_MS);
}

static void test_set_empties(void **state)
{
	struct throttle_state s = state_of(THROTTLE_TOTAL_IOPS, 10, 0, 1);
	struct throttle_limits limits = s.limits;

	(void)state;
	for (int i = 0; i < 50; i++)
		throttle_account(&s, THROTTLE_READ, 512);
	assert_true(throttle_wait_ns(&s, THROTTLE_READ) > 0);
	throttle_state_set(&s, &limits, 7);
	assert_int_equal(throttle_wait_ns(&s, THROTTLE_READ), 0);
	assert_int_equal(s.leaked_ns, 7);
}

/* ---- a busy device: when does request n go? ---- */

/* Each wait is slept exactly; the next request is always there already. */
static uint64_t go(struct throttle_state *s, uint64_t now_ns, uint64_t bytes)
{
	uint64_t wait_ns;

	throttle_leak(s, now_ns);
	while ((wait_ns = throttle_wait_ns(s, THROTTLE_READ)) > 0) {
		now_ns += wait_ns;
		throttle_leak(s, now_ns);
	}
	throttle_account(s, THROTTLE_READ, bytes);
	return now_ns;
}

/* Never before, and at most a microsecond after. */
static void check_moment(uint64_t now_ns, double expected_s)
{
	double late_ns = (double)now_ns - expected_s * 1e9;

	if (late_ns < -1000. || late_ns > 1000.)
		fail_msg("went at %.9f s instead of %.9f s", (double)now_ns / 1e9, expected_s);
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

static void test_busy_without_max(void **state)
{
	static const unsigned avgs[] = { 1, 7, 150, 8000, 1000000 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(avgs); i++) {
		struct throttle_state s = state_of(THROTTLE_TOTAL_IOPS, avgs[i], 0, 1);
		double avg = avgs[i];
		uint64_t now_ns = 0;

		for (int n = 0; n < 20000; n++) {
			now_ns = go(&s, now_ns, 4096);
			check_moment(now_ns, later(0, (n - avg / 10) / avg));
		}
	}
}

static void test_busy_with_max(void **state)
{
	struct throttle_state s = state_of(THROTTLE_READ_IOPS, 100, 2000, 1);
	uint64_t now_ns = 0;

	(void)state;
	for (int n = 0; n < 5000; n++) {
		now_ns = go(&s, now_ns, 4096);
		check_moment(now_ns, later(0, (n - 2000) / 100.));
	}
}

/* The example of QEMU's manual: 100 per second, bursts of 2000 per second for 60 seconds. */
static void test_busy_with_length(void **state)
{
	struct throttle_state s = state_of(THROTTLE_READ_IOPS, 100, 2000, 60);
	uint64_t now_ns = 0;

	(void)state;
	for (int n = 0; n < 140000; n++) {
		double burst = (n - 200) / 2000., avg = (n - 120000.) / 100.;

		now_ns = go(&s, now_ns, 4096);
		check_moment(now_ns, later(0, later(burst, avg)));
	}
	/* 120000 fill the bucket; what leaked meanwhile gives three seconds more of the burst */
	assert_true(near((120000 + 6000 + 300) / 2000., 63.15));
}

static void test_busy_bytes(void **state)
{
	struct throttle_state s = state_of(THROTTLE_TOTAL_BYTES, 1 << 20, 0, 1);
	struct prng prng;
	uint64_t now_ns = 0, sum_bytes = 0;

	(void)state;
	prng_init(&prng, 1);
	for (int n = 0; n < 10000; n++) {
		uint64_t bytes = (1 + prng_below(&prng, 64)) * 4096;
		double size = (1 << 20) / 10.;

		now_ns = go(&s, now_ns, bytes);
		check_moment(now_ns, later(0, ((double)sum_bytes - size) / (1 << 20)));
		sum_bytes += bytes;
	}
}

static void test_busy_size_iops(void **state)
{
	struct throttle_state s = state_of(THROTTLE_TOTAL_IOPS, 1000, 0, 1);
	uint64_t now_ns = 0;

	(void)state;
	s.limits.size_iops_bytes = 4096;
	for (int n = 0; n < 5000; n++) {
		now_ns = go(&s, now_ns, 65536);
		check_moment(now_ns, later(0, (16. * n - 100) / 1000));
	}
}

/* ---- the options ---- */

static void check_config(const char *options, const char *errors)
{
	struct backend_spec *spec = NULL;
	struct config_check c;
	char yaml[512];
	int ret;

	snprintf(yaml, sizeof(yaml), "type: throttle\nbackend: {type: mem, size: 1M}\n%s", options);
	check_good(&c, yaml);
	ret = backend_spec_parse(&spec, c.doc.root, &c.errors);
	check_errors(&c.errors, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	backend_spec_free(spec);
	check_fini(&c);
}

static void test_options_good(void **state)
{
	(void)state;
	check_config("", "");
	check_config("total_iops_sec: 8000\ntotal_iops_sec_max: 8000\n", "");
	check_config("read_bytes_sec: 10M\nwrite_bytes_sec: 1000000000000000\ngroup: g\n", "");
	check_config("read_iops_sec: 1\nread_iops_sec_max: 2\n"
		     "read_iops_sec_max_length: 500000000000000\nsize_iops_sec: 4k\n",
		     "");
	/* bytes by total, requests by direction */
	check_config("total_bytes_sec: 1M\nread_iops_sec: 5\nwrite_iops_sec: 7\n", "");
}

static void test_options_bad(void **state)
{
	(void)state;
	check_config(
		"total_iops_sec: 8000\ntotal_iops_sec_max: 7500\n",
		"f:4:21: total_iops_sec_max: 7500 cannot be lower than total_iops_sec: 8000\n");
	check_config("read_bytes_sec_max: 1M\n",
		     "f:3:21: read_bytes_sec_max: requires read_bytes_sec\n");
	check_config("total_bytes_sec: 1M\nwrite_bytes_sec: 1M\n",
		     "f:3:18: total_bytes_sec: total and read/write values cannot be used at the "
		     "same time\n");
	check_config("total_iops_sec: 1\ntotal_iops_sec_max: 2\nread_iops_sec: 1\n"
		     "read_iops_sec_max: 2\n",
		     "f:3:17: total_iops_sec: total and read/write values cannot be used at the "
		     "same time\n"
		     "f:4:21: total_iops_sec_max: total and read/write values cannot be used at "
		     "the same time\n");
	check_config("size_iops_sec: 4096\nread_bytes_sec: 1M\n",
		     "f:3:16: size_iops_sec: requires an iops value to be set\n");
	check_config("write_iops_sec: 1\nwrite_iops_sec_max: 1\nwrite_iops_sec_max_length: 0\n",
		     "f:5:28: write_iops_sec_max_length: the burst length cannot be 0\n");
	check_config("write_iops_sec: 1\nwrite_iops_sec_max_length: 2\n",
		     "f:4:28: write_iops_sec_max_length: burst length set without burst rate\n");
	check_config("write_iops_sec: 1\nwrite_iops_sec_max: 3\n"
		     "write_iops_sec_max_length: 500000000000000\n",
		     "f:5:28: write_iops_sec_max_length: burst length too high for this burst "
		     "rate\n");
	check_config("total_iops_sec: 1000000000000001\n",
		     "f:3:17: total_iops_sec: must be within [0, 1000000000000000]\n");
	check_config("total_iops_sec: 1\ntotal_iops_sec_max: 1000000000000001\n",
		     "f:4:21: total_iops_sec_max: must be within [0, 1000000000000000]\n");
	check_config("total_iops_sec: -1\ntotal_iop_sec: 1\n",
		     "f:3:17: total_iops_sec: -1 is below the minimum 0\n"
		     "f:4:1: unknown key \"total_iop_sec\" (did you mean \"total_iops_sec\"?)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leak),
		cmocka_unit_test(test_clock_behind),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_burst),
		cmocka_unit_test(test_account),
		cmocka_unit_test(test_directions),
		cmocka_unit_test(test_longest_wait_counts),
		cmocka_unit_test(test_set_empties),
		cmocka_unit_test(test_busy_without_max),
		cmocka_unit_test(test_busy_with_max),
		cmocka_unit_test(test_busy_with_length),
		cmocka_unit_test(test_busy_bytes),
		cmocka_unit_test(test_busy_size_iops),
		cmocka_unit_test(test_options_good),
		cmocka_unit_test(test_options_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
