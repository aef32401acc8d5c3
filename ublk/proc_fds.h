/* What the processes of this machine have open. Main thread; reads /proc, opens nothing else. */
#ifndef UBLK_PROC_FDS_H
#define UBLK_PROC_FDS_H

#include <stdbool.h>

/*
 * Calls fn with the target of each descriptor of each process, as text. fn returns true when it
 * wants no more of this process. A process of another pid namespace, or one that may not be looked
 * into, is not seen.
 */
void proc_fds(bool (*fn)(const char *pid, const char *target, void *arg), void *arg);

#endif
