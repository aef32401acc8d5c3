/*
 * What can be asked of a cache while it serves: to fetch a range ahead, to forget what it has, to
 * stand aside.
 * Main thread, from open to close, where nothing else is said.
 *
 * A job runs on the reactor of the node's queue, beside requests, which go first. One job of a node
 * at a time. The device's queues stay open until its end: who begins one keeps the device from
 * closing.
 */
#ifndef STORAGE_CACHE_CONTROL_H
#define STORAGE_CACHE_CONTROL_H

#include "storage/backend.h"

enum backend_cache_op {
	/*
	 * Fetches what of the range is not here. No block is given up for it: it ends when no
	 * further one has room.
	 */
	BACKEND_CACHE_WARM,
	/*
	 * Forgets all that the child has too, durably: a read that begins after the end asks the
	 * child. What only the cache has stays.
	 */
	BACKEND_CACHE_DROP,
	/*
	 * A snapshot of what is below is about to be created: the child gets all that only the
	 * cache has, durably, and from before the end of that until BACK all that is written. What
	 * it has at any moment between is what a read would have found.
	 */
	BACKEND_CACHE_YIELD,
	/*
	 * One is about to be applied: the same, and the cache forgets all, durably, and keeps
	 * nothing until BACK.
	 */
	BACKEND_CACHE_EMPTY,
	/* After one of the two that went well: as before. It does not fail while a queue is open.
	 */
	BACKEND_CACHE_BACK,
};

/* The owner's, from begin to done. */
struct backend_cache_job {
	enum backend_cache_op op;
	/* WARM: of the node. length_bytes 0: up to its end. */
	uint64_t offset_bytes, length_bytes;
	struct reactor *reactor; /* the control reactor */
	/* From a turn of it, never from inside of begin. ret: 0, or -errno with words. */
	void (*done)(struct backend_cache_job *job, int ret);
	bool is_cancelled; /* backend_cache_cancel */

	/*
	 * Out, while it runs, relaxed loads: total_bytes is the range, rounded to what the cache
	 * keeps one by one; of it were looked at the sum of those that were here before (or others
	 * are bringing them), fetched, and passed over, as others were changing them.
	 */
	uint64_t total_bytes, present_bytes, fetched_bytes, passed_bytes;
	uint64_t dropped_bytes; /* DROP: forgotten */
	/* Out, at the end. */
	bool is_full;	      /* WARM: has ended for want of room */
	uint64_t dirty_bytes; /* what the child does not have */
	char words[BACKEND_ERROR_BYTES];
};

/* Of a node whose ops have it: struct backend's cache_ops. */
struct backend_cache_ops {
	/*
	 * Returns 0, and done follows; or -errno with words, and nothing has begun: -EBUSY (a job
	 * is under way, or no queue is open), -EINVAL (the range), -EIO (its store has failed).
	 */
	int (*begin)(struct backend_device *device, struct backend_cache_job *job);
};

/* Asks a job to end soon, with -ECANCELED; what it has done stays. Harmless after its end. */
static inline void backend_cache_cancel(struct backend_cache_job *job)
{
	__atomic_store_n(&job->is_cancelled, true, __ATOMIC_RELAXED);
}

/* Any thread, while it runs. */
static inline uint64_t backend_cache_done_bytes(const struct backend_cache_job *job)
{
	return __atomic_load_n(&job->present_bytes, __ATOMIC_RELAXED) +
	       __atomic_load_n(&job->fetched_bytes, __ATOMIC_RELAXED) +
	       __atomic_load_n(&job->passed_bytes, __ATOMIC_RELAXED);
}

/*
 * The cache of a tree; with a path ("disk/backends/1", as in names of nodes) the one of that name.
 * NULL, with words: there is none, or several.
 */
struct backend_device *backend_cache_node(struct backend_device *top, const char *path, char *words,
					  size_t words_bytes);

/* All caches of a tree, but for what it shares with others; the top first. The same. */
unsigned backend_caches(struct backend_device *top,
			struct backend_device *caches[static BACKEND_NODES_MAX]);

/* The caches of a tree above this node of it, the top first. Main thread, from open to close. */
unsigned backend_caches_above(struct backend_device *top, const struct backend_device *node,
			      struct backend_device *caches[static BACKEND_DEPTH_MAX]);

#endif
