/*
 * How a request travels through a filter tree: submit, forward, complete, and where its bytes are.
 * Owns the queues, each one allocation with the private areas of all its I/Os: nothing is allocated
 * once a queue is open. Reactor threads, but for backend_io_where.
 *
 * Happy path: backend_io_submit checks the request with a few compares and calls the backend. A
 * filter copies it into its child's I/O of the same tag and submits that (backend_forward); the
 * child's completion completes the filter's I/O with the same result.
 *
 * Failure modes. A backend or submitter that breaks the contract of backend.h is a bug and asserts.
 * A request from outside that makes no sense (beyond the end, across blocks, writing to a read-only
 * device) fails here and never reaches the backend. A child that is BUSY: the I/O waits in the
 * filter's queue and is submitted again when another one of the child is complete, which must come:
 * BUSY is legal only while one is in flight. So a filter never sees BUSY and never answers it. The
 * driver copies less than asked for (memory of ours that the system cannot give any more): EIO.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "storage/backend.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "reactor/ring.h"

/* No backend may answer this: a DONE that leaves it there forgot to set a result. */
#define RESULT_UNSET INT32_MAX

/* Its address is the calling thread's alone while it lives. */
static _Thread_local char this_thread;

/* ---- the checks around every submit, cancel and completion ---- */

static bool io_modifies(const struct backend_io *io)
{
	return io->op != BACKEND_READ && io->op != BACKEND_FLUSH;
}

static bool io_moves_data(const struct backend_io *io)
{
	return io->op == BACKEND_READ || io->op == BACKEND_WRITE;
}

static bool io_in_range(const struct backend_io *io, const struct backend_device *device)
{
	uint64_t size_bytes = backend_size(device);
	uint64_t block_mask = device->open_params.logical_block_bytes - 1;

	return io->length_bytes > 0 && io->offset_bytes <= size_bytes &&
	       io->length_bytes <= size_bytes - io->offset_bytes &&
	       ((io->offset_bytes | io->length_bytes) & block_mask) == 0;
}

static __attribute__((cold, noinline)) int io_refuse_range(const struct backend_io *io,
							   const struct backend_device *device)
{
	log_limited(LOG_LEVEL_WARN, "request outside the device",
		    "device=%s op=%s offset_bytes=%llu length_bytes=%u", device->name,
		    backend_op_name(io->op), (unsigned long long)io->offset_bytes,
		    io->length_bytes);
	return -EIO;
}

static int io_check_range(const struct backend_io *io, const struct backend_device *device)
{
	uint32_t max_bytes = device->open_params.max_io_bytes;

	if (io_in_range(io, device) &&
	    !(io_moves_data(io) && max_bytes != 0 && io->length_bytes > max_bytes))
		return 0;
	return io_refuse_range(io, device);
}

static int io_check_caps(const struct backend_io *io, uint32_t caps)
{
	if (io_modifies(io) && (caps & BACKEND_CAP_READ_ONLY))
		return -EIO;
	if (io->op == BACKEND_DISCARD && !(caps & BACKEND_CAP_DISCARD))
		return -EOPNOTSUPP;
	if (io->op == BACKEND_WRITE_ZEROES && !(caps & BACKEND_CAP_WRITE_ZEROES))
		return -EOPNOTSUPP;
	/* Without a volatile cache every completed write is as durable as it gets. */
	if ((io->flags & BACKEND_FUA) && (caps & BACKEND_CAP_FLUSH) && !(caps & BACKEND_CAP_FUA))
		return -EOPNOTSUPP;
	return 0;
}

/* READ and WRITE of a device that allows both, as nearly all are: what io_admit asks, in short. */
static inline bool io_is_plain(const struct backend_io *io, const struct backend_device *device)
{
	const struct backend_limits *limits = &device->limits;

	return io->op <= BACKEND_WRITE && io->flags == 0 &&
	       !(limits->caps & BACKEND_CAP_READ_ONLY) && io_in_range(io, device) &&
	       io->length_bytes <= device->open_params.max_io_bytes;
}

/* What io_is_plain cannot say: true when the request is the backend's, or io->result is the answer.
 */
static __attribute__((noinline)) bool io_admit(struct backend_io *io,
					       const struct backend_device *device)
{
	io->result = 0;
	if (io->op >= BACKEND_OP_NR)
		io->result = -EOPNOTSUPP;
	else if (io->op == BACKEND_FLUSH)
		return device->limits.caps & BACKEND_CAP_FLUSH;
	else
		io->result = io_check_caps(io, device->limits.caps);
	if (io->result == 0)
		io->result = io_check_range(io, device);
	return io->result == 0;
}

