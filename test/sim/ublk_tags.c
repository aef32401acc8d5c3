/*
 * FETCH and COMMIT_AND_FETCH of the modelled driver (ublk_ch_uring_cmd_local), dispatch of requests
 * (ublk_queue_rq, ublk_dispatch_req, ublk_auto_buf_register) and aborts (ublk_cancel_cmd). What the
 * driver answers with -EINVAL or -EBUSY is a bug of the server, and fails the run.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"

#define SECTOR_SHIFT 9
#define POISON_READ 0xa5
#define POISON_IDLE 0x5c
#define POISON_BYTES 64
#define PAGE_BYTES 4096u

struct model_tag *model_tag(const struct model_dev *dev, unsigned queue, unsigned tag)
{
	return &dev->queues[queue].tags[tag];
}

bool model_copies(const struct model_dev *dev)
{
	return !(dev->info.flags &
		 (UBLK_F_USER_COPY | UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG));
}

bool model_ready(const struct model_dev *dev)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
		if (dev->queues[q].ready_nr < dev->info.queue_depth)
			return false;
	return true;
}

bool model_tag_idle(const struct model_dev *dev, unsigned queue, unsigned tag)
{
	const struct model_tag *t = model_tag(dev, queue, tag);

	if (dev->shmem_op)
		return false;
	/* Without a server there are tags all the same. */
	if (dev->queues[queue].no_server)
		return dev->has_disk && !dev->stopping && !t->rq;
	return t->active && !t->cancelled && !t->rq;
}

struct client_rq *model_rq(const struct model_dev *dev, unsigned queue, unsigned tag)
{
	if (queue >= dev->info.nr_hw_queues || tag >= dev->info.queue_depth)
		return NULL;
	return model_tag(dev, queue, tag)->rq;
}

/* ---- from the server: FETCH and COMMIT ---- */

static void hold(struct model_tag *t, struct sim_op *op, uint64_t addr)
{
	t->active = true;
	t->owned = false;
	t->cmd = op;
	t->addr = addr;
}

void model_tag_ready(struct model_dev *dev, unsigned queue, struct model_tag *t)
{
	t->active = true;
	t->owned = t->cancelled = false;
	if (++dev->queues[queue].ready_nr == dev->info.queue_depth)
		model_queue_ready(dev, &dev->queues[queue]);
}

/* ublk_validate_io_buf(); without the fallback a request may fail for nothing it has done. */
static void take_buffer(const struct model_dev *dev, struct model_tag *t, const struct sim_op *op)
{
	uint64_t addr = op->sqe.addr;

	if (!(dev->info.flags & UBLK_F_AUTO_BUF_REG))
		return;
	if (addr >> 16 != UBLK_AUTO_BUF_REG_FALLBACK)
		sim_fail("dev %u: sqe->addr is %llx", dev->id, (unsigned long long)addr);
	t->buf_idx = (uint16_t)addr;
}

static void check_addr(const struct model_dev *dev, const struct ublksrv_io_cmd *cmd)
{
	if (model_takes_sector(dev, cmd))
		return;
	if ((cmd->addr != 0) != model_copies(dev))
		sim_fail("dev %u queue %u tag %u: a command %s a buffer", dev->id, cmd->q_id,
			 cmd->tag, cmd->addr ? "with" : "without");
}

static void commit(struct model_dev *dev, struct model_tag *t, struct sim_op *op,
		   const struct ublksrv_io_cmd *cmd);

static void fetch(struct model_dev *dev, struct model_tag *t, struct sim_op *op,
		  const struct ublksrv_io_cmd *cmd)
{
	if (t->was_owned && sim_defect(DEFECT_OLD_COMMIT))
		commit(dev, t, op, cmd);
	if (model_ready(dev) || t->active)
		sim_fail("dev %u queue %u tag %u is fetched twice", dev->id, cmd->q_id, cmd->tag);
	check_addr(dev, cmd);
	if (sim_fault(FAULT_FETCH_FAILS)) {
		sim_op_done(op, -ENOMEM);
		return;
	}
	take_buffer(dev, t, op);
	model_tag_ready(dev, cmd->q_id, t);
	hold(t, op, cmd->addr);
	t->ring = op->ring;
	model_check_start(dev);
	model_check_recovery(dev);
}

static void check_result(const struct model_dev *dev, const struct client_rq *rq, int32_t result)
{
	uint32_t bytes = client_rq_data_bytes(rq);

	if (result < -4095)
		sim_fail("dev %u queue %u tag %u: result %d is no errno", dev->id, rq->queue,
			 rq->tag, result);
	if (model_zones_check_result(rq, result))
		return;
	if (result >= 0 && bytes > 0 && (uint32_t)result != bytes)
		sim_fail("dev %u queue %u tag %u: COMMIT of %d bytes, %u were asked for", dev->id,
			 rq->queue, rq->tag, result, bytes);
}

