/*
 * What the files of the NBD backend share: its device, queues, connections and requests. Requests,
 * connections that come and go, and what becomes of the ones with the others are net/session.h's.
 *
 *	nbd_options.c     what the user can configure                   main thread
 *	nbd_open.c        open, limits, identity                        helper and control thread
 *	nbd.c             the table of the backend: queues and their requests
 *	nbd_connection.c  the table of the protocol: what of a session is NBD's
 *	nbd_login.c       the handshake of NBD and of TLS, as bytes of a connection
 *	nbd_transfer.c    requests and replies as bytes of a connection
 *	nbd_changed.c     a server that came back as another one, in words
 *
 * Those without a thread run on the queue's reactor.
 */
#ifndef BACKENDS_NBD_NBD_H
#define BACKENDS_NBD_NBD_H

#include <stdatomic.h>

#include "storage/backend.h"
#include "backends/nbd/nbd_login.h"
#include "backends/nbd/nbd_reply.h"
#include "backends/nbd/nbd_request.h"
#include "backends/nbd/nbd_uri.h"
#include "net/changed.h"
#include "net/flush.h"
#include "net/options.h"
#include "net/session.h"
#include "net/witness.h"
#include "base/log.h"

#define NBD_CONNECTIONS_MAX 64u

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

struct nbd_config {
	char *uri;
	struct net_tls_config *tls; /* what it says beside the URI; NULL: nothing */
	uint64_t connections;
	struct net_outage_config outage;
	int replies; /* enum nbd_replies */
	int cache;   /* enum nbd_cache */
};

extern const struct option nbd_options[];
extern const struct backend_uri nbd_backend_uri;

/* What open has found. */
struct nbd_found {
	struct nbd_export export;
	struct net_addresses addresses;
	bool simple; /* replies: others are not asked for */
};

struct nbd_device {
	const struct nbd_config *config;
	const char *name;
	struct nbd_uri uri;
	char address[160]; /* of the uri, for messages */
	struct tls_credentials *tls;
	struct nbd_found found;
	struct nbd_examine *question; /* while it opens */
	/* nbd_places: of the address as configured, and of each that it stands for. */
	uint64_t place[1 + NET_ADDRESS_NR_MAX];
	unsigned conns_per_queue;
	/* The server came back as another one: nothing is served any more, until it is opened anew.
	 */
	struct net_changed changed;
	struct net_flush flush;
	struct net_witness witness; /* the first connection of queue 0 */
	/* Of all its queues: how often the log is told. */
	struct session_log_limits limits;
	struct log_limit error_limit;
};

struct nbd_io {
	struct session_request request;
	struct backend_io *io;
	uint64_t cookie; /* tag and a number, so that no late answer is taken for one of now */
	struct net_flush_mark flush;
	struct nbd_slot slot;
};

struct nbd_connection {
	struct session_connection c;
	/* nbd_transfer.c's. */
	uint8_t *headers;    /* of requests: a ring, one for each tag */
	unsigned header_idx; /* the next */
	unsigned large_nr;   /* of what is sent: READs of much */
	struct nbd_reply reply;
	struct nbd_login login;
};

struct nbd_queue {
	struct session session;
	struct backend_queue *queue;
	struct nbd_device *nbd;
	struct nbd_io **io; /* by tag */
	uint32_t cookie_nr;
};

static inline struct nbd_connection *nbd_connection_of(struct session_connection *c)
{
	return container_of(c, struct nbd_connection, c);
}

static inline struct nbd_io *nbd_io_of(struct session_request *r)
{
	return container_of(r, struct nbd_io, request);
}

/* Not of a connection whose queue is gone. */
static inline struct nbd_queue *nbd_queue_of(const struct session_connection *c)
{
	return container_of(c->session, struct nbd_queue, session);
}

/* nbd_open.c */
int nbd_open(struct backend_device *device);
void nbd_open_async(struct backend_visit *visit);
void nbd_cancel_async(struct backend_visit *visit);
void nbd_close(struct backend_device *device);
void nbd_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
int nbd_stored_fd(const struct backend_device *device);
unsigned nbd_places(const struct backend_device *device,
		    uint64_t ret_places[static BACKEND_PLACES_MAX]);

/* nbd_options.c */
/*
 * The URI with all that `tls` says put into it. Any thread. Returns 0, or -EINVAL with words for
 * the user.
 */
int nbd_config_uri(const struct nbd_config *config, struct nbd_uri *ret_uri, char *error,
		   size_t error_bytes);
void nbd_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* nbd_connection.c */
extern const struct session_protocol nbd_protocol;
/* As session_submit. */
int nbd_connection_submit(struct nbd_queue *q, struct nbd_io *n);

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
/* Adds the request to what the stream sends, with a new cookie. */
void nbd_transfer_send(struct nbd_connection *conn, struct nbd_io *n);
/* It is answered and sent. */
void nbd_transfer_left(struct nbd_connection *conn, const struct nbd_io *n);
/* 1: *ret_answered has its result; 0: there is no more in these bytes; -EPROTO: reply.error. */
int nbd_transfer_received(struct nbd_connection *conn, struct nbd_input *in,
			  struct nbd_io **ret_answered, int *ret_result);

#endif
