/* `ublkctl nbd-info`: what an NBD server offers, and what ublkd would make of it. */
#ifndef UBLKCTL_CTL_NBD_H
#define UBLKCTL_CTL_NBD_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

/*
 * Asks the server of uri, without a daemon, about the export that the URI names; about all of them
 * if it names none, or with list_all. EXIT_USAGE: uri is not a URI; EXIT_REFUSED: the server cannot
 * be reached, or refuses one of the exports.
 */
enum exit_code ctl_nbd_info(const char *uri, bool list_all, bool json);

#endif
