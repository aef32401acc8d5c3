/*
 * session: requests to a peer over one or more connections that come and go, for every backend that
 * talks to a server. Knows nothing of any protocol: that is a table (struct session_protocol). One
 * session per queue, reactor thread only, but for what says otherwise. Allocates nothing after
 * session_init.
 *
 * The session does
 *   - the life of each connection: addresses in turn, connect, the time limit of the hello, pauses
 *     between tries that grow, TLS memory, a last word at the end;
 *   - requests: which connection takes one, holding those that none can take, what becomes of those
 *     that a lost connection had, the time limit of each, cancelling;
 *   - the outage policy: how long requests are held while the peer is gone, then they fail;
 *   - counters, histograms, words, log lines.
 * The protocol does bytes: the hello (greeting, login, TLS where it wants that), a request as
 * bytes, bytes as answers, keep-alives, and says what of a lost connection may be sent again.
 *
 * A connection (session_connection.c):
 *
 *   DOWN --timer--> CONNECTING --> HELLO --session_ready--> READY
 *    ^                  \____________\_______________________/
 *    \____________ CLOSING <_________ session_drop, or the stream's end
 *   READY --session_fini: the last word--> LEAVING --sent--> freed
 *   READY --session_retire--> RETIRING --all answered: the last word--> LEAVING --sent--> CLOSING
 *
 * A request is in one place at a time: held by the session, or with a connection, in the order of
 * sending, from when it was handed over to be sent until it is answered and all of it is sent. (A
 * peer may answer before it has read the whole; the kernel may still read its memory then.) Each
 * request that session_submit takes ends by exactly one `done`, never from inside of that call.
 *
 * The outage timer runs from the loss of the last connection until an answer: a peer that accepts
 * connections and answers nothing is not back. Where no request had to be held a connection is
 * enough. When it has expired, new requests still go to a connection that is ready, because only an
 * answer shows that the peer is back, and those that are with one stay there; what is lost then
 * fails, and what no connection can take.
 *
 * What a protocol has beside that embeds these structs: its queue a struct session, its connection
 * a struct session_connection as the first member (the session allocates connection_bytes, zeroed),
 * its I/O a struct session_request.
 */
#ifndef NET_SESSION_H
#define NET_SESSION_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counter.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/log.h"
#include "base/prng.h"
#include "net/address.h"
#include "net/resolve.h"
#include "net/session_look.h"
#include "net/stream.h"
#include "net/tls.h"
#include "reactor/reactor.h"

#define SESSION_GOODBYE_BYTES_MAX 128u
#define SESSION_WHY_BYTES 320u

struct session;
struct session_connection;
struct session_request;

/*
 * Of a protocol. c is a connection, its session is c->session. Where nothing else is said a
 * function may be NULL, and runs while the session exists. None may call session_fini.
 */
struct session_protocol {
	size_t connection_bytes;
	/* Pieces of memory that a request may have with the stream; the hello takes what it wants
	 * of them. */
	unsigned pieces_nr;
	/* Memory of its own; the stream follows. Returns 0 or -ENOMEM; fini follows anyway.
	 */
	int (*connection_init)(struct session_connection *c);
	/* c->session may be gone: NULL. */
	void (*connection_fini)(struct session_connection *c);

	/* The stream is open: says the first words by stream_send. Never NULL. */
	void (*hello)(struct session_connection *c);
	/*
	 * Bytes during the hello, as they came, in any pieces. Returns how many it took. It ends by
	 * session_ready: what is left of the bytes goes to received, or session_drop. Never NULL.
	 */
	size_t (*hello_received)(struct session_connection *c, const uint8_t *data, size_t bytes);
	/* All that was said is sent. */
	void (*hello_sent)(struct session_connection *c);
	/* What takes long, for "... took too long": "the handshake". Never NULL. */
	const char *(*hello_doing)(const struct session_connection *c);
	/*
	 * The stream ended by itself during the hello; err: as of stream's closed. words: what that
	 * means, for people, or stay as they are. Returns whether that is how the peer refuses us.
	 */
	bool (*hello_ended)(struct session_connection *c, int err, char *words, size_t bytes);

