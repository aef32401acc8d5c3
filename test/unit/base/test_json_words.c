/* json_words: a JSON string of whatever bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/wire/json_words.h"

static void check_words(json_t *words, const char *wanted)
{
	json_t *parsed;
	char *text;

	assert_string_equal(json_string_value(words), wanted);
	/* It goes out and comes back. */
	text = json_dumps(words, JSON_ENCODE_ANY);
	parsed = json_loads(text, JSON_DECODE_ANY, NULL);
	assert_string_equal(json_string_value(parsed), wanted);
	json_decref(parsed);
	free(text);
	json_decref(words);
}

static void test_exact(void **state)
{
	static const char text[] =
		"a\x1b[31m\a\n\x7f\xc2\x9b\xe2\x80\xae\xe6\xbc\xa2\xf0\x9f\x98\x80\\x";

	(void)state;
	check_words(json_words(""), "");
	check_words(json_words(text), text);
}

static void test_no_utf8(void **state)
{
	(void)state;
	check_words(json_words("/etc/\xff\x1b[31mshadow"), "/etc/\\xff\x1b[31mshadow");
	check_words(json_words("\xed\xa0\x80"), "\\xed\\xa0\\x80");
	check_words(json_words("\xc0\x80\xf8"), "\\xc0\\x80\\xf8");
	check_words(json_words("\xe6\xbc(\xa2"), "\\xe6\\xbc(\\xa2");
}

static void test_cut(void **state)
{
	(void)state;
	check_words(json_words("ab\xe6"), "ab...");
	check_words(json_words("ab\xe6\xbc"), "ab...");
	check_words(json_words_bytes("ab\xe6\xbc\xa2", 4), "ab...");
	check_words(json_words_bytes("ab\xe6\xbc\xa2", 5), "ab\xe6\xbc\xa2");
	check_words(json_words_bytes("abc", 0), "");
}

/* The longest that they can become. */
static void test_all_bytes_bad(void **state)
{
	char bad[1000], wanted[4 * sizeof(bad) + 1];

	(void)state;
	memset(bad, 0xff, sizeof(bad));
	for (size_t i = 0; i < sizeof(bad); i++)
		memcpy(wanted + 4 * i, "\\xff", 5);
	check_words(json_words_bytes(bad, sizeof(bad)), wanted);
}

static void test_format(void **state)
{
	(void)state;
	check_words(json_words_format("%s: %d %s", "a", 7, "\xff\xe6\xbc"), "a: 7 \\xff...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),	      cmocka_unit_test(test_no_utf8),
		cmocka_unit_test(test_cut),	      cmocka_unit_test(test_format),
		cmocka_unit_test(test_all_bytes_bad),
	};

	return cmocka_run_group_tests_name("json_words", tests, NULL, NULL);
}
