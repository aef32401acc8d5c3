/*
 * Requests of a user whose bytes are not in memory: pages of the driver, which only the reactor of
 * the device's queue may move. That reactor. Owns the queue's buffers, which take memory when they
 * are first used.
 *
 * Happy path: begin takes a buffer -> home reads a piece into it -> next moves it to the driver ->
 * ... -> the buffer goes to who has waited longest.
 * Failure modes: the driver does not take the bytes: the request fails; all buffers are in use:
 * requests wait.
 */
#include <errno.h>
#include <sys/mman.h>

#include "filters/shared/shared.h"

#include "base/util.h"

static void bounce_give(struct shared_io *s, struct shared_bounce *bounce)
{
	__atomic_store_n(&s->bounce, bounce, __ATOMIC_RELAXED);
	s->buf = bounce->buf;
	s->bytes = MIN(s->io->length_bytes, SHARED_BOUNCE_BYTES);
}

static void bounce_feed(struct task *task)
{
	struct shared_queue *q = container_of(task, struct shared_queue, feed);

	while (!list_empty(&q->starved) && !list_empty(&q->free)) {
		struct list_node *node = list_pop_front(&q->starved);
		struct shared_io *s = list_entry(node, struct shared_io, starved);

		node = list_pop_front(&q->free);
		bounce_give(s, list_entry(node, struct shared_bounce, free));
		shared_io_fed(s);
	}
}

/* Those that wait get it from a task: its owner may be in a submit of this queue. */
static void bounce_release(struct shared_queue *q, struct shared_io *s)
{
	list_push_back(&q->free, &s->bounce->free);
	__atomic_store_n(&s->bounce, NULL, __ATOMIC_RELAXED);
	if (!list_empty(&q->starved))
		reactor_defer(s->io->queue->reactor, &q->feed, bounce_feed);
}

bool shared_bounce_begin(struct shared_queue *q, struct shared_io *s)
{
	if (list_empty(&q->free) || !list_empty(&q->starved)) {
		list_push_back(&q->starved, &s->starved);
		return false;
	}
	bounce_give(s, list_entry(list_pop_front(&q->free), struct shared_bounce, free));
	return true;
}

bool shared_bounce_next(struct shared_queue *q, struct shared_io *s)
{
	uint64_t at_bytes = s->offset_bytes - s->io->offset_bytes;

	if (!s->bounce)
		return false;
	if (s->result == 0)
		s->result =
			backend_data_to_driver(s->io, (uint32_t)at_bytes, s->bounce->buf, s->bytes);
	s->offset_bytes += s->bytes;
	s->bytes = MIN((uint32_t)(s->io->length_bytes - at_bytes - s->bytes), SHARED_BOUNCE_BYTES);
	if (s->bytes > 0 && s->is_cancelled)
		s->result = -ECANCELED;
	if (s->bytes > 0 && s->result == 0)
		return true;
	bounce_release(q, s);
	return false;
}

bool shared_bounce_cancel(struct shared_io *s)
{
	if (list_empty(&s->starved))
		return false;
	list_remove(&s->starved);
	return true;
}

int shared_bounces_init(struct shared_queue *q)
{
	void *buffers = mmap(NULL, (size_t)SHARED_BOUNCE_NR * SHARED_BOUNCE_BYTES,
			     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	list_init(&q->free);
	list_init(&q->starved);
	if (buffers == MAP_FAILED)
		return -ENOMEM;
	q->buffers = buffers;
	for (unsigned i = 0; i < SHARED_BOUNCE_NR; i++) {
		q->bounce[i].buf = (uint8_t *)buffers + (size_t)i * SHARED_BOUNCE_BYTES;
		list_push_back(&q->free, &q->bounce[i].free);
	}
	return 0;
}

void shared_bounces_fini(struct shared_queue *q)
{
	task_cancel(&q->feed);
	if (q->buffers)
		munmap(q->buffers, (size_t)SHARED_BOUNCE_NR * SHARED_BOUNCE_BYTES);
	q->buffers = NULL;
}
