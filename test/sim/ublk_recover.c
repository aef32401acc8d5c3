/*
 * What the modelled driver does when a server dies, and how a device gets another one
 * (ublk_ch_release_work_fn, ublk_abort_queue, ublk_ctrl_start_recovery, ublk_ctrl_end_recovery).
 *
 * At the kill: the rings are gone, queues have no server: what reaches them waits or fails, as the
 * recovery flags say. Some time later, when the dead server's files are closed, the requests that
 * it had come again or fail, and the device is QUIESCED, FAIL_IO, or dead. Then START_USER_RECOVERY
 * is no longer answered with EBUSY. With 7.2 a queue takes requests again as soon as it has all its
 * FETCHes, whether END_USER_RECOVERY was asked for or not; only what waited comes behind that.
 *
 * 6.12 differs: nothing reaches a server before END_USER_RECOVERY; a server that dies in a recovery
 * leaves its FETCHes behind, and START_USER_RECOVERY crashes the kernel when some queues have all
 * of them and others do not; and with a queue that has all its requests with the server the death
 * is found out by a timeout of those.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"
#include "test/sim/zones/client_zones.h"

#define REQUEST_TIMEOUT_NS (30 * NS_PER_SEC)

bool model_is_old(void)
{
	return !(model.features & UBLK_F_USER_RECOVERY_FAIL_IO);
}

bool model_registers_files(void)
{
	return !model_is_old();
}

static bool can_recover(const struct model_dev *dev)
{
	return dev->info.flags & UBLK_F_USER_RECOVERY;
}

/* ublk_nosrv_dev_should_queue_io() */
static bool keeps_requests(const struct model_dev *dev)
{
	return can_recover(dev) && !(dev->info.flags & UBLK_F_USER_RECOVERY_FAIL_IO);
}

/* ublk_nosrv_should_reissue_outstanding() */
static bool reissues(const struct model_dev *dev)
{
	return can_recover(dev) && dev->info.flags & UBLK_F_USER_RECOVERY_REISSUE;
}

static bool is_recoverable(const struct model_dev *dev)
{
	return dev->info.state == UBLK_S_DEV_QUIESCED || dev->info.state == UBLK_S_DEV_FAIL_IO;
}

/* ---- requests without a server ---- */

static void fail_rq(struct model_dev *dev, struct client_rq *rq)
{
	struct model_tag *t = model_tag(dev, rq->queue, rq->tag);

	sim_trace("rq-fails", (uint64_t)rq->queue << 32 | rq->tag, rq->op_flags, rq->start_sector,
		  0);
	t->rq = NULL;
	t->parked = t->owned = false;
	sim.progress++;
	client_rq_fail(rq);
	dev->inflight_nr--;
	model_request_done(dev);
}

static void park(struct model_dev *dev, struct client_rq *rq)
{
	struct model_tag *t = model_tag(dev, rq->queue, rq->tag);

	t->parked = true;
	t->owned = false;
	client_rq_renew(rq);
}

void model_no_server(struct model_dev *dev, struct client_rq *rq)
{
	if (keeps_requests(dev) && !dev->stopping) {
		sim_saw(FAULT_NOSRV_WAITS);
		park(dev, rq);
		return;
	}
	sim_saw(FAULT_NOSRV_REFUSED);
	fail_rq(dev, rq);
}

typedef void tag_fn(struct model_dev *dev, struct model_tag *t);

static void for_each_tag(struct model_dev *dev, tag_fn *fn)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
		for (unsigned tag = 0; tag < dev->info.queue_depth; tag++)
			fn(dev, model_tag(dev, q, tag));
}

static void fail_if_parked(struct model_dev *dev, struct model_tag *t)
{
	if (t->parked)
		fail_rq(dev, t->rq);
}

void model_fail_parked(struct model_dev *dev)
{
	for_each_tag(dev, fail_if_parked);
}

static void kick_if_parked(struct model_dev *dev, struct model_tag *t)
{
	if (!t->parked)
		return;
	t->parked = false;
	if (sim_defect(DEFECT_LOST_REISSUE))
		return;
	model_queue_rq(dev, t->rq, NS_PER_MS);
}

/* ---- death ---- */

/* __ublk_fail_req() */
static void abort_rq(struct model_dev *dev, struct model_tag *t)
{
	if (reissues(dev) && !dev->stopping) {
		sim_saw(FAULT_NOSRV_REISSUED);
		park(dev, t->rq);
		return;
	}
	sim_saw(FAULT_NOSRV_FAILED);
	fail_rq(dev, t->rq);
}

