/*
 * Control commands of the modelled driver (ublk_ctrl_uring_cmd). Each takes its time; some wait:
 * START_DEV for the last FETCH, STOP_DEV for the requests under way, DEL_DEV for whoever refers to
 * the device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"
#include "test/sim/visits.h"
#include "test/sim/zones/client_zones.h"

#define PAGE_BYTES 4096u
#define PAGE_SECTORS (PAGE_BYTES >> 9)
#define SHIFT_256M 28
#define QUEUE_ID_NONE 0xffff

static void *buffer(const struct ublksrv_ctrl_cmd *cmd)
{
	return (void *)(uintptr_t)cmd->addr;
}

static int get_features(const struct ublksrv_ctrl_cmd *cmd)
{
	if (cmd->len != UBLK_FEATURES_LEN || !cmd->addr)
		sim_fail("GET_FEATURES with a buffer of %u bytes", cmd->len);
	if (sim_fault(FAULT_CTL_FEATURES))
		return sim_one_in(2) ? -EOPNOTSUPP : -EPERM;
	memcpy(buffer(cmd), &model.features, UBLK_FEATURES_LEN);
	return 0;
}

static struct model_dev *dev_create(uint32_t id, const struct ublksrv_ctrl_dev_info *info)
{
	struct model_dev *dev = calloc(1, sizeof(*dev));

	dev->id = id;
	dev->info = *info;
	dev->info.dev_id = id;
	dev->info.state = UBLK_S_DEV_DEAD;
	dev->info.ublksrv_pid = -1;
	dev->info.flags &= model.features;
	dev->info.flags |= UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_URING_CMD_COMP_IN_TASK;
	if (dev->info.nr_hw_queues > model.cpu_nr) {
		dev->info.nr_hw_queues = (uint16_t)model.cpu_nr;
		sim_saw(FAULT_FEWER_QUEUES);
	}
	dev->info.max_io_buf_bytes = (uint32_t)round_down(info->max_io_buf_bytes, PAGE_BYTES);
	dev->cdev_fd = -1;
	dev->descs_bytes =
		round_up(dev->info.queue_depth * sizeof(struct ublksrv_io_desc), PAGE_BYTES);
	dev->queues = calloc(dev->info.nr_hw_queues, sizeof(*dev->queues));
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		dev->queues[q].descs = aligned_alloc(PAGE_BYTES, dev->descs_bytes);
		memset(dev->queues[q].descs, 0, dev->descs_bytes);
		dev->queues[q].tags = calloc(dev->info.queue_depth, sizeof(struct model_tag));
		dev->queues[q].fifo = calloc(dev->info.queue_depth, sizeof(uint16_t));
		dev->queues[q].dev = dev;
	}
	dev->node_at_ns = sim.now_ns + (sim_one_in(2) ? 0 : sim_skewed(0, 100 * NS_PER_MS));
	model.devs[id] = dev;
	return dev;
}

/*
 * The rules of ublk_ctrl_add_dev for servers without CAP_SYS_ADMIN. Flags of a recovery it takes
 * away without a word; a server that asks for them has promised what will not be.
 */
static void check_unprivileged(const struct ublksrv_ctrl_dev_info *info)
{
	const uint64_t never = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE |
			       UBLK_F_USER_RECOVERY_FAIL_IO | UBLK_F_USER_COPY |
			       UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG | UBLK_F_ZONED;

	if (!(info->flags & UBLK_F_UNPRIVILEGED_DEV) != !model.unprivileged)
		sim_fail("ADD_DEV with the flags %llx", (unsigned long long)info->flags);
	if (!model.unprivileged)
		return;
	if (info->flags & never)
		sim_fail("ADD_DEV of an unprivileged device with the flags %llx",
			 (unsigned long long)info->flags);
	sim_saw(FAULT_UNPRIVILEGED);
}

