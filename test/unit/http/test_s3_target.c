/* Buckets, keys and endpoints become URLs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/http/s3_target.h"
#include "base/util.h"
#include "net/http/http_client.h"

static void test_words(void **state)
{
	static const struct {
		const char *uri, *bucket, *key, *error;
	} cases[] = {
		{ "s3://b/k", "b", "k", NULL },
		{ "S3://my.bucket_1/a b/%20?x#y", "my.bucket_1", "a b/%20?x#y", NULL },
		{ "s3://b//k", "b", "/k", NULL },
		{ "s3:/b/k", NULL, NULL, "expected s3://BUCKET/KEY" },
		{ "s3://b", NULL, NULL, "the key is missing: expected 1 to 1024 bytes" },
		{ "s3://b/", NULL, NULL, "the key is missing: expected 1 to 1024 bytes" },
		{ "s3:///k", NULL, NULL, "a bucket's name has" },
		{ "s3://b@h/k", NULL, NULL, "a bucket's name has" },
		{ "s3://../k", NULL, NULL, "a bucket's name has" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_target t;
		char error[200];
		int ret = s3_target_parse(cases[i].uri, &t, error, sizeof(error));

		assert_int_equal(ret, cases[i].error ? -EINVAL : 0);
		if (cases[i].error) {
			assert_memory_equal(error, cases[i].error, strlen(cases[i].error));
			continue;
		}
		assert_string_equal(t.bucket, cases[i].bucket);
		assert_string_equal(t.key, cases[i].key);
	}
}

static void test_long_words(void **state)
{
	char uri[2000], error[200];
	struct s3_target t;

	(void)state;
	snprintf(uri, sizeof(uri), "s3://%0255d/%01024d", 0, 0);
	assert_int_equal(s3_target_parse(uri, &t, error, sizeof(error)), 0);
	snprintf(uri, sizeof(uri), "s3://%0256d/k", 0);
	assert_int_equal(s3_target_parse(uri, &t, error, sizeof(error)), -EINVAL);
	snprintf(uri, sizeof(uri), "s3://%0300d/k", 0);
	assert_int_equal(s3_target_parse(uri, &t, error, sizeof(error)), -EINVAL);
	snprintf(uri, sizeof(uri), "s3://b/%01025d", 0);
	assert_int_equal(s3_target_parse(uri, &t, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "the key is too long: expected 1 to 1024 bytes");
}

static void test_urls(void **state)
{
	static const struct {
		const char *endpoint;
		bool is_path;
		const char *key, *url;
	} cases[] = {
		{ "https://s3.eu-1.amazonaws.com", false, "a/b.img",
		  "https://bucket.s3.eu-1.amazonaws.com:443/a/b.img" },
		{ "https://s3.eu-1.amazonaws.com", true, "a/b.img",
		  "https://s3.eu-1.amazonaws.com:443/bucket/a/b.img" },
		{ "http://[::1]:7480/", true, "k", "http://[::1]:7480/bucket/k" },
		/* RFC 3986, 2.3: these alone stay, and slashes. */
		{ "http://h", true, "AZaz09-._~/", "http://h:80/bucket/AZaz09-._~/" },
		{ "http://h", true, " +%?#&=:@!$'()*,;\"<>\\^`{|}[]",
		  "http://h:80/bucket/%20%2B%25%3F%23%26%3D%3A%40%21%24%27%28%29%2A%2C%3B%22%3C%3E%"
		  "5C%5E%60%7B%7C%7D%5B%5D" },
		{ "http://h", true, "\303\251\360\237\222\276\x01\x7f",
		  "http://h:80/bucket/%C3%A9%F0%9F%92%BE%01%7F" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char url[HTTP_URL_BYTES], error[200];
		struct web_url endpoint;
		struct s3_target t;

		assert_int_equal(
			s3_endpoint_parse(cases[i].endpoint, &endpoint, error, sizeof(error)), 0);
		assert_int_equal(s3_target_set("bucket", cases[i].key, &t, error, sizeof(error)),
				 0);
		assert_int_equal(s3_target_url(&t, &endpoint, cases[i].is_path, url, sizeof(url)),
				 0);
		assert_string_equal(url, cases[i].url);
		/* What it escapes is not what the reader of URLs refuses. */
		assert_int_equal(web_url_parse(url, &endpoint, NULL, error, sizeof(error)), 0);
	}
}

static void test_longest_url(void **state)
{
	char key[S3_OBJECT_BYTES], url[HTTP_URL_BYTES], error[200];
	struct web_url endpoint;
	struct s3_target t;

	(void)state;
	memset(key, ' ', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_int_equal(s3_endpoint_parse("http://h", &endpoint, error, sizeof(error)), 0);
	assert_int_equal(s3_target_set("b", key, &t, error, sizeof(error)), 0);
	assert_int_equal(s3_target_url(&t, &endpoint, true, url, sizeof(url)), 0);
	assert_int_equal(strlen(url), strlen("http://h:80/b/") + 3 * strlen(key));
	assert_int_equal(s3_target_url(&t, &endpoint, true, url, 3000), -ENAMETOOLONG);
}

static void test_endpoints(void **state)
{
	static const char *const bad[] = { "s3.example.com",  "ftp://h",      "http://",
					   "http://h/bucket", "http://h?x=1", "http://u@h" };
	char text[128], error[200];
	struct web_url url;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(s3_endpoint_parse(bad[i], &url, error, sizeof(error)), -EINVAL);
	s3_endpoint_of("eu-west-1", text, sizeof(text));
	assert_string_equal(text, "https://s3.eu-west-1.amazonaws.com");
	s3_endpoint_of("cn-north-1", text, sizeof(text));
	assert_string_equal(text, "https://s3.cn-north-1.amazonaws.com.cn");
}

static bool has_name(const char *endpoint)
{
	char error[200];
	struct web_url url;

	assert_int_equal(s3_endpoint_parse(endpoint, &url, error, sizeof(error)), 0);
	return s3_endpoint_has_name(&url);
}

static void test_names(void **state)
{
	char error[200];

	(void)state;
	assert_true(s3_bucket_is_label("my-bucket-1"));
	assert_false(s3_bucket_is_label("my.bucket"));
	assert_false(s3_bucket_is_label("My-bucket"));
	assert_false(s3_bucket_is_label("my_bucket"));
	assert_false(s3_bucket_is_label("-bucket"));
	assert_false(s3_bucket_is_label("bucket-"));
	assert_true(has_name("http://s3.example.com:80"));
	assert_false(has_name("http://127.0.0.1:80"));
	assert_false(has_name("http://[::1]:80"));
	assert_int_equal(s3_region_judge("us-east-1", error, sizeof(error)), 0);
	assert_int_equal(s3_region_judge("", error, sizeof(error)), -EINVAL);
	assert_int_equal(s3_region_judge("a:b", error, sizeof(error)), -EINVAL);
	assert_int_equal(s3_region_judge("a.evil", error, sizeof(error)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),	  cmocka_unit_test(test_long_words),
		cmocka_unit_test(test_urls),	  cmocka_unit_test(test_longest_url),
		cmocka_unit_test(test_endpoints), cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
