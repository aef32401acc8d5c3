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
#define PAUSES_IN_PATIENCE 16
#define TRIES_IN_PATIENCE 4
/* A connection that served for so long was a good one. */
#define GOOD_NS NS_PER_SEC

/* For the last word to a server that takes nothing any more. */
#define LEAVE_NS NS_PER_SEC

#define RECEIVE_BYTES (256u << 10)
/* Header and data of each tag; the handshake takes one at a time. */
#define PIECES_PER_REQUEST 2u

static struct nbd_link *of_stream(struct stream *s)
{
	return container_of(s, struct nbd_link, stream);
}

static void set_state(struct nbd_link *link, enum nbd_link_state state)
{
	uint64_t now_ns = link->stream.reactor->now_ns;

	if (nbd_link_state_word(link->state) != nbd_link_state_word(state))
		__atomic_store_n(&link->stats.since_ns, now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&link->state, state, __ATOMIC_RELAXED);
}

static void time_limit(struct nbd_link *link, uint64_t ns)
{
	struct reactor *r = link->stream.reactor;

	reactor_timer_arm(r, &link->timer, r->now_ns + ns);
}

/* ---- the end ---- */

static uint64_t longest_pause_ns(uint64_t patience_ns)
{
	uint64_t ns = patience_ns / PAUSES_IN_PATIENCE;

	if (patience_ns == 0)
		return NS_PER_SEC;
	return MIN(MAX(ns, PAUSE_FIRST_NS), PAUSE_MAX_NS);
}

static uint64_t pause_ns(struct nbd_link *link)
{
	unsigned doublings = MIN(link->tries - 1, 16u);
	uint64_t ns = PAUSE_FIRST_NS << doublings;

	ns = MIN(ns, longest_pause_ns(link->queue->nbd->config->patience_ns));
	return ns - ns / 4 + prng_below(&link->queue->prng, ns / 2);
}

/*
 * Whoever accepts and never greets, such as an orphan of a server that was killed, must not have
 * all the time that requests wait: the next try may find a server.
 */
static uint64_t handshake_limit_ns(const struct nbd_config *config)
{
	uint64_t ns = config->patience_ns / TRIES_IN_PATIENCE;

	if (config->patience_ns == 0)
		return config->timeout_ns;
	return MIN(config->timeout_ns, MAX(ns, NS_PER_SEC));
}

static void try_later(struct nbd_link *link)
{
	set_state(link, NBD_LINK_DOWN);
	time_limit(link, link->tries > 0 ? pause_ns(link) : 0);
	__atomic_store_n(&link->stats.next_try_ns, link->timer.deadline_ns, __ATOMIC_RELAXED);
	link->tries++;
}

void nbd_link_drop(struct nbd_link *link, enum backend_end end, const char *fmt, ...)
{
	va_list ap;

	if (link->why[0] != '\0' || link->state == NBD_LINK_DOWN)
		return;
	va_start(ap, fmt);
	vsnprintf(link->why, sizeof(link->why), fmt, ap);
	va_end(ap);
	link->end = end;
	stream_close(&link->stream, 0);
}

static void tell_end(const struct nbd_link *link, enum backend_end end, int err)
{
	struct nbd_device *nbd = link->queue->nbd;

	log_limited_by(&nbd->limits.lost[end], LOG_LEVEL_WARN, "connection lost",
		       "device=%s queue=%u server=%s why=\"%s\"", nbd->name,
		       link->queue->queue->idx, nbd->address,
		       link->why[0] ? link->why : errname(err));
}

/* In a word, where nobody on this side has said why. */
static enum backend_end end_by_itself(const struct nbd_link *link, int err)
{
	if (link->state == NBD_LINK_CONNECTING)
		return BACKEND_END_UNREACHABLE;
	/* Servers that do not accept a key say so by hanging up. */
	if (link->state == NBD_LINK_TLS)
		return BACKEND_END_REFUSED;
	return err == -EPROTO ? BACKEND_END_PROTOCOL : BACKEND_END_CLOSED;
}

static void count_end(struct nbd_link *link, bool was_ready, enum backend_end end)
{
	struct nbd_link_stats *s = &link->stats;

	counter_add(was_ready ? &s->lost : &s->failed_tries, 1);
	counter_add(&s->ends[end], 1);
	__atomic_store_n(&s->last_end, (int)end, __ATOMIC_RELAXED);
}

