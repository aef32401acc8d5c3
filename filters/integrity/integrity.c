/*
 * Requests of a device that keeps metadata (integrity.h). The queue's reactor. Owns nothing.
 *
 * Happy path. A READ with metadata reads data and metadata at the same time; when both are there
 * the metadata go to the driver. A WRITE takes the metadata from the driver, and writes both. What
 * leaves no metadata behind (DISCARD, WRITE_ZEROES, a WRITE without) first has them forgotten, then
 * goes to the data: if it ends in between, the old bytes are there, unchecked. FLUSH goes to both.
 *
 *   (HELD) -> (FORGETS) -> MOVES -> ENDED
 *
 * Failure modes: a child that fails fails the request, which still waits for the other one. A WRITE
 * of which one child has failed leaves bytes and metadata that may not belong together: the client
 * knows that it has failed, and the kernel refuses to read them until they are written again.
 */
#include "filters/integrity/integrity.h"

#include <errno.h>

#include "base/counter.h"
#include "base/util.h"
#include "filters/integrity/integrity_tuple.h"

static struct integrity_device *integrity_of(const struct backend_io *io)
{
	return io->queue->device->priv;
}

static void set_step(struct integrity_io *s, enum integrity_step step)
{
	__atomic_store_n(&s->step, (uint8_t)step, __ATOMIC_RELAXED);
}

static bool with_metadata(const struct backend_io *io)
{
	return io->flags & BACKEND_METADATA;
}

static uint32_t interval_nr_of(const struct backend_io *io)
{
	return io->length_bytes >> integrity_of(io)->shape.interval_shift;
}

/* ---- children ---- */

static void child_ended(struct integrity_io *s, const struct backend_io *child)
{
	s->io->throttle_ns = MAX(s->io->throttle_ns, child->throttle_ns);
	if (child->result < 0 && s->result == 0)
		s->result = child->result;
}

static void start_child(struct integrity_io *s, enum integrity_child idx)
{
	struct backend_io *child = &s->io->child[idx];

	if (backend_child_submit(child) == BACKEND_QUEUED)
		s->under_way_nr++;
	else
		child_ended(s, child);
}

static void start_data(struct integrity_io *s)
{
	struct backend_io *io = s->io, *child = &io->child[INTEGRITY_DATA];

	backend_piece(child, io, 0, io->length_bytes, io->offset_bytes);
	child->flags &= (uint8_t)~BACKEND_METADATA;
	start_child(s, INTEGRITY_DATA);
}

/* The metadata of all its intervals. */
static void start_metadata(struct integrity_io *s, enum backend_op op)
{
	const struct backend_integrity_limits *shape = &integrity_of(s->io)->shape;
	struct backend_io *io = s->io, *child = &io->child[INTEGRITY_METADATA];

	child->op = (uint8_t)op;
	child->flags = io->flags & BACKEND_FUA;
	child->offset_bytes = (io->offset_bytes >> shape->interval_shift) * shape->metadata_bytes;
	child->length_bytes = interval_nr_of(io) * shape->metadata_bytes;
	child->buf = s->metadata;
	child->buf_index = -1;
	start_child(s, INTEGRITY_METADATA);
}

/* ---- metadata on their way to and from the driver ---- */

static int take_metadata(struct integrity_io *s)
{
	const struct integrity_device *d = integrity_of(s->io);
	uint32_t nr = interval_nr_of(s->io);
	int ret = backend_metadata_get(s->io, s->metadata, (size_t)nr * d->shape.metadata_bytes);

	if (ret == 0)
		integrity_tuples_swap(&d->shape, s->metadata, nr);
	return ret;
}

static int give_metadata(struct integrity_io *s)
{
	const struct integrity_device *d = integrity_of(s->io);
	uint32_t nr = interval_nr_of(s->io);

	integrity_tuples_swap(&d->shape, s->metadata, nr);
	return backend_metadata_put(s->io, s->metadata, (size_t)nr * d->shape.metadata_bytes);
}

/* ---- steps ---- */

