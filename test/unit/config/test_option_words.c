/* config/option.h: units, what needs a table of its own, did you mean, the manual. */
#include "test/rig/config_check.h"

#include <stdio.h>

#include "base/util.h"

/* ---- units ---- */

static void test_parse_size(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good_sizes[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "1B", 1 },
		{ "1k", KIB(1) },
		{ "1K", KIB(1) },
		{ "1Ki", KIB(1) },
		{ "1kiB", KIB(1) },
		{ "3M", MIB(3) },
		{ "1m", MIB(1) },
		{ "10G", GIB(10) },
		{ "2TiB", TIB(2) },
		{ "1P", TIB(1024) },
		{ "15E", 15ull << 60 },
		{ "18446744073709551615", UINT64_MAX },
		{ "17179869183GiB", GIB(17179869183) },
	};
	static const char *const no_sizes[] = { "",	"k",	"-1",  "+1",  "1KB",
						"1MB2", "1 k",	" 1",  "1 ",  "1e3",
						"0x10", "1.5G", "1kk", "1iB", "1Zi",
						"1kib", "1KIB", "ten", "1b" };
	static const char *const too_large[] = { "16EiB", "18446744073709551616", "17179869184GiB",
						 "99999999999999999999999999k" };
	uint64_t bytes = 42;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(no_sizes); i++)
		assert_int_equal(option_parse_size(no_sizes[i], &bytes), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(too_large); i++)
		assert_int_equal(option_parse_size(too_large[i], &bytes), -ERANGE);
	assert_int_equal(bytes, 42); /* untouched */
	for (size_t i = 0; i < ARRAY_SIZE(good_sizes); i++) {
		assert_int_equal(option_parse_size(good_sizes[i].text, &bytes), 0);
		assert_int_equal(bytes, good_sizes[i].bytes);
	}
}

static void test_parse_duration(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good_durations[] = {
		{ "0", 0 },
		{ "3", 3 * NS_PER_SEC },
		{ "10s", 10 * NS_PER_SEC },
		{ "500ms", 500 * NS_PER_MS },
		{ "100us", 100000 },
		{ "7ns", 7 },
		{ "2m", 120 * NS_PER_SEC },
		{ "1h", 3600 * NS_PER_SEC },
		{ "18446744073709551615ns", UINT64_MAX },
	};
	static const char *const no_durations[] = { "",	  "s",	 "-1s",	 "1.5s",
						    "1S", "1 s", "1sec", "1d" };
	static const char *const too_long[] = { "18446744074s", "18446744073709551616ns",
						"5124096h" };
	uint64_t ns = 42;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(no_durations); i++)
		assert_int_equal(option_parse_duration(no_durations[i], &ns), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(too_long); i++)
		assert_int_equal(option_parse_duration(too_long[i], &ns), -ERANGE);
	assert_int_equal(ns, 42);
	for (size_t i = 0; i < ARRAY_SIZE(good_durations); i++) {
		assert_int_equal(option_parse_duration(good_durations[i].text, &ns), 0);
		assert_int_equal(ns, good_durations[i].ns);
	}
}

static void test_format_size(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 1, "1" },
		{ 1023, "1023" },
		{ KIB(1), "1KiB" },
		{ 4097, "4097" },
		{ KIB(1536), "1536KiB" },
		{ GIB(1), "1GiB" },
		{ TIB(1024), "1PiB" },
		{ 1ull << 63, "8EiB" },
		{ UINT64_MAX, "18446744073709551615" },
	};
	char buf[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t back;

		assert_ptr_equal(option_format_size(cases[i].bytes, buf, sizeof(buf)), buf);
		assert_string_equal(buf, cases[i].text);
		assert_int_equal(option_parse_size(buf, &back), 0);
		assert_int_equal(back, cases[i].bytes);
	}
	assert_string_equal(option_format_size(KIB(1536), buf, 4), "153"); /* cut, terminated */
}