static void free_memory(struct nbd_link *link)
{
	tls_free(link->tls);
	free(link->pieces);
	free(link->headers);
	free(link->received);
	free(link);
}

static void destroy(struct nbd_link *link)
{
	struct reactor *r = link->stream.reactor;

	reactor_timer_cancel(r, &link->timer);
	stream_fini(&link->stream);
	free_memory(link);
	reactor_leave_end(r);
}

/* What it means that the server closed the connection where it did. */
static void explain_eof(struct nbd_link *link, int err)
{
	if (err != -ECONNRESET || link->why[0] != '\0')
		return;
	if (link->state == NBD_LINK_HANDSHAKE) {
		nbd_handshake_eof(&link->handshake);
		snprintf(link->why, sizeof(link->why), "%s", link->handshake.error);
	} else if (link->state == NBD_LINK_TLS) {
		tls_eof(link->tls);
		snprintf(link->why, sizeof(link->why), "%s", tls_error(link->tls));
	}
}

static void on_closed(struct stream *s, int err)
{
	struct nbd_link *link = of_stream(s);
	bool was_ready = nbd_link_serves(link) || link->state == NBD_LINK_LEAVING;
	enum backend_end end;

	if (!link->queue) {
		destroy(link);
		return;
	}
	end = link->why[0] ? link->end : end_by_itself(link, err);
	count_end(link, was_ready, end);
	explain_eof(link, err);
	tell_end(link, end, err);
	reactor_timer_cancel(s->reactor, &link->timer);
	set_state(link, NBD_LINK_CLOSING);
	if (was_ready) {
		nbd_queue_lost(link->queue, link);
		nbd_transfer_end(link);
	}
	if (was_ready && s->reactor->now_ns - link->ready_ns > GOOD_NS)
		link->tries = 0;
	if (atomic_load(&link->queue->nbd->changed))
		nbd_queue_changed(link->queue);
	else
		try_later(link);
}

/*
 * What is still to be sent belongs to requests that are gone: then there is no last word, and none
 * through a codec, which says when it has taken bytes and not when they are out.
 */
static void say_goodbye(struct nbd_link *link)
{
	struct stream *s = &link->stream;
	uint32_t bytes = nbd_request_encode_disc(link->goodbye, link->handshake.export.extended);

	set_state(link, NBD_LINK_LEAVING);
	stream_send(s, link->goodbye, bytes);
	time_limit(link, LEAVE_NS);
}

/* "If the client receives an NBD_ESHUTDOWN error it MUST initiate a soft disconnect" (proto.md). */
void nbd_link_retire(struct nbd_link *link)
{
	if (link->state == NBD_LINK_READY)
		set_state(link, NBD_LINK_RETIRING);
}

void nbd_link_leave(struct nbd_link *link)
{
	ASSERT(link->state == NBD_LINK_RETIRING && list_empty(&link->sent));
	snprintf(link->why, sizeof(link->why), "the server is shutting down");
	link->end = BACKEND_END_SHUTDOWN;
	if (link->stream.codec)
		stream_close(&link->stream, 0);
	else
		say_goodbye(link);
}

void nbd_link_abandon(struct nbd_link *link)
{
	struct stream *s;

	if (!link)
		return;
	s = &link->stream;
	ASSERT(list_empty(&link->sent));
	link->queue = NULL;
	reactor_timer_cancel(s->reactor, &link->timer);
	reactor_leave_begin(s->reactor);
	if (s->state == STREAM_IDLE)
		destroy(link);
	else if (link->state == NBD_LINK_READY && s->sent_bytes == s->queued_bytes && !s->codec)
		say_goodbye(link);
	else
		stream_close(s, 0);
}

/* ---- the handshake ---- */

/* All that the handshake has to say is one piece; the next goes when that is out. */
static void say(struct nbd_link *link)
{
	const uint8_t *data;
	size_t bytes;

	if (link->said_bytes > 0)
		return;
	link->said_by_tls = link->state == NBD_LINK_TLS;
	bytes = link->said_by_tls ? tls_output(link->tls, &data)
				  : nbd_handshake_output(&link->handshake, &data);
	if (bytes == 0)
		return;
	link->said_bytes = bytes;
	stream_send(&link->stream, data, bytes);
}

