/*
 * Internal snapshots: what a node keeps of its content as it was, inside of its own storage. Main
 * thread, from open to close.
 *
 * A change (create, delete, apply) runs on the reactors of the node while the device serves.
 * Requests that the change must not meet wait for it; none fails because of it. One change at a
 * time. The device's queues stay open until its end: who begins one keeps the device from closing.
 */
#ifndef STORAGE_SNAPSHOT_H
#define STORAGE_SNAPSHOT_H

#include "storage/backend.h"

#define BACKEND_SNAPSHOT_NAME_BYTES 256

struct backend_snapshot {
	char id[BACKEND_SNAPSHOT_NAME_BYTES], name[BACKEND_SNAPSHOT_NAME_BYTES];
	uint64_t size_bytes;	 /* of the disk then */
	uint64_t vm_state_bytes; /* of a virtual machine, beside the disk */
	uint32_t sec, nsec;	 /* since 1970 */
};

enum backend_snapshot_op {
	BACKEND_SNAPSHOT_CREATE,
	BACKEND_SNAPSHOT_DELETE,
	/* The content becomes the snapshot's; what was written since is gone. */
	BACKEND_SNAPSHOT_APPLY,
};

/* The owner's, from begin to done. */
struct backend_snapshot_change {
	enum backend_snapshot_op op;
	const char *name;	 /* of a new one; else its ID or its name */
	struct reactor *reactor; /* the control reactor */
	/* From a turn of it, never from inside of begin. ret: 0, or -errno with words. */
	void (*done)(struct backend_snapshot_change *change, int ret);
	/* Out, while it runs: how much of it is done; relaxed loads. */
	uint32_t done_permille;
	char words[BACKEND_ERROR_BYTES];
};

/* Of a node whose ops have it: struct backend's snapshots. */
struct backend_snapshots {
	unsigned (*nr)(const struct backend_device *device);
	/* idx below nr. */
	void (*get)(const struct backend_device *device, unsigned idx,
		    struct backend_snapshot *ret_snapshot);
	/*
	 * Returns 0, and done follows; or -errno with words, and nothing has changed: -EBUSY (one
	 * is under way, or no queue is open), -EEXIST, -ENOENT, -EINVAL (no name), -EROFS,
	 * -EOPNOTSUPP, -ENOMEM.
	 */
	int (*begin)(struct backend_device *device, struct backend_snapshot_change *change);
};

/*
 * The topmost node of a tree that has snapshots; with a path ("disk/backends/1", as in names of
 * nodes) the node of that name. NULL, with words: there is none, or several stand side by side.
 */
struct backend_device *backend_snapshots_node(struct backend_device *top, const char *path,
					      char *words, size_t words_bytes);

/*
 * What stands above such a node. To create a snapshot freezes the bytes of the node, to apply one
 * makes them others, behind the back of each node above: one that keeps some of them (a cache), or
 * something that fits them (tables, write pointers, checksums), has a state of its own, and would
 * serve what is wrong from then on. So each node with children says what the two are to it: struct
 * backend's `above`. One that says nothing is taken for one with a state. A cache stands
 * aside meanwhile (cache_control.h).
 *
 * Main thread, while queues serve. child: the child of device in which the snapshots are, or below
 * which (of a node that shares a tree: the top of that). Why it must not be done, with the cure:
 * static words that follow on "the node above, NAME,"; NULL: it may. The answer holds until the
 * device is closed.
 */
typedef const char *backend_above_fn(const struct backend_device *device,
				     const struct backend_device *child);

struct backend_above {
	/* NULL: it may always. What was flushed at this node must be in the snapshot. */
	backend_above_fn *create;
	/* The same. What is read at this node afterwards must be the snapshot's. */
	backend_above_fn *apply;
};

/* Of a node that keeps nothing of what passes through it, and nothing about it. */
extern const struct backend_above backend_above_passes;

/*
 * Asks all nodes from top down to node, which is in its tree, the lowest first. Returns 0, or
 * -EOPNOTSUPP with the words of the first that refuses. Main thread, from open to close. To delete
 * one changes no byte: nobody is asked.
 */
int backend_above_ask(struct backend_device *top, const struct backend_device *node,
		      enum backend_snapshot_op op, char *words, size_t words_bytes);

#endif
