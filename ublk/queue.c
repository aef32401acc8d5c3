/*
 * Fetch and commit. Runs on the queue's reactor, except where said.
 *
 * Happy path: a tag's CQE says that the driver has put a request into its descriptor; the request
 * goes to the backend; when that is done the tag is noted, and at the end of the turn all noted
 * tags get one COMMIT_AND_FETCH each, in one batch with one clock read.
 * Failure modes: the backend is busy (the tag waits for the next completion or a millisecond), the
 * SQ is full (the commits wait for the next turn), the driver refuses a FETCH or COMMIT (the tag is
 * lost, counted and told), the driver aborts (the tag is down; when all are, the queue ends).
 */
#include "ublk/queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/faults.h"
#include "ublk/instruments.h"
#include "ublk/io_error.h"

#define SECTOR_SHIFT 9
#define BUSY_RETRY_NS NS_PER_MS
/* The command's payload stands at byte 48 of the SQE. */
#define SQE_CMD_OFFSET 48

const char *queue_layer_name(enum queue_layer layer)
{
	static const char *const name[QUEUE_LAYER_NR] = { "total", "throttle", "daemon",
							  "backend" };

	return layer < QUEUE_LAYER_NR ? name[layer] : "?";
}

static inline uint64_t buffer_of(const struct queue *q, unsigned tag)
{
	return (uint64_t)(uintptr_t)q->buffers + (uint64_t)tag * q->setup.max_io_bytes;
}

/* FETCH_REQ and COMMIT_AND_FETCH_REQ differ only in the opcode and the result. */
static void prep_tag_cmd(struct tag_io *io, struct io_uring_sqe *sqe, uint32_t cmd_op)
{
	struct queue *q = io->queue;
	unsigned tag = tag_of(io);
	struct ublksrv_io_cmd *cmd;

	if (q->setup.cdev_registered) {
		io_uring_prep_rw(IORING_OP_URING_CMD, sqe, q->cdev_slot, NULL, 0, 0);
		sqe->flags = IOSQE_FIXED_FILE;
	} else {
		io_uring_prep_rw(IORING_OP_URING_CMD, sqe, q->setup.cdev_fd, NULL, 0, 0);
	}
	sqe->cmd_op = cmd_op;
	cmd = (struct ublksrv_io_cmd *)((char *)sqe + SQE_CMD_OFFSET);
	cmd->q_id = q->setup.idx;
	cmd->tag = (uint16_t)tag;
	cmd->result = io->result;
	cmd->addr = buffer_of(q, tag);
	op_start(&io->op, sqe);
	io->committing = cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ;
	tag_set_state(io, TAG_ARMED);
}

static void commit_at_turn_end(struct task *task);

static void commit_later(struct tag_io *io)
{
	struct queue *q = io->queue;

	tag_set_state(io, TAG_DONE);
	q->commits[q->commit_nr++] = (uint16_t)tag_of(io);
	reactor_at_turn_end(q->setup.reactor, &q->commit_task, commit_at_turn_end);
}

/* Apart, so that its call costs those nothing that succeed. */
static __attribute__((cold, noinline)) void tag_fail(struct tag_io *io, int err)
{
	io_error_tell(io, err);
	io->result = err;
	io->committing = false;
	commit_later(io);
}

/* The request of this tag is answered: hand it back at the end of the turn. */
static void tag_finish(struct tag_io *io, int result)
{
	bool has_data = io->bio.op == BACKEND_READ || io->bio.op == BACKEND_WRITE;

	if (result < 0) {
		tag_fail(io, result);
		return;
	}
	io->result = has_data ? (int32_t)io->bio.length_bytes : 0;
	io->committing = false;
	commit_later(io);
}

/* It fails by our own word: what a backend said last was about another request. */
static void tag_refuse(struct tag_io *io, int err)
{
	io->bio.result = 0;
	tag_finish(io, err);
}

static void busy_retry(struct task *task);

static void backend_done(struct backend_io *bio)
{
	struct tag_io *io = container_of(bio, struct tag_io, bio);
	struct queue *q = io->queue;

	io->done_ns = q->setup.reactor->now_ns;
	instrument_done(io);
	tag_finish(io, bio->result);
	if (!list_empty(&q->busy))
		reactor_defer(q->setup.reactor, &q->busy_task, busy_retry);
}

