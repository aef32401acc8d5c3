/*
 * The scripted backend. Chance decides for each I/O whether it is done at once, later in the turn,
 * after a time, only when it is cancelled, or not taken (BUSY), and whether it fails. The defects
 * of world.h that a backend can have are built in here. Its medium is the world's, and outlives it.
 */
#include "test/sim/scripted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "reactor/reactor.h"
#include "test/sim/client.h"
#include "test/sim/ublk_model.h"
#include "test/sim/zones/client_zones.h"

struct scripted_device {
	uint8_t *data;
	struct list_node inflight;
};

struct scripted_queue {
	struct op leak;
};

struct scripted_io {
	struct backend_io *io;
	struct list_node inflight;
	struct timer timer;
	struct task task;
	uint64_t start_seq;
	int result;
	bool lost; /* the defect: never to be completed */
};

static const struct scripted_config *config_of(const struct backend_io *io)
{
	return io->queue->device->config;
}

/* The compiler shall not see that nobody needs it. */
static void *volatile leak;

/* Of a device of that size, or of the next smaller one that it can have. */
static uint64_t leaf_bytes(const struct scripted_config *config, uint64_t device_bytes)
{
	return (device_bytes - device_bytes % config->row_bytes) / sim_part_leaves(&config->part) +
	       config->extra_bytes;
}

static uint64_t medium_bytes(const struct storage *st)
{
	/* What is kept is no shorter than any device of it was. */
	if (st->keeps)
		return st->max_bytes;
	return st->medium_bytes ? st->medium_bytes : st->size_bytes;
}

static int scripted_open(struct backend_device *device)
{
	const struct scripted_config *config = device->config;
	struct scripted_device *s = device->priv;

	config->st->leaf = device;
	if (sim_fault(FAULT_BACKEND_OPEN))
		return backend_fail(device, -ENXIO, "the script says no");
	list_init(&s->inflight);
	s->data = config->st->medium;
	if (!config->st->keeps)
		memset(s->data, 0, config->st->max_bytes);
	if (sim_defect(DEFECT_LEAKED_MEMORY))
		leak = malloc(64);
	leak = NULL;
	device->limits = (struct backend_limits){
		.size_bytes = leaf_bytes(config, medium_bytes(config->st)),
		.caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES |
			(config->has_cache ? BACKEND_CAP_FLUSH : 0) |
			(config->has_fua ? BACKEND_CAP_FUA : 0) |
			(device->open_params.read_only ? BACKEND_CAP_READ_ONLY : 0),
		.max_io_bytes = config->max_io_bytes,
	};
	return 0;
}

static void leaked(struct op *op, int res, uint32_t cqe_flags)
{
	(void)op;
	(void)res;
	(void)cqe_flags;
}

/* Of what opens or closes the device, on the control reactor: its tags are nobody's. */
static bool is_of_visit(const struct backend_queue *queue)
{
	return queue->reactor->event_fd >= 0;
}

static bool is_visit(const struct backend_io *io)
{
	return is_of_visit(io->queue);
}

/* Here, for what a visit may fail. */
static bool queue_fault(const struct backend_queue *queue, enum fault fault)
{
	const struct scripted_config *config = queue->device->config;

	if (!sim_fault(fault))
		return false;
	config->st->visit_faults += is_of_visit(queue);
	return true;
}

static int scripted_queue_init(struct backend_queue *queue)
{
	struct scripted_queue *q = queue->priv;
	struct op_owner owner = { .kind = OP_KIND_BACKEND };

	if (queue_fault(queue, FAULT_BACKEND_QUEUE_INIT))
		return -ENOMEM;
	return sim_defect(DEFECT_LEAKED_OP) ? op_init(&q->leak, queue->reactor, owner, leaked) : 0;
}

static void scripted_queue_fini(struct backend_queue *queue)
{
	/* The queue's memory goes; a leaked op must not be followed there. */
	struct scripted_queue *q = queue->priv;

	if (q->leak.reactor)
		q->leak.reactor->slot[user_data_slot(q->leak.user_data)] = NULL;
}

static void by_timer(struct timer *timer);

