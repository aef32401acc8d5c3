/* config/errors.h: order, limits, and what may reach a terminal. */
#include "test/rig/config_check.h"

static struct config_pos at(unsigned line, unsigned column)
{
	return (struct config_pos){ .line = line, .column = column };
}

static void test_sorted_by_position(void **state)
{
	struct config_errors e;

	(void)state;
	config_errors_init(&e, "dir/x.yaml");
	assert_false(config_errors_any(&e));
	check_errors(&e, "");
	config_errors_add(&e, at(10, 2), "d");
	config_errors_add(&e, at(2, 10), "c");
	config_errors_add(&e, at(2, 9), "b%d", 1);
	config_errors_add(&e, at(2, 9), "b0"); /* of one position: in the order they were found */
	config_errors_add(&e, at(0, 0), "a");
	assert_true(config_errors_any(&e));
	check_errors(&e, "dir/x.yaml: a\n"
			 "dir/x.yaml:2:9: b1\n"
			 "dir/x.yaml:2:9: b0\n"
			 "dir/x.yaml:2:10: c\n"
			 "dir/x.yaml:10:2: d\n");
	config_errors_fini(&e);
}

static void test_several_files(void **state)
{
	struct config_errors e;

	(void)state;
	config_errors_init(&e, "first");
	config_errors_enter(&e, "second");
	config_errors_add(&e, at(1, 1), "x");
	config_errors_enter(&e, "third");
	config_errors_add(&e, at(1, 1), "x");
	config_errors_enter(&e, NULL);
	config_errors_add(&e, at(9, 1), "x");
	config_errors_enter(&e, "second");
	config_errors_add(&e, at(1, 1), "x"); /* known */
	config_errors_add(&e, at(0, 0), "y");
	check_errors(&e, "first:9:1: x\nsecond: y\nsecond:1:1: x\nthird:1:1: x\n");
	config_errors_fini(&e);
}

static void test_told_once(void **state)
{
	struct config_errors e;

	(void)state;
	config_errors_init(&e, "f");
	config_errors_add(&e, at(1, 1), "x");
	config_errors_add(&e, at(1, 1), "x");
	config_errors_add(&e, at(1, 2), "x");
	config_errors_add(&e, at(2, 1), "x");
	config_errors_add(&e, at(2, 1), "x");
	config_errors_add(&e, at(2, 1), "y");
	check_errors(&e, "f:1:1: x\nf:1:2: x\nf:2:1: x\nf:2:1: y\n");
	config_errors_fini(&e);
	config_errors_fini(&e); /* again is harmless */
}

static void test_kept_up_to_a_number(void **state)
{
	struct config_errors e;
	char *text;

	(void)state;
	config_errors_init(&e, "f");
	for (unsigned i = 1; i <= CONFIG_ERRORS_MAX + 7; i++)
		config_errors_add(&e, at(i, 1), "x");
	assert_int_equal(e.nr, CONFIG_ERRORS_MAX);
	assert_int_equal(e.dropped_nr, 7);
	text = config_errors_text(&e);
	assert_non_null(strstr(text, "f:100:1: x\nf: 7 more errors are not shown\n"));
	free(text);
	config_errors_fini(&e);
}

static void test_nothing_for_the_terminal(void **state)
{
	struct config_errors e;

	(void)state;
	config_errors_init(&e, "f");
	config_errors_add(&e, at(1, 1), "%s", "");
	config_errors_add(&e, at(1, 2), "a\x1b[31m\n\r\x1f\x7f ~");
	config_errors_add(&e, at(1, 3), "\xc2\x80\xc2\x9f\xc2\xa0\xc3\x80\xc3\xa9");
	check_errors(&e, "f:1:1: \n"
			 "f:1:2: a\\x1b[31m\\x0a\\x0d\\x1f\\x7f ~\n"
			 "f:1:3: \\u0080\\u009f\xc2\xa0\xc3\x80\xc3\xa9\n");
	config_errors_fini(&e);
}

/* Nor from the name of a file, of a folder that others may write. */
static void test_hostile_file_name(void **state)
{
	struct config_errors e;

	(void)state;
	config_errors_init(&e, "a\n\x1b[31m\xff.yaml");
	config_errors_add(&e, at(1, 1), "x");
	check_errors(&e, "a\\x0a\\x1b[31m\\xff.yaml:1:1: x\n");
	config_errors_fini(&e);
}

/* The longest message that fits is whole; one byte more and it is cut. */
static void test_message_length(void **state)
{
	char text[514], expected[600];

	(void)state;
	memset(text, 'x', sizeof(text));
	for (size_t len = 511; len <= 512; len++) {
		struct config_errors e;

		text[len] = '\0';
		config_errors_init(&e, "f");
		config_errors_add(&e, at(1, 1), "%s", text);
		snprintf(expected, sizeof(expected), "f:1:1: %s\n", text);
		if (len == 512)
			strcpy(expected + strlen("f:1:1: ") + 508, "...\n");
		check_errors(&e, expected);
		config_errors_fini(&e);
		text[len] = 'x';
	}
}

static void test_long_message_is_cut_between_characters(void **state)
{
	char text[1200];

	(void)state;
	for (unsigned shift = 0; shift < 2; shift++) {
		struct config_errors e;
		size_t len;

		memset(text, 'x', shift);
		for (size_t i = shift; i + 2 < sizeof(text); i += 2)
			memcpy(text + i, "\xc3\xa9", 3);
		config_errors_init(&e, "f");
		config_errors_add(&e, at(1, 1), "%s", text);
		len = strlen(e.list[0].message);
		assert_in_range(len, 500, 511);
		assert_string_equal(e.list[0].message + len - 5, "\xc3\xa9...");
		config_errors_fini(&e);
	}
}

static void test_excerpt(void **state)
{
	char buf[CONFIG_EXCERPT_BYTES], text[200];

	(void)state;
	assert_string_equal(config_excerpt("", buf), "");
	memset(text, 'x', sizeof(text));
	text[CONFIG_EXCERPT_BYTES - 1] = '\0';
	assert_string_equal(config_excerpt(text, buf), text); /* the longest that fits */
	text[CONFIG_EXCERPT_BYTES - 1] = 'x';
	text[CONFIG_EXCERPT_BYTES] = '\0';
	memset(buf, 'y', sizeof(buf));
	config_excerpt(text, buf);
	assert_int_equal(strlen(buf), CONFIG_EXCERPT_BYTES - 1);
	assert_string_equal(buf + CONFIG_EXCERPT_BYTES - 6, "xx...");
	/* The cut falls on the second byte of a character. */
	memcpy(text + CONFIG_EXCERPT_BYTES - 5, "\xc3\xa9", 2);
	config_excerpt(text, buf);
	assert_string_equal(buf + CONFIG_EXCERPT_BYTES - 6, "x...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sorted_by_position),
		cmocka_unit_test(test_several_files),
		cmocka_unit_test(test_told_once),
		cmocka_unit_test(test_kept_up_to_a_number),
		cmocka_unit_test(test_nothing_for_the_terminal),
		cmocka_unit_test(test_hostile_file_name),
		cmocka_unit_test(test_message_length),
		cmocka_unit_test(test_long_message_is_cut_between_characters),
		cmocka_unit_test(test_excerpt),
	};

	return cmocka_run_group_tests_name("config_errors", tests, NULL, NULL);
}
