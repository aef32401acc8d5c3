/* Who uses a block device: for a refusal that names them. Main thread; reads /proc and /sys. */
#ifndef UBLK_OPENERS_H
#define UBLK_OPENERS_H

#include <stddef.h>

enum openers {
	OPENERS_NONE,	   /* nobody that can be seen */
	OPENERS_TRANSIENT, /* only udev's probes: gone in a moment */
	OPENERS_REAL,
};

/*
 * Looks for mounts, swap, holders (dm, md, loop) and processes of /dev/ublkb<id> and its
 * partitions. Writes them in words ("mounted on /mnt, open by fio[123]") to text, cut when there
 * are many.
 */
enum openers openers_find(int dev_id, char *text, size_t text_bytes);

#endif