static void tag_submit(struct tag_io *io)
{
	struct queue *q = io->queue;

	tag_set_state(io, TAG_SERVING);
	io->submit_ns = io->done_ns = q->setup.reactor->now_ns;
	instrument_submit(io);
	fault_block(io->bio.offset_bytes >> SECTOR_SHIFT);
	switch (backend_io_submit(&io->bio)) {
	case BACKEND_DONE:
		tag_finish(io, io->bio.result);
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
		tag_submit(list_entry(node, struct tag_io, busy));
}

static void busy_timeout(struct timer *timer)
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

/* Reads the descriptor, once: it is shared memory. Returns 0 or -errno for a malformed request. */
static int decode(struct tag_io *io)
{
	const struct queue *q = io->queue;
	const struct ublksrv_io_desc *iod = &q->setup.descs[tag_of(io)];
	uint32_t op_flags = iod->op_flags;
	uint64_t length_bytes = (uint64_t)iod->nr_sectors << SECTOR_SHIFT;
	int op = backend_op_of(op_flags & 0xff);

	io->bio.op = (uint8_t)(op < 0 ? BACKEND_FLUSH : op);
	io->bio.flags = (uint8_t)((op_flags & UBLK_IO_F_FUA ? BACKEND_FUA : 0) |
				  (op_flags & UBLK_IO_F_NOUNMAP ? BACKEND_NOUNMAP : 0));
	io->bio.offset_bytes = iod->start_sector << SECTOR_SHIFT;
	io->bio.length_bytes = op == BACKEND_FLUSH ? 0 : (uint32_t)length_bytes;
	if (op < 0)
		return -EOPNOTSUPP;
	if (length_bytes > UINT32_MAX ||
	    (op <= BACKEND_WRITE && length_bytes > q->setup.max_io_bytes))
		return -EIO;
	return 0;
}

static void tag_serve(struct tag_io *io)
{
	struct queue *q = io->queue;
	int ret;

	if (fault_lose(q->setup.descs[tag_of(io)].start_sector))
		return;
	io->start_ns = io->submit_ns = io->done_ns = q->setup.reactor->now_ns;
	q->inflight_nr++;
	ret = decode(io);
	instrument_fetch(io);
	if (ret == 0 && q->cancelling)
		ret = -EIO;
	if (ret < 0)
		tag_refuse(io, ret);
	else
		tag_submit(io);
}

static void drained_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, drained_mail);

	q->setup.drained(q);
}

/* This tag will not come back. */
static void tag_down(struct tag_io *io, int res)
{
	struct queue *q = io->queue;

	tag_set_state(io, TAG_DOWN);
	instrument_abort(io, res);
	if (res != UBLK_IO_RES_ABORT) {
		histogram_bump(&q->stats.lost_tags, 1);
		if (q->first_error == 0)
			q->first_error = res < 0 ? res : -EPROTO;
		log_limited(LOG_LEVEL_ERROR, "the driver refused a tag",
			    "dev=%s id=%d queue=%u tag=%u error=%s", q->setup.device_name,
			    q->setup.dev_id, q->setup.idx, tag_of(io), errname(res));
	}
	ASSERT(q->up_nr > 0);
	if (--q->up_nr == 0 && !q->attaching)
		reactor_post(q->setup.home, &q->drained_mail, drained_on_main);
}

/* The CQE of a FETCH or COMMIT_AND_FETCH. */
static void tag_event(struct op *op, int res, uint32_t cqe_flags)
{
	struct tag_io *io = container_of(op, struct tag_io, op);

	(void)cqe_flags;
	/* io_uring itself had no memory for a COMMIT: a request not handed back hangs its reader.
	 */
	if (res == UBLK_IO_RES_OK)
		tag_serve(io);
	else if (res == -ENOMEM && io->committing)
		commit_later(io);
	else
		tag_down(io, res);
}

/* All commits of the turn in one batch: they go to the kernel with the next enter. */
static void commit_at_turn_end(struct task *task)
{
	struct queue *q = container_of(task, struct queue, commit_task);
	unsigned nr = 0;

	for (; nr < q->commit_nr; nr++) {
		struct tag_io *io = &q->ios[q->commits[nr]];
		struct io_uring_sqe *sqe = op_sqe(&io->op);

		if (!sqe)
			break;
		/* Not again what is only sent again. */
		if (!io->committing) {
			instrument_commit(io);
			q->inflight_nr--;
		}
		prep_tag_cmd(io, sqe, UBLK_U_IO_COMMIT_AND_FETCH_REQ);
	}
	q->commit_nr -= nr;
	if (q->commit_nr == 0)
		return;
	memmove(q->commits, q->commits + nr, q->commit_nr * sizeof(*q->commits));
	reactor_at_turn_end(q->setup.reactor, &q->commit_task, commit_at_turn_end);
}

static void tag_fetch(struct op *op)
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

/*
 * Buffers are address space until a request touches them. Huge pages are refused: one small
 * request would pin 2 MiB.
 */
static int buffers_init(struct queue *q)
{
	size_t bytes = queue_buffer_bytes(q->setup.depth, q->setup.max_io_bytes);
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	madvise(mem, bytes, MADV_NOHUGEPAGE);
	q->buffers = mem;
	return 0;
}

static int tag_init(struct queue *q, unsigned tag)
{
	struct op_owner owner = { .kind = OP_KIND_TAG, .queue = q->setup.idx, .tag = tag };
	struct tag_io *io = &q->ios[tag];
	int ret;

	io->queue = q;
	io->id = (uint64_t)q->setup.dev_id << 32 | (uint64_t)q->setup.idx << 16 | tag;
	list_init(&io->busy);
	ret = op_init(&io->op, q->setup.reactor, owner, tag_event);
	if (ret < 0)
		return ret;
	ret = backend_io_init(&io->bio, q->backend, tag, backend_done);
	if (ret < 0)
		return ret;
	io->bio.buf = (void *)(uintptr_t)buffer_of(q, tag);
	return 0;
}

