/* Telling the service manager (systemd, or what else set NOTIFY_SOCKET) the state of the daemon.
 * Main thread. */
#ifndef DAEMON_RUNTIME_NOTIFY_H
#define DAEMON_RUNTIME_NOTIFY_H

#include <stdint.h>

/*
 * Sends a message such as "READY=1". Does nothing when NOTIFY_SOCKET is not set. Waits a second at
 * most. Returns 0 or -errno.
 */
int notify_send(const char *message);
/* The same with a duplicate of a descriptor, as FDSTORE=1 wants it; -1: none. */
int notify_send_fd(const char *message, int fd);

/* READY=1, STOPPING=1, and RELOADING=1 with the time that systemd wants with it; failures are
 * logged. */
void notify_ready(void);
void notify_stopping(void);
void notify_reloading(void);

/*
 * The longest time between two notify_watchdog that the service manager bears (WATCHDOG_USEC, of
 * the process that WATCHDOG_PID names), or 0: it does not watch us.
 */
uint64_t notify_watchdog_ns(void);

/* WATCHDOG=1; failures are logged. */
void notify_watchdog(void);

#endif
