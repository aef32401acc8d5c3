/*
 * One connection of a queue. Owns its state, its stream and all that goes over it: the TLS session,
 * the handshake, and the requests that the queue has handed over, until they are answered or the
 * connection is lost. Reactor thread. It commands nbd_login.c and nbd_transfer.c,
 * and reports to nbd.c (nbd_queue_*).
 *
 *   DOWN --timer--> CONNECTING --> HANDSHAKE --> READY
 *    ^                  \______________\___________/
 *    \____________ CLOSING <____________ drop, or the stream's end
 *   READY --abandoned: DISC--> LEAVING --sent--> freed
 *   READY --ESHUTDOWN--> RETIRING --all answered: DISC--> LEAVING --sent--> CLOSING
 *
 * Happy path: an address is tried, the handshake asks for what the device was opened with, requests
 * are sent and answered. The timer limits each phase, and the wait for the oldest answer.
 *
 * A server that says that it is shutting down has not done the request: the request waits for
 * another connection as if it had been lost with this one, which ends when the others are answered.
 *
 * Failure modes: a reply that breaks the protocol, or none within the timeout: the connection is
 * dropped. The reason of each loss is logged (rate-limited), and the connection is tried again, at
 * once after one that worked, then after ever longer pauses. A server that is not what it was when
 * the device was opened (size, flags, block sizes) makes the device fail: its users must not go on
 * as if nothing had happened.
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

static struct nbd_connection *connection_of_stream(struct stream *s)
{
	return container_of(s, struct nbd_connection, stream);
}

/* Answers to requests are awaited. */
static bool connection_serves(const struct nbd_connection *conn)
{
	return conn->state == NBD_CONNECTION_READY || conn->state == NBD_CONNECTION_RETIRING;
}

static void connection_set_state(struct nbd_connection *conn, enum nbd_connection_state state)
{
	uint64_t now_ns = conn->stream.reactor->now_ns;

	if (nbd_connection_state_word(conn->state) != nbd_connection_state_word(state))
		__atomic_store_n(&conn->stats.since_ns, now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&conn->state, state, __ATOMIC_RELAXED);
}

static void connection_time_limit(struct nbd_connection *conn, uint64_t ns)
{
	struct reactor *r = conn->stream.reactor;

	reactor_timer_arm(r, &conn->timer, r->now_ns + ns);
}

/* ---- the end ---- */

static uint64_t connection_pause_ns(struct nbd_connection *conn)
{
	uint64_t outage_timeout_ns = conn->queue->nbd->config->outage_timeout_ns;
	uint64_t part_ns = MAX(outage_timeout_ns / PAUSES_IN_OUTAGE_TIMEOUT, PAUSE_FIRST_NS);
	uint64_t max_ns = outage_timeout_ns == 0 ? NS_PER_SEC : MIN(part_ns, PAUSE_MAX_NS);
	unsigned doublings = MIN(conn->tries - 1, 16u);
	uint64_t ns = PAUSE_FIRST_NS << doublings;

	ns = MIN(ns, max_ns);
	return ns - ns / 4 + prng_below(&conn->prng, ns / 2);
}

/*
 * A process that accepts and never greets, such as a child left over by a server that was killed,
 * must not take all the time that requests wait: the next try may find a server.
 */
static uint64_t handshake_limit_ns(const struct nbd_config *config)
{
	uint64_t ns = config->outage_timeout_ns / TRIES_IN_OUTAGE_TIMEOUT;

	if (config->outage_timeout_ns == 0)
		return config->timeout_ns;
	return MIN(config->timeout_ns, MAX(ns, NS_PER_SEC));
}

static void connection_try_later(struct nbd_connection *conn)
{
	connection_set_state(conn, NBD_CONNECTION_DOWN);
	connection_time_limit(conn, conn->tries > 0 ? connection_pause_ns(conn) : 0);
	__atomic_store_n(&conn->stats.next_try_ns, conn->timer.deadline_ns, __ATOMIC_RELAXED);
	conn->tries++;
}

