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
		  CODE("AuthorizationHeaderMalformed") "<Region>eu-1</Region></Error>",
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
		/* Written otherwise. */
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false,
		  "<e:Error xmlns:e=\"x\" a=\"b\"><Resource>/a</Resource><Code >Acce<!-- x -->ss"
		  "<![CDATA[Denied]]></Code ></e:Error>",
		  "it answers 403 AccessDenied: see credentials_file and the policy of the "
		  "bucket" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false, CODE("X") MESSAGE("a&lt;b&amp;&#67;"),
		  "it answers 403 X (a<b&C): see "
		  "credentials_file" },
		/* What stands elsewhere is not S3's code. */
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false,
		  "<Error><!-- <Code>A</Code> --><Detail><Code>B</Code></Detail></Error>",
		  "it answers 403: see credentials_file" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false, "<Code>AccessDenied</Code>",
		  "it answers 403: see credentials_file" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false,
		  "<!DOCTYPE Error [<!ENTITY e 'AccessDenied'>]><Error><Code>&e;</Code></Error>",
		  "it answers 403: see credentials_file" },
		/* Cut: what is whole of it counts. */
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false, "<Error><Code>Acc",
		  "it answers 403: see credentials_file" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false, CODE("X") "<Message>m",
		  "it answers 403 X: see credentials_file" },
		/* The first counts. */
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false, CODE("X") "<Code>AccessDenied</Code>",
		  "it answers 403 X: see credentials_file" },
		{ 403, "", WEB_REFUSED, WEB_REFUSED, false,
		  CODE("A\n\t[31m\303\251\x7f") "<Message></Message>",
		  "it answers 403 A\\x0a\\x09[31m\303\251\\x7f: see credentials_file" },
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

/* By how much this machine's clock is wrong, as far as the answer says it. */
static void test_clock(void **state)
{
	static const struct {
		int64_t ahead_s;
		bool has_date;
		const char *words;
	} cases[] = {
		{ 16 * 60 + 59, true, "this machine's clock is 16 min ahead of the server's" },
		{ -16 * 60 - 59, true, "this machine's clock is 16 min behind the server's" },
		{ 3600, true, "this machine's clock is 1 h ahead of the server's" },
		{ -47 * 3600, true, "this machine's clock is 47 h behind the server's" },
		{ -INT64_C(20000) * 86400, true,
		  "this machine's clock is 20000 days behind the server's" },
		/* Somebody else's Date, or it was set just now. */
		{ 3, true, "set the clock of this machine" },
		{ -1000000, false, "set the clock of this machine" },
	};
	const struct s3_asker asker = { .region = "us-east-1" };
	/* As long as that of AWS. */
	static const char document[] = CODE("RequestTimeTooSkewed") MESSAGE(
		"The difference between the request time and the current time is too large.");
	char words[HTTP_ERROR_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_answer a = { .status = 403,
					 .has_date = cases[i].has_date,
					 .ahead_s = cases[i].ahead_s };

		assert_int_equal(
			s3_refusal_judge(&asker, &a, WEB_REFUSED, document, words, sizeof(words)),
			WEB_CLOCK);
		assert_non_null(strstr(words, cases[i].words));
		assert_string_equal(words + strlen(words) - strlen("see timedatectl(1)"),
				    "see timedatectl(1)");
	}
}

/* However much it says, the cure is there. */
static void test_long(void **state)
{
	char words[HTTP_ERROR_BYTES], document[1200] = CODE("AccessDenied") "<Message>";
	const char *cure = ": see credentials_file and the policy of the bucket";
	const size_t open_bytes = strlen(CODE("")) - strlen("</Code>");

	(void)state;
	memset(document + strlen(document), 'm', 1100 - strlen(document));
	strcpy(document + 1100, "</Message></Error>");
	judge(403, "", WEB_REFUSED, false, document, words);
	assert_string_equal(words + strlen(words) - strlen(cure), cure);
	assert_non_null(strstr(words, "AccessDenied (mmmm"));
	memset(document + open_bytes, 'c', 1100 - open_bytes);
	strcpy(document + 1100, "</Code></Error>");
	judge(403, "", WEB_REFUSED, false, document, words);
	assert_non_null(strstr(words, "cccc"));
	assert_non_null(strstr(words, ": see credentials_file"));
}

static void test_is(void **state)
{
	(void)state;
	assert_true(s3_refusal_is(CODE("NoSuchBucket"), "NoSuchBucket"));
	assert_true(s3_refusal_is(CODE("NoSuchBucket") MESSAGE("x") "</Error>", "NoSuchBucket"));
	assert_false(
		s3_refusal_is(CODE("NoSuchKey") "<Key>NoSuchBucket</Key></Error>", "NoSuchBucket"));
	assert_false(s3_refusal_is(CODE("NoSuchBuckets"), "NoSuchBucket"));
	assert_false(s3_refusal_is("NoSuchBucket", "NoSuchBucket"));
	assert_false(s3_refusal_is("", "NoSuchBucket"));
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
		cmocka_unit_test(test_words),  cmocka_unit_test(test_clock),
		cmocka_unit_test(test_long),   cmocka_unit_test(test_is),
		cmocka_unit_test(test_excuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
