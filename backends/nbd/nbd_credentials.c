/*
 * From an NBD URI to tls.h. Owns nothing. Happy path: the kind, and its files. Failure modes: what
 * the URI leaves open, in words of a URI; files, in those of tls_credentials.c.
 */
#include "backends/nbd/nbd_credentials.h"

#include <errno.h>
#include <stdio.h>

static enum tls_kind kind_of(const struct nbd_uri *uri)
{
	switch (uri->tls_type) {
	case NET_TLS_PSK:
		return TLS_KIND_PSK;
	case NET_TLS_X509:
		return TLS_KIND_X509;
	case NET_TLS_ANON:
		return TLS_KIND_ANON;
	case NET_TLS_AUTO:
		break;
	}
	return uri->tls_psk_file[0] != '\0' ? TLS_KIND_PSK : TLS_KIND_X509;
}

const char *nbd_credentials_hostname(const struct nbd_uri *uri)
{
	return uri->tls_hostname[0] != '\0' ? uri->tls_hostname : uri->server.host;
}

const char *nbd_credentials_missing(const struct nbd_uri *uri)
{
	enum tls_kind kind = kind_of(uri);

	if (!uri->tls)
		return NULL;
	if (kind == TLS_KIND_PSK && uri->tls_psk_file[0] == '\0')
		return "TLS with a key needs its file: tls-psk-file=FILE in the URI, or "
		       "psk_file in tls";
	if (kind == TLS_KIND_PSK && uri->username[0] == '\0')
		return "whose key of the file is it? USER@ before the host in the URI, or "
		       "username in tls";
	if (kind == TLS_KIND_X509 && !uri->tls_no_verify &&
	    nbd_credentials_hostname(uri)[0] == '\0')
		return "a socket has no name to compare the certificate with: tls-hostname=NAME in "
		       "the URI, or hostname in tls";
	return NULL;
}

int nbd_credentials_new(const struct nbd_uri *uri, struct tls_credentials **ret_credentials,
			char *error, size_t error_bytes)
{
	struct tls_config config = {
		.kind = kind_of(uri),
		.psk_file = uri->tls_psk_file,
		.username = uri->username,
		.certificates = uri->tls_certificates,
		.no_verify = uri->tls_no_verify,
	};
	const char *missing = nbd_credentials_missing(uri);

	if (!uri->tls) {
		*ret_credentials = NULL;
		return 0;
	}
	if (missing) {
		snprintf(error, error_bytes, "%s", missing);
		return -EINVAL;
	}
	return tls_credentials_new(ret_credentials, &config, error, error_bytes);
}