static void io_check_buffer(const struct backend_io *io, const struct backend_device *device)
{
	uint32_t align_bytes = device->limits.dma_alignment_bytes;

	if (!io_moves_data(io))
		return;
	if (!io->buf) {
		ASSERT(device->ops->data &
		       (io->buf_index >= 0 ? BACKEND_DATA_FIXED : BACKEND_DATA_MOVES));
		return;
	}
	ASSERT(align_bytes == 0 || ((uintptr_t)io->buf & (align_bytes - 1)) == 0);
}

static enum backend_submit io_submitted(struct backend_io *io, struct backend_queue *queue,
					enum backend_submit answer)
{
	/* It cannot have been completed: backend_io_complete asserts that. */
	ASSERT(io->state == BACKEND_IO_SUBMITTING);
	if (__builtin_expect(answer == BACKEND_QUEUED, 1)) {
		io->state = BACKEND_IO_QUEUED;
		queue->inflight++;
		return answer;
	}
	switch (answer) {
	case BACKEND_DONE:
		ASSERT(io->result <= 0);
		if (io->result < 0)
			io->result = backend_errno_map(io->result);
		io->state = BACKEND_IO_IDLE;
		return answer;
	case BACKEND_QUEUED:
		break;
	case BACKEND_BUSY:
		/* With nothing in flight nobody would ever submit it again. */
		ASSERT(queue->inflight > 0);
		io->state = BACKEND_IO_IDLE;
		return answer;
	}
	ASSERT(!"submit answers DONE, QUEUED or BUSY");
	return answer;
}

enum backend_submit backend_io_submit(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;
	const struct backend_device *device = queue->device;
	enum backend_submit answer;

	ASSERT(queue->free_for == &this_thread);
	ASSERT(io->state == BACKEND_IO_IDLE);
	io->throttle_ns = 0;
	if (!io_is_plain(io, device) && !io_admit(io, device))
		return BACKEND_DONE;
	io_check_buffer(io, device);
	io->state = BACKEND_IO_SUBMITTING;
	io->result = RESULT_UNSET;
	queue->free_for = NULL;
	answer = device->ops->submit(io);
	queue->free_for = &this_thread;
	return io_submitted(io, queue, answer);
}

void backend_io_complete(struct backend_io *io, int result)
{
	struct backend_queue *queue = io->queue;

	/* Not even another I/O than the one that is submitted just now: its done would submit
	 * again, and so on without end. */
	ASSERT(queue->free_for == &this_thread);
	ASSERT(io->state == BACKEND_IO_QUEUED);
	ASSERT(queue->inflight > 0);
	ASSERT(result <= 0);
	queue->inflight--;
	io->state = BACKEND_IO_IDLE;
	io->result = result < 0 ? backend_errno_map(result) : 0;
	io->done(io);
}

void backend_io_cancel(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;

	ASSERT(queue->free_for == &this_thread);
	/* It may have come to its end by itself just before. */
	if (io->state == BACKEND_IO_QUEUED && queue->device->ops->cancel)
		queue->device->ops->cancel(io);
}

/* ---- from a filter to its child, and back ---- */

static void copy_request(struct backend_io *child, const struct backend_io *io)
{
	child->op = io->op;
	child->flags = io->flags;
	child->offset_bytes = io->offset_bytes;
	child->length_bytes = io->length_bytes;
	child->buf = io->buf;
	child->buf_index = io->buf_index;
	child->driver_fd = io->driver_fd;
	child->driver_pos = io->driver_pos;
}

/* The filter's own wait stands in its I/O already. */
static void forward_take_result(struct backend_io *io)
{
	io->result = io->child->result;
	io->throttle_ns += io->child->throttle_ns;
}

static void forward_complete(struct backend_io *io)
{
	forward_take_result(io);
	backend_io_complete(io, io->result);
}

/* Submits those that wait, oldest first, until the child is BUSY again. */
static void forward_waiting(struct task *task)
{
	struct backend_queue *queue = container_of(task, struct backend_queue, retry);

	while (!list_empty(&queue->waiting)) {
		struct backend_io *child =
			list_entry(queue->waiting.next, struct backend_io, waiting);
		enum backend_submit submit = backend_io_submit(child);

		if (submit == BACKEND_BUSY)
			return;
		list_remove(&child->waiting);
		if (submit == BACKEND_DONE)
			forward_complete(child->parent);
	}
}

/* The `done` of every I/O below a filter. */
static void child_done(struct backend_io *child)
{
	struct backend_queue *queue = child->parent->queue;

	if (!list_empty(&queue->waiting))
		reactor_defer(queue->reactor, &queue->retry, forward_waiting);
	forward_complete(child->parent);
}

