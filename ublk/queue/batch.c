/*
 * Commands for many tags at once (UBLK_F_BATCH_IO, Linux 7.0). Runs on the queue's reactor.
 *
 * Happy path: PREP_IO_CMDS arms every tag; one multishot FETCH_IO_CMDS then brings the numbers of
 * the tags that have a request, up to 128 in each of its CQEs, in a buffer that we provided and
 * give back at once; at the end of a turn one COMMIT_IO_CMDS hands back all tags that are done.
 * While a COMMIT is in flight, what gets done meanwhile waits for its answer: that comes with the
 * same enter, which sleeps over it (op_start_prompt). Its tags count as armed from the COMMIT on,
 * as those of other queues do.
 *
 * Failure modes: a COMMIT takes fewer tags than it was given (the rest goes again, and if then the
 * first is refused, it is lost), the FETCH ends for want of buffers, memory or room in the CQ
 * (armed again), the driver aborts it (armed tags are down at once, the others when they have been
 * committed).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/queue/instruments.h"
#include "ublk/queue/queue_internal.h"

#define BUFFER_NR 16u
#define BUFFER_TAG_NR 128u /* MAX_NR_TAG of the driver */
#define BUFFER_BYTES (BUFFER_TAG_NR * sizeof(uint16_t))
#define RING_BYTES 4096 /* the ring of buffers stands on a page of its own */
#define MAP_BYTES (RING_BYTES + BUFFER_NR * BUFFER_BYTES)

/* linux/io_uring.h since 7.0. */
#define URING_CMD_MULTISHOT (1u << 1)

/* One of PREP or COMMIT: a header, and an address behind it where the driver copies. */
#define ELEMENT_BYTES_MAX (sizeof(struct ublk_elem_header) + sizeof(uint64_t))

struct batch {
	struct queue *queue;
	struct op fetch;
	struct op commit;		/* PREP, later COMMIT */
	struct io_uring_buf_ring *ring; /* MAP_BYTES: the ring, behind it the buffers */
	int group;			/* of the ring; -1: none */
	uint16_t named;			/* buffers that CQEs gave back; wraps */
	uint8_t *elements;		/* of the command in flight, depth at most */
	unsigned sent_nr;
	uint8_t element_bytes;
	bool fetch_ended; /* the driver will bring nothing any more */
};

static uint16_t *buffer(const struct batch *b, unsigned idx)
{
	return (uint16_t *)((uint8_t *)b->ring + RING_BYTES + idx * BUFFER_BYTES);
}

static void give_buffer(struct batch *b, unsigned idx)
{
	io_uring_buf_ring_add(b->ring, buffer(b, idx), BUFFER_BYTES, (unsigned short)idx,
			      io_uring_buf_ring_mask(BUFFER_NR), 0);
	io_uring_buf_ring_advance(b->ring, 1);
}

static bool has_address(const struct queue *q)
{
	return q->setup.data.path == DATA_PATH_COPY;
}

static uint8_t element_bytes(const struct queue *q)
{
	return has_address(q) ? ELEMENT_BYTES_MAX : sizeof(struct ublk_elem_header);
}

static uint16_t element_flags(const struct queue *q)
{
	switch (q->setup.data.path) {
	case DATA_PATH_COPY:
		return UBLK_BATCH_F_HAS_BUF_ADDR;
	case DATA_PATH_ZERO_COPY:
		return UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK;
	default:
		return 0;
	}
}

static void prep_batch_cmd(struct batch *b, struct io_uring_sqe *sqe, uint32_t cmd_op)
{
	struct ublk_batch_io *cmd = (struct ublk_batch_io *)((char *)sqe + SQE_CMD_OFFSET);

	*sqe = b->queue->sqe;
	sqe->cmd_op = cmd_op;
	*cmd = (struct ublk_batch_io){ .q_id = b->queue->setup.idx };
}

