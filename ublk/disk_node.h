/* The node of a block device, /dev/ublkbN. Main thread; the simulator has a disk_node.c of its own.
 */
#ifndef UBLK_DISK_NODE_H
#define UBLK_DISK_NODE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this process may read and write it; it is not opened, which would be a use of the device.
 */
bool disk_node_is_ours(uint32_t dev_id);

#endif
