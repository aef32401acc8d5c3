/*
 * One connection of a session. Owns its state, its stream, its TLS session, and the requests that
 * the session has handed over, until they are answered and sent, or the connection is lost. Reactor
 * thread. It is driven by its stream and its timer, commands the protocol, and reports to
 * session.c. session.h has its states.
 *
 * Happy path: an address is tried, the protocol says hello, requests are sent and answered. The
 * timer limits each phase, and the wait for the oldest answer.
 *
 * Failure modes: the protocol or the timer drops it, or the stream ends. The reason of each loss is
 * logged (rate-limited), requests go back to the session, and the connection is tried again, at
 * once after one that worked, then after ever longer pauses.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/session_internal.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/*
 * Pauses between tries: doubled from the first to the longest, a quarter more or less. The longest
 * is a part of what requests are held, so that a peer that is back is found in time.
 */
#define PAUSE_FIRST_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS (10 * NS_PER_SEC)
#define PAUSES_IN_OUTAGE_TIMEOUT 16
#define TRIES_IN_OUTAGE_TIMEOUT 4
/* A connection that served for so long was a good one. */
#define GOOD_NS NS_PER_SEC

/* For the last word to a peer that takes nothing any more. */
#define LEAVE_NS NS_PER_SEC

static struct session_connection *connection_of_stream(struct stream *s)
{
	return container_of(s, struct session_connection, stream);
}

static void connection_set_state(struct session_connection *c, enum session_state state)
{
	uint64_t now_ns = c->stream.reactor->now_ns;

	if (session_state_word(c->state) != session_state_word(state))
		__atomic_store_n(&c->stats.since_ns, now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&c->state, state, __ATOMIC_RELAXED);
	c->takes = state == SESSION_READY ? c->rank : SESSION_UNUSABLE;
}

static void connection_time_limit(struct session_connection *c, uint64_t ns)
{
	struct reactor *r = c->stream.reactor;

	reactor_timer_arm(r, &c->timer, r->now_ns + ns);
}

static void connection_stop_timers(struct session_connection *c)
{
	reactor_timer_cancel(c->stream.reactor, &c->timer);
	reactor_timer_cancel(c->stream.reactor, &c->keepalive);
}

/* ---- the end ---- */

static uint64_t connection_pause_ns(struct session_connection *c)
{
	uint64_t outage_timeout_ns = c->session->params.outage_timeout_ns;
	uint64_t part_ns = MAX(outage_timeout_ns / PAUSES_IN_OUTAGE_TIMEOUT, PAUSE_FIRST_NS);
	uint64_t max_ns = outage_timeout_ns == 0 ? NS_PER_SEC : MIN(part_ns, PAUSE_MAX_NS);
	unsigned doublings = MIN(c->tries - 1, 16u);
	uint64_t ns = PAUSE_FIRST_NS << doublings;

	ns = MIN(ns, max_ns);
	return ns - ns / 4 + prng_below(&c->prng, ns / 2);
}

static void connection_try_later(struct session_connection *c)
{
	connection_set_state(c, SESSION_DOWN);
	connection_time_limit(c, c->tries > 0 ? connection_pause_ns(c) : 0);
	__atomic_store_n(&c->stats.next_try_ns, c->timer.deadline_ns, __ATOMIC_RELAXED);
	c->tries++;
}

void session_drop(struct session_connection *c, enum net_end end, const char *fmt, ...)
{
	va_list ap;

	if (c->why[0] != '\0' || c->state == SESSION_DOWN)
		return;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	c->end = end;
	stream_close(&c->stream, 0);
}

static void connection_tell_end(const struct session_connection *c, enum net_end end, int err)
{
	const struct session_params *params = &c->session->params;

	log_limited_by(&params->limits->lost[end], LOG_LEVEL_WARN, "connection lost",
		       "device=%s queue=%u server=%s why=\"%s\"", params->name, params->queue_idx,
		       c->server, c->why[0] ? c->why : errname(err));
}

/* In a word, where nobody on this side has said why. */
static enum net_end connection_end_by_itself(struct session_connection *c, int err)
{
	const struct session_protocol *p = c->protocol;

	if (c->state == SESSION_CONNECTING)
		return NET_END_UNREACHABLE;
	if (c->state == SESSION_HELLO && p->hello_ended &&
	    p->hello_ended(c, err, c->why, sizeof(c->why)))
		return NET_END_REFUSED;
	return err == -EPROTO ? NET_END_PROTOCOL : NET_END_CLOSED;
}

static void connection_count_end(struct session_connection *c, bool was_ready, enum net_end end)
{
	struct session_stats *s = &c->stats;

	counter_add(was_ready ? &s->lost : &s->failed_tries, 1);
	counter_add(&s->ends[end], 1);
	__atomic_store_n(&s->last_end, (int)end, __ATOMIC_RELAXED);
}

