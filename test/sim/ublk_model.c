/*
 * Devices of the modelled driver: their table, /dev/ublkcN (open, mmap, references) and the parts
 * of the ring seam that a driver sees.
 */
#include "test/sim/ublk_model.h"
#include "ublk/disk_node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/client.h"
#include "test/sim/net.h"

#define PAGE_BYTES 4096u
#define DESCS_STRIDE 98304u

struct model model;

void model_init(void)
{
	model = (struct model){
		.cpu_nr = (unsigned)sim_between(1, 4),
		.features = (1ull << 21) - 1,
		.has_del_async = !sim_one_in(4),
		.ctl_fd = -1,
		/* By the seed and not by chance: what happens to others stays what it was. */
		.unprivileged = sim.defect == DEFECT_NONE && !sim.cut.on && sim.seed % 16 == 11,
	};
	/* Linux before 7.0 cannot be asked politely. */
	if (sim_one_in(3)) {
		model.features &= ~(UBLK_F_SAFE_STOP_DEV | UBLK_F_NO_AUTO_PART_SCAN);
		sim_saw(FAULT_CTL_NO_TRY_STOP);
	}
	/* Older ones, or what an administrator has taken away. */
	if (sim.defect == DEFECT_NONE && sim_one_in(4))
		model.features &= ~(UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG);
	if (sim.defect == DEFECT_NONE && sim_one_in(8))
		model.features &= ~UBLK_F_USER_COPY;
	if (sim.defect == DEFECT_NONE && sim_one_in(4))
		model.features &= ~UBLK_F_BATCH_IO;
	/* Before 6.13 rings let go of registered files in order, and so late. */
	if (sim.defect == DEFECT_EARLY_SERVE)
		model.features &=
			~(UBLK_F_SAFE_STOP_DEV | UBLK_F_USER_RECOVERY_FAIL_IO | (~0ull << 9));
	if (sim.defect == DEFECT_NONE && !(model.features & UBLK_F_SAFE_STOP_DEV) &&
	    !sim_one_in(3)) {
		model.features &= ~(UBLK_F_USER_RECOVERY_FAIL_IO | (~0ull << 9));
		sim_saw(FAULT_OLD_FILE_TABLE);
	}
}

static void dev_free(struct model_dev *dev)
{
	sim_trace("dev-free", dev->id, 0, 0, 0);
	sim_event_cancel(&dev->stop_event);
	sim_event_cancel(&dev->scan_event);
	sim_event_cancel(&dev->foreign_event);
	sim_event_cancel(&dev->recover_event);
	sim_event_cancel(&dev->release_event);
	client_destroy(dev->client);
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		sim_task_cancel(&dev->queues[q].dispatch);
		sim_event_cancel(&dev->queues[q].plug);
		free(dev->queues[q].descs);
		free(dev->queues[q].tags);
		free(dev->queues[q].fifo);
	}
	free(dev->queues);
	model.devs[dev->id] = NULL;
	free(dev);
}

void model_fini(void)
{
	for (unsigned i = 0; i < MODEL_DEV_NR; i++)
		if (model.devs[i])
			dev_free(model.devs[i]);
}

unsigned model_dev_nr(void)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < MODEL_DEV_NR; i++)
		nr += model.devs[i] != NULL;
	return nr;
}

struct model_dev *model_find(uint32_t id)
{
	return id < MODEL_DEV_NR ? model.devs[id] : NULL;
}

void model_put(struct model_dev *dev)
{
	struct sim_op *op = dev->del_op;

	if (!dev->deleted || dev->cdev_fd >= 0 || dev->map_nr > 0 || dev->file_ref_nr > 0 ||
	    dev->opener_nr > 0 || dev->probe_nr > 0 || dev->stop_op || dev->foreign_stop ||
	    dev->releasing)
		return;
	dev_free(dev);
	if (op)
		sim_op_done(op, 0);
}

static struct model_dev *by_fd(int fd)
{
	for (unsigned i = 0; i < MODEL_DEV_NR; i++)
		if (model.devs[i] && model.devs[i]->cdev_fd == fd)
			return model.devs[i];
	return NULL;
}

/* A registered file may outlive its descriptor, and descriptors are never used twice. */
struct model_dev *model_by_file(int fd)
{
	struct model_dev *dev = by_fd(fd);

	if (!dev)
		sim_fail("/dev/ublkcN (fd %d) is used after its close", fd);
	return dev;
}

static int new_fd(void)
{
	return SIM_FD_BASE + (int)model.next_fd++;
}

static int open_cdev(unsigned id)
{
	struct model_dev *dev = model_find(id);

	if (!dev || dev->deleted || dev->node_at_ns > sim.now_ns) {
		sim_saw(FAULT_OPEN_LATE);
		return -ENOENT;
	}
	if (dev->cdev_fd >= 0)
		sim_fail("/dev/ublkc%u is opened twice", id);
	if (dev->releasing)
		return -EBUSY;
	if (sim_fault(FAULT_OPEN_EACCES))
		return -EACCES;
	if (sim_fault(FAULT_OPEN_EBUSY))
		return -EBUSY;
	if (sim_fault(FAULT_OPEN_FAILS))
		return -ENOMEM;
	dev->cdev_fd = new_fd();
	sim_trace("open", id, 0, 0, 0);
	return dev->cdev_fd;
}

