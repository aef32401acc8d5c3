/* `ublkctl inflight`: every I/O in the daemon. */
#ifndef DAEMON_CTL_INFLIGHT_H
#define DAEMON_CTL_INFLIGHT_H

#include <jansson.h>

/* data: the answer to the command "inflight". */
void ctl_print_inflight(const json_t *data);

#endif
