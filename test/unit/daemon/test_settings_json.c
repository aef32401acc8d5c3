/* settings_json: every device that can be configured is read back from its JSON as an equal one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <glob.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/settings/settings.h"

static int parse(struct settings *s, const char *text)
{
	struct config_errors e;
	char *errors;
	int ret;

	config_errors_init(&e, "f");
	ret = settings_parse_devices(s, text, strlen(text), &e);
	errors = config_errors_text(&e);
	if (ret < 0)
		print_error("%s\n%s", text, errors);
	free(errors);
	config_errors_fini(&e);
	return ret;
}

/* By way of a file, as the state folder does: what is written is not what the parser is given. */
static json_t *through_a_file(const struct device_settings *d)
{
	json_t *json = device_settings_json(d), *again;
	char *text = json_dumps(json, JSON_INDENT(1));

	assert_non_null(text);
	again = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(again);
	json_decref(json);
	free(text);
	return again;
}

static struct device_settings *round_trip(const struct device_settings *d)
{
	json_t *json = through_a_file(d);
	char *text = device_json_text(json);
	struct device_settings *again;
	struct settings s;

	assert_non_null(text);
	assert_int_equal(parse(&s, text), 0);
	assert_int_equal(s.device_nr, 1);
	again = settings_take(&s, 0);
	assert_true(device_settings_equal(d, again));
	assert_int_equal(d->id, again->id);
	assert_string_equal(d->stack, again->stack);
	settings_free(&s);
	json_decref(json);
	free(text);
	return again;
}

static void check_all(const struct settings *s)
{
	for (size_t i = 0; i < s->device_nr; i++)
		device_settings_free(round_trip(s->devices[i]));
}

static void check(const char *text)
{
	struct settings s;

	assert_int_equal(parse(&s, text), 0);
	assert_true(s.device_nr > 0);
	check_all(&s);
	settings_free(&s);
}

/* Of the devices in text, the first differs from the second: what is compared is looked at. */
static void differ(const char *text)
{
	struct device_settings *again;
	struct settings s;

	assert_int_equal(parse(&s, text), 0);
	again = round_trip(s.devices[0]);
	assert_false(device_settings_equal(again, s.devices[1]));
	device_settings_free(again);
	settings_free(&s);
}

static void test_examples(void **state)
{
	struct config_errors e;
	struct settings s;
	size_t device_nr = 0;
	glob_t found;

	(void)state;
	assert_int_equal(glob(UBLKD_SOURCE "/examples/*.yaml", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		config_errors_init(&e, "f");
		assert_int_equal(settings_load(&s, found.gl_pathv[i], &e), 0);
		device_nr += s.device_nr;
		check_all(&s);
		settings_free(&s);
		config_errors_fini(&e);
	}
	assert_true(device_nr >= 10);
	globfree(&found);
}

static void test_every_option_of_a_device(void **state)
{
	(void)state;
	check("{name: a.b_c-1, id: 0x3, queues: 1, depth: 0x20, block_size: 4k, max_io: 1MiB,"
	      " read_only: yes, partition_scan: no, data_path: user_copy, batch: off, recovery: "
	      "hold,"
	      " backend: {type: mem, size: 1M}}");
	check("{name: a, id: ~, queues: null, recovery: , backend: {type: 'null', size: 1T}}");
	differ("[{name: a, id: 1, backend: {type: mem, size: 1M}},"
	       " {name: b, id: 2, backend: {type: mem, size: 1M}}]");
	differ("[{name: a, partition_scan: no, backend: {type: mem, size: 1M}},"
	       " {name: b, partition_scan: yes, backend: {type: mem, size: 1M}}]");
	differ("[{name: a, recovery: fail, backend: {type: mem, size: 1M}},"
	       " {name: b, recovery: none, backend: {type: mem, size: 1M}}]");
}

static void test_stacks(void **state)
{
	(void)state;
	check("name: a\n"
	      "backend:\n"
	      "  type: throttle\n"
	      "  total_iops_sec: 100\n"
	      "  backend:\n"
	      "    type: delay\n"
	      "    all: 4ms\n"
	      "    backend:\n"
	      "      type: error\n"
	      "      errno: EIO\n"
	      "      op: [write, flush]\n"
	      "      rate: 25%\n"
	      "      backend: {type: file, path: /var/tmp/f, size: 1G, create: true}\n");
	differ("[{name: a, backend: {type: delay, all: 1ms, backend: {type: mem, size: 1M}}},"
	       " {name: a2, backend: {type: delay, all: 2ms, backend: {type: mem, size: 1M}}}]");
}

static void test_anchors_and_merge_keys(void **state)
{
	(void)state;
	check("- name: a\n"
	      "  backend: &shared {type: throttle, total_iops_sec: 9,\n"
	      "                    backend: &low {type: mem, size: 1M}}\n"
	      "- {name: b, backend: *shared}\n"
	      "- {name: c, backend: {<<: *shared, total_iops_sec: 10}}\n"
	      "- name: d\n"
	      "  backend: {size: 2M, <<: [{type: mem}, *low]}\n"
	      "- {<<: {depth: 4, queues: 1}, depth: 8, name: e, backend: *low}\n");
}

/* A quoted null is a word, a plain one is nothing; numbers stay what they were written as. */
static void test_words_that_look_like_others(void **state)
{
	(void)state;
	check("{name: 'null', backend: {type: \"null\", size: '4096'}}");
	check("{name: \"123\", backend: {type: file, path: 'true', size: 1M, create: \"true\"}}");
	check("{name: 1e3, backend: {type: file, path: '~', size: 1M, create: true}}");
	check("{name: no, backend: {type: file, path: '*x: [{', size: 1M, create: true}}");
	differ("[{name: a, backend: {type: file, path: 'null', size: 1M, create: true}},"
	       " {name: b, backend: {type: file, path: 'NULL', size: 1M, create: true}}]");
}

/* `path` stands in double quotes, as YAML. */
static void check_path(const char *path)
{
	char text[8192];

	snprintf(text, sizeof(text),
		 "{name: a, backend: {type: file, path: \"%s\", size: 1M, create: true}}", path);
	check(text);
}

/* JSON has in a string what YAML takes only behind a backslash, or for the end of a line. */
static void test_characters(void **state)
{
	static const char *const paths[] = {
		"/a b",
		"/'",
		"/\\\"",
		"/\\\\",
		"/\\/",
		"/#: ,[]{}&*!|>%@`",
		"/\\t\\n\\r",
		"/\\x01",
		"/\\e",
		"/\\x7f",
		"/\\x80\\x9f",
		"/\\N|\\_|",
		"/\\L|\\P",
		"/\\uFEFF.",
		"/\\uFFFE",
		"/\\uFFFF.",
		"/\xc3\xa4",
		"/\\U0001F600",
		"/\\u2027\\u202a",
		"/\\uFFFD",
		"/ \\x20 ",
		"\\L",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		check_path(paths[i]);
}

static void test_a_long_text(void **state)
{
	char path[4001];

	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[2000] = ' ';
	path[sizeof(path) - 1] = '\0';
	check_path(path);
}

static int quiet(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples),
		cmocka_unit_test(test_every_option_of_a_device),
		cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_anchors_and_merge_keys),
		cmocka_unit_test(test_words_that_look_like_others),
		cmocka_unit_test(test_characters),
		cmocka_unit_test(test_a_long_text),
	};

	return cmocka_run_group_tests_name("settings_json", tests, quiet, NULL);
}
