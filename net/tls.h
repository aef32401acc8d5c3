/*
 * TLS of a client over memory: bytes of the wire in and out, plain bytes in and out, no sockets.
 * GnuTLS does it; this file hides that from the rest. One session per connection, its owner's
 * thread; credentials are read-only after tls_credentials_new and shared by all sessions.
 *
 *	tls_new(&t, credentials, hostname)
 *	while (tls_handshake(t) == TLS_MORE)
 *		send what tls_output says, tell by tls_sent; receive, give it to tls_feed
 *	send the rest of the output, then in any order
 *		tls_write: plain bytes become output
 *		tls_feed, tls_read: input becomes plain bytes
 *
 * TLS 1.2 and 1.3; never less, never an unauthenticated peer unless that was asked for. A server
 * that wants to renegotiate is an error. So is one that closes the connection without close_notify,
 * which only the owner of the socket sees: it calls tls_eof.
 */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "net/stream.h"

struct tls;
struct tls_credentials;

enum tls_kind { TLS_KIND_X509, TLS_KIND_PSK, TLS_KIND_ANON };

struct tls_config {
	enum tls_kind kind;
	/*
	 * PSK: as psktool writes it, and whose line of it. Refused when everybody on this machine
	 * may read or write it, as is client-key.pem.
	 */
	const char *psk_file, *username;
	/* PSK: the key of username itself, instead of a file; TLS 1.3 alone then. */
	const void *psk;
	size_t psk_bytes;
	/*
	 * X509: a folder with ca-cert.pem and, if there are, ca-crl.pem and, to show who we are,
	 * client-cert.pem and client-key.pem (the names of the tools for NBD); NULL or "": the
	 * system's authorities, no certificate.
	 */
	const char *certificates;
	bool no_verify; /* X509: believe any certificate */
};

/*
 * Reads files, so: not on a reactor. Returns 0, or -errno with words for the user (which file, what
 * is wrong with it, the cure) in error.
 */
int tls_credentials_new(struct tls_credentials **ret_credentials, const struct tls_config *config,
			char *error, size_t error_bytes);
/* Accepts NULL. Sessions that are left keep them until they end, too. Any thread. */
void tls_credentials_free(struct tls_credentials *credentials);

/*
 * Wire bytes that wait to be sent, and wire bytes fed but not yet read as plain ones; made by
 * tls_new, never more. A record is at most 16 KiB and a little.
 */
#define TLS_OUTPUT_BYTES (256u << 10)
#define TLS_INPUT_BYTES (64u << 10)

/*
 * A server that sends more than that without a plain byte, in its handshake or later, is broken.
 * GnuTLS would gather 16 MiB.
 */
#define TLS_SILENT_BYTES_MAX (256u << 10)

/*
 * hostname: what an X509 certificate is compared with, a name or an address; copied. Without one
 * (NULL, "") the handshake fails, unless nothing is to be compared. Returns 0 or -ENOMEM.
 */
int tls_new(struct tls **ret_tls, const struct tls_credentials *credentials, const char *hostname);
/* Accepts NULL. */
void tls_free(struct tls *tls);

/*
 * For the same server again: forgets everything but the credentials and the name. Returns 0 or
 * -ENOMEM: then the handshake will fail.
 */
int tls_reset(struct tls *tls);

enum tls_step { TLS_MORE, TLS_DONE, TLS_FAILED };

/* FAILED: tls_error says why. Output may be left to be sent in each case (an alert with FAILED). */
enum tls_step tls_handshake(struct tls *tls);

/* Takes wire bytes as far as there is room; returns how many. */
size_t tls_feed(struct tls *tls, const uint8_t *wire, size_t bytes);

/*
 * As nbd_handshake_output: *ret_data stays where it is until tls_sent. Returns its size, 0: nothing
 * waits. What is asked after tls_sent may be more: the output is a ring, and this its first piece.
 */
size_t tls_output(const struct tls *tls, const uint8_t **ret_data);
void tls_sent(struct tls *tls, size_t bytes);

/*
 * Plain bytes from what was fed, of one record at most. bytes at least 1. Returns how many (at
 * least 1), -EAGAIN: feed more, -ENODATA: the server said close_notify, -EPROTO: tls_error says how
 * it broke TLS, or what of ours it did not accept: with TLS 1.3 it says so only after the
 * handshake.
 */
ssize_t tls_read(struct tls *tls, void *buf, size_t bytes);

/*
 * Plain bytes to output, as far as there is room, in order. Returns how many were taken, 0: send
 * output first; -EPROTO.
 */
ssize_t tls_write(struct tls *tls, const struct iovec *iov, unsigned nr);

/* Adds close_notify to the output, if there is room; nothing may be written then. */
void tls_bye(struct tls *tls);

/*
 * The server closed or reset the connection, and what it sent is fed and read. Unless it said
 * close_notify before, TLS is broken from now on and tls_error says what that means: many servers
 * end a handshake that way, without an alert, when they do not accept the key or certificate of a
 * client.
 */
void tls_eof(struct tls *tls);

/* For stream_secure, with a session whose handshake is done. */
extern const struct stream_codec tls_codec;

/* Printable words, "" when nothing failed. */
const char *tls_error(const struct tls *tls);

#endif
