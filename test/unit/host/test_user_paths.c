/* Where a user's files are, by the environment. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/user_paths.h"

static void check_path(enum user_path which, const char *wanted)
{
	char path[PATH_MAX] = "untouched";

	assert_int_equal(user_path(which, path), wanted ? 0 : -ENOENT);
	assert_string_equal(path, wanted ? wanted : "untouched");
	assert_true(strlen(user_path_cure(which)) > 0);
}

static void clear_variables(void)
{
	unsetenv("XDG_RUNTIME_DIR");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("XDG_STATE_HOME");
	unsetenv("HOME");
}

static void test_variables(void **state)
{
	(void)state;
	clear_variables();
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	setenv("XDG_CONFIG_HOME", "/c", 1);
	setenv("XDG_STATE_HOME", "/s", 1);
	setenv("HOME", "/home/a", 1);
	check_path(USER_PATH_CONTROL, "/run/user/7/ublkd/control.sock");
	check_path(USER_PATH_CONFIG, "/c/ublkd/ublkd.yaml");
	check_path(USER_PATH_DEVICES, "/c/ublkd/devices.d");
	check_path(USER_PATH_STATE, "/s/ublkd");
}

static void test_defaults(void **state)
{
	(void)state;
	clear_variables();
	setenv("HOME", "/home/a", 1);
	check_path(USER_PATH_CONTROL, NULL);
	check_path(USER_PATH_CONFIG, "/home/a/.config/ublkd/ublkd.yaml");
	check_path(USER_PATH_DEVICES, "/home/a/.config/ublkd/devices.d");
	check_path(USER_PATH_STATE, "/home/a/.local/state/ublkd");
}

/* The specification has such variables ignored. */
static void test_relative(void **state)
{
	(void)state;
	clear_variables();
	setenv("XDG_RUNTIME_DIR", "run", 1);
	setenv("XDG_CONFIG_HOME", "", 1);
	setenv("HOME", "here", 1);
	for (int which = 0; which < USER_PATH_NR; which++)
		check_path((enum user_path)which, NULL);
}

static void test_too_long(void **state)
{
	char folder[PATH_MAX], path[PATH_MAX];

	(void)state;
	clear_variables();
	memset(folder, 'a', sizeof(folder) - 1);
	folder[0] = '/';
	folder[sizeof(folder) - 1] = '\0';
	setenv("XDG_RUNTIME_DIR", folder, 1);
	assert_int_equal(user_path(USER_PATH_CONTROL, path), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_relative),
		cmocka_unit_test(test_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
