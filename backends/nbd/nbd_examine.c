/*
 * One question to an NBD server: a connection, from its address to the end of the handshake. Owns
 * its stream, TLS session and timer. Reactor thread, but for nbd_examine_wait.
 *
 *   PAUSE --timer--> CONNECTING --> LOGIN --answered, refused--> BYE
 *    ^ backlog is full,  |            |                           |
 *    \__ next address ___/            \_____ the stream ends _____/--> fn, freed
 *
 * Happy path: connect -> nbd_login.c -> the answer is kept, DISC is sent, the connection closed ->
 * fn. Failure modes: nobody there: the next address, then words; refused: the words of the
 * handshake; time is up: in which phase.
 */
#include "backends/nbd/nbd_examine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd_credentials.h"
#include "backends/nbd/nbd_login.h"
#include "backends/nbd/nbd_request.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* Between two tries to connect to a unix socket whose backlog is full. */
#define BACKLOG_RETRY_NS (5 * NS_PER_MS)
/* For the last word to a server that takes nothing any more. */
#define BYE_NS NS_PER_SEC
/* Some answers are a page of exports; a record of TLS is 16 KiB and a little. */
#define WIRE_BYTES (16u << 10)
/* What the login says, and DISC. */
#define EXAMINE_PIECES 2u

enum nbd_examine_state {
	NBD_EXAMINE_PAUSE, /* until its timer fires, then an address is tried */
	NBD_EXAMINE_CONNECTING,
	NBD_EXAMINE_LOGIN, /* the handshake of NBD and that of TLS */
	NBD_EXAMINE_BYE,   /* the answer is there; the last word is being sent, or nothing */
};

struct nbd_examine {
	struct stream stream;
	struct nbd_login login;
	struct timer timer; /* of the state: when to go on, or when this takes too long */
	enum nbd_examine_state state;
	nbd_examine_fn *fn; /* NULL: forgotten */
	void *arg;
	struct nbd_handshake_config wish;
	enum net_kind kind;
	char whom[160]; /* net_host_format */
	struct net_addresses addresses;
	unsigned address_idx;
	uint64_t timeout_ns, end_ns; /* of all of it */
	uint64_t share_end_ns;	     /* of this address */
	bool late;		     /* connecting took longer than that */
	bool says_disc, said_disc;
	int ret; /* BYE: the answer */
	char words[512];
	uint8_t disc[NBD_REQUEST_BYTES_MAX];
	struct iovec pieces[EXAMINE_PIECES];
	uint8_t wire[WIRE_BYTES], plain[STREAM_PLAIN_BYTES];
};

static struct nbd_examine *examine_of_stream(struct stream *s)
{
	return container_of(s, struct nbd_examine, stream);
}

static void examine_set_state(struct nbd_examine *e, enum nbd_examine_state state,
			      uint64_t until_ns)
{
	e->state = state;
	reactor_timer_arm(e->stream.reactor, &e->timer, until_ns);
}

/* ---- the end ---- */

/* "unix:/run/x: words" */
__attribute__((format(printf, 3, 4))) static void examine_fail(struct nbd_examine *e, int err,
							       const char *fmt, ...)
{
	int nr = snprintf(e->words, sizeof(e->words), "%s: ", e->whom);
	va_list args;

	ASSERT(nr > 0 && (size_t)nr < sizeof(e->words));
	va_start(args, fmt);
	vsnprintf(e->words + nr, sizeof(e->words) - (size_t)nr, fmt, args);
	va_end(args);
	e->ret = err;
}

/* The stream is idle. */
static void examine_end(struct nbd_examine *e)
{
	struct reactor *r = e->stream.reactor;

	reactor_timer_cancel(r, &e->timer);
	if (e->fn)
		e->fn(e->arg, e->ret, &e->login.handshake.export, e->words);
	else
		reactor_leave_end(r);
	stream_fini(&e->stream);
	tls_free(e->login.tls.tls);
	free(e);
}

