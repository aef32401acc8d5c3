/* The ublk driver, found and asked what it can. Main thread, at start. */
#ifndef DAEMON_RUNTIME_DRIVER_H
#define DAEMON_RUNTIME_DRIVER_H

#include "daemon/runtime/loop.h"
#include "ublk/control.h"

/*
 * Opens the control device and waits for the driver's features. Returns 0 or -errno, logged with
 * its cure.
 */
int driver_open(struct ctl *ctl, struct loop *loop);

#endif
