/* What the user can say about an RBD image: words, options, and every refusal. */
#include "backends/rbd/rbd_config.h"
#include "storage/spec.h"
#include "test/rig/backend_options.h"
#include "test/rig/fake_ceph.h"

static void bad(const char *backend, const char *errors)
{
	options_bad("rbd", backend, errors);
}

/* The image that comes of it, as text. */
static const char *good(const char *backend)
{
	static char text[1100];
	struct ceph_target target;
	struct settings s;
	char error[256];

	options_parse(&s, "rbd", backend, "");
	assert_int_equal(
		ceph_config_target(s.devices[0]->backend->config, &target, error, sizeof(error)),
		0);
	settings_free(&s);
	return ceph_target_format(&target, text, sizeof(text));
}

/* ---- words ---- */

static const char *word_of(const char *word)
{
	static char text[1100];
	struct ceph_target target;
	char error[256] = "";

	if (ceph_word_parse(word, &target, error, sizeof(error)) == 0) {
		assert_string_equal(error, "");
		return ceph_target_format(&target, text, sizeof(text));
	}
	assert_string_equal(error, "expected rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE, with "
				   "@SNAPSHOT behind it as one likes");
	return "no";
}

static void test_words(void **state)
{
	(void)state;
	assert_string_equal(word_of("rbd:p/i"), "p/i");
	assert_string_equal(word_of("RBD:p/i"), "p/i");
	assert_string_equal(word_of("rbd:p/n/i"), "p/n/i");
	assert_string_equal(word_of("rbd:p/i@s"), "p/i@s");
	assert_string_equal(word_of("rbd:p/n/i@s.1"), "p/n/i@s.1");
	assert_string_equal(word_of("rbd:p/i:j"), "p/i:j");
}

static void test_words_that_are_none(void **state)
{
	static const char *const words[] = {
		"",	    "rbd:",	   "rbd",	  "rbd:p",    "rbd:/i",
		"rbd:p/",   "rbd:p//i",	   "rbd:p/n/",	  "rbd:/n/i", "rbd:p/n/m/i",
		"rbd:p/i@", "rbd:p/i@s@t", "rbd:p/i@s/t", "rbd:@s",   "rbd:p@s/i",
		"rbd:p/@s", "nbd:p/i",	   "p/i",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		assert_string_equal(word_of(words[i]), "no");
}

/* A name of each kind, of so many bytes. */
static const char *word_with(const char *before, size_t bytes, const char *behind)
{
	static char word[1000];
	char name[300] = "";

	memset(name, 'x', bytes);
	snprintf(word, sizeof(word), "%s%s%s", before, name, behind);
	return word_of(word);
}

static void test_long_words(void **state)
{
	(void)state;
	assert_int_equal(strlen(word_with("rbd:", 255, "/i")), 257);
	assert_int_equal(strlen(word_with("rbd:p/", 255, "/i")), 259);
	assert_int_equal(strlen(word_with("rbd:p/", 255, "")), 257);
	assert_int_equal(strlen(word_with("rbd:p/i@", 255, "")), 259);
	assert_string_equal(word_with("rbd:", 256, "/i"), "no");
	assert_string_equal(word_with("rbd:p/", 256, "/i"), "no");
	assert_string_equal(word_with("rbd:p/", 256, ""), "no");
	assert_string_equal(word_with("rbd:p/i@", 256, ""), "no");
}

/* ---- options ---- */

static void test_the_image(void **state)
{
	(void)state;
	assert_string_equal(good("  uri: rbd:p/n/i@s\n"), "p/n/i@s");
	assert_string_equal(good("  pool: p\n  image: i\n"), "p/i");
	assert_string_equal(good("  pool: p\n  image: i\n  namespace: n\n  snapshot: s\n"),
			    "p/n/i@s");
}

static void test_no_image(void **state)
{
	(void)state;
	bad("  uri: rbd:p\n", "f:4:8: uri: expected rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE, with "
			      "@SNAPSHOT behind it as one likes\n");
	bad("  image: i\n", "f:3:3: pool: the pool is missing: say uri, or pool and image\n");
	bad("  pool: p\n", "f:3:3: image: the image is missing: rbd ls --pool POOL lists them\n");
	bad("  conf: /c\n", "f:3:3: pool: the pool is missing: say uri, or pool and image\n");
}

static void test_said_twice(void **state)
{
	static const char *const also[] = { "pool", "namespace", "image", "snapshot" };
	char text[100];

	(void)state;
	for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++) {
		snprintf(text, sizeof(text), "  uri: rbd:p/i\n  %s: x\n", also[i]);
		bad(text,
		    "f:4:8: uri: it says pool, namespace, image and snapshot: say them once\n");
	}
	bad("  uri: rbd:p/i\n  keyring: /k\n  key_file: /f\n",
	    "f:6:13: key_file: keyring has a key already: say one of them\n");
}

