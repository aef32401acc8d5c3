/*
 * A block device, and all that stands on it: its partitions, what the kernel has built over them
 * (device-mapper, md, bcache and all others that /sys calls holders), loop devices over them or
 * over a file on them, and so on upwards. By device numbers, never by the names of nodes.
 */
#ifndef HOST_BLOCK_TREE_H
#define HOST_BLOCK_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "host/mounts.h"

enum block_node_kind {
	BLOCK_NODE_ROOT,
	BLOCK_NODE_PARTITION, /* there as long as the disk is: nobody's use of it */
	BLOCK_NODE_HOLDER,
	BLOCK_NODE_LOOP,
};

struct block_node {
	dev_t dev;
	enum block_node_kind kind;
	char name[32];	/* as in /sys/class/block: "dm-0" */
	char title[64]; /* of a device-mapper device: its name; else "" */
};

struct block_tree {
	struct block_node *nodes; /* roots first */
	size_t nr, max;
	/* A loop device that does not say what it stands on, so that it may belong here; "": none.
	 */
	char unknown_loop[32];
};

/* An empty one. */
void block_tree_init(struct block_tree *tree);
void block_tree_fini(struct block_tree *tree);

/* Adds a disk as a root ("ublkb0"). 0 (also when there is no such disk), or -ENOMEM. */
int block_tree_add_root(struct block_tree *tree, const char *name);

/* Finds what stands on the roots. 0, or -errno: the tree is not complete. Blocks. */
int block_tree_grow(struct block_tree *tree);

/* NULL: it does not belong to the tree. */
const struct block_node *block_tree_find(const struct block_tree *tree, dev_t dev);

/*
 * The node that a mounted file system lies on; NULL: none of the tree. view: where the mount's own
 * process sees paths, "/proc/7/root"; "": here.
 */
const struct block_node *block_tree_of_mount(const struct block_tree *tree,
					     const struct mount_info *mount, const char *view);

#endif
