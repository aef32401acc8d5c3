/* printable: hostile bytes as letters, escapes and cuts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/printable.h"
#include "base/util.h"

static const char *shown(const char *text, size_t bytes)
{
	static char buf[256];

	return printable(buf, sizeof(buf), text, bytes);
}

static void check_shown(const char *text, const char *wanted)
{
	assert_string_equal(shown(text, strlen(text)), wanted);
}

/* Straight from the definition: whether code is a letter, and its bytes. */
static size_t encode(uint32_t code, char out[static 4])
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 63));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 63));
		out[2] = (char)(0x80 | (code & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 63));
	out[2] = (char)(0x80 | (code >> 6 & 63));
	out[3] = (char)(0x80 | (code & 63));
	return 4;
}

/* All there are, and what comes after the last one. */
static void test_letters(void **state)
{
	char text[4];
	uint32_t got;

	(void)state;
	for (uint32_t code = 0; code < 0x120000; code++) {
		bool is_letter = code < 0xd800 || (code > 0xdfff && code <= 0x10ffff);
		size_t bytes = encode(code, text);

		assert_int_equal(utf8_letter(text, bytes, &got), is_letter ? bytes : 0);
		if (is_letter)
			assert_int_equal(got, code);
	}
	assert_int_equal(utf8_letter("", 0, &got), 0);
}