void nbd_examine_forget(struct nbd_examine *e)
{
	if (!e)
		return;
	e->fn = NULL;
	reactor_leave_begin(e->stream.reactor);
	reactor_timer_cancel(e->stream.reactor, &e->timer);
	if (e->stream.state == STREAM_IDLE)
		examine_end(e);
	else
		stream_close(&e->stream, 0);
}

/* ---- connecting ---- */

static void examine_connect_failed(struct nbd_examine *e, int err)
{
	net_connect_words(e->kind, e->whom, err, e->words, sizeof(e->words));
	e->ret = err;
}

/* One address that does not answer must not take the time of those behind it. */
static void examine_begin_address(struct nbd_examine *e)
{
	uint64_t now_ns = e->stream.reactor->now_ns;
	uint64_t left_ns = e->end_ns > now_ns ? e->end_ns - now_ns : 0;

	e->share_end_ns = now_ns + left_ns / (e->addresses.nr - e->address_idx);
	examine_set_state(e, NBD_EXAMINE_PAUSE, now_ns);
}

static void examine_address_failed(struct nbd_examine *e, int err)
{
	uint64_t now_ns = e->stream.reactor->now_ns;

	/* unix(7): the server is there, and behind with its accept(2). */
	if (err == -EAGAIN && e->kind == NET_UNIX) {
		if (now_ns < e->share_end_ns) {
			examine_set_state(e, NBD_EXAMINE_PAUSE, now_ns + BACKLOG_RETRY_NS);
			return;
		}
		err = -ETIMEDOUT;
	}
	if (++e->address_idx < e->addresses.nr) {
		examine_begin_address(e);
		return;
	}
	examine_connect_failed(e, err);
	examine_end(e);
}

static void examine_try(struct nbd_examine *e)
{
	const struct net_address *address = &e->addresses.address[e->address_idx];
	int ret;

	e->late = false;
	examine_set_state(e, NBD_EXAMINE_CONNECTING, e->share_end_ns);
	ret = stream_connect(&e->stream, (const struct sockaddr *)&address->name, address->bytes);
	if (ret < 0)
		examine_address_failed(e, ret);
}

/* ---- the login ---- */

const char *nbd_examine_doing(const struct nbd_examine *e, char *buf, size_t bytes)
{
	const struct nbd_handshake *h = &e->login.handshake;
	const char *opt = nbd_opt_name(h->opt);

	if (e->state == NBD_EXAMINE_PAUSE || e->state == NBD_EXAMINE_CONNECTING)
		return "connecting to the server";
	if (e->state == NBD_EXAMINE_BYE)
		return "closing the connection to the server";
	if (nbd_login_is_tls(&e->login))
		return "waiting for the server's TLS handshake";
	if (h->opt == 0 || !opt)
		return "waiting for the server's greeting: does it serve another client, and only "
		       "one at a time?";
	snprintf(buf, bytes, "waiting for the server's answer to %s", opt);
	return buf;
}

static bool examine_uses_tls(const struct nbd_examine *e)
{
	return nbd_login_is_tls(&e->login) || e->login.handshake.export.tls;
}

/* By the server, or its TLS, during the login. */
static void examine_broken(struct nbd_examine *e, int err)
{
	char buf[80];
	const char *doing = nbd_examine_doing(e, buf, sizeof(buf));

	if (examine_uses_tls(e) && tls_error(e->login.tls.tls)[0] != '\0')
		examine_fail(e, -EPROTO, "TLS: %s", tls_error(e->login.tls.tls));
	else if (err == -ETIMEDOUT)
		examine_fail(e, err, "time is up (%llu ms) while %s",
			     (unsigned long long)(e->timeout_ns / NS_PER_MS), doing);
	else
		examine_fail(e, err, "the connection broke while %s: %s", doing, errname(err));
}

/* The stream ended by itself. A reset is an end, too. */
static void examine_hung_up(struct nbd_examine *e, int err)
{
	struct nbd_handshake *h = &e->login.handshake;

	if (err == -ECONNRESET && examine_uses_tls(e))
		tls_eof(e->login.tls.tls);
	if (err != -ECONNRESET || (examine_uses_tls(e) && tls_error(e->login.tls.tls)[0] != '\0')) {
		examine_broken(e, err);
		return;
	}
	nbd_handshake_eof(h);
	examine_fail(e, h->err, "%s", h->error);
}

