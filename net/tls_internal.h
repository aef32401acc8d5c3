/* What tls.c, tls_credentials.c and tls_words.c share; for nobody else. */
#ifndef NET_TLS_INTERNAL_H
#define NET_TLS_INTERNAL_H

#include <gnutls/gnutls.h>
#include <stdatomic.h>

#include "net/tls.h"

/* Of one record; GnuTLS never makes larger ones. */
#define TLS_RECORD_PLAIN_BYTES (16u << 10)

struct tls_credentials {
	atomic_uint holders; /* who made them, and every session */
	enum tls_kind kind;
	bool no_verify;
	char *username;	   /* PSK */
	char *authorities; /* X509: the file they are from; NULL: the system's */
	gnutls_priority_t priority;
	/* One of them. */
	gnutls_certificate_credentials_t x509;
	gnutls_psk_client_credentials_t psk;
	gnutls_anon_client_credentials_t anon;
};

enum tls_state {
	TLS_SHAKING,
	TLS_OPEN,
	TLS_BROKEN, /* for ever: error says why */
};

/* Bytes that wait, first in, first out; at the end of mem they go on at its beginning. */
struct tls_ring {
	uint8_t *mem;
	size_t size, begin, used;
};

struct tls {
	struct tls_credentials *credentials;
	gnutls_session_t session; /* NULL: tls_reset had no memory */
	enum tls_state state;
	bool waits;	     /* since the last call of GnuTLS: input was empty, or output full */
	bool heard;	     /* plain bytes, ever */
	bool ended;	     /* by close_notify */
	size_t silent_bytes; /* of the wire, since the last plain one */
	struct tls_ring in, out;
	char *hostname;			   /* "" for none */
	gnutls_typed_vdata_st expected[2]; /* of the certificate; the session keeps the address */
	char error[512];
	uint8_t plain[TLS_RECORD_PLAIN_BYTES]; /* pieces of tls_write on their way to one record */
	uint8_t in_mem[TLS_INPUT_BYTES], out_mem[TLS_OUTPUT_BYTES];
};

/*
 * Fills t->error for a call of GnuTLS that failed with code; what it says about the peer is asked
 * of the session.
 */
void tls_words(struct tls *t, int code);
/* The same for the end of the connection where it should not be. */
void tls_words_eof(struct tls *t);

#endif
