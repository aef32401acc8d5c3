/* Pure functions; any thread. The driver's side is the end of ublk_ctrl_start_dev. */
#include "ublk/partition_scan.h"

#include <errno.h>
#include <stdio.h>

#include "ublk/ublk_abi.h"

uint64_t partition_scan_flags(bool scan)
{
	return scan ? 0 : UBLK_F_NO_AUTO_PART_SCAN;
}

bool partition_scan_of_flags(uint64_t flags)
{
	return !(flags & UBLK_F_NO_AUTO_PART_SCAN);
}

int partition_scan_check(bool scan, uint64_t features,
			 char error[static PARTITION_SCAN_ERROR_BYTES])
{
	if ((partition_scan_flags(scan) & ~features) == 0)
		return 0;
	snprintf(error, PARTITION_SCAN_ERROR_BYTES,
		 "partition_scan: no needs a kernel whose ublk driver has NO_AUTO_PART_SCAN (Linux "
		 "7.0); set partition_scan: yes");
	return -EOPNOTSUPP;
}
