/* `ublkctl inflight`: every I/O in the daemon. */
#ifndef UBLKCTL_CTL_INFLIGHT_H
#define UBLKCTL_CTL_INFLIGHT_H

#include <jansson.h>

/* data: the answer to the command "inflight". */
void ctl_print_inflight(const json_t *data);

#endif