static int scripted_io_init(struct backend_io *io)
{
	struct scripted_io *s = io->priv;

	s->io = io;
	list_init(&s->inflight);
	timer_init(&s->timer, by_timer);
	return queue_fault(io->queue, FAULT_BACKEND_IO_INIT) ? -ENOMEM : 0;
}

static void scripted_io_fini(struct backend_io *io)
{
	struct scripted_io *s = io->priv;

	if (s->timer.armed)
		sim_fail("an I/O is freed while the backend has it");
}

/* NULL: an I/O of a node's own. */
static struct client_rq *request_of(const struct backend_io *io)
{
	const struct storage *st = config_of(io)->st;
	struct client_rq *rq = NULL;

	if (st->user && !is_visit(io))
		rq = model_rq(st->user, io->queue->idx, io->tag);
	return rq && io->op == BACKEND_FLUSH && !client_rq_flushes(rq) ? NULL : rq;
}

static void note(const struct backend_io *io, int err, bool must_fail)
{
	struct storage *st = config_of(io)->st;
	struct client_rq *rq = request_of(io);

	if (rq)
		client_rq_note(rq, err, must_fail);
	else if (is_visit(io))
		st->visit_faults++;
	else if (st->zones && st->user)
		client_zones_note(st->user->client, err);
}

/* Not the whole request: there may be more of it here, later, and in other leaves. */
static bool is_piece(const struct backend_io *io)
{
	const struct storage *st = config_of(io)->st;
	const struct client_rq *rq = request_of(io);

	if (io->op == BACKEND_FLUSH)
		return st->has_tree;
	return rq && (uint64_t)rq->nr_sectors << 9 != io->length_bytes;
}

/* Where the bytes are of an I/O that lies inside a chunk of each level. */
static uint8_t *data_of(const struct backend_io *io)
{
	const struct scripted_config *config = config_of(io);
	const struct scripted_device *device = io->queue->device->priv;
	uint64_t at = sim_part_place(&config->part, io->offset_bytes);

	if (sim_part_place(&config->part, io->offset_bytes + io->length_bytes - 1) !=
	    at + io->length_bytes - 1)
		sim_fail("%s: %u bytes at %llu cross a chunk", io->queue->device->name,
			 io->length_bytes, (unsigned long long)io->offset_bytes);
	return device->data + at;
}

/* To the end of the device's bytes that lie behind those at offset_bytes of the leaf. */
static uint64_t run_bytes(const struct scripted_config *config, uint64_t offset_bytes,
			  uint64_t end_bytes)
{
	return config->part.level_nr > 0 ? config->st->block_bytes : end_bytes - offset_bytes;
}

/* What the block layer must be told for it. */
static int plan_error(struct backend_io *io)
{
	static const struct {
		int err, told;
	} errors[] = {
		{ -EIO, -EIO },	      { -ENOSPC, -ENOSPC },	    { -ETIMEDOUT, -ETIMEDOUT },
		{ -ENOMEM, -ENOMEM }, { -EOPNOTSUPP, -EOPNOTSUPP }, { -EBADF, -EIO },
		{ -ENODEV, -EIO },    { -EDQUOT, -ENOSPC },	    { -ECONNRESET, -EIO },
	};
	size_t i = sim_below(ARRAY_SIZE(errors));

	/* Zones are as after a power cut then: test/cuts. */
	if (io->op == BACKEND_FLUSH && config_of(io)->st->zones)
		return 0;
	if (!sim_fault(FAULT_BACKEND_ERROR))
		return 0;
	note(io, errors[i].told, true);
	if (is_piece(io))
		sim_saw(FAULT_TREE_PIECE_ERROR);
	if (sim_defect_always(DEFECT_SWALLOWED_ERROR))
		return 0;
	if (sim_defect_always(DEFECT_WRONG_ERRNO))
		return errors[i].told == -EIO ? -ENOSPC : -EIO;
	return errors[i].err;
}

/* What an I/O has changed, in the device. */
static void changed(const struct backend_io *io, uint64_t at_bytes, uint64_t bytes)
{
	const struct scripted_config *config = config_of(io);
	bool durable = io->flags & BACKEND_FUA && !sim_defect_always(DEFECT_FUA_EARLY);

	storage_dirty(config->st, at_bytes, bytes);
	if (durable || !config->has_cache)
		storage_clean(config->st, at_bytes, bytes);
}