	/*
	 * Hands the request to the stream: at most pieces_nr pieces. Returns 0, or -errno: nothing
	 * was handed over, it ends with that. Never NULL.
	 */
	int (*send)(struct session_connection *c, struct session_request *r);
	/*
	 * Bytes from the hello's end on. Tells of answers by session_answer and session_refuse, of
	 * a broken protocol by session_drop. Never NULL.
	 */
	void (*received)(struct session_connection *c, const uint8_t *data, size_t bytes);
	/* For a protocol that calls stream_receive_into. */
	void (*received_into)(struct session_connection *c, size_t bytes);
	/* More of what the stream was given is sent. May hand more of a request to it. */
	void (*sent)(struct session_connection *c);
	/* This request is not with the connection any more, as answered and sent. */
	void (*left)(struct session_connection *c, struct session_request *r);
	/* The end, in whatever place it was. May submit others before it returns. Never NULL. */
	void (*done)(struct session_request *r, int result);
	/*
	 * There is no answer to this request in time. May ask the peer to end it, and returns how
	 * much longer that may take, ns; then the connection is dropped. 0: at once. NULL: 0.
	 */
	uint64_t (*late)(struct session_connection *c, struct session_request *r);
	/* For "no answer to ... for 10 ms". Never NULL. */
	const char *(*request_name)(const struct session_request *r);

	/* The stream is closed, whatever it was in. c->session may be gone: NULL. */
	void (*closed)(struct session_connection *c);
	/* This connection served and is lost: c->sent has what it had. */
	void (*lost)(struct session_connection *c);
	/*
	 * A request that a lost connection had, or that was refused, is to be sent again, or held.
	 * Returns 0, or -errno that it ends with instead. NULL: all may be sent twice.
	 */
	int (*may_resend)(struct session_request *r);
	/*
	 * No connection can take this request, and one could before: it is not to wait, and ends
	 * with -ENOLINK. NULL: all wait.
	 */
	bool (*fails_fast)(const struct session_request *r);
	/* Nothing will be served any more: what is held fails, nothing is tried again. */
	bool (*is_over)(const struct session *s);

	/* Every keepalive_ns, of a connection that serves. Sends, for example, by session_send_own.
	 */
	void (*keepalive)(struct session_connection *c);
	/*
	 * The last word, into buf of SESSION_GOODBYE_BYTES_MAX. Returns its size, 0: none.
	 * c->session may be NULL.
	 */
	size_t (*goodbye)(struct session_connection *c, uint8_t *buf);
};

/* What all sessions of one owner share: how often the log is told; of ends, by reason. */
struct session_log_limits {
	struct log_limit lost[NET_END_NR], connected, gave_up, lookup;
};

#define SESSION_FOREVER UINT64_MAX

/* Strings and pointers stay the owner's and outlive the session. */
struct session_params {
	const struct session_protocol *protocol;
	struct reactor *reactor;
	const char *name;   /* for log lines: "device=name queue=queue_idx server=server" */
	const char *server; /* net_host_format */
	unsigned queue_idx;
	struct session_log_limits *limits;

	const struct net_host *host;	       /* to look it up anew; NULL: never */
	const struct net_addresses *addresses; /* copied; at least one */
	/*
	 * NULL: each connection tries all addresses in turn. Else they are paths: connection i has
	 * the address i for ever (modulo their number), and path[i] is its `server`. Not copied.
	 */
	const char *const *path;
	unsigned connection_nr; /* at least one */

	/* Requests that are with one connection at a time; one more each for hello and keep-alive
	 * is not counted. */
	unsigned depth;
	size_t receive_bytes; /* of the stream */

	/* TLS memory is made for each connection; who starts it is the protocol. NULL: none. */
	const struct tls_credentials *tls;
	const char *tls_hostname;

	uint64_t timeout_ns;	    /* from sending to the answer; of the hello at most */
	uint64_t outage_timeout_ns; /* 0: what is lost fails at once. SESSION_FOREVER */
	uint64_t keepalive_ns;	    /* 0: never */
};

/* ---- the structs: fields with comments "may be read" are for the protocol, the rest is net's ----
 */

enum session_request_state { SESSION_REQUEST_IDLE, SESSION_REQUEST_HELD, SESSION_REQUEST_SENT };

struct session_request {
	struct list_node node;		       /* held, or sent: in the order of coming */
	struct session_connection *connection; /* that has it; NULL: held. May be read */
	uint64_t start_ns;		       /* it came */
	uint64_t sent_at_bytes; /* of the stream: all of it is sent when it has come so far */
	uint64_t sent_ns;	/* all of it was sent, the last time */
	uint64_t deadline_ns;
	int result;
	/* Set by the owner before it is submitted, the first time: which connection by turns. */
	uint16_t hint;
	uint8_t state;	/* enum session_request_state; any thread may read it */
	bool again;	/* it has been sent before. May be read */
	bool cancelled; /* may be read */
	bool answered;	/* by result, but its bytes may still be read by the kernel */
	bool refused;	/* the answer: another connection may do it */
	bool own;	/* session_send_own */
};

enum session_state {
	SESSION_DOWN, /* until its timer fires */
	SESSION_CONNECTING,
	SESSION_HELLO,
	SESSION_READY,
	SESSION_RETIRING, /* READY but for new requests */
	SESSION_CLOSING,  /* or never to be tried again */
	SESSION_LEAVING,  /* the last word is being sent */
};

