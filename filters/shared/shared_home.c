/*
 * The queue of a shared tree. Its home's thread, but for start and stop, which are asked for by the
 * control thread; they own the queue and its I/Os.
 *
 * Happy path: start -> a request takes a tag and goes to the tree; ended, its user is told and the
 * tag goes to who has waited longest -> stop: the queue rests and is closed.
 * Failure modes: no memory for the queue: the answer says it, and nothing is left; all tags are
 * taken: requests wait in order.
 */
#include "filters/shared/shared.h"

#include <errno.h>

#include "base/util.h"
#include "storage/node.h"

/* Between two looks whether the queue rests, before it is closed. */
#define SHARED_REST_LOOK_NS (100 * NS_PER_US)

static struct shared_home *home_of_mail(struct mail *mail)
{
	return container_of(mail, struct shared_home, mail);
}

static void home_answers(struct mail *mail)
{
	struct shared_home *home = home_of_mail(mail);

	home->answer(home);
}

static void home_answer(struct shared_home *home)
{
	reactor_post(home->control, &home->mail, home_answers);
}

/* ---- requests ---- */

static void tag_release(struct shared_tag *tag)
{
	struct shared_io *s = tag->user;

	s->result = tag->io.result;
	s->throttle_ns += tag->io.throttle_ns;
	__atomic_store_n(&s->tag, NULL, __ATOMIC_RELAXED);
	tag->user = NULL;
	list_push_back(&tag->home->free, &tag->free);
	tag->home->busy_nr--;
}

/* True: it has ended already. */
static bool tag_take(struct shared_home *home, struct shared_io *s)
{
	struct shared_tag *tag = list_entry(list_pop_front(&home->free), struct shared_tag, free);

	tag->user = s;
	__atomic_store_n(&s->tag, tag, __ATOMIC_RELAXED);
	tag->io.op = BACKEND_READ;
	tag->io.flags = 0;
	tag->io.offset_bytes = s->offset_bytes;
	tag->io.length_bytes = s->bytes;
	tag->io.buf = s->buf;
	tag->io.buf_index = -1;
	if (backend_submit_or_wait(&tag->io) == BACKEND_QUEUED)
		return false;
	tag_release(tag);
	return true;
}

static void take_waiting(struct shared_home *home)
{
	while (!list_empty(&home->waiting) && !list_empty(&home->free)) {
		struct list_node *node = list_pop_front(&home->waiting);
		struct shared_io *s = list_entry(node, struct shared_io, waiting);

		if (tag_take(home, s))
			shared_io_tell(s);
	}
}

static void tag_ended(struct backend_io *io)
{
	struct shared_tag *tag = container_of(io, struct shared_tag, io);
	struct shared_io *s = tag->user;

	backend_retry_waiting(io->queue);
	tag_release(tag);
	shared_io_tell(s);
	take_waiting(tag->home);
}

bool shared_home_begin(struct shared_home *home, struct shared_io *s)
{
	home->busy_nr++;
	if (list_empty(&home->waiting) && !list_empty(&home->free))
		return tag_take(home, s);
	list_push_back(&home->waiting, &s->waiting);
	return false;
}

void shared_home_cancel(struct shared_home *home, struct shared_io *s)
{
	if (s->tag) {
		backend_child_cancel(&s->tag->io);
	} else if (!list_empty(&s->waiting)) {
		list_remove(&s->waiting);
		home->busy_nr--;
		s->result = -ECANCELED;
		shared_io_tell(s);
	}
}

bool shared_home_rest(struct shared_home *home)
{
	bool rests = home->busy_nr == 0 && backend_queue_rest(home->queue);

	if (rests)
		atomic_fetch_add_explicit(&home->rested_nr, 1, memory_order_release);
	return rests;
}

/* ---- its life ---- */

static void home_close_queue(struct shared_home *home)
{
	for (unsigned i = 0; i < SHARED_DEPTH; i++)
		backend_io_fini(&home->tag[i].io);
	backend_queue_close(home->queue);
	home->queue = NULL;
}

static int home_open_queue(struct shared_home *home)
{
	int ret = backend_queue_open(&home->queue, home->device, home->reactor, 0, SHARED_DEPTH);

	for (unsigned i = 0; ret == 0 && i < SHARED_DEPTH; i++) {
		struct shared_tag *tag = &home->tag[i];

		tag->home = home;
		list_init(&tag->io.waiting);
		ret = backend_io_init(&tag->io, home->queue, i, tag_ended);
		tag->io.driver_fd = -1;
		list_push_back(&home->free, &tag->free);
	}
	if (ret < 0)
		home_close_queue(home);
	return ret;
}

static void home_starts(struct mail *mail)
{
	struct shared_home *home = home_of_mail(mail);

	home->ret = home_open_queue(home);
	home_answer(home);
}

static void home_stop_look(struct timer *timer)
{
	struct shared_home *home = container_of(timer, struct shared_home, rest_timer);

	if (!shared_home_rest(home)) {
		reactor_timer_arm(home->reactor, timer, ring_clock_ns() + SHARED_REST_LOOK_NS);
		return;
	}
	home_close_queue(home);
	home_answer(home);
}

static void home_stops(struct mail *mail)
{
	home_stop_look(&home_of_mail(mail)->rest_timer);
}

void shared_home_start(struct shared_home *home, void (*answer)(struct shared_home *home))
{
	list_init(&home->free);
	list_init(&home->waiting);
	timer_init(&home->rest_timer, home_stop_look);
	home->answer = answer;
	reactor_post(home->reactor, &home->mail, home_starts);
}

void shared_home_stop(struct shared_home *home, void (*answer)(struct shared_home *home))
{
	home->answer = answer;
	reactor_post(home->reactor, &home->mail, home_stops);
}
