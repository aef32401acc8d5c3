/*
 * How a request travels through a tree: submit, forward, pieces, complete. Reactor threads, but for
 * backend_io_where. Owns nothing: queues and their I/Os are io_queue.c's.
 *
 * Happy path: backend_io_submit checks the request with a few compares and calls the backend. A
 * filter copies it into its child's I/O of the same tag and submits that (backend_forward); the
 * child's completion completes the filter's I/O with the same result. A node that cuts requests
 * submits each child's I/O by itself (backend_child_submit) and hears of each end (child_done).
 *
 * Failure modes. A backend or submitter that breaks the contract of backend.h is a bug and asserts.
 * A request from outside that makes no sense (beyond the end, across blocks, writing to a read-only
 * device) fails here and never reaches the backend. A child that is BUSY: the I/O waits in the
 * child's queue and is submitted again when another one there is complete, which must come: BUSY is
 * legal only while one is in flight. So a node never sees BUSY of a child and never answers it. A
 * FLUSH that failed, of whatever node and whoever wanted it: owed.h.
 */
#include <errno.h>
#include <stdint.h>

#include "storage/foreign.h"
#include "storage/io_internal.h"
#include "storage/node.h"
#include "storage/sharing.h"
#include "storage/resize.h"
#include "storage/zones.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"

/* No backend may answer this: a DONE that leaves it there forgot to set a result. */
#define RESULT_UNSET INT32_MAX

_Thread_local char backend_this_thread;

/* ---- the checks around every submit, cancel and completion ---- */

static bool io_modifies(const struct backend_io *io)
{
	return io->op != BACKEND_READ && io->op != BACKEND_FLUSH;
}

