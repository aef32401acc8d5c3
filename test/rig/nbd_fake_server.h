/*
 * An NBD server for one connection, in a thread of its own: what it answers, where it falls silent
 * and where it hangs up is the test's. And a TLS that everybody can read, in the place of tls.c
 * (the linker takes these before the library's): "HI" is answered by "OK", then each byte is turned
 * around. Definitions: for one program.
 */
#ifndef TEST_RIG_NBD_FAKE_SERVER_H
#define TEST_RIG_NBD_FAKE_SERVER_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/nbd/nbd_examine.h"
#include "base/util.h"
#include "test/rig/nbd_bytes.h"

#define PEER_NEVER 0u
#define PEER_GREETING 1000u /* instead of an option */
#define PEER_TLS 1001u
#define TURN 0x5a

struct peer {
	/* The test's, before peer_start. */
	bool tls, tls_only, bad_tls, no_list;
	uint32_t silent_at, closes_at; /* an option, or one of the above */
	/* The test's, after peer_end. */
	uint32_t asked[16];
	unsigned asked_nr;
	bool disc, tls_used, bye;

	int listener, fd;
	bool turned, transmits;
	pthread_t thread;
	struct bytes out;
};

static inline bool peer_read(struct peer *p, uint8_t *at, size_t bytes)
{
	/* Of nothing, too, recv(2) would wait. */
	if (bytes > 0 && recv(p->fd, at, bytes, MSG_WAITALL) != (ssize_t)bytes)
		return false;
	for (size_t i = 0; p->turned && i < bytes; i++)
		at[i] ^= TURN;
	return true;
}

/* In two pieces, so that nobody relies on whole ones. */
static inline void peer_flush(struct peer *p)
{
	size_t half = p->out.nr / 2;

	for (size_t i = 0; p->turned && i < p->out.nr; i++)
		p->out.at[i] ^= TURN;
	send(p->fd, p->out.at, half, MSG_NOSIGNAL);
	usleep(1000);
	send(p->fd, p->out.at + half, p->out.nr - half, MSG_NOSIGNAL);
	p->out.nr = 0;
}

/* Until the other side has had enough. */
static inline void peer_wait_for_end(struct peer *p)
{
	uint8_t byte;

	while (recv(p->fd, &byte, 1, 0) > 0)
		;
}

/* False: this is the end of the connection. */
static inline bool peer_goes_on(struct peer *p, uint32_t at)
{
	if (p->silent_at == at)
		peer_wait_for_end(p);
	return p->silent_at != at && p->closes_at != at;
}

static inline bool peer_starts_tls(struct peer *p)
{
	uint8_t hi[2];

	peer_flush(p);
	if (!peer_goes_on(p, PEER_TLS) || !peer_read(p, hi, 2))
		return false;
	send(p->fd, p->bad_tls ? "NO" : "OK", 2, MSG_NOSIGNAL);
	p->turned = p->tls_used = true;
	return !p->bad_tls;
}

static inline void peer_answers_go(struct peer *p, const uint8_t *data)
{
	if (be_get32(data) == 4 && memcmp(data + 4, "none", 4) == 0) {
		add_rep(&p->out, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, 9);
		add_text(&p->out, "ask Paul.");
		return;
	}
	add_info_export(&p->out, NBD_OPT_GO, GIB(1), NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH);
	add_rep(&p->out, NBD_OPT_GO, NBD_REP_ACK, 0);
	p->transmits = true;
}

static inline void peer_answers(struct peer *p, uint32_t opt, const uint8_t *data)
{
	if (p->tls_only && !p->turned && opt != NBD_OPT_STARTTLS)
		add_rep(&p->out, opt, NBD_REP_ERR_TLS_REQD, 0);
	else if (opt == NBD_OPT_GO)
		peer_answers_go(p, data);
	else if (opt == NBD_OPT_LIST && !p->no_list) {
		add_server(&p->out, "one", "the first");
		add_server(&p->out, "two", "");
		add_rep(&p->out, opt, NBD_REP_ACK, 0);
	} else if (opt == NBD_OPT_LIST)
		add_rep(&p->out, opt, NBD_REP_ERR_POLICY, 0);
	else if (opt == NBD_OPT_STARTTLS && p->tls)
		add_rep(&p->out, opt, NBD_REP_ACK, 0);
	else
		add_rep(&p->out, opt, NBD_REP_ERR_UNSUP, 0);
}

/* One option; false: the end. */
static inline bool peer_option(struct peer *p)
{
	uint8_t head[16], data[9000];
	uint32_t opt;

	if (!peer_read(p, head, sizeof(head)))
		return false;
	opt = be_get32(head + 8);
	ASSERT(be_get32(head + 12) <= sizeof(data) && p->asked_nr < ARRAY_SIZE(p->asked));
	if (!peer_read(p, data, be_get32(head + 12)))
		return false;
	p->asked[p->asked_nr++] = opt;
	if (opt == NBD_OPT_ABORT || !peer_goes_on(p, opt))
		return false;
	peer_answers(p, opt, data);
	if (opt == NBD_OPT_STARTTLS && p->tls)
		return peer_starts_tls(p);
	peer_flush(p);
	return true;
}

