/*
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

#endif