/* The element with this index of the command in flight. */
static struct ublk_elem_header *batch_element(const struct batch *b, unsigned idx)
{
	return (struct ublk_elem_header *)(b->elements + (size_t)idx * b->element_bytes);
}

static struct tag_io *sent_tag(const struct batch *b, unsigned idx)
{
	return &b->queue->ios[batch_element(b, idx)->tag];
}

/* bytes: of an element. Returns where the next one goes. */
static inline uint8_t *put_element(uint8_t *at, size_t bytes, const struct tag_io *io)
{
	memcpy(at, &io->element, sizeof(io->element));
	if (bytes == ELEMENT_BYTES_MAX)
		memcpy(at + sizeof(io->element), &io->copy_addr, sizeof(io->copy_addr));
	return at + bytes;
}

/* Prepares a command for the elements that were put. */
static void prep_elements(struct batch *b, struct io_uring_sqe *sqe, uint32_t cmd_op)
{
	struct ublk_batch_io *cmd = (struct ublk_batch_io *)((char *)sqe + SQE_CMD_OFFSET);

	prep_batch_cmd(b, sqe, cmd_op);
	cmd->flags = element_flags(b->queue);
	cmd->nr_elem = (uint16_t)b->sent_nr;
	cmd->elem_bytes = b->element_bytes;
	sqe->addr = (uint64_t)(uintptr_t)b->elements;
}

/* ---- commit ---- */

static void commit_retry(struct op *op)
{
	batch_commit(container_of(op, struct batch, commit)->queue);
}

static void put_all(const struct batch *b, struct queue *q)
{
	const struct reactor *r = q->setup.reactor;
	/* Without a FETCH nothing comes for them any more. */
	enum tag_state state = b->fetch_ended ? TAG_DONE : TAG_ARMED;
	struct tag_io *const *commits = q->commits;
	size_t bytes = b->element_bytes;
	uint8_t *at = b->elements;

	for (unsigned i = 0, nr = q->commit_nr; i < nr; i++) {
		struct tag_io *io = commits[i];

		tag_account_commit(q, r, io);
		io->committing = true;
		at = put_element(at, bytes, io);
		tag_set_state(io, state);
	}
}

void batch_commit(struct queue *q)
{
	struct batch *b = q->batch;
	struct io_uring_sqe *sqe;

	/* Busy: its end sends the rest. */
	if (b->commit.state != OP_IDLE || q->commit_nr == 0)
		return;
	sqe = op_sqe(&b->commit);
	if (!sqe) {
		op_park(&b->commit, commit_retry);
		return;
	}
	put_all(b, q);
	b->sent_nr = q->commit_nr;
	q->commit_nr = 0;
	prep_elements(b, sqe, UBLK_U_IO_COMMIT_IO_CMDS);
	op_start_prompt(&b->commit, sqe);
}

static bool is_transient(int res)
{
	return res == -ENOMEM || res == -EAGAIN || res == -EINTR;
}

/* Not all were taken, or those that were do not come back. */
static __attribute__((cold, noinline)) void committed_in_part(struct batch *b, int res,
							      unsigned done_nr)
{
	struct queue *q = b->queue;
	unsigned i = 0;

	for (; i < done_nr; i++)
		if (b->fetch_ended)
			tag_down(sent_tag(b, i), UBLK_IO_RES_ABORT);
	if (res <= 0 && !is_transient(res))
		tag_down(sent_tag(b, i++), res < 0 ? res : -EPROTO);
	for (; i < b->sent_nr; i++) {
		tag_set_state(sent_tag(b, i), TAG_DONE);
		q->commits[q->commit_nr++] = sent_tag(b, i);
	}
}

