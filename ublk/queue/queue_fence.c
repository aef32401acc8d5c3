/*
 * When a device has become smaller: waits until its backend has no request any more beyond the new
 * end, so that what is there can be given back. On the queue's reactor, at no cost for requests.
 *
 * Happy path: the mail comes after the new size was set, so that storage/io.c refuses whatever is
 * submitted from here on; what is left are tags that are being served, and they are looked at until
 * none reaches beyond. Failure modes: a backend that does not answer keeps the fence waiting, as it
 * keeps its request; a stop cancels both.
 */
#include "base/util.h"
#include "ublk/queue/queue_internal.h"

#define LOOK_AGAIN_NS NS_PER_MS

static bool reaches_beyond(const struct tag_io *io, uint64_t size_bytes)
{
	return io->state == TAG_SERVING && io->request.op != BACKEND_FLUSH &&
	       io->request.offset_bytes + io->request.length_bytes > size_bytes;
}

static void fenced_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, fenced_mail);

	q->setup.fenced(q);
}

void queue_fence_look(struct timer *timer)
{
	struct queue *q = container_of(timer, struct queue, fence_timer);
	struct reactor *r = q->setup.reactor;

	for (unsigned tag = 0; q->ios && tag < q->setup.depth; tag++)
		if (reaches_beyond(&q->ios[tag], q->fence_bytes)) {
			reactor_timer_arm(r, timer, r->now_ns + LOOK_AGAIN_NS);
			return;
		}
	reactor_post(q->setup.home, &q->fenced_mail, fenced_on_main);
}

static void fence(struct mail *mail)
{
	queue_fence_look(&container_of(mail, struct queue, fence_mail)->fence_timer);
}

void queue_fence(struct queue *q, uint64_t size_bytes)
{
	q->fence_bytes = size_bytes;
	reactor_post(q->setup.reactor, &q->fence_mail, fence);
}