static void become_ready(struct nbd_link *link)
{
	struct nbd_queue *q = link->queue;

	if (nbd_changed_note(q->nbd, &link->handshake.export)) {
		nbd_link_drop(link, BACKEND_END_CHANGED, "the export is not what it was");
		return;
	}
	reactor_timer_cancel(link->stream.reactor, &link->timer);
	link->ready_ns = link->stream.reactor->now_ns;
	counter_add(&link->stats.connects, 1);
	set_state(link, NBD_LINK_READY);
	nbd_transfer_begin(link);
	log_limited_by(&q->nbd->limits.connected, LOG_LEVEL_INFO, "connected",
		       "device=%s queue=%u connection=%u server=%s", q->nbd->name, q->queue->idx,
		       link->idx, q->nbd->address);
	nbd_queue_ready(q);
}

static void secure(struct nbd_link *link)
{
	stream_secure(&link->stream, &tls_codec, link->tls);
	set_state(link, NBD_LINK_HANDSHAKE);
	nbd_handshake_tls_started(&link->handshake);
	say(link);
}

/* The stream takes TLS over when the last of its bytes that were sent as ours are out. */
static void go_on_with_tls(struct nbd_link *link)
{
	switch (tls_handshake(link->tls)) {
	case TLS_MORE:
		say(link);
		break;
	case TLS_DONE:
		if (link->said_bytes == 0)
			secure(link);
		break;
	case TLS_FAILED:
		nbd_link_drop(link, BACKEND_END_REFUSED, "TLS: %s", tls_error(link->tls));
		break;
	}
}

static void feed_tls(struct nbd_link *link, const uint8_t *data, size_t bytes)
{
	while (bytes > 0 && link->state == NBD_LINK_TLS && link->why[0] == '\0') {
		size_t taken = tls_feed(link->tls, data, bytes);

		data += taken;
		bytes -= taken;
		go_on_with_tls(link);
		if (taken == 0)
			break;
	}
	if (bytes > 0)
		nbd_link_drop(link, BACKEND_END_PROTOCOL,
			      "TLS: the server sent more than was asked for");
}

static enum backend_end end_of_handshake(int err)
{
	if (err == -ESHUTDOWN)
		return BACKEND_END_SHUTDOWN;
	return err == -EPROTO ? BACKEND_END_PROTOCOL : BACKEND_END_REFUSED;
}

/* What comes behind the handshake is a reply to nothing: the parser says so. */
static void handshake_fed(struct nbd_link *link, const uint8_t *rest, size_t rest_bytes)
{
	switch (link->handshake.step) {
	case NBD_HANDSHAKE_MORE:
		say(link);
		break;
	case NBD_HANDSHAKE_START_TLS:
		set_state(link, NBD_LINK_TLS);
		go_on_with_tls(link);
		break;
	case NBD_HANDSHAKE_DONE:
		become_ready(link);
		if (rest_bytes > 0 && link->state == NBD_LINK_READY)
			nbd_transfer_received(link, rest, rest_bytes);
		break;
	case NBD_HANDSHAKE_FAILED:
		nbd_link_drop(link, end_of_handshake(link->handshake.err), "%s",
			      link->handshake.error);
		break;
	}
}

static void feed_handshake(struct nbd_link *link, const uint8_t *data, size_t bytes)
{
	size_t used;

	nbd_handshake_feed(&link->handshake, data, bytes, &used);
	handshake_fed(link, data + used, bytes - used);
}

/* ---- the stream's events ---- */

static void on_connected(struct stream *s)
{
	struct nbd_link *link = of_stream(s);
	const struct nbd_device *nbd = link->queue->nbd;
	struct nbd_handshake_config config = {
		.mode = NBD_HANDSHAKE_GO,
		.tls = nbd->uri.tls,
		.export_name = nbd->uri.export_name,
		.no_meta = true,
		.no_structured = nbd->found.simple,
		.no_extended = nbd->found.simple,
	};

	set_state(link, NBD_LINK_HANDSHAKE);
	nbd_handshake_init(&link->handshake, &config);
	say(link);
}

static void on_received(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct nbd_link *link = of_stream(s);

	if (nbd_link_serves(link))
		nbd_transfer_received(link, data, bytes);
	else if (link->state == NBD_LINK_HANDSHAKE)
		feed_handshake(link, data, bytes);
	else if (link->state == NBD_LINK_TLS)
		feed_tls(link, data, bytes);
}

static void on_received_into(struct stream *s, size_t bytes)
{
	nbd_transfer_received_into(of_stream(s), bytes);
}

static void said(struct nbd_link *link)
{
	if (link->said_by_tls)
		tls_sent(link->tls, link->said_bytes);
	else
		nbd_handshake_sent(&link->handshake, link->said_bytes);
	link->said_bytes = 0;
	if (link->state == NBD_LINK_TLS)
		go_on_with_tls(link);
	else
		say(link);
}