static void test_power_of_two(void **state)
{
	static const struct option options[] = {
		{ .name = "n", .type = OPTION_UINT, .offset = 0, .flags = OPTION_POWER_OF_TWO },
		OPTION_END,
	};
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ "1", "" },
		{ "0x8000000000000000", "" },
		{ "0", "f:1:1: n: 0 is not a power of two (nearest: 1)\n" },
		{ "3", "f:1:1: n: 3 is not a power of two (nearest: 2, 4)\n" },
		{ "0xffffffffffffffff", "f:1:1: n: 0xffffffffffffffff is not a power of two "
					"(nearest: 9223372036854775808)\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct config_errors e;
		uint64_t n = 0;

		config_errors_init(&e, "f");
		option_set(options, "n", cases[i].text, (struct config_pos){ 1, 1 }, &n, &e);
		check_errors(&e, cases[i].message);
		config_errors_fini(&e);
	}
}

static void test_nothing_is_an_empty_map(void **state)
{
	static const struct option optional[] = {
		{ .name = "n", .type = OPTION_UINT, .offset = 0, .def = "3" },
		OPTION_END,
	};
	static const struct option required[] = {
		{ .name = "name", .type = OPTION_UINT, .offset = 0, .flags = OPTION_REQUIRED },
		OPTION_END,
	};
	struct config_check c;
	uint64_t n = 0;

	(void)state;
	check_good(&c, "empty:\nnull: ~\ntext: x\nlist: []\n");
	assert_int_equal(option_parse(optional, NULL, NULL, &n, sizeof(n), &c.errors), 0);
	assert_int_equal(n, 3);
	assert_int_equal(option_parse(optional, yaml_get(c.doc.root, "empty"), NULL, &n, sizeof(n),
				      &c.errors),
			 0);
	check_errors(&c.errors, "");
	assert_int_equal(option_parse(optional, yaml_get(c.doc.root, "text"), NULL, &n, sizeof(n),
				      &c.errors),
			 -EINVAL);
	assert_int_equal(option_parse(optional, yaml_get(c.doc.root, "list"), NULL, &n, sizeof(n),
				      &c.errors),
			 -EINVAL);
	assert_int_equal(option_parse(required, NULL, NULL, &n, sizeof(n), &c.errors), -EINVAL);
	check_errors(&c.errors, "f: \"name\" is missing\n"
				"f:3:7: expected a map of options\n"
				"f:4:7: expected a map of options\n");
	check_fini(&c);
}

/* ---- did you mean, and the manual ---- */

static const char *const types[] = { "mem", "null", "file", NULL };

static const struct option options[] = {
	{ .name = "path",
	  .type = OPTION_STRING,
	  .min = 1,
	  .max = 9,
	  .flags = OPTION_REQUIRED,
	  .help = ".dot - and \\ back\n'quote." },
	{ .name = "sync-mode", .type = OPTION_ENUM, .values = types, .def = "mem" },
	{ .name = "n", .type = OPTION_UINT, .min = 3 },
	{ .name = "io",
	  .type = OPTION_SIZE,
	  .max = MIB(1),
	  .def = "64k",
	  .flags = OPTION_POWER_OF_TWO },
	{ .name = "t", .type = OPTION_DURATION, .min = NS_PER_MS, .max = NS_PER_SEC, .def = "1" },
	{ .name = "b", .type = OPTION_BOOL, .def = "no" },
	{ .name = "s", .type = OPTION_STRING, .def = "" },
	{ .name = "c", .type = OPTION_CPUS, .def = "auto" },
	{ .name = "map", .type = OPTION_NODE },
	{ .name = "secret", .type = OPTION_BOOL, .flags = OPTION_HIDDEN },
	OPTION_END,
};

/* More names than a message shows are cut, and nothing is written past the end. */
static void test_enum_of_many_names(void **state)
{
	static const char name[] = "a_name_of_thirty_two_bytes_here_";
	const char *values[12] = { NULL };
	const struct option with_enum[] = {
		{ .name = "e", .type = OPTION_ENUM, .offset = 0, .values = values },
		OPTION_END,
	};
	struct config_errors e;
	int value = 7;

	(void)state;
	for (size_t nr = 0; nr + 1 < ARRAY_SIZE(values); nr++) {
		values[nr] = name;
		config_errors_init(&e, "f");
		assert_int_equal(
			option_set(with_enum, "e", "x", (struct config_pos){ 1, 1 }, &value, &e),
			-EINVAL);
		assert_in_range(strlen(e.list[0].message), 20, 300);
		config_errors_fini(&e);
	}
	assert_int_equal(value, 7);
}

