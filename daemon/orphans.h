/* Devices that a daemon left behind when it was killed. Main thread, at start. */
#ifndef DAEMON_ORPHANS_H
#define DAEMON_ORPHANS_H

#include <stdint.h>

#include "daemon/loop.h"
#include "ublk/control.h"

/* What the driver keeps with each device of the daemon that serves this control socket. */
uint64_t orphans_mark(const char *control_path);

/*
 * Deletes all devices with this mark. The caller holds the lock of the control socket and has made
 * none yet: their daemon is dead. Failures are logged.
 */
void orphans_remove(struct loop *loop, struct ctl *ctl, uint64_t mark);

#endif
