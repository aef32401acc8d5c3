/* Before Linux 6.16: lets the driver notice soon that the daemon has died. Main thread. */
#ifndef DAEMON_DEVICES_IO_TIMEOUT_H
#define DAEMON_DEVICES_IO_TIMEOUT_H

#include "ublk/device/device.h"

/*
 * These drivers learn of a server's death from commands that wait for requests. A queue all of
 * whose tags were in the server's hands has none: there only the timeout of a request tells
 * (ublk_timeout), after 30 s unless told otherwise. For a living server that timeout does nothing
 * but begin again. The device is LIVE; with a later driver nothing is done. Failures are logged,
 * once.
 */
void io_timeout_shorten(const struct device_host *host, const struct device *device);

#endif
