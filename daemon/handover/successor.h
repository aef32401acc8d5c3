/*
 * Starting a program that goes on with what this process has: as a standby child, before the hand
 * over of an upgrade, or in the place of this process, when that failed. Main thread.
 *
 * Parked descriptors are handed over by the protocol of sd_listen_fds(3), as systemd does at a
 * start. A standby child also gets its end of a socket and the lock of the control socket, whose
 * numbers are in UBLKD_STANDBY ("SOCKET LOCK").
 */
#ifndef DAEMON_HANDOVER_SUCCESSOR_H
#define DAEMON_HANDOVER_SUCCESSOR_H

#include <sys/types.h>

#include "daemon/fdstore/fd_store.h"

#define SUCCESSOR_STANDBY "UBLKD_STANDBY"

/*
 * Runs path with argv as a child. *ret_socket (SOCK_SEQPACKET, non-blocking) is ours to close: its
 * end says that the child has ended. Returns 0 or -errno; a path that cannot be executed is told by
 * the child's exit code SUCCESSOR_NO_PROGRAM.
 */
int successor_spawn(const char *path, char **argv, const struct fd_store *fd_store, int lock_fd,
		    pid_t *ret_pid, int *ret_socket);
#define SUCCESSOR_NO_PROGRAM 127

/*
 * Executes this very program again, even when its file has been replaced. Signals that are blocked
 * or pending stay so. Returns -errno.
 */
int successor_become(char **argv, const struct fd_store *fd_store);

#endif
