/* Histograms as they are asked for: bins, resets while the writer goes on, QEMU's rules. */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/prng.h"
#include "daemon/api/commands_internal.h"
#include "daemon/devices/latency.h"
#include "test/rig/fake_device.h"

#define READS (1u << BACKEND_READ)

static struct device_stats now;
static struct latency_view view;

static void record(enum backend_op op, uint64_t ns)
{
	now.op[op].done++;
	histogram_record(&now.op[op].layer[QUEUE_LAYER_TOTAL], ns);
}

static uint64_t count(enum backend_op op)
{
	static struct histogram h;

	latency_view_read(&view, &now, op, QUEUE_LAYER_TOTAL, &h);
	return histogram_count(&h);
}

static void test_bins(void **state)
{
	static const uint64_t boundary[] = { 1024, 4096, 1 << 20 };
	static struct histogram h;
	uint64_t bins[4], one;

	(void)state;
	histogram_record(&h, 0);
	histogram_record(&h, 1023);
	histogram_record(&h, 1024); /* [a, b): a boundary begins a bin */
	histogram_record(&h, 4095);
	histogram_record(&h, 4096);
	histogram_record(&h, UINT64_MAX);
	histogram_bins(&h, boundary, 3, bins);
	assert_int_equal(bins[0], 2);
	assert_int_equal(bins[1], 2);
	assert_int_equal(bins[2], 1);
	assert_int_equal(bins[3], 1);
	histogram_bins(&h, NULL, 0, &one);
	assert_int_equal(one, 6);
	assert_int_equal(histogram_max_ns(&h), (1ull << 40) - 1);
}

/* Whatever the boundaries: nothing lost, and off by at most one bucket. */
static void test_bins_of_random_boundaries(void **state)
{
	struct prng prng;

	(void)state;
	prng_init(&prng, 5);
	for (int round = 0; round < 200; round++) {
		static struct histogram h;
		uint64_t boundary[8], bins[9], sum = 0, at = 0, below = 0;

		memset(&h, 0, sizeof(h));
		for (int i = 0; i < 8; i++)
			boundary[i] = at += 1 + prng_next(&prng) % 100000;
		for (int i = 0; i < 1000; i++) {
			uint64_t ns = prng_next(&prng) % 800000;

			histogram_record(&h, ns);
			below += ns < boundary[3] - boundary[3] / 15;
		}
		histogram_bins(&h, boundary, 8, bins);
		for (int i = 0; i < 9; i++)
			sum += bins[i];
		assert_int_equal(sum, 1000);
		assert_true(bins[0] + bins[1] + bins[2] + bins[3] >= below);
	}
}

static void test_reset(void **state)
{
	(void)state;
	record(BACKEND_READ, 5000);
	record(BACKEND_WRITE, 5000);
	assert_int_equal(latency_reset(&view, &now, READS), 0);
	assert_int_equal(count(BACKEND_READ), 0);
	assert_int_equal(count(BACKEND_WRITE), 1);
	record(BACKEND_READ, 6000);
	assert_int_equal(count(BACKEND_READ), 1);
	latency_fini(&view);
	assert_int_equal(count(BACKEND_READ), 2);
}

static void test_set(void **state)
{
	static const uint64_t good[] = { 10, 20, 30 }, bad[] = { 10, 20, 20 }, zero[] = { 0, 1 };
	static uint64_t many[LATENCY_BOUNDARIES_MAX + 1];
	size_t nr;

	(void)state;
	record(BACKEND_READ, 15);
	assert_int_equal(latency_set(&view, &now, READS, good, 3), 0);
	assert_int_equal(count(BACKEND_READ), 0);
	record(BACKEND_READ, 15);
	assert_int_equal(latency_set(&view, &now, READS, bad, 3), -EINVAL);
	assert_int_equal(latency_set(&view, &now, READS, zero, 2), -EINVAL);
	assert_int_equal(latency_set(&view, &now, READS, many, LATENCY_BOUNDARIES_MAX + 1), -E2BIG);
	/* After an error nothing has changed. */
	assert_int_equal(latency_boundaries(&view, BACKEND_READ, &nr)[2], 30);
	assert_int_equal(nr, 3);
	assert_int_equal(count(BACKEND_READ), 1);
	assert_null(latency_boundaries(&view, BACKEND_WRITE, &nr));
	/* Again: resets. None: removes. */
	assert_int_equal(latency_set(&view, &now, READS, good, 2), 0);
	assert_int_equal(count(BACKEND_READ), 0);
	assert_int_equal(latency_set(&view, &now, READS, NULL, 0), 0);
	assert_null(latency_boundaries(&view, BACKEND_READ, &nr));
}

