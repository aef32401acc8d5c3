/* settings_snippets: what is read from daemon.devices_dir, in which order, and how it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "daemon/settings/settings.h"
#include "test/rig/fake_backends.h"

#define NULL_DEVICE(name) "{name: " name ", backend: {type: null}}\n"

static char top[] = "/tmp/test_snippets.XXXXXX", folder[64], config[64];
static struct settings s;

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void snippet(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	write_file(path, text);
}

/* Reads the configuration with these devices of its own; the errors must be these. */
static void check(const char *devices, const char *expected)
{
	struct config_errors e;
	char text[512], *errors;
	int ret;

	settings_free(&s);
	snprintf(text, sizeof(text), "daemon: {devices_dir: %s}\ndevices:%s\n", folder, devices);
	write_file(config, text);
	config_errors_init(&e, config);
	ret = settings_load(&s, config, &e);
	errors = config_errors_text(&e);
	assert_string_equal(errors, expected);
	assert_int_equal(ret == 0, *expected == '\0');
	free(errors);
	config_errors_fini(&e);
}

/* The names, in order, with a space behind each. */
static void check_names(const char *expected)
{
	char names[256] = "";

	for (size_t i = 0; i < s.device_nr; i++) {
		strcat(names, s.devices[i]->options.name);
		strcat(names, " ");
	}
	assert_string_equal(names, expected);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdir(folder, 0755);
}

static int empty(void **state)
{
	char command[128];

	(void)state;
	settings_free(&s);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void test_order(void **state)
{
	(void)state;
	snippet("b.yaml", NULL_DEVICE("third"));
	snippet("Z.yaml", "# nothing but a comment\n");
	snippet("a.yaml", "- " NULL_DEVICE("first") "- " NULL_DEVICE("second"));
	snippet("c.yaml", "devices:\n- " NULL_DEVICE("fourth"));
	check(" [" NULL_DEVICE("own") "]", "");
	check_names("own first second third fourth ");
	check("", "");
	check_names("first second third fourth ");
}

static void test_passed_over(void **state)
{
	(void)state;
	snippet(".a.yaml", NULL_DEVICE("hidden"));
	snippet("a.yaml~", NULL_DEVICE("backup"));
	snippet("a.yml", NULL_DEVICE("other"));
	snippet(".yaml", NULL_DEVICE("nameless"));
	check("", "");
	check_names("");
}

static void test_no_folder(void **state)
{
	(void)state;
	assert_int_equal(rmdir(folder), 0);
	check(" [" NULL_DEVICE("own") "]", "");
	check_names("own ");
}

static void test_no_such_folder(void **state)
{
	char expected[256];

	(void)state;
	assert_int_equal(rmdir(folder), 0);
	write_file(folder, "");
	snprintf(expected, sizeof(expected),
		 "%s:1:23: devices_dir: cannot read the folder %s: Not a directory (ENOTDIR)\n",
		 config, folder);
	check("", expected);
}

static void test_relative(void **state)
{
	struct config_errors e;
	char *errors;

	(void)state;
	write_file(config, "daemon: {devices_dir: devices.d}\n");
	config_errors_init(&e, "f");
	assert_int_equal(settings_load(&s, config, &e), -EINVAL);
	errors = config_errors_text(&e);
	assert_string_equal(errors, "f:1:23: devices_dir: \"devices.d\" is no absolute path: "
				    "begin it with /\n");
	free(errors);
	config_errors_fini(&e);
}

/* Each in its own file and line, and of all files at once. */
static void test_errors(void **state)
{
	char expected[1024];

	(void)state;
	snippet("a.yaml", "name: a\nbackend: {type: mme, size: 1M}\n");
	snippet("b.yaml", "name: [\n");
	snippet("c.yaml", "text\n");
	snippet("d.yaml", "name: d\nbackend: {type: mem, size: lots}\n");
	snprintf(expected, sizeof(expected),
		 "%s:3:3: expected a device: a map with name and backend\n"
		 "%s/a.yaml:2:17: type: \"mme\" is not one of null, mem, file (did you mean "
		 "\"mem\"?)\n"
		 "%s/b.yaml:2:1: expected a value\n"
		 "%s/c.yaml:1:1: expected a device: a map with name and backend\n"
		 "%s/d.yaml:2:28: size: \"lots\" is not a size (examples: 4096, 64k, 1MiB, 10G)\n",
		 config, folder, folder, folder, folder);
	check("\n- x", expected);
}

static void test_not_a_file(void **state)
{
	char path[128], expected[512];

	(void)state;
	snprintf(path, sizeof(path), "%s/a.yaml", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	/* Nobody waits for who writes into it. */
	snprintf(path, sizeof(path), "%s/b.yaml", folder);
	assert_int_equal(mkfifo(path, 0644), 0);
	snprintf(expected, sizeof(expected),
		 "%s/a.yaml: cannot read: Is a directory (EISDIR)\n"
		 "%s/b.yaml: no regular file\n",
		 folder, folder);
	check("", expected);
}

static void test_taken_twice(void **state)
{
	char expected[1024];

	(void)state;
	snippet("a.yaml", "- " NULL_DEVICE("own") "- " NULL_DEVICE("x"));
	snippet("b.yaml", "backend: {type: null}\nname: x\n");
	snprintf(expected, sizeof(expected),
		 "%s/a.yaml:1:10: name: \"own\" is taken already (%s:3:10)\n"
		 "%s/b.yaml:2:7: name: \"x\" is taken already (%s/a.yaml:2:10)\n",
		 folder, config, folder, folder);
	check("\n- " NULL_DEVICE("own"), expected);
}

static void test_too_many(void **state)
{
	char expected[256];
	FILE *file;

	(void)state;
	snippet("a.yaml", NULL_DEVICE("a"));
	snprintf(expected, sizeof(expected), "%s/b.yaml", folder);
	file = fopen(expected, "w");
	assert_non_null(file);
	for (unsigned i = 0; i < SETTINGS_DEVICES_MAX; i++)
		fprintf(file, "- {name: d%u, backend: {type: null}}\n", i);
	fclose(file);
	snippet("c.yaml", NULL_DEVICE("c"));
	snprintf(expected, sizeof(expected),
		 "%s/b.yaml:1024:3: more than 1024 devices\n"
		 "%s/c.yaml:1:1: more than 1024 devices\n",
		 folder, folder);
	check("", expected);
}

static void test_folder_may_change(void **state)
{
	struct daemon_settings a = { .devices_dir = (char[]){ "/a" }, .busy_poll_us = 1 }, b = a;

	(void)state;
	b.devices_dir = NULL;
	assert_true(daemon_settings_equal(&a, &b));
	assert_true(daemon_settings_equal(&b, &a));
	b.busy_poll_us = 2;
	assert_false(daemon_settings_equal(&a, &b));
}

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(top))
		return -1;
	snprintf(folder, sizeof(folder), "%s/devices.d", top);
	snprintf(config, sizeof(config), "%s/ublkd.yaml", top);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(config);
	return rmdir(top);
}

#define SNIPPET_TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, empty)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SNIPPET_TEST(test_order),      SNIPPET_TEST(test_passed_over),
		SNIPPET_TEST(test_no_folder),  SNIPPET_TEST(test_no_such_folder),
		SNIPPET_TEST(test_relative),   SNIPPET_TEST(test_errors),
		SNIPPET_TEST(test_not_a_file), SNIPPET_TEST(test_taken_twice),
		SNIPPET_TEST(test_too_many),   SNIPPET_TEST(test_folder_may_change),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