static void connection_free(struct session_connection *c)
{
	if (c->protocol->connection_fini)
		c->protocol->connection_fini(c);
	tls_free(c->tls);
	free(c->pieces);
	free(c->received);
	free(c);
}

static void connection_destroy(struct session_connection *c)
{
	struct reactor *r = c->stream.reactor;

	connection_stop_timers(c);
	stream_fini(&c->stream);
	connection_free(c);
	reactor_leave_end(r);
}

static void connection_give_back_requests(struct session_connection *c)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	list_splice(&all, &c->sent);
	c->unsent = &c->sent;
	while ((node = list_pop_front(&all))) {
		struct session_request *r = list_entry(node, struct session_request, node);

		if (r->answered && !r->refused)
			session_end(c->protocol, r, r->result);
		else
			session_take_back(c->session, r);
	}
}

static void connection_on_closed(struct stream *s, int err)
{
	struct session_connection *c = connection_of_stream(s);
	bool was_ready = session_serves(c) || c->state == SESSION_LEAVING;
	enum net_end end;

	if (c->protocol->closed)
		c->protocol->closed(c);
	if (!c->session) {
		connection_destroy(c);
		return;
	}
	end = c->why[0] ? c->end : connection_end_by_itself(c, err);
	connection_count_end(c, was_ready, end);
	connection_tell_end(c, end, err);
	connection_stop_timers(c);
	connection_set_state(c, SESSION_CLOSING);
	if (was_ready) {
		session_lost(c->session, c);
		connection_give_back_requests(c);
	}
	if (was_ready && s->reactor->now_ns - c->ready_ns > GOOD_NS)
		c->tries = 0;
	if (session_is_over(c->session))
		session_stop(c->session);
	else
		connection_try_later(c);
}

/*
 * What is still to be sent belongs to requests that are gone: then there is no last word, and none
 * through a codec, which says when it has taken bytes and not when they are out.
 */
static void connection_say_goodbye(struct session_connection *c)
{
	size_t bytes = c->protocol->goodbye ? c->protocol->goodbye(c, c->goodbye) : 0;

	connection_set_state(c, SESSION_LEAVING);
	if (bytes == 0) {
		stream_close(&c->stream, 0);
		return;
	}
	ASSERT(bytes <= sizeof(c->goodbye));
	stream_send(&c->stream, c->goodbye, bytes);
	connection_time_limit(c, LEAVE_NS);
}

static void connection_forget_own(struct session_connection *c)
{
	struct list_node *node;

	while ((node = list_pop_front(&c->sent)))
		ASSERT(list_entry(node, struct session_request, node)->own);
	c->unsent = &c->sent;
}

void session_connection_abandon(struct session_connection *c)
{
	struct stream *s;

	if (!c)
		return;
	s = &c->stream;
	connection_forget_own(c);
	c->session = NULL;
	connection_stop_timers(c);
	reactor_leave_begin(s->reactor);
	if (s->state == STREAM_IDLE)
		connection_destroy(c);
	else if (c->state == SESSION_READY && s->sent_bytes == s->queued_bytes && !s->codec)
		connection_say_goodbye(c);
	else
		stream_close(s, 0);
}

/* ---- requests ---- */

/* Of a connection that retires no request is left. */
void session_leave(struct session_connection *c)
{
	snprintf(c->why, sizeof(c->why), "the server is shutting down");
	c->end = NET_END_SHUTDOWN;
	if (c->stream.codec)
		stream_close(&c->stream, 0);
	else
		connection_say_goodbye(c);
}

void session_retire(struct session_connection *c)
{
	if (c->state != SESSION_READY)
		return;
	connection_set_state(c, SESSION_RETIRING);
	if (list_empty(&c->sent))
		session_leave(c);
}

void session_rank_set(struct session_connection *c, enum session_rank rank)
{
	bool turns = (rank == SESSION_UNUSABLE) != (c->rank == SESSION_UNUSABLE);

	__atomic_store_n(&c->rank, (uint8_t)rank, __ATOMIC_RELAXED);
	if (c->state != SESSION_READY)
		return;
	if (turns)
		__atomic_store_n(&c->stats.since_ns, c->stream.reactor->now_ns, __ATOMIC_RELAXED);
	c->takes = rank;
	session_ranks_changed(c->session);
}

int session_send_own(struct session_connection *c, struct session_request *r)
{
	ASSERT(session_serves(c) && r->state == SESSION_REQUEST_IDLE);
	r->own = true;
	r->cancelled = r->again = false;
	r->start_ns = c->stream.reactor->now_ns;
	return session_send(c, c->protocol, r);
}

