/*
 * A simulated server for each device that has one, whatever protocol they speak: a medium with a
 * volatile cache in front, connections, answers in whatever order, and its lives: it dies, with or
 * without what is in its cache, is away, falls silent, comes back.
 *
 *	server.c	lives, the medium
 *	conn.c		a connection: bytes in and out
 *	judge.c		which errors a client may see because of all that
 *	slot_server.c	what the devices on one have in common
 *
 * The protocols are test/sim/nbd and test/sim/nvme. A server is the first member of theirs.
 */
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "base/list.h"
#include "test/sim/client.h"
#include "test/sim/net.h"
#include "test/sim/server/conn.h"
#include "test/sim/storage.h"

#define SERVER_QUEUES_MAX 16

/* What a queue of the device knows of its connections, and what its requests may suffer from. */
struct server_outage {
	unsigned up_nr;	      /* connections over which requests have gone, and can go */
	uint64_t end_ns;      /* when it was 0 last */
	uint64_t lost_ns;     /* when a connection was given up last */
	uint64_t over_ns;     /* when one ended last */
	uint64_t since_ns;    /* the first end since a request was answered; 0: all is well */
	uint64_t too_long_ns; /* end of the last such time that was longer than requests wait */
	uint64_t answered_ns; /* the client knew last of an answer */
	uint64_t refused_ns;  /* a server that is there has said last that it serves nothing */
	bool harmed;	      /* since_ns: a request has failed */
};

struct server {
	const struct server_protocol *protocol;
	unsigned idx;
	unsigned address_nr; /* of TCP, where it listens */
	struct storage *st;
	struct list_node conns;
	struct sim_event fate, back;
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
	/* what the client may say, see judge.c */
	uint64_t life; /* counts the devices, and their lives */
	struct server_outage queue[SERVER_QUEUES_MAX];
	bool was_up;		     /* in this life */
	uint64_t closed_ns, told_ns; /* of FLUSHes that fail */
};

/* ---- server.c ---- */

/* Zeroed but for what is the protocol's; nobody finds it until it starts. */
void server_init(struct server *server, const struct server_protocol *protocol, unsigned idx,
		 struct storage *st);
void server_start(struct server *server);
/* Frees it. Accepts NULL. */
void server_destroy(struct server *server);
/* Of TCP; from address_nr on nobody listens. */
unsigned server_port(const struct server *server, unsigned nr);
/* The same as an address, or a unix socket. */
socklen_t server_address(const struct server *server, bool tcp, unsigned nr,
			 struct sockaddr_storage *ret_name);
#define SERVER_UNIX_PATH "/sim/"
/* It is there, and as it was, for a device that is opened: anew, or taken over from the dead. */
void server_begin(struct server *server, bool anew);
/* Returns 0 or what connect(2) says. */
int server_accept(const struct sockaddr *address, struct sim_socket *sock,
		  struct server_conn **ret_conn);
/* Whether nobody will ever answer to a connect. */
bool server_is_lost(const struct sockaddr *address);
/* Whether it answers no request now. For a while it does not, or hangs up on each. */
bool server_is_mute(const struct server *server);
void server_fall_mute(struct server *server);
/* All connections are over; the cache, when it has one that it does not keep, is lost in part. */
void server_die(struct server *server);

/* The medium: what a request does. before_seq: as for storage_flush. */
void server_write(struct server *server, uint64_t offset_bytes, const uint8_t *data, uint32_t bytes,
		  bool fua);
void server_fill(struct server *server, uint64_t offset_bytes, uint8_t value, uint32_t bytes,
		 bool fua);
void server_flush(struct server *server, uint64_t before_seq);

/* ---- judge.c ---- */

void judge_begin(struct server *server);
/* A connection carries requests for the first time; and one that could have is over. */
void judge_up(struct server_conn *conn);
void judge_over(const struct server_conn *conn);
/* The client has closed a socket that was connected to it. */
void server_closed(const struct sim_socket *sock);
/* The server has said all of an answer; bytes get to the client; who now has looked at them. */
void judge_said(struct server_conn *conn);
void judge_got(struct sim_socket *sock, size_t bytes);
void judge_looked(struct sim_socket *sock);
/* A request has ended: not too early, and not too late. */
void judge_ended(const struct server *server, const struct client_rq *rq);
/* Whether a request may fail with -EIO although the server reported no error. */
bool judge_excuses(struct server *server, const struct client_rq *rq);
/* The server says that this connection is of no use now; or, later, answers something. */
void judge_useless(struct server_conn *conn, bool useless);
/* A request has failed, whyever. */
void judge_failed(struct server *server, const struct client_rq *rq);
/* A FLUSH has failed: what was lost before is known to be. */
void judge_flush_failed(struct server *server);

/* ---- slot_server.c ---- */

/*
 * Chooses what all clients are configured with, and notes it: on_disconnect, timeout, cache, as
 * lines of YAML. Between two choices the protocol's own: uri, or what there is instead.
 */
void slot_server_choose_waits(struct server *server, char *yaml, size_t yaml_bytes);
/* Of the device that is opened next: who looks the server up finds so many addresses. */
void slot_server_found(const struct server *server, bool tcp, unsigned address_nr);

#endif