/* res: bytes of elements that were taken, or -errno for none. */
static void commit_event(struct op *op, int res, uint32_t cqe_flags)
{
	struct batch *b = container_of(op, struct batch, commit);
	struct queue *q = b->queue;
	unsigned done_nr = res > 0 ? MIN((unsigned)res / b->element_bytes, b->sent_nr) : 0;

	(void)cqe_flags;
	if (__builtin_expect(done_nr < b->sent_nr || b->fetch_ended, 0))
		committed_in_part(b, res, done_nr);
	b->sent_nr = 0;
	if (q->commit_nr > 0)
		tag_commits_wanted(q);
}

/* ---- fetch ---- */

static void fetch(struct op *op);

static void serve_tag(const struct queue *q, struct tag_io *ios, uint16_t tag)
{
	if (__builtin_expect(tag < q->setup.depth && ios[tag].state == TAG_ARMED, 1)) {
		tag_serve(&ios[tag]);
		return;
	}
	log_limited(LOG_LEVEL_ERROR, "the driver brought a tag that is not armed",
		    "dev=%s queue=%u tag=%u", q->setup.device_name, q->setup.idx, tag);
}

static void fetch_aborted(struct batch *b, int res)
{
	struct queue *q = b->queue;

	b->fetch_ended = true;
	/* Not yet: the kernel has left their COMMIT in the SQ. */
	for (unsigned i = 0; i < b->sent_nr; i++)
		tag_set_state(sent_tag(b, i), TAG_DONE);
	for (unsigned tag = 0; tag < q->setup.depth; tag++)
		if (q->ios[tag].state == TAG_ARMED)
			tag_down(&q->ios[tag], res);
}

/*
 * The driver uses a buffer up before it knows whether there is room for the CQE that names it
 * (io_uring_mshot_cmd_post_cqe); when there is none the FETCH ends, and nobody is told which buffer
 * it was. Buffers are used in the order in which they were given.
 */
static void find_buffers(struct batch *b)
{
	const struct io_uring_buf_ring *ring = b->ring;
	uint16_t used;

	if (ring_group_used(&b->queue->setup.reactor->ring, (unsigned)b->group, &used) < 0)
		return;
	for (; b->named != used; b->named++)
		give_buffer(b, ring->bufs[b->named % BUFFER_NR].bid);
}

static void fetch_event(struct op *op, int res, uint32_t cqe_flags)
{
	struct batch *b = container_of(op, struct batch, fetch);

	if (cqe_flags & IORING_CQE_F_BUFFER) {
		unsigned idx = cqe_flags >> IORING_CQE_BUFFER_SHIFT;
		unsigned nr = res > 0 ? (unsigned)res / sizeof(uint16_t) : 0;
		const uint16_t *tags;

		ASSERT(idx < BUFFER_NR && nr <= BUFFER_TAG_NR);
		tags = buffer(b, idx);
		for (unsigned i = 0; i < nr; i++)
			serve_tag(b->queue, b->queue->ios, tags[i]);
		b->named++;
		give_buffer(b, idx);
	}
	if (cqe_flags & IORING_CQE_F_MORE)
		return;
	if (res == -ENOBUFS)
		find_buffers(b);
	/* All buffers are the driver's again: what waits there comes with the next one. */
	if (res >= 0 || res == -ENOBUFS || is_transient(res))
		fetch(op);
	else
		fetch_aborted(b, res);
}

/*
 * A FETCH that the kernel takes while it keeps CQEs ends at once with -ENOBUFS, and is one more of
 * those: the FETCHes of two queues could end each other for ever.
 */
static void fetch(struct op *op)
{
	struct batch *b = container_of(op, struct batch, fetch);
	struct queue *q = b->queue;
	struct io_uring_sqe *sqe = reactor_cq_overflows(op->reactor) ? NULL : op_sqe(op);

	if (!sqe) {
		op_park(op, fetch);
		return;
	}
	prep_batch_cmd(b, sqe, UBLK_U_IO_FETCH_IO_CMDS);
	((struct ublk_batch_io *)((char *)sqe + SQE_CMD_OFFSET))->elem_bytes = sizeof(uint16_t);
	sqe->rw_flags = (int)URING_CMD_MULTISHOT;
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = (uint16_t)b->group;
	op_start(op, sqe);
	q->fetched_nr = q->setup.depth;
	q->fetch_mark = reactor_sq_mark(q->setup.reactor);
}

