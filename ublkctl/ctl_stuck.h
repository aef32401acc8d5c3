/* `ublkctl why-stuck`: where the oldest I/O of each device sits, and what to do. */
#ifndef UBLKCTL_CTL_STUCK_H
#define UBLKCTL_CTL_STUCK_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

/* name NULL: all devices. */
enum exit_code ctl_why_stuck(const char *socket_path, const char *name, bool json);

#endif
