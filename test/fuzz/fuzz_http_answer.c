/*
 * Any bytes as the headers of an answer, a line each, and judged as the answer to a GET of 4096
 * bytes from 8192 on of an object of 1 MiB. Taken is only what says just that.
 */
#include "fuzz.h"

#include <string.h>

#include "backends/http/web_judge.h"
#include "base/assert.h"

const char *const fuzz_words[] = {
	"HTTP/1.1 206 x\r\n",
	"HTTP/2 503\r\n",
	"HTTP/1.1 302 x\r\n",
	"Content-Range: bytes 8192-12287/1048576\r\n",
	"Content-Range: bytes */1048576\r\n",
	"Content-Length: 4096\r\n",
	"ETag: \"v1\"\r\n",
	"ETag: W/\"v1\"\r\n",
	"Last-Modified: Mon, 01 Jun 2026 00:00:00 GMT\r\n",
	"Retry-After: 120\r\n",
	"Retry-After: Wed, 25 Nov 2026 12:00:30 GMT\r\n",
	"Content-Encoding: gzip\r\n",
	"\r\n",
	"18446744073709551615",
	"9223372036854775807",
	NULL,
};

static const struct web_version version = { .size_bytes = 1u << 20, .etag = "\"v1\"" };

static void check_good(const struct http_answer *a)
{
	ASSERT(a->status == 206 && a->has_range && !a->is_encoded);
	ASSERT(a->first == 8192 && a->last == 12287);
	ASSERT(a->total == HTTP_UNKNOWN || a->total == version.size_bytes);
	ASSERT(a->content_bytes == HTTP_UNKNOWN || a->content_bytes == 4096);
	ASSERT(strcmp(a->etag, version.etag) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const char *at = (const char *)data, *end = at + bytes;
	struct http_answer a;
	char words[120];

	http_answer_begin(&a);
	while (at < end && !a.is_whole) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		size_t line_bytes = (size_t)((line_end ? line_end + 1 : end) - at);

		if (http_answer_line(&a, at, line_bytes, 1795608000) < 0)
			return 0;
		ASSERT(memchr(a.etag, 0, sizeof(a.etag)));
		ASSERT(memchr(a.last_modified, 0, sizeof(a.last_modified)));
		ASSERT(!a.has_range || a.first <= a.last);
		at += line_bytes;
	}
	if (!a.is_whole)
		return 0;
	if (web_judge(&version, &a, 8192, 4096, words, sizeof(words)) == WEB_GOOD)
		check_good(&a);
	ASSERT(memchr(words, 0, sizeof(words)));
	return 0;
}