int ring_open(const char *path, int flags)
{
	unsigned id;
	char rest;

	(void)flags;
	if (strcmp(path, "/dev/ublk-control") == 0) {
		if (model.ctl_fd >= 0)
			sim_fail("%s is opened twice", path);
		model.ctl_fd = new_fd();
		return model.ctl_fd;
	}
	sim_kill_point();
	if (sscanf(path, "/dev/ublkc%u%c", &id, &rest) != 1)
		sim_fail("the product opens %s as a device", path);
	return open_cdev(id);
}

/* What the server must have given back before it closes. */
static void check_idle(const struct model_dev *dev, unsigned queue)
{
	const struct model_queue *q = &dev->queues[queue];

	if (q->fetch)
		sim_fail("/dev/ublkc%u is closed with the FETCH of queue %u in flight", dev->id,
			 queue);
	for (unsigned t = 0; t < dev->info.queue_depth; t++) {
		if (q->tags[t].cmd)
			sim_fail("/dev/ublkc%u is closed with queue %u tag %u in flight", dev->id,
				 queue, t);
		if (q->tags[t].registered)
			sim_fail("/dev/ublkc%u: the buffer of queue %u tag %u is still registered",
				 dev->id, queue, t);
	}
}

void ring_close(int fd)
{
	struct model_dev *dev;

	if (fd == model.ctl_fd) {
		model.ctl_fd = -1;
		return;
	}
	if (net_close(fd))
		return;
	dev = model_by_file(fd);
	sim_trace("close", dev->id, 0, 0, 0);
	if (dev->live)
		sim_fail("/dev/ublkc%u is closed while the device is live", dev->id);
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++)
		check_idle(dev, q);
	if (dev->file_ref_nr > 0)
		sim_fail("/dev/ublkc%u is closed while %u rings hold it", dev->id,
			 dev->file_ref_nr);
	dev->cdev_fd = -1;
	if (dev->has_disk)
		model_release_later(dev);
	model_put(dev);
	sim_kill_point();
}

int ring_map(int fd, size_t bytes, uint64_t offset, void **ret_addr)
{
	struct model_dev *dev = model_by_file(fd);
	unsigned queue = (unsigned)(offset / DESCS_STRIDE);

	/* The driver would silently take the queue that the offset falls into. */
	if (offset % DESCS_STRIDE != 0 || queue >= dev->info.nr_hw_queues)
		sim_fail("mmap at %llu, which is no queue's", (unsigned long long)offset);
	if (bytes != dev->descs_bytes)
		sim_fail("mmap of %zu bytes, not %zu", bytes, dev->descs_bytes);
	sim_kill_point();
	if (sim_fault(FAULT_MAP_FAILS))
		return -ENOMEM;
	dev->queues[queue].map_nr++;
	dev->map_nr++;
	*ret_addr = dev->queues[queue].descs;
	return 0;
}

static bool unmap_of(struct model_dev *dev, const void *addr, size_t bytes)
{
	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		struct model_queue *queue = &dev->queues[q];

		if (queue->descs != addr)
			continue;
		if (bytes != dev->descs_bytes || queue->map_nr == 0)
			sim_fail("munmap of %zu bytes, not %zu", bytes, dev->descs_bytes);
		queue->map_nr--;
		dev->map_nr--;
		model_put(dev);
		return true;
	}
	return false;
}

void ring_unmap(void *addr, size_t bytes)
{
	for (unsigned i = 0; i < MODEL_DEV_NR; i++)
		if (model.devs[i] && unmap_of(model.devs[i], addr, bytes))
			return;
	sim_fail("munmap of what is not mapped");
}

void model_file_ref(int fd)
{
	if (!(model.features & UBLK_F_USER_RECOVERY_FAIL_IO))
		sim_fail("/dev/ublkcN is registered with a ring that lets go of it too late");
	model_by_file(fd)->file_ref_nr++;
}

void model_file_unref(int fd)
{
	struct model_dev *dev = model_by_file(fd);

	dev->file_ref_nr--;
	model_put(dev);
}

void model_uring_cmd(struct sim_op *op)
{
	struct model_dev *dev;

	if (op->fd == model.ctl_fd) {
		if (!op->ring->sqe128)
			sim_fail("a control command in a 64-byte SQE");
		model_ctl_cmd(op);
		return;
	}
	dev = by_fd(op->fd);
	if (!dev)
		sim_fail("a command on a closed device");
	if (model_is_batch(dev))
		model_batch_cmd(dev, op);
	else
		model_tag_cmd(dev, op);
}

bool model_disk_is_ours(uint32_t id)
{
	const struct model_dev *dev = model_find(id);

	return dev && dev->disk_at_ns <= sim.now_ns;
}

/* ublk/disk_node.h, in this world. */
bool disk_node_is_ours(uint32_t dev_id)
{
	if (!model.unprivileged)
		sim_fail("the product asks for the node of a device of root's");
	return model_disk_is_ours(dev_id);
}

/* ublk/openers.h, in this world. */
enum block_users openers_find(int dev_id, char *text, size_t text_bytes)
{
	const struct model_dev *dev = model_find((uint32_t)dev_id);

	text[0] = '\0';
	if (!dev)
		return BLOCK_USERS_NONE;
	if (dev->opener_nr > 0) {
		snprintf(text, text_bytes, "open by fio[123]");
		return BLOCK_USERS_REAL;
	}
	if (dev->probe_nr > 0) {
		snprintf(text, text_bytes, "open by udev-worker[7]");
		return BLOCK_USERS_TRANSIENT;
	}
	return BLOCK_USERS_NONE;
}