static void test_encryption(void **state)
{
	(void)state;
	good("  uri: rbd:p/i\n  encryption: luks2\n  passphrase_file: /f\n");
	bad("  uri: rbd:p/i\n  encryption: luks1\n",
	    "f:5:15: encryption: passphrase_file is missing\n");
	bad("  uri: rbd:p/i\n  passphrase_file: /f\n",
	    "f:5:20: passphrase_file: say how the image is encrypted: encryption\n");
}

static void test_values(void **state)
{
	(void)state;
	bad("  uri: rbd:p/i\n  exclusive: on\n  cache: yes\n  images_per_client: 0\n",
	    "f:5:14: exclusive: \"on\" is not one of auto, hold, off\n"
	    "f:6:10: cache: \"yes\" is not one of off, writearound, writethrough, writeback\n"
	    "f:7:22: images_per_client: 0 is below the minimum 1\n");
	bad("  pool: ''\n  image: i\n  user: ''\n",
	    "f:4:9: pool: must not be empty\nf:6:9: user: must not be empty\n");
}

/* What the backend sets by itself. */
static void test_options_of_ours(void **state)
{
	static const char *const option[][2] = {
		{ "rbd_cache", "cache" },
		{ "rbd cache", "cache" }, /* the same to Ceph */
		{ "rbd cache_policy", "cache" },
		{ "rbd_cache_policy", "cache" },
		{ "client_mount_timeout", "timeout" },
		{ "rados_mon_op_timeout", "timeout" },
		{ "rados_osd_op_timeout", "on_disconnect" },
		{ "mon_host", "mon_host" },
		{ "mon host", "mon_host" },
		{ "keyring", "keyring" },
		{ "keyfile", "key_file" },
		{ "key", "key_file" },
	};
	char text[200], errors[200];

	(void)state;
	for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++) {
		snprintf(text, sizeof(text), "  uri: rbd:p/i\n  options: {'%s': x}\n",
			 option[i][0]);
		snprintf(errors, sizeof(errors), "f:5:12: options: %s: set %s instead\n",
			 option[i][0], option[i][1]);
		bad(text, errors);
	}
}

static void test_options_of_ceph(void **state)
{
	(void)state;
	good("  uri: rbd:p/i\n  options: {rbd_readahead_max_bytes: 0, ms_mode: crc}\n");
	good("  uri: rbd:p/i\n  options: {}\n");
	bad("  uri: rbd:p/i\n  options: [a]\n",
	    "f:5:12: options: expected a map of Ceph's options: {NAME: VALUE}\n");
	bad("  uri: rbd:p/i\n  options: {a: 1, b: [c]}\n",
	    "f:5:12: options: b: expected a value\n");
}

static void test_equal(void **state)
{
	struct settings a, b;

	(void)state;
	options_parse(&a, "rbd", "  uri: rbd:p/i\n  options: {a: 1}\n", "");
	options_parse(&b, "rbd", "  uri: rbd:p/i\n  options: {a: 2}\n", "");
	assert_true(backend_spec_equal(a.devices[0]->backend, a.devices[0]->backend));
	assert_false(backend_spec_equal(a.devices[0]->backend, b.devices[0]->backend));
	settings_free(&a);
	settings_free(&b);
}

static int setup(void **state)
{
	(void)state;
	fake_start();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_stop();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),		cmocka_unit_test(test_words_that_are_none),
		cmocka_unit_test(test_long_words),	cmocka_unit_test(test_the_image),
		cmocka_unit_test(test_no_image),	cmocka_unit_test(test_said_twice),
		cmocka_unit_test(test_encryption),	cmocka_unit_test(test_values),
		cmocka_unit_test(test_options_of_ours), cmocka_unit_test(test_options_of_ceph),
		cmocka_unit_test(test_equal),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