/* The FETCH comes after this: the driver refuses it before all tags are armed. */
static void batch_prepared(struct op *op, int res, uint32_t cqe_flags)
{
	struct batch *b = container_of(op, struct batch, commit);
	struct queue *q = b->queue;

	(void)cqe_flags;
	op->fn = commit_event;
	b->sent_nr = 0;
	for (unsigned tag = 0; tag < q->setup.depth; tag++)
		tag_set_state(&q->ios[tag], TAG_ARMED);
	if (res >= 0) {
		fetch(&b->fetch);
		return;
	}
	q->fetched_nr = q->setup.depth;
	q->fetch_mark = reactor_sq_mark(q->setup.reactor);
	fetch_aborted(b, res);
}

static void batch_prepare(struct op *op)
{
	struct batch *b = container_of(op, struct batch, commit);
	struct queue *q = b->queue;
	struct io_uring_sqe *sqe = op_sqe(op);
	uint8_t *at = b->elements;

	if (!sqe) {
		op_park(op, batch_prepare);
		return;
	}
	b->sent_nr = q->setup.depth;
	for (unsigned tag = 0; tag < q->setup.depth; tag++)
		at = put_element(at, b->element_bytes, &q->ios[tag]);
	prep_elements(b, sqe, UBLK_U_IO_PREP_IO_CMDS);
	op_start(op, sqe);
}

void batch_fetch(struct queue *q)
{
	batch_prepare(&q->batch->commit);
}

/* ---- life ---- */

static int batch_buffers_init(struct batch *b)
{
	void *mem = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	b->ring = mem;
	b->group = reactor_group_add(b->queue->setup.reactor, mem, BUFFER_NR);
	if (b->group < 0)
		return b->group;
	io_uring_buf_ring_init(b->ring);
	for (unsigned i = 0; i < BUFFER_NR; i++)
		give_buffer(b, i);
	return 0;
}

static int ops_init(struct batch *b)
{
	struct queue *q = b->queue;
	struct op_owner owner = { .kind = OP_KIND_TAG, .queue = q->setup.idx };
	int ret = op_init(&b->fetch, q->setup.reactor, owner, fetch_event);

	owner.leg = 1;
	return ret < 0 ? ret : op_init(&b->commit, q->setup.reactor, owner, batch_prepared);
}

int batch_init(struct queue *q)
{
	struct batch *b = calloc(1, sizeof(*b));
	int ret;

	if (!b)
		return -ENOMEM;
	q->batch = b;
	b->queue = q;
	b->group = -1;
	b->element_bytes = element_bytes(q);
	b->elements = calloc(q->setup.depth, b->element_bytes);
	if (!b->elements)
		return -ENOMEM;
	ret = batch_buffers_init(b);
	return ret < 0 ? ret : ops_init(b);
}

/* A slot never changes, unlike the generation in the same word. */
static bool has_slot(const struct op *op, unsigned slot)
{
	return user_data_slot(__atomic_load_n(&op->user_data, __ATOMIC_RELAXED)) == slot;
}

bool batch_owns(const struct queue *q, unsigned slot)
{
	return has_slot(&q->batch->fetch, slot) || has_slot(&q->batch->commit, slot);
}

void batch_fini(struct queue *q)
{
	struct batch *b = q->batch;

	if (!b)
		return;
	op_fini(&b->fetch);
	op_fini(&b->commit);
	reactor_group_remove(q->setup.reactor, b->group);
	if (b->ring)
		munmap(b->ring, MAP_BYTES);
	free(b->elements);
	free(b);
	q->batch = NULL;
}
