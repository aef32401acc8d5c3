/*
 * Happy path: open, one command, its answer. Failure modes: no module, no rights, no answer, a
 * kernel that is too old: one line with the cure.
 */
#include "daemon/runtime/driver.h"

#include <errno.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/runtime/process.h"

#define OPEN_TIMEOUT_NS (10 * NS_PER_SEC)

/* ctl_open has no argument of its own, and a late answer must find its place. */
static bool answered;
static int result;

static void on_driver_features(struct ctl *ctl, int res)
{
	(void)ctl;
	answered = true;
	result = res;
}

static const char *driver_cure(int err)
{
	switch (-err) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "the module is not loaded: modprobe ublk_drv";
	case EACCES:
	case EPERM:
		return "run as root (CAP_SYS_ADMIN), or let users make devices of their own: see "
		       "ublkctl doctor";
	case ETIMEDOUT:
		return "the driver does not answer; see the kernel's log";
	default:
		return "is the kernel older than " PROCESS_KERNEL_MIN "?";
	}
}

int driver_open(struct ctl *ctl, struct loop *loop)
{
	int ret = ctl_open(ctl, &loop->control, on_driver_features);

	if (ret == 0 && !loop_run_until(loop, &answered, OPEN_TIMEOUT_NS))
		ret = -ETIMEDOUT;
	else if (ret == 0)
		ret = result;
	if (ret == 0 && !(ctl->features & UBLK_F_CMD_IOCTL_ENCODE))
		ret = -EOPNOTSUPP;
	if (ret < 0)
		log_error("cannot use the ublk driver",
			  "path=/dev/ublk-control error=%s cure=\"%s\"", errname(ret),
			  driver_cure(ret));
	return ret;
}
