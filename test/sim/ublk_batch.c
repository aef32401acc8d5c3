/*
 * UBLK_F_BATCH_IO of the modelled driver (ublk_ch_batch_io_uring_cmd): PREP and COMMIT of many
 * tags, and the multishot FETCH, whose CQEs bring the numbers of tags in buffers that the server
 * provides.
 *
 * A request puts its tag into the queue's FIFO and asks for task work; that runs within the
 * server's enter, hands over what is in the FIFO, and posts one CQE for each buffer of tags. A
 * FETCH that finds tags in the FIFO brings them at once.
 *
 * Faults: no memory for a command; a COMMIT that takes only some of its elements; CQEs of few tags,
 * so that buffers run out; no room in the CQ. Those two end the FETCH with -ENOBUFS, and the tags
 * stay in the FIFO. What the driver answers with -EINVAL or -EBUSY is a bug of the server.
 */
#include <errno.h>
#include <string.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"

#define TAG_NR_MAX 128u
#define URING_CMD_MULTISHOT (1u << 1)
#define STARVED_NR_MAX 100

bool model_is_batch(const struct model_dev *dev)
{
	return dev->info.flags & UBLK_F_BATCH_IO;
}

/* ---- PREP and COMMIT ---- */

/* One walk over the elements of a command. */
struct elements {
	struct model_dev *dev;
	struct sim_op *op;
	struct ublk_batch_io cmd;
};

struct element {
	struct ublk_elem_header header;
	uint64_t addr;
	struct model_tag *t;
};

/* ublk_check_batch_cmd() */
static void check_cmd(const struct elements *e)
{
	uint64_t flags = e->dev->info.flags;
	bool has_addr = e->cmd.flags & UBLK_BATCH_F_HAS_BUF_ADDR;
	bool has_fallback = e->cmd.flags & UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK;

	if (e->cmd.flags & ~(UBLK_BATCH_F_HAS_BUF_ADDR | UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK) ||
	    e->cmd.reserved || e->cmd.reserved2)
		sim_fail("dev %u: batch flags %x", e->dev->id, e->cmd.flags);
	if (e->cmd.nr_elem == 0 || e->cmd.nr_elem > e->dev->info.queue_depth)
		sim_fail("dev %u: a batch of %u", e->dev->id, e->cmd.nr_elem);
	if (has_addr != model_copies(e->dev) || has_fallback != !!(flags & UBLK_F_AUTO_BUF_REG))
		sim_fail("dev %u: batch flags %x do not fit the device", e->dev->id, e->cmd.flags);
	if (e->cmd.elem_bytes != sizeof(struct ublk_elem_header) + (has_addr ? 8 : 0))
		sim_fail("dev %u: elements of %u bytes", e->dev->id, e->cmd.elem_bytes);
}

static void element_at(const struct elements *e, unsigned idx, struct element *ret)
{
	const uint8_t *at =
		(const uint8_t *)(uintptr_t)e->op->sqe.addr + (size_t)idx * e->cmd.elem_bytes;

	memset(ret, 0, sizeof(*ret));
	memcpy(ret, at, e->cmd.elem_bytes);
	if (ret->header.tag >= e->dev->info.queue_depth)
		sim_fail("dev %u: an element for tag %u", e->dev->id, ret->header.tag);
	if (model_copies(e->dev) && ret->addr == 0)
		sim_fail("dev %u: an element without a buffer", e->dev->id);
	ret->t = model_tag(e->dev, e->cmd.q_id, ret->header.tag);
}

static void prep(struct elements *e)
{
	struct element element;

	/* Nothing is kept of a PREP that fails. */
	if (sim_fault(FAULT_FETCH_FAILS)) {
		sim_op_done_inline(e->op, -ENOMEM, true);
		return;
	}
	for (unsigned i = 0; i < e->cmd.nr_elem; i++) {
		element_at(e, i, &element);
		if (model_ready(e->dev) || element.t->active)
			sim_fail("dev %u queue %u tag %u is prepared twice", e->dev->id,
				 e->cmd.q_id, element.header.tag);
		model_tag_ready(e->dev, e->cmd.q_id, element.t);
		element.t->addr = element.addr;
		element.t->buf_idx = element.header.buf_index;
	}
	sim_op_done_inline(e->op, 0, true);
	model_check_start(e->dev);
	model_check_recovery(e->dev);
}