/* ---- the last word: nobody waits for answers to it ---- */

static void examine_say_goodbye(struct nbd_examine *e)
{
	bool extended = e->login.handshake.export.extended;

	if (nbd_login_say_rest(&e->login))
		return;
	if (e->says_disc && !e->said_disc) {
		e->said_disc = true;
		stream_send(&e->stream, e->disc, nbd_request_encode_disc(e->disc, extended));
	} else if (e->stream.sent_bytes == e->stream.queued_bytes) {
		if (e->stream.codec)
			tls_bye(e->login.tls.tls);
		stream_finish(&e->stream);
	}
}

static void examine_begin_goodbye(struct nbd_examine *e)
{
	uint64_t soon_ns = e->stream.reactor->now_ns + BYE_NS;

	examine_set_state(e, NBD_EXAMINE_BYE, MIN(soon_ns, e->end_ns));
	e->says_disc = e->ret == 0 && e->wish.mode == NBD_HANDSHAKE_GO;
	examine_say_goodbye(e);
}

/* What came of bytes of the login: 1 it is done, 0 there is more to come, -1 it failed. */
static void examine_go_on(struct nbd_examine *e, int ret, const struct nbd_login_error *error)
{
	const struct nbd_handshake *h = &e->login.handshake;

	if (ret == 0)
		return;
	e->ret = 0;
	if (ret < 0)
		examine_fail(e, h->step == NBD_HANDSHAKE_FAILED ? h->err : -EPROTO, "%s",
			     error->words);
	examine_begin_goodbye(e);
}

/* ---- the stream's events ---- */

static void examine_on_connected(struct stream *s)
{
	struct nbd_examine *e = examine_of_stream(s);

	nbd_login_begin(&e->login, &e->wish);
	examine_set_state(e, NBD_EXAMINE_LOGIN, e->end_ns);
}

static void examine_on_received(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct nbd_examine *e = examine_of_stream(s);
	struct nbd_input in = { data, data + bytes };
	struct nbd_login_error error;

	if (e->state == NBD_EXAMINE_LOGIN)
		examine_go_on(e, nbd_login_received(&e->login, &in, &error), &error);
}

static void examine_on_sent(struct stream *s)
{
	struct nbd_examine *e = examine_of_stream(s);
	struct nbd_login_error error;

	if (s->sent_bytes < s->queued_bytes)
		return;
	if (e->state == NBD_EXAMINE_BYE)
		examine_say_goodbye(e);
	else
		examine_go_on(e, nbd_login_sent(&e->login, &error), &error);
}

static void examine_on_closed(struct stream *s, int err)
{
	struct nbd_examine *e = examine_of_stream(s);

	if (e->fn && e->state == NBD_EXAMINE_CONNECTING) {
		examine_address_failed(e, e->late ? -ETIMEDOUT : err);
		return;
	}
	if (e->fn && e->state == NBD_EXAMINE_LOGIN)
		examine_hung_up(e, err);
	examine_end(e);
}

static void examine_on_timer(struct timer *timer)
{
	struct nbd_examine *e = container_of(timer, struct nbd_examine, timer);

	if (e->state == NBD_EXAMINE_PAUSE) {
		examine_try(e);
		return;
	}
	if (e->state == NBD_EXAMINE_CONNECTING) {
		e->late = true;
	} else if (e->state == NBD_EXAMINE_LOGIN) {
		examine_broken(e, -ETIMEDOUT);
		e->state = NBD_EXAMINE_BYE;
	}
	stream_close(&e->stream, 0);
}

/* ---- the beginning ---- */

static int examine_init_stream(struct nbd_examine *e, struct reactor *reactor)
{
	static const struct stream_ops ops = {
		.connected = examine_on_connected,
		.received = examine_on_received,
		.sent = examine_on_sent,
		.closed = examine_on_closed,
	};
	struct stream_params params = {
		.ops = &ops,
		.send = e->pieces,
		.send_nr = EXAMINE_PIECES,
		.receive = e->wire,
		.receive_bytes = sizeof(e->wire),
		.plain = e->plain,
		/* A server that refuses may hang up at once. */
		.hear_out = true,
	};

	return stream_init(&e->stream, reactor, &params);
}

