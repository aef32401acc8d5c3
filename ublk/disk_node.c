/* Asks the file system about a node. Failure mode: no node, no rights: it is not ours yet. */
#include "ublk/disk_node.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool disk_node_is_ours(uint32_t dev_id)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/ublkb%u", dev_id);
	return faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0;
}
