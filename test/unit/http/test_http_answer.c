/* Headers of answers: what is taken from them, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "net/http/http_answer.h"

/* 2026-11-25 12:00:00 GMT */
#define NOW_S 1795608000

/* Lines end with \n. Returns what the first bad line says, or 0. */
static int read_lines(struct http_answer *a, const char *text)
{
	http_answer_begin(a);
	while (*text) {
		size_t bytes = strcspn(text, "\n");
		int ret = http_answer_line(a, text, bytes, NOW_S);

		if (ret < 0)
			return ret;
		text += bytes + 1;
	}
	return 0;
}

static void test_whole(void **state)
{
	struct http_answer a;

	(void)state;
	assert_int_equal(
		read_lines(
			&a,
			"HTTP/1.1 206 Partial Content\r\nCONTENT-range:  bytes 512-1023/4096 \r\n"
			"content-Length:512\r\nETag: \"a b\"\r\n"
			"Last-Modified: Mon, 01 Jun 2026 00:00:00 GMT\r\n"),
		0);
	assert_false(a.is_whole);
	assert_int_equal(http_answer_line(&a, "\r\n", 2, NOW_S), 0);
	assert_true(a.is_whole);
	assert_int_equal(a.status, 206);
	assert_true(a.has_range);
	assert_int_equal(a.first, 512);
	assert_int_equal(a.last, 1023);
	assert_int_equal(a.total, 4096);
	assert_int_equal(a.content_bytes, 512);
	assert_string_equal(a.etag, "\"a b\"");
	assert_string_equal(a.last_modified, "Mon, 01 Jun 2026 00:00:00 GMT");
	assert_false(a.is_encoded);
	assert_int_equal(a.retry_after_ns, 0);
}

/* An answer of 1xx is none; what it said does not count. */
static void test_informational(void **state)
{
	struct http_answer a;

	(void)state;
	assert_int_equal(read_lines(&a, "HTTP/1.1 103 Early Hints\r\nETag: \"old\"\r\n\r\n"), 0);
	assert_false(a.is_whole);
	assert_int_equal(
		read_lines(&a, "HTTP/1.1 103 x\r\nETag: \"old\"\r\n\r\nHTTP/2 503 \r\n\r\n"), 0);
	assert_true(a.is_whole);
	assert_int_equal(a.status, 503);
	assert_string_equal(a.etag, "");
	assert_int_equal(a.content_bytes, HTTP_UNKNOWN);
}

static void test_refused(void **state)
{
	static const char *const line[] = {
		"HTTP/1.1",
		"HTTP/1.1 abc",
		"HTTP/1.1 99 x",
		"HTTP/2 -200",
		"HTTP/1.1 206x 9",
		"Content-Length: ",
		"Content-Length: -1",
		"Content-Length: 12x",
		"Content-Length: 99999999999999999999",
		"Content-Range: 0-1/2",
		"Content-Range: bytes 5-4/10",
		"Content-Range: bytes 0-9/9",
		"Content-Range: bytes 0-9",
		"Content-Range: bytes 0-9/10 x",
		"Content-Range: bytes -9/10",
		"Content-Range: bytes 0-99999999999999999999/*",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(line); i++) {
		struct http_answer a;

		http_answer_begin(&a);
		if (http_answer_line(&a, line[i], strlen(line[i]), NOW_S) == 0)
			fail_msg("taken: %s", line[i]);
	}
}

static uint64_t retry_after_s(const char *value)
{
	struct http_answer a;
	char line[100];

	http_answer_begin(&a);
	snprintf(line, sizeof(line), "Retry-After: %s", value);
	assert_int_equal(http_answer_line(&a, line, strlen(line), NOW_S), 0);
	return a.retry_after_ns / NS_PER_SEC;
}

static void test_date(void **state)
{
	static const char good[] = "DATE: Wed, 25 Nov 2026 12:00:30 GMT";
	static const char bad[] = "Date: yesterday";
	struct http_answer a;

	(void)state;
	http_answer_begin(&a);
	assert_false(a.has_date);
	http_answer_line(&a, good, strlen(good), NOW_S + 90);
	assert_true(a.has_date);
	assert_int_equal(a.ahead_s, 60);
	http_answer_line(&a, good, strlen(good), NOW_S - 30);
	assert_int_equal(a.ahead_s, -60);
	http_answer_line(&a, bad, strlen(bad), NOW_S);
	assert_false(a.has_date);
}