static struct nbd_examine *examine_new(struct reactor *reactor,
				       const struct nbd_examine_params *params)
{
	struct nbd_examine *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	if (params->tls &&
	    tls_new(&e->login.tls.tls, params->tls, nbd_credentials_hostname(params->uri)) < 0) {
		free(e);
		return NULL;
	}
	e->login.tls.stream = &e->stream;
	e->wish = *params->wish;
	e->wish.tls = params->uri->tls; /* without it the handshake is in clear text */
	e->kind = params->uri->server.kind;
	net_host_format(&params->uri->server, e->whom, sizeof(e->whom));
	e->addresses = *params->addresses;
	e->timeout_ns = params->timeout_ns;
	e->end_ns = reactor->now_ns + params->timeout_ns;
	timer_init(&e->timer, examine_on_timer);
	return e;
}

int nbd_examine_begin(struct nbd_examine **ret_examine, struct reactor *reactor,
		      const struct nbd_examine_params *params, nbd_examine_fn *fn, void *arg)
{
	struct nbd_examine *e;
	int ret;

	ASSERT(params->uri->tls == (params->tls != NULL) && params->addresses->nr > 0);
	e = examine_new(reactor, params);
	if (!e)
		return -ENOMEM;
	ret = examine_init_stream(e, reactor);
	if (ret < 0) {
		tls_free(e->login.tls.tls);
		free(e);
		return ret;
	}
	e->fn = fn;
	e->arg = arg;
	examine_begin_address(e);
	*ret_examine = e;
	return 0;
}

/* ---- for those who wait ---- */

struct nbd_examine_waiter {
	struct reactor reactor;
	struct net_addresses addresses;
	bool over;
	int ret;
	struct nbd_export *export;
	char *error;
	size_t error_bytes;
};

static void examine_on_waited(void *arg, int ret, const struct nbd_export *export,
			      const char *words)
{
	struct nbd_examine_waiter *w = arg;

	w->over = true;
	w->ret = ret;
	if (ret == 0)
		*w->export = *export;
	else
		snprintf(w->error, w->error_bytes, "%s", words);
}

static int examine_and_wait(struct nbd_examine_waiter *w, const struct nbd_examine_params *params)
{
	struct nbd_examine *examine;
	int ret = nbd_examine_begin(&examine, &w->reactor, params, examine_on_waited, w);

	if (ret < 0) {
		snprintf(w->error, w->error_bytes, "out of memory");
		return ret;
	}
	while (!w->over)
		reactor_turn(&w->reactor, true);
	return w->ret;
}

static int examine_with_reactor(struct nbd_examine_waiter *w, struct nbd_examine_params *params)
{
	const struct reactor_params small = { .sq_entries = 8, .cq_entries = 16, .op_nr = 16 };
	int ret = net_host_find(&params->uri->server, &w->addresses, w->error, w->error_bytes);

	if (ret < 0)
		return ret;
	ret = reactor_init(&w->reactor, &small);
	if (ret < 0) {
		snprintf(w->error, w->error_bytes,
			 "io_uring cannot be used (%s): ublkctl doctor may say why", errname(ret));
		return ret;
	}
	params->addresses = &w->addresses;
	ret = examine_and_wait(w, params);
	reactor_fini(&w->reactor);
	return ret;
}

int nbd_examine_wait(const struct nbd_uri *uri, const struct tls_credentials *tls,
		     const struct nbd_handshake_config *wish, uint64_t timeout_ns,
		     struct nbd_export *ret_export, char *error, size_t error_bytes)
{
	struct nbd_examine_params params = {
		.uri = uri,
		.tls = tls,
		.wish = wish,
		.timeout_ns = timeout_ns,
	};
	struct nbd_examine_waiter *w = calloc(1, sizeof(*w));
	int ret;

	if (!w) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	w->export = ret_export;
	w->error = error;
	w->error_bytes = error_bytes;
	ret = examine_with_reactor(w, &params);
	free(w);
	return ret;
}
