/* partition_scan: what the driver is asked for, who is refused, and what a recovery keeps. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ublk/device/device_internal.h"
#include "ublk/partition_scan.h"
#include "ublk/ublk_abi.h"

#define LINUX_6_17 (UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE | UBLK_F_AUTO_BUF_REG)
#define LINUX_7_0 (LINUX_6_17 | UBLK_F_NO_AUTO_PART_SCAN)

static void test_flags(void **state)
{
	(void)state;
	assert_int_equal(partition_scan_flags(true), 0);
	assert_int_equal(partition_scan_flags(false), UBLK_F_NO_AUTO_PART_SCAN);
	assert_true(partition_scan_of_flags(LINUX_6_17));
	assert_false(partition_scan_of_flags(LINUX_7_0));
}

static void test_what_a_driver_can(void **state)
{
	char error[PARTITION_SCAN_ERROR_BYTES] = "untouched";

	(void)state;
	assert_int_equal(partition_scan_check(true, LINUX_6_17, error), 0);
	assert_int_equal(partition_scan_check(true, LINUX_7_0, error), 0);
	assert_int_equal(partition_scan_check(false, LINUX_7_0, error), 0);
	assert_string_equal(error, "untouched");
	assert_int_equal(partition_scan_check(false, LINUX_6_17, error), -EOPNOTSUPP);
	assert_string_equal(error, "partition_scan: no needs a kernel whose ublk driver has "
				   "NO_AUTO_PART_SCAN (Linux 7.0); set partition_scan: yes");
}

/* The driver has the flag since the device was added, whatever the configuration says by now. */
static void test_a_recovery_keeps_it(void **state)
{
	struct device_past past = { .info = { .flags = LINUX_7_0 } };
	struct device_spec spec = { .no_partition_scan = false };

	(void)state;
	device_spec_take_over(&spec, &past);
	assert_true(spec.no_partition_scan);
	past.info.flags = LINUX_6_17;
	device_spec_take_over(&spec, &past);
	assert_false(spec.no_partition_scan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_what_a_driver_can),
		cmocka_unit_test(test_a_recovery_keeps_it),
	};

	return cmocka_run_group_tests_name("partition_scan", tests, NULL, NULL);
}