static bool io_moves_data(const struct backend_io *io)
{
	return io->op <= BACKEND_WRITE || io->op == BACKEND_ZONE_APPEND;
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

/* The rest is the node's to look at: zones.h. */
static int io_check_manage(const struct backend_io *io, const struct backend_device *device)
{
	if (io->zone != BACKEND_ZONE_REPORT && (device->limits.caps & BACKEND_CAP_READ_ONLY))
		return -EIO;
	return io->zone < BACKEND_ZONE_ACTION_NR && io->offset_bytes < backend_size(device) ? 0
											    : -EIO;
}

/*
 * READ and WRITE of a device that allows both, as nearly all are: what io_admit asks, in short.
 * Where there is no limit (0) this says no.
 */
static inline bool io_is_plain(const struct backend_io *io, const struct backend_device *device)
{
	const struct backend_limits *limits = &device->limits;
	uint64_t block_mask = device->open_params.logical_block_bytes - 1;
	uint64_t end_bytes;

	return io->op <= BACKEND_WRITE && io->flags == 0 &&
	       !(limits->caps & BACKEND_CAP_READ_ONLY) &&
	       io->length_bytes - 1 < device->open_params.max_io_bytes &&
	       ((io->offset_bytes | io->length_bytes) & block_mask) == 0 &&
	       !__builtin_add_overflow(io->offset_bytes, io->length_bytes, &end_bytes) &&
	       end_bytes <= backend_size(device);
}

/* What io_is_plain cannot say: true when the request is the backend's, or io->result is the answer.
 */
static __attribute__((noinline)) bool io_admit(struct backend_io *io,
					       const struct backend_device *device)
{
	io->result = 0;
	if (io->op == BACKEND_FLUSH)
		return device->limits.caps & BACKEND_CAP_FLUSH;
	if (io->op >= BACKEND_OP_NR ||
	    (io->op >= BACKEND_ZONE_APPEND && device->limits.zones.bytes == 0))
		io->result = -EOPNOTSUPP;
	else if (io->op == BACKEND_ZONE_MANAGE)
		io->result = io_check_manage(io, device);
	else
		io->result = io_check_caps(io, device->limits.caps);
	if (io->result == 0 && io->op != BACKEND_ZONE_MANAGE)
		io->result = io_check_range(io, device);
	return io->result == 0;
}

/* Of what moves data: its bytes are where this backend can reach them. */
static inline bool io_can_reach(const struct backend_io *io, const struct backend_device *device,
				const struct backend *ops)
{
	uint32_t align_bytes = device->limits.dma_alignment_bytes;

	if (io->buf_index >= 0)
		return ops->data & BACKEND_DATA_FIXED;
	if (!io->buf)
		return ops->data & BACKEND_DATA_MOVES;
	return align_bytes == 0 || ((uintptr_t)io->buf & (align_bytes - 1)) == 0;
}

static __attribute__((cold, noinline)) enum backend_submit
io_not_queued(struct backend_io *io, const struct backend_queue *queue, enum backend_submit answer)
{
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

/* The request is checked: the backend's turn. */
static inline enum backend_submit hand_over(struct backend_io *io, struct backend_queue *queue,
					    const struct backend *ops)
{
	enum backend_submit answer;

	io->state = BACKEND_IO_SUBMITTING;
	io->result = RESULT_UNSET;
	queue->free_for = NULL;
	answer = ops->submit(io);
	queue->free_for = &backend_this_thread;
	/* It cannot have been completed: backend_io_complete asserts that. */
	ASSERT(io->state == BACKEND_IO_SUBMITTING);
	if (__builtin_expect(answer != BACKEND_QUEUED, 0))
		return io_not_queued(io, queue, answer);
	io->state = BACKEND_IO_QUEUED;
	queue->inflight++;
	return BACKEND_QUEUED;
}

/* Its end is judged, before who waits for it hears of it. */
static enum backend_submit hand_over_flush(struct backend_io *io, struct backend_queue *queue)
{
	enum backend_submit answer;

	backend_owed_flush_begin(io);
	answer = hand_over(io, queue, queue->device->ops);
	if (answer == BACKEND_QUEUED)
		io->state = BACKEND_IO_QUEUED_FLUSH;
	else if (answer == BACKEND_DONE)
		io->result = backend_owed_flush_judge(io, io->result);
	return answer;
}

/* resize.h. Its last block is the only one that the storage has in part. */
static int fill_last(struct backend_io *io, int result)
{
	const struct backend_device *device = io->queue->device;
	uint32_t zeroes_bytes = (uint32_t)(backend_size(device) - device->tail.found_bytes);

	if (!device->child)
		io->length_bytes += zeroes_bytes;
	if (result < 0)
		return result;
	return backend_data_put_zeroes(io, io->length_bytes - zeroes_bytes, zeroes_bytes);
}

/* A leaf is asked for what there is. */
static enum backend_submit hand_over_last(struct backend_io *io, struct backend_queue *queue)
{
	const struct backend_device *device = queue->device;
	uint32_t length_bytes = io->length_bytes;
	enum backend_submit answer;

	if (!device->child)
		io->length_bytes = (uint32_t)(device->tail.found_bytes - io->offset_bytes);
	answer = hand_over(io, queue, device->ops);
	if (answer == BACKEND_QUEUED)
		io->state = BACKEND_IO_QUEUED_LAST;
	else if (answer == BACKEND_DONE)
		io->result = fill_last(io, io->result);
	else
		io->length_bytes = length_bytes;
	return answer;
}

/* Every request, with every check. */
static __attribute__((noinline)) enum backend_submit submit_checked(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;
	const struct backend_device *device = queue->device;

	ASSERT(queue->free_for == &backend_this_thread);
	ASSERT(io->state == BACKEND_IO_IDLE);
	io->throttle_ns = 0;
	if (!io_is_plain(io, device) && !io_admit(io, device))
		return BACKEND_DONE;
	ASSERT(!io_moves_data(io) || io_can_reach(io, device, device->ops));
	if (io->op == BACKEND_FLUSH)
		return hand_over_flush(io, queue);
	if (backend_reads_last(io, device))
		return hand_over_last(io, queue);
	return hand_over(io, queue, device->ops);
}

/* What nearly all are, without a call but to the backend. */
enum backend_submit backend_io_submit(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;
	const struct backend_device *device = queue->device;
	const struct backend *ops = device->ops;

	if (__builtin_expect(queue->free_for != &backend_this_thread ||
				     io->state != BACKEND_IO_IDLE || !io_is_plain(io, device) ||
				     !io_can_reach(io, device, ops),
			     0))
		return submit_checked(io);
	io->throttle_ns = 0;
	return hand_over(io, queue, ops);
}

/* Every end, with every check. */
static __attribute__((noinline)) void complete_checked(struct backend_io *io, int result)
{
	struct backend_queue *queue = io->queue;

	/* Not even another I/O than the one that is submitted just now: its done would submit
	 * again, and so on without end. */
	ASSERT(queue->free_for == &backend_this_thread);
	ASSERT(backend_io_is_queued(io));
	ASSERT(queue->inflight > 0);
	ASSERT(result <= 0);
	queue->inflight--;
	io->result = result < 0 ? backend_errno_map(result) : 0;
	/* One that was cancelled says nothing of what is below. */
	if (io->state == BACKEND_IO_QUEUED_FLUSH && result != -ECANCELED)
		io->result = backend_owed_flush_judge(io, io->result);
	if (io->state == BACKEND_IO_QUEUED_LAST)
		io->result = fill_last(io, io->result);
	io->state = BACKEND_IO_IDLE;
	io->done(io);
}

void backend_io_complete(struct backend_io *io, int result)
{
	struct backend_queue *queue = io->queue;

	if (__builtin_expect(queue->free_for != &backend_this_thread ||
				     io->state != BACKEND_IO_QUEUED || queue->inflight == 0 ||
				     result != 0,
			     0)) {
		complete_checked(io, result);
		return;
	}
	queue->inflight--;
	io->state = BACKEND_IO_IDLE;
	io->result = 0;
	io->done(io);
}

static void foreign_ended(struct mail *mail)
{
	struct backend_foreign_end *end = container_of(mail, struct backend_foreign_end, mail);

	backend_io_complete(end->io, end->result);
}

void backend_io_complete_from_thread(struct backend_foreign_end *end, struct backend_io *io,
				     int result)
{
	end->io = io;
	end->result = result;
	reactor_post(io->queue->reactor, &end->mail, foreign_ended);
}

void backend_io_cancel(struct backend_io *io)
{
	struct backend_queue *queue = io->queue;

	ASSERT(queue->free_for == &backend_this_thread);
	/* It may have come to its end by itself just before. */
	if (backend_io_is_queued(io) && queue->device->ops->cancel)
		queue->device->ops->cancel(io);
}

/* ---- from a node to its children, and back ---- */

static inline void copy_request(struct backend_io *child, const struct backend_io *io)
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

/* The node's own wait stands in its I/O already. */
static inline void take_result(struct backend_io *io, const struct backend_io *child)
{
	io->result = child->result;
	io->throttle_ns += child->throttle_ns;
}

static inline void forward_complete(struct backend_io *child)
{
	struct backend_io *io = child->parent;

	take_result(io, child);
	backend_io_complete(io, io->result);
}

/* Submits those that wait, oldest first, until the child is BUSY again. */
static void submit_waiting(struct task *task)
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
			child->done(child);
	}
}

