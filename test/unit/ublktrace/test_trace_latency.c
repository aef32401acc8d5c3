/* Buckets, quantiles, differences, rows and words of `ublktrace latency`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublktrace/latency/latency_report.h"

static void test_every_value_lies_in_its_bucket(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < LATENCY_EXP_MAX; bit++)
		for (int off = -2; off <= 2; off++) {
			uint64_t ns = (1ull << bit) + (uint64_t)off;
			unsigned idx;

			if (ns >= 1ull << LATENCY_EXP_MAX)
				continue; /* also those below 0 */
			idx = latency_bucket(ns);
			assert_true(idx < LATENCY_BUCKET_NR);
			assert_true(latency_bucket_start_ns(idx) <= ns);
			assert_true(ns < latency_bucket_start_ns(idx + 1));
		}
}

static void test_buckets_are_an_eighth_wide(void **state)
{
	(void)state;
	for (unsigned i = LATENCY_SUB_NR; i + 1 < LATENCY_BUCKET_NR; i++) {
		uint64_t start = latency_bucket_start_ns(i), end = latency_bucket_start_ns(i + 1);

		assert_true(end > start);
		assert_true((end - start) * LATENCY_SUB_NR <= start);
	}
	assert_int_equal(latency_bucket(~0ull), LATENCY_BUCKET_NR - 1);
	assert_int_equal(latency_bucket(1ull << LATENCY_EXP_MAX), LATENCY_BUCKET_NR - 1);
}

static void record(struct latency_hist *h, uint64_t ns, uint64_t times)
{
	h->bucket[latency_bucket(ns)] += times;
	h->sum_ns += ns * times;
	h->max_ns = MAX(h->max_ns, ns);
}

static void test_quantiles(void **state)
{
	struct latency_hist h = { 0 };
	struct latency_summary s;

	(void)state;
	assert_int_equal(latency_hist_quantile_ns(&h, 0.5), 0);
	record(&h, 1000, 900);
	record(&h, 40000000, 99);
	record(&h, 2000000000, 1);
	s = latency_summarize(&h);
	assert_int_equal(s.count, 1000);
	assert_int_equal(s.mean_ns, (900 * 1000ull + 99 * 40000000ull + 2000000000ull) / 1000);
	assert_in_range(s.p50_ns, 1000, 1125);
	assert_in_range(s.p90_ns, 40000000, 45000000); /* the 901st */
	assert_in_range(s.p99_ns, 40000000, 45000000);
	assert_int_equal(s.p999_ns, 2000000000);
	assert_int_equal(s.max_ns, 2000000000);
}

/* Each in a range of its own, so that none can stand for another. */
static void test_quantiles_apart(void **state)
{
	struct latency_hist h = { 0 };
	struct latency_summary s;

	(void)state;
	record(&h, 1000, 600);
	record(&h, 30000, 350);
	record(&h, 900000, 45);
	record(&h, 20000000, 5);
	s = latency_summarize(&h);
	assert_in_range(s.p50_ns, 1000, 1125);
	assert_in_range(s.p90_ns, 30000, 33750);
	assert_in_range(s.p99_ns, 900000, 1012500);
	assert_in_range(s.p999_ns, 20000000, 22500000);
}

/* What two CPUs have counted is one: the larger maximum, whichever comes first. */
static void test_sum_of_two(void **state)
{
	struct latency_hist small = { 0 }, large = { 0 }, sum = { 0 };

	(void)state;
	record(&small, 1000, 2);
	record(&large, 50000, 3);
	latency_hist_add(&sum, &small);
	latency_hist_add(&sum, &large);
	assert_int_equal(sum.max_ns, 50000);
	latency_hist_add(&sum, &small);
	assert_int_equal(sum.max_ns, 50000);
	assert_int_equal(latency_hist_count(&sum), 7);
	assert_int_equal(sum.sum_ns, 4 * 1000 + 3 * 50000);
}

static void test_no_quantile_above_the_maximum(void **state)
{
	struct latency_hist h = { 0 };

	(void)state;
	record(&h, 1025, 5); /* its bucket ends at 1151 */
	assert_int_equal(latency_hist_quantile_ns(&h, 0.999), 1025);
	record(&h, 1ull << 40, 5); /* beyond all buckets */
	assert_int_equal(latency_hist_quantile_ns(&h, 0.999), 1ull << 40);
}

static void test_differences(void **state)
{
	struct latency_hist before = { 0 }, now = { 0 };

	(void)state;
	record(&before, 5000000, 7);
	now = before;
	record(&now, 1000, 3);
	latency_hist_subtract(&now, &before);
	assert_int_equal(latency_hist_count(&now), 3);
	assert_int_equal(now.sum_ns, 3000);
	/* the old maximum is not one of these three */
	assert_in_range(now.max_ns, 1000, 1125);
}

static void test_batches(void **state)
{
	uint64_t count[LATENCY_LEVELS] = { [1] = 5, [8] = 80, [16] = 16 };
	struct latency_numbers n;

	(void)state;
	latency_batches(count);
	n = latency_numbers(count);
	assert_int_equal(n.count, 5 + 10 + 1);
	assert_int_equal(n.p50, 8);
	assert_int_equal(n.max, 16);
	assert_true(n.mean > 6.3 && n.mean < 6.4); /* 101 in 16 */
}