/* Behind those that wait: first come, first served. */
static enum backend_submit forward_submit(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;
	enum backend_submit submit = BACKEND_BUSY;

	copy_request(io->child, io);
	if (list_empty(&queue->waiting))
		submit = backend_io_submit(io->child);
	if (submit != BACKEND_BUSY)
		return submit;
	list_push_back(&queue->waiting, &io->child->waiting);
	return BACKEND_QUEUED;
}

enum backend_submit backend_forward(struct backend_io *io)
{
	enum backend_submit submit = forward_submit(io);

	if (submit == BACKEND_DONE)
		forward_take_result(io);
	return submit;
}

void backend_forward_queued(struct backend_io *io)
{
	ASSERT(io->state == BACKEND_IO_QUEUED);
	if (forward_submit(io) == BACKEND_DONE)
		forward_complete(io);
}

void backend_forward_cancel(struct backend_io *io)
{
	struct backend_io *child = io->child;

	if (list_empty(&child->waiting)) {
		backend_io_cancel(child);
		return;
	}
	list_remove(&child->waiting);
	backend_io_complete(io, -ECANCELED);
}

static uint8_t io_state(const struct backend_io *io)
{
	return __atomic_load_n(&io->state, __ATOMIC_RELAXED);
}

const char *backend_wait_kind_name(enum backend_wait_kind kind)
{
	static const char *const name[BACKEND_WAIT_KIND_NR] = { "answer", "throttle", "delay" };

	return kind < BACKEND_WAIT_KIND_NR ? name[kind] : "?";
}

const char *backend_io_where(const struct backend_io *io, struct backend_wait *ret_wait)
{
	struct backend_wait wait = { .kind = BACKEND_WAIT_ANSWER };
	const struct backend *ops;

	if (io_state(io) != BACKEND_IO_QUEUED)
		return NULL;
	while (io->child && io_state(io->child) == BACKEND_IO_QUEUED)
		io = io->child;
	ops = io->queue->device->ops;
	if (ops->wait)
		wait = ops->wait(io);
	/* A filter that keeps nothing for itself waits in the list above. */
	if (!wait.words)
		wait.words =
			io->child ? "waiting for the busy backend below" : "waiting for an answer";
	*ret_wait = wait;
	return ops->name;
}

/* ---- queues and their I/Os ---- */

void *backend_area_alloc(size_t bytes)
{
	void *area = aligned_alloc(BACKEND_AREA_ALIGN, round_up(bytes, BACKEND_AREA_ALIGN));

	if (area)
		memset(area, 0, round_up(bytes, BACKEND_AREA_ALIGN));
	return area;
}

/* A filter's private area has the child's I/O behind it. */
static size_t child_io_offset(const struct backend *ops)
{
	return round_up(ops->io_bytes, BACKEND_AREA_ALIGN);
}

static size_t io_area_bytes(const struct backend *ops)
{
	size_t child_bytes = ops->is_filter ? sizeof(struct backend_io) : 0;

	return child_io_offset(ops) + round_up(child_bytes, BACKEND_AREA_ALIGN);
}

size_t backend_spec_io_bytes(const struct backend_spec *spec)
{
	size_t bytes = 0;

	for (; spec; spec = spec->child)
		bytes += io_area_bytes(spec->ops);
	return bytes;
}

static struct backend_queue *queue_alloc(struct backend_device *device, unsigned depth)
{
	size_t head_bytes = round_up(sizeof(struct backend_queue), BACKEND_AREA_ALIGN);
	size_t queue_bytes = round_up(device->ops->queue_bytes, BACKEND_AREA_ALIGN);
	struct backend_queue *queue =
		backend_area_alloc(head_bytes + queue_bytes + depth * io_area_bytes(device->ops));

	if (!queue)
		return NULL;
	queue->device = device;
	queue->priv = (uint8_t *)queue + head_bytes;
	queue->io_priv = (uint8_t *)queue->priv + queue_bytes;
	return queue;
}

int backend_queue_open(struct backend_queue **ret_queue, struct backend_device *device,
		       struct reactor *reactor, unsigned idx, unsigned depth)
{
	struct backend_queue *queue = queue_alloc(device, depth);
	int ret = 0;

	if (!queue)
		return -ENOMEM;
	queue->reactor = reactor;
	queue->idx = (uint16_t)idx;
	queue->depth = (uint16_t)depth;
	queue->free_for = &this_thread;
	list_init(&queue->waiting);
	if (device->child)
		ret = backend_queue_open(&queue->child, device->child, reactor, idx, depth);
	if (ret < 0) {
		free(queue);
		return ret;
	}
	if (device->ops->queue_init)
		ret = device->ops->queue_init(queue);
	if (ret < 0) {
		backend_queue_close(queue);
		return ret;
	}
	*ret_queue = queue;
	return 0;
}