static int add_dev(const struct ublksrv_ctrl_cmd *cmd)
{
	struct ublksrv_ctrl_dev_info info;
	uint32_t id = cmd->dev_id;

	if (cmd->len < sizeof(info) || !cmd->addr)
		sim_fail("ADD_DEV with a buffer of %u bytes", cmd->len);
	memcpy(&info, buffer(cmd), sizeof(info));
	if (info.queue_depth > UBLK_MAX_QUEUE_DEPTH || !info.queue_depth ||
	    info.nr_hw_queues > UBLK_MAX_NR_QUEUES || !info.nr_hw_queues || id != info.dev_id)
		return -EINVAL;
	if (info.flags & UBLK_F_INTEGRITY && !(info.flags & UBLK_F_USER_COPY))
		return -EINVAL;
	if (info.flags & UBLK_F_ZONED &&
	    !(info.flags & (UBLK_F_USER_COPY | UBLK_F_SUPPORT_ZERO_COPY)))
		return -EINVAL;
	check_unprivileged(&info);
	if (sim_fault(FAULT_CTL_ADD))
		return -ENOMEM;
	for (uint32_t i = 0; id == UINT32_MAX && i < MODEL_DEV_NR; i++)
		if (!model.devs[i])
			id = i;
	if (id >= MODEL_DEV_NR)
		return -ENOSPC;
	if (model.devs[id]) {
		sim_saw(FAULT_CTL_EEXIST);
		return -EEXIST;
	}
	memcpy(buffer(cmd), &dev_create(id, &info)->info, sizeof(info));
	return 0;
}

