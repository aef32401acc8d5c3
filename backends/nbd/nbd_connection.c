/*
 * One connection of a queue. Owns its stream, its TLS session and the requests that it was given.
 * Reactor thread.
 *
 *   DOWN --timer--> CONNECTING --> HANDSHAKE --(nbds)--> TLS --> HANDSHAKE --> READY
 *    ^                  \______________\__________________\____________________/
 *    \__________ CLOSING <_____________________ drop, or the stream's end
 *   READY --abandoned: DISC--> LEAVING --sent--> freed
 *   READY --ESHUTDOWN--> RETIRING --all answered: DISC--> LEAVING --sent--> CLOSING
 *
 * Happy path: an address is tried, the handshake asks for what the device was opened with, requests
 * go on. The timer limits each phase, and the wait for the oldest answer (nbd_transfer_timer).
 * Failure modes: whatever ends it is told (rate-limited), and it is tried again, at once after one
 * that worked, then after ever longer pauses. A server that is not what it was when the device was
 * opened (size, flags, block sizes) makes the device fail: whoever uses it must not go on as if
 * nothing had happened.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_credentials.h"
#include "base/assert.h"
#include "base/counter.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

/*
 * Pauses between tries: doubled from the first to the longest, a quarter more or less. The longest
 * is a part of what requests wait, so that a server that is back is found in time.
 */
#define PAUSE_FIRST_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS (10 * NS_PER_SEC)
#define PAUSES_IN_OUTAGE_TIMEOUT 16
#define TRIES_IN_OUTAGE_TIMEOUT 4
/* A connection that served for so long was a good one. */
#define GOOD_NS NS_PER_SEC

/* For the last word to a server that takes nothing any more. */
#define LEAVE_NS NS_PER_SEC

#define RECEIVE_BYTES (256u << 10)
/* Header and data of each tag; the handshake takes one at a time. */
#define PIECES_PER_REQUEST 2u

static struct nbd_connection *of_stream(struct stream *s)
{
	return container_of(s, struct nbd_connection, stream);
}

static void set_state(struct nbd_connection *conn, enum nbd_connection_state state)
{
	uint64_t now_ns = conn->stream.reactor->now_ns;

	if (nbd_connection_state_word(conn->state) != nbd_connection_state_word(state))
		__atomic_store_n(&conn->stats.since_ns, now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&conn->state, state, __ATOMIC_RELAXED);
}

static void time_limit(struct nbd_connection *conn, uint64_t ns)
{
	struct reactor *r = conn->stream.reactor;

	reactor_timer_arm(r, &conn->timer, r->now_ns + ns);
}

/* ---- the end ---- */

static uint64_t longest_pause_ns(uint64_t outage_timeout_ns)
{
	uint64_t ns = outage_timeout_ns / PAUSES_IN_OUTAGE_TIMEOUT;

	if (outage_timeout_ns == 0)
		return NS_PER_SEC;
	return MIN(MAX(ns, PAUSE_FIRST_NS), PAUSE_MAX_NS);
}

static uint64_t pause_ns(struct nbd_connection *conn)
{
	unsigned doublings = MIN(conn->tries - 1, 16u);
	uint64_t ns = PAUSE_FIRST_NS << doublings;

	ns = MIN(ns, longest_pause_ns(conn->queue->nbd->config->outage_timeout_ns));
	return ns - ns / 4 + prng_below(&conn->queue->prng, ns / 2);
}

/*
 * Whoever accepts and never greets, such as an orphan of a server that was killed, must not have
 * all the time that requests wait: the next try may find a server.
 */
static uint64_t handshake_limit_ns(const struct nbd_config *config)
{
	uint64_t ns = config->outage_timeout_ns / TRIES_IN_OUTAGE_TIMEOUT;

	if (config->outage_timeout_ns == 0)
		return config->timeout_ns;
	return MIN(config->timeout_ns, MAX(ns, NS_PER_SEC));
}

static void try_later(struct nbd_connection *conn)
{
	set_state(conn, NBD_CONNECTION_DOWN);
	time_limit(conn, conn->tries > 0 ? pause_ns(conn) : 0);
	__atomic_store_n(&conn->stats.next_try_ns, conn->timer.deadline_ns, __ATOMIC_RELAXED);
	conn->tries++;
}

