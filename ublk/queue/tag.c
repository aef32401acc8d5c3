/*
 * One request, from the driver to the backend and back. Runs on the queue's reactor.
 *
 * Happy path: a tag's CQE says that the driver has put a request into its descriptor; the request
 * goes to the backend; when that is done the tag is noted, and at the end of the turn all noted
 * tags get one COMMIT_AND_FETCH each, in one batch with one clock read.
 *
 *   DOWN -FETCH-> ARMED -CQE-> SERVING -> (BUSY -> SERVING) -> DONE -COMMIT-> ARMED
 *
 * Bytes (data_path.h): the driver's own copy needs nothing here; a backend that moves them by
 * itself or reads into a registered buffer neither; what is left is copied `by_hand`, before a
 * WRITE goes to the backend and after a READ came back from it; what is in memory that a client
 * shares is there (shmem_request.c). Failure modes: the backend is busy
 * (the tag waits for the next completion or a millisecond), the SQ is full (the commits wait for
 * the next turn), the driver refuses a FETCH or COMMIT (the tag is lost, counted and told), the
 * driver aborts (the tag is down; when all are, the queue ends), a buffer could not be registered
 * (copied by hand), a copy by hand comes up short (EIO).
 */
#include <errno.h>
#include <string.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/queue/faults.h"
#include "ublk/queue/instruments.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue_internal.h"

#define SECTOR_SHIFT 9
#define BUSY_RETRY_NS NS_PER_MS

void tag_sqe_init(struct queue *q)
{
	struct io_uring_sqe *sqe = &q->sqe;
	struct ublksrv_io_cmd *cmd = (struct ublksrv_io_cmd *)((char *)sqe + SQE_CMD_OFFSET);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe,
			 q->setup.cdev_registered ? q->cdev_slot : q->setup.cdev_fd, NULL, 0, 0);
	sqe->flags = q->setup.cdev_registered ? IOSQE_FIXED_FILE : 0;
	memset(cmd, 0, sizeof(*cmd));
	cmd->q_id = q->setup.idx;
}

/* FETCH_REQ and COMMIT_AND_FETCH_REQ differ only in the opcode and the result. */
static inline void prep_tag_cmd(struct tag_io *io, struct io_uring_sqe *sqe, uint32_t cmd_op)
{
	struct ublksrv_io_cmd *cmd = (struct ublksrv_io_cmd *)((char *)sqe + SQE_CMD_OFFSET);

	*sqe = io->queue->sqe;
	sqe->cmd_op = cmd_op;
	sqe->addr = io->reg_addr;
	cmd->tag = io->request.tag;
	cmd->result = io->result;
	cmd->addr = io->copy_addr;
	op_start(&io->op, sqe);
	io->committing = cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ;
	tag_set_state(io, TAG_ARMED);
}

/* ---- bytes by hand ---- */

static __attribute__((cold, noinline)) void place_again(struct queue *q, struct tag_io *io,
							bool by_hand)
{
	io->bytes_are = by_hand ? TAG_BYTES_BY_HAND : TAG_BYTES_THERE;
	io->request.buf = by_hand ? queue_buffer(q, io->request.tag) : NULL;
	io->request.buf_index = by_hand ? -1 : queue_buffer_index(q, io->request.tag);
	if (by_hand)
		counter_add(&q->stats.fallbacks, 1);
}

/* The pages are in the tag's registered buffer, or the driver could not put them there. */
static inline void place_registered(struct queue *q, struct tag_io *io, uint32_t op_flags)
{
	bool by_hand = op_flags & UBLK_IO_F_NEED_REG_BUF;

	/* As it was for the request before, nearly always. */
	if (__builtin_expect(by_hand || io->bytes_are, 0))
		place_again(q, io, by_hand);
}

/* ---- there and back ---- */

static void commit_at_turn_end(struct task *task);

void tag_commits_wanted(struct queue *q)
{
	reactor_at_turn_end(q->setup.reactor, &q->commit_task, commit_at_turn_end);
}

static inline void commit_later(struct queue *q, struct tag_io *io)
{
	tag_set_state(io, TAG_DONE);
	/* The first one brings the others with it. */
	if (q->commit_nr == 0)
		tag_commits_wanted(q);
	q->commits[q->commit_nr++] = io;
}

/* Apart, so that its call costs those nothing that succeed. */
static __attribute__((cold, noinline)) void tag_fail(struct queue *q, struct tag_io *io, int err)
{
	io_error_tell(io, err);
	io->result = err;
	io->committing = false;
	commit_later(q, io);
}

/* What is left to do for the bytes of a request that the backend has done. Returns 0 or -errno. */
static inline int tag_bytes_back(const struct queue *q, const struct tag_io *io)
{
	if (io->bytes_are == TAG_BYTES_SHMEM)
		return tag_shmem_result(q, io);
	if (io->request.op == BACKEND_WRITE)
		return 0;
	return backend_data_to_driver(&io->request, 0, io->request.buf, io->request.length_bytes);
}

