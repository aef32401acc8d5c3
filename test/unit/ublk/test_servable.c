/* Which devices of the driver are taken over, and what is said about the others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ublk/data_path.h"
#include "ublk/partition_scan.h"
#include "ublk/recovery.h"
#include "ublk/servable.h"
#include "ublk/ublk_abi.h"

/* What Linux 7.2 sets by itself, and what ublkd asks for wherever it can. */
#define OF_THE_DRIVER                                                                              \
	(UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_URING_CMD_COMP_IN_TASK | UBLK_F_PER_IO_DAEMON |          \
	 UBLK_F_BUF_REG_OFF_DAEMON | UBLK_F_SAFE_STOP_DEV | UBLK_F_UPDATE_SIZE)

/* names: what the error has to name, or NULL: none. */
static void check_flags(uint64_t flags, const char *names)
{
	char error[SERVABLE_ERROR_BYTES] = "", words[SERVABLE_ERROR_BYTES] = "";
	int ret = servable_check(flags, error);

	if (names)
		snprintf(words, sizeof(words),
			 "the device in the driver has %s, which this ublkd does not serve: "
			 "another program or a newer ublkd has made it; let that serve it, or "
			 "give the device up with ublkctl del",
			 names);
	assert_int_equal(ret, names ? -EOPNOTSUPP : 0);
	assert_string_equal(error, words);
}

static void test_what_ublkd_makes(void **state)
{
	(void)state;
	for (int path = DATA_PATH_COPY; path < DATA_PATH_NR; path++)
		for (int recovery = 0; recovery < RECOVERY_NR; recovery++)
			for (int bits = 0; bits < 4; bits++) {
				struct data_choice choice = { .path = (enum data_path)path,
							      .batch = bits & 1 };

				check_flags(OF_THE_DRIVER | data_path_flags(&choice) |
						    partition_scan_flags(bits & 2) |
						    recovery_flags((enum recovery)recovery),
					    NULL);
			}
}

/* Or no device could be recovered on a kernel that is newer than ublkd. */
static void test_flags_of_newer_drivers(void **state)
{
	(void)state;
	check_flags(OF_THE_DRIVER | UBLK_F_QUIESCE | ~0ull << 20, NULL);
}

static void test_what_others_make(void **state)
{
	(void)state;
	check_flags(OF_THE_DRIVER | UBLK_F_NEED_GET_DATA, "NEED_GET_DATA");
	check_flags(UBLK_F_USER_RECOVERY | UBLK_F_UNPRIVILEGED_DEV, "UNPRIVILEGED_DEV");
}

static void test_other_ways_of_the_data(void **state)
{
	(void)state;
	check_flags(UBLK_F_SUPPORT_ZERO_COPY, "ZERO_COPY");
	check_flags(UBLK_F_AUTO_BUF_REG, "AUTO_BUF_REG");
	check_flags(UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG, "ZERO_COPY with AUTO_BUF_REG");
	check_flags(UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_BATCH_IO, "ZERO_COPY with BATCH_IO");
}

static void test_zones_by_user_copy(void **state)
{
	(void)state;
	check_flags(OF_THE_DRIVER | UBLK_F_ZONED | UBLK_F_USER_COPY, NULL);
	check_flags(OF_THE_DRIVER | UBLK_F_ZONED, "ZONED");
	check_flags(UBLK_F_ZONED | UBLK_F_USER_COPY | UBLK_F_BATCH_IO,
		    "USER_COPY with ZONED with BATCH_IO");
}

static void test_integrity_by_user_copy(void **state)
{
	const uint64_t zero_copy = UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG;

	(void)state;
	check_flags(OF_THE_DRIVER | UBLK_F_INTEGRITY | UBLK_F_USER_COPY, NULL);
	check_flags(UBLK_F_INTEGRITY | UBLK_F_USER_COPY | UBLK_F_BATCH_IO, NULL);
	check_flags(UBLK_F_INTEGRITY | UBLK_F_USER_COPY | zero_copy, NULL);
	check_flags(UBLK_F_INTEGRITY, "INTEGRITY");
	check_flags(UBLK_F_INTEGRITY | UBLK_F_ZONED | UBLK_F_USER_COPY,
		    "USER_COPY with ZONED with INTEGRITY");
}

static void test_shared_memory_by_user_copy(void **state)
{
	(void)state;
	check_flags(OF_THE_DRIVER | UBLK_F_SHMEM_ZC | UBLK_F_USER_COPY, NULL);
	check_flags(OF_THE_DRIVER | UBLK_F_SHMEM_ZC | UBLK_F_USER_COPY | UBLK_F_BATCH_IO, NULL);
	check_flags(UBLK_F_SHMEM_ZC, "SHMEM_ZC");
	check_flags(UBLK_F_SHMEM_ZC | UBLK_F_ZONED | UBLK_F_USER_COPY,
		    "USER_COPY with ZONED with SHMEM_ZC");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_ublkd_makes),
		cmocka_unit_test(test_flags_of_newer_drivers),
		cmocka_unit_test(test_what_others_make),
		cmocka_unit_test(test_other_ways_of_the_data),
		cmocka_unit_test(test_zones_by_user_copy),
		cmocka_unit_test(test_integrity_by_user_copy),
		cmocka_unit_test(test_shared_memory_by_user_copy),
	};

	return cmocka_run_group_tests_name("servable", tests, NULL, NULL);
}
