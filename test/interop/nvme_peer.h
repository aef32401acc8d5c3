/* nvme_target.py as a peer of the test (fault_peer.h). */
#ifndef TEST_NVME_PEER_H
#define TEST_NVME_PEER_H

#include "fault_peer.h"

#define NVME_PEER_SUBSYSTEM "nqn.2026-01.org.example:disk"
#define NVME_PEER_PORTS 2

/* By port, from 0: 0 where nothing has listened yet. */
extern unsigned nvme_peer_port[NVME_PEER_PORTS];

/*
 * It listens on that many ports of this machine, the same as before when it was killed. args: more
 * arguments, NULL at the end.
 */
void nvme_peer_start(struct fault_peer *peer, unsigned port_nr, const char *const *args);

/* One line for its control socket; aborts unless all is well. */
void nvme_peer_tell(struct fault_peer *peer, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * A number of its statistics: "connections", "commands.read", "struck.stall"; what is not there is
 * 0.
 */
uint64_t nvme_peer_count(struct fault_peer *peer, const char *name);

#endif
