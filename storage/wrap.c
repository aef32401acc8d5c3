/*
 * The contract of backend.h, checked around every submit, cancel and completion. Reactor threads.
 *
 * Happy path: a few compares, then the backend. Two kinds of trouble are kept apart: a backend or a
 * submitter that breaks the contract is a bug and asserts; a request that comes from outside and
 * makes no sense (beyond the end, across blocks, writing to a read-only device) is answered with an
 * error and never reaches the backend.
 */
#include "storage/wrap.h"

#include <errno.h>
#include <stdint.h>

#include "storage/backend.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"

/* No backend may answer this: a DONE that leaves it there forgot to set a result. */
#define RESULT_UNSET INT32_MAX

static _Thread_local char this_thread;

const void *wrap_this_thread(void)
{
	return &this_thread;
}

void wrap_check_queue_close(const struct backend_queue *queue)
{
	ASSERT(queue->free_for == &this_thread);
	ASSERT(queue->inflight == 0);
}

static bool modifies(const struct backend_io *io)
{
	return io->op != BACKEND_READ && io->op != BACKEND_FLUSH;
}

static bool moves_data(const struct backend_io *io)
{
	return io->op == BACKEND_READ || io->op == BACKEND_WRITE;
}

static bool in_range(const struct backend_io *io, const struct backend_device *device)
{
	uint64_t size_bytes = backend_size(device);
	uint64_t block_mask = device->open_params.logical_block_bytes - 1;

	return io->length_bytes > 0 && io->offset_bytes <= size_bytes &&
	       io->length_bytes <= size_bytes - io->offset_bytes &&
	       ((io->offset_bytes | io->length_bytes) & block_mask) == 0;
}

static __attribute__((cold, noinline)) int outside(const struct backend_io *io,
						   const struct backend_device *device)
{
	log_limited(LOG_LEVEL_WARN, "request outside the device",
		    "device=%s op=%s offset_bytes=%llu length_bytes=%u", device->name,
		    backend_op_name(io->op), (unsigned long long)io->offset_bytes,
		    io->length_bytes);
	return -EIO;
}

static int check_range(const struct backend_io *io, const struct backend_device *device)
{
	uint32_t max_bytes = device->open_params.max_io_bytes;

	if (in_range(io, device) &&
	    !(moves_data(io) && max_bytes != 0 && io->length_bytes > max_bytes))
		return 0;
	return outside(io, device);
}

static int check_caps(const struct backend_io *io, uint32_t caps)
{
	if (modifies(io) && (caps & BACKEND_CAP_READ_ONLY))
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

/* READ and WRITE of a device that allows both, as nearly all are: what admit asks, in short. */
static inline bool is_plain(const struct backend_io *io, const struct backend_device *device)
{
	const struct backend_limits *limits = &device->limits;

	return io->op <= BACKEND_WRITE && io->flags == 0 &&
	       !(limits->caps & BACKEND_CAP_READ_ONLY) && in_range(io, device) &&
	       io->length_bytes <= device->open_params.max_io_bytes;
}

/* What is_plain cannot say: true when the request is the backend's, or io->result is the answer. */
static __attribute__((noinline)) bool admit(struct backend_io *io,
					    const struct backend_device *device)
{
	io->result = 0;
	if (io->op >= BACKEND_OP_NR)
		io->result = -EOPNOTSUPP;
	else if (io->op == BACKEND_FLUSH)
		return device->limits.caps & BACKEND_CAP_FLUSH;
	else
		io->result = check_caps(io, device->limits.caps);
	if (io->result == 0)
		io->result = check_range(io, device);
	return io->result == 0;
}

static void check_buffer(const struct backend_io *io, const struct backend_device *device)
{
	uint32_t align_bytes = device->limits.dma_alignment_bytes;

	if (!moves_data(io))
		return;
	if (!io->buf) {
		ASSERT(device->ops->data &
		       (io->buf_index >= 0 ? BACKEND_DATA_FIXED : BACKEND_DATA_MOVES));
		return;
	}
	ASSERT(align_bytes == 0 || ((uintptr_t)io->buf & (align_bytes - 1)) == 0);
}

static enum backend_submit submitted(struct backend_io *io, struct backend_queue *queue,
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
	if (!is_plain(io, device) && !admit(io, device))
		return BACKEND_DONE;
	check_buffer(io, device);
	io->state = BACKEND_IO_SUBMITTING;
	io->result = RESULT_UNSET;
	queue->free_for = NULL;
	answer = device->ops->submit(io);
	queue->free_for = &this_thread;
	return submitted(io, queue, answer);
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