static void move(struct integrity_io *s)
{
	struct integrity_device *d = integrity_of(s->io);
	struct backend_io *io = s->io;

	if (with_metadata(io) && io->op == BACKEND_WRITE)
		s->result = take_metadata(s);
	if (s->result < 0)
		return;
	start_data(s);
	if (io->op == BACKEND_FLUSH) {
		backend_piece(&io->child[INTEGRITY_METADATA], io, 0, 0, 0);
		start_child(s, INTEGRITY_METADATA);
	} else if (with_metadata(io)) {
		counter_add(io->op == BACKEND_READ ? &d->reads : &d->writes, 1);
		start_metadata(s, (enum backend_op)io->op);
	}
}

static bool leaves_no_metadata(const struct backend_io *io)
{
	return io->op != BACKEND_READ && io->op != BACKEND_FLUSH && !with_metadata(io);
}

static void begin_step(struct integrity_io *s, enum integrity_step step)
{
	set_step(s, step);
	if (step == INTEGRITY_FORGETS) {
		counter_add(&integrity_of(s->io)->forgotten, 1);
		start_metadata(s, BACKEND_WRITE_ZEROES);
	} else {
		move(s);
	}
}

static void integrity_held_look(struct task *task);

/* Nothing of it is under way, and nothing more will be. */
static enum backend_submit end_request(struct integrity_io *s)
{
	struct integrity_device *d = integrity_of(s->io);

	set_step(s, INTEGRITY_ENDED);
	if (s->result == 0 && s->io->op == BACKEND_READ && with_metadata(s->io))
		s->result = give_metadata(s);
	if (s->io->op != BACKEND_FLUSH)
		integrity_range_leave(&d->ranges, &s->range);
	if (d->ranges.held_nr > 0)
		reactor_defer(s->io->queue->reactor, &d->held_task, integrity_held_look);
	s->io->result = s->result;
	return BACKEND_DONE;
}

/* QUEUED: a child has it. DONE: it has ended, with the I/O's result. */
static enum backend_submit go_on(struct integrity_io *s)
{
	while (s->under_way_nr == 0) {
		if (s->result < 0 || s->step == INTEGRITY_MOVES)
			return end_request(s);
		begin_step(s, s->step == INTEGRITY_HELD && leaves_no_metadata(s->io)
				      ? INTEGRITY_FORGETS
				      : INTEGRITY_MOVES);
	}
	return BACKEND_QUEUED;
}

/* Of one that submit has answered with QUEUED. */
static void go_on_queued(struct integrity_io *s)
{
	if (go_on(s) == BACKEND_DONE)
		backend_io_complete(s->io, s->result);
}

static void integrity_held_look(struct task *task)
{
	struct integrity_device *d = container_of(task, struct integrity_device, held_task);
	struct integrity_range *range;

	while ((range = integrity_range_next(&d->ranges)))
		go_on_queued(container_of(range, struct integrity_io, range));
}

void integrity_child_done(struct backend_io *child)
{
	struct integrity_io *s = child->parent->priv;

	child_ended(s, child);
	s->under_way_nr--;
	go_on_queued(s);
}

/* ---- all of them ---- */

static bool integrity_enter(struct integrity_device *d, struct integrity_io *s)
{
	const struct backend_io *io = s->io;

	if (io->op == BACKEND_FLUSH)
		return true;
	s->range.start_bytes = io->offset_bytes;
	s->range.end_bytes = io->offset_bytes + io->length_bytes;
	s->range.modifies = io->op != BACKEND_READ;
	return integrity_range_enter(&d->ranges, &s->range);
}

enum backend_submit integrity_submit(struct backend_io *io)
{
	struct integrity_device *d = integrity_of(io);
	struct integrity_io *s = io->priv;

	if (with_metadata(io) && io->length_bytes > d->max_io_bytes) {
		io->result = -EIO;
		return BACKEND_DONE;
	}
	s->result = 0;
	set_step(s, INTEGRITY_HELD);
	if (integrity_enter(d, s))
		return go_on(s);
	counter_add(&d->held, 1);
	return BACKEND_QUEUED;
}

/* One more is under way until both have been asked: it may end meanwhile. */
void integrity_cancel(struct backend_io *io)
{
	struct integrity_io *s = io->priv;

	if (s->result == 0)
		s->result = -ECANCELED;
	s->under_way_nr++;
	backend_child_cancel(&io->child[INTEGRITY_DATA]);
	backend_child_cancel(&io->child[INTEGRITY_METADATA]);
	s->under_way_nr--;
	go_on_queued(s);
}