/* DISCARD and WRITE_ZEROES: one range of the leaf, in a tree many of the device. */
static void fill_data(const struct backend_io *io)
{
	const struct scripted_config *config = config_of(io);
	const struct scripted_device *device = io->queue->device->priv;
	uint64_t end = io->offset_bytes + io->length_bytes, bytes;

	for (uint64_t at = io->offset_bytes; at < end; at += bytes) {
		uint64_t place = sim_part_place(&config->part, at);

		bytes = run_bytes(config, at, end);
		if (!sim_defect_always(DEFECT_LOST_WRITE))
			memset(device->data + place, io->op == BACKEND_DISCARD ? 0xdd : 0, bytes);
		changed(io, place, bytes);
	}
}

/* Returns 0 or -EIO: the bytes could not be had, all of them. */
static int write_data(struct backend_io *io)
{
	uint8_t *at = data_of(io);
	int ret = 0;

	if (!sim_defect_always(DEFECT_LOST_WRITE))
		ret = backend_data_get(io, 0, at, io->length_bytes);
	changed(io, (uint64_t)(at - config_of(io)->st->medium), io->length_bytes);
	return ret;
}

static int read_data(struct backend_io *io)
{
	uint32_t half = io->length_bytes / 2;
	uint8_t *at = data_of(io);
	int ret;

	/* Backends put it piece by piece. */
	ret = backend_data_put(io, 0, at, half);
	if (ret == 0)
		ret = backend_data_put(io, half, at + half, io->length_bytes - half);
	if (ret == 0 && sim_defect_always(DEFECT_WRONG_DATA))
		((uint8_t *)io->buf)[sim_below(io->length_bytes)] ^= 1;
	return ret;
}

/* The effect of an I/O, at its end. */
static void perform(struct scripted_io *s)
{
	struct backend_io *io = s->io;
	const struct scripted_config *config = config_of(io);

	if (s->result < 0 && io->op == BACKEND_FLUSH)
		config->st->flush_failed_seq = storage_next_seq();
	if (s->result < 0)
		return;
	switch (io->op) {
	case BACKEND_READ:
		s->result = read_data(io);
		break;
	case BACKEND_WRITE:
		s->result = write_data(io);
		break;
	case BACKEND_FLUSH:
		if (!sim_defect_always(DEFECT_FLUSH_EARLY))
			storage_flush_part(config->st, &config->part, s->start_seq);
		break;
	default:
		fill_data(io);
	}
}

static void complete(struct scripted_io *s)
{
	perform(s);
	list_remove(&s->inflight);
	backend_io_complete(s->io, s->result);
	if (sim_defect(DEFECT_DOUBLE_COMPLETE))
		backend_io_complete(s->io, s->result);
}

static void by_timer(struct timer *timer)
{
	complete(container_of(timer, struct scripted_io, timer));
}

static void by_task(struct task *task)
{
	complete(container_of(task, struct scripted_io, task));
}

static enum backend_submit queued(struct scripted_io *s)
{
	const struct scripted_device *device = s->io->queue->device->priv;

	list_push_back((struct list_node *)(uintptr_t)&device->inflight, &s->inflight);
	return BACKEND_QUEUED;
}

static enum backend_submit scripted_submit(struct backend_io *io)
{
	struct scripted_io *s = io->priv;
	struct reactor *r = io->queue->reactor;

	if (io->queue->inflight > 0 && sim_fault(FAULT_BACKEND_BUSY))
		return BACKEND_BUSY;
	if (sim_one_in(100) && sim_defect(DEFECT_ALLOCATION))
		free(strdup("for an I/O"));
	if (is_piece(io))
		sim_saw(io->op == BACKEND_FLUSH ? FAULT_TREE_FLUSH : FAULT_TREE_PIECE);
	s->start_seq = storage_next_seq();
	s->result = plan_error(io);
	s->lost = sim_one_in(100) && sim_defect(DEFECT_LOST_TAG);
	if (s->lost || queue_fault(io->queue, FAULT_BACKEND_HANG))
		return queued(s);
	switch (sim_below(4)) {
	case 0:
		perform(s);
		io->result = s->result;
		return BACKEND_DONE;
	case 1:
		reactor_defer(r, &s->task, by_task);
		return queued(s);
	default:
		reactor_timer_arm(r, &s->timer, r->now_ns + sim_skewed(NS_PER_US, 5 * NS_PER_MS));
		return queued(s);
	}
}