static void on_sent(struct stream *s)
{
	struct nbd_link *link = of_stream(s);

	if (nbd_link_serves(link))
		nbd_transfer_sent(link);
	else if (s->sent_bytes < s->queued_bytes)
		return;
	else if (link->state == NBD_LINK_LEAVING)
		stream_close(s, 0);
	else if (link->said_bytes > 0)
		said(link);
}

/* ---- the beginning ---- */

static void resolved(void *arg, const struct nbd_addresses *found, const char *error)
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
	if (!q->resolve && !nbd_addresses_known(&q->nbd->uri))
		nbd_resolve_begin(&q->resolve, q->queue->reactor, &q->nbd->uri, resolved, q);
}

static void try_connect(struct nbd_link *link)
{
	const struct nbd_addresses *all = &link->queue->addresses;
	const struct nbd_address *address = &all->address[link->address++ % all->nr];
	int ret;

	if (link->tries > 1)
		look_up_again(link->queue);
	link->why[0] = '\0';
	link->said_bytes = 0;
	if (link->tls && tls_reset(link->tls) < 0) {
		try_later(link);
		return;
	}
	ret = stream_connect(&link->stream, (const struct sockaddr *)&address->name,
			     address->bytes);
	if (ret < 0) {
		count_end(link, false, BACKEND_END_UNREACHABLE);
		tell_end(link, BACKEND_END_UNREACHABLE, ret);
		try_later(link);
		return;
	}
	set_state(link, NBD_LINK_CONNECTING);
	time_limit(link, handshake_limit_ns(link->queue->nbd->config));
}

static void on_timer(struct timer *timer)
{
	static const char *const phase[] = {
		[NBD_LINK_CONNECTING] = "connecting",
		[NBD_LINK_HANDSHAKE] = "the handshake",
		[NBD_LINK_TLS] = "the TLS handshake",
	};
	struct nbd_link *link = container_of(timer, struct nbd_link, timer);

	if (link->state == NBD_LINK_DOWN)
		try_connect(link);
	else if (nbd_link_serves(link))
		nbd_transfer_timer(link);
	else if (link->state == NBD_LINK_LEAVING)
		stream_close(&link->stream, 0);
	else if (link->state != NBD_LINK_CLOSING)
		nbd_link_drop(link,
			      link->state == NBD_LINK_CONNECTING ? BACKEND_END_UNREACHABLE
								 : BACKEND_END_SILENT,
			      "%s took too long", phase[link->state]);
}

static struct nbd_link *allocate(const struct nbd_queue *q)
{
	const struct nbd_device *nbd = q->nbd;
	struct nbd_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->pieces = calloc(PIECES_PER_REQUEST * q->queue->depth, sizeof(*link->pieces));
	link->headers = calloc(q->queue->depth, NBD_REQUEST_BYTES_MAX);
	link->received = malloc(RECEIVE_BYTES + (nbd->tls ? STREAM_PLAIN_BYTES : 0));
	if (link->pieces && link->headers && link->received &&
	    (!nbd->tls || tls_new(&link->tls, nbd->tls, nbd_credentials_hostname(&nbd->uri)) == 0))
		return link;
	free_memory(link);
	return NULL;
}

static int init_stream(struct nbd_link *link, struct nbd_queue *q, unsigned idx)
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
		.send = link->pieces,
		.send_nr = PIECES_PER_REQUEST * q->queue->depth,
		.receive = link->received,
		.receive_bytes = RECEIVE_BYTES,
		.plain = link->tls ? link->received + RECEIVE_BYTES : NULL,
	};

	return stream_init(&link->stream, q->queue->reactor, &params);
}

int nbd_link_open(struct nbd_link **ret_link, struct nbd_queue *q, unsigned idx)
{
	struct nbd_link *link = allocate(q);
	int ret;

	if (!link)
		return -ENOMEM;
	ret = init_stream(link, q, idx);
	if (ret < 0) {
		free_memory(link);
		return ret;
	}
	link->queue = q;
	link->idx = link->address = idx;
	link->stats.since_ns = q->queue->reactor->now_ns;
	link->stats.last_end = -1;
	list_init(&link->sent);
	link->unsent = &link->sent;
	timer_init(&link->timer, on_timer);
	try_later(link);
	*ret_link = link;
	return 0;
}
