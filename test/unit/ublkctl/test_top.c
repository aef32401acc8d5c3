/* top: samples, their differences, sorting, keys, pages; everything but the terminal. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublkctl/top/top_frame.h"
#include "ublkctl/top/top_model.h"
#include "ublkctl/top/top_page.h"
#include "ublkctl/sample.h"

static struct top_model model;
static struct top_frame frame;

static json_t *parse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static json_t *parse(const char *fmt, ...)
{
	char text[4096];
	json_t *json;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c == '\'')
			*c = '"';
	json = json_loads(text, 0, NULL);
	assert_non_null(json);
	return json;
}

/* So many reads of 4096 bytes so far, each of 1000 ns. */
struct dev {
	const char *name;
	unsigned long done, failed, inflight;
};

static struct sample sample(unsigned seconds, const struct dev *devs, size_t nr)
{
	json_t *data = parse("{'time_ns':%u000000000,'devices':[]}", seconds);
	struct sample s = { 0 };

	for (size_t i = 0; i < nr; i++) {
		const struct dev *d = &devs[i];

		json_array_append_new(
			json_object_get(data, "devices"),
			parse("{'name':'%s','state':'live','inflight':%lu,'ops':{'read':"
			      "{'done':%lu,'failed':%lu,'bytes':%lu,'sum_ns':%lu,"
			      "'buckets':[[1000,%lu]]},'discard':{'bytes':%lu}}}",
			      d->name, d->inflight, d->done, d->failed, d->done * 4096,
			      d->done * 1000, d->done, d->done));
	}
	sample_read_stats(&s, data);
	json_decref(data);
	return s;
}

#define TAKE(seconds, ...)                                                                         \
	do {                                                                                       \
		const struct dev devs_[] = { __VA_ARGS__ };                                        \
		struct sample s_ = sample(seconds, devs_, ARRAY_SIZE(devs_));                      \
		top_model_take(&model, &s_);                                                       \
	} while (0)

