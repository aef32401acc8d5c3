/* Devices of daemons without CAP_SYS_ADMIN: what they may not have, and how commands bring a path.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublk/control.h"
#include "ublk/servable.h"
#include "ublk/unprivileged.h"

static void test_features(void **state)
{
	uint64_t all = ~0ull, left = unprivileged_features(all);

	(void)state;
	assert_int_equal(all & ~left, UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE |
					      UBLK_F_USER_RECOVERY_FAIL_IO | UBLK_F_USER_COPY |
					      UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG |
					      UBLK_F_ZONED | UBLK_F_INTEGRITY | UBLK_F_SHMEM_ZC);
	assert_int_equal(unprivileged_features(0), 0);
}

static void check_data(enum data_path path, bool zoned, const char *words)
{
	struct unprivileged_wish wish = { .data_path = path,
					  .by_user_copy = zoned ? "type: zoned" : NULL };
	char error[UNPRIVILEGED_ERROR_BYTES] = "";

	assert_int_equal(unprivileged_check_data(&wish, error), *words ? -EPERM : 0);
	assert_true(strncmp(error, words, strlen(words)) == 0);
	if (*words)
		assert_true(strlen(error) < UNPRIVILEGED_ERROR_BYTES - 1);
}

static void test_data(void **state)
{
	(void)state;
	check_data(DATA_PATH_AUTO, false, "");
	check_data(DATA_PATH_COPY, false, "");
	check_data(DATA_PATH_USER_COPY, false, "data_path: user_copy is impossible without");
	check_data(DATA_PATH_ZERO_COPY, false, "data_path: zero_copy is impossible without");
	check_data(DATA_PATH_AUTO, true, "type: zoned is impossible without");
}

static void test_recovery(void **state)
{
	char error[UNPRIVILEGED_ERROR_BYTES];

	(void)state;
	for (int mode = 0; mode < RECOVERY_NR; mode++) {
		struct unprivileged_wish wish = { .recovery = (enum recovery)mode };
		int ret = unprivileged_check_recovery(&wish, error);

		assert_int_equal(ret, mode == RECOVERY_NONE ? 0 : -EPERM);
		if (ret < 0)
			assert_non_null(strstr(error, recovery_names[mode]));
	}
}

/* Another daemon's is never adopted: it has no recovery. */
static void test_not_served(void **state)
{
	char error[SERVABLE_ERROR_BYTES];

	(void)state;
	assert_int_equal(servable_check(UBLK_F_UNPRIVILEGED_DEV, error), -EOPNOTSUPP);
	assert_true(ctl_wants_path(UBLK_F_UNPRIVILEGED_DEV | UBLK_F_BATCH_IO));
	assert_false(ctl_wants_path(~UBLK_F_UNPRIVILEGED_DEV));
}

/* ---- the path of a command ---- */

static struct reactor reactor;
static struct ctl ctl = { .reactor = &reactor, .deadline_ns = CTL_DEADLINE_NS };
static unsigned answers_nr;

static void on_path_answer(struct ctl_cmd *cmd, int res)
{
	(void)cmd, (void)res;
	answers_nr++;
}

/* Sends a command to a file that knows none, and lets the test play the driver. */
static void send_one(struct ctl_cmd *cmd, void *buf, uint16_t bytes, bool with_path)
{
	struct ctl_request request = {
		.cmd_op = UBLK_U_CMD_GET_DEV_INFO2,
		.dev_id = 1048575,
		.queue_id = -1,
		.buf = buf,
		.buf_bytes = bytes,
		.with_path = with_path,
	};

	ctl_cmd_send(cmd, &request, on_path_answer);
}

static void wait_for_answer(struct ctl_cmd *cmd)
{
	while (ctl_cmd_busy(cmd))
		reactor_turn(&reactor, true);
}

static void test_path_before_payload(void **state)
{
	struct ctl_cmd cmd;
	uint64_t payload = 0x1122334455667788;

	(void)state;
	answers_nr = 0;
	assert_int_equal(ctl_cmd_init(&cmd, &ctl), 0);
	send_one(&cmd, &payload, sizeof(payload), true);
	assert_string_equal((char *)cmd.with_path, "/dev/ublkc1048575");
	assert_memory_equal(cmd.with_path + CTL_PATH_BYTES, &payload, sizeof(payload));
	/* What the driver wrote is not taken when it refuses. */
	memset(cmd.with_path + CTL_PATH_BYTES, 0xee, sizeof(payload));
	wait_for_answer(&cmd);
	assert_int_equal(answers_nr, 1);
	assert_int_equal(payload, 0x1122334455667788);
	cmd.op.fn(&cmd.op, 0, 0);
	assert_int_equal(answers_nr, 2);
	assert_int_equal(payload, 0xeeeeeeeeeeeeeeee);
	/* Without a path it goes as it is. */
	send_one(&cmd, &payload, sizeof(payload), false);
	wait_for_answer(&cmd);
	payload = 1;
	cmd.op.fn(&cmd.op, 0, 0);
	assert_int_equal(payload, 1);
	ctl_cmd_fini(&cmd);
}

static int set_up(void **state)
{
	struct reactor_params params = {
		.idx = 0, .sq_entries = 8, .cq_entries = 16, .control = true
	};

	(void)state;
	ctl.fd = eventfd(0, EFD_CLOEXEC);
	return ctl.fd < 0 ? -1 : reactor_init(&reactor, &params);
}

static int tear_down(void **state)
{
	(void)state;
	reactor_fini(&reactor);
	close(ctl.fd);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_features),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_recovery),
		cmocka_unit_test(test_not_served),
		cmocka_unit_test_setup_teardown(test_path_before_payload, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