static void test_retry_after(void **state)
{
	(void)state;
	assert_int_equal(retry_after_s("7"), 7);
	assert_int_equal(retry_after_s("86400"), 3600);
	assert_int_equal(retry_after_s("Wed, 25 Nov 2026 12:00:30 GMT"), 30);
	assert_int_equal(retry_after_s("Wed, 25 Nov 2026 11:00:30 GMT"), 0);
	assert_int_equal(retry_after_s("soon"), 0);
	assert_int_equal(retry_after_s("-3"), 0);
	assert_int_equal(retry_after_s(""), 0);
}

/* Of unknown size, of a range that could not be. */
static void test_odd(void **state)
{
	struct http_answer a;

	(void)state;
	assert_int_equal(read_lines(&a, "HTTP/1.1 206 x\nContent-Range: bytes 0-0/*\n"), 0);
	assert_true(a.has_range);
	assert_int_equal(a.total, HTTP_UNKNOWN);
	assert_int_equal(read_lines(&a, "HTTP/1.1 416 x\nContent-Range: bytes */100\nno header\n"),
			 0);
	assert_false(a.has_range);
	assert_int_equal(read_lines(&a, "Content-Encoding: gzip\n"), 0);
	assert_true(a.is_encoded);
	assert_int_equal(read_lines(&a, "Content-Encoding: Identity\n"), 0);
	assert_false(a.is_encoded);
}

/* An ETag of so many letters between its quotes, the last one is given. */
static void read_etag(struct http_answer *a, size_t letters, char last)
{
	static char line[1000];

	memset(line, 'x', sizeof(line));
	memcpy(line, "ETag: \"", 7);
	line[7 + letters - 1] = last;
	line[7 + letters] = '"';
	http_answer_begin(a);
	assert_int_equal(http_answer_line(a, line, 8 + letters, NOW_S), 0);
}

/* One that is too long to be kept is not sent back, and told apart from others. */
static void test_long(void **state)
{
	static const char date[] =
		"Last-Modified: Wednesday, the 25th of November 2026 12:00:00 GMT";
	struct http_answer a, b;

	(void)state;
	read_etag(&a, HTTP_ETAG_BYTES - 3, 'a');
	assert_int_equal(strlen(a.etag), HTTP_ETAG_BYTES - 1);
	assert_true(http_etag_is_strong(a.etag) && !http_validator_is_hash(a.etag));
	for (size_t letters = HTTP_ETAG_BYTES - 2; letters < 900; letters += 97) {
		read_etag(&a, letters, 'a');
		assert_true(http_validator_is_hash(a.etag) && !http_etag_is_strong(a.etag));
		read_etag(&b, letters, 'b');
		assert_string_not_equal(a.etag, b.etag);
		read_etag(&b, letters + 1, 'a');
		assert_string_not_equal(a.etag, b.etag);
		read_etag(&b, letters, 'a');
		assert_string_equal(a.etag, b.etag);
	}
	http_answer_begin(&a);
	assert_int_equal(http_answer_line(&a, date, sizeof(date) - 1, NOW_S), 0);
	assert_true(http_validator_is_hash(a.last_modified));
	http_answer_begin(&a);
	assert_int_equal(http_answer_line(&a, "ETag:", 5, NOW_S), 0);
	assert_string_equal(a.etag, "");
}

static void test_strong(void **state)
{
	(void)state;
	assert_false(http_etag_is_strong("#0123456789abcdef of 200 bytes"));
	assert_true(http_etag_is_strong("\"\""));
	assert_true(http_etag_is_strong("\"a\""));
	assert_false(http_etag_is_strong("W/\"a\""));
	assert_false(http_etag_is_strong("\""));
	assert_false(http_etag_is_strong(""));
	assert_false(http_etag_is_strong("a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	cmocka_unit_test(test_informational),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_retry_after),
		cmocka_unit_test(test_date),	cmocka_unit_test(test_odd),
		cmocka_unit_test(test_strong),	cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
