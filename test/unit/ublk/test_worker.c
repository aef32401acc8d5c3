/* worker: what a kernel stack says of a command that waits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ublk/ublk_abi.h"
#include "ublk/worker.h"

/* As Linux 6.12 and 7.2 print them. */
#define TAIL                                                                                       \
	"[<0>] ublk_ctrl_uring_cmd+0x57e/0x12d0 [ublk_drv]\n"                                      \
	"[<0>] io_uring_cmd+0x8c/0x140\n"                                                          \
	"[<0>] io_issue_sqe+0x60/0x440\n"                                                          \
	"[<0>] io_wq_submit_work+0xc8/0x320\n"                                                     \
	"[<0>] io_wq_worker+0x9c/0x2f0\n"

static int read_stack(const char *stack, uint32_t cmd_op, char *text)
{
	FILE *file = fmemopen((void *)(uintptr_t)stack, strlen(stack), "r");
	int ret = worker_read_stack(file, cmd_op, text);

	fclose(file);
	return ret;
}

static void test_named(void **state)
{
	char text[WORKER_TEXT_BYTES];

	(void)state;
	assert_int_equal(
		read_stack("[<0>] wait_for_completion_interruptible+0x11/0x30\n"
			   "[<0>] ublk_ctrl_start_dev.isra.0+0x1f2/0x5c0 [ublk_drv]\n" TAIL,
			   UBLK_U_CMD_START_DEV, text),
		0);
	assert_string_equal(text, "wait_for_completion_interruptible, called by "
				  "ublk_ctrl_start_dev.isra.0");
	assert_int_equal(read_stack("[<0>] ublk_ctrl_del_dev+0x1f2/0x5c0 [ublk_drv]\n" TAIL,
				    UBLK_U_CMD_DEL_DEV, text),
			 0);
	assert_string_equal(text, "ublk_ctrl_del_dev");
}

/* Not a function whose name begins the same. */
static void test_other_commands(void **state)
{
	char text[WORKER_TEXT_BYTES];

	(void)state;
	assert_int_equal(read_stack("[<0>] ublk_ctrl_start_dev+0x1/0x2 [ublk_drv]\n" TAIL,
				    UBLK_U_CMD_DEL_DEV, text),
			 1);
	assert_int_equal(read_stack("[<0>] ublk_ctrl_start_device+0x1/0x2 [ublk_drv]\n" TAIL,
				    UBLK_U_CMD_START_DEV, text),
			 1);
}

/* Inlined: the dispatcher is all that is seen. */
static void test_inlined(void **state)
{
	char text[WORKER_TEXT_BYTES];

	(void)state;
	assert_int_equal(read_stack("[<0>] mutex_lock+0x20/0x40\n" TAIL, UBLK_U_CMD_STOP_DEV, text),
			 1);
	assert_string_equal(text, "mutex_lock, called by ublk_ctrl_uring_cmd");
}

static void test_idle_workers(void **state)
{
	char text[WORKER_TEXT_BYTES];

	(void)state;
	assert_int_equal(read_stack("[<0>] io_wq_worker+0x9c/0x2f0\n"
				    "[<0>] ret_from_fork+0x31/0x50\n",
				    UBLK_U_CMD_STOP_DEV, text),
			 -ENOENT);
	assert_int_equal(read_stack("no stack\n", UBLK_U_CMD_STOP_DEV, text), -ENOENT);
	assert_string_equal(text, "");
}

/* A line longer than the reader's, a name longer than a function's. */
static void test_garbage(void **state)
{
	static char stack[4096];
	char text[WORKER_TEXT_BYTES];

	(void)state;
	memset(stack, 'x', sizeof(stack) - 1);
	memcpy(stack, "[<0>] ublk_", 11);
	assert_int_equal(read_stack(stack, UBLK_U_CMD_STOP_DEV, text), -ENOENT);
}

static void test_nobody(void **state)
{
	char text[WORKER_TEXT_BYTES];

	(void)state;
	assert_int_equal(worker_where(UBLK_U_CMD_STOP_DEV, text), -ENOENT);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_named),	cmocka_unit_test(test_other_commands),
		cmocka_unit_test(test_inlined), cmocka_unit_test(test_idle_workers),
		cmocka_unit_test(test_garbage), cmocka_unit_test(test_nobody),
	};

	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
