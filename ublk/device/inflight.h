/*
 * What every tag of a device does right now, looked at from the main thread without asking the
 * reactors: it works when one of them is stuck. A look, not a snapshot: the reactors go on.
 */
#ifndef UBLK_DEVICE_INFLIGHT_H
#define UBLK_DEVICE_INFLIGHT_H

#include "storage/metadata.h"
#include "storage/zones.h"
#include "ublk/device/device.h"

/* As enum tag_state. */
enum inflight_state {
	INFLIGHT_DOWN,
	INFLIGHT_ARMED,
	INFLIGHT_SERVING, /* the backend has it */
	INFLIGHT_BUSY,	  /* the backend did not take it yet */
	INFLIGHT_DONE,	  /* to be handed back at the end of the turn */
	INFLIGHT_STATE_NR,
};

const char *inflight_state_name(enum inflight_state state);

struct inflight_queue {
	uint16_t depth;
	unsigned reactor;
	unsigned tags[INFLIGHT_STATE_NR]; /* how many are in each state */
};

struct inflight_io {
	uint16_t queue, tag;
	enum inflight_state state; /* SERVING, BUSY or DONE */
	uint8_t op;		   /* enum backend_op */
	uint64_t sector;
	uint32_t bytes;
	uint64_t start_ns;		   /* fetched, by ring_clock_ns */
	const struct backend_device *node; /* where in the tree it waits; NULL: in none */
	struct backend_wait wait;	   /* with node: what for */
};

/*
 * Main thread. False: the queue has no tags now, as the device is on its way up or down. Calls fn
 * for each I/O, in the order of tags.
 */
bool device_inflight(const struct device *device, unsigned queue, struct inflight_queue *ret_queue,
		     void (*fn)(const struct inflight_io *io, void *arg), void *arg);

/*
 * Main thread. A connection of a queue's backend; false: there is none of that index, or the device
 * is on its way up or down.
 */
bool device_connection(const struct device *device, unsigned queue, unsigned idx,
		       struct net_connection_look *ret_connection);

/* Each of them, in the order of queues: what follows is done with idx of queue in *connection. */
#define DEVICE_FOR_EACH_CONNECTION(device, queue, idx, connection)                                 \
	for (unsigned queue = 0; device_connection(device, queue, 0, connection); queue++)         \
		for (unsigned idx = 0; device_connection(device, queue, idx, connection); idx++)

/*
 * Main thread. An image among the backends (storage/look.h); false: there is none of that index, or
 * the device is on its way up or down.
 */
bool device_image(const struct device *device, unsigned idx, struct backend_image_look *ret_look);

/* Of its zones; false: it has none, or no queue. */
bool device_zones(const struct device *device, struct backend_zones_look *ret_look);

/* The same of the metadata that it keeps. */
bool device_integrity(const struct device *device, struct backend_integrity_look *ret_look);

/* The same of a cache. */
bool device_cache(const struct device *device, unsigned idx, struct backend_cache_look *ret_look);

/*
 * Main thread. Whether an op in flight on this reactor, given by its user_data, is this device's:
 * sure for a command to the driver; for a backend's I/O it says that it can be.
 */
bool device_owns_op(const struct device *device, const struct reactor *reactor, uint64_t user_data);

#endif