/* The same letter in more bytes than it needs, and bytes that no letter has. */
static void test_no_letters(void **state)
{
	static const char *const none[] = {
		"\xc0\x80",
		"\xc0\xaf",
		"\xc1\xbf",
		"\xe0\x80\xaf",
		"\xe0\x9f\xbf",
		"\x80",
		"\xbf",
		"\xf0\x80\x80\xaf",
		"\xfe",
		"\xf0\x8f\xbf\xbf",
		"\xff",
		"\xed\xa0\x80",
		"\xed\xbf\xbf",
		"\xf5\x80\x80\x80",
		"\xf4\x90\x80\x80",
		"\xf8\x88\x80\x80\x80",
		"\xc3(",
		"\xe6\xbc(",
		"\xf0\x9f\x98(",
	};
	uint32_t code;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		assert_int_equal(utf8_letter(none[i], strlen(none[i]), &code), 0);
	check_shown("\xc0\xaf", "\\xc0\\xaf");
	check_shown("\xe0\x80\xaf!", "\\xe0\\x80\\xaf!");
	check_shown("\xed\xa0\x80", "\\xed\\xa0\\x80");
	check_shown("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
	check_shown("/etc/\xffshadow", "/etc/\\xffshadow");
	check_shown("\xc3(\xe6\xbc(", "\\xc3(\\xe6\\xbc(");
}

static void test_controls(void **state)
{
	static const char *const turns[] = { "\\u061c", "\\u200e", "\\u200f", "\\u2028", "\\u2029",
					     "\\u202a", "\\u202b", "\\u202c", "\\u202d", "\\u202e",
					     "\\u2066", "\\u2067", "\\u2068", "\\u2069" };
	char text[4], wanted[8];

	(void)state;
	check_shown("a\x1b]0;owned\x07\n\t\r\x7f~", "a\\x1b]0;owned\\x07\\x0a\\x09\\x0d\\x7f~");
	assert_string_equal(shown("a\0b", 3), "a\\x00b");
	for (uint32_t code = 0x80; code < 0xa0; code++) {
		snprintf(wanted, sizeof(wanted), "\\u%04x", code);
		assert_string_equal(shown(text, encode(code, text)), wanted);
	}
	for (size_t i = 0; i < ARRAY_SIZE(turns); i++) {
		unsigned code;

		assert_int_equal(sscanf(turns[i], "\\u%x", &code), 1);
		assert_string_equal(shown(text, encode(code, text)), turns[i]);
	}
	/* Their neighbours, and letters of any width. */
	check_shown("\xc2\xa0\xd8\x9b\xe2\x80\x8d\xe2\x80\x90\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5",
		    "\xc2\xa0\xd8\x9b\xe2\x80\x8d\xe2\x80\x90\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5");
	check_shown("\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80", "\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80");
}

/* "aä漢😀b" up to each byte of it: whole letters, and "..." for the one that was cut. */
static void test_cut_at_each_byte(void **state)
{
	static const char text[] = "a\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80"
				   "b";
	static const size_t ends[] = { 0, 1, 3, 6, 10, 11 };
	char wanted[32];

	(void)state;
	for (size_t bytes = 0, end = 0; bytes < sizeof(text); bytes++) {
		if (end + 1 < ARRAY_SIZE(ends) && ends[end + 1] <= bytes)
			end++;
		assert_int_equal(utf8_whole(text, bytes), ends[end]);
		assert_int_equal(utf8_fit(text, bytes), ends[end]);
		snprintf(wanted, bytes + 1, "%s", text);
		utf8_end_whole(wanted);
		assert_int_equal(strlen(wanted), ends[end]);
		snprintf(wanted, sizeof(wanted), "%.*s%s", (int)ends[end], text,
			 ends[end] < bytes ? "..." : "");
		assert_string_equal(shown(text, bytes), wanted);
	}
	assert_int_equal(utf8_fit(text, 1000), sizeof(text) - 1);
	/* What never was a letter is not taken for one that was cut. */
	assert_int_equal(utf8_whole("a\x80", 2), 2);
	assert_int_equal(utf8_whole("a\xff", 2), 2);
	assert_int_equal(utf8_whole("\xe0\x80", 2), 2);
	assert_int_equal(utf8_fit("a\xc3", 10), 2);
}

/* A buffer of any size has whole letters and whole escapes, and says that there was more. */
static void test_small_buffers(void **state)
{
	static const char text[] = "\xe6\xbc\xa2"
				   "1\x1b"
				   "2\xe2\x80\xae";
	static const char *const wanted[] = {
		[4] = "...",
		[5] = "...",
		[6] = "...",
		[7] = "\xe6\xbc\xa2...",
		[8] = "\xe6\xbc\xa2"
		      "1...",
		[11] = "\xe6\xbc\xa2"
		       "1...",
		[12] = "\xe6\xbc\xa2"
		       "1\\x1b...",
		[13] = "\xe6\xbc\xa2"
		       "1\\x1b"
		       "2...",
		[15] = "\xe6\xbc\xa2"
		       "1\\x1b"
		       "2...",
		[16] = "\xe6\xbc\xa2"
		       "1\\x1b"
		       "2\\u202e",
	};
	char buf[16];

	(void)state;
	for (size_t bytes = 4; bytes <= sizeof(buf); bytes++)
		if (wanted[bytes])
			assert_string_equal(printable(buf, bytes, text, sizeof(text) - 1),
					    wanted[bytes]);
	assert_string_equal(printable(buf, 8, "", 0), "");
	assert_string_equal(printable(buf, 8, "1234567", 7), "1234567");
	assert_string_equal(printable(buf, 8, "12345678", 8), "1234...");
}

/* Of any bytes: printable text, which stays as it is the second time. */
static void test_any_bytes(void **state)
{
	char text[64], once[sizeof(text) * PRINTABLE_GROWTH + 1], twice[sizeof(once)];
	uint32_t seed = 1, code;

	(void)state;
	for (unsigned round = 0; round < 20000; round++) {
		for (size_t i = 0; i < sizeof(text); i++) {
			seed = seed * 1664525u + 1013904223u;
			text[i] = (char)(seed >> 24 | (round & 1 ? 0x80 : 0));
		}
		printable(once, sizeof(once), text, sizeof(text));
		for (size_t at = 0, nr; at < strlen(once); at += nr) {
			nr = utf8_letter(once + at, strlen(once) - at, &code);
			assert_true(nr > 0 && code >= 0x20 && code != 0x7f);
			assert_false(code >= 0x80 && code < 0xa0);
		}
		assert_string_equal(printable(twice, sizeof(twice), once, strlen(once)), once);
	}
}

static void test_repair(void **state)
{
	char text[] = "a\xff\xc3\xa4\xe6\xbc";

	(void)state;
	utf8_repair(text);
	assert_string_equal(text, "a?\xc3\xa4??");
	utf8_repair(text);
	assert_string_equal(text, "a?\xc3\xa4??");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_letters),	  cmocka_unit_test(test_no_letters),
		cmocka_unit_test(test_controls),  cmocka_unit_test(test_cut_at_each_byte),
		cmocka_unit_test(test_repair),	  cmocka_unit_test(test_small_buffers),
		cmocka_unit_test(test_any_bytes),
	};

	return cmocka_run_group_tests_name("printable", tests, NULL, NULL);
}
