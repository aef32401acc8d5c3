/* delay: the distributions against their formulas, and who waits how long, in virtual time. */
#include "filters/delay.h"

#include <math.h>

#include "test/rig/filter_rig.h"

#define SAMPLES 200000

/* ---- distributions ---- */

struct sample {
	double mean, deviation, min, max;
	double below_mean; /* part of them */
};

static struct sample draw_many(struct delay_shape shape, uint64_t mean_ns)
{
	struct sample s = { .min = 1e30 };
	double sum = 0, squares = 0;
	struct prng prng;

	prng_init(&prng, 7);
	for (int i = 0; i < SAMPLES; i++) {
		double x = (double)delay_draw(&shape, mean_ns, &prng);

		sum += x;
		squares += x * x;
		s.min = fmin(s.min, x);
		s.max = fmax(s.max, x);
		s.below_mean += x < (double)mean_ns ? 1. / SAMPLES : 0;
	}
	s.mean = sum / SAMPLES;
	s.deviation = sqrt(squares / SAMPLES - s.mean * s.mean);
	return s;
}

/* Within one percent. */
static void check(const char *what, double got, double expected)
{
	if (fabs(got - expected) > fabs(expected) / 100)
		fail_msg("%s: %f instead of %f", what, got, expected);
}

static void test_fixed(void **state)
{
	struct sample s = draw_many((struct delay_shape){ .distribution = DELAY_FIXED }, 1000000);

	(void)state;
	assert_true(s.min == 1000000 && s.max == 1000000);
}

static void test_uniform(void **state)
{
	struct sample s = draw_many(
		(struct delay_shape){ .distribution = DELAY_UNIFORM, .spread_ns = 400000 },
		1000000);

	(void)state;
	check("mean", s.mean, 1000000);
	check("deviation", s.deviation, 400000 / sqrt(3));
	check("min", s.min, 600000);
	check("max", s.max, 1400000);
	assert_true(s.min >= 600000 && s.max <= 1400000);
}

static void test_normal(void **state)
{
	struct sample s = draw_many(
		(struct delay_shape){ .distribution = DELAY_NORMAL, .spread_ns = 100000 }, 1000000);

	(void)state;
	check("mean", s.mean, 1000000);
	check("deviation", s.deviation, 100000);
	check("median", s.below_mean, 0.5);
	assert_true(s.max > 1350000 && s.max < 1600000);
	/* below zero is zero */
	s = draw_many((struct delay_shape){ .distribution = DELAY_NORMAL, .spread_ns = 100000 },
		      1000);
	assert_true(s.min == 0);
}

static void test_exponential(void **state)
{
	struct sample s =
		draw_many((struct delay_shape){ .distribution = DELAY_EXPONENTIAL }, 1000000);

	(void)state;
	check("mean", s.mean, 1000000);
	check("deviation", s.deviation, 1000000);
	check("median", s.below_mean, 1 - exp(-1));
	assert_true(s.max > 9e6 && s.max < 25e6);
}

static void test_pareto(void **state)
{
	struct delay_shape shape = { .distribution = DELAY_PARETO };
	struct sample s = draw_many(shape, 1000000);
	struct prng prng;
	unsigned above_nr = 0;

	(void)state;
	/* Its deviation is infinite, so its mean is not found within one percent so soon. */
	assert_true(fabs(s.mean - 1e6) < 5e4);
	assert_true(s.min >= 500000 && s.min < 500100);
	check("below the mean", s.below_mean, 0.75);
	prng_init(&prng, 3);
	for (int i = 0; i < SAMPLES; i++)
		above_nr += delay_draw(&shape, 1000000, &prng) > 5000000;
	assert_true(fabs((double)above_nr / SAMPLES - 0.01) < 0.001);
}

static void test_max(void **state)
{
	struct sample s = draw_many(
		(struct delay_shape){ .distribution = DELAY_PARETO, .max_ns = 2000000 }, 1000000);

	(void)state;
	assert_true(s.max == 2000000);
	s = draw_many((struct delay_shape){ .max_ns = 300 }, 1000);
	assert_true(s.min == 300 && s.max == 300);
}

/* ---- the filter ---- */

/* Submits one of each and notes when it is out. */
static void waits_of(const char *yaml, const uint64_t expected_us[BACKEND_PLAIN_OP_NR])
{
	uint64_t start_ns;

	rig_open(&backend_delay, yaml);
	start_ns = rig.reactor.now_ns;
	for (unsigned op = 0; op < BACKEND_PLAIN_OP_NR; op++)
		assert_int_equal(rig_submit(op, op),
				 expected_us[op] ? BACKEND_QUEUED : BACKEND_DONE);
	for (uint64_t us = 10; us <= 50000; us += 10) {
		rig_run_until(start_ns + us * 1000 - 1);
		for (unsigned op = 0; op < BACKEND_PLAIN_OP_NR; op++)
			assert_int_equal(rig.out[op], expected_us[op] >= us);
	}
	assert_int_equal(low_nr, BACKEND_PLAIN_OP_NR);
	for (unsigned op = 0; op < BACKEND_PLAIN_OP_NR; op++) {
		assert_int_equal(rig.io[op].result, 0);
		assert_int_equal(rig.io[op].throttle_ns, 0); /* it is the backend's time */
	}
	rig_close();
}

