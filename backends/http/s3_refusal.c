/*
 * Reads S3's errors; owns nothing. Pure.
 *
 * https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html has the codes.
 */
#include "backends/http/s3_refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/s3_xml.h"
#include "base/printable.h"
#include "base/util.h"

#define CODE_BYTES 48
#define MESSAGE_BYTES 104
#define CODE_CLOCK "RequestTimeTooSkewed"
#define CLOCK_BYTES 100
#define CLOCK_WORDS "this machine's clock is %llu %s %s the server's: set it, see timedatectl(1)"

struct s3_error {
	char code[CODE_BYTES];	     /* "": it says none */
	char message[MESSAGE_BYTES]; /* cut where it is longer */
	char region[HTTP_REGION_BYTES];
};

/* The first of a name counts. */
static bool error_take(const char *path, const char *text, void *arg)
{
	struct s3_error *e = arg;
	const struct {
		const char *path;
		char *to;
		size_t to_bytes;
	} known[] = {
		{ "Error/Code", e->code, sizeof(e->code) },
		{ "Error/Message", e->message, sizeof(e->message) },
		{ "Error/Region", e->region, sizeof(e->region) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(path, known[i].path) == 0 && !known[i].to[0])
			printable(known[i].to, known[i].to_bytes, text, strlen(text));
	return true;
}

/* It may be cut, or none of S3's: what is whole of it counts. */
static void error_parse(const char *document, struct s3_error *e)
{
	char words[100];

	*e = (struct s3_error){ 0 };
	(void)s3_xml_read(document, strlen(document), error_take, e, words, sizeof(words));
}

static void error_read(const struct http_answer *answer, const char *document, struct s3_error *e)
{
	error_parse(document, e);
	if (answer->bucket_region[0])
		snprintf(e->region, sizeof(e->region), "%s", answer->bucket_region);
	if (strspn(e->region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(e->region))
		e->region[0] = '\0';
}

bool s3_refusal_is(const char *document, const char *code)
{
	struct s3_error e;

	error_parse(document, &e);
	return strcmp(e.code, code) == 0;
}

static const char *cure_of_code(const struct s3_asker *asker, const char *code)
{
	static const struct {
		const char *code, *cure;
	} known[] = {
		{ "AccessDenied", "see credentials_file and the policy of the bucket" },
		{ "NoSuchKey", "see key" },
		{ "NoSuchBucket", "see bucket" },
		{ "InvalidAccessKeyId", "see the access key in credentials_file" },
		{ "SignatureDoesNotMatch", "see the secret key in credentials_file" },
		{ "AuthorizationHeaderMalformed", "see region" },
		{ "PermanentRedirect", "see region and endpoint" },
		{ CODE_CLOCK, "set the clock of this machine: see timedatectl(1)" },
		{ "ExpiredToken", "put a new session token into credentials_file" },
		{ "InvalidToken", "see aws_session_token in credentials_file" },
		{ "InvalidObjectState", "the object is archived: restore it first" },
	};

	if (asker->is_anonymous && strcmp(code, "AccessDenied") == 0)
		return "set credentials_file";
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i].code, code) == 0)
			return known[i].cure;
	return NULL;
}

static const char *cure_of_status(unsigned status)
{
	if (status == 401 || status == 403)
		return "see credentials_file";
	if (status == 404)
		return "see bucket and key";
	return status >= 300 && status < 400 ? "see region and endpoint" : NULL;
}

/* As S3 grants 15 minutes, minutes are exact enough. */
static const char *cure_of_clock(int64_t ahead_s, char words[static CLOCK_BYTES])
{
	unsigned long long minutes = (unsigned long long)llabs(ahead_s) / 60;
	const char *where = ahead_s > 0 ? "ahead of" : "behind";

	if (minutes < 60)
		snprintf(words, CLOCK_BYTES, CLOCK_WORDS, minutes, "min", where);
	else if (minutes < 2ull * 24 * 60)
		snprintf(words, CLOCK_BYTES, CLOCK_WORDS, minutes / 60, "h", where);
	else
		snprintf(words, CLOCK_BYTES, CLOCK_WORDS, minutes / 60 / 24, "days", where);
	return words;
}

static void words_fill(const struct s3_asker *asker, const struct http_answer *answer,
		       const struct s3_error *e, char *words, size_t words_bytes)
{
	const char *cure = cure_of_code(asker, e->code);
	char clock[CLOCK_BYTES];
	bool elsewhere = e->region[0] && strcmp(e->region, asker->region) != 0;
	int n = snprintf(words, words_bytes, "it answers %u", answer->status);

	if (!cure)
		cure = cure_of_status(answer->status);
	if (strcmp(e->code, CODE_CLOCK) == 0 && answer->has_date && llabs(answer->ahead_s) >= 60)
		cure = cure_of_clock(answer->ahead_s, clock);
	if (e->code[0])
		n += snprintf(words + n, words_bytes - (size_t)n, " %s", e->code);
	if (e->message[0])
		n += snprintf(words + n, words_bytes - (size_t)n, " (%s)", e->message);
	if (elsewhere)
		snprintf(words + n, words_bytes - (size_t)n, ": set region: %s", e->region);
	else if (cure)
		snprintf(words + n, words_bytes - (size_t)n, ": %s", cure);
}

/* Others may be good, and perhaps are there already. */
static bool code_is_of_keys(const char *code)
{
	static const char *const known[] = { "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
					     "InvalidAccessKeyId" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], code) == 0)
			return true;
	return false;
}

enum web_verdict s3_refusal_judge(const struct s3_asker *asker, const struct http_answer *answer,
				  enum web_verdict verdict, const char *document, char *words,
				  size_t words_bytes)
{
	struct s3_error e;

	error_read(answer, document, &e);
	words_fill(asker, answer, &e, words, words_bytes);
	/* With status 400: the connection was too slow. */
	if (strcmp(e.code, "RequestTimeout") == 0)
		return WEB_AGAIN;
	if (verdict == WEB_REFUSED && !asker->is_anonymous && code_is_of_keys(e.code))
		return WEB_KEYS;
	if (verdict == WEB_REFUSED && strcmp(e.code, CODE_CLOCK) == 0)
		return WEB_CLOCK;
	return verdict == WEB_MOVED ? WEB_REFUSED : verdict;
}
