/* Pure functions; any thread. */
#include "ublk/unprivileged.h"

#include <errno.h>
#include <stdio.h>

#include "ublk/ublk_abi.h"

#define KEPT_FROM_USERS                                                                            \
	(UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE | UBLK_F_USER_RECOVERY_FAIL_IO |      \
	 UBLK_F_USER_COPY | UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG | UBLK_F_ZONED |        \
	 UBLK_F_INTEGRITY | UBLK_F_SHMEM_ZC)

uint64_t unprivileged_features(uint64_t features)
{
	return features & ~KEPT_FROM_USERS;
}

int unprivileged_check_data(const struct unprivileged_wish *wish,
			    char error[static UNPRIVILEGED_ERROR_BYTES])
{
	if (wish->by_user_copy) {
		snprintf(error, UNPRIVILEGED_ERROR_BYTES,
			 "%s is impossible without CAP_SYS_ADMIN: its requests go by "
			 "user_copy, which the driver keeps from such a daemon; run this device in "
			 "root's ublkd",
			 wish->by_user_copy);
		return -EPERM;
	}
	if (wish->data_path == DATA_PATH_AUTO || wish->data_path == DATA_PATH_COPY)
		return 0;
	snprintf(error, UNPRIVILEGED_ERROR_BYTES,
		 "data_path: %s is impossible without CAP_SYS_ADMIN: the driver keeps it from such "
		 "a daemon; set data_path: auto, which is copy here",
		 data_path_names[wish->data_path]);
	return -EPERM;
}

int unprivileged_check_recovery(const struct unprivileged_wish *wish,
				char error[static UNPRIVILEGED_ERROR_BYTES])
{
	if (wish->recovery == RECOVERY_NONE)
		return 0;
	snprintf(error, UNPRIVILEGED_ERROR_BYTES,
		 "recovery: %s is impossible without CAP_SYS_ADMIN: the driver lets the devices of "
		 "such a daemon die with it; set recovery: none, or leave it out",
		 recovery_names[wish->recovery]);
	return -EPERM;
}