void session_sends_more(struct session_connection *c, struct session_request *r)
{
	ASSERT(r->connection == c && !r->answered);
	if (c->unsent == &r->node)
		c->unsent = r->node.next;
	list_remove(&r->node);
	list_push_back(&c->sent, &r->node);
	if (c->unsent == &c->sent)
		c->unsent = &r->node;
	r->sent_at_bytes = c->stream.queued_bytes;
	r->deadline_ns = c->stream.reactor->now_ns + c->session->timeout_ns;
}

/* Once for each, before the connection is given up. */
static uint64_t connection_late_ns(struct session_connection *c, struct session_request *oldest)
{
	if (!c->protocol->late || c->late == oldest)
		return 0;
	c->late = oldest;
	return c->protocol->late(c, oldest);
}

/* The oldest request is overdue, or the timer was for one that has been answered. */
static void connection_check_overdue(struct session_connection *c)
{
	struct reactor *r = c->stream.reactor;
	struct session_request *oldest;

	if (list_empty(&c->sent))
		return;
	oldest = list_entry(c->sent.next, struct session_request, node);
	if (oldest->deadline_ns <= r->now_ns)
		oldest->deadline_ns = r->now_ns + connection_late_ns(c, oldest);
	else if (c->late == oldest)
		c->late = NULL;
	if (oldest->deadline_ns > r->now_ns)
		reactor_timer_arm(r, &c->timer, oldest->deadline_ns);
	else
		session_drop(c, NET_END_SILENT, "no answer to %s for %llu ms",
			     c->protocol->request_name(oldest),
			     (unsigned long long)(c->session->timeout_ns / NS_PER_MS));
}

static void connection_on_keepalive(struct timer *timer)
{
	struct session_connection *c = container_of(timer, struct session_connection, keepalive);
	struct reactor *r = c->stream.reactor;

	if (!session_serves(c) || c->stream.state != STREAM_OPEN)
		return;
	reactor_timer_arm(r, &c->keepalive, r->now_ns + c->session->params.keepalive_ns);
	c->protocol->keepalive(c);
}

/* ---- the hello ---- */

void session_ready(struct session_connection *c)
{
	struct session *s = c->session;
	struct reactor *r = s->reactor;

	reactor_timer_cancel(r, &c->timer);
	c->ready_ns = r->now_ns;
	counter_add(&c->stats.connects, 1);
	c->unsent = &c->sent;
	c->late = NULL;
	connection_set_state(c, SESSION_READY);
	if (s->params.keepalive_ns > 0)
		reactor_timer_arm(r, &c->keepalive, r->now_ns + s->params.keepalive_ns);
	log_limited_by(&s->params.limits->connected, LOG_LEVEL_INFO, "connected",
		       "device=%s queue=%u connection=%u server=%s", s->params.name,
		       s->params.queue_idx, c->idx, c->server);
	session_gained(s);
}

/* ---- the stream's events ---- */

static void connection_on_connected(struct stream *s)
{
	struct session_connection *c = connection_of_stream(s);

	connection_set_state(c, SESSION_HELLO);
	c->protocol->hello(c);
}

static void connection_on_received(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct session_connection *c = connection_of_stream(s);
	size_t used = 0;

	if (c->state == SESSION_HELLO)
		used = c->protocol->hello_received(c, data, bytes);
	if (used < bytes && session_serves(c))
		c->protocol->received(c, data + used, bytes - used);
}

static void connection_on_received_into(struct stream *s, size_t bytes)
{
	struct session_connection *c = connection_of_stream(s);

	c->protocol->received_into(c, bytes);
}

/* The next request that is answered and now sent to its last byte; NULL: none. */
static struct session_request *connection_next_sent(struct session_connection *c)
{
	while (c->unsent != &c->sent) {
		struct session_request *r = list_entry(c->unsent, struct session_request, node);

		if (r->sent_at_bytes > c->stream.sent_bytes)
			break;
		c->unsent = r->node.next;
		r->sent_ns = c->stream.reactor->now_ns;
		if (r->answered)
			return r;
	}
	return NULL;
}

static void connection_on_sent(struct stream *s)
{
	struct session_connection *c = connection_of_stream(s);
	struct session_request *r;

	if (session_serves(c)) {
		/* Those that were answered while the last of their bytes were on their way. */
		while ((r = connection_next_sent(c)))
			session_end_sent(c, c->protocol, r);
		if (c->protocol->sent && session_serves(c))
			c->protocol->sent(c);
	} else if (s->sent_bytes < s->queued_bytes) {
		return;
	} else if (c->state == SESSION_LEAVING) {
		stream_close(s, 0);
	} else if (c->state == SESSION_HELLO && c->protocol->hello_sent) {
		c->protocol->hello_sent(c);
	}
}

/* ---- the beginning ---- */

/*
 * A process that accepts and says nothing, such as a child left over by a server that was killed,
 * must not take all the time that requests are held: the next try may find a server.
 */
