/* What the user can say about an object of a bucket: every refusal. */
#include "test/rig/backend_options.h"

static void bad(const char *backend, const char *errors)
{
	options_bad("s3", backend, errors);
}

#define OBJECT "  bucket: b\n  key: k\n"

static void test_good(void **state)
{
	static const char *const good[] = {
		"  uri: s3://b/k\n",
		OBJECT
		"  endpoint: \"https://s3.example.com\"\n  region: eu-1\n  path_style: true\n",
		OBJECT
		"  path_style: false\n  credentials_file: /c\n  profile: p\n  ca_file: /ca\n",
		OBJECT "  connections: 2\n  on_disconnect: fail\n  timeout: 3s\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct settings s;

		options_parse(&s, "s3", good[i], "");
		settings_free(&s);
	}
}

static void test_bad(void **state)
{
	(void)state;
	bad("  region: eu-1\n",
	    "f:3:3: bucket: the bucket is missing: say uri, or bucket and key\n");
	bad("  bucket: b\n", "f:3:3: key: the key is missing\n");
	bad("  uri: s3://b/k\n  key: k\n", "f:4:8: uri: it says bucket and key: say them once\n");
	bad("  uri: s3://b\n", "f:4:8: uri: the key is missing: expected 1 to 1024 bytes\n");
	bad("  bucket: b/c\n  key: k\n",
	    "f:4:11: bucket: a bucket's name has letters, digits and . _ -, at most 255\n");
	bad(OBJECT "  region: \"a b\"\n", "f:6:11: region: expected a name such as us-east-1\n");
	bad(OBJECT "  endpoint: s3.example.com\n",
	    "f:6:13: endpoint: expected a URI such as https://host/disk.img\n");
	bad(OBJECT "  endpoint: \"https://h/b\"\n",
	    "f:6:13: endpoint: expected http[s]://HOST[:PORT] and nothing behind it\n");
	bad(OBJECT "  profile: p\n", "f:6:12: profile: credentials_file is missing\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
