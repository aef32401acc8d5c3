/* Between commands.c, commands_wait.c and commands_throttle.c only. Main thread. */
#ifndef DAEMON_API_COMMANDS_INTERNAL_H
#define DAEMON_API_COMMANDS_INTERNAL_H

#include <jansson.h>

#include "daemon/api/commands.h"
#include "daemon/socket/answer.h"

/* The device that the request names; NULL: there is none, and the client was told. */
struct member *commands_named(struct commands *c, struct socket_client *client,
			      const json_t *request);

void commands_add(struct commands *c, struct socket_client *client, const json_t *request);
void commands_del(struct commands *c, struct socket_client *client, const json_t *request);

void commands_throttle(struct commands *c, struct socket_client *client, const json_t *request);
/* commands_histogram.c: all answer at once. */
void commands_histogram_get(struct commands *c, struct socket_client *client,
			    const json_t *request);
void commands_histogram_set(struct commands *c, struct socket_client *client,
			    const json_t *request);
void commands_histogram_reset(struct commands *c, struct socket_client *client,
			      const json_t *request);
void commands_blockstats(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_resize.c: answers when the device has its new size. */
void commands_resize(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_gc.c: answers when the driver has answered. */
void commands_gc(struct commands *c, struct socket_client *client, const json_t *request);

/*
 * What client->request points at, first in whatever waits to answer it: how to forget the client,
 * which goes away.
 */
struct commands_pending {
	void (*cancel)(struct commands_pending *pending);
};

/* The client goes away: nobody waits any more, the devices go on. */
void commands_cancel(struct socket_client *client);

#endif
