/*
 * The new program's side of an upgrade: made by the old one (successor.h), it gets ready while that
 * serves, and adopts its devices. Main thread.
 *
 * Messages, one per packet. To the old one: "ready VERSION NR" (devices of which it has found
 * notes; programs of before say "ready VERSION"), then "done NR"; or "failed WORDS". From it: "go".
 */
#ifndef DAEMON_HANDOVER_STANDBY_H
#define DAEMON_HANDOVER_STANDBY_H

#include <stdbool.h>

#define STANDBY_MESSAGE_BYTES 1024

struct standby {
	int socket;  /* -1: this is no standby */
	int lock_fd; /* of the control socket, shared with the old program */
};

/* Looks at the environment, and cleans it. Call it before any descriptor is made. */
void standby_init(struct standby *s);

static inline bool standby_is(const struct standby *s)
{
	return s->socket >= 0;
}

/* Sends a message; false: the old program is no more. */
bool standby_say(const struct standby *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Blocks until the old program says go; false: it called it off, or is no more. */
bool standby_wait_for_go(const struct standby *s);

/* It is over: from here on this is the daemon. */
void standby_end(struct standby *s);

#endif