void nbd_connection_drop(struct nbd_connection *conn, enum net_end end, const char *fmt, ...)
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

static void connection_tell_end(const struct nbd_connection *conn, enum net_end end, int err)
{
	struct nbd_device *nbd = conn->queue->nbd;

	log_limited_by(&nbd->limits.lost[end], LOG_LEVEL_WARN, "connection lost",
		       "device=%s queue=%u server=%s why=\"%s\"", nbd->name,
		       conn->queue->queue->idx, nbd->address,
		       conn->why[0] ? conn->why : errname(err));
}

/* In a word, where nobody on this side has said why. */
static enum net_end connection_end_by_itself(const struct nbd_connection *conn, int err)
{
	if (conn->state == NBD_CONNECTION_CONNECTING)
		return NET_END_UNREACHABLE;
	/* Servers that do not accept a key say so by hanging up. */
	if (conn->state == NBD_CONNECTION_HANDSHAKE && nbd_login_is_tls(&conn->login))
		return NET_END_REFUSED;
	return err == -EPROTO ? NET_END_PROTOCOL : NET_END_CLOSED;
}

static void connection_count_end(struct nbd_connection *conn, bool was_ready, enum net_end end)
{
	struct nbd_connection_stats *s = &conn->stats;

	counter_add(was_ready ? &s->lost : &s->failed_tries, 1);
	counter_add(&s->ends[end], 1);
	__atomic_store_n(&s->last_end, (int)end, __ATOMIC_RELAXED);
}

static void connection_free(struct nbd_connection *conn)
{
	tls_free(conn->login.tls);
	free(conn->pieces);
	free(conn->headers);
	free(conn->received);
	free(conn);
}

static void connection_destroy(struct nbd_connection *conn)
{
	struct reactor *r = conn->stream.reactor;

	reactor_timer_cancel(r, &conn->timer);
	stream_fini(&conn->stream);
	connection_free(conn);
	reactor_leave_end(r);
}

static void connection_give_back_requests(struct nbd_connection *conn)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	list_splice(&all, &conn->sent);
	conn->unsent = &conn->sent;
	while ((node = list_pop_front(&all))) {
		struct nbd_io *n = list_entry(node, struct nbd_io, node);

		if (n->answered && !n->refused)
			nbd_io_end(n, n->result);
		else
			nbd_queue_take_back(conn->queue, n);
	}
}

static void connection_on_closed(struct stream *s, int err)
{
	struct nbd_connection *conn = connection_of_stream(s);
	bool was_ready = connection_serves(conn) || conn->state == NBD_CONNECTION_LEAVING;
	enum net_end end;

	if (!conn->queue) {
		connection_destroy(conn);
		return;
	}
	end = conn->why[0] ? conn->end : connection_end_by_itself(conn, err);
	connection_count_end(conn, was_ready, end);
	if (err == -ECONNRESET && !conn->why[0] && conn->state == NBD_CONNECTION_HANDSHAKE)
		nbd_login_eof(&conn->login, conn->why, sizeof(conn->why));
	connection_tell_end(conn, end, err);
	reactor_timer_cancel(s->reactor, &conn->timer);
	connection_set_state(conn, NBD_CONNECTION_CLOSING);
	if (was_ready) {
		nbd_queue_lost(conn->queue, conn);
		connection_give_back_requests(conn);
	}
	if (was_ready && s->reactor->now_ns - conn->ready_ns > GOOD_NS)
		conn->tries = 0;
	if (atomic_load(&conn->queue->nbd->changed))
		nbd_queue_changed(conn->queue);
	else
		connection_try_later(conn);
}

/*
 * What is still to be sent belongs to requests that are gone: then there is no last word, and none
 * through a codec, which says when it has taken bytes and not when they are out.
 */