/* ublk_clear_auto_buf_reg(): only the ring that it was registered with lets go of it. */
static void unregister(struct model_tag *t, struct sim_ring *ring)
{
	if (!t->registered)
		return;
	if (t->registered != ring)
		sim_fail("a registered buffer is left with another ring");
	if (!sim_one_in(20) || !sim_defect(DEFECT_BUFFER_KEPT))
		sim_buffer_unregister(ring, t->buf_idx, t->rq);
	t->registered = NULL;
}

void model_commit(struct model_dev *dev, struct model_tag *t, struct sim_ring *ring, int32_t result,
		  uint64_t addr)
{
	struct client_rq *rq = t->rq;

	check_result(dev, rq, result);
	unregister(t, ring);
	t->active = true;
	t->owned = false;
	t->rq = NULL;
	model.commit_nr++;
	sim.progress++;
	sim_trace("commit", (uint64_t)rq->queue << 32 | rq->tag, rq->op_flags, rq->start_sector,
		  result);
	client_rq_answer(rq, result, addr ? (const void *)(uintptr_t)addr : rq->pages);
	/* The buffer is the driver's now: whoever still reads it shall get rubbish. */
	if (addr)
		memset((void *)(uintptr_t)addr, POISON_IDLE, POISON_BYTES);
	t->addr = addr;
	dev->inflight_nr--;
	model_request_done(dev);
}

static void commit(struct model_dev *dev, struct model_tag *t, struct sim_op *op,
		   const struct ublksrv_io_cmd *cmd)
{
	uint64_t addr;

	if (t->ring != op->ring)
		sim_fail("dev %u queue %u tag %u: COMMIT from another task than FETCH", dev->id,
			 cmd->q_id, cmd->tag);
	if (!t->owned)
		sim_fail("dev %u queue %u tag %u: COMMIT of a tag that the server does not have",
			 dev->id, cmd->q_id, cmd->tag);
	check_addr(dev, cmd);
	/* io_uring had no memory for the command: the driver has not seen it. */
	if (sim_fault(FAULT_COMMIT_FAILS)) {
		sim_op_done(op, -ENOMEM);
		return;
	}
	addr = model_zones_take_sector(dev, t->rq, cmd);
	model_commit(dev, t, op->ring, cmd->result, addr);
	take_buffer(dev, t, op);
	hold(t, op, addr);
}

/* Defects of the way to the driver; true when the command is to be left alone. */
static bool spoil_commit(struct model_dev *dev, struct sim_op *op, struct ublksrv_io_cmd *cmd)
{
	const struct client_rq *rq = model_tag(dev, cmd->q_id, cmd->tag)->rq;

	if (!rq || !sim_one_in(20))
		return false;
	if (cmd->result > 0 && sim_defect(DEFECT_SHORT_COMMIT))
		cmd->result /= 2;
	if (sim_defect(DEFECT_LOST_COMMIT))
		return true;
	if (sim_defect(DEFECT_DOUBLE_COMMIT)) {
		struct sim_op twice = *op;

		model_tag_cmd(dev, op);
		model_tag_cmd(dev, &twice);
	}
	return false;
}

void model_tag_cmd(struct model_dev *dev, struct sim_op *op)
{
	struct ublksrv_io_cmd *cmd = sim_op_cmd(op);
	struct model_tag *t;

	if (cmd->q_id >= dev->info.nr_hw_queues || cmd->tag >= dev->info.queue_depth)
		sim_fail("dev %u: command for queue %u tag %u", dev->id, cmd->q_id, cmd->tag);
	t = model_tag(dev, cmd->q_id, cmd->tag);
	if (op->sqe.cmd_op == UBLK_U_IO_FETCH_REQ)
		fetch(dev, t, op, cmd);
	else if (op->sqe.cmd_op != UBLK_U_IO_COMMIT_AND_FETCH_REQ)
		sim_fail("dev %u: unknown command %x", dev->id, op->sqe.cmd_op);
	else if (!spoil_commit(dev, op, cmd))
		commit(dev, t, op, cmd);
}

/* ---- to the server ---- */

/* The request's own memory, as the block layer's: what is in it before belongs to others. */
static uint8_t *make_pages(const struct model_dev *dev, struct client_rq *rq, uint32_t bytes)
{
	if (rq->pages)
		return rq->pages;
	rq->pages = model_shmem_pages(dev, rq);
	rq->in_shmem = rq->pages;
	if (!rq->in_shmem)
		rq->pages = aligned_alloc(PAGE_BYTES, round_up(bytes, PAGE_BYTES));
	if (client_rq_op(rq) == UBLK_IO_OP_READ)
		rq->touched = calloc(1, bytes);
	return rq->pages;
}

