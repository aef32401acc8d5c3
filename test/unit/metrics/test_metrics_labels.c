/* Metrics: names of any bytes as values of labels, and help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/metrics/metrics_internal.h"

static const char *escaped(const char *text, bool quotes)
{
	static char buf[64];

	return metrics_escape(buf, sizeof(buf), text, quotes);
}

static void test_values(void **state)
{
	(void)state;
	assert_string_equal(escaped("disk-1", true), "disk-1");
	assert_string_equal(escaped("a\"b\\c\nd", true), "a\\\"b\\\\c\\nd");
	assert_string_equal(escaped("a\"b\\c\nd", false), "a\"b\\\\c\\nd");
	/* UTF-8 stays; what is none has the backslash of its escape escaped. */
	assert_string_equal(escaped("\xe6\xbc\xa2\xff.", true), "\xe6\xbc\xa2\\\\xff.");
	assert_string_equal(escaped("a\xe6\xbc", true), "a...");
	assert_string_equal(escaped("a\tb", true), "a\tb");
}

/* What does not fit is left out whole. */
static void test_value_too_long(void **state)
{
	char buf[8];

	(void)state;
	assert_string_equal(metrics_escape(buf, 8, "123456\"", true), "123456");
	assert_string_equal(metrics_escape(buf, 8, "12345\"", true), "12345\\\"");
	assert_string_equal(metrics_escape(buf, 8, "12345\xe6\xbc\xa2", true), "12345");
	assert_string_equal(metrics_escape(buf, 8, "1234\xe6\xbc\xa2", true), "1234\xe6\xbc\xa2");
}

static void test_nodes(void **state)
{
	const struct snapshot s = { .name = "a\"", .label = "a\\\"" };
	char labels[METRICS_LABELS_BYTES];

	(void)state;
	assert_string_equal(metrics_node_labels(&s, "a\"", labels), "device=\"a\\\"\"");
	assert_string_equal(metrics_node_labels(&s, "a\"/\\b", labels),
			    "device=\"a\\\"\",node=\"a\\\"/\\\\b\"");
}

static char *family(enum metrics_format format, const char *help)
{
	struct writer w = { .format = format };
	char *text = NULL;
	size_t bytes;

	w.out = open_memstream(&text, &bytes);
	metrics_family(&w, "x", "gauge", help);
	fclose(w.out);
	return text;
}

static void test_help(void **state)
{
	char *text = family(METRICS_PROMETHEUS, "a \"b\" \\c\nd");

	(void)state;
	assert_string_equal(text, "# TYPE x gauge\n# HELP x a \"b\" \\\\c\\nd\n");
	free(text);
	text = family(METRICS_OPENMETRICS, "a \"b\" \\c\nd");
	assert_string_equal(text, "# TYPE x gauge\n# HELP x a \\\"b\\\" \\\\c\\nd\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_value_too_long),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests_name("metrics_labels", tests, NULL, NULL);
}