static bool task_queued(const struct scripted_io *s)
{
	return s->task.node.next && !list_empty(&s->task.node);
}

/* At once, a little later, or not at all when it comes to an end by itself. */
static void scripted_cancel(struct backend_io *io)
{
	struct scripted_io *s = io->priv;
	struct reactor *r = io->queue->reactor;
	bool hangs = !s->timer.armed && !task_queued(s);

	if (sim.now_ns > config_of(io)->st->cancel_until_ns && !is_visit(io))
		sim_fail("an I/O is cancelled, but no stop is late");
	if (s->lost || task_queued(s) || (!hangs && sim_one_in(3)))
		return;
	if (is_piece(io))
		sim_saw(FAULT_TREE_PIECE_CANCELLED);
	if (s->result == 0) {
		note(io, -ECANCELED, false);
		s->result = -ECANCELED;
	}
	reactor_timer_cancel(r, &s->timer);
	if (sim_one_in(2))
		complete(s);
	else
		reactor_defer(r, &s->task, by_task);
}

/* ---- resizing ---- */

static int scripted_grow(struct backend_device *device, uint64_t size_bytes)
{
	const struct scripted_config *config = device->config;

	if (size_bytes > leaf_bytes(config, config->st->max_bytes))
		sim_fail("the backend is to grow beyond what was asked for");
	if (sim_fault(FAULT_BACKEND_GROW))
		return backend_fail(device, -ENOSPC, "the script has no room");
	return 0;
}

static enum backend_usage scripted_usage(struct backend_device *device, uint64_t start_bytes,
					 uint64_t end_bytes)
{
	const struct scripted_config *config = device->config;
	const struct scripted_device *s = device->priv;

	for (uint64_t i = start_bytes; i < end_bytes; i++)
		if (s->data[sim_part_place(&config->part, i)])
			return sim_one_in(8) ? BACKEND_USAGE_UNKNOWN : BACKEND_USED;
	return BACKEND_UNUSED;
}

static void scripted_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	uint64_t bytes;
	const struct scripted_config *config = device->config;
	const struct scripted_device *s = device->priv;

	list_for_each (node, &s->inflight) {
		const struct backend_io *io = list_entry(node, struct scripted_io, inflight)->io;

		if (io->op != BACKEND_FLUSH && io->offset_bytes + io->length_bytes > start_bytes)
			sim_fail("the backend is cut off under an I/O at %llu",
				 (unsigned long long)io->offset_bytes);
	}
	for (uint64_t at = start_bytes; at < end_bytes; at += bytes) {
		bytes = run_bytes(config, at, end_bytes);
		memset(s->data + sim_part_place(&config->part, at), 0, bytes);
	}
}

static const struct backend_resize scripted_resize = {
	.grow = scripted_grow,
	.usage = scripted_usage,
	.shrink = scripted_shrink,
};

#define SCRIPTED_OPS                                                                               \
	.config_bytes = sizeof(struct scripted_config),                                            \
	.device_bytes = sizeof(struct scripted_device),                                            \
	.queue_bytes = sizeof(struct scripted_queue), .io_bytes = sizeof(struct scripted_io),      \
	.open = scripted_open, .queue_init = scripted_queue_init,                                  \
	.queue_fini = scripted_queue_fini, .io_init = scripted_io_init,                            \
	.io_fini = scripted_io_fini, .submit = scripted_submit, .cancel = scripted_cancel,         \
	.resize = &scripted_resize

const struct backend scripted_backend = {
	.name = "scripted",
	.summary = "the simulator's own",
	.data = BACKEND_DATA_SHMEM,
	SCRIPTED_OPS,
};

const struct backend scripted_mover = {
	.name = "scripted_mover",
	.summary = "the simulator's own, for user copy",
	.data = BACKEND_DATA_MOVES | BACKEND_DATA_SHMEM,
	SCRIPTED_OPS,
};
