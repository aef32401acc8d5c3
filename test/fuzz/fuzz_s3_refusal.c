/*
 * Any text as what S3 says of a request that it does not serve. The first byte says how the answer
 * was judged and who has asked, the second the status, the third how many of those that follow are
 * the header with the region. What is told is printable, and a redirection is a refusal.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "backends/http/s3_refusal.h"
#include "base/assert.h"
#include "base/util.h"
#include "net/http/http_client.h"
#include "test/unit/base/printable_check.h"

const char *const fuzz_words[] = { "<Error>",
				   "</Error>",
				   "<Code>AccessDenied</Code>",
				   "<Code>RequestTimeout</Code>",
				   "<Code>PermanentRedirect</Code>",
				   "<Code>RequestTimeTooSkewed</Code>",
				   "<Message>",
				   "</Message>",
				   "<Region>eu-1</Region>",
				   "<![CDATA[",
				   "]]>",
				   "&#65;",
				   "eu-central-1",
				   NULL };

static const enum web_verdict verdicts[] = { WEB_REFUSED, WEB_AGAIN, WEB_MOVED, WEB_BROKEN };
static const unsigned statuses[] = { 301, 307, 400, 401, 403, 404, 409, 412, 429, 500, 503, 999 };

static void check_words(const char *words, size_t words_bytes)
{
	const char *end = memchr(words, 0, words_bytes);

	ASSERT(end && strncmp(words, "it answers ", 11) == 0);
	check_printable(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct s3_asker asker = { .region = "us-east-1" };
	struct http_answer a = { .status = 0 };
	enum web_verdict verdict, becomes;
	size_t region_bytes;
	char *document, *words;

	if (bytes < 3)
		return 0;
	verdict = verdicts[data[0] % ARRAY_SIZE(verdicts)];
	asker.is_anonymous = data[0] & 0x80;
	a.status = statuses[data[1] % ARRAY_SIZE(statuses)];
	region_bytes = MIN(data[2], sizeof(a.bucket_region) - 1);
	region_bytes = MIN(region_bytes, bytes - 3);
	memcpy(a.bucket_region, data + 3, region_bytes);
	data += 3 + region_bytes;
	bytes -= 3 + region_bytes;
	document = malloc(bytes + 1);
	words = malloc(HTTP_ERROR_BYTES);
	ASSERT(document && words);
	memcpy(document, data, bytes);
	document[bytes] = '\0';
	becomes = s3_refusal_judge(&asker, &a, verdict, document, words, HTTP_ERROR_BYTES);
	check_words(words, HTTP_ERROR_BYTES);
	ASSERT(becomes != WEB_MOVED && becomes != WEB_GOOD);
	ASSERT(becomes == verdict || becomes == WEB_AGAIN ||
	       (verdict == WEB_REFUSED && (becomes == WEB_KEYS || becomes == WEB_CLOCK)) ||
	       (verdict == WEB_MOVED && becomes == WEB_REFUSED));
	free(words);
	free(document);
	return 0;
}
