/* What a client shows to the server of an NBD URI over TLS. Any thread that may wait for files. */
#ifndef BACKENDS_NBD_NBD_CREDENTIALS_H
#define BACKENDS_NBD_NBD_CREDENTIALS_H

#include <stddef.h>

#include "backends/nbd/nbd_uri.h"
#include "net/tls.h"

/*
 * As the URI says: with tls-psk-file PSK, otherwise X509, unless tls-type says which. Without TLS
 * *ret_credentials is NULL. Returns 0, or -errno with words for the user. For
 * tls_credentials_free.
 */
int nbd_credentials_new(const struct nbd_uri *uri, struct tls_credentials **ret_credentials,
			char *error, size_t error_bytes);

/* What TLS cannot do without, and the URI does not say, in words for the user; NULL: nothing. */
const char *nbd_credentials_missing(const struct nbd_uri *uri);

/* What an X509 certificate of the server is compared with; "": nothing that is known. */
const char *nbd_credentials_hostname(const struct nbd_uri *uri);

#endif
