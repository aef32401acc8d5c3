/*
 * Whether the kernel looks for partitions when a device starts. Pure functions, any thread.
 *
 * The scan reads the first and the last sectors of the device, and makes /dev/ublkbNpM of a table
 * that it finds there, whoever wrote it. UBLK_F_NO_AUTO_PART_SCAN (Linux 7.0) leaves it out; a
 * user can still ask for it (BLKRRPART, partprobe). The driver keeps the flag with the device.
 */
#ifndef UBLK_PARTITION_SCAN_H
#define UBLK_PARTITION_SCAN_H

#include <stdbool.h>
#include <stdint.h>

/* UBLK_F_* to ask ADD_DEV for. */
uint64_t partition_scan_flags(bool scan);

/* The other way round: of a device with these UBLK_F_*. */
bool partition_scan_of_flags(uint64_t flags);

#define PARTITION_SCAN_ERROR_BYTES 160

/* Returns 0, or -EOPNOTSUPP with words: the driver (its features: UBLK_F_*) always scans. */
int partition_scan_check(bool scan, uint64_t features,
			 char error[static PARTITION_SCAN_ERROR_BYTES]);

#endif
