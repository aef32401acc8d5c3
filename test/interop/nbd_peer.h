/* nbd_server.py as a peer of the test (fault_peer.h). */
#ifndef TEST_NBD_PEER_H
#define TEST_NBD_PEER_H

#include "fault_peer.h"

/* With these further arguments, NULL at the end. */
void nbd_peer_start(struct fault_peer *peer, const char *const *args);

/* One line for its control socket; aborts unless the answer is "ok". */
void nbd_peer_tell(struct fault_peer *peer, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A number of its statistics, by name. */
uint64_t nbd_peer_count(struct fault_peer *peer, const char *name);

#endif
