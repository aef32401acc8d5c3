/* The clock by the counter: against a real clock that the test turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "reactor/ring.h"
#include "reactor/tsc_clock.h"

static uint64_t real, asked;
static uint64_t late_ns, off_cpu_ns; /* before the real clock is read; from then to the counter */

static uint64_t read_real(uint64_t *tsc)
{
	uint64_t ns = real + late_ns;

	asked++;
	*tsc += (late_ns + off_cpu_ns) * 3;
	real = ns + off_cpu_ns;
	late_ns = off_cpu_ns = 0;
	return ns;
}

/* A counter of three ticks a nanosecond. */
static uint64_t at(struct tsc_clock *c, uint64_t ns)
{
	real = ns;
	return tsc_clock_at(c, ns * 3, read_real);
}

static uint64_t run_to(struct tsc_clock *c, uint64_t from_ns, uint64_t to_ns, uint64_t step_ns)
{
	uint64_t last_ns = 0;

	for (uint64_t ns = from_ns; ns < to_ns; ns += step_ns) {
		uint64_t said_ns = at(c, ns);

		assert_true(said_ns >= last_ns);
		assert_in_range(said_ns, ns - 2, ns + 2);
		last_ns = said_ns;
	}
	return to_ns;
}

/* Once it knows the rate it asks the real clock once in a window. */
static void test_follows(void **state)
{
	struct tsc_clock c = { 0 };
	uint64_t ns = NS_PER_SEC;

	(void)state;
	ns = run_to(&c, ns, ns + 20 * NS_PER_MS, 1000);
	asked = 0;
	ns = run_to(&c, ns, ns + 100 * NS_PER_MS, 1000);
	assert_in_range(asked, 90, 110);
	run_to(&c, ns, ns + 5 * NS_PER_SEC, 7 * NS_PER_MS);
}

/* A counter that jumps, back or ahead, costs no more than the calls until the rate is known again.
 */
static void test_counter_jumps(void **state)
{
	static const uint64_t jump[] = { 0, 1ull << 60, 12345 };
	struct tsc_clock c = { 0 };
	uint64_t last_ns = 0;

	(void)state;
	real = NS_PER_SEC;
	for (unsigned i = 0; i < 300000; i++) {
		uint64_t said_ns;

		real += 1000;
		said_ns = tsc_clock_at(&c, real * 3 + jump[i / 100000], read_real);
		assert_true(said_ns >= last_ns);
		/* For a window it may not notice. */
		assert_in_range(said_ns, real - TSC_CLOCK_WINDOW_NS, real + TSC_CLOCK_WINDOW_NS);
		last_ns = said_ns;
	}
}

/* The machine slept: the counter went on, the real clock did not. */
static void test_rate_changes(void **state)
{
	struct tsc_clock c = { 0 };
	uint64_t tsc = 0, last_ns = 0;

	(void)state;
	real = NS_PER_SEC;
	for (unsigned i = 0; i < 400000; i++) {
		uint64_t said_ns;

		real += 1000;
		tsc += i < 200000 ? 3000 : 2000;
		said_ns = tsc_clock_at(&c, tsc, read_real);
		assert_true(said_ns >= last_ns);
		assert_in_range(said_ns, real - TSC_CLOCK_WINDOW_NS, real + TSC_CLOCK_WINDOW_NS);
		last_ns = said_ns;
	}
	/* What was measured over both rates is forgotten. */
	for (unsigned i = 0; i < 300000; i++) {
		real += 10000;
		tsc += 20000;
		last_ns = tsc_clock_at(&c, tsc, read_real);
	}
	assert_in_range(last_ns, real - 2, real + 2);
}

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* On this machine, whatever it has: never back, and near the real clock. */
static void check_never_ahead(struct tsc_clock *c, uint64_t ns, uint64_t late_by_ns)
{
	uint64_t end_ns = ns + 20 * NS_PER_MS, last_ns = 0;

	for (; ns < end_ns; ns = real + 1000) {
		uint64_t said_ns = at(c, ns);

		assert_in_range(said_ns, ns - late_by_ns, real + 2);
		assert_true(said_ns >= last_ns);
		last_ns = said_ns;
	}
	assert_int_equal(late_ns + off_cpu_ns, 0);
	assert_in_range(last_ns, ns - 4000, ns + 2);
}

/* A thread that loses its CPU around the readings: this clock is late for a window, never ahead. */
static void test_off_cpu(void **state)
{
	struct tsc_clock c = { 0 };
	uint64_t ns = run_to(&c, NS_PER_SEC, NS_PER_SEC + 50 * NS_PER_MS, 1000);

	(void)state;
	off_cpu_ns = 40000;
	check_never_ahead(&c, ns, 42000);
	late_ns = 40000;
	check_never_ahead(&c, real + 1000, 4000);
}

static void test_real_counter(void **state)
{
	uint64_t last_ns = ring_clock_ns(), start_ns = last_ns, before_ns;

	(void)state;
	while (last_ns - start_ns < 50 * NS_PER_MS) {
		uint64_t ns = ring_clock_ns();

		assert_true(ns >= last_ns);
		last_ns = ns;
	}
	before_ns = monotonic_ns();
	last_ns = ring_clock_ns();
	assert_in_range(last_ns, before_ns - NS_PER_SEC, monotonic_ns() + 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_follows),	     cmocka_unit_test(test_counter_jumps),
		cmocka_unit_test(test_rate_changes), cmocka_unit_test(test_off_cpu),
		cmocka_unit_test(test_real_counter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
