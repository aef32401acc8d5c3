/* What the user can say about a disk of many objects: every refusal. */
#include "test/rig/backend_options.h"

static void bad(const char *backend, const char *errors)
{
	options_bad("s3-disk", backend, errors);
}

#define DISK "  bucket: b\n  prefix: p\n"

static void test_good(void **state)
{
	static const char *const good[] = {
		DISK,
		"  bucket: b\n  prefix: \"vm 1/a\"\n",
		DISK "  create: true\n  size: 1MiB\n",
		DISK "  create: true\n  size: 64TiB\n  object_size: 4MiB\n  buffers: 64\n",
		DISK "  size: 1TiB\n  object_size: 64KiB\n  lease: 1s\n",
		DISK "  endpoint: \"https://s3.example.com\"\n  region: eu-1\n  path_style: true\n"
		     "  credentials_file: /c\n  profile: p\n  ca_file: /ca\n",
		DISK "  connections: 2\n  on_disconnect: fail\n  timeout: 3s\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct settings s;

		options_parse(&s, "s3-disk", good[i], "");
		settings_free(&s);
	}
}

static void test_bad(void **state)
{
	(void)state;
	bad("  prefix: p\n", "f:3:3: \"bucket\" is missing\n");
	bad("  bucket: b\n", "f:3:3: \"prefix\" is missing\n");
	bad("  bucket: b/c\n  prefix: p\n",
	    "f:4:11: bucket: a bucket's name has letters, digits and . _ -, at most 255\n");
	bad("  bucket: b\n  prefix: /p\n", "f:5:11: prefix: no slash at its beginning or end\n");
	bad("  bucket: b\n  prefix: p/\n", "f:5:11: prefix: no slash at its beginning or end\n");
	bad("  bucket: b\n  prefix: /\n", "f:5:11: prefix: no slash at its beginning or end\n");
	bad(DISK "  create: true\n", "f:6:11: create: size is missing\n");
	bad(DISK "  size: 1048577\n", "f:6:9: size: expected a multiple of 4096\n");
	bad(DISK "  size: 512KiB\n", "f:6:9: size: 512KiB is below the minimum 1MiB\n");
	bad(DISK "  size: 68719480832KiB\n",
	    "f:6:9: size: more than 16777216 objects: set a larger object_size\n");
	bad(DISK "  size: 2TiB\n  object_size: 64KiB\n",
	    "f:6:9: size: more than 16777216 objects: set a larger object_size\n");
	bad(DISK "  object_size: 32KiB\n",
	    "f:6:16: object_size: 32KiB is below the minimum 64KiB\n");
	bad(DISK "  object_size: 128MiB\n",
	    "f:6:16: object_size: 128MiB is above the maximum 64MiB\n");
	bad(DISK "  object_size: 3MiB\n",
	    "f:6:16: object_size: 3MiB is not a power of two (nearest: 2MiB, 4MiB)\n");
	bad(DISK "  buffers: 0\n", "f:6:12: buffers: 0 is below the minimum 1\n");
	bad(DISK "  buffers: 65\n", "f:6:12: buffers: 65 is above the maximum 64\n");
	bad(DISK "  lease: 999ms\n", "f:6:10: lease: 999ms is below the minimum 1s\n");
	bad(DISK "  lease: 2h\n", "f:6:10: lease: 2h is above the maximum 1h\n");
	bad(DISK "  region: \"a b\"\n", "f:6:11: region: expected a name such as us-east-1\n");
	bad(DISK "  endpoint: s3.example.com\n",
	    "f:6:13: endpoint: expected a URI such as https://host/disk.img\n");
	bad(DISK "  profile: p\n", "f:6:12: profile: credentials_file is missing\n");
	bad(DISK "  key: k\n", "f:6:3: unknown key \"key\"\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
