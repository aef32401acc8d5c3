/* What can be seen of a backend while it serves: what an I/O waits for; net/session_look.h has the
 * rest. */
#ifndef STORAGE_LOOK_H
#define STORAGE_LOOK_H

#include <stdbool.h>

struct backend_device;
struct backend_queue;
struct net_connection_look;

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

/*
 * A library whose clients have threads of their own, which several devices share: all of them that
 * there are in the process.
 */
struct backend_library_look {
	const char *name; /* static: "librbd" */
	unsigned client_nr;
	unsigned image_nr;  /* that use them */
	unsigned thread_nr; /* of the process that are not ours; 0 without a client */
};

/*
 * Main thread, from open to close: that of the first leaf that has one; false: there is none.
 */
bool backend_library(const struct backend_device *top, struct backend_library_look *ret_look);

/*
 * Main thread, between queue_init and queue_fini: struct backend's connections of all leaves, one
 * after the other.
 */
bool backend_connection(const struct backend_queue *top, unsigned idx,
			struct net_connection_look *ret_connection);

#endif
