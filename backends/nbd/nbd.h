/*
 * What the files of the NBD backend share: its device, queues, connections and requests.
 *
 *	nbd_options.c     what the user can configure                   main thread
 *	nbd_open.c        examine, open, limits, identity               main thread (examine: any)
 *	nbd.c             queues: requests, and which connections are ready
 *	nbd_connection.c  one connection: connect, TLS, handshake, requests, loss, another try
 *	nbd_login.c       the handshake of NBD and of TLS, as bytes of a connection
 *	nbd_transfer.c    requests and replies as bytes of a connection
 *	nbd_look.c        the state of a connection, for people         main thread
 *	nbd_changed.c     a server that came back as another one, in words
 *
 * nbd.c, nbd_connection.c, nbd_login.c and nbd_transfer.c run on the queue's reactor. A queue
 *commands its connections, a connection the last two; a connection reports to its queue by the
 *functions nbd_queue_*.
 *
 * A request is in one place at a time: waiting (queue->waiting), or with a connection
 * (connection->sent) from the moment it was handed over to be sent. A connection that is lost gives
 * those that were not answered back to the queue, which sends them again by another connection or
 * by the same one once that is back.
 */
#ifndef BACKENDS_NBD_NBD_H
#define BACKENDS_NBD_NBD_H

#include <stdatomic.h>

#include "storage/backend.h"
#include "backends/nbd/nbd_login.h"
#include "backends/nbd/nbd_reply.h"
#include "backends/nbd/nbd_request.h"
#include "backends/nbd/nbd_uri.h"
#include "net/resolve.h"
#include "net/tls.h"
#include "base/histogram.h"
#include "base/log.h"
#include "base/prng.h"
#include "net/stream.h"

#define NBD_CONNECTIONS_MAX 64u
#define NBD_CHANGED_BYTES 320

/* What is acknowledged and not yet flushed, when a server is gone. */
enum nbd_cache {
	NBD_CACHE_VOLATILE, /* may be lost: the next flush fails */
	NBD_CACHE_KEPT, /* outlives the server, as it does with a file on a machine that lives */
};

/* The form of replies that is asked for; whatever a server lacks is done without. */
enum nbd_replies {
	NBD_REPLIES_AUTO, /* FEWEST from a server on this machine, else MOST */
	/* Simple ones: the fewest calls of the kernel for the server and for us. */
	NBD_REPLIES_FEWEST,
	/* Extended or structured ones: a READ of a hole brings no zeroes over the network. */
	NBD_REPLIES_MOST,
};

/* What `tls` says beside the URI; NULL and NBD_TLS_ANY: nothing. */
struct nbd_tls {
	char *psk_file, *username, *certificates, *hostname;
	int type; /* enum nbd_tls_type */
	bool verify_peer;
};

struct nbd_config {
	char *uri;
	struct nbd_tls *tls; /* or NULL */
	uint64_t connections;
	uint64_t outage_timeout_ns; /* on_disconnect: 0: fail, OPTION_FOREVER: for ever */
	uint64_t timeout_ns;
	int replies; /* enum nbd_replies */
	int cache;   /* enum nbd_cache */
};

extern const struct option nbd_options[];
extern const struct backend_uri nbd_backend_uri;

/* What probe has found. */
struct nbd_found {
	struct nbd_export export;
	struct net_addresses addresses;
	bool simple; /* replies: others are not asked for */
};

/* Of one device, all its queues: how often the log is told; of lost connections, by reason. */
struct nbd_log_limits {
	struct log_limit lost[NET_END_NR], connected, gave_up, error, lookup;
};

struct nbd_device {
	const struct nbd_config *config;
	const char *name;
	struct nbd_uri uri;
	char address[160]; /* of the uri, for messages */
	struct tls_credentials *tls;
	struct nbd_found found;
	unsigned conns_per_queue;
	/*
	 * The server came back as another one: nothing is served any more, until it is opened anew.
	 * The first one to see it claims the words; they stay as they are from `changed` on.
	 */
	atomic_bool changed_claimed, changed;
	char changed_words[NBD_CHANGED_BYTES + 100];
	/* Some queue has had a write acknowledged that no flush has covered yet. */
	atomic_bool unflushed;
	/* Such a write may be lost: the next flush says so. */
	atomic_bool lost_writes;
	/*
	 * With cache: volatile. FLUSHes under way that cover such writes, and how often such a
	 * write may have been lost: no FLUSH of before succeeds by a server that is there
	 * afterwards.
	 */
	atomic_uint covering_nr, losses;
	struct nbd_log_limits limits;
};

