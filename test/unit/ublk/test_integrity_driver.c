/* Devices that keep metadata towards the driver: which way they go, what the block layer is told.
 */
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

#define ZERO_COPY (UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG)
#define LINUX_6_17 (UBLK_F_USER_COPY | ZERO_COPY | UBLK_F_ZONED)
#define LINUX_7_2 (LINUX_6_17 | UBLK_F_BATCH_IO | UBLK_F_INTEGRITY)

static char error[DATA_PATH_ERROR_BYTES];
static struct data_choice choice;

/* Over data that can be moved so, or not at all without a buffer. */
static int choose_over(const struct backend *low, enum data_path wish, enum batch_choice batch,
		       uint64_t features)
{
	const struct backend_spec metadata = { .ops = &backend_mem,
					       .as = &backend_integrity.children[1] },
				  data = { .ops = low,
					   .as = &backend_integrity.children[0],
					   .sibling = &metadata },
				  spec = { .ops = &backend_integrity, .child = &data };

	error[0] = '\0';
	return data_path_choose(&choice, wish, batch, &spec, features, error);
}

static int choose(enum data_path wish, enum batch_choice batch, uint64_t features)
{
	return choose_over(&backend_file, wish, batch, features);
}

static void test_way(void **state)
{
	struct data_choice again;

	(void)state;
	assert_int_equal(choose(DATA_PATH_AUTO, BATCH_OFF, LINUX_7_2), 0);
	assert_int_equal(data_path_flags(&choice), UBLK_F_INTEGRITY | UBLK_F_USER_COPY | ZERO_COPY);
	data_path_of_flags(&again, data_path_flags(&choice));
	assert_true(again.integrity && again.path == DATA_PATH_ZERO_COPY && !again.batch);
	assert_int_equal(choose(DATA_PATH_USER_COPY, BATCH_ON, LINUX_7_2), 0);
	assert_int_equal(data_path_flags(&choice),
			 UBLK_F_INTEGRITY | UBLK_F_USER_COPY | UBLK_F_BATCH_IO);
	assert_int_equal(choose_over(&backend_mem, DATA_PATH_AUTO, BATCH_OFF, LINUX_7_2), 0);
	assert_int_equal(data_path_flags(&choice), UBLK_F_INTEGRITY | UBLK_F_USER_COPY);
	/* Where others copy. */
	assert_int_equal(choose_over(&backend_nbd, DATA_PATH_AUTO, BATCH_OFF, LINUX_7_2), 0);
	assert_int_equal(data_path_flags(&choice), UBLK_F_INTEGRITY | UBLK_F_USER_COPY);
	/* Others have nothing of it. */
	data_path_of_flags(&again, UBLK_F_USER_COPY);
	assert_false(again.integrity);
}

static void test_refused(void **state)
{
	(void)state;
	assert_int_equal(choose(DATA_PATH_COPY, BATCH_AUTO, LINUX_7_2), -EINVAL);
	assert_non_null(strstr(error, "data_path: copy is impossible with integrity"));
	assert_int_equal(choose(DATA_PATH_AUTO, BATCH_AUTO, LINUX_6_17), -EOPNOTSUPP);
	assert_non_null(strstr(error, "INTEGRITY (Linux 7.0)"));
	assert_int_equal(choose(DATA_PATH_AUTO, BATCH_AUTO, UBLK_F_INTEGRITY), -EOPNOTSUPP);
	assert_int_equal(choose_over(&backend_mem, DATA_PATH_ZERO_COPY, BATCH_AUTO, LINUX_7_2),
			 -EINVAL);
}

static struct backend_limits limits_of(enum backend_checksum checksum)
{
	return (struct backend_limits){ .size_bytes = GIB(1),
					.caps = BACKEND_CAP_FLUSH,
					.integrity = { .metadata_bytes = 64,
						       .interval_shift = 9,
						       .checksum = (uint8_t)checksum,
						       .tuple_at = 48,
						       .tag_bytes = 2,
						       .has_reftag = true } };
}

static void test_params(void **state)
{
	static const uint8_t types[BACKEND_CHECKSUM_NR] = { 0, 1, 2, 4 };
	struct backend_limits limits;
	struct ublk_params params;

	(void)state;
	for (int c = 0; c < BACKEND_CHECKSUM_NR; c++) {
		limits = limits_of((enum backend_checksum)c);
		params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
		assert_true(params.types & UBLK_PARAM_TYPE_INTEGRITY);
		assert_int_equal(params.integrity.csum_type, types[c]);
	}
	assert_int_equal(params.integrity.metadata_size, 64);
	assert_int_equal(params.integrity.interval_exp, 9);
	assert_int_equal(params.integrity.pi_offset, 48);
	assert_int_equal(params.integrity.tag_size, 2);
	assert_int_equal(params.integrity.max_integrity_segments, 0);
	assert_int_equal(params.integrity.flags, LBMD_PI_CAP_REFTAG);
	limits.integrity.has_reftag = false;
	limits.integrity.is_capable = true;
	params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
	assert_int_equal(params.integrity.flags, LBMD_PI_CAP_INTEGRITY);
	limits.integrity = (struct backend_integrity_limits){ 0 };
	params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
	assert_false(params.types & UBLK_PARAM_TYPE_INTEGRITY);
}

/* What a device that is taken over keeps is what the kernel makes and checks. */
static void test_taken_over(void **state)
{
	struct backend_limits limits = limits_of(BACKEND_CHECKSUM_CRC), plain = limits;
	struct ublk_params params, plain_params;

	(void)state;
	plain.integrity = (struct backend_integrity_limits){ 0 };
	params_fill(&params, &device, &limits, DATA_PATH_USER_COPY);
	params_fill(&plain_params, &device, &plain, DATA_PATH_USER_COPY);
	assert_string_equal(fits(&params, &limits), "fits");
	assert_string_equal(fits(&plain_params, &plain), "fits");
	assert_string_equal(fits(&params, &plain), "it keeps no metadata any more");
	assert_string_equal(fits(&plain_params, &limits), "it keeps metadata now");
	limits.integrity.checksum = BACKEND_CHECKSUM_IP;
	assert_string_equal(fits(&params, &limits), "its metadata have another form");
	limits = limits_of(BACKEND_CHECKSUM_CRC);
	limits.integrity.tag_bytes = 1;
	assert_string_equal(fits(&params, &limits), "its metadata have another form");
	limits.integrity.tag_bytes = 2;
	limits.integrity.has_reftag = false;
	assert_string_equal(fits(&params, &limits), "its metadata have another form");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_way),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_taken_over),
	};

	return cmocka_run_group_tests_name("integrity, driver", tests, NULL, NULL);
}
