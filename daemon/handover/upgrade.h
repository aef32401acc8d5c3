/*
 * The old program's side of an upgrade: docs/recovery.md. Main thread. The new one's: successor.h.
 */
#ifndef DAEMON_HANDOVER_UPGRADE_H
#define DAEMON_HANDOVER_UPGRADE_H

#include <ev.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/devices/device_set.h"
#include "daemon/fdstore/fd_store.h"
#include "daemon/runtime/reactors.h"
#include "daemon/socket/socket.h"

enum upgrade_phase {
	UPGRADE_NONE,
	UPGRADE_PREPARING, /* the new program has been started */
	UPGRADE_QUIESCING, /* it is ready; our devices come to rest */
	UPGRADE_HANDED,	   /* our devices are the driver's; it adopts them */
};

struct upgrade {
	/* the daemon's, set before the first upgrade_begin */
	struct ev_loop *ev;
	struct device_set *device_set;
	struct reactors *reactors;
	struct fd_store *fd_store;
	struct socket_server *server;
	int lock_fd;
	char **argv;
	const char *program; /* our own path, as it was when we started */
	/* The reactors are no more: ends what looks at them, and what the new program needs. */
	void (*release)(void *arg);
	void *arg;

	enum upgrade_phase phase;
	struct socket_client *client; /* who asked; NULL: went away */
	pid_t pid;
	int socket;
	struct ev_io readable;
	struct ev_timer deadline, look;
	uint64_t quiesce_ns; /* when the pause began */
	uint64_t stalled_ns; /* GATING: when those at rest are opened for the others */
	char version[64];    /* of the new program */
	bool end_wanted;     /* SIGTERM came too late for us: it is the new program's */
	bool reload_wanted;  /* SIGHUP came meanwhile: the program that serves afterwards gets it */
};

/*
 * Begins. path: of the new program; NULL: that of ours. Returns NULL, and the client is answered
 * later; or why not, in words. When it succeeds this process ends.
 */
const char *upgrade_begin(struct upgrade *u, struct socket_client *client, const char *path);

/* The client goes away: the upgrade goes on. */
void upgrade_forget(struct upgrade *u, const struct socket_client *client);

/*
 * The daemon is to end. Calls the upgrade off and returns true; false: the devices are not ours any
 * more, and the new program ends in our place.
 */
bool upgrade_call_off(struct upgrade *u);

/* The daemon is to read its configuration again. True: somebody will, later; false: no upgrade. */
bool upgrade_defer_reload(struct upgrade *u);

#endif
