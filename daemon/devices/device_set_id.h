/* Who has the id that a device was to have. Main thread. */
#ifndef DAEMON_DEVICES_DEVICE_SET_ID_H
#define DAEMON_DEVICES_DEVICE_SET_ID_H

#include "daemon/devices/device_set.h"

/*
 * The driver said EEXIST to m: writes to text which device has its id, and the cure. folder: of the
 * nodes, "/dev". Reads /proc.
 */
void device_set_explain_id(const struct device_set *f, const struct member *m, const char *folder,
			   char *text, size_t bytes);

#endif
