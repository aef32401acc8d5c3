/*
 * Numbers of the kernel as words. Tables only; no state, any thread.
 *
 * Happy path: name_* finds the number in its table. Failure modes: a number of a kernel that is
 * newer than the tables has no name (NULL), bits without one are told as 0x...; test_trace_btf says
 * so on a kernel that has more.
 */
#include "ublktrace/events/names.h"

#include <stdio.h>

#define ARRAY_NR(a) (sizeof(a) / sizeof((a)[0]))

/* enum io_uring_op of include/uapi/linux/io_uring.h, Linux 7.2. Numbers never change. */
static const char *const opcodes[] = {
	[0] = "NOP",
	[1] = "READV",
	[2] = "WRITEV",
	[3] = "FSYNC",
	[4] = "READ_FIXED",
	[5] = "WRITE_FIXED",
	[6] = "POLL_ADD",
	[7] = "POLL_REMOVE",
	[8] = "SYNC_FILE_RANGE",
	[9] = "SENDMSG",
	[10] = "RECVMSG",
	[11] = "TIMEOUT",
	[12] = "TIMEOUT_REMOVE",
	[13] = "ACCEPT",
	[14] = "ASYNC_CANCEL",
	[15] = "LINK_TIMEOUT",
	[16] = "CONNECT",
	[17] = "FALLOCATE",
	[18] = "OPENAT",
	[19] = "CLOSE",
	[20] = "FILES_UPDATE",
	[21] = "STATX",
	[22] = "READ",
	[23] = "WRITE",
	[24] = "FADVISE",
	[25] = "MADVISE",
	[26] = "SEND",
	[27] = "RECV",
	[28] = "OPENAT2",
	[29] = "EPOLL_CTL",
	[30] = "SPLICE",
	[31] = "PROVIDE_BUFFERS",
	[32] = "REMOVE_BUFFERS",
	[33] = "TEE",
	[34] = "SHUTDOWN",
	[35] = "RENAMEAT",
	[36] = "UNLINKAT",
	[37] = "MKDIRAT",
	[38] = "SYMLINKAT",
	[39] = "LINKAT",
	[40] = "MSG_RING",
	[41] = "FSETXATTR",
	[42] = "SETXATTR",
	[43] = "FGETXATTR",
	[44] = "GETXATTR",
	[45] = "SOCKET",
	[46] = "URING_CMD",
	[47] = "SEND_ZC",
	[48] = "SENDMSG_ZC",
	[49] = "READ_MULTISHOT",
	[50] = "WAITID",
	[51] = "FUTEX_WAIT",
	[52] = "FUTEX_WAKE",
	[53] = "FUTEX_WAITV",
	[54] = "FIXED_FD_INSTALL",
	[55] = "FTRUNCATE",
	[56] = "BIND",
	[57] = "LISTEN",
	[58] = "RECV_ZC",
	[59] = "EPOLL_WAIT",
	[60] = "READV_FIXED",
	[61] = "WRITEV_FIXED",
	[62] = "PIPE",
	[63] = "NOP128",
	[64] = "URING_CMD128",
};

/* include/uapi/linux/ublk_cmd.h, Linux 7.2. The first three also exist without ioctl encoding;
 * those from 0x23 on are UBLK_U_IO_* only, and lose the U_ so that a command has one name. */
static const char *const ublk_ios[] = {
	[0x20] = "UBLK_IO_FETCH_REQ",	      [0x21] = "UBLK_IO_COMMIT_AND_FETCH_REQ",
	[0x22] = "UBLK_IO_NEED_GET_DATA",     [0x23] = "UBLK_IO_REGISTER_IO_BUF",
	[0x24] = "UBLK_IO_UNREGISTER_IO_BUF", [0x25] = "UBLK_IO_PREP_IO_CMDS",
	[0x26] = "UBLK_IO_COMMIT_IO_CMDS",    [0x27] = "UBLK_IO_FETCH_IO_CMDS",
};

static const char *const ublk_ctrls[] = {
	[0x01] = "UBLK_CMD_GET_QUEUE_AFFINITY",
	[0x02] = "UBLK_CMD_GET_DEV_INFO",
	[0x04] = "UBLK_CMD_ADD_DEV",
	[0x05] = "UBLK_CMD_DEL_DEV",
	[0x06] = "UBLK_CMD_START_DEV",
	[0x07] = "UBLK_CMD_STOP_DEV",
	[0x08] = "UBLK_CMD_SET_PARAMS",
	[0x09] = "UBLK_CMD_GET_PARAMS",
	[0x10] = "UBLK_CMD_START_USER_RECOVERY",
	[0x11] = "UBLK_CMD_END_USER_RECOVERY",
	[0x12] = "UBLK_CMD_GET_DEV_INFO2",
	[0x13] = "UBLK_CMD_GET_FEATURES",
	[0x14] = "UBLK_CMD_DEL_DEV_ASYNC",
	[0x15] = "UBLK_CMD_UPDATE_SIZE",
	[0x16] = "UBLK_CMD_QUIESCE_DEV",
	[0x17] = "UBLK_CMD_TRY_STOP_DEV",
	[0x18] = "UBLK_CMD_REG_BUF",
	[0x19] = "UBLK_CMD_UNREG_BUF",
};

