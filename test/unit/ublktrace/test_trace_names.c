/* Names of opcodes, ublk commands and flags; what has none; buffers that are too small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ublktrace/events/names.h"
#include "ublk/ublk_abi.h"

static void test_opcodes(void **state)
{
	(void)state;
	assert_string_equal(name_opcode(0), "NOP");
	assert_string_equal(name_opcode(1), "READV");
	assert_string_equal(name_opcode(39), "LINKAT");
	assert_string_equal(name_opcode(46), "URING_CMD");
	assert_string_equal(name_opcode(64), "URING_CMD128");
	assert_int_equal(name_opcode_nr(), 65);
	for (unsigned i = 0; i < name_opcode_nr(); i++)
		assert_non_null(name_opcode(i));
	assert_null(name_opcode(65));
	assert_null(name_opcode(~0u));
}

/* No word twice: a hole filled with its neighbour's name. */
static void test_opcodes_differ(void **state)
{
	(void)state;
	for (unsigned i = 0; i < name_opcode_nr(); i++)
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(name_opcode(i), name_opcode(j));
}

static void test_ublk_io(void **state)
{
	(void)state;
	assert_string_equal(name_ublk_io(0x20), "UBLK_IO_FETCH_REQ");
	assert_string_equal(name_ublk_io(UBLK_U_IO_FETCH_REQ), "UBLK_IO_FETCH_REQ");
	assert_string_equal(name_ublk_io(0x21), "UBLK_IO_COMMIT_AND_FETCH_REQ");
	assert_string_equal(name_ublk_io(UBLK_U_IO_COMMIT_AND_FETCH_REQ),
			    "UBLK_IO_COMMIT_AND_FETCH_REQ");
	assert_string_equal(name_ublk_io(UBLK_U_IO_NEED_GET_DATA), "UBLK_IO_NEED_GET_DATA");
	assert_string_equal(name_ublk_io(UBLK_U_IO(0x23, ublksrv_io_cmd)),
			    "UBLK_IO_REGISTER_IO_BUF");
	assert_string_equal(name_ublk_io(UBLK_U_IO(0x24, ublksrv_io_cmd)),
			    "UBLK_IO_UNREGISTER_IO_BUF");
	assert_string_equal(name_ublk_io(UBLK_U_IO_PREP_IO_CMDS), "UBLK_IO_PREP_IO_CMDS");
	assert_string_equal(name_ublk_io(UBLK_U_IO_COMMIT_IO_CMDS), "UBLK_IO_COMMIT_IO_CMDS");
	assert_string_equal(name_ublk_io(UBLK_U_IO_FETCH_IO_CMDS), "UBLK_IO_FETCH_IO_CMDS");
	assert_null(name_ublk_io(0x1f));
	assert_null(name_ublk_io(0x28));
	assert_null(name_ublk_io(0x06)); /* of the control device */
	assert_null(name_ublk_io(_IOC(_IOC_READ, 'N', 0x20, 16)));
}

static void test_ublk_ctrl(void **state)
{
	(void)state;
	assert_string_equal(name_ublk_ctrl(0x04), "UBLK_CMD_ADD_DEV");
	assert_string_equal(name_ublk_ctrl(UBLK_U_CMD_ADD_DEV), "UBLK_CMD_ADD_DEV");
	assert_string_equal(name_ublk_ctrl(UBLK_U_CMD_GET_QUEUE_AFFINITY),
			    "UBLK_CMD_GET_QUEUE_AFFINITY");
	assert_string_equal(name_ublk_ctrl(UBLK_U_CMD_DEL_DEV_ASYNC), "UBLK_CMD_DEL_DEV_ASYNC");
	assert_string_equal(name_ublk_ctrl(UBLK_U_CMD_TRY_STOP_DEV), "UBLK_CMD_TRY_STOP_DEV");
	assert_string_equal(name_ublk_ctrl(UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x19)),
			    "UBLK_CMD_UNREG_BUF");
	assert_null(name_ublk_ctrl(0x00));
	assert_null(name_ublk_ctrl(0x03)); /* a hole */
	assert_null(name_ublk_ctrl(0x1a));
	assert_null(name_ublk_ctrl(UBLK_U_IO_FETCH_REQ));
	assert_null(name_ublk_ctrl(~0u));
}

static void test_flags(void **state)
{
	char buf[NAME_FLAGS_BYTES];

	(void)state;
	assert_string_equal(name_enter_flags(0, buf, sizeof(buf)), "");
	assert_string_equal(name_enter_flags(1, buf, sizeof(buf)), "GETEVENTS");
	assert_string_equal(name_enter_flags(0x1f, buf, sizeof(buf)),
			    "GETEVENTS|SQ_WAKEUP|SQ_WAIT|EXT_ARG|REGISTERED_RING");
	assert_string_equal(name_enter_flags(0xe0, buf, sizeof(buf)),
			    "ABS_TIMER|EXT_ARG_REG|NO_IOWAIT");
	assert_string_equal(name_enter_flags(0x80000101, buf, sizeof(buf)), "GETEVENTS|0x80000100");
	assert_string_equal(name_sqe_flags(0x7f, buf, sizeof(buf)),
			    "FIXED_FILE|IO_DRAIN|IO_LINK|IO_HARDLINK|ASYNC|BUFFER_SELECT|"
			    "CQE_SKIP_SUCCESS");
	assert_string_equal(name_sqe_flags(0x80, buf, sizeof(buf)), "0x80");
	assert_string_equal(name_setup_flags(0x13400, buf, sizeof(buf)),
			    "SQE128|SINGLE_ISSUER|DEFER_TASKRUN|NO_SQARRAY");
	assert_string_equal(name_setup_flags(1u << 20, buf, sizeof(buf)), "SQ_REWIND");
}

static void test_room(void **state)
{
	char buf[NAME_FLAGS_BYTES + 1];

	(void)state;
	memset(buf, '#', sizeof(buf));
	name_setup_flags(~0u, buf, NAME_FLAGS_BYTES);
	assert_true(strlen(buf) < NAME_FLAGS_BYTES - 1); /* all of it */
	assert_non_null(strstr(buf, "|SQ_REWIND|0xffe00000"));
	memset(buf, '#', sizeof(buf));
	assert_string_equal(name_enter_flags(0xff, buf, 12), "GETEVENTS|S");
	assert_int_equal(buf[12], '#');
	name_enter_flags(0xff, buf, 1);
	assert_string_equal(buf, "");
	buf[0] = '#';
	name_enter_flags(0xff, buf, 0);
	assert_int_equal(buf[0], '#');
}

static void test_block_ops(void **state)
{
	(void)state;
	assert_string_equal(name_block_op(0), "read");
	assert_string_equal(name_block_op(9), "write_zeroes");
	assert_string_equal(name_block_op(35), "drv_out");
	assert_null(name_block_op(4));
	assert_null(name_block_op(36));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opcodes),	  cmocka_unit_test(test_opcodes_differ),
		cmocka_unit_test(test_ublk_io),	  cmocka_unit_test(test_ublk_ctrl),
		cmocka_unit_test(test_flags),	  cmocka_unit_test(test_room),
		cmocka_unit_test(test_block_ops),
	};

	return cmocka_run_group_tests_name("trace_names", tests, NULL, NULL);
}
