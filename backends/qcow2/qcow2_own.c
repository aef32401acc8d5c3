/*
 * Requests of the node's own, each with a buffer: of a queue some are for its copies, and on queue
 * 0 the others for the owner's tables, so that neither can wait for the other. Reactors.
 *
 * Happy path: take -> submit -> done, from a turn -> submit again, or release. A release gives the
 * buffer to the I/O that has waited longest.
 */
#include "backends/qcow2/qcow2.h"

#include "base/assert.h"
#include "base/util.h"

struct qcow2_own *qcow2_own_take(struct qcow2_queue *q, bool for_table)
{
	unsigned *nr = for_table ? &q->table_nr : &q->copy_nr;
	struct backend_own *own;
	struct qcow2_own *o;

	if (*nr == (for_table ? QCOW2_TABLE_OWN_NR : QCOW2_COPIES_NR))
		return NULL;
	own = backend_own_take(q->queue);
	ASSERT(own != NULL);
	(*nr)++;
	o = &q->own[own - q->queue->own];
	o->is_table = for_table;
	return o;
}

static struct qcow2_io *pop_waiting(struct qcow2_queue *q)
{
	struct list_node *node = list_pop_front(&q->waiting);

	return node ? list_entry(node, struct qcow2_io, waiting) : NULL;
}

static void tell_waiting(struct task *task)
{
	struct qcow2_queue *q = container_of(task, struct qcow2_queue, waiting_task);

	while (q->copy_nr < QCOW2_COPIES_NR) {
		struct qcow2_io *s = pop_waiting(q);

		if (!s)
			return;
		qcow2_bounce_has_buffer(s);
	}
}

void qcow2_own_release(struct qcow2_queue *q, struct qcow2_own *own)
{
	backend_own_release(own->own);
	if (own->is_table) {
		q->table_nr--;
		return;
	}
	q->copy_nr--;
	if (!list_empty(&q->waiting))
		reactor_defer(q->queue->reactor, &q->waiting_task, tell_waiting);
}

static void qcow2_own_done(struct backend_own *own, int result)
{
	struct qcow2_queue *q = own->queue->priv;
	struct qcow2_own *o = &q->own[own - own->queue->own];

	o->done(o, result);
}

void qcow2_own_submit(struct qcow2_own *own, unsigned child_idx, enum backend_op op,
		      uint64_t offset, void *buf, uint64_t bytes,
		      void (*done)(struct qcow2_own *own, int result))
{
	own->done = done;
	backend_own_submit(own->own, child_idx, op, offset, buf, (uint32_t)bytes, qcow2_own_done);
}

void qcow2_own_cancel(struct qcow2_io *s)
{
	struct qcow2_own *own = s->loaded ? s->loaded : s->bounce.own;

	if (own)
		backend_own_cancel(own->own);
}