static void connection_say_goodbye(struct nbd_connection *conn)
{
	struct stream *s = &conn->stream;
	uint32_t bytes =
		nbd_request_encode_disc(conn->goodbye, conn->login.handshake.export.extended);

	connection_set_state(conn, NBD_CONNECTION_LEAVING);
	stream_send(s, conn->goodbye, bytes);
	connection_time_limit(conn, LEAVE_NS);
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
		connection_destroy(conn);
	else if (conn->state == NBD_CONNECTION_READY && s->sent_bytes == s->queued_bytes &&
		 !s->codec)
		connection_say_goodbye(conn);
	else
		stream_close(s, 0);
}

/* ---- requests ---- */

/* Of a connection that retires no request is left. */
static void connection_leave(struct nbd_connection *conn)
{
	snprintf(conn->why, sizeof(conn->why), "the server is shutting down");
	conn->end = NET_END_SHUTDOWN;
	if (conn->stream.codec)
		stream_close(&conn->stream, 0);
	else
		connection_say_goodbye(conn);
}

/* It is answered, and all of it is sent. The clock is the turn's: within one no time passes. */
static void connection_end_request(struct nbd_connection *conn, struct nbd_io *n)
{
	nbd_transfer_remove(conn, n);
	if (n->refused) {
		nbd_queue_take_back(conn->queue, n);
	} else {
		histogram_record(&conn->stats.wait, n->sent_ns - n->start_ns);
		histogram_record(&conn->stats.answer, conn->stream.reactor->now_ns - n->sent_ns);
		nbd_io_end(n, n->result);
	}
	if (conn->state == NBD_CONNECTION_RETIRING && list_empty(&conn->sent))
		connection_leave(conn);
}

/* Behind the last reply of a connection that is leaving anything else breaks the protocol. */
static void connection_take_replies(struct nbd_connection *conn, struct nbd_input in)
{
	struct nbd_io *n;
	int ret;

	while ((ret = nbd_transfer_received(conn, &in, &n)) > 0) {
		if (n->result == -ESHUTDOWN) {
			/* "it MUST initiate a soft disconnect" (proto.md) */
			n->refused = true;
			if (conn->state == NBD_CONNECTION_READY)
				connection_set_state(conn, NBD_CONNECTION_RETIRING);
		} else {
			conn->tries = 1; /* it is worth trying again soon */
			nbd_queue_answered(conn->queue, n);
		}
		if (n->sent_at_bytes <= conn->stream.sent_bytes)
			connection_end_request(conn, n);
	}
	if (ret < 0)
		nbd_connection_drop(conn, NET_END_PROTOCOL, "the server broke the protocol: %s",
				    conn->reply.error);
}

void nbd_connection_send(struct nbd_connection *conn, struct nbd_io *n)
{
	struct reactor *r = conn->stream.reactor;

	n->deadline_ns = r->now_ns + conn->queue->nbd->config->timeout_ns;
	if (n->again)
		counter_add(&conn->stats.resent, 1);
	nbd_transfer_send(conn, n);
	if (!conn->timer.armed)
		reactor_timer_arm(r, &conn->timer, n->deadline_ns);
}

/* The oldest request is overdue, or the timer was for one that has been answered. */
static void connection_check_overdue(struct nbd_connection *conn)
{
	struct reactor *r = conn->stream.reactor;
	const struct nbd_io *oldest;

	if (list_empty(&conn->sent))
		return;
	oldest = list_entry(conn->sent.next, struct nbd_io, node);
	if (oldest->deadline_ns > r->now_ns)
		reactor_timer_arm(r, &conn->timer, oldest->deadline_ns);
	else
		nbd_connection_drop(
			conn, NET_END_SILENT, "no answer to %s for %llu ms",
			nbd_cmd_name(oldest->slot.cmd),
			(unsigned long long)(conn->queue->nbd->config->timeout_ns / NS_PER_MS));
}

/* ---- the handshake ---- */