static void commit_element(struct elements *e, unsigned idx)
{
	struct element element;

	element_at(e, idx, &element);
	if (!element.t->owned)
		sim_fail("dev %u queue %u tag %u: COMMIT of a tag that the server does not have",
			 e->dev->id, e->cmd.q_id, element.header.tag);
	model_commit(e->dev, element.t, e->op->ring, element.header.result, element.addr);
	element.t->buf_idx = element.header.buf_index;
}

static void commit(struct elements *e)
{
	unsigned nr = e->cmd.nr_elem, told_nr;

	if (sim_fault(FAULT_COMMIT_FAILS)) {
		sim_op_done_inline(e->op, -ENOMEM, true);
		return;
	}
	if (nr > 1 && sim_fault(FAULT_BATCH_COMMIT_PARTIAL))
		nr = (unsigned)sim_between(1, nr - 1);
	told_nr = nr;
	if (sim_one_in(20) && sim_defect(DEFECT_PARTIAL_COMMIT))
		nr--;
	for (unsigned i = 0; i < nr; i++)
		commit_element(e, i);
	sim_op_done_inline(e->op, (int)(told_nr * e->cmd.elem_bytes), told_nr < e->cmd.nr_elem);
}

/* ---- FETCH ---- */

static void put_back(struct model_queue *q, const uint16_t *tags, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		model_take_back(&q->tags[tags[i]]);
		q->fifo[q->fifo_nr++] = tags[i];
	}
}

static unsigned take_tags(struct model_queue *q, unsigned max_nr, uint16_t *tags)
{
	unsigned nr = MIN(max_nr, q->fifo_nr);

	memcpy(tags, q->fifo, nr * sizeof(*tags));
	q->fifo_nr -= nr;
	memmove(q->fifo, q->fifo + nr, q->fifo_nr * sizeof(*tags));
	for (unsigned i = 0; i < nr; i++)
		model_hand_over(q->dev, &q->tags[tags[i]], q->fetch->ring);
	return nr;
}

/*
 * __ublk_batch_dispatch(): one CQE. Its buffer is used up also when there is no room for the CQE;
 * then nobody ever tells the server.
 */
static int bring(struct model_queue *q, unsigned max_nr)
{
	struct sim_op *op = q->fetch;
	const struct io_uring_buf *buf = sim_group_next(op->ring, op->sqe.buf_group);
	uint16_t tags[TAG_NR_MAX];
	unsigned bid, nr;

	if (!buf) {
		sim_saw(FAULT_BATCH_NO_BUFFER);
		if (++q->starved_nr > STARVED_NR_MAX)
			sim_fail("dev %u: FETCH ends for want of a buffer again and again",
				 q->dev->id);
		return -ENOBUFS;
	}
	q->starved_nr = 0;
	bid = buf->bid;
	nr = take_tags(q, MIN(max_nr, buf->len / (unsigned)sizeof(*tags)), tags);
	memcpy((void *)(uintptr_t)buf->addr, tags, nr * sizeof(*tags));
	sim_group_take(op->ring, op->sqe.buf_group);
	if (sim_fault(FAULT_BATCH_NO_CQE) ||
	    !sim_op_post_more(op, (int)(nr * sizeof(*tags)),
			      IORING_CQE_F_BUFFER | bid << IORING_CQE_BUFFER_SHIFT)) {
		put_back(q, tags, nr);
		return -ENOBUFS;
	}
	sim_saw(FAULT_PATH_BATCH);
	return 0;
}