static void abort_if_owned(struct model_dev *dev, struct model_tag *t)
{
	t->was_owned = t->owned;
	if (t->owned)
		abort_rq(dev, t);
}

static void abort_fifo(struct model_dev *dev, struct model_queue *q)
{
	for (unsigned i = 0; i < q->fifo_nr; i++)
		abort_rq(dev, &q->tags[q->fifo[i]]);
	q->fifo_nr = 0;
}

/* ublk_reset_ch_dev(); before 6.16 only at START_USER_RECOVERY. */
static void reset(struct model_dev *dev)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		dev->queues[q].ready_nr = 0;
		for (unsigned tag = 0; tag < dev->info.queue_depth; tag++)
			model_tag(dev, q, tag)->active = false;
	}
}

static void become_nosrv(struct model_dev *dev)
{
	if (dev->stopping)
		return;
	if (!can_recover(dev)) {
		sim_saw(FAULT_NOSRV_DEAD);
		model_stop(dev, NULL);
	} else {
		dev->info.state = keeps_requests(dev) ? UBLK_S_DEV_QUIESCED : UBLK_S_DEV_FAIL_IO;
	}
}

static void release(struct sim_event *event)
{
	struct model_dev *dev = container_of(event, struct model_dev, release_event);

	sim_trace("release", dev->id, dev->has_disk, dev->info.state, 0);
	dev->releasing = false;
	if (dev->has_disk) {
		for_each_tag(dev, abort_if_owned);
		for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
			abort_fifo(dev, &dev->queues[q]);
		become_nosrv(dev);
	}
	if (!model_is_old() || !dev->has_disk)
		reset(dev);
	model_put(dev);
}

void model_release_later(struct model_dev *dev)
{
	dev->releasing = true;
	sim_event_arm(&dev->release_event, sim.now_ns + sim_skewed(NS_PER_US, 10 * NS_PER_MS),
		      release);
}

static bool is_full(const struct model_dev *dev)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		unsigned owned_nr = 0;

		for (unsigned tag = 0; tag < dev->info.queue_depth; tag++)
			owned_nr += model_tag(dev, q, tag)->owned;
		if (owned_nr == dev->info.queue_depth)
			return true;
	}
	return false;
}

static uint64_t release_delay_ns(struct model_dev *dev)
{
	/* Timers of requests are rounded up to a second. */
	if (model_is_old() && dev->live && is_full(dev)) {
		sim_saw(FAULT_FULL_QUEUE);
		return REQUEST_TIMEOUT_NS + sim_below(2 * NS_PER_SEC);
	}
	dev->slow_release = sim_fault(FAULT_RELEASE_SLOW);
	return sim_skewed(NS_PER_US, 500 * NS_PER_MS) +
	       (dev->slow_release ? sim_between(1, 120) * NS_PER_SEC : 0);
}

static void count_loss(const struct model_dev *dev)
{
	if (model_is_batch(dev))
		sim_saw(FAULT_KILL_BATCH);
	if (model_copies(dev))
		sim_saw(FAULT_KILL_COPY);
	else if (dev->info.flags & UBLK_F_AUTO_BUF_REG)
		sim_saw(FAULT_KILL_ZERO_COPY);
	else
		sim_saw(FAULT_KILL_USER_COPY);
}

static void lose_queue(struct model_dev *dev, struct model_queue *q)
{
	q->map_nr = 0;
	q->no_server = true;
	q->fetch = NULL;
	sim_task_cancel(&q->dispatch);
	sim_event_cancel(&q->plug);
	for (unsigned tag = 0; tag < dev->info.queue_depth; tag++) {
		if (q->tags[tag].owned)
			count_loss(dev);
		q->tags[tag].cmd = NULL;
		q->tags[tag].ring = q->tags[tag].registered = NULL;
		if (!model_is_old())
			q->tags[tag].active = false;
	}
}

static void lose_server(struct model_dev *dev, uint64_t until_ns)
{
	uint64_t delay_ns = release_delay_ns(dev);

	dev->cdev_fd = -1;
	dev->map_nr = dev->file_ref_nr = 0;
	dev->live = false;
	dev->releasing = true;
	if (dev->client)
		client_zones_lost(dev->client);
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
		lose_queue(dev, &dev->queues[q]);
	sim_event_arm(&dev->release_event, MAX(until_ns, sim.now_ns) + delay_ns, release);
}

