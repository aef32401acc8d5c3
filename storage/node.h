/*
 * What a node with children does with them: forward, cut into pieces, issue requests of its own.
 * Reactor thread, from queue_init to queue_fini, where nothing else is said.
 *
 * A child's I/O, io->child[idx], belongs to one request at a time: it is whole or a piece of io, or
 * of a request of the node's own, until its DONE or child_done.
 */
#ifndef STORAGE_NODE_H
#define STORAGE_NODE_H

#include "storage/backend.h"

/* Of filters: one child, below the key "backend". */
extern const struct backend_child_option backend_one_child[];

/*
 * A request of a node's own: one I/O at each child, with a buffer. From backend_own_take until
 * backend_own_release it is the node's.
 */
struct backend_own {
	struct backend_queue *queue; /* of the node */
	struct backend_io *child;    /* an array, one for each child */
	void *buf;		     /* ops->own_bytes, aligned to a page; NULL: none declared */
	struct list_node free;	     /* io.c */
	/* backend_own_submit's. */
	struct backend_io *under_way; /* NULL: none; may be read */
	void (*done)(struct backend_own *own, int result);
	struct task task;
};

/*
 * From submit: passes the I/O to the child as it is and completes it with the child's result.
 * Answers DONE or QUEUED for submit to return: what the child is too busy for waits in io.c.
 */
enum backend_submit backend_forward(struct backend_io *io);

/* The same for an I/O that submit has answered with QUEUED; may complete it before it returns. */
void backend_forward_queued(struct backend_io *io);

/* Cancels an I/O that was forwarded: the `cancel` of a filter that keeps none for itself. */
void backend_forward_cancel(struct backend_io *io);

/* As backend_forward, to the child with this index and to another offset there. */
enum backend_submit backend_forward_to(struct backend_io *io, unsigned child_idx,
				       uint64_t offset_bytes);

/*
 * Makes a child's I/O a piece of io: the same operation on length_bytes from offset_bytes of the
 * child on. For READ and WRITE its bytes are those of io from at_bytes on, wherever they are.
 */
void backend_piece(struct backend_io *child, const struct backend_io *io, uint32_t at_bytes,
		   uint32_t length_bytes, uint64_t offset_bytes);

/*
 * Submits a child's I/O, a piece or one of the node's own. DONE: child->result is set. QUEUED:
 * child_done follows; what the child is too busy for waits in io.c. Never BUSY.
 */
enum backend_submit backend_child_submit(struct backend_io *child);

/*
 * Asks it to end soon, wherever it is; false: it is not under way. child_done may come before this
 * returns.
 */
bool backend_child_cancel(struct backend_io *child);

/*
 * A request of the node's own, of the ops->own_nr that the queue has; NULL: all are under way. Its
 * I/Os have no buffer until the node sets one (own->buf or another), and parent is NULL. Reactor
 * thread.
 */
struct backend_own *backend_own_take(struct backend_queue *queue);
void backend_own_release(struct backend_own *own);

/* Whether a node above it is an image format: struct backend's is_image_format. Any thread. */
bool backend_is_in_image(const struct backend_device *device);
/* ... whose bytes lie here: it is not what a node between them keeps for itself, as a cache does.
 */
bool backend_holds_image(const struct backend_device *device);

/* The request to which a child's I/O belongs whose parent is NULL. */
struct backend_own *backend_own_of(const struct backend_io *child);

/*
 * For nodes that use one child of such a request at a time: submits the I/O of that child, on bytes
 * from offset_bytes on; buf NULL: in own->buf. done is called once, from a turn or from child_done,
 * never from inside. The node's child_done calls backend_own_ended for I/Os without a parent.
 */
void backend_own_submit(struct backend_own *own, unsigned child_idx, enum backend_op op,
			uint64_t offset_bytes, void *buf, uint32_t bytes,
			void (*done)(struct backend_own *own, int result));
void backend_own_ended(struct backend_io *child);
/* Asks what it has submitted to end soon; harmless when there is nothing. */
void backend_own_cancel(struct backend_own *own);

/*
 * For who has a queue without being a node over it: submits an I/O, or lets it wait while the queue
 * is BUSY (io->waiting is an empty list before the first time). Never BUSY.
 */
enum backend_submit backend_submit_or_wait(struct backend_io *io);
/* From the `done` of such an I/O: those that wait are submitted again. */
void backend_retry_waiting(struct backend_queue *queue);

/*
 * Joins the limits of a second child into those of the first, for a node that uses both alike: the
 * larger blocks, the smaller size, what both can. The children of a node are joined so before its
 * open; of one that is only read (struct backend_child_option) all but what it can do.
 */
void backend_limits_join(struct backend_limits *limits, const struct backend_limits *other);

#endif
