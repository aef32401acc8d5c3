/* What decides about a recovery: modes, marks, data paths by flags, limits; room in the SQ. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "daemon/devices/device_notes.h"
#include "reactor/reactor.h"
#include "ublk/data_path.h"
#include "test/unit/ublk/params_check.h"
#include "ublk/recovery.h"
#include "ublk/ublk_abi.h"

#define LINUX_5_20 0ull
#define LINUX_6_12 (UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE)
#define LINUX_6_13 (LINUX_6_12 | UBLK_F_USER_RECOVERY_FAIL_IO)

static void test_flags_of_the_modes(void **state)
{
	(void)state;
	assert_int_equal(recovery_flags(RECOVERY_REISSUE),
			 UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE);
	assert_int_equal(recovery_flags(RECOVERY_HOLD), UBLK_F_USER_RECOVERY);
	assert_int_equal(recovery_flags(RECOVERY_FAIL),
			 UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_FAIL_IO);
	assert_int_equal(recovery_flags(RECOVERY_NONE), 0);
	for (int mode = 0; mode < RECOVERY_NR; mode++) {
		assert_int_equal(recovery_possible(recovery_flags((enum recovery)mode)),
				 mode != RECOVERY_NONE);
		assert_non_null(recovery_names[mode]);
	}
	assert_null(recovery_names[RECOVERY_NR]);
	assert_false(recovery_possible(UBLK_F_USER_RECOVERY_REISSUE | UBLK_F_USER_COPY));
}

static void check_mode(enum recovery mode, uint64_t features, const char *words)
{
	char error[RECOVERY_ERROR_BYTES] = "";

	assert_int_equal(recovery_check(mode, features, error), words[0] ? -EOPNOTSUPP : 0);
	assert_string_equal(error, words);
}

static void test_what_a_driver_can(void **state)
{
	(void)state;
	for (int mode = 0; mode < RECOVERY_NR; mode++)
		check_mode((enum recovery)mode, LINUX_6_13, "");
	check_mode(RECOVERY_REISSUE, LINUX_6_12, "");
	check_mode(RECOVERY_HOLD, LINUX_6_12, "");
	check_mode(RECOVERY_NONE, LINUX_5_20, "");
	check_mode(RECOVERY_FAIL, LINUX_6_12,
		   "recovery: fail needs a kernel whose ublk driver has RECOVERY_FAIL_IO (Linux "
		   "6.13); set recovery: reissue");
	check_mode(RECOVERY_FAIL, LINUX_5_20,
		   "recovery: fail needs a kernel whose ublk driver has USER_RECOVERY; set "
		   "recovery: none");
	check_mode(RECOVERY_REISSUE, LINUX_5_20,
		   "recovery: reissue needs a kernel whose ublk driver has USER_RECOVERY; set "
		   "recovery: none");
	check_mode(RECOVERY_HOLD, LINUX_5_20,
		   "recovery: hold needs a kernel whose ublk driver has USER_RECOVERY; set "
		   "recovery: none");
}

static void test_marks(void **state)
{
	uint64_t mark = mark_of("/run/ublkd/ublkd.sock", "disk");

	(void)state;
	assert_int_equal(mark, mark_of("/run/ublkd/ublkd.sock", "disk"));
	assert_int_not_equal(mark, mark_of("/run/ublkd/ublkd.sock", "disk2"));
	assert_int_not_equal(mark, mark_of("/run/ublkd/other.sock", "disk"));
	assert_true(mark_is_of(mark, "/run/ublkd/ublkd.sock"));
	assert_false(mark_is_of(mark, "/run/ublkd/other.sock"));
	assert_true(mark_is_ublkd(mark));
	assert_true(mark_is_ublkd(mark_of("", "")));
	assert_false(mark_is_of(0, "/run/ublkd/ublkd.sock"));
	assert_false(mark_is_ublkd(0));
	assert_false(mark_is_ublkd(UINT64_MAX));
	assert_false(mark_is_ublkd(mark ^ 1ull << 48));
	/* Written to the driver by one version, read by the next: it must never change. */
	assert_int_equal(mark_of("/run/ublkd/ublkd.sock", "disk"), 0x75626ddaaa8f05c4ull);
}

static void test_data_paths_by_flags(void **state)
{
	struct data_choice choice, again;

	(void)state;
	for (int path = DATA_PATH_COPY; path < DATA_PATH_NR; path++)
		for (int batch = 0; batch < 2; batch++) {
			choice = (struct data_choice){ .path = (enum data_path)path,
						       .batch = batch };
			data_path_of_flags(&again, data_path_flags(&choice) | LINUX_6_13);
			assert_int_equal(again.path, choice.path);
			assert_int_equal(again.batch, choice.batch);
		}
}

struct fit {
	struct device_spec spec;
	struct backend_limits limits;
	struct ublk_params params;
};

