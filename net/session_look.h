/* What can be seen of connections to a peer while they serve: for people, metrics and tests. */
#ifndef NET_SESSION_LOOK_H
#define NET_SESSION_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct histogram;

/* Why a connection, or a try to make one, came to its end. */
enum net_end {
	NET_END_CLOSED,	     /* by the peer, or the network */
	NET_END_UNREACHABLE, /* nobody there */
	NET_END_REFUSED,     /* there, but not for us */
	NET_END_SILENT,	     /* no answer in time */
	NET_END_PROTOCOL,    /* it said what must not be said */
	NET_END_SHUTDOWN,    /* it said that it goes */
	NET_END_CANCELLED,   /* by us, for a request that had to end */
	NET_END_CHANGED,     /* it is another one than before */
	NET_END_NR,
};

/* "closed", "unreachable" ... */
const char *net_end_name(enum net_end end);

/*
 * One connection as it is, and what it did since it was made. A copy of live counters; those of the
 * same moment need not be of the same instant.
 */
struct net_connection_look {
	const char *node;     /* whose it is, in words: of who shows it; net leaves it NULL */
	bool is_repeated;     /* of who shows it, too: it is shared, and shown twice */
	const char *server;   /* net_host_format */
	const char *state;    /* "connected", "unusable", "connecting", "waiting", "leaving" */
	uint64_t since_ns;    /* in that state, by ring_clock_ns */
	uint64_t next_try_ns; /* of one that waits to be tried again; 0: it does not */
	uint64_t connects;    /* that led to requests */
	uint64_t lost;	      /* of those: ended */
	uint64_t failed_tries;
	uint64_t ends[NET_END_NR]; /* of both, by reason */
	int last_end;		   /* enum net_end; -1: none */
	uint64_t resent;	   /* requests sent that had been sent before */
	uint64_t answered;	   /* requests; over receives: how many a call has brought */
	uint64_t sends, sent_bytes, receives, received_bytes; /* calls of the kernel, of the wire */
	/*
	 * Of the answered requests: until all of it was handed to the kernel (it waited for a
	 * connection, or for those before it), and from then until all of the answer was there (the
	 * wire and the peer). Live; valid as long as what has the connection.
	 */
	const struct histogram *wait, *answer;
};

#endif