void nbd_connection_drop(struct nbd_connection *conn, enum backend_end end, const char *fmt, ...)
{
	va_list ap;

	if (conn->why[0] != '\0' || conn->state == NBD_CONNECTION_DOWN)
		return;
	va_start(ap, fmt);
	vsnprintf(conn->why, sizeof(conn->why), fmt, ap);
	va_end(ap);
	conn->end = end;
	stream_close(&conn->stream, 0);
}

static void tell_end(const struct nbd_connection *conn, enum backend_end end, int err)
{
	struct nbd_device *nbd = conn->queue->nbd;

	log_limited_by(&nbd->limits.lost[end], LOG_LEVEL_WARN, "connection lost",
		       "device=%s queue=%u server=%s why=\"%s\"", nbd->name,
		       conn->queue->queue->idx, nbd->address,
		       conn->why[0] ? conn->why : errname(err));
}

/* In a word, where nobody on this side has said why. */
static enum backend_end end_by_itself(const struct nbd_connection *conn, int err)
{
	if (conn->state == NBD_CONNECTION_CONNECTING)
		return BACKEND_END_UNREACHABLE;
	/* Servers that do not accept a key say so by hanging up. */
	if (conn->state == NBD_CONNECTION_TLS)
		return BACKEND_END_REFUSED;
	return err == -EPROTO ? BACKEND_END_PROTOCOL : BACKEND_END_CLOSED;
}

static void count_end(struct nbd_connection *conn, bool was_ready, enum backend_end end)
{
	struct nbd_connection_stats *s = &conn->stats;

	counter_add(was_ready ? &s->lost : &s->failed_tries, 1);
	counter_add(&s->ends[end], 1);
	__atomic_store_n(&s->last_end, (int)end, __ATOMIC_RELAXED);
}

static void free_memory(struct nbd_connection *conn)
{
	tls_free(conn->tls);
	free(conn->pieces);
	free(conn->headers);
	free(conn->received);
	free(conn);
}

static void destroy(struct nbd_connection *conn)
{
	struct reactor *r = conn->stream.reactor;

	reactor_timer_cancel(r, &conn->timer);
	stream_fini(&conn->stream);
	free_memory(conn);
	reactor_leave_end(r);
}

/* What it means that the server closed the connection where it did. */
static void explain_eof(struct nbd_connection *conn, int err)
{
	if (err != -ECONNRESET || conn->why[0] != '\0')
		return;
	if (conn->state == NBD_CONNECTION_HANDSHAKE) {
		nbd_handshake_eof(&conn->handshake);
		snprintf(conn->why, sizeof(conn->why), "%s", conn->handshake.error);
	} else if (conn->state == NBD_CONNECTION_TLS) {
		tls_eof(conn->tls);
		snprintf(conn->why, sizeof(conn->why), "%s", tls_error(conn->tls));
	}
}

static void on_closed(struct stream *s, int err)
{
	struct nbd_connection *conn = of_stream(s);
	bool was_ready = nbd_connection_serves(conn) || conn->state == NBD_CONNECTION_LEAVING;
	enum backend_end end;

	if (!conn->queue) {
		destroy(conn);
		return;
	}
	end = conn->why[0] ? conn->end : end_by_itself(conn, err);
	count_end(conn, was_ready, end);
	explain_eof(conn, err);
	tell_end(conn, end, err);
	reactor_timer_cancel(s->reactor, &conn->timer);
	set_state(conn, NBD_CONNECTION_CLOSING);
	if (was_ready) {
		nbd_queue_lost(conn->queue, conn);
		nbd_transfer_end(conn);
	}
	if (was_ready && s->reactor->now_ns - conn->ready_ns > GOOD_NS)
		conn->tries = 0;
	if (atomic_load(&conn->queue->nbd->changed))
		nbd_queue_changed(conn->queue);
	else
		try_later(conn);
}

/*
 * What is still to be sent belongs to requests that are gone: then there is no last word, and none
 * through a codec, which says when it has taken bytes and not when they are out.
 */