/* A device of 1 MiB in blocks of 4096, made with these capabilities of its backend. */
static struct fit made_with(uint32_t caps, bool read_only)
{
	struct fit f = { .spec = { .logical_block_bytes = 4096,
				   .max_io_bytes = 1u << 19,
				   .read_only = read_only },
			 .limits = { .size_bytes = 1u << 20,
				     .logical_block_bytes = 512,
				     .physical_block_bytes = 4096,
				     .caps = caps } };

	params_fill(&f.params, &f.spec, &f.limits, DATA_PATH_COPY);
	return f;
}

static const char *incompatible(const struct fit *f)
{
	return params_words(&f->params, &f->spec, &f->limits);
}

static void test_size_and_blocks(void **state)
{
	struct fit f = made_with(BACKEND_CAP_FLUSH, false);

	(void)state;
	assert_string_equal(incompatible(&f), "fits");
	f.limits.size_bytes += 4096;
	assert_string_equal(incompatible(&f), "fits");
	f.limits.size_bytes = (1u << 20) - 1;
	assert_string_equal(incompatible(&f), "it is smaller");
	f.limits.size_bytes = 1u << 20;
	f.limits.logical_block_bytes = 4096;
	assert_string_equal(incompatible(&f), "fits");
	f.limits.logical_block_bytes = 8192;
	assert_string_equal(incompatible(&f), "its blocks are larger");
}

static void test_queues(void **state)
{
	struct fit f = made_with(BACKEND_CAP_FLUSH, false);

	(void)state;
	f.spec.queues = 4;
	assert_int_equal(params_queues(4, &f.limits), 4);
	assert_string_equal(incompatible(&f), "fits");
	f.limits.queue_nr_max = 4;
	assert_int_equal(params_queues(3, &f.limits), 3);
	assert_string_equal(incompatible(&f), "fits");
	f.limits.queue_nr_max = 3;
	assert_int_equal(params_queues(4, &f.limits), 3);
	assert_non_null(strstr(incompatible(&f), "fewer queues than the device has: let it serve"));
	f.limits.queue_nr_cure = "let the server allow more";
	assert_non_null(
		strstr(incompatible(&f), "than the device has: let the server allow more,"));
}

static const char *incompatible_caps(uint32_t before, uint32_t now, bool read_only)
{
	struct fit f = made_with(before, read_only);

	f.limits.caps = now;
	return incompatible(&f);
}

static void test_caches_and_rights(void **state)
{
	const uint32_t flush = BACKEND_CAP_FLUSH, fua = BACKEND_CAP_FLUSH | BACKEND_CAP_FUA;

	(void)state;
	assert_string_equal(incompatible_caps(flush, flush | BACKEND_CAP_READ_ONLY, false),
			    "it cannot be written");
	assert_string_equal(incompatible_caps(flush, flush | BACKEND_CAP_READ_ONLY, true), "fits");
	assert_string_equal(incompatible_caps(0, flush, false), "it has a volatile cache now");
	assert_string_equal(incompatible_caps(0, flush, true), "fits");
	assert_string_equal(incompatible_caps(flush, 0, false), "fits");
	assert_string_equal(incompatible_caps(fua, flush, false),
			    "it cannot write through its cache any more");
	assert_string_equal(incompatible_caps(flush, fua, false), "fits");
}

static void no_op(struct op *op, int res, uint32_t cqe_flags)
{
	(void)op, (void)res, (void)cqe_flags;
}

static void prep_nop(struct op *op)
{
	struct io_uring_sqe *sqe = op_sqe(op);

	assert_non_null(sqe);
	io_uring_prep_nop(sqe);
	op_start(op, sqe);
}

/* Room is made by handing over what is there, and only when it has to be. */
static void test_room_in_the_sq(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 64 };
	struct reactor r;
	struct op op[5];

	(void)state;
	assert_int_equal(reactor_init(&r, &params), 0);
	reactor_turn(&r, false); /* what it prepares for itself */
	for (unsigned i = 0; i < ARRAY_SIZE(op); i++) {
		assert_int_equal(op_init(&op[i], &r, (struct op_owner){ 0 }, no_op), 0);
		prep_nop(&op[i]);
	}
	assert_int_equal(io_uring_sq_space_left(&r.ring.uring), 3);
	op_sqe_room(&r, 3);
	assert_int_equal(io_uring_sq_space_left(&r.ring.uring), 3);
	op_sqe_room(&r, 4);
	assert_int_equal(io_uring_sq_space_left(&r.ring.uring), 8);
	for (unsigned i = 0; i < ARRAY_SIZE(op); i++) {
		while (op_inflight(&op[i]))
			reactor_turn(&r, true);
		op_fini(&op[i]);
	}
	reactor_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags_of_the_modes),
		cmocka_unit_test(test_what_a_driver_can),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_data_paths_by_flags),
		cmocka_unit_test(test_size_and_blocks),
		cmocka_unit_test(test_queues),
		cmocka_unit_test(test_caches_and_rights),
		cmocka_unit_test(test_room_in_the_sq),
	};

	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
