/*
 * A FLUSH that failed is owed to those above: docs/durability.md. What was acknowledged since the
 * last good FLUSH of a node counts as not written from the moment when a FLUSH of it fails, or when
 * it finds out by itself that writes may be lost (its server was restarted). Two rules follow.
 *
 * The first is kept here, for all nodes: the next FLUSH from above fails, whoever issued the one
 * that failed. Each node has a count of its losses and of how many of them a failed FLUSH has told;
 * io.c compares them around every FLUSH, of a device and between nodes. What a node has below
 * counts as its own, but for a child that has copies alone (has_copies).
 *
 * The second is each node's with bytes of its own (tables, an index, pointers): nothing that it
 * wrote since the last good FLUSH may be called clean, named, committed or freed because a later
 * FLUSH succeeds. It compares backend_losses of what is below before it wrote with those after its
 * FLUSH.
 *
 * The counts stand in a file when the opener gives one (struct backend_open_params), so that they
 * outlive the process: a loss that no good FLUSH has followed is owed again then, to the user. The
 * nodes ask for it when they open (backend_was_owed), and their own FLUSHes do not hear of it
 * again.
 */
#ifndef STORAGE_OWED_H
#define STORAGE_OWED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "storage/child.h"

struct backend_device; /* has_copies: all that it has others have, too: what it loses is no loss */
struct backend_io;

/* Of one node. Any thread. Kept over a process, without a version: its layout is for ever. */
struct backend_owed {
	_Atomic uint32_t losses; /* FLUSHes that failed, and losses found otherwise */
	_Atomic uint32_t told;	 /* of this node and below: so many a failed FLUSH has said */
	/* The same when a FLUSH succeeded last: what came since is owed again by the next process.
	 */
	_Atomic uint32_t settled;
	/*
	 * net/flush.h's count: above 0, but for NET_FLUSH_SEVERAL, its server has acknowledged
	 * writes that no good FLUSH has covered. A version that did not count them left 0 here.
	 */
	_Atomic uint32_t unflushed;
};

/* What is kept: those of a tree, by node_idx. */
#define BACKEND_OWED_BYTES (BACKEND_NODES_MAX * sizeof(struct backend_owed))

/*
 * Any thread: writes to this node that were acknowledged may be lost. A node whose own bytes read
 * otherwise from then on says it before they do, where it can.
 */
void backend_owe(const struct backend_device *device);

/*
 * Any thread: changes with each loss of any node of the process. While it is what it was, no
 * backend_losses has changed: cheap enough for each READ.
 */
extern _Atomic uint32_t backend_losses_nr;
static inline uint32_t backend_losses_anywhere(void)
{
	return atomic_load_explicit(&backend_losses_nr, memory_order_acquire);
}

/*
 * Any thread: how often writes to this node, or to one below it, may have been lost since it was
 * opened. Only grows.
 */
uint32_t backend_losses(const struct backend_device *device);

/* Any thread: a failed FLUSH has still to be told. */
bool backend_is_owed(const struct backend_device *device);

/*
 * Any thread, for the node above, which has seen by backend_losses what its child has lost, and has
 * done what there is to do: its FLUSHes of the child that begin after this fail for later losses
 * alone. What it owes itself stays as it is.
 */
void backend_owed_take(const struct backend_device *child, uint32_t losses);

/* Any thread: a good FLUSH of it has followed, since backend_losses has said this. */
bool backend_is_settled(const struct backend_device *device, uint32_t losses);

/* From open on: when it was opened, a loss was owed of the process before, by it or one below. */
bool backend_was_owed(const struct backend_device *device);

/*
 * tree.c: maps what is kept in a file; NULL: it cannot (errno says). From begin on the node's
 * counts are there (kept NULL: in the node), as the process before has left them, if any. Open: its
 * children are open, and it is about to be; and when it is, before the node above is.
 */
struct backend_owed *backend_owed_map(int fd);
void backend_owed_unmap(struct backend_owed *kept); /* accepts NULL */
void backend_owed_begin(struct backend_device *device, struct backend_owed *kept);
void backend_owed_open(struct backend_device *device);

/* io.c: around a FLUSH. Judge: what it may answer, of what the node has. */
void backend_owed_flush_begin(struct backend_io *io);
int backend_owed_flush_judge(struct backend_io *io, int result);

#endif
