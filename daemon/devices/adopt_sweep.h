/* Before Linux 6.16: makes a recovery that was itself cut short possible again. */
#ifndef DAEMON_DEVICES_ADOPT_SWEEP_H
#define DAEMON_DEVICES_ADOPT_SWEEP_H

#include "ublk/ublk_abi.h"

/*
 * Main thread; may wait for some seconds, for the driver to let go of the dead server. Failures are
 * logged; the recovery then tells what is wrong.
 *
 * START_USER_RECOVERY of these drivers (ublk_ctrl_start_recovery, ublk_queue_reinit) takes the task
 * that fetched each queue and puts it. Where a server died after START_USER_RECOVERY and before it
 * had fetched all queues, some have no such task: with none fetched at all the driver answers
 * EINVAL for ever, and with some of them it follows a NULL pointer. So a process of ours fetches
 * whatever can be fetched, and ends: then every queue has had its task.
 */
void adopt_sweep(const struct ublksrv_ctrl_dev_info *info);

#endif
