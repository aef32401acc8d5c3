/* Configurations of a daemon without CAP_SYS_ADMIN: places of files, what is chosen and refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "settings_check.h"
#include "ublk/recovery.h"

#define MEM "backend: {type: mem, size: 1MiB}}\n"
#define NOWHERE "/nonexistent/ublkd.yaml"

static void use_mode(bool unprivileged, bool user_paths, bool file_optional)
{
	settings_set_mode(&(struct settings_mode){ .unprivileged = unprivileged,
						   .user_paths = user_paths,
						   .file_optional = file_optional });
}

static int load_missing(struct settings *s, const char *errors)
{
	struct config_errors e;
	int ret;

	config_errors_init(&e, NOWHERE);
	ret = settings_load(s, NOWHERE, &e);
	if (errors)
		check_errors(&e, errors);
	config_errors_fini(&e);
	return ret;
}

static enum recovery recovery_of(const char *text)
{
	enum recovery recovery;
	struct settings s;

	settings_check_parse(&s, text, "");
	recovery = (enum recovery)s.devices[0]->options.recovery;
	settings_free(&s);
	return recovery;
}

static void test_chosen(void **state)
{
	(void)state;
	use_mode(true, false, false);
	assert_int_equal(recovery_of("{name: a, " MEM), RECOVERY_NONE);
	assert_int_equal(recovery_of("{name: a, recovery: none, " MEM), RECOVERY_NONE);
	use_mode(false, false, false);
	assert_int_equal(recovery_of("{name: a, " MEM), RECOVERY_REISSUE);
	assert_int_equal(recovery_of("{name: a, recovery: hold, " MEM), RECOVERY_HOLD);
}

static void test_refused(void **state)
{
	(void)state;
	use_mode(true, false, false);
	settings_check(
		"{name: a, recovery: reissue, " MEM,
		"f:1:21: recovery: reissue is impossible without CAP_SYS_ADMIN: the driver "
		"lets the devices of such a daemon die with it; set recovery: none, or leave "
		"it out\n");
	settings_check("{name: a, data_path: user_copy, " MEM,
		       "f:1:22: data_path: user_copy is impossible without CAP_SYS_ADMIN: the "
		       "driver keeps it from such a daemon; set data_path: auto, which is copy "
		       "here\n");
	use_mode(false, false, false);
	settings_check("{name: a, data_path: user_copy, recovery: reissue, " MEM, "");
}

/* The kernel kills the daemon when a request takes 30 s. */
static void test_outage(void **state)
{
	(void)state;
	use_mode(true, false, false);
	settings_check("{name: a, backend: {type: nbd, uri: \"nbd://h\"}}", "");
	settings_check(
		"{name: a, backend: {type: nbd, uri: \"nbd://h\", on_disconnect: {queue: 20s}}}",
		"");
	settings_check(
		"{name: a, backend: {type: nbd, uri: \"nbd://h\", on_disconnect: forever}}",
		"f:1:63: on_disconnect: at most {queue: 20s} without CAP_SYS_ADMIN: the kernel "
		"kills such a daemon when a request takes 30s\n");
	use_mode(false, false, false);
	settings_check("{name: a, backend: {type: nbd, uri: \"nbd://h\", on_disconnect: forever}}",
		       "");
}

static void test_paths(void **state)
{
	struct settings s;

	(void)state;
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	setenv("XDG_CONFIG_HOME", "/c", 1);
	setenv("XDG_STATE_HOME", "/s", 1);
	use_mode(true, true, true);
	assert_int_equal(load_missing(&s, ""), 0);
	assert_int_equal(s.device_nr, 0);
	assert_string_equal(s.daemon.control, "/run/user/7/ublkd/control.sock");
	assert_string_equal(s.daemon.state_dir, "/s/ublkd");
	assert_string_equal(s.daemon.devices_dir, "/c/ublkd/devices.d");
	settings_free(&s);
	unsetenv("XDG_RUNTIME_DIR");
	assert_int_equal(load_missing(&s, NULL), -EINVAL);
	settings_free(&s);
	/* The file must be there when it was named. */
	use_mode(true, true, false);
	assert_int_equal(load_missing(&s, NULL), -ENOENT);
	settings_free(&s);
	use_mode(false, false, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chosen),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_outage),
		cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
