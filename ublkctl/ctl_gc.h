/* `ublkctl gc`: devices in the kernel that nobody serves. */
#ifndef UBLKCTL_CTL_GC_H
#define UBLKCTL_CTL_GC_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

/*
 * ids: words, NULL at the end; none: all orphans. EXIT_REFUSED when one could not be removed, or is
 * none; EXIT_USAGE (told) when a word is no number.
 */
enum exit_code ctl_gc(const char *socket_path, char **ids, bool remove, bool json);

#endif
