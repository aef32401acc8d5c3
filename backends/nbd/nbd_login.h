/*
 * The beginning of a connection: the NBD handshake and, where nbds asks for it, TLS in the middle
 * of it, on a stream that is open. Embedded in what owns the stream, which hands it what the stream
 * says until the login is done. Reactor thread.
 *
 *	stream: connected   nbd_login_begin
 *	        received    nbd_login_received, until that is not 0
 *	        sent        when all is: nbd_login_sent
 */
#ifndef BACKENDS_NBD_NBD_LOGIN_H
#define BACKENDS_NBD_NBD_LOGIN_H

#include "backends/nbd/nbd_handshake.h"
#include "backends/nbd/nbd_reply.h"
#include "net/session_look.h"
#include "net/tls_start.h"

struct nbd_login {
	struct tls_start
		tls; /* its first fields are the owner's, also in clear text: tls.tls NULL */
	/* nbd_login.c's, but for what comments of struct nbd_handshake give to its owner. */
	size_t said_bytes; /* of the handshake's output, on its way */
	struct nbd_handshake handshake;
};

struct nbd_login_error {
	enum net_end end;
	char words[NBD_HANDSHAKE_ERROR_BYTES];
};

/* That of TLS is under way. */
static inline bool nbd_login_is_tls(const struct nbd_login *login)
{
	return login->handshake.step == NBD_HANDSHAKE_START_TLS;
}
/* wish: as for nbd_handshake_init. */
void nbd_login_begin(struct nbd_login *login, const struct nbd_handshake_config *wish);
/* 1: done, what is left of in comes behind the handshake; 0: there is more to come; -1: *e. */
int nbd_login_received(struct nbd_login *login, struct nbd_input *in, struct nbd_login_error *e);
/* All that was said is sent. Returns 0, or -1 with *e. */
int nbd_login_sent(struct nbd_login *login, struct nbd_login_error *e);
/*
 * After its end, whatever that was: hands over what was not said yet, an alert of TLS or an ABORT,
 * if all before is sent. Returns whether some is on its way.
 */
bool nbd_login_say_rest(struct nbd_login *login);
/* The server closed the connection: what that means here. */
void nbd_login_eof(struct nbd_login *login, char *words, size_t words_bytes);

#endif