void backend_queue_close(struct backend_queue *queue)
{
	while (queue) {
		struct backend_queue *child = queue->child;

		ASSERT(queue->free_for == &this_thread);
		ASSERT(queue->inflight == 0);
		if (queue->device->ops->queue_fini)
			queue->device->ops->queue_fini(queue);
		task_cancel(&queue->retry);
		free(queue);
		queue = child;
	}
}

static int child_io_init(struct backend_io *io)
{
	const struct backend *ops = io->queue->device->ops;

	if (!ops->is_filter)
		return 0;
	io->child = (struct backend_io *)((uint8_t *)io->priv + child_io_offset(ops));
	io->child->parent = io;
	list_init(&io->child->waiting);
	return backend_io_init(io->child, io->queue->child, io->tag, child_done);
}

int backend_io_init(struct backend_io *io, struct backend_queue *queue, unsigned tag,
		    backend_done_fn *done)
{
	const struct backend *ops = queue->device->ops;
	int ret;

	ASSERT(tag < queue->depth);
	io->queue = queue;
	io->done = done;
	io->tag = (uint16_t)tag;
	io->state = BACKEND_IO_IDLE;
	io->priv = queue->io_priv + tag * io_area_bytes(ops);
	ret = child_io_init(io);
	if (ret == 0 && ops->io_init) {
		ret = ops->io_init(io);
		if (ret < 0 && io->child)
			backend_io_fini(io->child);
	}
	/* A zeroed I/O may be finished without having been tied. */
	if (ret < 0)
		io->queue = NULL;
	return ret;
}

void backend_io_fini(struct backend_io *io)
{
	if (!io->queue)
		return;
	ASSERT(io->state == BACKEND_IO_IDLE);
	if (io->queue->device->ops->io_fini)
		io->queue->device->ops->io_fini(io);
	if (io->child)
		backend_io_fini(io->child);
	io->queue = NULL;
}

/* ---- bytes ---- */

/*
 * As long as most requests: the driver walks through a request's pages from its start for every
 * piece. Never written, so not const: that would put them into the program's file.
 */
#define ZEROES_BYTES MIB(1)

static uint8_t zeroes[ZEROES_BYTES];

int backend_data_to_driver(const struct backend_io *io, uint32_t at_bytes, const void *from,
			   size_t bytes)
{
	ssize_t n = ring_pwrite(io->driver_fd, from, bytes, io->driver_pos + at_bytes);

	return n == (ssize_t)bytes ? 0 : -EIO;
}

int backend_data_from_driver(const struct backend_io *io, uint32_t at_bytes, void *to, size_t bytes)
{
	ssize_t n = ring_pread(io->driver_fd, to, bytes, io->driver_pos + at_bytes);

	return n == (ssize_t)bytes ? 0 : -EIO;
}

int backend_data_put(struct backend_io *io, uint32_t at_bytes, const void *from, size_t bytes)
{
	if (!io->buf)
		return backend_data_to_driver(io, at_bytes, from, bytes);
	memcpy((uint8_t *)io->buf + at_bytes, from, bytes);
	return 0;
}

int backend_data_put_zeroes(struct backend_io *io, uint32_t at_bytes, size_t bytes)
{
	int ret = 0;

	if (io->buf) {
		memset((uint8_t *)io->buf + at_bytes, 0, bytes);
		return 0;
	}
	while (bytes > 0 && ret == 0) {
		size_t now_bytes = MIN(bytes, ZEROES_BYTES);

		ret = backend_data_put(io, at_bytes, zeroes, now_bytes);
		at_bytes += (uint32_t)now_bytes;
		bytes -= now_bytes;
	}
	return ret;
}

int backend_data_get(struct backend_io *io, uint32_t at_bytes, void *to, size_t bytes)
{
	if (!io->buf)
		return backend_data_from_driver(io, at_bytes, to, bytes);
	memcpy(to, (uint8_t *)io->buf + at_bytes, bytes);
	return 0;
}

int backend_errno_map(int err)
{
	switch (err) {
	case -ENOSPC:
	case -EIO:
	case -EOPNOTSUPP:
	case -ETIMEDOUT:
	case -ENOLINK:
	case -EREMOTEIO:
	case -ENODATA:
	case -EILSEQ:
	case -ENOMEM:
		return err;
	case -EDQUOT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}
