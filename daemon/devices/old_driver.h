/* What drivers before Linux 6.16 need, so that a dead daemon's devices can be recovered. Main
 * thread. */
#ifndef DAEMON_DEVICES_OLD_DRIVER_H
#define DAEMON_DEVICES_OLD_DRIVER_H

#include "ublk/device/device.h"
#include "ublk/ublk_abi.h"

/*
 * Before another recovery of a device of which one was begun and did not end. May take some
 * seconds, until the driver lets go of the dead server. Failures are logged; the recovery then says
 * what is wrong.
 *
 * START_USER_RECOVERY of these drivers (ublk_ctrl_start_recovery, ublk_queue_reinit) takes the task
 * that fetched each queue and puts it. Where a server died after START_USER_RECOVERY and before it
 * had fetched all queues, some have no such task: with none fetched at all the driver answers
 * EINVAL for ever, and with some of them it follows a NULL pointer. So a child process fetches
 * whatever can be fetched, and ends: then every queue has had its task.
 */
void old_driver_clear_recovery(const struct ublksrv_ctrl_dev_info *info);

/*
 * The device is LIVE: lets the driver notice soon that the daemon has died. Returns at once. Does
 * nothing with a newer driver. A failure is logged, once.
 *
 * These drivers learn of a server's death from commands that wait for requests. A queue all of
 * whose tags were in the server's hands has none: there only the timeout of a request tells
 * (ublk_timeout), after 30 s by default. For a living server that timeout does nothing but start
 * again.
 */
void old_driver_shorten_timeout(const struct device_host *host, const struct device *device);

#endif
