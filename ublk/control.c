/*
 * Commands to the ublk driver. Main thread, on the control reactor.
 *
 * Happy path: ctl_cmd_send fills a 128-byte SQE, io-wq runs the command in the kernel, the CQE
 * brings its answer to cmd->done. Failure modes: the driver refuses (an errno: ctl_explain has
 * words), or never answers (cmd->late is called at each deadline; the command stays in flight).
 */
#include "ublk/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/worker.h"

#define CONTROL_PATH "/dev/ublk-control"

_Static_assert(CTL_PATH_BYTES >= sizeof("/dev/ublkc1048575"), "UBLK_MINORS is 1 << 20");

/* The command's payload stands at byte 48 of the SQE, in 64- and in 128-byte ones alike. */
#define SQE_CMD_OFFSET 48
#define SQE128_BYTES 128

static const struct ctl_name {
	uint32_t cmd_op;
	const char *name;
} ctl_names[] = {
	{ UBLK_U_CMD_GET_QUEUE_AFFINITY, "GET_QUEUE_AFFINITY" },
	{ UBLK_U_CMD_GET_DEV_INFO, "GET_DEV_INFO" },
	{ UBLK_U_CMD_ADD_DEV, "ADD_DEV" },
	{ UBLK_U_CMD_DEL_DEV, "DEL_DEV" },
	{ UBLK_U_CMD_START_DEV, "START_DEV" },
	{ UBLK_U_CMD_STOP_DEV, "STOP_DEV" },
	{ UBLK_U_CMD_SET_PARAMS, "SET_PARAMS" },
	{ UBLK_U_CMD_GET_PARAMS, "GET_PARAMS" },
	{ UBLK_U_CMD_START_USER_RECOVERY, "START_USER_RECOVERY" },
	{ UBLK_U_CMD_END_USER_RECOVERY, "END_USER_RECOVERY" },
	{ UBLK_U_CMD_GET_DEV_INFO2, "GET_DEV_INFO2" },
	{ UBLK_U_CMD_GET_FEATURES, "GET_FEATURES" },
	{ UBLK_U_CMD_DEL_DEV_ASYNC, "DEL_DEV_ASYNC" },
	{ UBLK_U_CMD_UPDATE_SIZE, "UPDATE_SIZE" },
	{ UBLK_U_CMD_QUIESCE_DEV, "QUIESCE_DEV" },
	{ UBLK_U_CMD_TRY_STOP_DEV, "TRY_STOP_DEV" },
	{ UBLK_U_CMD_REG_BUF, "REG_BUF" },
	{ UBLK_U_CMD_UNREG_BUF, "UNREG_BUF" },
};

const char *ctl_cmd_name(uint32_t cmd_op)
{
	for (size_t i = 0; i < ARRAY_SIZE(ctl_names); i++)
		if (ctl_names[i].cmd_op == cmd_op)
			return ctl_names[i].name;
	return "UNKNOWN";
}

/* What drivers/block/ublk_drv.c means by an errno of a command; cmd_op 0: of any command. */
static const struct ctl_words {
	uint32_t cmd_op;
	int err;
	const char *words;
} ctl_words[] = {
	{ UBLK_U_CMD_ADD_DEV, EEXIST,
	  "a device with this id exists already: choose another id, or remove the old device" },
	{ UBLK_U_CMD_ADD_DEV, EACCES, "the limit of ublk devices is reached (ublks_max)" },
	{ UBLK_U_CMD_ADD_DEV, EINVAL,
	  "the driver refuses this combination of queues, depth, max_io and flags" },
	{ UBLK_U_CMD_SET_PARAMS, EINVAL, "the driver refuses the block sizes or limits" },
	{ UBLK_U_CMD_SET_PARAMS, EACCES, "the device is live already" },
	{ UBLK_U_CMD_START_DEV, EEXIST, "the device was started already" },
	{ UBLK_U_CMD_START_DEV, EINVAL, "the driver does not accept this process as the server" },
	{ UBLK_U_CMD_START_DEV, EINTR, "starting was interrupted" },
	{ UBLK_U_CMD_TRY_STOP_DEV, EBUSY, "somebody has the device open" },
	{ UBLK_U_CMD_START_USER_RECOVERY, EBUSY, "the driver has not let go of the dead server" },
	{ UBLK_U_CMD_START_USER_RECOVERY, EINVAL,
	  "the driver cannot recover it: remove it with ublkctl gc" },
	{ UBLK_U_CMD_END_USER_RECOVERY, EINVAL,
	  "the driver does not accept this process as the server" },
	{ UBLK_U_CMD_GET_FEATURES, EOPNOTSUPP, "the ublk driver is older than Linux 6.5" },
	{ UBLK_U_CMD_REG_BUF, EEXIST, "the device has some of this memory already" },
	{ UBLK_U_CMD_REG_BUF, EFAULT,
	  "not all pages of the memory can be had: there are too few huge pages, or its file "
	  "system is full" },
	{ 0, EACCES, "this user may not use the node /dev/ublkcN of the device" },
	{ 0, ENODEV, "the device does not exist (any more)" },
	{ 0, EPERM, "no permission: CAP_SYS_ADMIN is needed" },
	{ 0, ENOMEM, "the kernel is out of memory" },
};