static bool is_power_of_two_32(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* ublk_validate_params() */
static int validate_params(const struct model_dev *dev, const struct ublk_params *params)
{
	const struct ublk_param_basic *p = &params->basic;
	const struct ublk_param_discard *d = &params->discard;

	if (!(params->types & UBLK_PARAM_TYPE_BASIC))
		return -EINVAL;
	if (p->logical_bs_shift > 12 || p->logical_bs_shift < 9)
		return -EINVAL;
	if (p->physical_bs_shift > SHIFT_256M || p->io_min_shift > SHIFT_256M ||
	    p->io_opt_shift > SHIFT_256M)
		return -EINVAL;
	if (p->logical_bs_shift > p->physical_bs_shift)
		return -EINVAL;
	if (p->max_sectors > dev->info.max_io_buf_bytes >> 9 || p->max_sectors < PAGE_SECTORS)
		return -EINVAL;
	if (params->types & UBLK_PARAM_TYPE_DISCARD) {
		if (d->max_discard_sectors && d->max_discard_segments != 1)
			return -EINVAL;
		if (!d->discard_granularity)
			return -EINVAL;
	}
	if (params->types & UBLK_PARAM_TYPE_DEVT || model_zones_validate(dev, params) < 0)
		return -EINVAL;
	if (params->types & UBLK_PARAM_TYPE_INTEGRITY &&
	    (!(dev->info.flags & UBLK_F_INTEGRITY) ||
	     params->integrity.metadata_size != CLIENT_METADATA_BYTES ||
	     params->integrity.interval_exp != p->logical_bs_shift))
		return -EINVAL;
	if (params->types & UBLK_PARAM_TYPE_DMA_ALIGN &&
	    (params->dma.alignment >= PAGE_BYTES || !is_power_of_two_32(params->dma.alignment + 1)))
		return -EINVAL;
	return 0;
}

/* What the block layer would refuse, or get wrong, later. */
static int check_limits(const struct ublk_params *params)
{
	uint32_t block_sectors = 1u << (params->basic.logical_bs_shift - 9);

	if (params->basic.dev_sectors % block_sectors != 0 || params->basic.dev_sectors == 0)
		sim_fail("capacity of %llu sectors, blocks of %u",
			 (unsigned long long)params->basic.dev_sectors, block_sectors);
	if (params->basic.max_sectors % block_sectors != 0)
		sim_fail("max_sectors %u is not whole blocks", params->basic.max_sectors);
	if (params->types & UBLK_PARAM_TYPE_DISCARD &&
	    (params->discard.max_discard_sectors % block_sectors != 0 ||
	     params->discard.max_write_zeroes_sectors % block_sectors != 0))
		sim_fail("a discard limit is not whole blocks");
	return 0;
}

static int set_params(struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	struct ublk_params params = { 0 };
	int ret;

	if (cmd->len != sizeof(params) || !cmd->addr)
		sim_fail("SET_PARAMS with a buffer of %u bytes", cmd->len);
	memcpy(&params, buffer(cmd), sizeof(params));
	if (params.len != sizeof(params) || params.types == 0)
		return -EINVAL;
	if (dev->used)
		sim_fail("SET_PARAMS of a device that was started");
	if (sim_fault(FAULT_CTL_SET_PARAMS))
		return sim_one_in(2) ? -EINVAL : -EFAULT;
	ret = validate_params(dev, &params);
	if (ret < 0)
		sim_fail("SET_PARAMS: the driver refuses what the product says");
	check_limits(&params);
	dev->params = params;
	return 0;
}

static int get_queue_affinity(const struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	uint8_t *mask = buffer(cmd);

	if (cmd->len % sizeof(long) != 0 || !cmd->addr || cmd->data[0] >= dev->info.nr_hw_queues)
		sim_fail("GET_QUEUE_AFFINITY of queue %llu", (unsigned long long)cmd->data[0]);
	if (sim_fault(FAULT_CTL_AFFINITY))
		return -ENOMEM;
	memset(mask, 0, cmd->len);
	for (unsigned cpu = 0; cpu < model.cpu_nr; cpu++)
		if (cpu % dev->info.nr_hw_queues == cmd->data[0])
			mask[cpu / 8] |= (uint8_t)(1u << cpu % 8);
	return 0;
}

/* ublk_ctrl_set_size() */
static int update_size(struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	uint64_t size_bytes = cmd->data[0] << 9;

	if (!(model.features & UBLK_F_UPDATE_SIZE))
		sim_fail("UPDATE_SIZE is not known here");
	if (!dev->live || dev->stopping || sim_fault(FAULT_CTL_UPDATE_SIZE))
		return -ENODEV;
	dev->params.basic.dev_sectors = cmd->data[0];
	check_limits(&dev->params);
	storage_resize(dev->client->st, size_bytes);
	client_cut(dev->client, size_bytes);
	sim_trace("update-size", dev->id, (uint32_t)cmd->data[0], 0, 0);
	return 0;
}

/* Without the driver's mutex: also while START_DEV waits. */
static int get_dev_info(const struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	if (cmd->len < sizeof(dev->info) || !cmd->addr)
		sim_fail("GET_DEV_INFO with a buffer of %u bytes", cmd->len);
	memcpy(buffer(cmd), &dev->info, sizeof(dev->info));
	return 0;
}

static void start_answer(struct model_dev *dev, int res)
{
	struct sim_op *op = dev->start_op;

	dev->start_op = NULL;
	sim_op_done(op, res);
}

static bool scans(struct model_dev *dev)
{
	if (model.unprivileged)
		return false;
	/* blk_revalidate_disk_zones(), before add_disk() */
	if (dev->info.flags & UBLK_F_ZONED)
		return client_zones_scan(dev->client);
	if (dev->info.flags & UBLK_F_NO_AUTO_PART_SCAN) {
		sim_saw(FAULT_NO_PARTITION_SCAN);
		return false;
	}
	return sim_one_in(2) && client_scan(dev->client);
}

/* add_disk(); up to Linux 6.x the partition scan belongs to it. */
static void start_finish(struct sim_event *event)
{
	struct model_dev *dev = container_of(event, struct model_dev, scan_event);
	const struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(dev->start_op);

	if ((pid_t)cmd->data[0] != getpid())
		sim_fail("START_DEV for process %llu", (unsigned long long)cmd->data[0]);
	if (dev->live || dev->used)
		sim_fail("START_DEV of a started device");
	if (sim_fault(FAULT_CTL_START)) {
		start_answer(dev, sim_one_in(2) ? -ENOMEM : -EINTR);
		return;
	}
	dev->live = dev->has_disk = dev->used = true;
	if (model.unprivileged)
		dev->disk_at_ns = sim.now_ns + sim_skewed(0, 100 * NS_PER_MS);
	dev->info.state = UBLK_S_DEV_LIVE;
	sim_trace("live", dev->id, 0, 0, 0);
	model.live(dev);
	dev->scan_left = scans(dev) ? 1 : 0;
	if (dev->scan_left == 0)
		start_answer(dev, 0);
}

void model_check_start(struct model_dev *dev)
{
	if (dev->start_op && model_ready(dev) && dev->scan_event.pos == 0 && !dev->live)
		sim_event_arm(&dev->scan_event, sim.now_ns + sim_skewed(NS_PER_US, NS_PER_MS),
			      start_finish);
}

static void start_dev(struct model_dev *dev, struct sim_op *op)
{
	const struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(op);

	if ((int)cmd->data[0] <= 0 || !(dev->params.types & UBLK_PARAM_TYPE_BASIC))
		sim_fail("START_DEV without a process or without parameters");
	if (dev->start_op)
		sim_fail("START_DEV twice");
	dev->start_op = op;
	model_check_start(dev);
}

static void stop_finish(struct sim_event *event)
{
	struct model_dev *dev = container_of(event, struct model_dev, stop_event);
	struct sim_op *op = dev->stop_op;

	dev->stop_op = NULL;
	dev->foreign_stop = false;
	dev->live = dev->has_disk = false;
	dev->info.state = UBLK_S_DEV_DEAD;
	sim_trace("stopped", dev->id, 0, 0, 0);
	model_cancel_tags(dev);
	if (op)
		sim_op_done(op, 0);
	model_put(dev);
}

/* del_gendisk() waits for the requests under way, then every idle tag is aborted. */
void model_request_done(struct model_dev *dev)
{
	model_shmem_look(dev);
	if ((dev->stop_op || dev->foreign_stop) && dev->inflight_nr == 0 &&
	    dev->stop_event.pos == 0)
		sim_event_arm(&dev->stop_event, sim.now_ns + sim_skewed(0, 5 * NS_PER_MS),
			      stop_finish);
	if (dev->start_op && dev->scan_left > 0 && dev->inflight_nr == 0) {
		dev->scan_left = 0;
		start_answer(dev, 0);
	}
}

void model_stop(struct model_dev *dev, struct sim_op *op)
{
	if (op && dev->stop_op)
		sim_fail("STOP_DEV twice");
	if (op)
		dev->stop_op = op;
	else
		dev->foreign_stop = true;
	dev->stopping = true;
	if (dev->client)
		dev->client->closed = true;
	model_fail_parked(dev);
	model_request_done(dev);
}

static void try_stop_dev(struct model_dev *dev, struct sim_op *op)
{
	if (!(model.features & UBLK_F_SAFE_STOP_DEV))
		sim_op_done(op, -EOPNOTSUPP);
	else if (!dev->has_disk)
		sim_op_done(op, -ENODEV);
	else if (dev->opener_nr + dev->probe_nr > 0)
		sim_op_done(op, -EBUSY);
	else
		model_stop(dev, op);
}

void model_mark_deleted(struct model_dev *dev)
{
	dev->deleted = true;
}

static void del_dev(struct model_dev *dev, struct sim_op *op, bool wait)
{
	/* All of it would keep the command waiting, and with it every other one of the driver. */
	if (dev->cdev_fd >= 0 || dev->map_nr > 0 || dev->file_ref_nr > 0)
		sim_fail("DEL_DEV %u while the server holds it: open=%d maps=%u registered=%u",
			 dev->id, dev->cdev_fd >= 0, dev->map_nr, dev->file_ref_nr);
	if (dev->del_op)
		sim_fail("DEL_DEV %u twice", dev->id);
	model_mark_deleted(dev);
	if (wait)
		dev->del_op = op;
	else
		sim_op_done(op, 0);
	model_put(dev);
}

static void dev_cmd(struct model_dev *dev, struct sim_op *op)
{
	const struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(op);

	switch (op->sqe.cmd_op) {
	case UBLK_U_CMD_GET_DEV_INFO:
		sim_op_done(op, get_dev_info(dev, cmd));
		return;
	case UBLK_U_CMD_SET_PARAMS:
		sim_op_done(op, set_params(dev, cmd));
		return;
	case UBLK_U_CMD_UPDATE_SIZE:
		sim_op_done(op, update_size(dev, cmd));
		return;
	case UBLK_U_CMD_REG_BUF:
	case UBLK_U_CMD_UNREG_BUF:
		model_shmem_cmd(dev, op);
		return;
	case UBLK_U_CMD_GET_PARAMS:
		sim_op_done(op, model_get_params(dev, cmd));
		return;
	case UBLK_U_CMD_START_USER_RECOVERY:
		sim_op_done(op, model_start_recovery(dev));
		return;
	case UBLK_U_CMD_END_USER_RECOVERY:
		model_end_recovery(dev, op);
		return;
	case UBLK_U_CMD_GET_QUEUE_AFFINITY:
		sim_op_done(op, get_queue_affinity(dev, cmd));
		return;
	case UBLK_U_CMD_START_DEV:
		start_dev(dev, op);
		return;
	case UBLK_U_CMD_STOP_DEV:
		if (sim_fault(FAULT_CTL_STOP))
			sim_op_done(op, -EINTR);
		else
			model_stop(dev, op);
		return;
	case UBLK_U_CMD_TRY_STOP_DEV:
		try_stop_dev(dev, op);
		return;
	case UBLK_U_CMD_DEL_DEV:
	case UBLK_U_CMD_DEL_DEV_ASYNC:
		if (op->sqe.cmd_op == UBLK_U_CMD_DEL_DEV_ASYNC && !model.has_del_async) {
			sim_saw(FAULT_CTL_NO_DEL_ASYNC);
			sim_op_done(op, -EOPNOTSUPP);
		} else if (sim_fault(FAULT_CTL_DEL)) {
			sim_op_done(op, -EINTR);
		} else {
			del_dev(dev, op, op->sqe.cmd_op == UBLK_U_CMD_DEL_DEV);
		}
		return;
	}
	sim_fail("the product sends control command %x", op->sqe.cmd_op);
}

/* ublk_ctrl_uring_cmd_permission(): takes the path away, and leaves the payload behind it. */
static int check_path(const struct model_dev *dev, struct sim_op *op)
{
	struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(op);
	char path[32];

	if (!(dev->info.flags & UBLK_F_UNPRIVILEGED_DEV)) {
		if (cmd->dev_path_len)
			sim_fail("control command %x with a path", op->sqe.cmd_op);
		return 0;
	}
	if (op->sqe.cmd_op == UBLK_U_CMD_DEL_DEV_ASYNC)
		sim_fail("DEL_DEV_ASYNC is not for unprivileged devices");
	snprintf(path, sizeof(path), "/dev/ublkc%u", dev->id);
	if (!cmd->dev_path_len || cmd->len < cmd->dev_path_len ||
	    strncmp(buffer(cmd), path, cmd->dev_path_len) != 0)
		sim_fail("control command %x without the path of the node", op->sqe.cmd_op);
	if (dev->node_at_ns > sim.now_ns)
		return -ENOENT;
	if (op->sqe.cmd_op == UBLK_U_CMD_DEL_DEV && sim_fault(FAULT_NODE_NOT_OURS))
		return -EACCES;
	cmd->len -= cmd->dev_path_len;
	cmd->addr += cmd->dev_path_len;
	return 0;
}

static void ctl_run(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	const struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(op);
	struct model_dev *dev;
	int ret;

	/* Not data: of START_DEV it is a process id. */
	sim_trace("control", op->sqe.cmd_op & 0xff, cmd->dev_id, cmd->len, 0);
	if (cmd->queue_id != QUEUE_ID_NONE)
		sim_fail("control command %x for queue %u", op->sqe.cmd_op, cmd->queue_id);
	if (op->sqe.cmd_op == UBLK_U_CMD_GET_FEATURES) {
		sim_op_done(op, get_features(cmd));
		return;
	}
	if (op->sqe.cmd_op == UBLK_U_CMD_ADD_DEV) {
		sim_op_done(op, add_dev(cmd));
		return;
	}
	dev = model_find(cmd->dev_id);
	ret = dev ? check_path(dev, op) : -ENODEV;
	if (ret == 0)
		dev_cmd(dev, op);
	else
		sim_op_done(op, ret);
}

/* The product loses its outage timeout, and cancels I/O of a device that it has to go on serving.
 */
static uint64_t slow_stop(uint32_t dev_id)
{
	struct model_dev *dev = model_find(dev_id);
	uint64_t for_ns = sim_between(5 * NS_PER_SEC, 10 * NS_PER_SEC);

	if (dev && dev->has_disk && !dev->stopping && sim_one_in(2))
		visits_stay(dev, for_ns + NS_PER_SEC);
	return for_ns;
}

void model_ctl_cmd(struct sim_op *op)
{
	const struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(op);
	uint64_t delay_ns = sim_skewed(10 * NS_PER_US, 20 * NS_PER_MS);

	if (sim_fault(FAULT_CTL_SLOW))
		delay_ns += sim_skewed(NS_PER_SEC, 70 * NS_PER_SEC);
	else if (op->sqe.cmd_op == UBLK_U_CMD_TRY_STOP_DEV && sim_fault(FAULT_STOP_SLOW))
		delay_ns += slow_stop(cmd->dev_id);
	sim_event_arm(&op->event, sim.now_ns + delay_ns, ctl_run);
}

static struct sim_op *pending(struct list_node *held)
{
	list_for_each (node, held) {
		struct sim_op *op = list_entry(node, struct sim_op, node);

		if (op->event.pos != 0 && op->event.fn == ctl_run)
			return op;
	}
	return NULL;
}

void model_ctl_dies(struct list_node *held)
{
	struct sim_op *op;

	while ((op = pending(held))) {
		sim_event_cancel(&op->event);
		if (sim_one_in(2))
			continue;
		sim_saw(FAULT_KILL_CONTROL);
		ctl_run(&op->event);
	}
	for (unsigned i = 0; i < MODEL_DEV_NR; i++) {
		struct model_dev *dev = model.devs[i];

		/* START_DEV may just have had all that it waited for. */
		if (dev && dev->start_op && dev->scan_event.pos != 0 && sim_one_in(2)) {
			sim_event_cancel(&dev->scan_event);
			start_finish(&dev->scan_event);
		}
		if (dev)
			model_waiters_die(dev);
	}
}
