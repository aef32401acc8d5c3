/* What can be seen of a backend while it serves: what an I/O waits for; net/session_look.h has the
 * rest. */
#ifndef STORAGE_LOOK_H
#define STORAGE_LOOK_H

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

#endif