static void test_waits_by_op(void **state)
{
	(void)state;
	waits_of("all: 1ms\nwrite: 250us\nflush: 40ms\n",
		 (uint64_t[]){ 1000, 250, 40000, 1000, 1000 });
	waits_of("all: 10ms\ndistribution: normal\nspread: 1us\nmax: 2ms\n",
		 (uint64_t[]){ 2000, 2000, 2000, 2000, 2000 });
	waits_of("discard: 3ms\nwrite_zeroes: 4ms\n", (uint64_t[]){ 0, 0, 0, 3000, 4000 });
	waits_of("{}", (uint64_t[]){ 0, 0, 0, 0, 0 });
}

#define EXPONENTIAL "all: 1ms\ndistribution: exponential\n"

static void test_seed(void **state)
{
	uint64_t due_ns[3][8];

	(void)state;
	for (int round = 0; round < 3; round++) {
		rig_open(&backend_delay, round < 2 ? EXPONENTIAL "seed: 5\n" : EXPONENTIAL);
		for (unsigned tag = 0; tag < 8; tag++) {
			uint64_t start_ns = rig.reactor.now_ns;

			rig_submit(tag, BACKEND_READ);
			due_ns[round][tag] = timer_heap_next_ns(&rig.reactor.timers) - start_ns;
			rig_run_until(start_ns + NS_PER_SEC);
		}
		rig_close();
	}
	assert_memory_equal(due_ns[0], due_ns[1], sizeof(due_ns[0]));
	assert_memory_not_equal(due_ns[0], due_ns[2], sizeof(due_ns[0]));
	assert_int_not_equal(due_ns[0][0], due_ns[0][1]);
}

static void test_cancel(void **state)
{
	(void)state;
	rig_open(&backend_delay, "read: 1ms\n");
	rig_submit(0, BACKEND_READ);
	backend_io_cancel(&rig.io[0]);
	assert_false(rig.out[0]);
	assert_int_equal(rig.io[0].result, -EIO);
	rig_run_until(rig.reactor.now_ns + NS_PER_SEC);
	assert_int_equal(low_nr, 0);
	/* In the child: it is the child's to cancel. */
	low_keeps_all = true;
	rig_submit(0, BACKEND_READ);
	rig_submit(1, BACKEND_WRITE);
	rig_run_until(rig.reactor.now_ns + NS_PER_SEC);
	assert_true(rig.out[0] && rig.out[1]);
	backend_io_cancel(&rig.io[0]);
	backend_io_cancel(&rig.io[1]);
	assert_false(rig.out[0] || rig.out[1]);
	assert_int_equal(low_cancelled_nr, 2);
	rig_close();
}

static void test_options(void **state)
{
	(void)state;
	rig_check_config("delay", "all: 1ms\nmax: 2ms\nseed: 9\n", "");
	rig_check_config("delay", "read: 2ms\ndistribution: uniform\nspread: 2ms\n", "");
	rig_check_config("delay", "read: 1ms\nall: 3ms\ndistribution: uniform\nspread: 2ms\n",
			 "f:6:9: spread: is longer than read\n");
	rig_check_config("delay", "all: 1ms\ndistribution: uniform\nspread: 2ms\n",
			 "f:5:9: spread: is longer than all\n");
	rig_check_config("delay", "all: 1ms\ndistribution: normal\n",
			 "f:4:15: distribution: normal needs spread\n");
	rig_check_config("delay", "all: 1ms\nspread: 1ms\n",
			 "f:4:9: spread: is for distribution: uniform or normal, not fixed\n");
	rig_check_config("delay", "distribution: paretto\nal: 1\n",
			 "f:3:15: distribution: \"paretto\" is not one of fixed, uniform, normal, "
			 "exponential, pareto (did you mean \"pareto\"?)\n"
			 "f:4:1: unknown key \"al\" (did you mean \"all\"?)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixed),	    cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_normal),	    cmocka_unit_test(test_exponential),
		cmocka_unit_test(test_pareto),	    cmocka_unit_test(test_max),
		cmocka_unit_test(test_waits_by_op), cmocka_unit_test(test_seed),
		cmocka_unit_test(test_cancel),	    cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
