/* What udev asks when a block device appears: which of ours is it? Needs no ublkd. */
#ifndef UBLKCTL_CTL_UDEV_H
#define UBLKCTL_CTL_UDEV_H

#include "daemon/runtime/exit_code.h"

#define CTL_STATE_DIR_DEFAULT "/run/ublkd/control.sock.state"

/*
 * Prints the name of the device whose block device is called node ("ublkb3"), from the files in
 * state_dir (docs/recovery.md). EXIT_REFUSED: none of them says it is theirs; nothing is printed.
 */
enum exit_code ctl_udev_name(const char *node, const char *state_dir);

#endif
