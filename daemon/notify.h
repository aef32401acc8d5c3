/* Telling systemd (or whoever set NOTIFY_SOCKET) what state the daemon is in. Main thread. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

/*
 * Sends a message such as "READY=1". Does nothing when NOTIFY_SOCKET is not set. Returns 0 or
 * -errno.
 */
int notify_send(const char *message);

/* READY=1, STOPPING=1, and RELOADING=1 with the time that systemd wants with it; failures are
 * logged. */
void notify_ready(void);
void notify_stopping(void);
void notify_reloading(void);

#endif