static inline void retry_waiting(struct backend_queue *queue)
{
	if (!list_empty(&queue->waiting))
		reactor_defer(queue->reactor, &queue->retry, submit_waiting);
}

void backend_forward_done(struct backend_io *child)
{
	retry_waiting(child->queue);
	forward_complete(child);
}

/* The `done` of what the node hears of. */
static void child_done(struct backend_io *child)
{
	retry_waiting(child->queue);
	child->queue->parent->device->ops->child_done(child);
}

/* Behind those that wait: first come, first served. */
static inline enum backend_submit submit_or_wait(struct backend_io *child)
{
	struct backend_queue *queue = child->queue;
	enum backend_submit submit = BACKEND_BUSY;

	if (list_empty(&queue->waiting))
		submit = backend_io_submit(child);
	if (submit != BACKEND_BUSY)
		return submit;
	list_push_back(&queue->waiting, &child->waiting);
	return BACKEND_QUEUED;
}

enum backend_submit backend_submit_or_wait(struct backend_io *io)
{
	return submit_or_wait(io);
}

void backend_retry_waiting(struct backend_queue *queue)
{
	retry_waiting(queue);
}

enum backend_submit backend_forward(struct backend_io *io)
{
	struct backend_io *child = io->child;
	enum backend_submit submit;