static uint64_t connection_hello_limit_ns(const struct session_params *params)
{
	uint64_t ns = params->outage_timeout_ns / TRIES_IN_OUTAGE_TIMEOUT;

	if (params->outage_timeout_ns == 0)
		return params->timeout_ns;
	return MIN(params->timeout_ns, MAX(ns, NS_PER_SEC));
}

void session_hello_goes_on(struct session_connection *c)
{
	if (c->state == SESSION_HELLO && c->stream.state == STREAM_OPEN)
		connection_time_limit(c, connection_hello_limit_ns(&c->session->params));
}

static void connection_try(struct session_connection *c)
{
	struct session *s = c->session;
	const struct net_addresses *all = &s->addresses;
	const struct net_address *address = &all->address[c->address % all->nr];
	int ret;

	c->address += !s->params.path;
	if (c->tries > 1)
		session_look_up(s);
	c->why[0] = '\0';
	if (c->tls && tls_reset(c->tls) < 0) {
		connection_try_later(c);
		return;
	}
	ret = stream_connect(&c->stream, (const struct sockaddr *)&address->name, address->bytes);
	if (ret < 0) {
		connection_count_end(c, false, NET_END_UNREACHABLE);
		connection_tell_end(c, NET_END_UNREACHABLE, ret);
		connection_try_later(c);
		return;
	}
	connection_set_state(c, SESSION_CONNECTING);
	connection_time_limit(c, connection_hello_limit_ns(&s->params));
}

static void connection_on_timer(struct timer *timer)
{
	struct session_connection *c = container_of(timer, struct session_connection, timer);

	if (c->state == SESSION_DOWN)
		connection_try(c);
	else if (session_serves(c))
		connection_check_overdue(c);
	else if (c->state == SESSION_LEAVING)
		stream_close(&c->stream, 0);
	else if (c->state == SESSION_CONNECTING)
		session_drop(c, NET_END_UNREACHABLE, "connecting took too long");
	else if (c->state == SESSION_HELLO)
		session_drop(c, NET_END_SILENT, "%s took too long", c->protocol->hello_doing(c));
}

static int connection_allocate(struct session_connection *c, const struct session_params *params)
{
	c->pieces = calloc(params->depth, params->protocol->pieces_nr * sizeof(*c->pieces));
	c->received = malloc(params->receive_bytes + (params->tls ? STREAM_PLAIN_BYTES : 0));
	if (!c->pieces || !c->received)
		return -ENOMEM;
	return params->tls ? tls_new(&c->tls, params->tls, params->tls_hostname) : 0;
}

static int connection_init_stream(struct session_connection *c, const struct session_params *params,
				  unsigned idx)
{
	static const struct stream_ops ops = {
		.connected = connection_on_connected,
		.received = connection_on_received,
		.received_into = connection_on_received_into,
		.sent = connection_on_sent,
		.closed = connection_on_closed,
	};
	struct stream_params stream = {
		.ops = &ops,
		.queue_idx = params->queue_idx,
		.leg = idx % (1u << USER_DATA_LEG_BITS),
		.send = c->pieces,
		.send_nr = params->protocol->pieces_nr * params->depth,
		.receive = c->received,
		.receive_bytes = params->receive_bytes,
		.plain = c->tls ? c->received + params->receive_bytes : NULL,
		/* A peer that ends the connection for our fault says which, and hangs up. */
		.hear_out = true,
	};

	return stream_init(&c->stream, params->reactor, &stream);
}

/* All that can fail. What it leaves is connection_free's. */
static int connection_init(struct session_connection *c, const struct session_params *params,
			   unsigned idx)
{
	int ret = connection_allocate(c, params);

	if (ret == 0 && c->protocol->connection_init)
		ret = c->protocol->connection_init(c);
	return ret == 0 ? connection_init_stream(c, params, idx) : ret;
}

int session_connection_open(struct session_connection **ret_c, struct session *s, unsigned idx)
{
	struct session_connection *c = calloc(1, s->protocol->connection_bytes);
	int ret;

	if (!c)
		return -ENOMEM;
	c->protocol = s->protocol;
	c->session = s;
	c->idx = c->address = idx;
	c->server = s->params.path ? s->params.path[idx] : s->params.server;
	c->rank = SESSION_PREFERRED;
	c->stats.since_ns = s->reactor->now_ns;
	c->stats.last_end = -1;
	list_init(&c->sent);
	c->unsent = &c->sent;
	timer_init(&c->timer, connection_on_timer);
	timer_init(&c->keepalive, connection_on_keepalive);
	ret = connection_init(c, &s->params, idx);
	if (ret < 0) {
		connection_free(c);
		return ret;
	}
	prng_init(&c->prng, ring_clock_ns() + s->params.queue_idx + (uint64_t)idx * 65536);
	connection_try_later(c);
	*ret_c = c;
	return 0;
}
