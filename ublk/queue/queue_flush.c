/*
 * A FLUSH that no request of the driver asks for: a polite stop wants one. On the queue's reactor,
 * at no cost for requests.
 *
 * Happy path: the mail comes -> a tag without a request in the backend is taken: what the driver
 * puts into it meanwhile is kept -> FLUSH -> `flushed`, and what was kept is served.
 *
 * Failure modes: it fails: the next one of the driver does, too; every tag is being served, or the
 * backend is busy: it is tried again soon; a backend that does not answer keeps it waiting;
 * queue_cancel ends it.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/util.h"
#include "storage/owed.h"
#include "ublk/queue/queue_internal.h"

#define LOOK_AGAIN_NS NS_PER_MS

static void flushed_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, flushed_mail);

	q->setup.flushed(q, q->flush_result);
}

/* From a task: the backend may be in the middle of something. */
static void flush_let_go(struct task *task)
{
	struct queue *q = container_of(task, struct queue, flush_task);

	if (!(q->care & QUEUE_QUIESCED))
		queue_serve_kept(q);
	reactor_post(q->setup.home, &q->flushed_mail, flushed_on_main);
}

/*
 * One that fails has told of the loss (storage/owed.h), but not to the user: it is owed again,
 * before this reactor begins another FLUSH.
 */
static void own_flush_end(struct queue *q, int result)
{
	if (result < 0 && result != -ECANCELED)
		backend_owe(q->setup.backend);
	if (q->flush_io)
		q->flush_io->request.done = tag_backend_done;
	q->flush_io = NULL;
	q->flush_result = result;
	queue_care_set(q, QUEUE_FLUSHING, false);
	reactor_defer(q->setup.reactor, &q->flush_task, flush_let_go);
}

static void own_flush_done(struct backend_io *request)
{
	own_flush_end(container_of(request, struct tag_io, request)->queue, request->result);
}

static bool flush_is_free(const struct tag_io *io)
{
	return io->state == TAG_ARMED || io->state == TAG_DOWN;
}

static struct tag_io *flush_free_tag(struct queue *q)
{
	for (unsigned tag = 0; tag < q->setup.depth; tag++)
		if (flush_is_free(&q->ios[tag]))
			return &q->ios[tag];
	return NULL;
}

static enum backend_submit own_flush_submit(struct queue *q, struct tag_io *io)
{
	io->request.op = BACKEND_FLUSH;
	io->request.flags = 0;
	io->request.offset_bytes = 0;
	io->request.length_bytes = 0;
	io->request.done = own_flush_done;
	q->flush_io = io;
	return backend_io_submit(&io->request);
}

void queue_flush_look(struct timer *timer)
{
	struct queue *q = container_of(timer, struct queue, flush_timer);
	struct reactor *r = q->setup.reactor;
	struct tag_io *io = flush_free_tag(q);
	enum backend_submit taken = BACKEND_BUSY;

	if (q->care & QUEUE_CANCELLING) {
		own_flush_end(q, -ECANCELED);
		return;
	}
	if (io)
		taken = own_flush_submit(q, io);
	if (taken == BACKEND_DONE) {
		own_flush_done(&io->request);
	} else if (taken == BACKEND_BUSY && io) {
		q->flush_io = NULL;
		io->request.done = tag_backend_done;
	}
	if (taken == BACKEND_BUSY)
		reactor_timer_arm(r, timer, r->now_ns + LOOK_AGAIN_NS);
}

void queue_flush_cancel(struct queue *q)
{
	if (q->flush_io)
		backend_io_cancel(&q->flush_io->request);
	else if (q->flush_timer.armed)
		reactor_timer_arm(q->setup.reactor, &q->flush_timer, q->setup.reactor->now_ns);
}

static void own_flush_begin(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, flush_mail);

	ASSERT(q->ios && !q->flush_io);
	queue_care_set(q, QUEUE_FLUSHING, true);
	queue_flush_look(&q->flush_timer);
}

void queue_flush(struct queue *q)
{
	reactor_post(q->setup.reactor, &q->flush_mail, own_flush_begin);
}