void model_server_dies(uint64_t until_ns)
{
	model.ctl_fd = -1;
	for (unsigned i = 0; i < MODEL_DEV_NR; i++)
		if (model.devs[i] && model.devs[i]->cdev_fd >= 0)
			lose_server(model.devs[i], until_ns);
}

void model_waiters_die(struct model_dev *dev)
{
	dev->start_op = dev->recover_op = dev->del_op = dev->shmem_op = NULL;
	dev->scan_left = 0;
	sim_event_cancel(&dev->scan_event);
	sim_event_cancel(&dev->recover_event);
	/* It is executed to its end, with nobody to hear of it. */
	if (dev->stop_op)
		dev->foreign_stop = true;
	dev->stop_op = NULL;
}

/* ---- the next server ---- */

int model_get_params(const struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd)
{
	struct ublk_params *params = (void *)(uintptr_t)cmd->addr;

	if (cmd->len < sizeof(*params) || !params || params->len != sizeof(*params))
		sim_fail("GET_PARAMS with a buffer of %u bytes", cmd->len);
	if (sim_fault(FAULT_RECOVERY_GET_PARAMS))
		return -EINTR;
	*params = dev->params;
	return 0;
}

static unsigned ready_queues(const struct model_dev *dev)
{
	unsigned nr = 0;

	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
		nr += dev->queues[q].ready_nr == dev->info.queue_depth;
	return nr;
}

int model_start_recovery(struct model_dev *dev)
{
	if (!can_recover(dev) || (model_is_old() && ready_queues(dev) == 0))
		return -EINVAL;
	if (dev->cdev_fd >= 0 || dev->releasing || !is_recoverable(dev)) {
		sim_saw(FAULT_RECOVERY_BUSY);
		return -EBUSY;
	}
	if (sim_fault(FAULT_RECOVERY_START))
		return -ENOMEM;
	if (model_is_old() && !model_ready(dev))
		sim_fail("START_USER_RECOVERY %u of a half fetched device: Linux 6.12 crashes",
			 dev->id);
	if (model_is_old())
		reset(dev);
	return 0;
}

/* With 6.12 the disk's queue stands still until END_USER_RECOVERY. */
void model_queue_ready(struct model_dev *dev, struct model_queue *q)
{
	if (!dev->has_disk || !model_is_old())
		q->no_server = q->aborted = false;
}

static void end_finish(struct sim_event *event)
{
	struct model_dev *dev = container_of(event, struct model_dev, recover_event);
	struct sim_op *op = dev->recover_op;
	const struct ublksrv_ctrl_cmd *cmd = sim_op_cmd(op);

	dev->recover_op = NULL;
	if ((pid_t)cmd->data[0] != getpid())
		sim_fail("END_USER_RECOVERY for process %llu", (unsigned long long)cmd->data[0]);
	if (!is_recoverable(dev)) {
		sim_op_done(op, -EBUSY);
		return;
	}
	if (sim_fault(FAULT_RECOVERY_END)) {
		sim_op_done(op, -EINTR);
		return;
	}
	dev->live = true;
	dev->info.state = UBLK_S_DEV_LIVE;
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
		dev->queues[q].no_server = dev->queues[q].aborted = false;
	sim_trace("recovered", dev->id, 0, 0, 0);
	sim_op_done(op, 0);
	if (!dev->stopping)
		for_each_tag(dev, kick_if_parked);
}

void model_check_recovery(struct model_dev *dev)
{
	if (dev->recover_op && model_ready(dev) && dev->recover_event.pos == 0)
		sim_event_arm(&dev->recover_event, sim.now_ns + sim_skewed(NS_PER_US, NS_PER_MS),
			      end_finish);
}

void model_end_recovery(struct model_dev *dev, struct sim_op *op)
{
	if (dev->recover_op)
		sim_fail("END_USER_RECOVERY twice");
	dev->recover_op = op;
	model_check_recovery(dev);
}

void model_sweep(struct model_dev *dev)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		dev->queues[q].ready_nr = dev->info.queue_depth;
		for (unsigned tag = 0; tag < dev->info.queue_depth; tag++)
			model_tag(dev, q, tag)->active = true;
	}
	sim_saw(FAULT_RECOVERY_SWEPT);
}

void model_remove(struct model_dev *dev)
{
	model_mark_deleted(dev);
	if (dev->has_disk && !dev->stopping)
		model_stop(dev, NULL);
	model_put(dev);
}
