/*
 * Talking to the keeper of a state directory, and starting it. Main thread. Each exchange of a
 * request and a reply has FD_STORE_TIMEOUT_MS at most; each function gives up after the first that
 * is late. A connection lives as long as the call.
 */
#ifndef DAEMON_FDSTORE_KEEPER_CLIENT_H
#define DAEMON_FDSTORE_KEEPER_CLIENT_H

#include <limits.h>

/*
 * Hands a duplicate of fd to the keeper, which is started when there is none: exe, or NULL for the
 * ublkd-keeper that belongs to this program. The folder is made when missing. Returns 0, 1 when the
 * keeper was started for it and so holds nothing else, or -errno: -ENOEXEC when it cannot be
 * started, -ETIMEDOUT when it does not answer, what the keeper said.
 */
int keeper_put(const char *state_dir, const char *exe, const char *name, int fd);

/* Returns 0 or -errno; -ENOENT: it does not hold that, or there is no keeper. */
int keeper_drop(const char *state_dir, const char *name);

/*
 * Calls fn for each entry; it takes the descriptor. Returns 0 or -errno; -ENOENT: no keeper.
 */
int keeper_each(const char *state_dir, void (*fn)(const char *name, int fd, void *arg), void *arg);

/* Where the keeper's program is: beside this one or in libexec; NULL when it is nowhere. */
const char *keeper_find_exe(char path[static PATH_MAX]);

#endif