const char *ctl_explain(uint32_t cmd_op, int err)
{
	err = err < 0 ? -err : err;
	for (size_t i = 0; i < ARRAY_SIZE(ctl_words); i++) {
		const struct ctl_words *w = &ctl_words[i];

		if (w->err == err && (w->cmd_op == cmd_op || w->cmd_op == 0))
			return w->words;
	}
	return "";
}

const char *ctl_feature_name(unsigned bit)
{
	static const char *const name[] = {
		"ZERO_COPY",	     "COMP_IN_TASK",	 "NEED_GET_DATA",
		"USER_RECOVERY",     "RECOVERY_REISSUE", "UNPRIVILEGED_DEV",
		"CMD_IOCTL_ENCODE",  "USER_COPY",	 "ZONED",
		"RECOVERY_FAIL_IO",  "UPDATE_SIZE",	 "AUTO_BUF_REG",
		"QUIESCE",	     "PER_IO_DAEMON",	 "BUF_REG_OFF_DAEMON",
		"BATCH_IO",	     "INTEGRITY",	 "SAFE_STOP_DEV",
		"NO_AUTO_PART_SCAN", "SHMEM_ZC",	 "IO_DESC_SIZE",
	};

	return bit < ARRAY_SIZE(name) ? name[bit] : NULL;
}

static void cmd_late(struct timer *timer)
{
	struct ctl_cmd *cmd = container_of(timer, struct ctl_cmd, deadline);
	struct reactor *r = cmd->ctl->reactor;
	uint64_t waited_ns = r->now_ns - cmd->sent_ns;
	char where[WORKER_TEXT_BYTES];
	int ret = worker_where(cmd->request.cmd_op, where);

	log_warn("ublk command takes long", "cmd=%s id=%d waited_s=%llu waits_in=\"%s%s\"",
		 ctl_cmd_name(cmd->request.cmd_op), (int)cmd->request.dev_id,
		 (unsigned long long)(waited_ns / NS_PER_SEC), ret < 0 ? "unknown: " : where,
		 ret < 0 ? errname(ret) : "");
	reactor_timer_arm(r, timer, r->now_ns + cmd->ctl->deadline_ns);
	if (cmd->late)
		cmd->late(cmd, waited_ns);
}

/* The driver looks the path up, and takes what is behind it for the payload. */
static void put_path(struct ctl_cmd *cmd)
{
	const struct ctl_request *q = &cmd->request;

	ASSERT(q->buf_bytes <= CTL_PAYLOAD_BYTES_MAX);
	memset(cmd->with_path, 0, CTL_PATH_BYTES);
	snprintf((char *)cmd->with_path, CTL_PATH_BYTES, "/dev/ublkc%u", q->dev_id);
	if (q->buf_bytes > 0)
		memcpy(cmd->with_path + CTL_PATH_BYTES, q->buf, q->buf_bytes);
}

static void take_answer(struct ctl_cmd *cmd)
{
	const struct ctl_request *q = &cmd->request;

	if (q->with_path && q->buf_bytes > 0)
		memcpy(q->buf, cmd->with_path + CTL_PATH_BYTES, q->buf_bytes);
}

static void cmd_done(struct op *op, int res, uint32_t cqe_flags)
{
	struct ctl_cmd *cmd = container_of(op, struct ctl_cmd, op);

	(void)cqe_flags;
	if (res >= 0)
		take_answer(cmd);
	reactor_timer_cancel(cmd->ctl->reactor, &cmd->deadline);
	cmd->done(cmd, res);
}

