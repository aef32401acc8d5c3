/*
 * FETCH and COMMIT_AND_FETCH of the modelled driver (ublk_ch_uring_cmd_local), dispatch of requests
 * (ublk_queue_rq, ublk_dispatch_req) and aborts (ublk_cancel_cmd). What the driver answers with
 * -EINVAL or -EBUSY is a bug of the server, and fails the run.
 */
#include <errno.h>
#include <string.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"

#define SECTOR_SHIFT 9
#define POISON_READ 0xa5
#define POISON_IDLE 0x5c
#define POISON_BYTES 64

static struct model_tag *tag_at(const struct model_dev *dev, unsigned queue, unsigned tag)
{
	return &dev->queues[queue].tags[tag];
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
	const struct model_tag *t = tag_at(dev, queue, tag);

	return t->active && !t->cancelled && !t->rq;
}

struct client_rq *model_rq(const struct model_dev *dev, unsigned queue, unsigned tag)
{
	if (queue >= dev->info.nr_hw_queues || tag >= dev->info.queue_depth)
		return NULL;
	return tag_at(dev, queue, tag)->rq;
}

static void hold(struct model_tag *t, struct sim_op *op, uint64_t addr)
{
	t->active = true;
	t->owned = false;
	t->cmd = op;
	t->addr = addr;
}

static void fetch(struct model_dev *dev, struct model_tag *t, struct sim_op *op,
		  const struct ublksrv_io_cmd *cmd)
{
	if (model_ready(dev) || t->active)
		sim_fail("dev %u queue %u tag %u is fetched twice", dev->id, cmd->q_id, cmd->tag);
	if (cmd->addr == 0)
		sim_fail("dev %u queue %u tag %u: FETCH without a buffer", dev->id, cmd->q_id,
			 cmd->tag);
	if (sim_fault(FAULT_FETCH_FAILS)) {
		sim_op_done(op, -ENOMEM);
		return;
	}
	hold(t, op, cmd->addr);
	t->ring = op->ring;
	t->cancelled = false;
	dev->queues[cmd->q_id].ready_nr++;
	model_check_start(dev);
}

static void check_result(const struct model_dev *dev, const struct client_rq *rq, int32_t result)
{
	unsigned op = client_rq_op(rq);
	uint32_t bytes = rq->nr_sectors << SECTOR_SHIFT;

	if (result < -4095)
		sim_fail("dev %u queue %u tag %u: result %d is no errno", dev->id, rq->queue,
			 rq->tag, result);
	if (result < 0 || (op != UBLK_IO_OP_READ && op != UBLK_IO_OP_WRITE))
		return;
	if ((uint32_t)result != bytes)
		sim_fail("dev %u queue %u tag %u: COMMIT of %d bytes, %u were asked for", dev->id,
			 rq->queue, rq->tag, result, bytes);
}

static uint32_t data_bytes(const struct client_rq *rq)
{
	unsigned op = client_rq_op(rq);

	return op == UBLK_IO_OP_READ || op == UBLK_IO_OP_WRITE ? rq->nr_sectors << SECTOR_SHIFT : 0;
}

static void commit(struct model_dev *dev, struct model_tag *t, struct sim_op *op,
		   const struct ublksrv_io_cmd *cmd)
{
	struct client_rq *rq = t->rq;

	if (t->ring != op->ring)
		sim_fail("dev %u queue %u tag %u: COMMIT from another task than FETCH", dev->id,
			 cmd->q_id, cmd->tag);
	if (!t->owned)
		sim_fail("dev %u queue %u tag %u: COMMIT of a tag that the server does not have",
			 dev->id, cmd->q_id, cmd->tag);
	if (cmd->addr == 0)
		sim_fail("dev %u queue %u tag %u: COMMIT without a buffer", dev->id, cmd->q_id,
			 cmd->tag);
	check_result(dev, rq, cmd->result);
	/* io_uring had no memory for the command: the driver has not seen it. */
	if (sim_fault(FAULT_COMMIT_FAILS)) {
		sim_op_done(op, -ENOMEM);
		return;
	}
	hold(t, op, cmd->addr);
	t->rq = NULL;
	model.commit_nr++;
	sim.progress++;
	sim_trace("commit", (uint64_t)cmd->q_id << 32 | cmd->tag, rq->op_flags, rq->start_sector,
		  cmd->result);
	client_rq_answer(rq, cmd->result, (const void *)(uintptr_t)cmd->addr);
	/* The buffer is the driver's now: whoever still reads it shall get rubbish. */
	memset((void *)(uintptr_t)cmd->addr, POISON_IDLE, POISON_BYTES);
	dev->inflight_nr--;
	model_request_done(dev);
}

/* Defects of the way to the driver; true when the command is to be left alone. */
static bool spoil_commit(struct model_dev *dev, struct sim_op *op, struct ublksrv_io_cmd *cmd)
{
	const struct client_rq *rq = tag_at(dev, cmd->q_id, cmd->tag)->rq;

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
	t = tag_at(dev, cmd->q_id, cmd->tag);
	if (op->sqe.cmd_op == UBLK_U_IO_FETCH_REQ)
		fetch(dev, t, op, cmd);
	else if (op->sqe.cmd_op != UBLK_U_IO_COMMIT_AND_FETCH_REQ)
		sim_fail("dev %u: unknown command %x", dev->id, op->sqe.cmd_op);
	else if (!spoil_commit(dev, op, cmd))
		commit(dev, t, op, cmd);
}

static void deliver(struct sim_event *event)
{
	struct client_rq *rq = container_of(event, struct client_rq, event);
	struct model_dev *dev = rq->client->dev;
	struct model_tag *t = tag_at(dev, rq->queue, rq->tag);
	struct ublksrv_io_desc *desc = &dev->queues[rq->queue].descs[rq->tag];
	uint32_t bytes = data_bytes(rq);
	struct sim_op *op = t->cmd;

	*desc = (struct ublksrv_io_desc){
		.op_flags = rq->op_flags,
		.nr_sectors = rq->nr_sectors,
		.start_sector = rq->start_sector,
		.addr = t->addr,
	};
	if (client_rq_op(rq) == UBLK_IO_OP_WRITE)
		storage_pattern((void *)(uintptr_t)t->addr, rq->seed,
				rq->start_sector << SECTOR_SHIFT, bytes);
	else
		memset((void *)(uintptr_t)t->addr, POISON_READ, bytes);
	t->active = false;
	t->owned = true;
	t->cmd = NULL;
	sim_op_done(op, UBLK_IO_RES_OK);
}

void model_dispatch(struct model_dev *dev, struct client_rq *rq)
{
	struct model_tag *t = tag_at(dev, rq->queue, rq->tag);

	t->rq = rq;
	dev->inflight_nr++;
	sim_trace("request", (uint64_t)rq->queue << 32 | rq->tag, rq->op_flags, rq->start_sector,
		  rq->nr_sectors);
	sim_event_arm(&rq->event, sim.now_ns + sim_skewed(0, 100 * NS_PER_US), deliver);
}

/* After the disk is gone no request is started, so every active tag is idle. */
void model_cancel_tags(struct model_dev *dev)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		for (unsigned i = 0; i < dev->info.queue_depth; i++) {
			struct model_tag *t = tag_at(dev, q, i);
			struct sim_op *op = t->cmd;

			if (!t->active || t->cancelled)
				continue;
			t->cancelled = true;
			t->cmd = NULL;
			sim_op_done(op, UBLK_IO_RES_ABORT);
		}
	}
}