/* Two devices: reads of both, a failed write of one. */
static struct latency_report *sample(void)
{
	struct latency_report *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->device = calloc(2, sizeof(*r->device));
	assert_non_null(r->device);
	r->device_nr = 2;
	r->device[0].number = 3;
	r->device[1].number = 7;
	record(&r->device[0].op[LATENCY_READ].stage[LATENCY_TOTAL], 1000, 10);
	record(&r->device[1].op[LATENCY_READ].stage[LATENCY_TOTAL], 3000, 10);
	record(&r->device[1].op[LATENCY_WRITE].stage[LATENCY_TOTAL], 5000, 1);
	r->device[1].op[LATENCY_WRITE].errors = 1;
	record(&r->uring[22].hist, 2000, 4); /* READ */
	r->uring[22].async = 1;
	r->error[0] = (struct latency_error_count){ { 1, 1, 10, 7 }, 1 };
	r->error[1] = (struct latency_error_count){ { 0, 22, 5, -1 }, 2 };
	r->error_nr = 2;
	r->losses.recursion = 4;
	return r;
}

static void test_rows(void **state)
{
	struct latency_report *r = sample();
	struct latency_row *row;

	(void)state;
	assert_int_equal(latency_rows(r, LATENCY_BY_ALL, &row), 3);
	assert_string_equal(row[0].name, "ublkb3 read");
	assert_string_equal(row[1].name, "ublkb7 read");
	assert_string_equal(row[2].name, "ublkb7 write");
	assert_int_equal(row[2].sum.errors, 1);
	free(row);
	assert_int_equal(latency_rows(r, LATENCY_BY_OP, &row), 2);
	assert_string_equal(row[0].name, "read");
	assert_int_equal(latency_hist_count(&row[0].sum.stage[LATENCY_TOTAL]), 20);
	free(row);
	assert_int_equal(latency_rows(r, LATENCY_BY_DEVICE, &row), 2);
	assert_string_equal(row[1].name, "ublkb7");
	assert_int_equal(latency_hist_count(&row[1].sum.stage[LATENCY_TOTAL]), 11);
	free(row);
	latency_report_free(r);
}

static void test_reports_subtract(void **state)
{
	struct latency_report *before = sample(), *now = sample();

	(void)state;
	record(&now->device[1].op[LATENCY_READ].stage[LATENCY_TOTAL], 9000, 2);
	now->uring[22].async += 5;
	now->error[1].count += 3;
	latency_report_subtract(now, before);
	assert_int_equal(latency_hist_count(&now->device[0].op[LATENCY_READ].stage[LATENCY_TOTAL]),
			 0);
	assert_int_equal(latency_hist_count(&now->device[1].op[LATENCY_READ].stage[LATENCY_TOTAL]),
			 2);
	assert_int_equal(now->uring[22].async, 5);
	assert_int_equal(now->error_nr, 1);
	assert_int_equal(now->error[0].count, 3);
	latency_report_free(before);
	latency_report_free(now);
}

static void test_times(void **state)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} rows[] = { { 0, "0 ns" },	      { 999, "999 ns" },
		     { 1000, "1.0 us" },      { 99940, "99.9 us" },
		     { 123456, "123 us" },    { 999499, "999 us" },
		     { 999600, "1.0 ms" },    { 40700000, "40.7 ms" },
		     { 2000000000, "2.0 s" }, { 5000000000000, "5000 s" } };
	char buf[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(latency_time(rows[i].ns, buf), rows[i].text);
}

static char *printed(int (*print)(FILE *out, const struct latency_report *r))
{
	struct latency_report *r = sample();
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	assert_int_equal(print(out, r), 0);
	fclose(out);
	latency_report_free(r);
	return text;
}

static int print_table(FILE *out, const struct latency_report *r)
{
	return latency_print(out, r, LATENCY_BY_ALL, false);
}

static int print_json(FILE *out, const struct latency_report *r)
{
	return latency_print_json(out, r, LATENCY_BY_ALL);
}

static void test_table(void **state)
{
	char *text = printed(print_table);

	(void)state;
	assert_non_null(strstr(text, "ublkb3 read          total              10   1.0 us"));
	assert_non_null(strstr(text, "READ                                     4   2.0 us"));
	assert_non_null(strstr(text, "25%")); /* by io-wq */
	assert_non_null(strstr(text, "1  EIO         ublkb7 write\n"));
	assert_non_null(strstr(text, "2  EIO         READ\n"));
	assert_non_null(strstr(text, "1 failed"));
	assert_non_null(
		strstr(text, "lost: 0 ring buffer full, 0 map full, 4 missed by recursion"));
	assert_null(strchr(text, '\033'));
	free(text);
}

static void test_json(void **state)
{
	char *text = printed(print_json);

	(void)state;
	assert_non_null(strstr(text, "{\"name\":\"ublkb7 write\",\"failed\":1"));
	assert_non_null(strstr(text, "\"name\":\"READ\",\"io_wq\":1"));
	assert_non_null(strstr(text, "\"recursion\":4"));
	assert_non_null(strstr(text, "\"device\":\"ublkb7\""));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_value_lies_in_its_bucket),
		cmocka_unit_test(test_buckets_are_an_eighth_wide),
		cmocka_unit_test(test_quantiles),
		cmocka_unit_test(test_quantiles_apart),
		cmocka_unit_test(test_sum_of_two),
		cmocka_unit_test(test_no_quantile_above_the_maximum),
		cmocka_unit_test(test_differences),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_reports_subtract),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
