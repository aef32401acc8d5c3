/*
 * throttle: holds requests back so that the child gets no more of them, or of bytes, than the
 * limits say. Owns what waits; the buckets and the turns are throttle_group.c's. Reactor threads,
 * but for open, close and what throttle.h says.
 *
 * Happy path: room in the buckets: the request is accounted and forwarded inside submit. Else it
 * waits in a FIFO, until the timer of this queue or the mail of another one says that it may go.
 * How long it waited is its throttle_ns: a layer of its own, not the backend's time.
 *
 * READ is one direction; WRITE, DISCARD and WRITE_ZEROES are the other. FLUSH is never held back:
 * it speaks of writes that are complete, and a write that waits here is not.
 *
 * Failure modes: none of its own. cancel answers what waits.
 */
#include <errno.h>
#include <string.h>

#include "storage/snapshot.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "storage/sharing.h"
#include "filters/throttle/throttle_group.h"
#include "base/assert.h"
#include "base/util.h"

/* May run everything that completion runs: nothing is done with q afterwards. */
static void throttle_release(struct throttle_queue *q, struct list_node *ready)
{
	uint64_t now_ns = q->queue->reactor->now_ns;
	struct list_node *node;

	while ((node = list_pop_front(ready))) {
		struct throttle_io *t = list_entry(node, struct throttle_io, node);

		t->state = THROTTLE_IO_PASSED;
		t->io->throttle_ns = now_ns - t->since_ns;
		if (t->cancelled)
			backend_io_complete(t->io, -ECANCELED);
		else
			backend_forward_queued(t->io);
	}
}

static void throttle_run(struct throttle_queue *q, struct list_node *ready)
{
	throttle_group_run(q, q->queue->reactor->now_ns, ready);
	throttle_release(q, ready);
}

static void throttle_timer_due(struct timer *timer)
{
	struct list_node ready = LIST_INIT(ready);

	throttle_run(container_of(timer, struct throttle_queue, timer), &ready);
}

void throttle_queue_mail(struct mail *mail)
{
	struct throttle_queue *q = container_of(mail, struct throttle_queue, mail);
	struct list_node ready = LIST_INIT(ready);

	throttle_group_take(q, &ready);
	throttle_run(q, &ready);
}

static enum backend_submit throttle_submit(struct backend_io *io)
{
	struct throttle_queue *q = io->queue->priv;
	struct throttle_io *t = io->priv;
	uint64_t now_ns = q->queue->reactor->now_ns;

	if (io->op == BACKEND_FLUSH)
		return backend_forward(io);
	t->since_ns = now_ns;
	t->cancelled = false;
	return throttle_group_enter(q, t, now_ns) ? backend_forward(io) : BACKEND_QUEUED;
}

static void throttle_cancel(struct backend_io *io)
{
	struct throttle_queue *q = io->queue->priv;
	struct throttle_io *t = io->priv;

	if (throttle_group_cancel(t)) {
		io->throttle_ns = q->queue->reactor->now_ns - t->since_ns;
		backend_io_complete(io, -ECANCELED);
	} else if (t->state == THROTTLE_IO_GRANTED) {
		t->cancelled = true; /* its mail is on its way */
	} else {
		backend_forward_cancel(io);
	}
}

/* Without the lock: a look, no decision. */
static struct backend_wait throttle_wait(const struct backend_io *io)
{
	const struct throttle_io *t = io->priv;

	if (__atomic_load_n(&t->state, __ATOMIC_RELAXED) == THROTTLE_IO_PASSED)
		return (struct backend_wait){ 0 };
	return (struct backend_wait){ BACKEND_WAIT_THROTTLE, "waiting for its turn" };
}

static int throttle_io_init(struct backend_io *io)
{
	struct throttle_io *t = io->priv;

	t->io = io;
	list_init(&t->node);
	return 0;
}

static int throttle_queue_init(struct backend_queue *queue)
{
	struct throttle_queue *q = queue->priv;

	q->device = queue->device->priv;
	q->queue = queue;
	timer_init(&q->timer, throttle_timer_due);
	list_init(&q->granted);
	list_init(&q->wake);
	for (int dir = 0; dir < THROTTLE_DIR_NR; dir++) {
		list_init(&q->turn[dir]);
		list_init(&q->waiting[dir]);
	}
	return 0;
}

static void throttle_queue_fini(struct backend_queue *queue)
{
	throttle_group_quit(queue->priv, queue->reactor->now_ns);
}

static void throttle_close(struct backend_device *device)
{
	throttle_group_leave(device->priv);
}

bool throttle_is(const struct backend_device *device)
{
	return device->ops == &backend_throttle;
}

struct backend_device *throttle_find(struct backend_device *top)
{
	struct backend_device *found = NULL;

	if (!top || throttle_is(top))
		return top;
	for (struct backend_device *c = backend_below(top); c && !found; c = c->sibling)
		found = throttle_find(c);
	return found;
}

void throttle_get(struct backend_device *throttle, struct throttle_limits *ret_limits)
{
	const struct throttle_device *d = throttle->priv;

	throttle_group_get(d->group, ret_limits);
}

void throttle_update(struct backend_device *throttle, const struct throttle_limits *limits)
{
	const struct throttle_device *d = throttle->priv;

	throttle_group_set(d->group, limits, ring_clock_ns());
}

const struct backend backend_throttle = {
	.name = "throttle",
	.summary = "A filter that limits requests and bytes per second, as QEMU does.",
	.options = throttle_options,
	.config_bytes = sizeof(struct throttle_config),
	.device_bytes = sizeof(struct throttle_device),
	.queue_bytes = sizeof(struct throttle_queue),
	.io_bytes = sizeof(struct throttle_io),
	.data = BACKEND_DATA_ANY | BACKEND_DATA_SHMEM,
	.test_options = "total_iops_sec: 20000\nsize_iops_sec: 16k",
	.children = backend_one_child,
	.check = throttle_check,
	.open = throttle_group_join,
	.close = throttle_close,
	.queue_init = throttle_queue_init,
	.queue_fini = throttle_queue_fini,
	.io_init = throttle_io_init,
	.submit = throttle_submit,
	.cancel = throttle_cancel,
	.wait = throttle_wait,
	.above = &backend_above_passes,
};