static int tags_init(struct queue *q)
{
	q->ios = calloc(q->setup.depth, sizeof(*q->ios));
	q->commits = calloc(q->setup.depth, sizeof(*q->commits));
	if (!q->ios || !q->commits)
		return -ENOMEM;
	for (unsigned tag = 0; tag < q->setup.depth; tag++) {
		int ret = tag_init(q, tag);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int resources_init(struct queue *q)
{
	int ret = backend_queue_open(&q->backend, q->setup.backend, q->setup.reactor, q->setup.idx,
				     q->setup.depth);

	if (ret < 0)
		return ret;
	ret = buffers_init(q);
	if (ret < 0)
		return ret;
	ret = tags_init(q);
	if (ret < 0)
		return ret;
	q->cdev_slot = -1;
	if (!q->setup.cdev_registered)
		return 0;
	ret = reactor_file_add(q->setup.reactor, q->setup.cdev_fd);
	if (ret < 0)
		return ret;
	q->cdev_slot = ret;
	return 0;
}

/* Accepts whatever resources_init left behind. */
static void resources_fini(struct queue *q)
{
	reactor_timer_cancel(q->setup.reactor, &q->busy_timer);
	for (unsigned tag = 0; q->ios && tag < q->setup.depth; tag++) {
		backend_io_fini(&q->ios[tag].bio);
		op_fini(&q->ios[tag].op);
	}
	backend_queue_close(q->backend);
	q->backend = NULL;
	reactor_file_remove(q->setup.reactor, q->cdev_slot);
	q->cdev_slot = -1;
	if (q->buffers)
		munmap(q->buffers, queue_buffer_bytes(q->setup.depth, q->setup.max_io_bytes));
	q->buffers = NULL;
	free(q->ios);
	q->ios = NULL;
	free(q->commits);
	q->commits = NULL;
}

static void released_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, released_mail);

	q->setup.released(q);
}

static void release(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, release_mail);

	ASSERT(q->up_nr == 0 && q->inflight_nr == 0 && q->commit_nr == 0);
	resources_fini(q);
	reactor_post(q->setup.home, &q->released_mail, released_on_main);
}

void queue_release(struct queue *q)
{
	reactor_post(q->setup.reactor, &q->release_mail, release);
}

static void attached_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, attached_mail);

	q->setup.attached(q, q->first_error);
}

/* Main learns how it went, and at once also when there is nothing to wait for. */
static void attach_report(struct queue *q)
{
	q->attaching = false;
	reactor_post(q->setup.home, &q->attached_mail, attached_on_main);
	if (q->up_nr == 0)
		reactor_post(q->setup.home, &q->drained_mail, drained_on_main);
}

/*
 * A FETCH that the driver refuses is answered by the enter that submits it: when the kernel has
 * taken the last one and all it posted has been seen, those not refused are armed. (The CQE of an
 * accepted FETCH comes with the first request, perhaps never: it cannot be waited for.)
 */
static void attach_check(struct task *task)
{
	struct queue *q = container_of(task, struct queue, attach_task);
	struct reactor *r = q->setup.reactor;

	if (q->fetched_nr < q->setup.depth || !reactor_sq_passed(r, q->fetch_mark))
		reactor_defer(r, &q->attach_task, attach_check);
	else
		attach_report(q);
}

static void attach(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, attach_mail);

	q->first_error = resources_init(q);
	if (q->first_error < 0) {
		attach_report(q);
		return;
	}
	q->attaching = true;
	q->up_nr = q->setup.depth;
	for (unsigned tag = 0; tag < q->setup.depth; tag++)
		tag_fetch(&q->ios[tag].op);
	reactor_defer(q->setup.reactor, &q->attach_task, attach_check);
}

void queue_attach(struct queue *q, const struct queue_setup *setup)
{
	*q = (struct queue){ .setup = *setup, .cdev_slot = -1 };
	list_init(&q->busy);
	timer_init(&q->busy_timer, busy_timeout);
	reactor_post(setup->reactor, &q->attach_mail, attach);
}

static void cancel_io(struct tag_io *io)
{
	if (io->state == TAG_BUSY) {
		list_remove(&io->busy);
		tag_refuse(io, -EIO);
	} else if (io->state == TAG_SERVING) {
		backend_io_cancel(&io->bio);
	}
}

static void cancel_changed(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, cancel_mail);

	/* First, so that a change behind it comes as a mail of its own. */
	q->cancel_posted = false;
	q->cancelling = q->cancel_wanted;
	for (unsigned tag = 0; q->cancelling && q->ios && tag < q->setup.depth; tag++)
		cancel_io(&q->ios[tag]);
}

void queue_cancel(struct queue *q, bool cancel)
{
	q->cancel_wanted = cancel;
	if (!atomic_exchange(&q->cancel_posted, true))
		reactor_post(q->setup.reactor, &q->cancel_mail, cancel_changed);
}