static void say_goodbye(struct nbd_connection *conn)
{
	struct stream *s = &conn->stream;
	uint32_t bytes = nbd_request_encode_disc(conn->goodbye, conn->handshake.export.extended);

	set_state(conn, NBD_CONNECTION_LEAVING);
	stream_send(s, conn->goodbye, bytes);
	time_limit(conn, LEAVE_NS);
}

/* "If the client receives an NBD_ESHUTDOWN error it MUST initiate a soft disconnect" (proto.md). */
void nbd_connection_retire(struct nbd_connection *conn)
{
	if (conn->state == NBD_CONNECTION_READY)
		set_state(conn, NBD_CONNECTION_RETIRING);
}

void nbd_connection_leave(struct nbd_connection *conn)
{
	ASSERT(conn->state == NBD_CONNECTION_RETIRING && list_empty(&conn->sent));
	snprintf(conn->why, sizeof(conn->why), "the server is shutting down");
	conn->end = BACKEND_END_SHUTDOWN;
	if (conn->stream.codec)
		stream_close(&conn->stream, 0);
	else
		say_goodbye(conn);
}

void nbd_connection_abandon(struct nbd_connection *conn)
{
	struct stream *s;

	if (!conn)
		return;
	s = &conn->stream;
	ASSERT(list_empty(&conn->sent));
	conn->queue = NULL;
	reactor_timer_cancel(s->reactor, &conn->timer);
	reactor_leave_begin(s->reactor);
	if (s->state == STREAM_IDLE)
		destroy(conn);
	else if (conn->state == NBD_CONNECTION_READY && s->sent_bytes == s->queued_bytes &&
		 !s->codec)
		say_goodbye(conn);
	else
		stream_close(s, 0);
}

/* ---- the handshake ---- */

/* All that the handshake has to say is one piece; the next goes when that is out. */
static void say(struct nbd_connection *conn)
{
	const uint8_t *data;
	size_t bytes;

	if (conn->said_bytes > 0)
		return;
	conn->said_by_tls = conn->state == NBD_CONNECTION_TLS;
	bytes = conn->said_by_tls ? tls_output(conn->tls, &data)
				  : nbd_handshake_output(&conn->handshake, &data);
	if (bytes == 0)
		return;
	conn->said_bytes = bytes;
	stream_send(&conn->stream, data, bytes);
}

static void become_ready(struct nbd_connection *conn)
{
	struct nbd_queue *q = conn->queue;

	if (nbd_changed_note(q->nbd, &conn->handshake.export)) {
		nbd_connection_drop(conn, BACKEND_END_CHANGED, "the export is not what it was");
		return;
	}
	reactor_timer_cancel(conn->stream.reactor, &conn->timer);
	conn->ready_ns = conn->stream.reactor->now_ns;
	counter_add(&conn->stats.connects, 1);
	set_state(conn, NBD_CONNECTION_READY);
	nbd_transfer_begin(conn);
	log_limited_by(&q->nbd->limits.connected, LOG_LEVEL_INFO, "connected",
		       "device=%s queue=%u connection=%u server=%s", q->nbd->name, q->queue->idx,
		       conn->idx, q->nbd->address);
	nbd_queue_ready(q);
}

static void secure(struct nbd_connection *conn)
{
	stream_secure(&conn->stream, &tls_codec, conn->tls);
	set_state(conn, NBD_CONNECTION_HANDSHAKE);
	nbd_handshake_tls_started(&conn->handshake);
	say(conn);
}

/* The stream takes TLS over when the last of its bytes that were sent as ours are out. */
static void go_on_with_tls(struct nbd_connection *conn)
{
	switch (tls_handshake(conn->tls)) {
	case TLS_MORE:
		say(conn);
		break;
	case TLS_DONE:
		if (conn->said_bytes == 0)
			secure(conn);
		break;
	case TLS_FAILED:
		nbd_connection_drop(conn, BACKEND_END_REFUSED, "TLS: %s", tls_error(conn->tls));
		break;
	}
}

static void feed_tls(struct nbd_connection *conn, const uint8_t *data, size_t bytes)
{
	while (bytes > 0 && conn->state == NBD_CONNECTION_TLS && conn->why[0] == '\0') {
		size_t taken = tls_feed(conn->tls, data, bytes);

		data += taken;
		bytes -= taken;
		go_on_with_tls(conn);
		if (taken == 0)
			break;
	}
	if (bytes > 0)
		nbd_connection_drop(conn, BACKEND_END_PROTOCOL,
				    "TLS: the server sent more than was asked for");
}