static void test_nearest(void **state)
{
	static const char *const names[] = { "queues",
					     "depth",
					     "block_size",
					     "id",
					     NULL,
					     "read_only",
					     "a_name_that_is_longer_than_any_option_of_ours" };
	static const struct {
		const char *word, *nearest;
	} cases[] = {
		{ "qeues", "queues" },
		{ "queue", "queues" },
		{ "quesue", "queues" },
		{ "dpeth", "depth" },
		{ "blocksize", "block_size" },
		{ "block-size", "block_size" },
		{ "di", "id" },
		{ "idx", "id" },
		{ "readonly", "read_only" },
		{ "x", NULL },
		{ "", NULL },
		{ "zebra", NULL },
		{ "Depth", "depth" },
		{ "nothing_like_it", NULL },
		{ "a_name_that_is_longer_than_any_option_of_our", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *nearest =
			option_nearest(cases[i].word, names, sizeof(names[0]), ARRAY_SIZE(names));

		if (cases[i].nearest)
			assert_string_equal(nearest ? nearest : "(none)", cases[i].nearest);
		else
			assert_null(nearest);
	}
	assert_string_equal(
		option_nearest("pth", &options[0].name, sizeof(options[0]), ARRAY_SIZE(options)),
		"path");
}

static void test_nearest_at_its_limits(void **state)
{
	/* 32 bytes are compared, 33 are not. */
	static const char *const longest = "x2345678901234567890123456789012";
	static const char *const too_long = "x23456789012345678901234567890123";
	static const char *const alike[] = { "abc1", "abc2" };
	static const char *const short_one = "y";

	(void)state;
	assert_string_equal(option_nearest("12345678901234567890123456789012", &longest, 0, 1),
			    longest);
	assert_null(option_nearest("12345678901234567890123456789012", &too_long, 0, 1));
	assert_null(option_nearest("123456789012345678901234567890123", &longest, 0, 1));
	/* Of two as near, the first. */
	assert_string_equal(option_nearest("abc3", alike, sizeof(alike[0]), 2), "abc1");
	assert_string_equal(option_nearest("abc2", alike, sizeof(alike[0]), 2), "abc2");
	/* One letter for another has nothing in common. */
	assert_null(option_nearest("x", &short_one, 0, 1));
}

static void test_man(void **state)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	(void)state;
	assert_non_null(out);
	option_write_man(options, out);
	fclose(out);
	assert_string_equal(text, ".TP\n\\fBpath\\fR (text, 1 to 9 bytes; required)\n"
				  "\\&.dot \\- and \\e back 'quote.\n"
				  ".TP\n\\fBsync\\-mode\\fR (one of mem, null, file; default mem)\n"
				  ".TP\n\\fBn\\fR (number, at least 3)\n"
				  ".TP\n\\fBio\\fR (size, 0 to 1MiB, a power of two; default 64k)\n"
				  ".TP\n\\fBt\\fR (duration, 1ms to 1s; default 1)\n"
				  ".TP\n\\fBb\\fR (true or false; default no)\n"
				  ".TP\n\\fBs\\fR (text; default empty)\n"
				  ".TP\n\\fBc\\fR (auto, or CPU numbers; default auto)\n"
				  ".TP\n\\fBmap\\fR (map or list)\n");
	free(text);
}

/* A limit that nobody can reach is not printed. */
static void test_man_open_limits(void **state)
{
	static const struct option open_ended[] = {
		{ .name = "size", .type = OPTION_SIZE, .min = 4096, .max = INT64_MAX },
		{ .name = "path", .type = OPTION_STRING, .min = 1 },
		{ .name = "text", .type = OPTION_STRING, .min = 2 },
		OPTION_END,
	};
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	(void)state;
	assert_non_null(out);
	option_write_man(open_ended, out);
	fclose(out);
	assert_string_equal(text, ".TP\n\\fBsize\\fR (size, at least 4KiB)\n"
				  ".TP\n\\fBpath\\fR (text, not empty)\n"
				  ".TP\n\\fBtext\\fR (text, at least 2 bytes)\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_size),
		cmocka_unit_test(test_parse_duration),
		cmocka_unit_test(test_format_size),
		cmocka_unit_test(test_power_of_two),
		cmocka_unit_test(test_nothing_is_an_empty_map),
		cmocka_unit_test(test_enum_of_many_names),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_nearest_at_its_limits),
		cmocka_unit_test(test_man),
		cmocka_unit_test(test_man_open_limits),
	};

	return cmocka_run_group_tests_name("option_words", tests, NULL, NULL);
}
