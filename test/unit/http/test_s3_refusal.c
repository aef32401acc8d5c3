/* What S3 says of refusals, in words for the user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "backends/http/s3_refusal.h"
#include "base/util.h"
#include "net/http/http_client.h"

static enum web_verdict judge(unsigned status, const char *region, enum web_verdict verdict,
			      bool is_anonymous, const char *document, char *words)
{
	const struct s3_asker asker = { .region = "us-east-1", .is_anonymous = is_anonymous };
	struct http_answer a = { .status = status };

	strcpy(a.bucket_region, region);
	return s3_refusal_judge(&asker, &a, verdict, document, words, HTTP_ERROR_BYTES);
}

#define CODE(code) "<?xml version=\"1.0\"?>\n<Error><Code>" code "</Code>"
#define MESSAGE(text) "<Message>" text "</Message>"

static void test_words(void **state)
{
	static const struct {
		unsigned status;
		const char *region;
		enum web_verdict verdict, becomes;
		bool is_anonymous;
		const char *document, *words;
	} cases[] = {
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false,
		  CODE("AccessDenied") MESSAGE("Access Denied"),
		  "it answers 403 AccessDenied (Access Denied): see credentials_file and the "
		  "policy of the bucket" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, true, CODE("AccessDenied"),
		  "it answers 403 AccessDenied: set credentials_file" },
		{ 404, "", WEB_REFUSED, WEB_REFUSED, false, CODE("NoSuchKey"),
		  "it answers 404 NoSuchKey: see key" },
		{ 404, "", WEB_REFUSED, WEB_REFUSED, false, "<html>nginx</html>",
		  "it answers 404: see bucket and key" },
		{ 418, "", WEB_REFUSED, WEB_REFUSED, false, "", "it answers 418" },
		/* A redirection is one to another region, or another server. */
		{ 301, "eu-1", WEB_MOVED, WEB_REFUSED, false, CODE("PermanentRedirect"),
		  "it answers 301 PermanentRedirect: set region: eu-1" },
		{ 301, "us-east-1", WEB_MOVED, WEB_REFUSED, false, "",
		  "it answers 301: see region and endpoint" },
		{ 400, "", WEB_REFUSED, WEB_REFUSED, false,
		  CODE("AuthorizationHeaderMalformed") "<Region>eu-1</Region>",
		  "it answers 400 AuthorizationHeaderMalformed: set region: eu-1" },
		{ 400, "a b\"", WEB_REFUSED, WEB_REFUSED, false,
		  CODE("AuthorizationHeaderMalformed"),
		  "it answers 400 AuthorizationHeaderMalformed: see region" },
		/* What passes. */
		{ 503, "", WEB_AGAIN, WEB_AGAIN, false, CODE("SlowDown"),
		  "it answers 503 SlowDown" },
		{ 400, "", WEB_REFUSED, WEB_AGAIN, false, CODE("RequestTimeout"),
		  "it answers 400 RequestTimeout" },
		/* Other keys may be good. */
		{ 400, "", WEB_REFUSED, WEB_KEYS, false, CODE("ExpiredToken"),
		  "it answers 400 ExpiredToken: put a new session token into credentials_file" },
		{ 403, "", WEB_REFUSED, WEB_KEYS, false, CODE("InvalidAccessKeyId"),
		  "it answers 403 InvalidAccessKeyId: see the access key in credentials_file" },
		{ 400, "", WEB_REFUSED, WEB_REFUSED, true, CODE("InvalidToken"),
		  "it answers 400 InvalidToken: see aws_session_token in credentials_file" },
		/* Cut, or without an end. */
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false, "<Code>Acc",
		  "it answers 403 Acc: see credentials_file" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false,
		  "<Code>A\n\x1b[31m\303\251\x7f</Code><Message></Message>",
		  "it answers 403 A..[31m...: see credentials_file" },
	};
	char words[HTTP_ERROR_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(judge(cases[i].status, cases[i].region, cases[i].verdict,
				       cases[i].is_anonymous, cases[i].document, words),
				 cases[i].becomes);
		assert_string_equal(words, cases[i].words);
	}
}

/* However much it says, the cure is there. */
static void test_long(void **state)
{
	char words[HTTP_ERROR_BYTES], document[1200] = "<Code>AccessDenied</Code><Message>";
	const char *cure = ": see credentials_file and the policy of the bucket";

	(void)state;
	memset(document + strlen(document), 'm', 1000);
	judge(403, "", WEB_REFUSED, false, document, words);
	assert_string_equal(words + strlen(words) - strlen(cure), cure);
	memset(document + strlen("<Code>"), 'c', 1100);
	judge(403, "", WEB_REFUSED, false, document, words);
	assert_non_null(strstr(words, ": see credentials_file"));
}

static void test_excuse(void **state)
{
	static uint8_t data[WEB_EXCUSE_BYTES];
	struct web_excuse e;

	(void)state;
	memset(data, 'x', sizeof(data));
	web_excuse_begin(&e);
	assert_true(web_excuse_take(&e, data, 1000));
	assert_true(web_excuse_take(&e, data, 1000));
	assert_int_equal(strlen(e.text), WEB_EXCUSE_KEPT_BYTES - 1);
	assert_true(web_excuse_take(&e, data, sizeof(data) - 2000));
	assert_false(web_excuse_take(&e, data, 1));
	web_excuse_begin(&e);
	assert_string_equal(e.text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_excuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
