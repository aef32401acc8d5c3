/* config/option.h: sets of names, ratios, and maps with a table of their own. */
#include "test/rig/config_check.h"

#include <stdio.h>

struct sample {
	uint64_t ops;
	double rate;
};

static const char *const names[] = { "read", "write", "flush", NULL };

static const struct option table[] = {
	{ .name = "op",
	  .type = OPTION_SET,
	  .offset = offsetof(struct sample, ops),
	  .values = names,
	  .def = "[read, flush]",
	  .help = "Which." },
	{ .name = "rate",
	  .type = OPTION_RATIO,
	  .offset = offsetof(struct sample, rate),
	  .def = "50%" },
	OPTION_END,
};

/* What one option says; NULL: it is accepted. The sample keeps nothing that is to be freed. */
static struct sample parse(const char *option, const char *value, const char *message)
{
	char text[200], expected[300] = "";
	struct config_check c;
	struct sample s;
	int ret;

	snprintf(text, sizeof(text), "%s: %s\n", option, value);
	if (message)
		snprintf(expected, sizeof(expected), "f:1:%s\n", message);
	check_good(&c, text);
	ret = option_parse(table, c.doc.root, NULL, &s, sizeof(s), &c.errors);
	check_errors(&c.errors, expected);
	assert_int_equal(ret, message ? -EINVAL : 0);
	check_fini(&c);
	return s;
}

static void test_set(void **state)
{
	(void)state;
	assert_int_equal(parse("op", "", NULL).ops, 5);
	assert_int_equal(parse("op", "write", NULL).ops, 2);
	assert_int_equal(parse("op", "[write]", NULL).ops, 2);
	assert_int_equal(parse("op", "[flush, write, flush]", NULL).ops, 6);
	assert_int_equal(parse("op", "read,write", NULL).ops, 3);
	assert_int_equal(parse("op", "' read , flush '", NULL).ops, 5);
}

static void test_set_refused(void **state)
{
	(void)state;
	parse("op", "wirte",
	      "5: op: \"wirte\" is not one of read, write, flush (did you mean \"write\"?)");
	parse("op", "[read, flsh, {}]",
	      "12: op: \"flsh\" is not one of read, write, flush (did you mean \"flush\"?)\n"
	      "f:1:18: op: expected a name");
	parse("op", "[]", "5: op: the list is empty");
	parse("op", "{}", "5: op: expected names, not a map");
	parse("op", "read,", "5: op: \"\" is not one of read, write, flush");
	parse("op", "read write", "5: op: \"read write\" is not one of read, write, flush");
	/* A wrong value leaves the default. */
	assert_int_equal(parse("op", "x", "5: op: \"x\" is not one of read, write, flush").ops, 5);
}

static void test_ratio(void **state)
{
	(void)state;
	assert_true(parse("rate", "", NULL).rate == 0.5);
	assert_true(parse("rate", "0", NULL).rate == 0);
	assert_true(parse("rate", "1", NULL).rate == 1);
	assert_true(parse("rate", "100%", NULL).rate == 1);
	assert_true(parse("rate", "0.25", NULL).rate == 0.25);
	assert_true(parse("rate", "25%", NULL).rate == 0.25);
	assert_true(parse("rate", ".125", NULL).rate == 0.125);
	assert_true(parse("rate", "1e-3", NULL).rate == 1e-3);
}

static void test_ratio_refused(void **state)
{
	static const char *const wrong[] = { "x",   "-0.5", "0x1",   "nan", "inf", "e%",
					     "1%%", "1 %",  "0.5.1", "''",  "1e",  "50 %" };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *shown = strcmp(wrong[i], "''") == 0 ? "" : wrong[i];
		char message[100];

		snprintf(message, sizeof(message),
			 "7: rate: \"%s\" is not a ratio (examples: 0.25, 25%%)", shown);
		parse("rate", wrong[i], message);
	}
	parse("rate", "1.01", "7: rate: 1.01 is above the maximum 1 (100%)");
	parse("rate", "101%", "7: rate: 101% is above the maximum 1 (100%)");
	parse("rate", "[1]", "7: rate: expected a number, not a list");
}

static void test_equal(void **state)
{
	struct sample a = parse("op", "read", NULL), b = parse("op", "[read]", NULL);

	(void)state;
	assert_true(option_equal(table, &a, &b));
	b.ops = 2;
	assert_false(option_equal(table, &a, &b));
	b = a;
	b.rate = 0.25;
	assert_false(option_equal(table, &a, &b));
}

/* ---- maps ---- */

struct inner {
	char *word;
	uint64_t n;
};

struct outer {
	struct inner *inner;
	uint64_t n;
};

static const struct option inner_table[] = {
	{ .name = "word", .type = OPTION_STRING, .offset = offsetof(struct inner, word) },
	{ .name = "n", .type = OPTION_UINT, .offset = offsetof(struct inner, n), .def = "7" },
	OPTION_END,
};

