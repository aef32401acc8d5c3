/*
 * A client that waits for the end of what it began at one device: resize, snapshot, cache, share.
 * Main thread.
 *
 *   device_wait_new -> the device begins -> device_wait_begin -> ended, or the timer's answer
 *                  \-> it refuses        -> device_wait_drop
 *
 * The wait is freed with the answer, or when the client disconnects; the device goes on.
 */
#ifndef DAEMON_API_DEVICE_WAIT_H
#define DAEMON_API_DEVICE_WAIT_H

#include <stdbool.h>

#include "daemon/api/commands_internal.h"

struct device_wait;

/* Of one command; constant. Where nothing else is said a function is never NULL. */
struct device_wait_kind {
	/* device_set_watch_*: where the end is told. */
	void (*watch)(struct member *m, struct device_set_watch *watch);
	/* Answers the client; words: as of device_set_watch.fn. */
	void (*ended)(struct device_wait *w, enum device_set_outcome outcome, const char *words);
	/* Every timer_seconds. Returns whether it has answered the client, which ends the wait. */
	bool (*timer)(struct device_wait *w);
	double timer_seconds; /* 0: answer_seconds, how long clients are let wait */
	/* The client has disconnected. May be NULL. */
	void (*left)(struct device_wait *w);
};

struct device_wait {
	struct commands_pending pending;
	const struct device_wait_kind *kind;
	struct commands *commands;
	struct socket_client *client;
	struct member *member;
	struct device_set_watch watch;
	struct ev_timer timer;
};

/* NULL: out of memory, and the client has its answer. */
struct device_wait *device_wait_new(struct commands *c, struct socket_client *client,
				    struct member *m, const struct device_wait_kind *kind);

/* Something is under way: from here on the wait is its own. */
void device_wait_begin(struct device_wait *w);

/* Instead: nothing is; the client has its answer. */
void device_wait_drop(struct device_wait *w);

#endif
