/* What stands where in a tree: the children that a node has, and a tree as it is configured. */
#ifndef STORAGE_CHILD_H
#define STORAGE_CHILD_H

#include <stdbool.h>

#include "config/option.h"

struct backend;
struct backend_device;

/* Nodes above each other, the leaf counted too; nodes and leaves of one tree. */
#define BACKEND_DEPTH_MAX 64
#define BACKEND_NODES_MAX 256
#define BACKEND_LEAVES_MAX 128
#define BACKEND_CHILDREN_MAX 32
/* Nodes of one tree whose content may outlive the process: backend_stored_fd. */
#define BACKEND_STORED_MAX BACKEND_NODES_MAX
/*
 * Memory for requests of all queues, of the nodes that others have found by themselves: the worst
 * case, beyond what the configuration asks for.
 */
#define BACKEND_FOUND_BYTES_MAX (1ull << 30)
/* Rows of one backend's table of children. */
#define BACKEND_CHILD_OPTIONS_MAX 4

/* The children that a node has under one key of its configuration. */
struct backend_child_option {
	const char *name;	 /* "backend", "backends", "data" */
	unsigned nr_min, nr_max; /* nr_max above 1: a list */
	bool read_only;		 /* what stands here is only read, whatever the device is */
	/*
	 * READs and WRITEs that this child cannot do as they are (enum backend_data) the node gives
	 * it with bytes in memory of its own: what it can do does not count for the tree.
	 */
	bool in_memory;
	/* The node keeps something of its own here, and writes it, whatever the device is. */
	bool is_own;
	/*
	 * The node's requests there begin and end at any byte, whatever the device's block, and
	 * what was never written reads as zeroes. The backend is one of those that can (struct
	 * backend's is_bytewise).
	 */
	bool is_bytewise;
	/*
	 * Words that may stand there in the place of a backend, for the node to make sense of
	 * (backend_spec_word); NULL at the end. NULL: none. Not of a list.
	 */
	const char *const *words;
	const char *help;
};

/* What to open: a node and what is below it. */
struct backend_spec {
	const struct backend *ops;
	const void *config; /* filled by ops->options; lives as long as the device */
	/*
	 * How many specs have it, any thread's; the last frees it. NULL: it is somebody else's, who
	 * outlives the spec and its copies.
	 */
	unsigned *config_refs;
	const struct backend_spec *child;   /* the first; NULL: a leaf */
	const struct backend_spec *sibling; /* the next child of the same parent */
	/* As which child of its parent; NULL: the root, or "backend". In a list: at which index. */
	const struct backend_child_option *as;
	unsigned as_idx;
	/* Of each row of ops->children, the word that stands there; NULL: none does. */
	const char *word[BACKEND_CHILD_OPTIONS_MAX];
	/* Of a leaf's path_option, or URI, in the configuration: for messages. */
	struct config_pos path_pos;
};

/*
 * Main thread, from open to close: struct backend's stored_fd of the node with this index,
 * borrowed; -1: nothing of it is lost with the process. All leaves have an index, and the nodes
 * that have this operation: in the order of the configuration, a node before what is below it. The
 * next process numbers them in the same way.
 */
int backend_stored_fd(const struct backend_device *top, unsigned idx);
/* How many have an index; at most BACKEND_STORED_MAX. */
unsigned backend_stored_nr(const struct backend_device *top);

#endif
