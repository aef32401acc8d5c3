/* Pure functions; any thread. The combinations are those that ublk_ctrl_add_dev accepts. */
#include "ublk/recovery.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "ublk/ublk_abi.h"

const char *const recovery_names[] = { "reissue", "hold", "fail", "none", NULL };

uint64_t recovery_flags(enum recovery recovery)
{
	static const uint64_t flags[RECOVERY_NR] = {
		[RECOVERY_REISSUE] = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE,
		[RECOVERY_HOLD] = UBLK_F_USER_RECOVERY,
		[RECOVERY_FAIL] = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_FAIL_IO,
	};

	return flags[recovery];
}

bool recovery_possible(uint64_t flags)
{
	return flags & UBLK_F_USER_RECOVERY;
}

int recovery_check(enum recovery recovery, uint64_t features,
		   char error[static RECOVERY_ERROR_BYTES])
{
	uint64_t missing = recovery_flags(recovery) & ~features;

	if (missing == 0)
		return 0;
	snprintf(error, RECOVERY_ERROR_BYTES,
		 "recovery: %s needs a kernel whose ublk driver has %s; set recovery: %s",
		 recovery_names[recovery],
		 missing & UBLK_F_USER_RECOVERY ? "USER_RECOVERY" : "RECOVERY_FAIL_IO (Linux 6.13)",
		 missing & UBLK_F_USER_RECOVERY ? "none" : "reissue");
	return -EOPNOTSUPP;
}
