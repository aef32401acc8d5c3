/* What the kernel says about a thread of this process. Any thread. */
#ifndef DAEMON_RUNTIME_THREAD_STATE_H
#define DAEMON_RUNTIME_THREAD_STATE_H

#include <stddef.h>
#include <sys/types.h>

/* 'R', 'S', 'D' and so on, as in proc(5); '?': not known. One small file is read. */
char thread_state(pid_t tid);

/*
 * The function of the kernel that it waits in, "" when it does not wait or that is not to be known
 * (the stack wants CAP_SYS_ADMIN, wchan a kernel that shows it).
 */
void thread_function(pid_t tid, char *function, size_t bytes);

#endif
