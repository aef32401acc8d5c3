/* What the processes of this machine have open. Any thread; reads /proc, opens nothing else. */
#ifndef HOST_PROC_FDS_H
#define HOST_PROC_FDS_H

#include <stdbool.h>

/*
 * Calls fn for each descriptor of each process with its path below /proc ("/proc/7/fd/3"), which
 * readlink(2) and stat(2) understand. fn returns true when it wants no more of this process. A
 * process of another pid namespace is not seen, and one that may not be looked into is passed over.
 */
void proc_fds(bool (*fn)(const char *pid, const char *path, void *arg), void *arg);

/*
 * The same for one process. The threads of a process that have a table of their own are looked at
 * when its first thread has ended. 0, or -EACCES: it may not be looked into. A process that has
 * ended has nothing open.
 */
int proc_fds_of(const char *pid, bool (*fn)(const char *pid, const char *path, void *arg),
		void *arg);

/* Calls fn for each process that /proc shows. 0, or -errno: /proc cannot be read. */
int proc_each(void (*fn)(const char *pid, void *arg), void *arg);

#endif
