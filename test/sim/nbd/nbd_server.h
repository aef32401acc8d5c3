/*
 * A simulated NBD server for each device that has one: a medium with a volatile cache in front,
 * connections that speak the protocol, answers in whatever order, and its lives: it dies, with or
 * without what is in its cache, is away, falls silent, comes back.
 *
 *	nbd_server.c	lives, the medium
 *	nbd_conn.c	a connection: handshake, requests, replies
 *	nbd_judge.c	which errors a client may see because of all that
 */
#ifndef SIM_NBD_SERVER_H
#define SIM_NBD_SERVER_H

#include "backends/nbd/nbd_proto.h"
#include "base/list.h"
#include "test/sim/client.h"
#include "test/sim/net.h"
#include "test/sim/storage.h"

#define NBD_SERVER_QUEUES_MAX 16
#define NBD_SERVER_MAX_PAYLOAD MIB(32)

/* What a queue of the device knows of its connections, and what its requests may suffer from. */
struct nbd_outage {
	unsigned up_nr;	      /* connections over which requests have gone */
	uint64_t end_ns;      /* when it was 0 last */
	uint64_t lost_ns;     /* when a connection was given up last */
	uint64_t over_ns;     /* when one ended last */
	uint64_t since_ns;    /* the first end since a request was answered; 0: all is well */
	uint64_t too_long_ns; /* end of the last such time that was longer than requests wait */
	uint64_t answered_ns; /* the client knew last of an answer */
	bool harmed;	      /* since_ns: a request has failed */
};

struct nbd_server {
	unsigned idx;
	struct storage *st;
	struct list_node conns;
	struct sim_event fate, back;
	/* how it speaks */
	bool no_zeroes, has_go, has_structured, has_extended;
	uint16_t flags; /* enum nbd_transmission_flags */
	uint32_t min_block_bytes;
	/* how it is */
	bool down, lost; /* lost: nobody says that it is down */
	uint64_t silent_until_ns;
	uint64_t mute_until_ns; /* it answers no request */
	bool mute_hangs_up;	/* but ends each connection that brings one */
	bool changed;		/* it is another one than when the device was opened */
	uint8_t *stable;	/* what a loss of the cache leaves of the medium */
	/* what its client was configured to do */
	bool cache_kept;
	uint64_t outage_timeout_ns, timeout_ns; /* outage timeout: 0: none, UINT64_MAX: for ever */
	bool filtered;				/* requests may be late when its client gets them */
	/* what the client may say, see nbd_judge.c */
	uint64_t life; /* counts the devices, and their lives */
	struct nbd_outage queue[NBD_SERVER_QUEUES_MAX];
	bool was_up;		     /* in this life */
	uint64_t closed_ns, told_ns; /* of FLUSHes that fail */
};

/* ---- nbd_server.c ---- */

struct nbd_server *nbd_server_create(unsigned idx, struct storage *st);
void nbd_server_destroy(struct nbd_server *server);
/* The URI of its export: for TCP, or for a unix socket. */
void nbd_server_uri(const struct nbd_server *server, bool tcp, char *text, size_t text_bytes);
/* The same as an address; the second one for TCP is one where nobody listens. */
socklen_t nbd_server_address(const struct nbd_server *server, bool tcp, unsigned nr,
			     struct sockaddr_storage *ret_name);
/* It is there, and as it was, for a device that is opened: anew, or taken over from the dead. */
void nbd_server_begin(struct nbd_server *server, bool anew);
/* Returns 0 or what connect(2) says. */
int nbd_server_accept(const struct sockaddr *address, struct sim_socket *sock,
		      struct nbd_conn **ret_conn);
/* Whether nobody will ever answer to a connect. */
bool nbd_server_is_lost(const struct sockaddr *address);
uint64_t nbd_server_size_bytes(const struct nbd_server *server);
/* For a while it answers no request, or hangs up on each. */
void nbd_server_fall_mute(struct nbd_server *server);
/* All connections are over; the cache, when it has one that it does not keep, is lost in part. */
void nbd_server_die(struct nbd_server *server);

/* The medium: what a request does. before_seq: as for storage_flush. */
void nbd_server_write(struct nbd_server *server, uint64_t offset_bytes, const uint8_t *data,
		      uint32_t bytes, bool fua);
void nbd_server_fill(struct nbd_server *server, uint64_t offset_bytes, uint8_t value,
		     uint32_t bytes, bool fua);
void nbd_server_flush(struct nbd_server *server, uint64_t before_seq);

/* ---- nbd_conn.c ---- */

struct nbd_conn {
	struct nbd_server *server;
	struct sim_socket *sock;
	struct list_node node;
	uint64_t life; /* of the server's client */
	uint8_t state;
	bool structured, extended;
	bool disc;	     /* the client has said good-bye */
	bool refused;	     /* the WRITE that is coming has been answered */
	bool used;	     /* requests have gone over it */
	struct net_bytes in; /* not understood yet */
	struct net_bytes out;
	struct list_node requests;
	struct sim_event speak;
};

struct nbd_conn *nbd_conn_create(struct nbd_server *server, struct sim_socket *sock);
/* Bytes of the client. */
void nbd_conn_hears(struct nbd_conn *conn, const uint8_t *data, size_t bytes);
/* The network takes bytes of the client to it. */
void nbd_conn_sent_to(struct nbd_conn *conn);
/* It is over: what was asked is done or not, and conn is gone. */
void nbd_conn_lost(struct nbd_conn *conn);
/* The network cuts it, or it falls with its server; conn is gone. */
void nbd_conn_cut(struct nbd_conn *conn, int err);
/* The client has the whole handshake, and no request has come. */
bool nbd_conn_is_fresh(const struct nbd_conn *conn);
/* Whether the network has not all of the request with this tag. */
bool nbd_conn_lacks(const struct nbd_conn *conn, unsigned tag);
/* Until then its server does not read. */
uint64_t nbd_conn_silent_until_ns(const struct nbd_conn *conn);

/* ---- nbd_judge.c ---- */

void nbd_judge_begin(struct nbd_server *server);
/* A connection carries requests for the first time; and one that could have is over. */
void nbd_judge_up(struct nbd_conn *conn);
void nbd_judge_over(const struct nbd_conn *conn);
/* The client has closed a socket that was connected to it. */
void nbd_server_closed(const struct sim_socket *sock);
/* The server has said all of an answer; bytes get to the client; who now has looked at them. */
void nbd_judge_said(struct nbd_conn *conn);
void nbd_judge_got(struct sim_socket *sock, size_t bytes);
void nbd_judge_looked(struct sim_socket *sock);
/* A request has ended: not too early, and not too late. */
void nbd_judge_ended(const struct nbd_server *server, const struct client_rq *rq);
/* Whether a request may fail with -EIO although the server reported no error. */
bool nbd_judge_excuses(struct nbd_server *server, const struct client_rq *rq);
/* A FLUSH has failed: what was lost before is known to be. */
void nbd_judge_flush_failed(struct nbd_server *server);

#endif
