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
							  CACHE_INDEX_NR };
	struct backend_own *own;
	struct cache_own *o;

	if (q->nr[kind] == most[kind])
		return NULL;
	own = backend_own_take(q->queue);
	ASSERT(own != NULL);
	q->nr[kind]++;
	o = &q->own[own - q->queue->own];
	o->kind = kind;
	o->child = NULL;
	o->s = NULL;
	o->slot = NULL;
	return o;
}

void cache_own_release(struct cache_queue *q, struct cache_own *own)
{
	backend_own_release(own->own);
	q->nr[own->kind]--;
}

static void cache_own_done_later(struct task *task)
{
	struct cache_own *own = container_of(task, struct cache_own, task);
	struct backend_io *child = own->child;

	own->child = NULL;
	own->done(own, child->result);
}

void cache_own_submit(struct cache_queue *q, struct cache_own *own, unsigned child_idx,
		      enum backend_op op, uint64_t offset, void *buf, uint32_t bytes,
		      void (*done)(struct cache_own *own, int result))
{
	struct backend_io *child = &own->own->child[child_idx];

	child->op = (uint8_t)op;
	child->flags = 0;
	child->offset_bytes = offset;
	child->length_bytes = bytes;
	child->buf = buf ? buf : own->own->buf;
	child->buf_index = -1;
	own->child = child;
	own->done = done;
	/* Inside of submit nobody may hear of it. */
	if (backend_child_submit(child) == BACKEND_DONE)
		reactor_defer(q->queue->reactor, &own->task, cache_own_done_later);
}

void cache_own_ended(struct backend_io *child)
{
	struct backend_own *own = backend_own_of(child);
	struct cache_queue *q = own->queue->priv;
	struct cache_own *o = &q->own[own - own->queue->own];

	o->child = NULL;
	o->done(o, child->result);
}
