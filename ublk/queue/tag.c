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

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/metadata.h"
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
static inline void prep_tag_cmd(const struct queue *q, struct tag_io *io, struct io_uring_sqe *sqe,
				uint32_t cmd_op)
{
	struct ublksrv_io_cmd *cmd = (struct ublksrv_io_cmd *)((char *)sqe + SQE_CMD_OFFSET);

	*sqe = q->sqe;
	sqe->cmd_op = cmd_op;
	sqe->addr = io->reg_addr;
	cmd->tag = io->request.tag;
	cmd->result = io->element.result;
	cmd->addr = io->copy_addr;
	op_start(&io->op, sqe);
	io->committing = cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ;
	tag_set_state(io, TAG_ARMED);
}

/* ---- bytes by hand ---- */

/* The pages are in the tag's registered buffer, or the driver could not put them there. */
static void place_registered(struct queue *q, struct tag_io *io, bool by_hand)
{
	if (by_hand)
		counter_add(&q->stats.fallbacks, 1);
	io->bytes_are = by_hand ? TAG_BYTES_BY_HAND : TAG_BYTES_THERE;
	io->request.buf = by_hand ? queue_buffer(q, io->request.tag) : NULL;
	io->request.buf_index = by_hand ? -1 : queue_buffer_index(q, io->request.tag);
}

/* Flags of READs and WRITEs whose bytes are not simply there. */
#define NOT_IN_PLACE (UBLK_IO_F_NEED_REG_BUF | UBLK_IO_F_SHMEM_ZC)

