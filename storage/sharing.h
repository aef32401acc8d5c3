/*
 * What several devices have: a tree that they share by a node, or one storage, each by a tree of
 * its own.
 *
 * A node over a tree that several devices share. To the device it is a leaf: the tree below it is
 * opened once, by itself, for all of them, and has one queue, on a reactor of its own choice. In
 * the configuration it stands there as any other child does, in each of the devices.
 *
 * Who looks at a tree from outside (its caches, its connections) goes on through it, by what is
 * here.
 */
#ifndef STORAGE_SHARING_H
#define STORAGE_SHARING_H

#include "storage/backend.h"

/* Of such a node: struct backend's shared. */
struct backend_shared_ops {
	/* The tree that is shared. Main thread, from open to close. */
	struct backend_device *(*device)(const struct backend_device *device);
	/* The queue of it. Main thread, between queue_init and queue_fini of that of the node. */
	const struct backend_queue *(*queue)(const struct backend_queue *queue);
	/*
	 * The request there that this one waits for; NULL: none. Main thread, while reactors go on,
	 * as struct backend's wait.
	 */
	const struct backend_io *(*io)(const struct backend_io *io);
	/*
	 * Whether it is the one of those that share the tree to count what it does: of each tree
	 * one is. Main thread, from open to close.
	 */
	bool (*counts)(const struct backend_device *device);
	/* What is shared under this name: of two configurations it must be the same. */
	const char *(*name)(const void *config);
};

/* What stands below a node, of its own or shared: the first child. Main thread, from open to close.
 */
static inline struct backend_device *backend_below(const struct backend_device *device)
{
	return device->ops->shared ? device->ops->shared->device(device) : device->child;
}

/*
 * Any thread. The node of a that shares a tree under a name that b has too, or only_another: but
 * not the same tree; of several the first. NULL: there is none.
 */
const struct backend_spec *backend_spec_shares(const struct backend_spec *a,
					       const struct backend_spec *b, bool only_another);

/* ---- one storage in several devices ---- */

/*
 * Without such a node devices are kept from each other's storage where nothing else does it: files
 * are locked, an s3-disk has a lease; two devices on one NBD export, NVMe namespace or RBD image
 * would not hear of each other. A leaf claims its storage while it is open (struct backend's
 * places).
 *
 * Two devices may have one storage when both only read it, or when it is to both what it is to two
 * hosts: bytes and no more. They may not when one writes and
 *
 *   - a node above it in one of them keeps something of those bytes or about them, as a cache or an
 *     image does (struct backend's alone_below), or
 *   - one of them is being stopped, or was to be and has stayed: who starts the other takes it for
 *     gone.
 *
 * Any thread.
 */

/* All there are in this process: only for a simulator, which ends it without closing anything. */
extern struct list_node backend_claims;

/* Of a leaf by its identity: for struct backend's places. */
unsigned backend_places_by_identity(const struct backend_device *leaf,
				    uint64_t ret_places[static BACKEND_PLACES_MAX]);

/*
 * tree.c: of each device that has just been opened, and before it is closed. 0, also when it claims
 * nothing; -EBUSY with device->error set: another one has its storage, which the words name; or
 * -ENOMEM.
 */
int backend_claim(struct backend_device *device);
void backend_unclaim(struct backend_device *device);

/*
 * From open to close: all that this tree writes is its own from now on (it is being stopped), or is
 * so no longer. Not what it shares with other devices. Accepts NULL.
 */
void backend_claim_alone(const struct backend_device *top, bool alone);

#endif