static inline void peer_talk(struct peer *p)
{
	uint8_t request[28];

	if (!peer_goes_on(p, PEER_GREETING))
		return;
	add_greeting(&p->out, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
	peer_flush(p);
	if (!peer_read(p, request, 4))
		return;
	while (!p->transmits)
		if (!peer_option(p))
			return;
	p->disc = peer_read(p, request, sizeof(request)) &&
		  be_get32(request) == NBD_REQUEST_MAGIC && request[7] == NBD_CMD_DISC;
	p->bye = p->turned && peer_read(p, request, 1) && request[0] == 'B';
}

static inline void *peer_thread(void *arg)
{
	struct peer *p = arg;

	p->fd = accept(p->listener, NULL, NULL);
	peer_talk(p);
	close(p->fd);
	return NULL;
}

/* name is bound and listened on, and becomes what that has made of it. */
static inline void peer_start(struct peer *p, void *name, socklen_t bytes, size_t room)
{
	const struct sockaddr *sa = name;
	socklen_t room_bytes = (socklen_t)room;

	p->listener = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(p->listener >= 0);
	assert_int_equal(bind(p->listener, sa, bytes), 0);
	assert_int_equal(listen(p->listener, 1), 0);
	assert_int_equal(getsockname(p->listener, name, &room_bytes), 0);
	assert_int_equal(pthread_create(&p->thread, NULL, peer_thread, p), 0);
}

static inline void peer_end(struct peer *p)
{
	/* One that was never asked still waits. */
	shutdown(p->listener, SHUT_RDWR);
	pthread_join(p->thread, NULL);
	close(p->listener);
}

/* ---- TLS ---- */

struct tls {
	char hostname[64];
	uint8_t in[TLS_INPUT_BYTES], out[TLS_OUTPUT_BYTES];
	size_t in_nr, out_nr;
	bool said_hi, failed, ended;
};

static unsigned tls_nr; /* sessions that exist */
static char tls_hostname[64];

int tls_new(struct tls **ret_tls, const struct tls_credentials *credentials, const char *hostname)
{
	struct tls *t = calloc(1, sizeof(*t));

	assert_non_null(credentials);
	snprintf(tls_hostname, sizeof(tls_hostname), "%s", hostname);
	tls_nr++;
	*ret_tls = t;
	return 0;
}

void tls_free(struct tls *t)
{
	tls_nr -= t != NULL;
	free(t);
}

static inline void tls_put(struct tls *t, const void *data, size_t bytes)
{
	memcpy(t->out + t->out_nr, data, bytes);
	t->out_nr += bytes;
}

enum tls_step tls_handshake(struct tls *t)
{
	if (!t->said_hi)
		tls_put(t, "HI", 2);
	t->said_hi = true;
	if (t->in_nr < 2)
		return TLS_MORE;
	t->failed = memcmp(t->in, "OK", 2) != 0;
	t->in_nr = 0;
	return t->failed ? TLS_FAILED : TLS_DONE;
}

size_t tls_feed(struct tls *t, const uint8_t *wire, size_t bytes)
{
	memcpy(t->in + t->in_nr, wire, bytes);
	t->in_nr += bytes;
	return bytes;
}

size_t tls_output(const struct tls *t, const uint8_t **ret_data)
{
	*ret_data = t->out;
	return t->out_nr;
}

void tls_sent(struct tls *t, size_t bytes)
{
	assert_true(bytes <= t->out_nr);
	memmove(t->out, t->out + bytes, t->out_nr - bytes);
	t->out_nr -= bytes;
}

/* Never all that there is. */
ssize_t tls_read(struct tls *t, void *buf, size_t bytes)
{
	size_t most = MIN(bytes, (size_t)7), nr = MIN(most, t->in_nr);

	if (nr == 0)
		return -EAGAIN;
	for (size_t i = 0; i < nr; i++)
		((uint8_t *)buf)[i] = t->in[i] ^ TURN;
	memmove(t->in, t->in + nr, t->in_nr - nr);
	t->in_nr -= nr;
	return (ssize_t)nr;
}

/* A few bytes at a time, and none while the last ones wait. */
ssize_t tls_write(struct tls *t, const struct iovec *iov, unsigned nr)
{
	size_t bytes = MIN(iov[0].iov_len, 11u);

	assert_int_equal(nr, 1);
	if (t->out_nr > 0)
		return 0;
	tls_put(t, iov[0].iov_base, bytes);
	for (size_t i = 0; i < bytes; i++)
		t->out[i] ^= TURN;
	return (ssize_t)bytes;
}

void tls_bye(struct tls *t)
{
	const uint8_t bye = 'B' ^ TURN;

	tls_put(t, &bye, 1);
}

void tls_eof(struct tls *t)
{
	t->ended = true;
}

const char *tls_error(const struct tls *t)
{
	return t->failed ? "the certificate has a face" : t->ended ? "it has hung up" : "";
}

#endif