/* enum req_op of include/linux/blk_types.h */
static const char *const block_ops[] = {
	[0] = "read",	      [1] = "write",	    [2] = "flush",	  [3] = "discard",
	[5] = "secure_erase", [7] = "zone_append",  [9] = "write_zeroes", [11] = "zone_open",
	[13] = "zone_close",  [15] = "zone_finish", [17] = "zone_reset",  [19] = "zone_reset_all",
	[34] = "drv_in",      [35] = "drv_out",
};

/* Bit i is called table[i]. IORING_ENTER_*, IOSQE_*, IORING_SETUP_*. */
static const char *const enter_flags[] = {
	"GETEVENTS",	   "SQ_WAKEUP", "SQ_WAIT",     "EXT_ARG",
	"REGISTERED_RING", "ABS_TIMER", "EXT_ARG_REG", "NO_IOWAIT",
};
static const char *const sqe_flags[] = {
	"FIXED_FILE", "IO_DRAIN",      "IO_LINK",	   "IO_HARDLINK",
	"ASYNC",      "BUFFER_SELECT", "CQE_SKIP_SUCCESS",
};
static const char *const setup_flags[] = {
	"IOPOLL",	 "SQPOLL",	  "SQ_AFF",	"CQSIZE",
	"CLAMP",	 "ATTACH_WQ",	  "R_DISABLED", "SUBMIT_ALL",
	"COOP_TASKRUN",	 "TASKRUN_FLAG",  "SQE128",	"CQE32",
	"SINGLE_ISSUER", "DEFER_TASKRUN", "NO_MMAP",	"REGISTERED_FD_ONLY",
	"NO_SQARRAY",	 "HYBRID_IOPOLL", "CQE_MIXED",	"SQE_MIXED",
	"SQ_REWIND",
};

static const char *name_look_up(const char *const *table, size_t nr, uint32_t number)
{
	return number < nr ? table[number] : NULL;
}

const char *name_opcode(unsigned opcode)
{
	return name_look_up(opcodes, ARRAY_NR(opcodes), opcode);
}

unsigned name_opcode_nr(void)
{
	return ARRAY_NR(opcodes);
}

/* The driver looks at the number within the ioctl encoding, _IOC_NR, when the type is 'u'; the old
 * form is that number alone (ublk_check_cmd_op of drivers/block/ublk_drv.c). */
static const char *name_look_up_ublk(const char *const *table, size_t nr, uint32_t cmd_op)
{
	if (cmd_op > 0xff && (cmd_op >> 8 & 0xff) != 'u')
		return NULL;
	return name_look_up(table, nr, cmd_op & 0xff);
}

const char *name_ublk_io(uint32_t cmd_op)
{
	return name_look_up_ublk(ublk_ios, ARRAY_NR(ublk_ios), cmd_op);
}

const char *name_ublk_ctrl(uint32_t cmd_op)
{
	return name_look_up_ublk(ublk_ctrls, ARRAY_NR(ublk_ctrls), cmd_op);
}

const char *name_block_op(unsigned op)
{
	return name_look_up(block_ops, ARRAY_NR(block_ops), op);
}

/* Appends word at *used, behind a '|' when it is not the first; cut at the end of buf. */
static void name_append(char *buf, size_t bytes, size_t *used, const char *word)
{
	int n;

	if (*used >= bytes)
		return;
	n = snprintf(buf + *used, bytes - *used, "%s%s", *used ? "|" : "", word);
	*used += (size_t)n;
}

static const char *flag_names(const char *const *table, size_t nr, uint32_t flags, char *buf,
			      size_t bytes)
{
	char rest[16];
	size_t used = 0;

	if (bytes)
		buf[0] = 0;
	for (size_t bit = 0; bit < nr; bit++)
		if (flags & 1u << bit)
			name_append(buf, bytes, &used, table[bit]);
	flags = (uint32_t)((uint64_t)flags >> nr << nr);
	if (flags) {
		snprintf(rest, sizeof(rest), "0x%x", flags);
		name_append(buf, bytes, &used, rest);
	}
	return buf;
}

const char *name_enter_flags(uint32_t flags, char *buf, size_t bytes)
{
	return flag_names(enter_flags, ARRAY_NR(enter_flags), flags, buf, bytes);
}

const char *name_sqe_flags(uint32_t flags, char *buf, size_t bytes)
{
	return flag_names(sqe_flags, ARRAY_NR(sqe_flags), flags, buf, bytes);
}

const char *name_setup_flags(uint32_t flags, char *buf, size_t bytes)
{
	return flag_names(setup_flags, ARRAY_NR(setup_flags), flags, buf, bytes);
}
