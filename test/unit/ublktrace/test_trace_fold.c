/* Folded stacks, flame graphs, ways of requests, names by address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublktrace/stacks/fold.h"
#include "ublktrace/stacks/kernel_names.h"

#define ADD(FOLD, COUNT, ...)                                                                      \
	do {                                                                                       \
		const char *const frame_[] = { __VA_ARGS__ };                                      \
		assert_int_equal(fold_add(FOLD, frame_, ARRAY_SIZE(frame_), COUNT), 0);            \
	} while (0)

static char *text_of(const struct fold *f, bool svg)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	if (svg)
		fold_write_svg(f, out, "a <b> & \"c\"");
	else
		fold_write(f, out);
	fclose(out);
	return text;
}

static void test_same_stacks_are_one_line(void **state)
{
	struct fold f = { 0 };
	char *text;

	(void)state;
	ADD(&f, 2, "write", "a", "b");
	ADD(&f, 3, "read", "a", "b");
	ADD(&f, 4, "write", "a", "b");
	ADD(&f, 5, "write", "a");
	fold_sort(&f);
	text = text_of(&f, false);
	assert_string_equal(text, "read;a;b 3\nwrite;a 5\nwrite;a;b 6\n");
	free(text);
	fold_free(&f);
}

static void test_names_cannot_break_lines(void **state)
{
	struct fold f = { 0 };
	char *text;

	(void)state;
	ADD(&f, 1, "a b;c\nd", "e");
	text = text_of(&f, false);
	assert_string_equal(text, "a_b_c_d;e 1\n");
	free(text);
	fold_free(&f);
}

static void test_deep_stacks_are_cut(void **state)
{
	const char *frame[FOLD_FRAMES_MAX + 10];
	struct fold f = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(frame); i++)
		frame[i] = "x";
	assert_int_equal(fold_add(&f, frame, ARRAY_SIZE(frame), 1), 0);
	assert_int_equal(fold_add(&f, frame, ARRAY_SIZE(frame), 1), 0);
	assert_int_equal(f.line_nr, 1);
	assert_int_equal(f.line[0].frame_nr, FOLD_FRAMES_MAX);
	assert_int_equal(f.line[0].count, 2);
	fold_free(&f);
}

static void test_flame_graph(void **state)
{
	struct fold f = { 0 };
	char *text;

	(void)state;
	ADD(&f, 3, "read", "a", "left");
	ADD(&f, 1, "read", "a", "right<&>\"");
	ADD(&f, 4, "write", "a");
	fold_sort(&f);
	text = text_of(&f, true);
	assert_non_null(strstr(text, "<title>read: 4 (50.0%)</title><rect x=\"10.0\""));
	assert_non_null(strstr(text, "<title>left: 3 (37.5%)</title>"));
	assert_non_null(strstr(text, "<title>right&lt;&amp;&gt;&quot;: 1 (12.5%)</title>"));
	assert_non_null(strstr(text, "<title>write: 4 (50.0%)</title><rect x=\"600.0\""));
	assert_non_null(strstr(text, ">a &lt;b&gt; &amp; &quot;c&quot;</text>"));
	assert_null(strstr(text, "right<"));
	assert_string_equal(text + strlen(text) - 7, "</svg>\n");
	free(text);
	fold_free(&f);
}

static void test_empty_flame_graph(void **state)
{
	struct fold f = { 0 };
	char *text = text_of(&f, true);

	(void)state;
	assert_null(strstr(text, "<title>"));
	assert_non_null(strstr(text, "</svg>"));
	free(text);
}

#define PATH(...)                                                                                  \
	fold_issue_path((const char *const[]){ __VA_ARGS__ },                                      \
			ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })))

static void test_ways(void **state)
{
	(void)state;
	assert_string_equal(PATH("blk_mq_submit_bio", "blk_mq_try_issue_directly", "x"), "direct");
	assert_string_equal(PATH("blk_finish_plug", "blk_mq_flush_plug_list.part.0", "x"),
			    "plug list");
	/* a plug list that finds no driver tag ends in a dispatch list */
	assert_string_equal(PATH("blk_mq_flush_plug_list", "blk_mq_dispatch_rq_list"),
			    "dispatch list");
	assert_string_equal(PATH("blk_mq_requeue_work", "blk_mq_dispatch_rq_list"), "requeue");
	assert_string_equal(PATH("worker_thread", "blk_mq_run_work_fn"), "dispatch list");
	assert_string_equal(PATH("blk_mq_submit_bio_not"), "other");
}

static int names_of(const char *text, struct kernel_names **ret_names)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	int err;

	assert_non_null(f);
	err = kernel_names_read(f, ret_names);
	fclose(f);
	return err;
}

static void test_names_by_address(void **state)
{
	struct kernel_names *n;

	(void)state;
	assert_int_equal(names_of("ffff0200 t second\nffff0100 T first\nffff0180 d data\n"
				  "ffff0300 t third\t[ublk_drv]\nnonsense\n",
				  &n),
			 0);
	assert_null(kernel_names_find(n, 0xffff00ff));
	assert_string_equal(kernel_names_find(n, 0xffff0100), "first");
	assert_string_equal(kernel_names_find(n, 0xffff01ff), "first");
	assert_string_equal(kernel_names_find(n, 0xffff0200), "second");
	assert_string_equal(kernel_names_find(n, ~0ull), "third");
	kernel_names_free(n);
}

static void test_hidden_addresses(void **state)
{
	struct kernel_names *n;

	(void)state;
	assert_int_equal(names_of("0000000000000000 T first\n0000000000000000 t second\n", &n),
			 -EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_stacks_are_one_line),
		cmocka_unit_test(test_names_cannot_break_lines),
		cmocka_unit_test(test_deep_stacks_are_cut),
		cmocka_unit_test(test_flame_graph),
		cmocka_unit_test(test_empty_flame_graph),
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_names_by_address),
		cmocka_unit_test(test_hidden_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