/* Few at a time: while it runs, requests come one by one. */
static void dispatch(struct model_queue *q)
{
	bool few = q->fifo_nr > 1 && sim_fault(FAULT_BATCH_FETCH_FEW);
	int ret = 0;

	while (q->fetch && q->fifo_nr > 0 && ret == 0)
		ret = bring(q, few ? 1 + (unsigned)sim_one_in(8) : TAG_NR_MAX);
	if (ret < 0) {
		struct sim_op *op = q->fetch;

		q->fetch = NULL;
		sim_op_done(op, ret);
	}
}

static void dispatch_task(struct sim_task *task)
{
	dispatch(container_of(task, struct model_queue, dispatch));
}

static void want_dispatch(struct model_queue *q)
{
	if (q->fetch && q->fifo_nr > 0)
		sim_ring_task(q->fetch->ring, &q->dispatch, dispatch_task);
}

/* ublk_commit_rqs() */
static void unplug(struct sim_event *event)
{
	want_dispatch(container_of(event, struct model_queue, plug));
}

/* The block layer says of some requests that more will follow: they wait for those. */
void model_batch_push(struct model_dev *dev, unsigned queue, unsigned tag)
{
	struct model_queue *q = &dev->queues[queue];

	q->fifo[q->fifo_nr++] = (uint16_t)tag;
	if (q->plug.pos != 0)
		return;
	if (sim_one_in(8))
		sim_event_arm(&q->plug, sim.now_ns + sim_skewed(0, 2 * NS_PER_MS), unplug);
	else
		want_dispatch(q);
}

/* ublk_validate_batch_fetch_cmd(), ublk_batch_attach() */
static void fetch(struct model_dev *dev, struct sim_op *op, const struct ublk_batch_io *cmd)
{
	struct model_queue *q = &dev->queues[cmd->q_id];

	if (!((unsigned)op->sqe.rw_flags & URING_CMD_MULTISHOT) ||
	    !(op->sqe.flags & IOSQE_BUFFER_SELECT) || cmd->elem_bytes != sizeof(uint16_t) ||
	    cmd->flags || cmd->nr_elem)
		sim_fail("dev %u queue %u: a FETCH that the kernel refuses", dev->id, cmd->q_id);
	if (q->ready_nr < dev->info.queue_depth)
		sim_fail("dev %u queue %u: a FETCH before PREP", dev->id, cmd->q_id);
	if (q->fetch)
		sim_fail("dev %u queue %u: a second FETCH, which the product has no use for",
			 dev->id, cmd->q_id);
	if (q->aborted) {
		sim_op_done(op, UBLK_IO_RES_ABORT);
		return;
	}
	if (sim_fault(FAULT_BATCH_FETCH_FAILS)) {
		sim_op_done(op, -ENOMEM);
		return;
	}
	q->fetch = op;
	dispatch(q);
}

/* No request is started any more: the FIFO is empty. */
void model_batch_cancel(struct model_queue *q)
{
	struct sim_op *op = q->fetch;

	q->aborted = true;
	q->fetch = NULL;
	if (op)
		sim_op_done(op, UBLK_IO_RES_ABORT);
}

void model_batch_cmd(struct model_dev *dev, struct sim_op *op)
{
	struct elements e = { .dev = dev, .op = op };

	memcpy(&e.cmd, sim_op_cmd(op), sizeof(e.cmd));
	if (e.cmd.q_id >= dev->info.nr_hw_queues)
		sim_fail("dev %u: command for queue %u", dev->id, e.cmd.q_id);
	if (op->sqe.cmd_op == UBLK_U_IO_FETCH_IO_CMDS) {
		fetch(dev, op, &e.cmd);
		return;
	}
	check_cmd(&e);
	if (op->sqe.cmd_op == UBLK_U_IO_PREP_IO_CMDS)
		prep(&e);
	else if (op->sqe.cmd_op == UBLK_U_IO_COMMIT_IO_CMDS)
		commit(&e);
	else
		sim_fail("dev %u: command %x of a device with batches", dev->id, op->sqe.cmd_op);
}
