/* Which answers are believed to bring bytes of the object; URLs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "backends/http/web_judge.h"
#include "backends/http/web_url.h"
#include "base/util.h"

static const struct web_version version = {
	.size_bytes = 10000,
	.etag = "\"v1\"",
	.last_modified = "Mon, 01 Jun 2026 00:00:00 GMT",
};

static void read_answer(struct http_answer *a, const char *text)
{
	http_answer_begin(a);
	while (*text) {
		size_t bytes = strcspn(text, "|");

		assert_int_equal(http_answer_line(a, text, bytes, 0), 0);
		text += bytes + (text[bytes] == '|');
	}
}

#define RANGE "|Content-Range: bytes 1000-1999/10000"
#define V1 "|ETag: \"v1\""

static void test_answers(void **state)
{
	static const struct {
		const char *text;
		enum web_verdict verdict;
	} cases[] = {
		{ "HTTP/1.1 206 x" RANGE V1, WEB_GOOD },
		{ "HTTP/1.1 206 x" RANGE V1 "|Content-Length: 1000", WEB_GOOD },
		/* Only the ETag counts where both have one. */
		{ "HTTP/1.1 206 x" RANGE V1 "|Last-Modified: Tue, 02 Jun 2026 00:00:00 GMT",
		  WEB_GOOD },
		{ "HTTP/1.1 206 x" RANGE "|Last-Modified: Mon, 01 Jun 2026 00:00:00 GMT",
		  WEB_GOOD },
		{ "HTTP/1.1 206 x|Content-Range: bytes 1000-1999/*" V1, WEB_GOOD },
		{ "HTTP/1.1 206 x" RANGE "|ETag: \"v2\"", WEB_CHANGED },
		{ "HTTP/1.1 206 x" RANGE "|Last-Modified: Tue, 02 Jun 2026 00:00:00 GMT",
		  WEB_CHANGED },
		{ "HTTP/1.1 206 x|Content-Range: bytes 1000-1999/10001" V1, WEB_CHANGED },
		{ "HTTP/1.1 412 x", WEB_CHANGED },
		{ "HTTP/1.1 416 x", WEB_CHANGED },
		{ "HTTP/1.1 206 x" RANGE, WEB_BROKEN },
		{ "HTTP/1.1 206 x" V1, WEB_BROKEN },
		{ "HTTP/1.1 206 x|Content-Range: bytes 1000-1998/10000" V1, WEB_BROKEN },
		{ "HTTP/1.1 206 x|Content-Range: bytes 1001-1999/10000" V1, WEB_BROKEN },
		{ "HTTP/1.1 206 x" RANGE V1 "|Content-Length: 999", WEB_BROKEN },
		{ "HTTP/1.1 206 x" RANGE V1 "|Content-Encoding: br", WEB_BROKEN },
		{ "HTTP/1.1 200 x" V1, WEB_BROKEN },
		{ "HTTP/1.1 301 x", WEB_MOVED },
		{ "HTTP/1.1 302 x", WEB_MOVED },
		{ "HTTP/1.1 307 x", WEB_MOVED },
		{ "HTTP/1.1 308 x", WEB_MOVED },
		{ "HTTP/1.1 304 x", WEB_REFUSED },
		{ "HTTP/1.1 429 x", WEB_AGAIN },
		{ "HTTP/1.1 500 x", WEB_AGAIN },
		{ "HTTP/1.1 502 x", WEB_AGAIN },
		{ "HTTP/1.1 503 x", WEB_AGAIN },
		{ "HTTP/1.1 504 x", WEB_AGAIN },
		{ "HTTP/1.1 501 x", WEB_REFUSED },
		{ "HTTP/1.1 403 x", WEB_REFUSED },
		{ "HTTP/1.1 404 x", WEB_REFUSED },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char words[200];
		struct http_answer a;
		enum web_verdict verdict;

		read_answer(&a, cases[i].text);
		verdict = web_judge(&version, &a, 1000, 1000, words, sizeof(words));
		if (verdict != cases[i].verdict)
			fail_msg("%s: %d, not %d: %s", cases[i].text, verdict, cases[i].verdict,
				 words);
		assert_true((words[0] != '\0') == (verdict != WEB_GOOD && verdict != WEB_MOVED));
	}
}

