/*
 * NBD URIs, as doc/uri.md of the NBD project has them:
 *
 *	nbd://host[:port]/export		nbds://... with TLS
 *	nbd+unix:///export?socket=/path		nbds+unix://...
 *	nbd+vsock://cid[:port]/export		nbds+vsock://... (libnbd's; not in uri.md)
 *
 * and as QEMU writes them (nbd_parse_filename), where nothing is escaped and there is no TLS:
 *
 *	nbd:unix:PATH[:exportname=NAME]		nbd:HOST:PORT[:exportname=NAME]
 *
 * Where the document leaves it to the client: no opportunistic TLS (nbd is clear text, nbds never
 * falls back); a TCP URI without host and a unix URI with one are refused; a query key that is not
 * known is refused, as is one given twice. From libnbd: tls-certificates, tls-psk-file,
 * tls-username (the same as userinfo). Pure, any thread.
 */
#ifndef BACKENDS_NBD_NBD_URI_H
#define BACKENDS_NBD_NBD_URI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nbd/nbd_proto.h"
#include "net/address.h"
#include "net/options.h"

#define NBD_URI_BYTES_MAX 16384u

/* Of the query. */
enum nbd_uri_key {
	NBD_URI_SOCKET,
	NBD_URI_TLS_TYPE,
	NBD_URI_TLS_HOSTNAME,
	NBD_URI_TLS_VERIFY_PEER,
	NBD_URI_TLS_CERTIFICATES,
	NBD_URI_TLS_PSK_FILE,
	NBD_URI_TLS_USERNAME,
	NBD_URI_KEY_NR,
};

/* Texts are decoded, terminated and without NUL; "" where nothing was said. */
struct nbd_uri {
	struct net_host server;
	bool tls;
	char export_name[NBD_STRING_BYTES_MAX + 1];
	char username[256]; /* for PSK */
	enum net_tls_type tls_type;
	bool tls_no_verify;		 /* tls-verify-peer=0 */
	char tls_hostname[256];		 /* to compare the certificate with; "": host */
	char tls_certificates[PATH_MAX]; /* a folder */
	char tls_psk_file[PATH_MAX];
	uint32_t said; /* bits of enum nbd_uri_key; a user before @ is said as tls-username */
};

struct nbd_uri_error {
	size_t column; /* from 1: where in the text */
	char text[200];
};

/* Returns 0, or -EINVAL with *e filled. *ret_uri is then undefined. */
int nbd_uri_parse(const char *text, struct nbd_uri *ret_uri, struct nbd_uri_error *e);

/* "tls-hostname". */
const char *nbd_uri_key_name(enum nbd_uri_key key);

#endif
