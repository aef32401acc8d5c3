/*
 * What an NBD server offers: one connection, one handshake, and gone. Blocking, with a
 * time limit, on any thread that may wait: before a device is opened, and for ublkctl nbd-info.
 */
#ifndef BACKENDS_NBD_NBD_EXAMINE_H
#define BACKENDS_NBD_NBD_EXAMINE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/nbd/nbd_handshake.h"
#include "backends/nbd/nbd_uri.h"
#include "net/tls.h"

struct nbd_examine {
	const struct nbd_uri *uri;
	const struct tls_credentials *tls;	 /* uri->tls: which; else NULL */
	const struct nbd_handshake_config *wish; /* its tls does not count, its name may differ */
	uint64_t timeout_ns;			 /* for all of it but the name server */
};

/*
 * Tries one address after the other until one answers; with GO a DISC is sent at the end. Returns 0
 * (ret_export filled with GO and INFO), or -errno with words for the user: whom, what, the cure.
 */
int nbd_examine(const struct nbd_examine *examine, struct nbd_export *ret_export, char *error,
		size_t error_bytes);

#endif