/* The request of this tag is answered: hand it back at the end of the turn. */
static inline void tag_finish(struct queue *q, struct tag_io *io, int result)
{
	bool has_data = io->request.op == BACKEND_READ || io->request.op == BACKEND_WRITE;

	if (io->bytes_are && result == 0 && has_data)
		result = tag_bytes_back(q, io);
	if (__builtin_expect(result < 0, 0)) {
		tag_fail(q, io, result);
		return;
	}
	io->result = has_data ? (int32_t)io->request.length_bytes : 0;
	io->committing = false;
	commit_later(q, io);
}

void tag_refuse(struct tag_io *io, int err)
{
	/* What a backend said last was about another request. */
	io->request.result = 0;
	io->submit_ns = io->done_ns = io->start_ns;
	tag_finish(io->queue, io, err);
}

static void busy_retry(struct task *task);

void tag_backend_done(struct backend_io *request)
{
	struct tag_io *io = container_of(request, struct tag_io, request);
	struct queue *q = io->queue;

	io->done_ns = q->setup.reactor->now_ns;
	instrument_done(q, io);
	tag_finish(q, io, request->result);
	if (!list_empty(&q->busy))
		reactor_defer(q->setup.reactor, &q->busy_task, busy_retry);
}

static inline __attribute__((always_inline)) void tag_submit(struct queue *q, struct tag_io *io)
{
	tag_set_state(io, TAG_SERVING);
	io->submit_ns = io->done_ns = q->setup.reactor->now_ns;
	instrument_submit(io);
	fault_block(io->request.offset_bytes >> SECTOR_SHIFT);
	switch (backend_io_submit(&io->request)) {
	case BACKEND_DONE:
		tag_finish(q, io, io->request.result);
		break;
	case BACKEND_QUEUED:
		break;
	case BACKEND_BUSY:
		tag_set_state(io, TAG_BUSY);
		list_push_back(&q->busy, &io->busy);
		instrument_busy(io);
		reactor_timer_arm(q->setup.reactor, &q->busy_timer,
				  q->setup.reactor->now_ns + BUSY_RETRY_NS);
		break;
	}
}

static void busy_retry(struct task *task)
{
	struct queue *q = container_of(task, struct queue, busy_task);
	struct list_node list = LIST_INIT(list);
	struct list_node *node;

	list_splice(&list, &q->busy);
	while ((node = list_pop_front(&list)))
		tag_submit(q, list_entry(node, struct tag_io, busy));
}

void tag_busy_timeout(struct timer *timer)
{
	struct queue *q = container_of(timer, struct queue, busy_timer);

	busy_retry(&q->busy_task);
}

/* -1 for what no backend knows. */
static int backend_op_of(unsigned ublk_op)
{
	static const int8_t map[] = {
		[UBLK_IO_OP_READ] = BACKEND_READ,
		[UBLK_IO_OP_WRITE] = BACKEND_WRITE,
		[UBLK_IO_OP_FLUSH] = BACKEND_FLUSH,
		[UBLK_IO_OP_DISCARD] = BACKEND_DISCARD,
		[UBLK_IO_OP_WRITE_SAME] = -1,
		[UBLK_IO_OP_WRITE_ZEROES] = BACKEND_WRITE_ZEROES,
	};

	return ublk_op < ARRAY_SIZE(map) ? map[ublk_op] : -1;
}

static int decode_other(struct tag_io *io, uint32_t op_flags, uint64_t length_bytes)
{
	int op = backend_op_of(op_flags & 0xff);

	if (io->queue->setup.data.zoned && zone_request_is(op_flags & 0xff))
		return zone_request_decode(io, op_flags & 0xff, length_bytes);
	io->request.op = io->flight_key.op = (uint8_t)(op < 0 ? BACKEND_FLUSH : op);
	io->request.flags = (uint8_t)((op_flags & UBLK_IO_F_FUA ? BACKEND_FUA : 0) |
				      (op_flags & UBLK_IO_F_NOUNMAP ? BACKEND_NOUNMAP : 0));
	if (op == BACKEND_FLUSH)
		io->request.length_bytes = 0;
	if (op < 0)
		return -EOPNOTSUPP;
	return length_bytes > UINT32_MAX ? -EIO : 0;
}

_Static_assert((int)UBLK_IO_OP_READ == (int)BACKEND_READ &&
		       (int)UBLK_IO_OP_WRITE == (int)BACKEND_WRITE && UBLK_IO_OP_WRITE == 1,
	       "READ and WRITE have the same numbers");

