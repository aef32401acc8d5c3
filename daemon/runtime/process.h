/*
 * What the process as a whole needs before it may serve a block device: limits, locked memory, a
 * mount namespace of its own. Main thread, before other threads exist.
 */
#ifndef DAEMON_RUNTIME_PROCESS_H
#define DAEMON_RUNTIME_PROCESS_H

#include <limits.h>
#include <stdbool.h>

/*
 * Each step that fails is logged, with the cure. Returns 0, or -errno when the daemon must not go
 * on. Without privileges (host_is_privileged) what needs them is left out.
 */
int process_prepare(bool privileged);

/* 0, or -ENOSYS when the running kernel is older than the oldest that ublkd supports. */
int process_check_kernel(void);
#define PROCESS_KERNEL_MIN "6.8"

/*
 * Takes the lock that only one daemon per control socket can have: a file beside it, which keeps
 * our pid in words. Returns its fd (keep it open), or -errno, logged.
 */
int process_lock(const char *control_path);

/* Writes our pid into a lock that was another process's before. */
void process_lock_pid(int lock_fd);

/* Where our program's file is, or was when we were started; cut when too long. */
void process_program(const char *argv0, char path[static PATH_MAX]);

#endif