static void fill(struct model_dev *dev, const struct model_tag *t, struct client_rq *rq)
{
	uint32_t bytes = client_rq_data_bytes(rq);
	uint8_t *at;

	if (bytes == 0)
		return;
	at = model_copies(dev) ? (uint8_t *)(uintptr_t)t->addr : make_pages(dev, rq, bytes);
	sim_saw(model_copies(dev) ? FAULT_PATH_COPY : FAULT_PATH_USER_COPY);
	if (client_rq_gives(rq))
		storage_pattern(at, rq->seed, rq->start_sector << SECTOR_SHIFT, bytes);
	else /* ublk_report_zones() has zeroes in its buffer */
		memset(at, client_rq_op(rq) == UBLK_IO_OP_READ ? POISON_READ : 0, bytes);
}

/* ublk_auto_buf_register(). The flag stays, also when it works the next time. */
static void register_pages(const struct model_dev *dev, struct model_tag *t, struct sim_ring *ring)
{
	if (!(dev->info.flags & UBLK_F_AUTO_BUF_REG) || client_rq_data_bytes(t->rq) == 0)
		return;
	if (sim_buffer_register(ring, t->buf_idx, t->rq) == 0) {
		t->registered = ring;
		return;
	}
	t->rq->needs_reg = true;
	sim_saw(FAULT_PATH_FALLBACK);
}

void model_hand_over(struct model_dev *dev, struct model_tag *t, struct sim_ring *ring)
{
	struct client_rq *rq = t->rq;
	bool shared;

	fill(dev, t, rq);
	register_pages(dev, t, ring);
	shared = rq->in_shmem && dev->shmem_registered;
	/* Who writes there is not seen; that the bytes are right, is. */
	if (shared && rq->touched)
		memset(rq->touched, 1, client_rq_data_bytes(rq));
	dev->queues[rq->queue].descs[rq->tag] = (struct ublksrv_io_desc){
		.op_flags = rq->op_flags | (rq->needs_reg ? UBLK_IO_F_NEED_REG_BUF : 0) |
			    (shared ? UBLK_IO_F_SHMEM_ZC : 0),
		.nr_sectors = rq->nr_sectors,
		.start_sector = rq->start_sector,
		.addr = shared ? model_shmem_addr(dev, rq) : t->addr,
	};
	rq->handed_ns = sim.now_ns;
	t->active = false;
	t->owned = true;
	t->cmd = NULL;
}

void model_take_back(struct model_tag *t)
{
	if (t->registered)
		sim_buffer_unregister(t->registered, t->buf_idx, t->rq);
	t->registered = NULL;
	t->active = true;
	t->owned = false;
}

static void deliver(struct sim_event *event)
{
	struct client_rq *rq = container_of(event, struct client_rq, event);
	struct model_dev *dev = rq->client->dev;
	struct model_tag *t = model_tag(dev, rq->queue, rq->tag);
	struct sim_op *op = t->cmd;

	if (dev->queues[rq->queue].no_server) {
		model_no_server(dev, rq);
		return;
	}
	if (model_is_batch(dev)) {
		model_batch_push(dev, rq->queue, rq->tag);
		return;
	}
	model_hand_over(dev, t, t->ring);
	sim_op_done(op, UBLK_IO_RES_OK);
}

void model_dispatch(struct model_dev *dev, struct client_rq *rq)
{
	struct model_tag *t = model_tag(dev, rq->queue, rq->tag);

	t->rq = rq;
	dev->inflight_nr++;
	sim_trace("request", (uint64_t)rq->queue << 32 | rq->tag, rq->op_flags, rq->start_sector,
		  rq->nr_sectors);
	model_queue_rq(dev, rq, 100 * NS_PER_US);
}

void model_queue_rq(struct model_dev *dev, struct client_rq *rq, uint64_t max_delay_ns)
{
	model_tag(dev, rq->queue, rq->tag)->parked = false;
	sim_event_arm(&rq->event, sim.now_ns + sim_skewed(0, max_delay_ns), deliver);
}

static void cancel_tag(struct model_tag *t)
{
	struct sim_op *op = t->cmd;

	if (!t->active || t->cancelled)
		return;
	t->cancelled = true;
	t->cmd = NULL;
	if (op)
		sim_op_done(op, UBLK_IO_RES_ABORT);
}

/* After the disk is gone no request is started, so every active tag is idle. */
void model_cancel_tags(struct model_dev *dev)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		for (unsigned tag = 0; tag < dev->info.queue_depth; tag++)
			cancel_tag(model_tag(dev, q, tag));
		if (model_is_batch(dev))
			model_batch_cancel(&dev->queues[q]);
	}
}
