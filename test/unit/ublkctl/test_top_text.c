/* top: sparklines, bars, shades, the past of a device, cells of a frame. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublkctl/top/top_frame.h"
#include "ublkctl/top/top_model.h"
#include "ublkctl/top/top_text.h"

static void test_sparkline(void **state)
{
	const uint64_t values[] = { 0, 1, 100, 200, 283, 400, 282 };
	char text[sizeof(values) / sizeof(values[0]) * TOP_CHAR_BYTES + 1];

	(void)state;
	top_spark(values, ARRAY_SIZE(values), true, text);
	assert_string_equal(text, " ▁▅▇██▇");
	top_spark(values, ARRAY_SIZE(values), false, text);
	assert_string_equal(text, " .+*##*");
	top_spark(values, 0, true, text);
	assert_string_equal(text, "");
	top_spark((uint64_t[]){ 0, 0 }, 2, true, text);
	assert_string_equal(text, "  ");
}

static void test_bar(void **state)
{
	char text[10 * TOP_CHAR_BYTES + 1];

	(void)state;
	top_bar(0, 100, 10, true, text);
	assert_string_equal(text, "");
	top_bar(1, 1000000, 10, true, text);
	assert_string_equal(text, "▏");
	top_bar(25, 100, 10, true, text);
	assert_string_equal(text, "██▌");
	top_bar(100, 100, 10, true, text);
	assert_string_equal(text, "██████████");
	top_bar(25, 100, 10, false, text);
	assert_string_equal(text, "##");
	top_bar(1, 1000000, 10, false, text);
	assert_string_equal(text, "#");
	top_bar(0, 0, 10, false, text);
	assert_string_equal(text, "");
}

static void test_shade(void **state)
{
	static const struct {
		uint64_t count;
		unsigned shade;
	} cases[] = {
		{ 0, 0 }, { 1, 1 }, { 15, 1 }, { 16, 2 }, { 128, 3 }, { 512, 4 }, { 1024, 4 }
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(top_shade(cases[i].count, 1024), cases[i].shade);
	assert_string_equal(top_shade_char(3, true), "▓");
	assert_string_equal(top_shade_char(3, false), "*");
}

static void test_text_that_fits(void **state)
{
	(void)state;
	assert_int_equal(top_text_columns("a▁b", 5), 3);
	assert_int_equal(top_text_fit("a▁b", 5, 2), 4);
	assert_int_equal(top_text_fit("a▁b", 5, 0), 0);
	assert_int_equal(top_text_fit("a▁b", 5, 9), 5);
}

static void test_history(void **state)
{
	static struct top_history h;
	uint64_t tail[4];

	(void)state;
	memset(h.p99_ns, 0xff, sizeof(h.p99_ns));
	for (h.nr = 0; h.nr < 2; h.nr++)
		h.p99_ns[h.nr] = 10 + h.nr;
	top_history_tail(&h, h.p99_ns, 4, tail);
	assert_memory_equal(tail, ((uint64_t[]){ 0, 0, 10, 11 }), sizeof(tail));
	for (; h.nr < TOP_HISTORY_NR + 2; h.nr++)
		h.p99_ns[h.nr % TOP_HISTORY_NR] = h.nr;
	top_history_tail(&h, h.p99_ns, 2, tail);
	assert_int_equal(tail[0], TOP_HISTORY_NR);
	assert_int_equal(tail[1], TOP_HISTORY_NR + 1);
}

static void test_octaves(void **state)
{
	uint64_t octaves[HISTOGRAM_OCTAVE_NR];
	struct histogram h = { 0 };

	(void)state;
	histogram_record(&h, 0);
	histogram_record(&h, 1);
	histogram_record(&h, 1023);
	histogram_record(&h, 1024);
	histogram_record(&h, UINT64_MAX);
	histogram_octaves(&h, octaves);
	assert_int_equal(octaves[0], 2);
	assert_int_equal(octaves[9], 1);
	assert_int_equal(octaves[10], 1);
	assert_int_equal(octaves[HISTOGRAM_OCTAVE_NR - 1], 1);
}

static void test_cells(void **state)
{
	struct top_frame frame = { 0 };
	char text[64];
	FILE *file = fmemopen(text, sizeof(text), "w");

	(void)state;
	top_frame_clear(&frame);
	top_frame_cell(&frame, TOP_BOLD, -4, "ab");
	top_frame_cell(&frame, TOP_PLAIN, 4, "▁▂");
	top_frame_cell(&frame, TOP_PLAIN, -3, "12345");
	top_frame_cell(&frame, TOP_PLAIN, -3, "%s", "");
	top_frame_line(&frame);
	top_frame_line(&frame);
	top_frame_print(&frame, file);
	fclose(file);
	assert_string_equal(text, "ab      ▁▂  123\n\n");
	top_frame_drop(&frame, 0, 1);
	assert_int_equal(frame.line, 1);
	assert_int_equal(frame.span_nr, 0);
	top_frame_end(&frame, 3);
	assert_int_equal(frame.line, 3);
	top_frame_fini(&frame);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sparkline), cmocka_unit_test(test_bar),
		cmocka_unit_test(test_shade),	  cmocka_unit_test(test_text_that_fits),
		cmocka_unit_test(test_history),	  cmocka_unit_test(test_octaves),
		cmocka_unit_test(test_cells),
	};

	return cmocka_run_group_tests_name("top_text", tests, NULL, NULL);
}