/* Of a READ or WRITE whose bytes are not simply there, or those of the tag's last one were not. */
static __attribute__((noinline)) int place_bytes(struct queue *q, struct tag_io *io,
						 uint32_t op_flags, uint64_t addr)
{
	if (q->setup.data.path == DATA_PATH_ZERO_COPY)
		place_registered(q, io, op_flags & UBLK_IO_F_NEED_REG_BUF);
	else if (q->setup.shmem)
		tag_place_shmem(q, io, op_flags, addr);
	if (io->bytes_are != TAG_BYTES_BY_HAND || io->request.op == BACKEND_READ)
		return 0;
	return backend_data_from_driver(&io->request, 0, io->request.buf, io->request.length_bytes);
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

/* The request of this tag is answered: hand it back at the end of the turn. */
static void tag_answer(struct queue *q, struct tag_io *io, int32_t result)
{
	io->element.result = result;
	io->committing = false;
	commit_later(q, io);
}

/* What is left to do for the bytes of a request that the backend has done. Returns 0 or -errno. */
static int tag_bytes_back(const struct queue *q, const struct tag_io *io)
{
	if (io->bytes_are == TAG_BYTES_SHMEM)
		return tag_shmem_result(q, io);
	if (io->bytes_are == TAG_BYTES_THERE || io->request.op == BACKEND_WRITE)
		return 0;
	return backend_data_to_driver(&io->request, 0, io->request.buf, io->request.length_bytes);
}

/* Of a request that failed, or whose bytes are not simply there. */
static __attribute__((noinline)) void tag_finish_any(struct queue *q, struct tag_io *io, int result)
{
	const struct backend_io *request = &io->request;
	bool has_data = request->op == BACKEND_READ || request->op == BACKEND_WRITE;

	if (result == 0 && has_data)
		result = tag_bytes_back(q, io);
	else if (result == 0 && request->op == BACKEND_FLUSH)
		__atomic_store_n(&q->writes_flushed, io->writes_before, __ATOMIC_RELAXED);
	if (result < 0)
		io_error_tell(io, result);
	else if (has_data)
		result = (int)request->length_bytes;
	tag_answer(q, io, result);
}

static inline void tag_finish(struct queue *q, struct tag_io *io, int result)
{
	if (__builtin_expect(result != 0 || io->bytes_are || io->request.op > BACKEND_WRITE, 0))
		tag_finish_any(q, io, result);
	else
		tag_answer(q, io, (int32_t)io->request.length_bytes);
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
	const struct reactor *r = q->setup.reactor;

	io->done_ns = r->now_ns;
	instrument_done(r, io);
	if (__builtin_expect(!list_empty(&q->busy), 0))
		reactor_defer(q->setup.reactor, &q->busy_task, busy_retry);
	tag_finish(q, io, request->result);
}

/* The backend has not queued it. */
static __attribute__((cold, noinline)) void tag_not_queued(struct queue *q, struct tag_io *io,
							   enum backend_submit answer)
{
	if (answer == BACKEND_DONE) {
		io->done_ns = io->submit_ns;
		tag_finish(q, io, io->request.result);
		return;
	}
	ASSERT(answer == BACKEND_BUSY);
	tag_set_state(io, TAG_BUSY);
	list_push_back(&q->busy, &io->busy);
	instrument_busy(io);
	reactor_timer_arm(q->setup.reactor, &q->busy_timer,
			  q->setup.reactor->now_ns + BUSY_RETRY_NS);
}

static inline void tag_submit(struct queue *q, struct tag_io *io, uint64_t now_ns)
{
	enum backend_submit answer;

	tag_set_state(io, TAG_SERVING);
	io->submit_ns = now_ns;
	instrument_submit(io);
	fault_block(io->request.offset_bytes >> SECTOR_SHIFT);
	answer = backend_io_submit(&io->request);
	if (__builtin_expect(answer != BACKEND_QUEUED, 0))
		tag_not_queued(q, io, answer);
}

static void busy_retry(struct task *task)
{
	struct queue *q = container_of(task, struct queue, busy_task);
	struct list_node list = LIST_INIT(list);
	struct list_node *node;

	list_splice(&list, &q->busy);
	while ((node = list_pop_front(&list)))
		tag_submit(q, list_entry(node, struct tag_io, busy), q->setup.reactor->now_ns);
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

/*
 * Failfast of the transport is what multipath and md ask for when they can do without this path; of
 * the device and the driver it would be about the storage's own tries, of which there are none.
 * UBLK_IO_F_INTEGRITY is set for devices with metadata alone.
 */
static uint8_t tag_flags_of(uint32_t op_flags)
{
	return (uint8_t)((op_flags & UBLK_IO_F_FUA ? BACKEND_FUA : 0) |
			 (op_flags & UBLK_IO_F_NOUNMAP ? BACKEND_NOUNMAP : 0) |
			 (op_flags & UBLK_IO_F_INTEGRITY ? BACKEND_METADATA : 0) |
			 (op_flags & UBLK_IO_F_FAILFAST_TRANSPORT ? BACKEND_FAIL_FAST : 0));
}

static int decode_other(struct tag_io *io, uint32_t op_flags, uint64_t length_bytes)
{
	int op = backend_op_of(op_flags & 0xff);

	if (io->queue->setup.data.zoned && zone_request_is(op_flags & 0xff))
		return zone_request_decode(io, op_flags & 0xff, length_bytes);
	io->request.op = io->flight_key.op = (uint8_t)(op < 0 ? BACKEND_FLUSH : op);
	io->request.flags = tag_flags_of(op_flags);
	/* The driver says -1 for the sector. */
	if (op == BACKEND_FLUSH)
		io->request.offset_bytes = io->request.length_bytes = 0;
	if (op < 0)
		return -EOPNOTSUPP;
	return length_bytes > UINT32_MAX ? -EIO : 0;
}

/* NOLINTNEXTLINE(misc-redundant-expression): each by the definition of its own side */
_Static_assert(UBLKSRV_IO_INTEGRITY_FLAG == BACKEND_METADATA_POS, "where metadata are");

_Static_assert((int)UBLK_IO_OP_READ == (int)BACKEND_READ &&
		       (int)UBLK_IO_OP_WRITE == (int)BACKEND_WRITE && UBLK_IO_OP_WRITE == 1,
	       "READ and WRITE have the same numbers");

/* Reads the descriptor, once: it is shared memory. Returns 0 or -errno for a malformed request. */
static int decode(struct queue *q, struct tag_io *io)
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
	io->request.flags = tag_flags_of(op_flags);
	if (length_bytes > q->setup.max_io_bytes)
		return -EIO;
	if (__builtin_expect(io->bytes_are || (op_flags & NOT_IN_PLACE), 0))
		return place_bytes(q, io, op_flags, iod->addr);
	return 0;
}

uint64_t queue_writes(const struct queue *q)
{
	uint64_t nr = 0;

	for (unsigned op = BACKEND_WRITE; op < BACKEND_OP_NR; op++)
		if (op != BACKEND_FLUSH)
			nr += counter_read(&q->stats.op[op].done);
	return nr;
}

static inline void tag_begin(struct queue *q, struct tag_io *io, uint64_t now_ns)
{
	io->start_ns = now_ns;
	q->inflight_nr++;
	counter_add(&q->stats.started, 1);
	instrument_fetch(q, io, now_ns);
}

/* Every request, at any time. */
static __attribute__((noinline)) void serve_any(struct queue *q, struct tag_io *io)
{
	uint64_t now_ns = q->setup.reactor->now_ns;
	int ret;

	if ((q->care & QUEUE_QUIESCED) || queue_flush_keeps(q, io)) {
		list_push_back(&q->kept, &io->busy);
		return;
	}
	if (q->care & QUEUE_TRIM_DUE)
		queue_trim_arm(q);
	ret = decode(q, io);
	tag_begin(q, io, now_ns);
	if ((q->care & QUEUE_CANCELLING) && ret == 0)
		ret = -EIO;
	if (io->request.op == BACKEND_FLUSH)
		io->writes_before = queue_writes(q);
	if (ret == 0 && fault_no_fua())
		io->request.flags &= (uint8_t)~BACKEND_FUA;
	if (ret < 0 || (io->request.op == BACKEND_FLUSH && fault_no_flush()))
		tag_refuse(io, ret);
	else
		tag_submit(q, io, now_ns);
}

/* Of a descriptor's op_flags, what has decode() do more than decode_plain. */
#define NOT_PLAIN                                                                                  \
	((0xffu & ~(unsigned)UBLK_IO_OP_WRITE) | UBLK_IO_F_FAILFAST_TRANSPORT | UBLK_IO_F_FUA |    \
	 UBLK_IO_F_INTEGRITY | NOT_IN_PLACE)

/*
 * What nearly all are: a READ or WRITE without FUA, whose bytes are in their place, of a queue that
 * wants no care. False: nothing is changed.
 */
static inline bool decode_plain(const struct queue *q, struct tag_io *io)
{
	const struct ublksrv_io_desc *iod = &q->setup.descs[io->request.tag];
	uint32_t op_flags = iod->op_flags;
	uint64_t length_bytes = (uint64_t)iod->nr_sectors << SECTOR_SHIFT;

	if (__builtin_expect(q->care || io->bytes_are || (op_flags & NOT_PLAIN) ||
				     length_bytes > q->setup.max_io_bytes,
			     0))
		return false;
	io->request.offset_bytes = iod->start_sector << SECTOR_SHIFT;
	io->request.length_bytes = (uint32_t)length_bytes;
	io->request.op = io->flight_key.op = (uint8_t)op_flags;
	io->request.flags = 0;
	return true;
}

__attribute__((flatten)) void tag_serve(struct tag_io *io)
{
	struct queue *q = io->queue;
	uint64_t now_ns = q->setup.reactor->now_ns;

	if (fault_lose(q->setup.descs[io->request.tag].start_sector))
		return;
	if (!decode_plain(q, io)) {
		serve_any(q, io);
		return;
	}
	tag_begin(q, io, now_ns);
	tag_submit(q, io, now_ns);
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

/* All commits of the turn in one batch: they go to the kernel with the next enter. */
static void commit_at_turn_end(struct task *task)
{
	struct queue *q = container_of(task, struct queue, commit_task);
	const struct reactor *r = q->setup.reactor;
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
		tag_account_commit(q, r, io);
		prep_tag_cmd(q, io, sqe, UBLK_U_IO_COMMIT_AND_FETCH_REQ);
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
	prep_tag_cmd(q, io, sqe, UBLK_U_IO_FETCH_REQ);
	q->fetched_nr++;
	q->fetch_mark = reactor_sq_mark(q->setup.reactor);
}
