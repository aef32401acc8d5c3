/*
 * Requests while the device has no image. Owns the list of a queue; reactor thread.
 *
 * Happy path: held -> there is an image again, which the queue looks for 50 times a second while it
 * holds any -> sent. Failure modes: none in the time of on_disconnect: they fail, and so does what
 * comes until there is one.
 */
#include <errno.h>

#include "backends/rbd/rbd.h"
#include "base/util.h"

#define LOOK_NS (20 * NS_PER_MS)

static void held_set(struct ceph_io *n, bool is_held)
{
	__atomic_store_n(&n->is_held, is_held, __ATOMIC_RELAXED);
}

static struct ceph_io *held_take(struct list_node *list)
{
	struct list_node *node = list_pop_front(list);
	struct ceph_io *n = node ? list_entry(node, struct ceph_io, held) : NULL;

	if (n)
		held_set(n, false);
	return n;
}

static void held_fail_all(struct ceph_queue *q)
{
	struct ceph_io *n;

	while ((n = held_take(&q->held)))
		backend_io_complete(n->io, -EIO);
}

static void held_send_all(struct ceph_queue *q)
{
	struct list_node all = LIST_INIT(all);
	struct ceph_io *n;

	list_splice(&all, &q->held);
	while ((n = held_take(&all))) {
		int ret = ceph_send(q, n);

		if (ret == -EAGAIN)
			ret = ceph_hold(q, n);
		if (ret < 0)
			backend_io_complete(n->io, ret);
	}
}

static void held_give_up(struct ceph_queue *q)
{
	struct ceph_device *d = q->device;

	q->gave_up = true;
	log_limited_by(&d->hold_limit, LOG_LEVEL_ERROR,
		       "requests fail until the image is open again", "device=%s queue=%u image=%s",
		       d->name, q->queue->idx, d->address);
	held_fail_all(q);
}

static void held_look(struct timer *timer)
{
	struct ceph_queue *q = container_of(timer, struct ceph_queue, look_again);
	struct reactor *r = q->queue->reactor;
	uint64_t outage_ns = q->device->config->outage.outage_timeout_ns;

	if (net_has_changed(&q->device->changed)) {
		held_fail_all(q);
		return;
	}
	if (atomic_load(&q->device->image)) {
		q->gave_up = false;
		held_send_all(q);
	} else if (outage_ns != OPTION_FOREVER && r->now_ns - q->held_since_ns >= outage_ns &&
		   !q->gave_up) {
		held_give_up(q);
	}
	if (!list_empty(&q->held) || q->gave_up)
		reactor_timer_arm(r, &q->look_again, r->now_ns + LOOK_NS);
}

void ceph_hold_init(struct ceph_queue *q)
{
	list_init(&q->held);
	timer_init(&q->look_again, held_look);
}

int ceph_hold(struct ceph_queue *q, struct ceph_io *n)
{
	struct reactor *r = q->queue->reactor;

	if (q->gave_up || q->device->config->outage.outage_timeout_ns == 0)
		return -EIO;
	if (list_empty(&q->held))
		q->held_since_ns = r->now_ns;
	if (!q->look_again.armed)
		reactor_timer_arm(r, &q->look_again, r->now_ns + LOOK_NS);
	list_push_back(&q->held, &n->held);
	held_set(n, true);
	return 0;
}

bool ceph_hold_cancel(struct ceph_io *n)
{
	if (!n->is_held)
		return false;
	list_remove(&n->held);
	held_set(n, false);
	backend_io_complete(n->io, -ECANCELED);
	return true;
}

void ceph_hold_fini(struct ceph_queue *q)
{
	reactor_timer_cancel(q->queue->reactor, &q->look_again);
}