static int setup(void **state)
{
	(void)state;
	top_model_init(&model, 1, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	top_model_fini(&model);
	top_frame_fini(&frame);
	return 0;
}

static void press(const char *keys)
{
	static const struct {
		char letter;
		enum top_key key;
	} table[] = { { 'j', TOP_KEY_DOWN },	{ 'k', TOP_KEY_UP },	 { '\n', TOP_KEY_ENTER },
		      { '\b', TOP_KEY_BACK },	{ 's', TOP_KEY_SORT },	 { 'r', TOP_KEY_REVERSE },
		      { '+', TOP_KEY_SLOWER },	{ '-', TOP_KEY_FASTER }, { '?', TOP_KEY_HELP },
		      { ' ', TOP_KEY_PAUSE },	{ 'q', TOP_KEY_QUIT },	 { '>', TOP_KEY_PAGE_DOWN },
		      { '<', TOP_KEY_PAGE_UP }, { '^', TOP_KEY_FIRST },	 { '$', TOP_KEY_LAST } };

	for (; *keys; keys++)
		for (size_t i = 0; i < ARRAY_SIZE(table); i++)
			if (table[i].letter == *keys)
				top_model_key(&model, table[i].key);
}

/* The names of the rows, in order. */
static const char *order(void)
{
	static char text[256];

	text[0] = '\0';
	for (size_t i = 0; i < model.row_nr; i++)
		strcat(text, model.rows[i].device->name);
	return text;
}

/* The frame as text; valid until the next one. */
static const char *page(unsigned rows, unsigned columns)
{
	static char text[65536];
	FILE *file = fmemopen(text, sizeof(text), "w");

	frame.rows = rows;
	frame.columns = columns;
	top_page(&frame, &model, "");
	top_frame_print(&frame, file);
	fclose(file);
	return text;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void assert_has_not(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" is in:\n%s", part, text);
}

/* ---- samples ---- */

static void test_first_sample_measures_nothing(void **state)
{
	(void)state;
	TAKE(10, { "a", 1000, 5, 2 });
	assert_int_equal(model.row_nr, 1);
	assert_false(model.rows[0].device->measured);
	assert_true(model.seconds == 0 && model.rows[0].iops == 0);
	assert_has(page(0, 0), "a       live");
	assert_has_not(page(0, 0), "1.00k");
}

static void test_rates_are_of_the_interval(void **state)
{
	(void)state;
	TAKE(10, { "a", 1000, 5, 2 });
	TAKE(12, { "a", 1500, 8, 3 });
	assert_true(model.seconds == 2);
	assert_true(model.rows[0].iops == 250);
	assert_true(model.rows[0].bytes_per_s == 250 * 4096); /* not those of discards */
	assert_int_equal(model.rows[0].failed, 3);
	assert_int_equal(model.rows[0].device->inflight, 3);
	assert_int_equal(model.rows[0].p99_ns, 1023); /* the end of its bucket */
	TAKE(13, { "a", 1500, 8, 3 });
	assert_true(model.rows[0].iops == 0 && model.rows[0].p99_ns == 0);
}

/* Reads of 1 us before the interval, of 1 ms in it: its quantiles know nothing of the former. */
static void test_quantiles_are_of_the_interval(void **state)
{
	struct sample now = sample(11, &(struct dev){ "a", 1000, 0, 0 }, 1);

	(void)state;
	TAKE(10, { "a", 900, 0, 0 });
	now.devices[0].op[SAMPLE_READ].latency.bucket[histogram_index(1000)] = 900;
	now.devices[0].op[SAMPLE_READ].latency.bucket[histogram_index(1000000)] = 100;
	top_model_take(&model, &now);
	assert_int_equal(histogram_index(model.rows[0].p50_ns), histogram_index(1000000));
}

static void test_counters_that_fell_count_from_zero(void **state)
{
	(void)state;
	TAKE(10, { "a", 1000, 5, 0 });
	TAKE(11, { "a", 30, 1, 0 });
	assert_true(model.rows[0].iops == 30);
	assert_int_equal(model.rows[0].failed, 1);
}

static void test_device_that_came_counts_from_zero(void **state)
{
	(void)state;
	TAKE(10, { "a", 1000, 0, 0 });
	TAKE(11, { "b", 70, 0, 0 }, { "a", 1000, 0, 0 });
	assert_string_equal(order(), "ba");
	assert_true(model.rows[0].iops == 70 && model.rows[1].iops == 0);
}

static void test_lost_ends_the_interval(void **state)
{
	(void)state;
	TAKE(10, { "a", 1000, 0, 0 });
	TAKE(11, { "a", 1100, 0, 0 });
	top_model_lost(&model, "no process serves it");
	assert_has(page(0, 0), "not connected: no process serves it");
	TAKE(20, { "a", 9000, 0, 0 }); /* not 9000 - 1100: a new daemon began at 0 */
	assert_true(model.seconds == 0 && model.rows[0].iops == 0);
	TAKE(21, { "a", 9010, 0, 0 });
	assert_true(model.rows[0].iops == 10);
	assert_int_equal(model.rows[0].history->nr, 2); /* the past stays */
}

static void test_names_are_no_commands(void **state)
{
	json_t *data = parse("{'time_ns':1,'devices':[{'name':'a\\u001b[2J\\u00e9'}]}");
	struct sample s = { 0 };

	(void)state;
	sample_read_stats(&s, data);
	assert_string_equal(s.devices[0].name, "a?[2J??");
	sample_fini(&s);
	json_decref(data);
}

static void test_answers_of_another_version(void **state)
{
	json_t *data = parse("[{'name':1},[],null]"), *wrong = parse("{'devices':[7,{'ops':[]}]}");
	struct sample s = { 0 };
	static struct sample_layers layers;

	(void)state;
	sample_read_stats(&s, wrong);
	sample_read_list(&s, data);
	sample_read_reactors(&s, data, 5);
	assert_int_equal(s.device_nr, 2);
	assert_int_equal(s.reactor_nr, 3);
	assert_true(sample_layers_read(&layers, wrong));
	assert_false(sample_layers_read(&layers, data));
	top_model_take(&model, &s);
	page(24, 80);
	json_decref(data);
	json_decref(wrong);
}

static void test_reactors(void **state)
{
	struct sample before = sample(1, NULL, 0), now = sample(2, NULL, 0);
	json_t *first = parse("[{'name':'data','cpu':3,'turns':100,'cqes':500,'callback_ns':10,"
			      "'kernel_ns':10,'poll_ns':2,'idle_ns':5,'stalls':7}]"),
	       *second = parse("[{'name':'data','cpu':3,'turns':300,'cqes':1300,'callback_ns':40,"
			       "'kernel_ns':25,'poll_ns':7,'idle_ns':55,'stalls':9},{'name':'"
			       "control','cpu':-1}]");

	(void)state;
	sample_read_reactors(&before, first, NS_PER_SEC);
	sample_read_reactors(&now, second, 3 * NS_PER_SEC);
	top_model_take(&model, &before);
	top_model_take(&model, &now);
	assert_has(page(0, 0),
		   "data         3       100         4.0   30.0%   15.0%    5.0%   50.0%       "
		   "2        0            0\n"
		   "control      -         0         0.0    0.0%    0.0%    0.0%    0.0%       "
		   "0        0            0\n");
	json_decref(first);
	json_decref(second);
}

static struct sample_layers *layers_of(const char *name, unsigned long done)
{
	static struct sample_layers layers;
	json_t *data = parse("{'devices':[{'name':'%s','ops':{'write':{'layers':{"
			     "'total':{'sum_ns':%lu,'buckets':[[3000,%lu]]},"
			     "'backend':{'sum_ns':%lu,'buckets':[[2000,%lu]]}}}}}]}",
			     name, done * 3000, done, done * 2000, done);

	assert_true(sample_layers_read(&layers, data));
	json_decref(data);
	return &layers;
}

static void test_layers_of_the_selected_device(void **state)
{
	(void)state;
	TAKE(1, { "a", 0, 0, 0 }, { "b", 0, 0, 0 });
	top_model_take_layers(&model, layers_of("b", 5)); /* nobody wants them any more */
	top_model_take_layers(&model, layers_of("a", 100));
	TAKE(2, { "a", 40, 0, 0 }, { "b", 0, 0, 0 });
	assert_null(top_model_layers(&model));
	top_model_take_layers(&model, layers_of("a", 140));
	assert_non_null(top_model_layers(&model));
	assert_has(page(0, 0), "write             40   3.1us  3.1us              -              -"
			       "   2.0us  2.0us\n");
	press("j"); /* of another device nothing is known */
	assert_null(top_model_layers(&model));
	press("k");
	top_model_take_layers(&model, layers_of("a", 7)); /* made anew */
	assert_int_equal(
		histogram_count(&top_model_layers(&model)->op[SAMPLE_WRITE][QUEUE_LAYER_TOTAL]), 7);
}

/* ---- sorting and selecting ---- */

static void take_three(void)
{
	TAKE(1, { "b", 0, 0, 1 }, { "a", 0, 0, 5 }, { "c", 0, 0, 3 });
	TAKE(2, { "b", 20, 0, 1 }, { "a", 10, 2, 5 }, { "c", 30, 0, 3 });
}

static void test_sorting(void **state)
{
	static const struct {
		enum top_sort sort;
		const char *order;
	} cases[] = {
		{ TOP_SORT_IOPS, "cba" },     { TOP_SORT_BYTES, "cba" },
		{ TOP_SORT_INFLIGHT, "acb" }, { TOP_SORT_P50, "abc" }, /* all the same: by name */
		{ TOP_SORT_P99, "abc" },      { TOP_SORT_ERRORS, "abc" },
		{ TOP_SORT_NAME, "abc" },     { TOP_SORT_IOPS, "cba" },
	};

	(void)state;
	take_three();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(model.sort, cases[i].sort);
		assert_string_equal(order(), cases[i].order);
		press("s");
	}
	model.sort = TOP_SORT_INFLIGHT;
	press("r");
	assert_string_equal(order(), "bca");
	press("r");
	assert_string_equal(order(), "acb");
}

