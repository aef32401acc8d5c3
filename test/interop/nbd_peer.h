/* nbd_server.py as a child of the test: started, told what to do, asked what it has seen. */
#ifndef TEST_NBD_PEER_H
#define TEST_NBD_PEER_H

#include <stdint.h>
#include <sys/types.h>

struct nbd_peer {
	pid_t pid;
	int control_fd;
	char dir[80]; /* its own; removed at the end */
	char uri[160];
};

/*
 * Starts it with these further arguments, NULL at the end; ready when this returns. It dies with
 * us. Aborts where the server cannot be started: nothing could be tested.
 */
void nbd_peer_start(struct nbd_peer *peer, const char *const *args);
/* Accepts a zeroed one. */
void nbd_peer_stop(struct nbd_peer *peer);

/* One line for its control socket; aborts unless the answer is "ok". */
void nbd_peer_tell(struct nbd_peer *peer, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A number of its statistics, by name. */
uint64_t nbd_peer_count(struct nbd_peer *peer, const char *name);

#endif
