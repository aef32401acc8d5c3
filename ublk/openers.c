/*
 * Who uses a ublk device. The driver of Linux 7.0 and later refuses to stop a device that is open
 * (TRY_STOP_DEV), but not who has it; older ones do not even refuse. No driver refuses to make a
 * device smaller.
 */
#include "ublk/openers.h"

#include <stdio.h>

enum block_users openers_find(int dev_id, char *text, size_t text_bytes)
{
	char disk[32];

	snprintf(disk, sizeof(disk), "ublkb%d", dev_id);
	return block_users_find(disk, text, text_bytes);
}
