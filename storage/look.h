/* What can be seen of a backend while it serves: what an I/O waits for, its connections. */
#ifndef STORAGE_LOOK_H
#define STORAGE_LOOK_H

#include <stdint.h>

struct histogram;

/* What an I/O that a backend has waits for. */
enum backend_wait_kind {
	BACKEND_WAIT_ANSWER,   /* the storage, or the backend below */
	BACKEND_WAIT_THROTTLE, /* a limit of rate: configured */
	BACKEND_WAIT_DELAY,    /* time to pass: configured */
	BACKEND_WAIT_KIND_NR,
};

/* "answer", "throttle", "delay" */
const char *backend_wait_kind_name(enum backend_wait_kind kind);

struct backend_wait {
	enum backend_wait_kind kind;
	const char *words; /* static, for people; NULL: nothing of its own */
};

/* Why a connection, or a try to make one, came to its end. */
enum backend_end {
	BACKEND_END_CLOSED,	 /* by the peer, or the network */
	BACKEND_END_UNREACHABLE, /* nobody there */
	BACKEND_END_REFUSED,	 /* there, but not for us */
	BACKEND_END_SILENT,	 /* no answer in time */
	BACKEND_END_PROTOCOL,	 /* it said what must not be said */
	BACKEND_END_SHUTDOWN,	 /* it said that it goes */
	BACKEND_END_CANCELLED,	 /* by us, for a request that had to end */
	BACKEND_END_CHANGED,	 /* it is another one than before */
	BACKEND_END_NR,
};

const char *backend_end_name(enum backend_end end);

/*
 * One connection of a queue as it is, and what it did since the queue was opened. A copy of live
 * counters; those of the same moment need not be of the same instant.
 */
struct backend_connection {
	const char *node;     /* whose it is: the name of the backend_device. The core's */
	const char *state;    /* "connected", "connecting", "waiting", "leaving" */
	uint64_t since_ns;    /* in that state, by ring_clock_ns */
	uint64_t next_try_ns; /* of one that waits to be tried again; 0: it does not */
	uint64_t connects;    /* that led to requests */
	uint64_t lost;	      /* of those: ended */
	uint64_t failed_tries;
	uint64_t ends[BACKEND_END_NR]; /* of both, by reason */
	int last_end;		       /* enum backend_end; -1: none */
	uint64_t resent;	       /* requests sent that had been sent before */
	uint64_t answered;	       /* requests; over receives: how many a call has brought */
	uint64_t sends, sent_bytes, receives, received_bytes; /* calls of the kernel, of the wire */
	/*
	 * Of the answered requests: until all of it was handed to the kernel (it waited for a
	 * connection, or for those before it), and from then until all of the answer was there (the
	 * wire and the server). Live; valid as long as the queue.
	 */
	const struct histogram *wait, *answer;
};

#endif
