/* qcow2, chain: backing: auto, by images in a folder; which files are found, and which refused. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/printable.h"
#include "backends/qcow2/format/qcow2_create.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/life_internal.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"

static const struct backend_open_params params = { .queue_nr = 1, .depth = 1 };
static char folder[64], error[BACKEND_ERROR_BYTES], path_buf[8][256];

/* A path in the folder of the test. */
static const char *in_folder(const char *name)
{
	static unsigned turn;
	char *buf = path_buf[turn++ % ARRAY_SIZE(path_buf)];

	snprintf(buf, sizeof(path_buf[0]), "%s/%s", folder, name);
	return buf;
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/test_qcow2_resolve.XXXXXX");
	if (!mkdtemp(folder) || mkdir(in_folder("images"), 0700) < 0 ||
	    mkdir(in_folder("bases"), 0700) < 0)
		return -1;
	return 0;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void make_raw(const char *name)
{
	int fd = open(in_folder(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
}

/* base, format NULL: none. */
static void make_image(const char *name, const char *base, const char *format)
{
	const struct qcow2_create c = { .size_bytes = 1 << 20,
					.backing_name = base,
					.backing_format = format };
	int fd = open(in_folder(name), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	static char buf[1 << 20];
	char words[QCOW2_WORDS_BYTES];
	uint64_t bytes;

	assert_int_equal(qcow2_create_check(&c, &bytes, words), 0);
	assert_true(bytes <= sizeof(buf));
	qcow2_create_fill(&c, 0, buf, bytes);
	assert_int_equal(write(fd, buf, bytes), bytes);
	close(fd);
}

/* Of a device over this image; its words are in error. */
static int resolve(const char *image, const char *options, struct backend_spec **ret_spec,
		   struct backend_spec **ret_resolved)
{
	char yaml[512];

	snprintf(yaml, sizeof(yaml),
		 "{type: qcow2, data: {type: delay, backend: {type: file, path: '%s'}}%s}",
		 in_folder(image), options);
	if (backend_spec_from_text(ret_spec, yaml, error, sizeof(error)) < 0)
		fail_msg("%s: %s", yaml, error);
	assert_true(backend_spec_resolves(*ret_spec));
	return backend_resolve(*ret_spec, &params, ret_resolved, error, sizeof(error));
}

/* text and base NULL: any. */
static void found_with(const char *image, const char *options, const char *text, const char *base)
{
	struct backend_spec *spec, *resolved = NULL;
	char buf[BACKEND_SPEC_TEXT_BYTES];
	struct backend_leaf_place place = { 0 };
	unsigned last = 0;

	if (resolve(image, options, &spec, &resolved) < 0)
		fail_msg("%s", error);
	if (text)
		assert_string_equal(backend_spec_text(resolved, buf), text);
	while (backend_spec_leaf(resolved, last + 1))
		last++;
	if (base)
		assert_string_equal(backend_spec_leaf_path(backend_spec_leaf(resolved, last)),
				    in_folder(base));
	backend_spec_leaf_at(resolved, last, &place);
	assert_int_equal(place.is_only_read, last > 0);
	backend_spec_free(resolved);
	backend_spec_free(spec);
}

static void found(const char *image, const char *text, const char *base)
{
	found_with(image, ", backing: auto", text, base);
}

static void refused_with(const char *image, const char *options, int err, const char *words)
{
	struct backend_spec *spec, *resolved = NULL;

	assert_int_equal(resolve(image, options, &spec, &resolved), err);
	if (!strstr(error, words))
		fail_msg("no \"%s\" in: %s", words, error);
	assert_null(resolved);
	backend_spec_free(spec);
}

static void refused(const char *image, int err, const char *words)
{
	refused_with(image, ", backing: auto", err, words);
}

#define ALONE "qcow2 > delay > file"
#define OVER_RAW "qcow2 > (delay > file, file)"
#define OVER_IMAGE "qcow2 > (delay > file, qcow2 > file)"

/* ---- what is found ---- */

static void test_bases(void **state)
{
	(void)state;
	make_raw("images/raw");
	make_image("images/alone", NULL, NULL);
	make_image("images/over_raw", "raw", "raw");
	make_image("images/over_image", "alone", "qcow2");
	make_image("images/over_over", "over_raw", "qcow2");
	found("images/alone", ALONE, "images/alone");
	found("images/over_raw", OVER_RAW, "images/raw");
	found("images/over_image", OVER_IMAGE, "images/alone");
	found("images/over_over", "qcow2 > (delay > file, qcow2 > (2 file))", "images/raw");
	make_image("images/absolute", in_folder("images/raw"), "raw");
	found("images/absolute", OVER_RAW, "images/raw");
	make_image("images/with_scheme", "file:raw", "raw");
	found("images/with_scheme", OVER_RAW, "images/raw");
}

/* Only where the configuration says so. */
static void test_only_with_auto(void **state)
{
	(void)state;
	make_raw("images/raw");
	make_image("images/over_raw", "raw", "raw");
	found_with("images/over_raw", ", backing: none", ALONE, NULL);
	found_with("images/over_raw", "", ALONE, NULL);
	found_with("images/over_raw", ", backing: {type: mem, size: 1M}",
		   "qcow2 > (delay > file, mem)", NULL);
}

/* What is not there yet, or is no image: the open says that. */
static void test_no_image(void **state)
{
	(void)state;
	make_raw("images/raw");
	found("images/raw", ALONE, NULL);
	found("images/missing", ALONE, NULL);
	found("images", ALONE, NULL);
}

/* Names that would not survive a YAML without care. */
static void test_names(void **state)
{
	static const char *const names[] = { "a \"b\" \\c", "[x] {y}, 'z'", "tab\there", "#",
					     "%s%n",	    "\xc3\xa4",	    "./a:b" };
	char name[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(name, sizeof(name), "images/%s",
			 strncmp(names[i], "./", 2) == 0 ? names[i] + 2 : names[i]);
		make_raw(name);
		make_image("images/top", names[i], "raw");
		found("images/top", OVER_RAW, name);
	}
}

/* ---- where they may be ---- */

static void test_folder(void **state)
{
	char options[128];

	(void)state;
	make_raw("bases/raw");
	make_raw("secret");
	make_image("images/over", "../bases/raw", "raw");
	refused("images/over", -EACCES, "is not in ");
	refused("images/over", -EACCES, ": set backing_folder if it may");
	snprintf(options, sizeof(options), ", backing: auto, backing_folder: %s",
		 in_folder("bases"));
	found_with("images/over", options, OVER_RAW, "bases/raw");
	snprintf(options, sizeof(options), ", backing: auto, backing_folder: %s/bas", folder);
	refused_with("images/over", options, -ENOENT, "backing_folder");
	found_with("images/over", ", backing: auto, backing_folder: /", OVER_RAW, "bases/raw");
	assert_int_equal(mkdir(in_folder("base"), 0700), 0);
	snprintf(options, sizeof(options), ", backing: auto, backing_folder: %s",
		 in_folder("base"));
	refused_with("images/over", options, -EACCES, "is not in ");
}

/* A link is where it leads to. */
static void test_links(void **state)
{
	(void)state;
	make_raw("secret");
	make_raw("images/raw");
	assert_int_equal(symlink("../secret", in_folder("images/link")), 0);
	assert_int_equal(symlink("raw", in_folder("images/good_link")), 0);
	make_image("images/bad", "link", "raw");
	make_image("images/good", "good_link", "raw");
	refused("images/bad", -EACCES, "is not in ");
	found("images/good", OVER_RAW, "images/raw");
}

/* The folder of the first image is that of the whole chain. */
static void test_folder_of_a_chain(void **state)
{
	char options[128];

	(void)state;
	make_raw("secret");
	make_raw("bases/raw");
	make_image("bases/bad", "../secret", "raw");
	make_image("bases/good", "raw", "raw");
	make_image("images/over_bad", "../bases/bad", "qcow2");
	make_image("images/over_good", "../bases/good", "qcow2");
	snprintf(options, sizeof(options), ", backing: auto, backing_folder: %s",
		 in_folder("bases"));
	refused_with("images/over_bad", options, -EACCES, "is not in ");
	found_with("images/over_good", options, "qcow2 > (delay > file, qcow2 > (2 file))",
		   "bases/raw");
}

/* ---- what is refused ---- */

static void test_formats(void **state)
{
	(void)state;
	make_raw("images/raw");
	make_image("images/vmdk", "raw", "vmdk");
	make_image("images/unsaid", "raw", NULL);
	refused("images/vmdk", -EOPNOTSUPP, "of the format vmdk: only raw and qcow2 can be read");
	refused("images/unsaid", -EINVAL, "say it with qemu-img rebase -u -F qcow2 (or raw)");
}

static void test_protocols(void **state)
{
	static const char *const names[] = {
		"nbd://host/x", "nbd:unix:/x",	  "json:{\"driver\":\"x\"}",
		"ssh://host/x", "rbd:pool/image", "https://host/x"
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		make_image("images/top", names[i], "raw");
		refused("images/top", -EOPNOTSUPP,
			"which is no path: write the backend for it in the place of backing: auto");
	}
}

static void test_missing(void **state)
{
	(void)state;
	make_image("images/top", "gone", "raw");
	refused("images/top", -ENOENT, "images/gone: ENOENT, it is missing");
}

/* Names in messages end at a letter, wherever they are cut. */
static void test_long_names(void **state)
{
	char name[160];

	(void)state;
	for (size_t shift = 0; shift < 3; shift++) {
		uint32_t code;
		size_t bytes;

		memset(name, 'x', shift);
		for (size_t i = 0; i < 50; i++)
			memcpy(name + shift + 3 * i, "\xe6\xbc\xa2", 4);
		make_image("images/top", name, "raw");
		refused("images/top", -ENOENT, ": ENOENT, it is missing");
		bytes = strlen(error);
		for (size_t at = 0, nr; at < bytes; at += nr) {
			nr = utf8_letter(error + at, bytes - at, &code);
			assert_true(nr > 0);
		}
	}
}

static void test_loop(void **state)
{
	(void)state;
	make_image("images/a", "b", "qcow2");
	make_image("images/b", "a", "qcow2");
	make_image("images/self", "self", "qcow2");
	refused("images/a", -ELOOP, "/images/a stands over itself: a -> b -> a");
	refused("images/self", -ELOOP, "stands over itself: self -> self");
}

static void test_long_chain(void **state)
{
	char name[32], base[32];

	(void)state;
	make_raw("images/0");
	for (int i = 1; i < 65; i++) {
		snprintf(name, sizeof(name), "images/%d", i);
		snprintf(base, sizeof(base), "%d", i - 1);
		make_image(name, base, i == 1 ? "raw" : "qcow2");
	}
	/* 63 images, and the raw file. */
	found("images/63", NULL, "images/0");
	refused("images/64", -E2BIG, "more than 64 above each other, from 64 -> 63 -> 62 -> 61");
}

static void test_data_is_no_file(void **state)
{
	static const char *const data[] = {
		"{type: mem, size: 1M}",
		"{type: stripe, backends: [{type: mem, size: 1M}, {type: mem, size: 1M}]}",
		"{type: qcow2, data: {type: file, path: /x}}",
	};
	struct backend_spec *spec, *resolved = NULL;
	char yaml[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(data); i++) {
		snprintf(yaml, sizeof(yaml), "{type: qcow2, backing: auto, data: %s}", data[i]);
		assert_int_equal(backend_spec_from_text(&spec, yaml, error, sizeof(error)), 0);
		assert_int_equal(backend_resolve(spec, &params, &resolved, error, sizeof(error)),
				 -EOPNOTSUPP);
		assert_non_null(strstr(error, "reads a file, and data is none"));
		backend_spec_free(spec);
	}
}

int main(void)
{
#define FOLDER(fn) cmocka_unit_test_setup_teardown(fn, make_folder, remove_folder)
	const struct CMUnitTest tests[] = {
		FOLDER(test_bases),
		FOLDER(test_only_with_auto),
		FOLDER(test_no_image),
		FOLDER(test_names),
		FOLDER(test_folder),
		FOLDER(test_links),
		FOLDER(test_folder_of_a_chain),
		FOLDER(test_formats),
		FOLDER(test_protocols),
		FOLDER(test_missing),
		FOLDER(test_long_names),
		FOLDER(test_loop),
		FOLDER(test_long_chain),
		FOLDER(test_data_is_no_file),
	};

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
