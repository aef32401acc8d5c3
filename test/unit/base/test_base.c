/* base: list, histogram, errno names. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/errname.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/prng.h"

struct item {
	int value;
	struct list_node node;
};

static void test_list_keeps_order(void **state)
{
	struct list_node head = LIST_INIT(head), other = LIST_INIT(other);
	struct item a = { .value = 1 }, b = { .value = 2 }, c = { .value = 3 };

	(void)state;
	list_push_back(&head, &a.node);
	list_push_back(&other, &b.node);
	list_push_back(&other, &c.node);
	list_splice(&head, &other);
	assert_true(list_empty(&other));
	list_remove(&b.node);
	list_remove(&b.node); /* twice is harmless */
	assert_int_equal(list_entry(list_pop_front(&head), struct item, node)->value, 1);
	assert_int_equal(list_entry(list_pop_front(&head), struct item, node)->value, 3);
	assert_null(list_pop_front(&head));
}

static void test_histogram_buckets_tile_the_axis(void **state)
{
	(void)state;
	for (unsigned i = 0; i + 1 < HISTOGRAM_BUCKET_NR; i++) {
		uint64_t start = histogram_bucket_start_ns(i);
		uint64_t end = histogram_bucket_start_ns(i + 1);

		assert_true(start < end);
		assert_int_equal(histogram_index(start), i);
		assert_int_equal(histogram_index(end - 1), i);
	}
	assert_int_equal(histogram_index(UINT64_MAX), HISTOGRAM_BUCKET_NR - 1);
}

/* A quantile on the border of two values is the next one: of 100, the median is the 51st. */
static void test_histogram_quantile_on_a_border(void **state)
{
	struct histogram h = { 0 };

	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		histogram_record(&h, 1000);
		histogram_record(&h, 1000000);
	}
	assert_in_range(histogram_quantile_ns(&h, 0.5), 1000000, 1000000 * 17 / 16 + 1000);
	assert_in_range(histogram_quantile_ns(&h, 0.49), 1000, 1000 * 17 / 16 + 1000);
}

static void test_histogram_quantiles_within_a_bucket(void **state)
{
	static struct histogram h;

	(void)state;
	for (uint64_t us = 1; us <= 1000; us++)
		histogram_record(&h, us * 1000);
	assert_int_equal(histogram_count(&h), 1000);
	assert_int_equal(histogram_mean_ns(&h), 500500);
	assert_in_range(histogram_quantile_ns(&h, 0.99), 990000, 990000 * 17 / 16 + 1000);
	assert_in_range(histogram_quantile_ns(&h, 0.5), 500000, 500000 * 17 / 16 + 1000);
}

static void test_errname(void **state)
{
	(void)state;
	assert_string_equal(errname(-ENOSPC), "ENOSPC");
	assert_string_equal(errname(EIO), "EIO");
	assert_string_equal(errname(99999), "E?");
}

static void test_prng_repeats_its_seed(void **state)
{
	struct prng a, b;

	(void)state;
	prng_init(&a, 7);
	prng_init(&b, 7);
	for (int i = 0; i < 100; i++)
		assert_int_equal(prng_next(&a), prng_next(&b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list_keeps_order),
		cmocka_unit_test(test_histogram_buckets_tile_the_axis),
		cmocka_unit_test(test_histogram_quantile_on_a_border),
		cmocka_unit_test(test_histogram_quantiles_within_a_bucket),
		cmocka_unit_test(test_errname),
		cmocka_unit_test(test_prng_repeats_its_seed),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
