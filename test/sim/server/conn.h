/* A connection from the server's side, and what a protocol has to say of one. */
#ifndef SIM_SERVER_CONN_H
#define SIM_SERVER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "test/sim/net.h"
#include "test/sim/world.h"

struct client_rq;
struct server;

struct server_conn {
	struct server *server;
	struct sim_socket *sock; /* NULL: of a question before a device is opened */
	struct list_node node;
	uint64_t life;	     /* of the server's client */
	bool serves;	     /* requests may come */
	bool used;	     /* requests have gone over it */
	bool useless;	     /* the server has said so, although it is there */
	bool leaves;	     /* nothing more is said: it hangs up, soon */
	struct net_bytes in; /* not understood yet */
	struct net_bytes out;
	struct sim_event speak;
};

/* A connection is the first member of the protocol's. */
struct server_protocol {
	/* A client has connected, sock may be NULL: begins by server_conn_init. */
	struct server_conn *(*accept)(struct server *server, struct sim_socket *sock);
	/*
	 * Returns how many of these bytes it has understood; 0: more are needed. It speaks by
	 * events of its own, so that nothing of it ends under its feet.
	 */
	size_t (*take)(struct server_conn *conn, const uint8_t *at, size_t bytes);
	/* It is over: what was asked is done or not. The struct is freed behind it. */
	void (*lost)(struct server_conn *conn);
	/* The server is over. NULL: it has nothing of its own. */
	void (*fini)(struct server *server);
	/* Whether the network has not all of the request with this tag. */
	bool (*lacks)(const struct server_conn *conn, unsigned tag);
};

void server_conn_init(struct server_conn *conn, struct server *server, struct sim_socket *sock);
/* Adds to what is said; soon it goes out. */
void server_conn_say(struct server_conn *conn, const void *data, size_t bytes);
/* So late or a little later, but not while the server is silent. */
uint64_t server_conn_when(const struct server_conn *conn, uint64_t max_ns);
/* What has come and is not understood yet, on whatever way it is. Returns how much that was. */
size_t server_conn_peek(const struct server_conn *conn, size_t at, uint8_t *buf, size_t bytes);
/* The request of the device's user with this tag of the connection's queue, or NULL. */
struct client_rq *server_conn_rq(const struct server_conn *conn, unsigned tag);
/* The server has heard of it. */
void server_conn_heard(const struct server_conn *conn, unsigned tag);

/* ---- for the network ---- */

/* Bytes of the client. */
void server_conn_hears(struct server_conn *conn, const uint8_t *data, size_t bytes);
/* The network takes bytes of the client to it. */
void server_conn_sent_to(struct server_conn *conn);
/* It is over: what was asked is done or not, and conn is gone. */
void server_conn_lost(struct server_conn *conn);
/* The network cuts it, or it falls with its server; conn is gone. */
void server_conn_cut(struct server_conn *conn, int err);
/* The client has the whole hello, and no request has come. */
/*
 * The server does nothing now, or from now on: true, and `again` is called when it does something,
 * or it has hung up and what hangs on the connection may be gone. done: of what it was asked for.
 */
bool server_conn_is_mute(struct server_conn *conn, bool done, struct sim_event *event,
			 sim_event_fn *again);
bool server_conn_is_fresh(const struct server_conn *conn);
/* Until then its server does not read. */
uint64_t server_conn_silent_until_ns(const struct server_conn *conn);

#endif
