/*
 * Requests of a user of a shared tree, on the reactor of its queue. Owns nothing: the queues and
 * I/Os are the core's, the tree is shared_tree.c's, which stays while a user has it open.
 *
 * Happy path: submit -> home is this reactor: the tree has it at once. Else: mail -> home -> mail
 * -> complete. A request whose bytes are not in memory goes so piece by piece.
 *
 * Failure mode: a cancel goes the same way by a mail of its own; a request that ends meanwhile
 * waits until that mail is back, since its memory is used again.
 */
#include "filters/shared/shared.h"

#include <errno.h>

#include "base/util.h"

static bool is_home(const struct shared_io *s)
{
	return s->io->queue->reactor == s->home->reactor;
}

static struct shared_queue *shared_queue_of(const struct shared_io *s)
{
	return s->io->queue->priv;
}

static void io_asked(struct mail *mail)
{
	struct shared_io *s = container_of(mail, struct shared_io, mail);

	if (shared_home_begin(s->home, s))
		shared_io_tell(s);
}

/* True: the request has ended. False: home will answer. */
static bool io_ask(struct shared_io *s)
{
	while (is_home(s)) {
		if (!shared_home_begin(s->home, s))
			return false;
		if (!shared_bounce_next(shared_queue_of(s), s))
			return true;
	}
	reactor_post(s->home->reactor, &s->mail, io_asked);
	return false;
}

static void io_complete(struct shared_io *s)
{
	s->io->throttle_ns += s->throttle_ns;
	backend_io_complete(s->io, s->result);
}

/* What home was asked for has ended. */
static void io_ended(struct shared_io *s)
{
	if (!shared_bounce_next(shared_queue_of(s), s) || io_ask(s))
		io_complete(s);
}

static void io_answered(struct mail *mail)
{
	struct shared_io *s = container_of(mail, struct shared_io, mail);

	if (s->is_cancelling)
		s->has_ended = true;
	else
		io_ended(s);
}

void shared_io_tell(struct shared_io *s)
{
	if (is_home(s))
		io_ended(s);
	else
		reactor_post(s->io->queue->reactor, &s->mail, io_answered);
}

void shared_io_fed(struct shared_io *s)
{
	if (io_ask(s))
		io_complete(s);
}

/* It was at rest, and is asked again. */
static void queue_wake(struct shared_queue *q)
{
	q->is_resting = false;
	atomic_fetch_add_explicit(&q->home->awake_nr, 1, memory_order_seq_cst);
}

/* False: it waits for a buffer. */
static bool shared_io_begin(struct shared_queue *q, struct shared_io *s)
{
	s->throttle_ns = 0;
	s->is_cancelled = false;
	s->offset_bytes = s->io->offset_bytes;
	s->bytes = s->io->length_bytes;
	s->buf = s->io->buf;
	return backend_io_in_memory(s->io) || shared_bounce_begin(q, s);
}

enum backend_submit shared_submit(struct backend_io *io)
{
	struct shared_queue *q = io->queue->priv;
	struct shared_io *s = io->priv;

	if (q->is_resting)
		queue_wake(q);
	if (!shared_io_begin(q, s) || !io_ask(s))
		return BACKEND_QUEUED;
	io->throttle_ns += s->throttle_ns;
	io->result = s->result;
	return BACKEND_DONE;
}

/* ---- cancel ---- */

static void cancel_answered(struct mail *mail)
{
	struct shared_io *s = container_of(mail, struct shared_io, cancel_mail);

	s->is_cancelling = false;
	if (!s->has_ended)
		return;
	s->has_ended = false;
	io_ended(s);
}

static void cancel_asked(struct mail *mail)
{
	struct shared_io *s = container_of(mail, struct shared_io, cancel_mail);

	shared_home_cancel(s->home, s);
	reactor_post(s->io->queue->reactor, mail, cancel_answered);
}

void shared_cancel(struct backend_io *io)
{
	struct shared_io *s = io->priv;

	s->is_cancelled = true;
	if (shared_bounce_cancel(s)) {
		backend_io_complete(io, -ECANCELED);
	} else if (is_home(s)) {
		shared_home_cancel(s->home, s);
	} else if (!s->is_cancelling) {
		s->is_cancelling = true;
		reactor_post(s->home->reactor, &s->cancel_mail, cancel_asked);
	}
}

/* ---- rest ---- */

static void rest_asked(struct mail *mail)
{
	struct shared_home *home = container_of(mail, struct shared_home, rest_mail);

	atomic_store_explicit(&home->is_asked, false, memory_order_release);
	shared_home_rest(home);
}

/* Of an answer of home that came after it was at rest, and that this queue has not taken yet. */
static bool rest_answered(struct shared_queue *q)
{
	unsigned nr = atomic_load_explicit(&q->home->rested_nr, memory_order_acquire);
	bool is_new = nr != q->rested_nr;

	q->rested_nr = nr;
	return is_new;
}

static void queue_come_to_rest(struct shared_queue *q)
{
	q->is_resting = true;
	rest_answered(q);
	atomic_fetch_sub_explicit(&q->home->awake_nr, 1, memory_order_seq_cst);
}

/*
 * The tree rests when all of its users do: the last one waits for it. An answer of home is good for
 * one question of each queue: without a request of a user a command may give the tree something to
 * do. Several queues of one device may share a tree, and are asked in one look.
 */
bool shared_queue_rest(struct backend_queue *queue)
{
	struct shared_queue *q = queue->priv;
	struct shared_home *home = q->home;

	if (!q->is_resting)
		queue_come_to_rest(q);
	if (atomic_load_explicit(&home->awake_nr, memory_order_seq_cst) > 0)
		return true;
	if (queue->reactor == home->reactor)
		return shared_home_rest(home);
	if (rest_answered(q))
		return true;
	if (!atomic_exchange_explicit(&home->is_asked, true, memory_order_acq_rel))
		reactor_post(home->reactor, &home->rest_mail, rest_asked);
	return false;
}

/* ---- queues ---- */

int shared_queue_init(struct backend_queue *queue)
{
	const struct shared_device *d = queue->device->priv;
	struct shared_queue *q = queue->priv;

	q->home = &d->tree->home;
	queue_wake(q);
	return shared_bounces_init(q);
}

void shared_queue_fini(struct backend_queue *queue)
{
	struct shared_queue *q = queue->priv;

	shared_bounces_fini(q);
	if (!q->is_resting)
		atomic_fetch_sub_explicit(&q->home->awake_nr, 1, memory_order_seq_cst);
}

int shared_io_init(struct backend_io *io)
{
	const struct shared_queue *q = io->queue->priv;
	struct shared_io *s = io->priv;

	s->io = io;
	s->home = q->home;
	list_init(&s->waiting);
	list_init(&s->starved);
	return 0;
}

struct backend_wait shared_wait(const struct backend_io *io)
{
	const struct shared_io *s = io->priv;
	const struct shared_bounce *bounce = __atomic_load_n(&s->bounce, __ATOMIC_RELAXED);

	return (struct backend_wait){
		.kind = BACKEND_WAIT_ANSWER,
		.words = backend_io_in_memory(io) || bounce
				 ? "waiting for its turn at what is shared"
				 : "waiting for a buffer",
	};
}

const struct backend_io *shared_io_below(const struct backend_io *io)
{
	const struct shared_io *s = io->priv;
	const struct shared_tag *tag = __atomic_load_n(&s->tag, __ATOMIC_RELAXED);

	return tag ? &tag->io : NULL;
}