/* Reads the descriptor, once: it is shared memory. Returns 0 or -errno for a malformed request. */
static inline int decode(struct queue *q, struct tag_io *io)
{
	const struct ublksrv_io_desc *iod = &q->setup.descs[io->request.tag];
	uint32_t op_flags = iod->op_flags;
	uint64_t length_bytes = (uint64_t)iod->nr_sectors << SECTOR_SHIFT;
	uint8_t op = op_flags & 0xff;

	io->request.offset_bytes = iod->start_sector << SECTOR_SHIFT;
	io->request.length_bytes = (uint32_t)length_bytes;
	if (op > UBLK_IO_OP_WRITE)
		return decode_other(io, op_flags, length_bytes);
	io->request.op = io->flight_key.op = op;
	io->request.flags = op_flags & UBLK_IO_F_FUA ? BACKEND_FUA : 0;
	if (length_bytes > q->setup.max_io_bytes)
		return -EIO;
	if (q->setup.data.path == DATA_PATH_ZERO_COPY)
		place_registered(q, io, op_flags);
	else if (q->setup.shmem)
		tag_place_shmem(q, io, op_flags, iod->addr);
	return 0;
}

void tag_serve(struct tag_io *io)
{
	struct queue *q = io->queue;
	int ret;

	if (fault_lose(q->setup.descs[io->request.tag].start_sector))
		return;
	if (__builtin_expect(q->quiesced, 0)) {
		list_push_back(&q->kept, &io->busy);
		return;
	}
	io->start_ns = q->setup.reactor->now_ns;
	q->inflight_nr++;
	q->used = true;
	if (!q->trim_armed)
		queue_trim_arm(q);
	ret = decode(q, io);
	instrument_fetch(q, io);
	if (q->cancelling && ret == 0)
		ret = -EIO;
	if (io->bytes_are == TAG_BYTES_BY_HAND && ret == 0 && io->request.op == BACKEND_WRITE)
		ret = backend_data_from_driver(&io->request, 0, io->request.buf,
					       io->request.length_bytes);
	if (ret == 0 && fault_no_fua())
		io->request.flags &= (uint8_t)~BACKEND_FUA;
	if (__builtin_expect(ret < 0, 0) || (io->request.op == BACKEND_FLUSH && fault_no_flush()))
		tag_refuse(io, ret);
	else
		tag_submit(q, io);
}

void tag_down(struct tag_io *io, int res)
{
	struct queue *q = io->queue;

	tag_set_state(io, TAG_DOWN);
	instrument_abort(io, res);
	if (res != UBLK_IO_RES_ABORT) {
		counter_add(&q->stats.lost_tags, 1);
		if (q->first_error == 0)
			q->first_error = res < 0 ? res : -EPROTO;
		log_limited(LOG_LEVEL_ERROR, "the driver refused a tag",
			    "dev=%s id=%d queue=%u tag=%u error=%s", q->setup.device_name,
			    q->setup.dev_id, q->setup.idx, tag_of(io), errname(res));
	}
	queue_tag_gone(q);
}

void tag_event(struct op *op, int res, uint32_t cqe_flags)
{
	struct tag_io *io = container_of(op, struct tag_io, op);

	(void)cqe_flags;
	/* io_uring itself had no memory for a COMMIT: a request not handed back hangs its reader.
	 */
	if (res == UBLK_IO_RES_OK)
		tag_serve(io);
	else if (res == -ENOMEM && io->committing)
		commit_later(io->queue, io);
	else if (res == -ENOMEM && !io->queue->attaching)
		tag_fetch(op); /* the driver has been told to start, and waits for this tag */
	else
		tag_down(io, res);
}

static inline void account_commit(struct queue *q, struct tag_io *io)
{
	/* Not again what is only sent again. */
	if (io->committing)
		return;
	instrument_commit(q, io);
	q->inflight_nr--;
}

void tag_account_commit(struct tag_io *io)
{
	account_commit(io->queue, io);
}

/* All commits of the turn in one batch: they go to the kernel with the next enter. */
static void commit_at_turn_end(struct task *task)
{
	struct queue *q = container_of(task, struct queue, commit_task);
	unsigned nr = 0;

	if (q->batch) {
		batch_commit(q);
		return;
	}
	if (q->setup.data.zoned)
		zone_requests_answer(q);
	for (; nr < q->commit_nr; nr++) {
		struct tag_io *io = q->commits[nr];
		struct io_uring_sqe *sqe = op_sqe(&io->op);

		if (!sqe)
			break;
		account_commit(q, io);
		prep_tag_cmd(io, sqe, UBLK_U_IO_COMMIT_AND_FETCH_REQ);
	}
	q->commit_nr -= nr;
	if (q->commit_nr == 0)
		return;
	memmove(q->commits, q->commits + nr, q->commit_nr * sizeof(*q->commits));
	tag_commits_wanted(q);
}

void tag_fetch(struct op *op)
{
	struct tag_io *io = container_of(op, struct tag_io, op);
	struct queue *q = io->queue;
	struct io_uring_sqe *sqe;

	if (fault_no_fetch(q->setup.idx, tag_of(io))) {
		q->fetched_nr++;
		return;
	}
	sqe = op_sqe(op);
	if (!sqe) {
		op_park(op, tag_fetch);
		return;
	}
	prep_tag_cmd(io, sqe, UBLK_U_IO_FETCH_REQ);
	q->fetched_nr++;
	q->fetch_mark = reactor_sq_mark(q->setup.reactor);
}