static enum backend_end end_of_handshake(int err)
{
	if (err == -ESHUTDOWN)
		return BACKEND_END_SHUTDOWN;
	return err == -EPROTO ? BACKEND_END_PROTOCOL : BACKEND_END_REFUSED;
}

/* What comes behind the handshake is a reply to nothing: the parser says so. */
static void handshake_fed(struct nbd_connection *conn, const uint8_t *rest, size_t rest_bytes)
{
	switch (conn->handshake.step) {
	case NBD_HANDSHAKE_MORE:
		say(conn);
		break;
	case NBD_HANDSHAKE_START_TLS:
		set_state(conn, NBD_CONNECTION_TLS);
		go_on_with_tls(conn);
		break;
	case NBD_HANDSHAKE_DONE:
		become_ready(conn);
		if (rest_bytes > 0 && conn->state == NBD_CONNECTION_READY)
			nbd_transfer_received(conn, rest, rest_bytes);
		break;
	case NBD_HANDSHAKE_FAILED:
		nbd_connection_drop(conn, end_of_handshake(conn->handshake.err), "%s",
				    conn->handshake.error);
		break;
	}
}

static void feed_handshake(struct nbd_connection *conn, const uint8_t *data, size_t bytes)
{
	size_t used;

	nbd_handshake_feed(&conn->handshake, data, bytes, &used);
	handshake_fed(conn, data + used, bytes - used);
}

/* ---- the stream's events ---- */

static void on_connected(struct stream *s)
{
	struct nbd_connection *conn = of_stream(s);
	const struct nbd_device *nbd = conn->queue->nbd;
	struct nbd_handshake_config config = {
		.mode = NBD_HANDSHAKE_GO,
		.tls = nbd->uri.tls,
		.export_name = nbd->uri.export_name,
		.no_meta = true,
		.no_structured = nbd->found.simple,
		.no_extended = nbd->found.simple,
	};

	set_state(conn, NBD_CONNECTION_HANDSHAKE);
	nbd_handshake_init(&conn->handshake, &config);
	say(conn);
}

static void on_received(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct nbd_connection *conn = of_stream(s);

	if (nbd_connection_serves(conn))
		nbd_transfer_received(conn, data, bytes);
	else if (conn->state == NBD_CONNECTION_HANDSHAKE)
		feed_handshake(conn, data, bytes);
	else if (conn->state == NBD_CONNECTION_TLS)
		feed_tls(conn, data, bytes);
}

static void on_received_into(struct stream *s, size_t bytes)
{
	nbd_transfer_received_into(of_stream(s), bytes);
}

static void said(struct nbd_connection *conn)
{
	if (conn->said_by_tls)
		tls_sent(conn->tls, conn->said_bytes);
	else
		nbd_handshake_sent(&conn->handshake, conn->said_bytes);
	conn->said_bytes = 0;
	if (conn->state == NBD_CONNECTION_TLS)
		go_on_with_tls(conn);
	else
		say(conn);
}

static void on_sent(struct stream *s)
{
	struct nbd_connection *conn = of_stream(s);

	if (nbd_connection_serves(conn))
		nbd_transfer_sent(conn);
	else if (s->sent_bytes < s->queued_bytes)
		return;
	else if (conn->state == NBD_CONNECTION_LEAVING)
		stream_close(s, 0);
	else if (conn->said_bytes > 0)
		said(conn);
}

/* ---- the beginning ---- */

static void resolved(void *arg, const struct net_addresses *found, const char *error)
{
	struct nbd_queue *q = arg;

	q->resolve = NULL;
	if (found)
		q->addresses = *found;
	else
		log_limited_by(&q->nbd->limits.lookup, LOG_LEVEL_WARN, "cannot look up the server",
			       "device=%s error=\"%s\"", q->nbd->name, error);
}

/* Where it was it does not answer: meanwhile that is tried again, the answer is for the next try.
 */
static void look_up_again(struct nbd_queue *q)
{
	if (!q->resolve && !net_host_is_known(&q->nbd->uri.server))
		net_resolve_begin(&q->resolve, q->queue->reactor, &q->nbd->uri.server, resolved, q);
}