/* Which connection a request takes: PREFERRED ones by turns; USABLE ones when there is none. */
enum session_rank { SESSION_UNUSABLE, SESSION_USABLE, SESSION_PREFERRED };

/* Written by the reactor, read by any thread: base/counter.h. */
struct session_stats {
	uint64_t since_ns;    /* in the state that people see */
	uint64_t next_try_ns; /* DOWN */
	uint64_t connects, lost, failed_tries, resent;
	uint64_t ends[NET_END_NR];
	int last_end; /* enum net_end, or -1 */
	struct histogram wait, answer;
};

/* Outlives its session until the kernel has let go of it. */
struct session_connection {
	struct stream stream;	 /* the protocol's to send by; its address may be read */
	struct session *session; /* NULL: abandoned, to be freed when closed. May be read */
	const struct session_protocol *protocol;
	struct list_node sent;	  /* requests. May be read */
	struct list_node *unsent; /* of them: the first that is not all sent; or the list itself */
	struct session_request *late; /* of them, that the peer was asked to end; or of before */
	struct timer timer;	      /* DOWN: when to try again; else when this takes too long */
	enum session_state state;     /* may be read */
	uint8_t takes;		      /* enum session_rank while READY, else UNUSABLE */
	uint8_t rank;		      /* enum session_rank: session_rank_set */
	unsigned idx;		      /* may be read */
	unsigned tries;		      /* in a row that led to nothing */
	unsigned address;	      /* which of them is next */
	const char *server;	      /* net_host_format, of its path if it has one */
	uint64_t ready_ns;
	struct timer keepalive;
	struct tls *tls; /* reset before each try; the protocol's to start. May be read */
	struct iovec *pieces;
	uint8_t *received;	     /* the stream's, as is what is behind it with TLS */
	char why[SESSION_WHY_BYTES]; /* why it is being closed; "" by the stream's error */
	enum net_end end;	     /* the same, in a word */
	uint8_t goodbye[SESSION_GOODBYE_BYTES_MAX];
	struct prng prng;
	struct session_stats stats;
};

struct session {
	const struct session_protocol *protocol;
	struct reactor *reactor;
	struct session_connection **connection; /* connection_nr. May be read */
	unsigned connection_nr, ready_nr;
	uint64_t timeout_ns;
	struct list_node held;
	bool unconfirmed;    /* one had to be held, and none was answered since */
	bool gave_up;	     /* what no connection can be given, or is lost, fails at once */
	bool has_served;     /* a connection has been ready */
	struct timer outage; /* no connection is ready, or unconfirmed: when to give up */
	struct net_addresses addresses; /* where it was last known to be */
	struct net_resolve *resolve;	/* asks anew; or NULL */
	struct session_params params;
};

/* ---- the queue's ---- */

/*
 * Makes the connections, which begin to connect at once. Returns 0, -ENOMEM or -ENOBUFS;
 * session_fini follows anyway. A session starts zeroed.
 */
int session_init(struct session *s, const struct session_params *params);

/*
 * No request is left. Connections say their last word and free themselves when they can
 * (reactor_leave_begin). Accepts a zeroed one.
 */
void session_fini(struct session *s);

/* Before its first use. hint: for example its tag. */
static inline void session_request_init(struct session_request *r, uint16_t hint)
{
	*r = (struct session_request){ .hint = hint };
	list_init(&r->node);
}

/* Inline, at the end: session_submit. */

/*
 * Ends what is held at once by `done` with -ECANCELED, and what is sent by dropping its connection,
 * as the peer may still answer it.
 */
void session_cancel(struct session *s, struct session_request *r);

/* Any thread: what it waits for, static words, NULL: nothing. */
const char *session_request_doing(const struct session_request *r);

/* Any thread, from session_init to session_fini. False: there are fewer. */
bool session_look(const struct session *s, unsigned idx, struct net_connection_look *ret_look);

/* ---- the protocol's ---- */

/*
 * During the hello, when the peer has answered and owes more: its time limit begins again. A
 * protocol with a bounded number of answers, and limits of its own for each, may say so.
 */
void session_hello_goes_on(struct session_connection *c);

/* The hello is done: requests may come, what is held is sent before this returns. */
void session_ready(struct session_connection *c);