static void connection_become_ready(struct nbd_connection *conn)
{
	struct nbd_queue *q = conn->queue;

	if (nbd_changed_note(q->nbd, &conn->login.handshake.export)) {
		nbd_connection_drop(conn, NET_END_CHANGED, "the export is not what it was");
		return;
	}
	reactor_timer_cancel(conn->stream.reactor, &conn->timer);
	conn->ready_ns = conn->stream.reactor->now_ns;
	counter_add(&conn->stats.connects, 1);
	connection_set_state(conn, NBD_CONNECTION_READY);
	nbd_transfer_begin(conn);
	log_limited_by(&q->nbd->limits.connected, LOG_LEVEL_INFO, "connected",
		       "device=%s queue=%u connection=%u server=%s", q->nbd->name, q->queue->idx,
		       conn->idx, q->nbd->address);
	nbd_queue_ready(q);
}

/* What came of bytes of the handshake: 1 it is done, 0 there is more to come, -1 it failed. */
static void connection_go_on(struct nbd_connection *conn, int ret, const struct nbd_login_error *e)
{
	if (ret > 0)
		connection_become_ready(conn);
	else if (ret < 0)
		nbd_connection_drop(conn, e->end, "%s", e->words);
}

/* ---- the stream's events ---- */

static void connection_on_connected(struct stream *s)
{
	struct nbd_connection *conn = connection_of_stream(s);
	const struct nbd_device *nbd = conn->queue->nbd;
	struct nbd_handshake_config wish = {
		.mode = NBD_HANDSHAKE_GO,
		.tls = nbd->uri.tls,
		.export_name = nbd->uri.export_name,
		.no_meta = true,
		.no_structured = nbd->found.simple,
		.no_extended = nbd->found.simple,
	};

	connection_set_state(conn, NBD_CONNECTION_HANDSHAKE);
	nbd_login_begin(&conn->login, &wish);
}

static void connection_on_received(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct nbd_connection *conn = connection_of_stream(s);
	struct nbd_input in = { data, data + bytes };
	struct nbd_login_error e;

	if (conn->state == NBD_CONNECTION_HANDSHAKE)
		connection_go_on(conn, nbd_login_received(&conn->login, &in, &e), &e);
	/* What comes behind the handshake is a reply to nothing: the parser says so. */
	if (in.at < in.end && connection_serves(conn))
		connection_take_replies(conn, in);
}

/* Straight to its place; the parser follows. Behind the last byte it may have more to say. */
static void connection_on_received_into(struct stream *s, size_t bytes)
{
	struct nbd_connection *conn = connection_of_stream(s);

	nbd_reply_took(&conn->reply, bytes);
	if (s->into_bytes == 0)
		connection_take_replies(conn, (struct nbd_input){ NULL, NULL });
}

static void connection_on_sent(struct stream *s)
{
	struct nbd_connection *conn = connection_of_stream(s);
	struct nbd_login_error e;
	struct nbd_io *n;

	if (connection_serves(conn))
		/* Those that were answered while the last of their bytes were on their way. */
		while ((n = nbd_transfer_sent(conn)))
			connection_end_request(conn, n);
	else if (s->sent_bytes < s->queued_bytes)
		return;
	else if (conn->state == NBD_CONNECTION_LEAVING)
		stream_close(s, 0);
	else if (conn->login.said_bytes > 0)
		connection_go_on(conn, nbd_login_sent(&conn->login, &e), &e);
}

/* ---- the beginning ---- */

