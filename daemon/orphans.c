/*
 * A killed daemon's devices stay in the driver: dead, but with their ids taken, so that the next
 * start would fail with EEXIST. Each device carries a mark, which the driver keeps and does not
 * look at; whoever holds the lock of the same control socket may delete what has its mark.
 * Main thread, at start, before any device of ours.
 *
 * Happy path: for each /dev/ublkcN its info; where the mark is ours, it is deleted. Failure modes:
 * the driver does not answer (told; the rest is left alone), a file system is still mounted on the
 * dead device (its id is free only when that is unmounted; starting the same id then says so).
 */
#include "daemon/orphans.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

#define ANSWER_TIMEOUT_NS (10 * NS_PER_SEC)
#define MARK_PREFIX 0x75626c6bull /* "ublk" */

/* Static: a command that never comes back keeps writing to it. */
static struct question {
	struct ctl_cmd cmd;
	struct ublksrv_ctrl_dev_info info;
	bool answered;
	int result;
} question;

uint64_t orphans_mark(const char *control_path)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (const char *c = control_path; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	return MARK_PREFIX << 32 | hash;
}

static void on_answer(struct ctl_cmd *cmd, int res)
{
	struct question *q = container_of(cmd, struct question, cmd);

	q->answered = true;
	q->result = res;
}

static int ask(struct loop *loop, uint32_t cmd_op, uint32_t dev_id)
{
	bool wants_info = cmd_op == UBLK_U_CMD_GET_DEV_INFO;
	struct ctl_request request = {
		.cmd_op = cmd_op,
		.dev_id = dev_id,
		.queue_id = -1,
		.buf = wants_info ? &question.info : NULL,
		.buf_bytes = wants_info ? sizeof(question.info) : 0,
	};

	question.answered = false;
	ctl_cmd_send(&question.cmd, &request, on_answer);
	if (!loop_run_until(loop, &question.answered, ANSWER_TIMEOUT_NS))
		return -ETIMEDOUT;
	return question.result;
}

static int delete (struct loop *loop, uint32_t dev_id)
{
	int ret = ask(loop, UBLK_U_CMD_DEL_DEV_ASYNC, dev_id);

	/* Not in 6.8; the other one waits until nobody has the device open. */
	if (ret == -EOPNOTSUPP || ret == -EINVAL)
		ret = ask(loop, UBLK_U_CMD_DEL_DEV, dev_id);
	return ret;
}

static int look_at(struct loop *loop, uint32_t dev_id, uint64_t mark)
{
	int ret = ask(loop, UBLK_U_CMD_GET_DEV_INFO, dev_id);

	if (ret < 0 || question.info.ublksrv_flags != mark)
		return ret;
	ret = delete (loop, dev_id);
	if (ret < 0)
		log_warn("cannot delete a device left by a killed ublkd", "id=%u error=%s", dev_id,
			 errname(ret));
	else
		log_warn("deleted a device left by a killed ublkd", "id=%u", dev_id);
	return ret;
}

static void look_at_all(struct loop *loop, DIR *dev, uint64_t mark)
{
	struct dirent *entry;
	unsigned dev_id;

	while ((entry = readdir(dev)))
		if (sscanf(entry->d_name, "ublkc%u", &dev_id) == 1 &&
		    look_at(loop, dev_id, mark) == -ETIMEDOUT)
			return; /* the one command is still out */
}

void orphans_remove(struct loop *loop, struct ctl *ctl, uint64_t mark)
{
	DIR *dev = opendir("/dev");

	if (dev && ctl_cmd_init(&question.cmd, ctl) == 0) {
		look_at_all(loop, dev, mark);
		if (!ctl_cmd_busy(&question.cmd))
			ctl_cmd_fini(&question.cmd);
	}
	if (dev)
		closedir(dev);
}
