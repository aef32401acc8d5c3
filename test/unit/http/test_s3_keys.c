/* AWS's credentials files, and keys of the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/http/s3_keys.h"
#include "base/util.h"

#define KEYS "aws_access_key_id = AK\naws_secret_access_key = SK\n"

static void test_files(void **state)
{
	static const struct {
		const char *text, *profile, *access, *secret, *token;
	} cases[] = {
		{ "[default]\n" KEYS, "default", "AK", "SK", "" },
		{ "[default]\r\naws_access_key_id=AK\r\naws_secret_access_key\t=a+b/c=\r\n",
		  "default", "AK", "a+b/c=", "" },
		{ "# x\n; y\n\n [ other ] \naws_access_key_id = no\n[p]\n" KEYS
		  "aws_session_token = T==\nregion = eu-1\n",
		  "p", "AK", "SK", "T==" },
		{ "[default]\n" KEYS "[next]\naws_access_key_id = no\naws_session_token = no\n",
		  "default", "AK", "SK", "" },
		/* A profile may stand twice, and at the end of the file. */
		{ "[p]\naws_access_key_id = AK\n[q]\n" KEYS "[p]\naws_secret_access_key = S2", "p",
		  "AK", "S2", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_keys keys;
		char error[200];

		assert_int_equal(
			s3_keys_parse(cases[i].text, cases[i].profile, &keys, error, sizeof(error)),
			0);
		assert_string_equal(keys.access, cases[i].access);
		assert_string_equal(keys.secret, cases[i].secret);
		assert_string_equal(keys.session_token, cases[i].token);
	}
}

static void test_bad_files(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{ "", "has no profile [default]" },
		{ "[other]\n" KEYS, "has no profile [default]" },
		{ KEYS, "has no profile [default]" },
		{ "[default]\n", "aws_access_key_id is missing" },
		{ "[default]\naws_access_key_id = AK\n", "aws_secret_access_key is missing" },
		{ "[default]\naws_secret_access_key = SK\n", "aws_access_key_id is missing" },
		{ "[default]\nSECRET\n", "line 2: expected [PROFILE] or NAME = VALUE" },
		{ "[default\n", "line 1: expected [PROFILE] or NAME = VALUE" },
		{ "\n[default]\naws_secret_access_key = SECRET SECRET\n",
		  "line 3: aws_secret_access_key is empty, too long, or has other characters than "
		  "letters, digits and signs" },
		{ "[default]\naws_access_key_id =\n",
		  "line 2: aws_access_key_id is empty, too long, or has other characters than "
		  "letters, digits and signs" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_keys keys = { .access = "untouched" };
		char error[200];

		assert_int_equal(
			s3_keys_parse(cases[i].text, "default", &keys, error, sizeof(error)),
			-EINVAL);
		assert_string_equal(error, cases[i].error);
		assert_string_equal(keys.access, "untouched");
	}
}

static void test_long_keys(void **state)
{
	char text[8000], error[200];
	struct s3_keys keys;

	(void)state;
	snprintf(text, sizeof(text), "[default]\n" KEYS "aws_session_token = %0*d\n",
		 S3_TOKEN_BYTES - 1, 0);
	assert_int_equal(s3_keys_parse(text, "default", &keys, error, sizeof(error)), 0);
	assert_int_equal(strlen(keys.session_token), S3_TOKEN_BYTES - 1);
	snprintf(text, sizeof(text), "[default]\n" KEYS "aws_session_token = %0*d\n",
		 S3_TOKEN_BYTES, 0);
	assert_int_equal(s3_keys_parse(text, "default", &keys, error, sizeof(error)), -EINVAL);
	snprintf(text, sizeof(text), "[default]\naws_access_key_id = %0*d\n", S3_KEY_BYTES, 0);
	assert_int_equal(s3_keys_parse(text, "default", &keys, error, sizeof(error)), -EINVAL);
}

static void test_values(void **state)
{
	struct s3_keys keys;
	char error[200];

	(void)state;
	assert_int_equal(s3_keys_from(NULL, "", NULL, &keys, error, sizeof(error)), 0);
	assert_string_equal(keys.access, "");
	assert_int_equal(s3_keys_from("AK", "SK", "T", &keys, error, sizeof(error)), 0);
	assert_string_equal(keys.session_token, "T");
	assert_int_equal(s3_keys_from("AK", NULL, NULL, &keys, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "aws_secret_access_key is missing");
	assert_int_equal(s3_keys_from(NULL, "SK", NULL, &keys, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "aws_access_key_id is missing");
	assert_int_equal(s3_keys_from("A\nK", "SK", NULL, &keys, error, sizeof(error)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_long_keys),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
