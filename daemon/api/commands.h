/*
 * The requests of the control socket: JSON in, JSON out, the device set in between. ublkctl(1)
 * describes them. Main thread.
 *
 *   {"command":"list"}                         {"ok":true,"data":...}
 *   {"command":"del","name":"x","force":true}  {"ok":false,"error":"...","errors":[...]}
 */
#ifndef DAEMON_API_COMMANDS_H
#define DAEMON_API_COMMANDS_H

#include "daemon/devices/device_set.h"
#include "daemon/runtime/reactors.h"
#include "daemon/socket/socket.h"
#include "daemon/handover/upgrade.h"
#include "daemon/devices/watchdog.h"

struct commands {
	struct ev_loop *ev;
	struct device_set *device_set;
	struct reactors *reactors;
	struct reactor *control;
	struct upgrade *upgrade; /* NULL: there is none */
	const struct watchdog *watchdog;
	const struct daemon_settings *settings; /* in force; NULL: none */
	const char *config_path;		/* where they are from */
	/* Timeout of the answer to add, del and resize; the device continues afterwards. */
	double answer_seconds;
};

/* Makes the server's requests go to c. */
void commands_attach(struct commands *c, struct socket_server *server);

#endif
