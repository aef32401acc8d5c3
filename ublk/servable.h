/*
 * Whether ublkd can serve a device that is in the driver already, by its UBLK_F_*. Pure function,
 * any thread.
 */
#ifndef UBLK_SERVABLE_H
#define UBLK_SERVABLE_H

#include <stdint.h>

#define SERVABLE_ERROR_BYTES 320

/*
 * Returns 0, or -EOPNOTSUPP with words and a cure: the device wants of its server what ublkd does
 * not do, so that bytes would be lost or tags never come. Flags that no ublkd knows are let
 * through: drivers set some of their own accord (the end of ublk_ctrl_add_dev).
 */
int servable_check(uint64_t flags, char error[static SERVABLE_ERROR_BYTES]);

#endif
