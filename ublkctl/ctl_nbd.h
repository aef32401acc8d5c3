/* `ublkctl nbd-info`: what an NBD server offers, and what ublkd would make of it. */
#ifndef UBLKCTL_CTL_NBD_H
#define UBLKCTL_CTL_NBD_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

enum ctl_nbd_question {
	CTL_NBD_NAMED, /* the export that the URI names; all, when it names none */
	CTL_NBD_ALL,   /* all exports, though the URI names one */
	CTL_NBD_MAP,   /* what of the export is data */
};

/*
 * Asks the server of uri, without a daemon. EXIT_USAGE: uri is none; EXIT_REFUSED: it cannot be
 * reached, or refuses one of them, or has no map.
 */
enum exit_code ctl_nbd_info(const char *uri, enum ctl_nbd_question question, bool json);

#endif
