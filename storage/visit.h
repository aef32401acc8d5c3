/*
 * The part of opening, closing or growing a node that waits for somebody: a peer over the network,
 * or a child whose header or table the node reads. It runs on the control reactor, which never
 * blocks, as a state machine of the node's own (ops->open_async and its like), and ends with
 * backend_visit_done. What may block instead (open(2), files with keys, names of hosts) is a
 * helper's: ops->open.
 *
 *	open_async: backend_visit_io(read the header) -> fn: looks at it, perhaps reads more
 *	            -> backend_visit_done(visit, 0)
 *
 * The core (visit.c) makes the queues of the children that it takes, on the control reactor, sets
 * the deadline and, when that has passed, cancels what is under way and says in words what the node
 * waited for.
 */
#ifndef STORAGE_VISIT_H
#define STORAGE_VISIT_H

#include "storage/backend.h"

/* Requests to children under way at a time, of one visit. */
#define BACKEND_VISIT_IO_NR 8u
/* How long a visit may take where the node says nothing. */
#define BACKEND_VISIT_NS 30000000000ull
/* The node has a deadline of its own. */
#define BACKEND_VISIT_OWN_DEADLINE UINT64_MAX

struct backend_visit;

/*
 * result: 0 or -errno; -ECANCELED: the part is to end. From a turn, never from inside of
 * backend_visit_io.
 */
typedef void backend_visit_fn(struct backend_visit *visit, int result);

/* Control thread. One for each part; gone after backend_visit_done. */
struct backend_visit {
	struct backend_device *device;
	struct reactor *reactor; /* the control reactor */
	struct helpers
		*helpers; /* for what may block; NULL: there are none, it has to be done here */
	const struct backend_home
		*home;	     /* these two and more: life.h; for walks of the node's own */
	uint64_t size_bytes; /* grow_async: the new size of the device */
	/*
	 * The node's to set, while the part runs: what it waits for, as in "reading the header";
	 * static, or as long as the visit. NULL: what the core knows.
	 */
	const char *doing;
	/*
	 * The node's to set before the end: a failure is not that somebody who was waited for did
	 * not answer as he should (struct backend_life_end).
	 */
	bool has_answer;
	/* The node's to set before the first call of the part returns; 0: BACKEND_VISIT_NS. */
	uint64_t timeout_ns;
	/*
	 * Of a node with a deadline of its own: when that ends the part, by ring_clock_ns, so that
	 * nobody gives up just before its words come. 0: it does not say.
	 */
	uint64_t ends_ns;
	/*
	 * The node's to set: says in more words than `doing` what it waits for now, in buf or in
	 * static words. Control thread, while the part runs. NULL: there is no more to say.
	 */
	const char *(*waits_for)(const struct backend_visit *visit, char *buf, size_t bytes);
};

/*
 * A READ, WRITE, FLUSH or another request to the child with this index; buf (READ, WRITE) is
 * memory, aligned to a page, and stays the visit's until fn. The child's rules hold: whole blocks
 * of open_params.logical_block_bytes, max_io_bytes. Returns 0, fn follows; -EAGAIN:
 * BACKEND_VISIT_IO_NR are under way; -ECANCELED: the part is to end; or the -errno of the child's
 * queue.
 */
int backend_visit_io(struct backend_visit *visit, unsigned child_idx, enum backend_op op,
		     uint64_t offset_bytes, void *buf, uint32_t length_bytes, backend_visit_fn *fn);

/*
 * The part has ended, with 0 or -errno (with device->error set, as for ops->open). Also from inside
 * the first call. Once. Requests that are still under way are cancelled, and their fn is not called
 * any more; their memory is the node's again when the next function of it is called.
 */
void backend_visit_done(struct backend_visit *visit, int ret);

#endif
