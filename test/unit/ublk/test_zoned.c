/* Devices with zones towards the driver: which way they go, what the block layer is told. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "storage/registry.h"
#include "test/unit/ublk/params_check.h"
#include "ublk/data_path.h"
#include "ublk/ublk_abi.h"

#define LINUX_6_5 UBLK_F_USER_COPY
#define LINUX_6_12 (LINUX_6_5 | UBLK_F_ZONED)
#define LINUX_7_2 (LINUX_6_12 | UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG | UBLK_F_BATCH_IO)

static char error[DATA_PATH_ERROR_BYTES];
static struct data_choice choice;

static int choose(enum data_path wish, enum batch_choice batch, uint64_t features)
{
	const struct backend_spec low = { .ops = &backend_file },
				  spec = { .ops = &backend_zoned, .child = &low };

	error[0] = '\0';
	return data_path_choose(&choice, wish, batch, &spec, features, error);
}

static void test_way(void **state)
{
	static const uint64_t kernels[] = { LINUX_6_12, LINUX_7_2 };
	struct data_choice again;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(kernels); i++) {
		assert_int_equal(choose(DATA_PATH_AUTO, BATCH_AUTO, kernels[i]), 0);
		assert_int_equal(data_path_flags(&choice), UBLK_F_ZONED | UBLK_F_USER_COPY);
		data_path_of_flags(&again, data_path_flags(&choice));
		assert_true(again.zoned && again.path == DATA_PATH_USER_COPY && !again.batch);
	}
	assert_int_equal(choose(DATA_PATH_USER_COPY, BATCH_OFF, LINUX_7_2), 0);
	assert_int_equal(data_path_flags(&choice), UBLK_F_ZONED | UBLK_F_USER_COPY);
	/* Others have nothing of it. */
	data_path_of_flags(&again, UBLK_F_USER_COPY);
	assert_false(again.zoned);
}

static void test_refused(void **state)
{
	(void)state;
	assert_int_equal(choose(DATA_PATH_ZERO_COPY, BATCH_AUTO, LINUX_7_2), -EINVAL);
	assert_non_null(strstr(error, "data_path: zero_copy is impossible with zones"));
	assert_int_equal(choose(DATA_PATH_COPY, BATCH_AUTO, LINUX_7_2), -EINVAL);
	assert_non_null(strstr(error, "data_path: copy is impossible with zones"));
	assert_int_equal(choose(DATA_PATH_AUTO, BATCH_ON, LINUX_7_2), -EINVAL);
	assert_non_null(strstr(error, "batch: on is impossible with zones"));
	assert_int_equal(choose(DATA_PATH_AUTO, BATCH_AUTO, LINUX_6_5), -EOPNOTSUPP);
	assert_non_null(strstr(error, "ZONED (Linux 6.6)"));
	assert_int_equal(choose(DATA_PATH_AUTO, BATCH_AUTO, UBLK_F_ZONED), -EOPNOTSUPP);
}

static struct backend_limits limits_with(uint64_t zone_bytes)
{
	return (struct backend_limits){ .size_bytes = GIB(1),
					.caps = BACKEND_CAP_FLUSH,
					.boundary_bytes = (uint32_t)zone_bytes,
					.zones = { .bytes = zone_bytes,
						   .open_nr_max = 3,
						   .active_nr_max = 5,
						   .append_bytes = MIB(4) } };
}

static void test_params(void **state)
{
	struct backend_limits limits = limits_with(MIB(64));
	struct ublk_params params;

	(void)state;
	params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
	assert_true(params.types & UBLK_PARAM_TYPE_ZONED);
	assert_int_equal(params.basic.chunk_sectors, MIB(64) >> 9);
	assert_int_equal(params.zoned.max_open_zones, 3);
	assert_int_equal(params.zoned.max_active_zones, 5);
	/* No more than a request can have. */
	assert_int_equal(params.zoned.max_zone_append_sectors, MIB(1) >> 9);
	limits.zones = (struct backend_zone_limits){ 0 };
	params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
	assert_false(params.types & UBLK_PARAM_TYPE_ZONED);
}

/* A device that is taken over has the zones that the kernel knows. */
static void test_taken_over(void **state)
{
	struct backend_limits limits = limits_with(MIB(64)), plain = limits;
	struct ublk_params params, plain_params;

	(void)state;
	plain.zones = (struct backend_zone_limits){ 0 };
	params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
	params_fill(&plain_params, &device, &plain, DATA_PATH_USER_COPY);
	assert_string_equal(fits(&params, &limits), "fits");
	assert_string_equal(fits(&plain_params, &plain), "fits");
	assert_string_equal(fits(&params, &plain), "it is not zoned any more");
	assert_string_equal(fits(&plain_params, &limits), "it is zoned now");
	limits.zones.bytes = MIB(32);
	assert_string_equal(fits(&params, &limits), "its zones have another size");
	limits.zones.bytes = MIB(64);
	limits.zones.open_nr_max = 2;
	assert_string_equal(fits(&params, &limits), "max_open or max_active have changed");
	limits.zones.open_nr_max = 3;
	limits.zones.active_nr_max = 6;
	assert_string_equal(fits(&params, &limits), "max_open or max_active have changed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_way),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_taken_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
