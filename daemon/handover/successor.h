/*
 * Starting a program that goes on with what this process has: as a standby child, before the hand
 * over of an upgrade, or in the place of this process, when that failed. And the standby child's
 * side: it gets ready while the old program serves, and adopts its devices. Main thread.
 *
 * Descriptors of the fd store are handed over by the protocol of sd_listen_fds(3), as systemd does
 * at a start. A standby child also gets its end of a socket and the lock of the control socket,
 * whose numbers are in UBLKD_STANDBY ("SOCKET LOCK").
 *
 * Messages, one per packet. To the old program: "ready VERSION NR" (NR devices of which it has
 * found notes; older programs say "ready VERSION"), then "done NR"; or "failed WORDS". From it:
 * "go".
 */
#ifndef DAEMON_HANDOVER_SUCCESSOR_H
#define DAEMON_HANDOVER_SUCCESSOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/fdstore/fd_store.h"

#define SUCCESSOR_STANDBY "UBLKD_STANDBY"

/*
 * Runs path with argv as a child. *ret_socket (SOCK_SEQPACKET, non-blocking) is the caller's:
 * its end says that the child has ended. Returns 0 or -errno; if path cannot be executed, the
 * child's exit code is SUCCESSOR_NO_PROGRAM.
 */
int successor_spawn(const char *path, char **argv, const struct fd_store *fd_store, int lock_fd,
		    pid_t *ret_pid, int *ret_socket);
#define SUCCESSOR_NO_PROGRAM 127

/*
 * Executes this very program again, even when its file has been replaced. Signals that are blocked
 * or pending stay so. Returns -errno.
 */
int successor_become(char **argv, const struct fd_store *fd_store);

#define STANDBY_MESSAGE_BYTES 1024

struct standby {
	int socket;  /* -1: this is no standby */
	int lock_fd; /* of the control socket, shared with the old program */
};

/* Reads and removes UBLKD_STANDBY. Call it before any descriptor is made. */
void standby_init(struct standby *s);

static inline bool standby_is(const struct standby *s)
{
	return s->socket >= 0;
}

/* Sends a message; false: the old program has ended. */
bool standby_say(const struct standby *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Blocks until the old program says go; false: it called the upgrade off, or has ended. */
bool standby_wait_for_go(const struct standby *s);

/* The upgrade is over: from here on this process is the daemon. */
void standby_end(struct standby *s);

#endif
