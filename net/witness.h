/*
 * A connection to a server as the witness of its life. What a server has acknowledged and not
 * flushed is lost when it ends, also while nobody serves the device: after a kill -9, or between
 * two programs. So a second descriptor of a connection of the device is held by others
 * (storage/backend.h, stored_fd), and the connection outlives this process. The next one looks at
 * it: as long as it stands, the program at its other end has gone on. A server that takes one
 * connection alone takes another one when this is ended; else it stands until the next process has
 * a connection of its own, however often it tries.
 */
#ifndef NET_WITNESS_H
#define NET_WITNESS_H

#include <pthread.h>
#include <stdbool.h>

/* How long net_witness_hear waits for the server's machine, and as long for the end. */
#define NET_WITNESS_MS 2500

/* Of a device. */
struct net_witness {
	pthread_mutex_t lock;
	int news;   /* a duplicate of the newest connection; 0: nothing new. Under lock */
	int fd;	    /* the main thread's: what is to be held; 0: nothing */
	int before; /* of the process before, until there is another; 0: it does not stand */
	bool stood; /* it did, while nobody served the device. May be read */
};

/*
 * A thread that may wait, as net_witness_hear and _end do. before_fd: the witness of the process
 * before, the caller's; not above 0: there is none. ends_it: it is in the way of the next
 * connection.
 */
void net_witness_init(struct net_witness *w, int before_fd, bool ends_it);
/* The one before is still held by others, for who tries again. */
void net_witness_fini(struct net_witness *w);

/*
 * Reactor thread: this connection, connected, is the witness from now on. False: the server was
 * lost since net_witness_init, when the one before still stood.
 */
bool net_witness_is(struct net_witness *w, int fd);

/* Main thread: the descriptor to be held, the witness's until the next call or fini; -1: none. */
int net_witness_fd(struct net_witness *w);

/*
 * A thread that may wait: whether the witness of the process before stands; false too when the
 * server's machine does not answer, or fd is no such connection. fd stays the caller's.
 */
bool net_witness_hear(int fd);

/* The same: then the connection is ended, and the server has done what it had read of it. */
void net_witness_end(int fd);

#endif
