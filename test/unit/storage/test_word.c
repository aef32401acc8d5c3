/* word: which backend and option a word of the command line is for. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "storage/word.h"

static const struct option file_options[] = { { .name = "create", .type = OPTION_BOOL },
					      { .name = "path", .type = OPTION_STRING },
					      OPTION_END };
static const struct option net_options[] = { { .name = "uri", .type = OPTION_STRING }, OPTION_END };
static const char *const net_schemes[] = { "net", "nets+unix", NULL };
static const struct backend_uri net_uri = { .option = &net_options[0], .schemes = net_schemes };
static const char *const far_schemes[] = { "far", NULL };
static const struct backend_uri far_uri = { .option = &net_options[0], .schemes = far_schemes };

static const struct backend none = { .name = "none" };
static const struct backend net = { .name = "net", .options = net_options, .uri = &net_uri };
static const struct backend file = { .name = "file",
				     .options = file_options,
				     .path_option = &file_options[1] };
static const struct backend far = { .name = "far", .options = net_options, .uri = &far_uri };

static const struct backend image = { .name = "image", .is_image_format = true };

/* In the place of backends/registry.c. */
const struct backend *const backend_registry[] = { &none, &net, &file, &image, &far, NULL };

const struct backend *backend_find(const char *name)
{
	(void)name;
	return NULL;
}

static void check(const char *text, const struct backend *backend, const struct option *option)
{
	char error[WORD_ERROR_BYTES];
	struct word word;

	assert_int_equal(word_find(text, &word, error), 0);
	assert_ptr_equal(word.backend, backend);
	assert_ptr_equal(word.option, option);
	assert_int_equal(word.is_uri, backend != &file);
	assert_null(word.format);
}

/* value: what is left as the path. */
static void check_image(const char *text, const char *value, bool has_format)
{
	char error[WORD_ERROR_BYTES];
	struct word word;

	assert_int_equal(word_find(text, &word, error), 0);
	assert_ptr_equal(word.backend, &file);
	assert_ptr_equal(word.format, &image);
	assert_int_equal(word.has_format, has_format);
	assert_string_equal(text + word.value_at, value);
	assert_false(word.is_uri);
}

static void refused(const char *text, const char *expected)
{
	char error[WORD_ERROR_BYTES];
	struct word word = { .backend = &none };

	assert_int_equal(word_find(text, &word, error), -EINVAL);
	assert_string_equal(error, expected);
	assert_ptr_equal(word.backend, &none);
}

static void test_uris(void **state)
{
	(void)state;
	check("net://host/export", &net, &net_options[0]);
	check("nets+unix:///export?socket=/run/x", &net, &net_options[0]);
	check("NET://host", &net, &net_options[0]);
	check("far://", &far, &net_options[0]);
}

static void test_paths(void **state)
{
	static const char *const paths[] = { "/dev/sda", "disk.img", "net",	  "net:/x",
					     "",	 ".",	     "./net://x", "/net://x",
					     "://",	 "4://x",    "a b://x",	  "\xc3\xbc://x" };

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		check(paths[i], &file, &file_options[1]);
}

static void test_images(void **state)
{
	static const char *const plain[] = { "image",	    "image:",	 ".image",    "/srv/.image",
					     "/x.image/y",  "ximage:/y", "/image:/x", "./image:x",
					     "x.image.bak", "x.images",	 "ximage" };

	(void)state;
	check_image("image:/srv/disk", "/srv/disk", true);
	check_image("Image:disk.raw", "disk.raw", true);
	check_image("image:x.image", "x.image", true);
	check_image("/srv/disk.image", "/srv/disk.image", false);
	check_image("./a:b.IMAGE", "./a:b.IMAGE", false);
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		check(plain[i], &file, &file_options[1]);
	refused("image://x", "unknown scheme \"image\": give the path of a file or a block device, "
			     "or a URI of net, nets+unix, far");
}

static void test_unknown_schemes(void **state)
{
	char text[1024], *end = text + 900;

	(void)state;
	refused("nte://host", "unknown scheme \"nte\" (did you mean \"net\"?)");
	refused("net+unix://host", "unknown scheme \"net+unix\" (did you mean \"nets+unix\"?)");
	refused("ne://host", "unknown scheme \"ne\" (did you mean \"net\"?)");
	refused("gopher://host",
		"unknown scheme \"gopher\": give the path of a file or a block device, or a URI of "
		"net, nets+unix, far");
	memset(text, 'x', 900);
	strcpy(end, "://");
	refused(text, "unknown scheme \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": give the path of a file "
		      "or a block device, or a URI of net, nets+unix, far");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uris),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_images),
		cmocka_unit_test(test_unknown_schemes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
