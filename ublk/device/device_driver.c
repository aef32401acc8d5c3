/*
 * Asks the driver about a device: GET_DEV_INFO, on a command slot of its own, as the device's other
 * one may be waiting for START_DEV when somebody wants to know why. Main thread; nothing waits.
 *
 * Happy path: the driver answers within microseconds; whoever asks again reads what it said.
 * Failure modes: it refuses (the errno is the answer), or does not answer: it is not asked again
 * before, and the device, whose memory the kernel may still write to, ends only afterwards.
 */
#include "ublk/device/device_internal.h"

#include <stdio.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublk/worker.h"

_Static_assert(sizeof(((struct device_command *)0)->where) == WORKER_TEXT_BYTES, "the same words");

const char *device_driver_state_name(unsigned state)
{
	static const char *const name[] = {
		[UBLK_S_DEV_DEAD] = "DEAD",
		[UBLK_S_DEV_LIVE] = "LIVE",
		[UBLK_S_DEV_QUIESCED] = "QUIESCED",
		[UBLK_S_DEV_FAIL_IO] = "FAIL_IO",
	};

	return state < ARRAY_SIZE(name) ? name[state] : "?";
}

static void asked(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, ask);

	d->said = (struct device_driver){
		.asked_ns = cmd->sent_ns,
		.answered_ns = ring_clock_ns(),
		.result = res,
		.state = d->ask_info.state,
		.server_pid = d->ask_info.ublksrv_pid,
	};
	device_check_finish(d);
}

void device_ask_driver(struct device *d)
{
	struct ctl_request request = {
		.cmd_op = UBLK_U_CMD_GET_DEV_INFO,
		.dev_id = d->info.dev_id,
		.queue_id = -1,
		.buf = &d->ask_info,
		.buf_bytes = sizeof(d->ask_info),
		.with_path = device_wants_path(d, UBLK_U_CMD_GET_DEV_INFO),
	};

	/* DEL_DEV is under way: its id may be another's by the time the driver looks. */
	if (!d->added || d->state >= DEVICE_DELETING || ctl_cmd_busy(&d->ask))
		return;
	ctl_cmd_send(&d->ask, &request, asked);
}

static void command_of(const struct ctl_cmd *cmd, uint64_t as_of_ns, struct device_command *c)
{
	int ret;

	*c = (struct device_command){
		.name = ctl_cmd_name(cmd->request.cmd_op),
		.waited_ns = ctl_cmd_waited_ns(cmd),
	};
	if (c->waited_ns < as_of_ns)
		return;
	ret = worker_where(cmd->request.cmd_op, c->where);
	if (ret < 0)
		snprintf(c->where, sizeof(c->where), "unknown: %s", errname(ret));
}

void device_command(const struct device *d, uint64_t as_of_ns, struct device_command *ret_command)
{
	*ret_command = (struct device_command){ 0 };
	if (ctl_cmd_busy(&d->cmd))
		command_of(&d->cmd, as_of_ns, ret_command);
	else if (ctl_cmd_busy(&d->ask))
		command_of(&d->ask, as_of_ns, ret_command);
}

void device_driver(const struct device *d, struct device_driver *ret_said)
{
	*ret_said = d->said;
	ret_said->owed = ctl_cmd_busy(&d->ask);
	if (ret_said->owed)
		ret_said->asked_ns = d->ask.sent_ns;
}
