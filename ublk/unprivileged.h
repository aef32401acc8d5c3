/*
 * What the driver keeps from a device whose server has no CAP_SYS_ADMIN (UBLK_F_UNPRIVILEGED_DEV).
 * Pure functions, any thread. The rules are those of ublk_ctrl_add_dev, the same in Linux 6.12 and
 * 7.2:
 *
 *   recovery   USER_RECOVERY is taken away: a device that waits for a next server could hang its
 *              users for as long as the user likes
 *   data       copy only: user copy, and zero copy, which falls back to it, are refused
 *   zones, metadata and shared memory  need user copy
 *   partitions are not scanned
 *   a request  that is not answered in 30 s ends the server by SIGKILL (ublk_timeout)
 */
#ifndef UBLK_UNPRIVILEGED_H
#define UBLK_UNPRIVILEGED_H

#include <stdbool.h>
#include <stdint.h>

#include "ublk/data_path.h"
#include "ublk/recovery.h"

/* UBLK_F_* of the driver that such a device can have. */
uint64_t unprivileged_features(uint64_t features);

struct unprivileged_wish {
	enum data_path data_path;
	const char *by_user_copy; /* an option that needs it: "type: zoned"; NULL: none */
	enum recovery recovery;
};

#define UNPRIVILEGED_ERROR_BYTES 256

/* What the configuration of a device may say. Returns 0, or -EPERM with words and the cure. */
int unprivileged_check_data(const struct unprivileged_wish *wish,
			    char error[static UNPRIVILEGED_ERROR_BYTES]);
int unprivileged_check_recovery(const struct unprivileged_wish *wish,
				char error[static UNPRIVILEGED_ERROR_BYTES]);

/*
 * The longest time for which a backend should hold a request while its server is away: the driver
 * ends the daemon after 30 s, the block layer's timeout, which only root can change.
 */
#define UNPRIVILEGED_HOLD_SECONDS 20

#endif