static void test_selection_follows_its_device(void **state)
{
	(void)state;
	take_three();
	assert_string_equal(model.selected, "a"); /* the first when nothing was known */
	assert_int_equal(model.selected_idx, 2);
	press("j"); /* nothing is below */
	assert_string_equal(model.selected, "a");
	press("k");
	assert_string_equal(model.selected, "b");
	TAKE(3, { "b", 2000, 0, 1 }, { "a", 10, 2, 5 }, { "c", 30, 0, 3 });
	assert_string_equal(model.selected, "b");
	assert_int_equal(model.selected_idx, 0);
	press("$");
	assert_string_equal(model.selected, "c");
	press("^>");
	assert_string_equal(model.selected, "c");
	press("<");
	assert_string_equal(model.selected, "b");
}

static void test_selected_device_vanishes_from_the_list(void **state)
{
	(void)state;
	take_three(); /* c b a, a is selected */
	press("k");
	TAKE(3, { "a", 10, 2, 5 }, { "c", 31, 0, 3 });
	assert_string_equal(model.selected, "a"); /* in its place */
	TAKE(4, { "c", 31, 0, 3 });
	assert_string_equal(model.selected, "c"); /* the last there is */
	struct sample none = sample(5, NULL, 0);
	top_model_take(&model, &none);
	assert_has(page(24, 80), "no devices");
	press("jk\n$^s");
	assert_has(page(24, 80), "there is no device \"c\"");
}