/* Ends the connection, for this reason: the first one that is said counts. Also of another one. */
void session_drop(struct session_connection *c, enum net_end end, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The peer will go soon: no more requests, and it ends when those that it has are answered. */
void session_retire(struct session_connection *c);

/*
 * How good the connection is, from now on, also before it is ready (first: PREFERRED). What is held
 * goes on when that makes one usable.
 */
void session_rank_set(struct session_connection *c, enum session_rank rank);

/*
 * A request of the protocol's own, idle, by this connection that serves: never sent again; when it
 * is lost, `done` says -ECONNRESET. Returns 0 or -errno of send.
 */
int session_send_own(struct session_connection *c, struct session_request *r);

/*
 * From received and sent: more of this request has been handed to the stream, as the peer asked for
 * it. It is sent, and its time begins, anew.
 */
void session_sends_more(struct session_connection *c, struct session_request *r);

/* Inline, below: session_answer, session_refuse. */

/* Answers to requests are awaited. */
static inline bool session_serves(const struct session_connection *c)
{
	return c->state == SESSION_READY || c->state == SESSION_RETIRING;
}

/* ---- the way of a request: inline, with the protocol's table a constant where it is known ---- */

/* For the inline functions below. */
int session_hold_new(struct session *s, struct session_request *r);
void session_confirm(struct session *s);
void session_take_back(struct session *s, struct session_request *r);
void session_leave(struct session_connection *c);

/* One whose turn it is by the hint, or another; NULL: none is ready, or all are about to close. */
static inline struct session_connection *session_choose(const struct session *s, unsigned hint)
{
	struct session_connection *usable = NULL;

	if (s->ready_nr == 0)
		return NULL;
	for (unsigned i = 0; i < s->connection_nr; i++) {
		struct session_connection *c = s->connection[(hint + i) % s->connection_nr];

		if (c->stream.state != STREAM_OPEN)
			continue;
		if (c->takes == SESSION_PREFERRED)
			return c;
		if (c->takes == SESSION_USABLE && !usable)
			usable = c;
	}
	return usable;
}

/* 0, or the error that it ends with. There always is room. */
static inline int session_send(struct session_connection *c, const struct session_protocol *p,
			       struct session_request *r)
{
	struct reactor *reactor = c->stream.reactor;
	int ret = p->send(c, r);

	if (ret < 0)
		return ret;
	r->connection = c;
	r->state = SESSION_REQUEST_SENT;
	r->answered = r->refused = false;
	r->sent_at_bytes = c->stream.queued_bytes;
	r->deadline_ns = reactor->now_ns + c->session->timeout_ns;
	if (r->again)
		counter_add(&c->stats.resent, 1);
	r->again = true;
	list_push_back(&c->sent, &r->node);
	if (c->unsent == &c->sent)
		c->unsent = &r->node;
	if (!c->timer.armed)
		reactor_timer_arm(reactor, &c->timer, r->deadline_ns);
	return 0;
}

/*
 * An idle request. p: the session's, named by the caller so that its functions are known where this
 * is inlined. Returns 0: `done` follows; or -errno: it is over, nothing follows.
 */
static inline int session_submit(struct session *s, const struct session_protocol *p,
				 struct session_request *r)
{
	struct session_connection *c = session_choose(s, r->hint);

	r->cancelled = r->again = false;
	r->start_ns = s->reactor->now_ns;
	return c ? session_send(c, p, r) : session_hold_new(s, r);
}

static inline void session_end(const struct session_protocol *p, struct session_request *r,
			       int result)
{
	r->state = SESSION_REQUEST_IDLE;
	r->connection = NULL;
	p->done(r, r->cancelled ? -ECANCELED : result);
}

/* It is answered, and all of it is sent. The clock is the turn's: within one no time passes. */
static inline void session_end_sent(struct session_connection *c, const struct session_protocol *p,
				    struct session_request *r)
{
	list_remove(&r->node);
	if (p->left)
		p->left(c, r);
	if (r->refused) {
		session_take_back(c->session, r);
	} else {
		histogram_record(&c->stats.wait, r->sent_ns - r->start_ns);
		histogram_record(&c->stats.answer, c->stream.reactor->now_ns - r->sent_ns);
		session_end(p, r, r->result);
	}
	if (c->state == SESSION_RETIRING && list_empty(&c->sent))
		session_leave(c);
}

/*
 * From received: the peer has done a request of this connection, or said what is wrong with it: it
 * is there. `done` follows, when all of the request is sent.
 */
static inline void session_answer(struct session_connection *c, const struct session_protocol *p,
				  struct session_request *r, int result)
{
	r->answered = true;
	r->result = result;
	c->tries = 1; /* it is worth trying again soon */
	if (c->session->unconfirmed)
		session_confirm(c->session);
	if (r->sent_at_bytes <= c->stream.sent_bytes)
		session_end_sent(c, p, r);
}

/*
 * From received: the peer has not done it, another connection may: as if it had been lost with this
 * one. A protocol first says session_retire, or a lower rank, or it comes back to the same.
 */
static inline void session_refuse(struct session_connection *c, const struct session_protocol *p,
				  struct session_request *r)
{
	r->answered = r->refused = true;
	if (r->sent_at_bytes <= c->stream.sent_bytes)
		session_end_sent(c, p, r);
}

#endif