static void connection_try(struct nbd_connection *conn)
{
	const struct net_addresses *all = &conn->queue->addresses;
	const struct net_address *address = &all->address[conn->address++ % all->nr];
	int ret;

	if (conn->tries > 1)
		nbd_queue_look_up(conn->queue);
	conn->why[0] = '\0';
	if (conn->login.tls && tls_reset(conn->login.tls) < 0) {
		connection_try_later(conn);
		return;
	}
	ret = stream_connect(&conn->stream, (const struct sockaddr *)&address->name,
			     address->bytes);
	if (ret < 0) {
		connection_count_end(conn, false, NET_END_UNREACHABLE);
		connection_tell_end(conn, NET_END_UNREACHABLE, ret);
		connection_try_later(conn);
		return;
	}
	connection_set_state(conn, NBD_CONNECTION_CONNECTING);
	connection_time_limit(conn, handshake_limit_ns(conn->queue->nbd->config));
}

static void connection_on_timer(struct timer *timer)
{
	struct nbd_connection *conn = container_of(timer, struct nbd_connection, timer);

	if (conn->state == NBD_CONNECTION_DOWN)
		connection_try(conn);
	else if (connection_serves(conn))
		connection_check_overdue(conn);
	else if (conn->state == NBD_CONNECTION_LEAVING)
		stream_close(&conn->stream, 0);
	else if (conn->state == NBD_CONNECTION_CONNECTING)
		nbd_connection_drop(conn, NET_END_UNREACHABLE, "connecting took too long");
	else if (conn->state == NBD_CONNECTION_HANDSHAKE)
		nbd_connection_drop(conn, NET_END_SILENT, "%s took too long",
				    nbd_login_is_tls(&conn->login) ? "the TLS handshake"
								   : "the handshake");
}

static struct nbd_connection *connection_allocate(const struct nbd_queue *q)
{
	const struct nbd_device *nbd = q->nbd;
	struct nbd_connection *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->pieces = calloc(PIECES_PER_REQUEST * q->queue->depth, sizeof(*conn->pieces));
	conn->headers = calloc(q->queue->depth, NBD_REQUEST_BYTES_MAX);
	conn->received = malloc(RECEIVE_BYTES + (nbd->tls ? STREAM_PLAIN_BYTES : 0));
	if (conn->pieces && conn->headers && conn->received &&
	    (!nbd->tls ||
	     tls_new(&conn->login.tls, nbd->tls, nbd_credentials_hostname(&nbd->uri)) == 0))
		return conn;
	connection_free(conn);
	return NULL;
}

static int connection_init_stream(struct nbd_connection *conn, struct nbd_queue *q, unsigned idx)
{
	static const struct stream_ops ops = {
		.connected = connection_on_connected,
		.received = connection_on_received,
		.received_into = connection_on_received_into,
		.sent = connection_on_sent,
		.closed = connection_on_closed,
	};
	struct stream_params params = {
		.ops = &ops,
		.queue_idx = q->queue->idx,
		.leg = idx % (1u << USER_DATA_LEG_BITS),
		.send = conn->pieces,
		.send_nr = PIECES_PER_REQUEST * q->queue->depth,
		.receive = conn->received,
		.receive_bytes = RECEIVE_BYTES,
		.plain = conn->login.tls ? conn->received + RECEIVE_BYTES : NULL,
	};

	return stream_init(&conn->stream, q->queue->reactor, &params);
}

int nbd_connection_open(struct nbd_connection **ret_conn, struct nbd_queue *q, unsigned idx)
{
	struct nbd_connection *conn = connection_allocate(q);
	int ret;

	if (!conn)
		return -ENOMEM;
	ret = connection_init_stream(conn, q, idx);
	if (ret < 0) {
		connection_free(conn);
		return ret;
	}
	conn->login.stream = &conn->stream;
	conn->queue = q;
	conn->idx = conn->address = idx;
	conn->stats.since_ns = q->queue->reactor->now_ns;
	conn->stats.last_end = -1;
	prng_init(&conn->prng, ring_clock_ns() + q->queue->idx + (uint64_t)idx * 65536);
	list_init(&conn->sent);
	conn->unsent = &conn->sent;
	timer_init(&conn->timer, connection_on_timer);
	connection_try_later(conn);
	*ret_conn = conn;
	return 0;
}