	copy_request(child, io);
	submit = submit_or_wait(child);
	if (submit == BACKEND_DONE)
		take_result(io, child);
	return submit;
}

void backend_forward_queued(struct backend_io *io)
{
	ASSERT(backend_io_is_queued(io));
	copy_request(io->child, io);
	if (submit_or_wait(io->child) == BACKEND_DONE)
		forward_complete(io->child);
}

enum backend_submit backend_forward_to(struct backend_io *io, unsigned child_idx,
				       uint64_t offset_bytes)
{
	struct backend_io *child = io->child + child_idx;
	enum backend_submit submit;

	copy_request(child, io);
	child->offset_bytes = offset_bytes;
	child->done = backend_forward_done;
	submit = submit_or_wait(child);
	if (submit == BACKEND_DONE)
		take_result(io, child);
	return submit;
}

void backend_piece(struct backend_io *child, const struct backend_io *io, uint32_t at_bytes,
		   uint32_t length_bytes, uint64_t offset_bytes)
{
	copy_request(child, io);
	child->offset_bytes = offset_bytes;
	child->length_bytes = length_bytes;
	/* An address, in memory or in a registered buffer; with the driver alone there is none. */
	if (io->buf || io->buf_index >= 0)
		child->buf = (void *)((uintptr_t)io->buf + at_bytes);
	child->driver_pos += at_bytes;
}

enum backend_submit backend_child_submit(struct backend_io *child)
{
	child->done = child_done;
	return submit_or_wait(child);
}

bool backend_child_cancel(struct backend_io *child)
{
	bool under_way = backend_io_is_queued(child);

	if (list_empty(&child->waiting)) {
		backend_io_cancel(child);
		return under_way;
	}
	list_remove(&child->waiting);
	child->result = backend_errno_map(-ECANCELED);
	child->done(child);
	return true;
}

void backend_forward_cancel(struct backend_io *io)
{
	backend_child_cancel(io->child);
}

const char *backend_wait_kind_name(enum backend_wait_kind kind)
{
	static const char *const name[BACKEND_WAIT_KIND_NR] = { "answer", "throttle", "delay" };

	return kind < BACKEND_WAIT_KIND_NR ? name[kind] : "?";
}

/* The first child that has it, or the request to what is shared; NULL: none. */
static const struct backend_io *queued_child(const struct backend_io *io)
{
	const struct backend_shared_ops *shared = io->queue->device->ops->shared;
	const struct backend_io *below = shared ? shared->io(io) : NULL;

	if (below && backend_io_is_queued(below))
		return below;
	for (unsigned i = 0; io->child && i < io->queue->device->child_nr; i++)
		if (backend_io_is_queued(&io->child[i]))
			return &io->child[i];
	return NULL;
}

const struct backend_device *backend_io_where(const struct backend_io *io,
					      struct backend_wait *ret_wait)
{
	struct backend_wait wait = { .kind = BACKEND_WAIT_ANSWER };
	const struct backend_device *device;
	const struct backend_io *below;

	if (!backend_io_is_queued(io))
		return NULL;
	while ((below = queued_child(io)))
		io = below;
	device = io->queue->device;
	if (device->ops->wait)
		wait = device->ops->wait(io);
	/* A node that keeps nothing for itself waits for a queue below. */
	if (!wait.words)
		wait.words =
			io->child ? "waiting for the busy backend below" : "waiting for an answer";
	*ret_wait = wait;
	return device;
}