static void test_page_of_a_device_waits_for_it(void **state)
{
	(void)state;
	take_three();
	press("\n");
	assert_has(page(24, 80), "a  live");
	TAKE(3, { "b", 20, 0, 1 });
	assert_has(page(24, 80), "there is no device \"a\"");
	assert_null(top_model_layers(&model));
	TAKE(4, { "b", 20, 0, 1 }, { "a", 50, 0, 0 });
	assert_has(page(24, 80), "a  live    50 IOPS");
	TAKE(5, { "b", 20, 0, 1 });
	press("\b");
	assert_string_equal(model.selected, "b");
}

static void test_opened_by_name(void **state)
{
	(void)state;
	top_model_fini(&model);
	top_model_init(&model, 1, "c");
	assert_has(page(0, 0), "connecting");
	take_three();
	assert_has(page(0, 0), "c  live    30 IOPS  120KiB/s  3 in flight\n");
	assert_has(page(0, 0), "  512ns      30  ####################                         #\n");
}

static void test_other_keys(void **state)
{
	static const char faster[] = "-----------", slower[] = "+++++++++++++";

	(void)state;
	take_three();
	press("+");
	assert_true(model.interval == 2);
	press("--");
	assert_true(model.interval == 0.5);
	press(faster);
	assert_true(model.interval == 0.1);
	press(slower);
	assert_true(model.interval == 300);
	press(" ");
	assert_true(model.paused);
	assert_has(page(24, 80), "paused");
	press(" ?");
	assert_has(page(24, 80), "this help");
	press("\b");
	assert_has(page(24, 80), "DEVICE");
	press("q");
	assert_true(model.quit);
}

/* ---- on a screen ---- */

/* Each line of it, and whether the selected device is to be seen. */
static void check_screen(unsigned rows, unsigned columns)
{
	const char *text = page(rows, columns);
	unsigned lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	assert_int_equal(lines, MAX(rows, 2u));
	if (rows > 3 && !model.drilled)
		assert_true(frame.selected_line < rows - 1);
}

static void test_screens_of_every_size(void **state)
{
	struct dev devs[40] = { 0 };
	char names[40][8];

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		snprintf(names[i], sizeof(names[i]), "dev%02u", i);
		devs[i] = (struct dev){ names[i], i, 0, 0 };
	}
	for (unsigned second = 1; second < 3; second++) {
		struct sample s = sample(second, devs, ARRAY_SIZE(devs));

		top_model_take(&model, &s);
	}
	for (unsigned rows = 1; rows < 60; rows += 3)
		for (unsigned columns = 1; columns < 160; columns += 53) {
			check_screen(rows, columns);
			press("$");
			check_screen(rows, columns);
			press("^");
		}
	press("$\n>>>>");
	check_screen(6, 80);
}

static void test_long_page_scrolls(void **state)
{
	(void)state;
	top_model_fini(&model);
	top_model_init(&model, 1, "c");
	take_three();
	assert_has_not(page(6, 80), "FROM");
	press(">");
	assert_has(page(6, 80), "FROM");
	assert_true(model.scroll < 10); /* not beyond the end */
	press("<");
	assert_has(page(6, 80), "c  live");
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_first_sample_measures_nothing),
		TEST(test_rates_are_of_the_interval),
		TEST(test_quantiles_are_of_the_interval),
		TEST(test_counters_that_fell_count_from_zero),
		TEST(test_device_that_came_counts_from_zero),
		TEST(test_lost_ends_the_interval),
		TEST(test_names_are_no_commands),
		TEST(test_answers_of_another_version),
		TEST(test_reactors),
		TEST(test_layers_of_the_selected_device),
		TEST(test_sorting),
		TEST(test_selection_follows_its_device),
		TEST(test_selected_device_vanishes_from_the_list),
		TEST(test_page_of_a_device_waits_for_it),
		TEST(test_opened_by_name),
		TEST(test_other_keys),
		TEST(test_screens_of_every_size),
		TEST(test_long_page_scrolls),
	};

	return cmocka_run_group_tests_name("top", tests, NULL, NULL);
}
