/* Between the sources of the commands only. Main thread. */
#ifndef DAEMON_API_COMMANDS_INTERNAL_H
#define DAEMON_API_COMMANDS_INTERNAL_H

#include <jansson.h>

#include "daemon/api/commands.h"
#include "daemon/socket/answer.h"

/* The device that the request names; NULL: there is none, and the client has its answer. */
struct member *commands_named(struct commands *c, struct socket_client *client,
			      const json_t *request);

/*
 * Calls fn for the device that the request names, or for each when it names none. Returns an array
 * of what fn returned; NULL: there is no such device, and the client has its answer.
 */
json_t *commands_for_each(struct commands *c, struct socket_client *client, const json_t *request,
			  json_t *(*fn)(const struct member *m, const void *arg), const void *arg);

/* commands_wait.c: both answer when the devices have come or gone. */
void commands_add(struct commands *c, struct socket_client *client, const json_t *request);
void commands_del(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_change.c: throttle answers at once, resize when the device has its new size. */
void commands_throttle(struct commands *c, struct socket_client *client, const json_t *request);
void commands_resize(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_snapshot.c: list answers at once, the others when it is done. */
void commands_snapshot(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_cache.c: stats answers at once, the others when it is done. */
void commands_cache(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_shmem.c: both answer when it is done. */
void commands_share(struct commands *c, struct socket_client *client, const json_t *request);
void commands_unshare(struct commands *c, struct socket_client *client, const json_t *request);

/* commands_histogram.c: all answer at once. */
void commands_histogram_get(struct commands *c, struct socket_client *client,
			    const json_t *request);
void commands_histogram_set(struct commands *c, struct socket_client *client,
			    const json_t *request);
void commands_histogram_reset(struct commands *c, struct socket_client *client,
			      const json_t *request);
void commands_blockstats(struct commands *c, struct socket_client *client, const json_t *request);

/*
 * {"device","qdev","stats"} as QEMU's query-blockstats has them, for its scripts. layer: an enum
 * queue_layer, which the histograms are of. A new reference, or NULL.
 */
json_t *json_blockstats(const struct member *m, const void *layer);

/* commands_gc.c: answers when the driver has answered. */
void commands_gc(struct commands *c, struct socket_client *client, const json_t *request);

/* What client->request points at: the first member of what waits to answer the client. cancel
 * forgets the client. */
struct commands_pending {
	void (*cancel)(struct commands_pending *pending);
};

/* The client has disconnected: its wait ends, the devices continue. */
void commands_cancel(struct socket_client *client);

#endif