static void test_first(void **state)
{
	static const struct {
		const char *text;
		enum web_verdict verdict;
	} cases[] = {
		{ "HTTP/1.1 206 x|Content-Range: bytes 0-0/77" V1, WEB_GOOD },
		{ "HTTP/1.1 206 x|Content-Range: bytes 0-0/*" V1, WEB_REFUSED },
		{ "HTTP/1.1 206 x|Content-Range: bytes 0-76/77" V1, WEB_BROKEN },
		{ "HTTP/1.1 200 x|Content-Length: 77", WEB_REFUSED },
		{ "HTTP/1.1 416 x|Content-Range: bytes */0", WEB_REFUSED },
		{ "HTTP/1.1 412 x", WEB_REFUSED },
		{ "HTTP/1.1 302 x", WEB_MOVED },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct web_version found = { 0 };
		struct http_answer a;
		char words[200];

		read_answer(&a, cases[i].text);
		assert_int_equal(web_judge_first(&a, &found, words, sizeof(words)),
				 cases[i].verdict);
		assert_int_equal(found.size_bytes, cases[i].verdict == WEB_GOOD ? 77 : 0);
		assert_string_equal(found.etag, cases[i].verdict == WEB_GOOD ? "\"v1\"" : "");
	}
}

static void test_version_words(void **state)
{
	static const struct {
		struct web_version version;
		const char *words;
	} cases[] = {
		{ { 7, "\"v1\"", "Mon, 01 Jun 2026 00:00:00 GMT" }, "ETag \"v1\" 7" },
		{ { 7, "", "Mon, 01 Jun 2026 00:00:00 GMT" },
		  "of Mon, 01 Jun 2026 00:00:00 GMT 7" },
		{ { 7, "", "" }, "size 7" },
		{ { UINT64_MAX, "", "" }, "size 18446744073709551615" },
	};
	char words[BACKEND_VERSION_BYTES], other[BACKEND_VERSION_BYTES];
	struct web_version long_one = { UINT64_MAX, "", "" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		web_version_words(&cases[i].version, words);
		assert_string_equal(words, cases[i].words);
	}
	/* What is shown cut has all of it in its hash, and its size. */
	memset(long_one.etag, 'x', sizeof(long_one.etag) - 1);
	web_version_words(&long_one, words);
	long_one.etag[sizeof(long_one.etag) - 2] = 'y';
	web_version_words(&long_one, other);
	assert_string_not_equal(words, other);
	assert_non_null(strstr(words, " 18446744073709551615"));
}

static void test_urls(void **state)
{
	static const struct {
		const char *text, *server; /* or the error */
	} cases[] = {
		{ "http://h/disk.img", "http://h:80" },
		{ "HTTPS://h.example/a%20b?x=y&z", "https://h.example:443" },
		{ "https://[::1]:8443/", "https://[::1]:8443" },
		{ "http://h", "http://h:80" },
		{ "ftp://h/x", "the scheme must be http or https" },
		{ "http://u:p@h/x",
		  "a user does not belong here, where it is shown: set user and password_file" },
		{ "http:///x", "the host is missing" },
		{ "http://h/a b", "spaces and control characters have to be escaped: %20" },
		{ "http://h/a#b", "a fragment has no meaning here" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char error[200] = "";
		struct web_url url;
		int ret = web_url_parse(cases[i].text, &url, NULL, error, sizeof(error));

		assert_string_equal(ret == 0 ? url.server : error, cases[i].server);
	}
}

static void test_same_server(void **state)
{
	static const char *const other[] = { "https://h/", "http://h:81/", "http://g/" };
	struct web_url a, b;
	char error[200];

	(void)state;
	assert_int_equal(web_url_parse("http://h/x", &a, NULL, error, sizeof(error)), 0);
	assert_int_equal(web_url_parse("http://H:80/y", &b, NULL, error, sizeof(error)), 0);
	assert_true(web_url_is_same_server(&a, &b));
	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		assert_int_equal(web_url_parse(other[i], &b, NULL, error, sizeof(error)), 0);
		assert_false(web_url_is_same_server(&a, &b));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),	      cmocka_unit_test(test_first),
		cmocka_unit_test(test_version_words), cmocka_unit_test(test_urls),
		cmocka_unit_test(test_same_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
