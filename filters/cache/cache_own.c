/*
 * Requests of the node's own, each with a buffer: some to fill, some to clean, some for the index,
 * so that none waits for another. The queue's reactor.
 */
#include "filters/cache/cache.h"

#include "base/assert.h"
#include "base/util.h"

struct cache_own *cache_own_take(struct cache_queue *q, enum cache_own_kind kind)
{
	static const unsigned most[CACHE_OWN_KIND_NR] = { CACHE_FILLS_NR, CACHE_CLEANS_NR,
							  CACHE_INDEX_NR, CACHE_PASSES_NR };
	struct backend_own *own;
	struct cache_own *o;

	if (q->nr[kind] == most[kind])
		return NULL;
	own = backend_own_take(q->queue);
	ASSERT(own != NULL);
	q->nr[kind]++;
	o = &q->own[own - q->queue->own];
	o->kind = kind;
	o->s = NULL;
	o->slot = NULL;
	o->is_warm = false;
	return o;
}

void cache_own_release(struct cache_queue *q, struct cache_own *own)
{
	backend_own_release(own->own);
	q->nr[own->kind]--;
}

static void cache_own_done(struct backend_own *own, int result)
{
	struct cache_queue *q = own->queue->priv;
	struct cache_own *o = &q->own[own - own->queue->own];

	o->done(o, result);
}

void cache_own_submit(struct cache_own *own, unsigned child_idx, enum backend_op op,
		      uint64_t offset, void *buf, uint32_t bytes,
		      void (*done)(struct cache_own *own, int result))
{
	own->done = done;
	backend_own_submit(own->own, child_idx, op, offset, buf, bytes, cache_own_done);
}
