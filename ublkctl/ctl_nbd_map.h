/* `ublkctl nbd-info --map`. */
#ifndef UBLKCTL_CTL_NBD_MAP_H
#define UBLKCTL_CTL_NBD_MAP_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/nbd/nbd_uri.h"
#include "net/tls.h"

/*
 * Prints the extents of the export that uri names: offset, length, type, words; as they come, or as
 * one JSON array. Returns 0, or -errno with words for the user; some may have been printed then.
 */
int ctl_nbd_map(const struct nbd_uri *uri, const struct tls_credentials *tls, bool json,
		char *error, size_t error_bytes);

#endif