struct nbd_io {
	struct backend_io *io;
	struct list_node node; /* queue->waiting or connection->sent, in the order of coming */
	/* The queue's. */
	struct nbd_connection *conn; /* NULL: waits */
	uint64_t cookie;   /* tag and a number, so that no late answer is taken for one of now */
	uint64_t start_ns; /* it came */
	unsigned losses;   /* FLUSH: of the device, when it came */
	bool again;	   /* it has been sent before */
	bool cancelled;
	bool covers;   /* FLUSH: writes that would be lost with the connection */
	uint8_t state; /* enum nbd_io_state, for nbd_wait */
	/* The connection's, while it has the request. */
	bool answered; /* by result, but its bytes may still be read by the kernel */
	bool refused;  /* the answer: the server is shutting down, another one may do it */
	int result;
	uint64_t sent_at_bytes; /* of the stream: all of it is sent when it has come so far */
	uint64_t sent_ns;	/* all of it was sent, the last time */
	uint64_t deadline_ns;
	struct nbd_slot slot;
};

enum nbd_io_state { NBD_IO_IDLE, NBD_IO_WAITING, NBD_IO_SENT };

enum nbd_connection_state {
	NBD_CONNECTION_DOWN, /* until its timer fires */
	NBD_CONNECTION_CONNECTING,
	NBD_CONNECTION_HANDSHAKE, /* NBD's and that of TLS */
	NBD_CONNECTION_READY,
	NBD_CONNECTION_RETIRING, /* READY but for new requests: the server is shutting down */
	NBD_CONNECTION_CLOSING,	 /* or never to be tried again */
	NBD_CONNECTION_LEAVING,	 /* the last word is being sent */
};

/* Written by the reactor, read by the main thread: base/counter.h. */
struct nbd_connection_stats {
	uint64_t since_ns;    /* in the state that people see */
	uint64_t next_try_ns; /* DOWN */
	uint64_t connects, lost, failed_tries, resent;
	uint64_t ends[NET_END_NR];
	int last_end; /* enum net_end, or -1 */
	struct histogram wait, answer;
};

/* One connection. Outlives its queue until the kernel has let go of it. */
struct nbd_connection {
	struct stream stream;
	struct iovec *pieces;	 /* the stream's, of what is to be sent */
	uint8_t *headers;	 /* of requests: a ring, one for each tag */
	unsigned header_idx;	 /* the next */
	uint8_t *received;	 /* the stream's, as is what is behind it with TLS */
	struct nbd_queue *queue; /* NULL: abandoned, to be freed when closed */
	unsigned idx;
	enum nbd_connection_state state;
	char why[NBD_HANDSHAKE_ERROR_BYTES]; /* why it is being closed; "" by the stream's error */
	enum net_end end;		     /* the same, in a word */
	struct timer timer; /* DOWN: when to try again; else when this takes too long */
	unsigned tries;	    /* in a row that led to nothing */
	unsigned address;   /* which of them is next */
	uint64_t ready_ns;
	uint8_t goodbye[NBD_REQUEST_BYTES_MAX];
	struct prng prng;
	/* nbd_transfer.c's, as are pieces and headers: requests, and what comes back. */
	struct list_node sent;
	struct list_node *unsent; /* of them: the first that is not all sent; or the list itself */
	unsigned large_nr;	  /* of them: READs of much */
	struct nbd_reply reply;
	struct nbd_login login;
	struct nbd_connection_stats stats;
};