static const struct option outer_table[] = {
	{ .name = "in",
	  .type = OPTION_MAP,
	  .offset = offsetof(struct outer, inner),
	  .table = inner_table,
	  .table_bytes = sizeof(struct inner),
	  .help = "What is in it." },
	{ .name = "n", .type = OPTION_UINT, .offset = offsetof(struct outer, n) },
	OPTION_END,
};

/* errors "": it is accepted. For option_free. */
static struct outer parse_map(const char *text, const char *errors)
{
	struct config_check c;
	struct outer o;
	int ret;

	check_good(&c, text);
	ret = option_parse(outer_table, c.doc.root, NULL, &o, sizeof(o), &c.errors);
	check_errors(&c.errors, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	check_fini(&c);
	return o;
}

static void test_map(void **state)
{
	struct outer o = parse_map("{in: {word: x}, n: 3}", "");

	(void)state;
	assert_string_equal(o.inner->word, "x");
	assert_int_equal(o.inner->n, 7);
	assert_int_equal(o.n, 3);
	option_free(outer_table, &o);
	assert_null(o.inner);
	o = parse_map("{in: {}}", "");
	assert_null(o.inner->word);
	assert_int_equal(o.inner->n, 7);
	option_free(outer_table, &o);
	assert_null(parse_map("{n: 3}", "").inner);
	assert_null(parse_map("{in: }", "").inner);
}

static void test_map_refused(void **state)
{
	(void)state;
	assert_null(parse_map("{in: {wrod: x, n: y}}",
			      "f:1:7: unknown key \"wrod\" (did you mean \"word\"?)\n"
			      "f:1:19: n: \"y\" is not a number (examples: 128, 0x80)\n")
			    .inner);
	assert_null(parse_map("{in: x}", "f:1:6: in: expected a map, not a text\n").inner);
	assert_null(parse_map("{in: [x]}", "f:1:6: in: expected a map, not a list\n").inner);
}

static void test_map_equal(void **state)
{
	static const char *const texts[] = { "{n: 0}", "{in: {}}", "{in: {word: x}}",
					     "{in: {n: 8}}" };
	const unsigned nr = sizeof(texts) / sizeof(texts[0]);

	(void)state;
	for (unsigned i = 0; i < nr * nr; i++) {
		struct outer a = parse_map(texts[i / nr], ""), b = parse_map(texts[i % nr], "");

		assert_int_equal(option_equal(outer_table, &a, &b), i / nr == i % nr);
		option_free(outer_table, &a);
		option_free(outer_table, &b);
	}
}

/* Another value takes the place of the first; a wrong one leaves it. */
static void test_map_key_value(void **state)
{
	struct outer o = { 0 };
	struct config_errors e;
	struct config_pos pos = { 0 };

	(void)state;
	config_errors_init(&e, "f");
	assert_int_equal(option_set(outer_table, "in", "{word: a}", pos, &o, &e), 0);
	assert_int_equal(option_set(outer_table, "in", "{word: b}", pos, &o, &e), 0);
	check_errors(&e, "");
	assert_int_equal(option_set(outer_table, "in", "{n: x}", pos, &o, &e), -EINVAL);
	assert_string_equal(o.inner->word, "b");
	config_errors_fini(&e);
	option_free(outer_table, &o);
}

static void test_map_manual(void **state)
{
	char text[500] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	option_write_man(outer_table, out);
	fclose(out);
	assert_string_equal(text, ".TP\n\\fBin\\fR (map)\nWhat is in it.\n"
				  ".RS\n.TP\n\\fBword\\fR (text)\n"
				  ".TP\n\\fBn\\fR (number; default 7)\n.RE\n"
				  ".TP\n\\fBn\\fR (number)\n");
}

/* ---- key=value, the manual ---- */

static void test_key_value(void **state)
{
	struct sample s = { 0 };
	struct config_errors e;
	struct config_pos pos = { 0 };

	(void)state;
	config_errors_init(&e, "f");
	assert_int_equal(option_set(table, "op", "read,flush", pos, &s, &e), 0);
	assert_int_equal(s.ops, 5);
	assert_int_equal(option_set(table, "rate", "10%", pos, &s, &e), 0);
	assert_true(s.rate == 0.1);
	check_errors(&e, "");
	config_errors_fini(&e);
}

static void test_manual(void **state)
{
	char text[500] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	option_write_man(table, out);
	fclose(out);
	assert_string_equal(text,
			    ".TP\n\\fBop\\fR (some of read, write, flush; default [read, flush])\n"
			    "Which.\n"
			    ".TP\n\\fBrate\\fR (number, 0 to 1, or percent; default 50%)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),	      cmocka_unit_test(test_set_refused),
		cmocka_unit_test(test_ratio),	      cmocka_unit_test(test_ratio_refused),
		cmocka_unit_test(test_equal),	      cmocka_unit_test(test_key_value),
		cmocka_unit_test(test_manual),	      cmocka_unit_test(test_map),
		cmocka_unit_test(test_map_refused),   cmocka_unit_test(test_map_equal),
		cmocka_unit_test(test_map_key_value), cmocka_unit_test(test_map_manual),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
