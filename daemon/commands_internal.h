/* Between commands.c, commands_wait.c and commands_throttle.c only. Main thread. */
#ifndef DAEMON_COMMANDS_INTERNAL_H
#define DAEMON_COMMANDS_INTERNAL_H

#include <jansson.h>

#include "daemon/commands.h"

/* {"ok":true,"data":...}; data is taken, NULL: out of memory, the client is dropped. */
void commands_answer(struct socket_client *client, json_t *data);

/* {"ok":false,"error":...,"errors":[...]}; errors is taken and may be NULL. */
void commands_refuse(struct socket_client *client, const char *error, json_t *errors);

/* The same with the lines of e. */
void commands_refuse_errors(struct socket_client *client, const char *error,
			    struct config_errors *e);

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
