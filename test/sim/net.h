/*
 * The simulated network: stream sockets whose other end is a server of this process. A connection
 * carries bytes in pieces of chance, late, and ends where chance (or the run, see struct sim_cut)
 * wants it: behind any byte of either side.
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "test/sim/world.h"

struct sim_op;
struct server_conn;
struct server;

/* A queue of bytes. Zeroed: empty. */
struct net_bytes {
	uint8_t *data;
	size_t head, nr, room;
};

void net_bytes_add(struct net_bytes *b, const void *data, size_t bytes);
void net_bytes_drop(struct net_bytes *b, size_t bytes);
void net_bytes_fini(struct net_bytes *b);

static inline const uint8_t *net_bytes_at(const struct net_bytes *b)
{
	return b->data + b->head;
}

/* Where answers end in what a server says, and how far its client has come: for judge.c. */
struct server_answers {
	uint64_t said_bytes, got_bytes;
	uint64_t next_end, last_end; /* of those that it has not got; 0: none */
	uint64_t got_ns;	     /* it has got one and not yet looked at it; 0: none */
	bool doubt;		     /* then there was a loss that it had not noticed */
};

struct sim_socket {
	int fd;
	struct server *server; /* that it was connected to, and in which life of its device */
	uint64_t life;
	int queue; /* of the device that uses it; -1: it has not been used yet */
	struct list_node node;
	struct server_conn *conn; /* the server's end; NULL: not connected, or over */
	unsigned address_nr;	  /* of the server's addresses */
	bool connected, shut;
	bool harmless; /* whatever happens to it, no request is lost */
	bool over;     /* the connection has ended, by whichever side */
	int over_err;  /* what a receive says then: 0 or -ECONNRESET */
	size_t window_bytes;
	struct net_bytes up, down; /* on the way to the server, and to the client */
	struct net_bytes late;	   /* the defect: said to be sent, and still to be read */
	struct server_answers answers;
	uint64_t sent[2];	    /* in all, by the client and by the server */
	uint64_t cut_at[2];	    /* when sent[] is that the connection ends; UINT64_MAX */
	struct sim_op *send, *recv; /* in flight; send: connect, too */
	unsigned cancel_nr;	    /* cancels in flight */
	struct sim_event arrive;    /* bytes at the server */
};

/* Takes an SQE on a socket. */
void net_submit(struct sim_op *op);
/* Whether an SQE of this opcode is one for net_submit. */
bool net_knows(uint8_t opcode);
/* ring_close: false when it is no socket. */
bool net_close(int fd);
/* The product is dead: its sockets are closed, their SQEs not touched. */
void net_die(void);
/* Sockets that are open. */
unsigned net_socket_nr(void);
/* Whether a connection of this queue's is over, and its client has not closed it yet. */
bool net_any_over(const struct server *server, int queue);

/* ---- for the server ---- */

/* To the client; what is behind a cut does not get there, and the connection is over. */
void net_say(struct sim_socket *sock, const void *data, size_t bytes);
/* Ends the connection: conn is over, the client will see err (0: the end of the stream). */
void net_hang_up(struct sim_socket *sock, int err);

#endif
