/*
 * Memory that a client shares with the server, as the driver has it (ublk_ctrl_reg_buf,
 * ublk_ctrl_unreg_buf, ublk_try_buf_match): one memory for each device, whose pages are those of
 * the device's slot; whoever registers them a second time is refused. Both commands wait until no
 * request is under way, and none begins meanwhile. What was registered stays when a server dies.
 *
 * Not as in the driver: a server that is killed while it waits for such a command ends all the
 * same.
 */
#include <errno.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"
#include "ublk/shmem.h"

static int register_memory(struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	const struct ublk_shmem_buf_reg *reg = (const void *)(uintptr_t)cmd->addr;

	if (cmd->len != sizeof(*reg) || !reg || reg->flags || reg->reserved)
		sim_fail("dev %u: REG_BUF with a buffer of %u bytes", dev->id, cmd->len);
	if (reg->len != MODEL_SHMEM_BYTES || reg->addr % 4096 != 0)
		sim_fail("dev %u: REG_BUF of %llu bytes", dev->id, (unsigned long long)reg->len);
	if (dev->shmem_registered)
		return -EEXIST;
	dev->shmem_registered = true;
	/* The lowest that is free, where others have been. */
	dev->shmem_idx = (unsigned)sim_below(SHMEM_BUFFERS_MAX);
	return (int)dev->shmem_idx;
}

static int unregister_memory(struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	if (!dev->shmem_registered || cmd->data[0] != dev->shmem_idx)
		return -ENOENT;
	dev->shmem_registered = false;
	return 0;
}

static int shmem_execute(struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd, uint32_t cmd_op)
{
	if (sim_fault(FAULT_CTL_SHMEM))
		return -ENOMEM;
	return cmd_op == UBLK_U_CMD_REG_BUF ? register_memory(dev, cmd)
					    : unregister_memory(dev, cmd);
}

void model_shmem_look(struct model_dev *dev)
{
	struct sim_op *op = dev->shmem_op;

	if (!op || dev->inflight_nr > 0)
		return;
	dev->shmem_op = NULL;
	sim_op_done(op, shmem_execute(dev, sim_op_cmd(op), op->sqe.cmd_op));
}

void model_shmem_cmd(struct model_dev *dev, struct sim_op *op)
{
	if (!(dev->info.flags & UBLK_F_SHMEM_ZC))
		sim_fail("dev %u has no shared memory", dev->id);
	if (dev->shmem_op)
		sim_fail("dev %u: two commands about shared memory", dev->id);
	dev->shmem_op = op;
	model_shmem_look(dev);
}

uint8_t *model_shmem_pages(const struct model_dev *dev, const struct client_rq *rq)
{
	uint64_t place = (uint64_t)rq->queue * dev->info.queue_depth + rq->tag;
	uint64_t at = place * dev->info.max_io_buf_bytes;

	if (!dev->shmem_view || at + dev->info.max_io_buf_bytes > MODEL_SHMEM_BYTES ||
	    sim_one_in(4))
		return NULL;
	/* Wherever sectors may begin in a page. */
	return dev->shmem_view + at;
}

uint64_t model_shmem_addr(const struct model_dev *dev, const struct client_rq *rq)
{
	return (uint64_t)dev->shmem_idx << UBLK_SHMEM_ZC_IDX_OFF |
	       (uint64_t)(rq->pages - dev->shmem_view);
}