static void try_connect(struct nbd_connection *conn)
{
	const struct net_addresses *all = &conn->queue->addresses;
	const struct net_address *address = &all->address[conn->address++ % all->nr];
	int ret;

	if (conn->tries > 1)
		look_up_again(conn->queue);
	conn->why[0] = '\0';
	conn->said_bytes = 0;
	if (conn->tls && tls_reset(conn->tls) < 0) {
		try_later(conn);
		return;
	}
	ret = stream_connect(&conn->stream, (const struct sockaddr *)&address->name,
			     address->bytes);
	if (ret < 0) {
		count_end(conn, false, BACKEND_END_UNREACHABLE);
		tell_end(conn, BACKEND_END_UNREACHABLE, ret);
		try_later(conn);
		return;
	}
	set_state(conn, NBD_CONNECTION_CONNECTING);
	time_limit(conn, handshake_limit_ns(conn->queue->nbd->config));
}

static void on_timer(struct timer *timer)
{
	static const char *const phase[] = {
		[NBD_CONNECTION_CONNECTING] = "connecting",
		[NBD_CONNECTION_HANDSHAKE] = "the handshake",
		[NBD_CONNECTION_TLS] = "the TLS handshake",
	};
	struct nbd_connection *conn = container_of(timer, struct nbd_connection, timer);

	if (conn->state == NBD_CONNECTION_DOWN)
		try_connect(conn);
	else if (nbd_connection_serves(conn))
		nbd_transfer_timer(conn);
	else if (conn->state == NBD_CONNECTION_LEAVING)
		stream_close(&conn->stream, 0);
	else if (conn->state != NBD_CONNECTION_CLOSING)
		nbd_connection_drop(conn,
				    conn->state == NBD_CONNECTION_CONNECTING
					    ? BACKEND_END_UNREACHABLE
					    : BACKEND_END_SILENT,
				    "%s took too long", phase[conn->state]);
}

static struct nbd_connection *allocate(const struct nbd_queue *q)
{
	const struct nbd_device *nbd = q->nbd;
	struct nbd_connection *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->pieces = calloc(PIECES_PER_REQUEST * q->queue->depth, sizeof(*conn->pieces));
	conn->headers = calloc(q->queue->depth, NBD_REQUEST_BYTES_MAX);
	conn->received = malloc(RECEIVE_BYTES + (nbd->tls ? STREAM_PLAIN_BYTES : 0));
	if (conn->pieces && conn->headers && conn->received &&
	    (!nbd->tls || tls_new(&conn->tls, nbd->tls, nbd_credentials_hostname(&nbd->uri)) == 0))
		return conn;
	free_memory(conn);
	return NULL;
}

static int init_stream(struct nbd_connection *conn, struct nbd_queue *q, unsigned idx)
{
	static const struct stream_ops ops = {
		.connected = on_connected,
		.received = on_received,
		.received_into = on_received_into,
		.sent = on_sent,
		.closed = on_closed,
	};
	struct stream_params params = {
		.ops = &ops,
		.queue_idx = q->queue->idx,
		.leg = idx % (1u << USER_DATA_LEG_BITS),
		.send = conn->pieces,
		.send_nr = PIECES_PER_REQUEST * q->queue->depth,
		.receive = conn->received,
		.receive_bytes = RECEIVE_BYTES,
		.plain = conn->tls ? conn->received + RECEIVE_BYTES : NULL,
	};

	return stream_init(&conn->stream, q->queue->reactor, &params);
}

int nbd_connection_open(struct nbd_connection **ret_conn, struct nbd_queue *q, unsigned idx)
{
	struct nbd_connection *conn = allocate(q);
	int ret;

	if (!conn)
		return -ENOMEM;
	ret = init_stream(conn, q, idx);
	if (ret < 0) {
		free_memory(conn);
		return ret;
	}
	conn->queue = q;
	conn->idx = conn->address = idx;
	conn->stats.since_ns = q->queue->reactor->now_ns;
	conn->stats.last_end = -1;
	list_init(&conn->sent);
	conn->unsent = &conn->sent;
	timer_init(&conn->timer, on_timer);
	try_later(conn);
	*ret_conn = conn;
	return 0;
}
