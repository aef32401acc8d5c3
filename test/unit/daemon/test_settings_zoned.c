/* settings: devices with zones, with the real node. */
#include "daemon/settings/settings.h"
#include "test/unit/daemon/settings_check.h"

#define ZONES_OVER_MEM(zones) "{type: zoned, zones: {" zones "}, backend: {type: mem, size: 1GiB}}"

static void test_good(void **state)
{
	struct settings s;

	(void)state;
	settings_check_parse(
		&s,
		"name: a\nbackend: " ZONES_OVER_MEM("size: 64MiB, capacity: 48MiB, max_open: "
						    "3, max_active: 5, conventional: 2"),
		"");
	assert_string_equal(s.devices[0]->stack, "zoned > mem");
	settings_free(&s);
	settings_check_parse(&s, "name: a\nbackend: " ZONES_OVER_MEM(""), "");
	settings_free(&s);
	/* Those of the block device below; whether it has any is seen when it is opened. */
	settings_check_parse(
		&s, "name: a\nbackend: {type: zoned, backend: {type: file, path: /dev/sdz}}", "");
	assert_string_equal(s.devices[0]->stack, "zoned > file");
	settings_free(&s);
}

static void test_bad(void **state)
{
	(void)state;
	settings_check("name: a\nbackend: " ZONES_OVER_MEM("size: 3MiB"),
		       "f:2:38: size: 3MiB is not a power of two (nearest: 2MiB, 4MiB)\n");
	settings_check("name: a\nbackend: " ZONES_OVER_MEM("size: 4MiB, capacity: 5MiB"),
		       "f:2:54: capacity: is larger than size\n");
	settings_check("name: a\nbackend: " ZONES_OVER_MEM("size: 4MiB, capacity: 5000"),
		       "f:2:54: capacity: is not a multiple of 4096\n");
	settings_check("name: a\nbackend: " ZONES_OVER_MEM("max_open: 5, max_active: 4"),
		       "f:2:42: max_open: is more than max_active, and what is open is active\n");
}

static void test_place(void **state)
{
	(void)state;
	settings_check(
		"name: a\nbackend: {type: throttle, backend: " ZONES_OVER_MEM("") "}",
		"f:2:36: backend: zoned stands at the top of its device: put what is over it below "
		"it\n");
	settings_check(
		"name: a\nbackend: " ZONES_OVER_MEM("") "\ndata_path: copy",
		"f:3:12: data_path: copy is impossible with zones: their requests go by user_copy; "
		"set "
		"data_path: auto\n");
	settings_check(
		"name: a\nbackend: " ZONES_OVER_MEM("") "\nbatch: on",
		"f:3:8: batch: on is impossible with zones: each of their requests is answered by "
		"a "
		"command of its own; set batch: auto\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