int ctl_cmd_init(struct ctl_cmd *cmd, struct ctl *ctl)
{
	struct op_owner owner = { .kind = OP_KIND_CONTROL };

	*cmd = (struct ctl_cmd){ .ctl = ctl };
	timer_init(&cmd->deadline, cmd_late);
	return op_init(&cmd->op, ctl->reactor, owner, cmd_done);
}

void ctl_cmd_fini(struct ctl_cmd *cmd)
{
	if (!cmd->ctl)
		return;
	reactor_timer_cancel(cmd->ctl->reactor, &cmd->deadline);
	op_fini(&cmd->op);
	cmd->ctl = NULL;
}

bool ctl_cmd_busy(const struct ctl_cmd *cmd)
{
	return cmd->op.state != OP_IDLE;
}

uint64_t ctl_cmd_waited_ns(const struct ctl_cmd *cmd)
{
	uint64_t now_ns = ring_clock_ns();

	return ctl_cmd_busy(cmd) && now_ns > cmd->sent_ns ? now_ns - cmd->sent_ns : 0;
}

static void submit(struct op *op)
{
	struct ctl_cmd *cmd = container_of(op, struct ctl_cmd, op);
	const struct ctl_request *q = &cmd->request;
	struct ublksrv_ctrl_cmd *arg;
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, submit);
		return;
	}
	memset(sqe, 0, SQE128_BYTES);
	sqe->opcode = IORING_OP_URING_CMD;
	/*
	 * Every command runs in a worker of io-wq, which on 6.12 reads the SQE where it stood in
	 * the ring: another one by then (io_uring_cmd copies it and keeps the old address). A
	 * forced worker makes the kernel copy it first.
	 */
	sqe->flags = IOSQE_ASYNC;
	sqe->fd = cmd->ctl->fd;
	sqe->cmd_op = q->cmd_op;
	arg = (struct ublksrv_ctrl_cmd *)((char *)sqe + SQE_CMD_OFFSET);
	arg->dev_id = q->dev_id;
	arg->queue_id = (uint16_t)q->queue_id;
	arg->addr = (uint64_t)(uintptr_t)(q->with_path ? cmd->with_path : q->buf);
	arg->len = q->with_path ? CTL_PATH_BYTES + q->buf_bytes : q->buf_bytes;
	arg->dev_path_len = q->with_path ? CTL_PATH_BYTES : 0;
	arg->data[0] = q->data;
	op_start(op, sqe);
}

void ctl_cmd_send(struct ctl_cmd *cmd, const struct ctl_request *request, ctl_cmd_fn *done)
{
	struct reactor *r = cmd->ctl->reactor;

	ASSERT(!ctl_cmd_busy(cmd));
	cmd->request = *request;
	cmd->done = done;
	if (request->with_path)
		put_path(cmd);
	/* Perhaps between two turns: then the reactor's own clock stands still. */
	cmd->sent_ns = ring_clock_ns();
	reactor_timer_arm(r, &cmd->deadline, cmd->sent_ns + cmd->ctl->deadline_ns);
	submit(&cmd->op);
}

static void features_done(struct ctl_cmd *cmd, int res)
{
	struct ctl *ctl = container_of(cmd, struct ctl, features_cmd);

	ctl->opened(ctl, res);
}

int ctl_open(struct ctl *ctl, struct reactor *reactor, ctl_open_fn *opened)
{
	struct ctl_request request = {
		.cmd_op = UBLK_U_CMD_GET_FEATURES,
		.dev_id = UINT32_MAX,
		.queue_id = -1,
		.buf = &ctl->features,
		.buf_bytes = UBLK_FEATURES_LEN,
	};
	int ret;

	*ctl = (struct ctl){
		.reactor = reactor,
		.deadline_ns = CTL_DEADLINE_NS,
		.opened = opened,
	};
	ctl->fd = ring_open(CONTROL_PATH, O_RDWR);
	if (ctl->fd < 0)
		return ctl->fd;
	ret = ctl_cmd_init(&ctl->features_cmd, ctl);
	if (ret < 0) {
		ctl_close(ctl);
		return ret;
	}
	ctl_cmd_send(&ctl->features_cmd, &request, features_done);
	return 0;
}

void ctl_close(struct ctl *ctl)
{
	ctl_cmd_fini(&ctl->features_cmd);
	if (ctl->fd >= 0)
		ring_close(ctl->fd);
	ctl->fd = -1;
}
