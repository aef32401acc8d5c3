/* `ublkctl nbd-info`: what an NBD server offers, and what ublkd would make of it. */
#ifndef DAEMON_CTL_NBD_H
#define DAEMON_CTL_NBD_H

#include <stdbool.h>

#include "daemon/exit_code.h"

/*
 * Asks the server of uri, without a daemon. all: about all of its exports, though uri names one.
 * EXIT_USAGE: uri is none; EXIT_REFUSED: it cannot be reached, or refuses one of them.
 */
enum exit_code ctl_nbd_info(const char *uri, bool all, bool json);

#endif