struct nbd_queue {
	struct backend_queue *queue;
	struct nbd_device *nbd;
	struct nbd_io **io; /* by tag */
	struct nbd_connection **conn;
	unsigned conn_nr, ready_nr;
	struct list_node waiting;
	struct timer outage_timeout; /* no connection is ready, or unconfirmed: when to give up */
	bool unconfirmed;	     /* one had to wait, and none was answered since */
	bool gave_up; /* what no connection can be given, or is lost, fails at once */
	struct net_addresses addresses; /* where it was last known to be */
	struct net_resolve *resolve;	/* asks anew; or NULL */
	uint32_t cookie_nr;
};

/* nbd_open.c */
int nbd_ask(const void *config, void **ret_found, char *error, size_t error_bytes);
int nbd_open(struct backend_device *device);
void nbd_close(struct backend_device *device);
void nbd_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);

/* nbd_options.c */
/*
 * The URI with all that `tls` says put into it. Any thread. Returns 0, or -EINVAL with words for
 * the user.
 */
int nbd_config_uri(const struct nbd_config *config, struct nbd_uri *ret_uri, char *error,
		   size_t error_bytes);
void nbd_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* nbd.c: what a connection reports to its queue */

/* It has become ready: what waits goes on. */
void nbd_queue_ready(struct nbd_queue *q);
/* The server has done a request, or said what is wrong with it: it is there. */
void nbd_queue_answered(struct nbd_queue *q, struct nbd_io *n);
/* This connection was ready and is so no longer; nbd_queue_take_back of what it had follows. */
void nbd_queue_lost(struct nbd_queue *q, const struct nbd_connection *conn);
/* A request that a lost connection had, or that the server refused: waits again, or fails. */
void nbd_queue_take_back(struct nbd_queue *q, struct nbd_io *n);
/* The end of a request in whatever place it was. May submit others before it returns. */
void nbd_io_end(struct nbd_io *n, int result);
/* The device is not what it was: everything that waits fails, and all that comes. */
void nbd_queue_changed(struct nbd_queue *q);
/* No address of the server answers: ask for new ones. */
void nbd_queue_look_up(struct nbd_queue *q);

/* nbd_connection.c */

/* Returns 0, -ENOMEM or -ENOBUFS. It begins to connect at once. */
int nbd_connection_open(struct nbd_connection **ret_conn, struct nbd_queue *q, unsigned idx);
/* No request is with it. The connection frees itself when it can. Accepts NULL. */
void nbd_connection_abandon(struct nbd_connection *conn);
/* Ends the connection, for this reason. */
void nbd_connection_drop(struct nbd_connection *conn, enum net_end end, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* One that takes requests: there always is room. */
void nbd_connection_send(struct nbd_connection *conn, struct nbd_io *n);

static inline bool nbd_connection_takes_requests(const struct nbd_connection *conn)
{
	return conn->state == NBD_CONNECTION_READY && conn->stream.state == STREAM_OPEN;
}

/* nbd_look.c */

/* "connected", "connecting", "waiting" ...: the same word is the same pointer. */
const char *nbd_connection_state_word(enum nbd_connection_state state);
/* struct backend's connection. Main thread. */
bool nbd_connection_look(const struct backend_queue *queue, unsigned idx,
			 struct net_connection_look *ret_connection);

/* nbd_changed.c */

/* What is another one, in words; false: nothing that matters. */
bool nbd_changed_words(const struct nbd_export *was, const struct nbd_export *is, char *buf,
		       size_t bytes);
/* Reactor thread. The same of what the device was opened with, which fails from then on: told. */
bool nbd_changed_note(struct nbd_device *nbd, const struct nbd_export *is);
/* Any thread: the words, NULL while it is what it was. */
const char *nbd_failure(const struct backend_device *device);

/* nbd_transfer.c */

/* After each handshake. */
void nbd_transfer_begin(struct nbd_connection *conn);
void nbd_transfer_send(struct nbd_connection *conn, struct nbd_io *n);
/* The next request that is answered and now sent to its last byte, to be removed; NULL: none. */
struct nbd_io *nbd_transfer_sent(struct nbd_connection *conn);
void nbd_transfer_remove(struct nbd_connection *conn, struct nbd_io *n);
/* 1: *ret_answered has its result; 0: there is no more in these bytes; -EPROTO: reply.error. */
int nbd_transfer_received(struct nbd_connection *conn, struct nbd_input *in,
			  struct nbd_io **ret_answered);

#endif