/* ---- races ---- */

#define RACE_WINDOWS 2000u

struct race {
	struct histogram h;
	uint64_t done;
	bool stop, ended;
};

/* As a reactor counts: done first, then the layer, in which only every other I/O spent time. */
static void *race_writer(void *arg)
{
	struct race *r = arg;

	for (unsigned i = 0; !__atomic_load_n(&r->stop, __ATOMIC_RELAXED); i++) {
		counter_add(&r->done, 1);
		if (i & 1)
			histogram_record(&r->h, i);
	}
	__atomic_store_n(&r->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* As device_stats reads. */
static void race_read(const struct race *r, struct histogram *ret)
{
	uint64_t done = __atomic_load_n(&r->done, __ATOMIC_RELAXED), counted;

	memset(ret, 0, sizeof(*ret));
	histogram_add(ret, &r->h);
	counted = histogram_count(ret);
	if (counted < done)
		ret->bucket[0] += done - counted;
}

/* Reset again and again under load: what the windows counted adds up to the I/Os done. */
static void test_resets_lose_nothing(void **state)
{
	static struct race r;
	static struct histogram before, after, window;
	uint64_t sum = 0, windows = 0;
	pthread_t thread;
	bool last;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, race_writer, &r), 0);
	do {
		last = __atomic_load_n(&r.ended, __ATOMIC_ACQUIRE);
		race_read(&r, &after);
		window = after;
		histogram_subtract(&window, &before);
		sum += histogram_count(&window);
		before = after;
		if (++windows == RACE_WINDOWS)
			__atomic_store_n(&r.stop, true, __ATOMIC_RELAXED);
	} while (!last);
	pthread_join(thread, NULL);
	assert_int_equal(sum, r.done);
}

static void test_a_debt_is_paid_once(void **state)
{
	static struct histogram before, after;

	(void)state;
	before.bucket[0] = 3; /* one of them is on its way to bucket 5 */
	after.bucket[0] = 2;
	after.bucket[5] = 4;
	histogram_subtract(&after, &before);
	assert_int_equal(after.bucket[0], 0);
	assert_int_equal(after.bucket[5], 3);
}

/* ---- as QEMU says it ---- */

/* The line of the people who asked for it, as they wrote it. */
#define JQ                                                                                         \
	"jq -c '.return[] | { qdev: .qdev, rd: .stats.rd_latency_histogram, wr: "                  \
	".stats.wr_latency_histogram, flush: .stats.flush_latency_histogram } | { qdev, rd: "      \
	"([.rd.boundaries, .rd.bins] | transpose), wr: ([.wr.boundaries, .wr.bins] | transpose), " \
	"flush: ([.flush.boundaries, .flush.bins] | transpose) }'"

static void test_jq_line(void **state)
{
	static const uint64_t boundary[] = { 500, 2000 };
	struct device device = { .name = "vda" };
	struct device_settings settings = { .options.name = device.name };
	struct member m = { .settings = &settings, .device = &device };
	char path[] = "/tmp/test_histogram.XXXXXX", command[1024], line[512] = "";
	json_t *all;
	FILE *pipe;
	int fd;

	(void)state;
	if (system("command -v jq >/dev/null") != 0)
		skip();
	memset(&now, 0, sizeof(now));
	assert_int_equal(latency_set(&m.latency, &now, 7, boundary, 2), 0);
	all = json_pack("{s:[o]}", "return",
			json_blockstats(&m, &(enum queue_layer){ QUEUE_LAYER_TOTAL }));
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(json_dumpfd(all, fd, 0), 0);
	close(fd);
	snprintf(command, sizeof(command), "%s %s", JQ, path);
	pipe = popen(command, "r");
	assert_non_null(fgets(line, sizeof(line), pipe));
	assert_int_equal(pclose(pipe), 0);
	unlink(path);
	assert_string_equal(line, "{\"qdev\":\"vda\",\"rd\":[[500,0],[2000,1],[null,0]],"
				  "\"wr\":[[500,0],[2000,0],[null,0]],"
				  "\"flush\":[[500,0],[2000,0],[null,0]]}\n");
	json_decref(all);
	latency_fini(&m.latency);
}

static int teardown(void **state)
{
	(void)state;
	latency_fini(&view);
	memset(&now, 0, sizeof(now));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bins),
		cmocka_unit_test(test_bins_of_random_boundaries),
		cmocka_unit_test_teardown(test_reset, teardown),
		cmocka_unit_test_teardown(test_set, teardown),
		cmocka_unit_test(test_resets_lose_nothing),
		cmocka_unit_test(test_a_debt_is_paid_once),
		cmocka_unit_test_teardown(test_jq_line, teardown),
	};

	return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
