/*
 * Whose a device in the driver is, and which: a number that the driver keeps with it
 * (ublksrv_flags) and does not look at. Pure functions.
 */
#ifndef DAEMON_DEVICES_MARK_H
#define DAEMON_DEVICES_MARK_H

#include <stdbool.h>
#include <stdint.h>

/* Of the device `name` of the daemon that serves this control socket. */
uint64_t mark_of(const char *control_path, const char *name);

/* Whether a device with this mark is one of the daemon that serves this control socket. */
bool mark_is_of(uint64_t mark, const char *control_path);

/* Whether it is one of any ublkd. */
bool mark_is_ublkd(uint64_t mark);

#endif
