/*
 * The way up. Main thread; every step ends in a callback that takes the next one.
 *
 *   ADDING     ADD_DEV: the driver makes /dev/ublkcN and negotiates queues, depth, max_io
 *   PARAMS     SET_PARAMS: sizes and limits
 *   OPENING    open /dev/ublkcN (udev may take its time), map the descriptors of every queue;
 *              of an unprivileged device before PARAMS
 *   PLACING    GET_QUEUE_AFFINITY per queue: which reactor serves it
 *   ATTACHING  every reactor allocates and FETCHes every tag
 *   STARTING   START_DEV: only now, or it would wait for ever for the FETCHes
 *
 * Failure modes: any step refused: device_go_down. A stop that comes meanwhile: the same.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/device/params.h"
#include "ublk/disk_node.h"
#include "ublk/partition_scan.h"

#define NODE_RETRY_NS (2 * NS_PER_MS)
#define NODE_DEADLINE_NS (10 * NS_PER_SEC)

void device_fail_cmd(struct device *d, const struct ctl_cmd *cmd, int err)
{
	const char *words = ctl_explain(cmd->request.cmd_op, err);

	/* The driver names ZONED all the same (ublk_ctrl_add_dev). */
	if (d->data.zoned && cmd->request.cmd_op == UBLK_U_CMD_ADD_DEV && err == -EINVAL)
		words = "a kernel that is built without CONFIG_BLK_DEV_ZONED has no zones: run "
			"another one";
	device_set_error(d, "%s failed: %s%s%s", ctl_cmd_name(cmd->request.cmd_op), errname(err),
			 *words ? ": " : "", words);
	d->failed = true;
	device_go_down(d);
}

void device_fail(struct device *d, const char *what, int err)
{
	device_set_error(d, "%s: %s", what, errname(err));
	d->failed = true;
	device_go_down(d);
}

bool device_turned_back(struct device *d)
{
	if (d->stop_wanted)
		device_go_down(d);
	return d->stop_wanted;
}

static void is_live(struct device *d)
{
	/* Also when a stop was asked for meanwhile: it may yet be refused. */
	device_set_state(d, DEVICE_LIVE);
	device_event(d, DEVICE_EVENT_LIVE);
	if (!device_turned_back(d))
		device_check_drained(d);
	device_follow_again(d);
}

/* Who is told that the device is live may open it: udev has to give it to its owner before. */
static void look_for_disk_node(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, retry);
	struct reactor *home = d->host->ctl->reactor;
	bool ours = disk_node_is_ours(d->info.dev_id);

	if (!ours && !d->stop_wanted && home->now_ns < d->retry_until_ns) {
		reactor_timer_arm(home, timer, home->now_ns + NODE_RETRY_NS);
		return;
	}
	if (!ours && !d->stop_wanted)
		log_warn("udev has not given the device to its owner",
			 "dev=%s path=/dev/ublkb%u uid=%u cure=\"ublkctl doctor\"", d->spec.name,
			 d->info.dev_id, (unsigned)geteuid());
	is_live(d);
}

static void start_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (res < 0) {
		device_fail_cmd(d, cmd, res);
		return;
	}
	d->has_disk = true;
	d->adopting = false;
	if (!ctl_wants_path(d->info.flags)) {
		is_live(d);
		return;
	}
	timer_init(&d->retry, look_for_disk_node);
	d->retry_until_ns = d->host->ctl->reactor->now_ns + NODE_DEADLINE_NS;
	look_for_disk_node(&d->retry);
}

void device_begin_serving(struct device *d)
{
	struct ctl_request request = {
		.cmd_op = d->adopting ? UBLK_U_CMD_END_USER_RECOVERY : UBLK_U_CMD_START_DEV,
		.dev_id = d->info.dev_id,
		.queue_id = -1,
		.data = (uint64_t)getpid(),
	};

	request.with_path = device_wants_path(d, request.cmd_op);
	device_set_state(d, DEVICE_STARTING);
	ctl_cmd_send(&d->cmd, &request, start_done);
}

void device_queue_attached(struct queue *q, int err)
{
	struct device *d = q->setup.owner;

	d->attached_nr++;
	if (err < 0) {
		const char *words = err == -ENOBUFS  ? " (too many I/Os in this reactor)"
				    : err == -ENOMEM ? " (out of memory)"
						     : "";

		device_set_error(d, "queue %u could not be served: %s%s", q->setup.idx,
				 errname(err), words);
		d->failed = true;
	}
	if (d->attached_nr < d->attach_nr)
		return;
	if (d->failed)
		device_go_down(d);
	else if (!device_turned_back(d))
		device_begin_serving(d);
}

static void device_attach(struct device *d)
{
	device_set_state(d, DEVICE_ATTACHING);
	d->attach_nr = d->spec.queues;
	for (unsigned i = 0; i < d->spec.queues; i++) {
		/* placing noted reactor and descriptors; queue_attach clears all but the setup */
		struct queue_setup setup = d->queues[i].setup;

		queue_attach(&d->queues[i], &setup);
	}
}

static bool mask_has(const unsigned char *mask, int cpu)
{
	return cpu >= 0 && cpu < CPU_MASK_BYTES * 8 && (mask[cpu / 8] >> (cpu % 8) & 1);
}

/* Queues of this device that a reactor has already. */
static unsigned load_of(const struct device *d, const struct reactor *r)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < d->placed_nr; i++)
		nr += d->queues[i].setup.reactor == r;
	return nr;
}

/*
 * The reactor with the fewest queues of this device; among equals one whose CPU submits to the
 * queue. Spreading comes first: two reactors beat a warm cache.
 */
static struct reactor *choose_reactor(const struct device *d)
{
	const struct device_host *host = d->host;
	/* Ties rotate with the device id, so that single-queue devices do not all meet on one. */
	unsigned first = d->info.dev_id % host->reactor_nr;
	unsigned best = first, best_score = UINT_MAX;

	for (unsigned n = 0; n < host->reactor_nr; n++) {
		unsigned i = (first + n) % host->reactor_nr;
		bool near = mask_has(d->cpu_mask, host->reactor_cpus[i]);
		unsigned score = load_of(d, host->reactors[i]) * 2 + !near;

		if (score < best_score) {
			best_score = score;
			best = i;
		}
	}
	return host->reactors[best];
}

static void place_next(struct device *d);

static void affinity_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (device_turned_back(d))
		return;
	if (res < 0) {
		device_fail_cmd(d, cmd, res);
		return;
	}
	d->queues[d->placed_nr].setup.reactor = choose_reactor(d);
	d->placed_nr++;
	place_next(d);
}

static void place_next(struct device *d)
{
	struct ctl_request request = {
		.cmd_op = UBLK_U_CMD_GET_QUEUE_AFFINITY,
		.dev_id = d->info.dev_id,
		.queue_id = -1,
		.buf = d->cpu_mask,
		.buf_bytes = CPU_MASK_BYTES,
		.data = d->placed_nr, /* the queue */
		.with_path = device_wants_path(d, UBLK_U_CMD_GET_QUEUE_AFFINITY),
	};

	if (d->placed_nr == d->spec.queues)
		device_attach(d);
	else
		ctl_cmd_send(&d->cmd, &request, affinity_done);
}

/* The stride is that of the deepest queue possible, whatever the depth (ublk_ch_mmap). */
static uint64_t descs_offset(unsigned queue)
{
	uint64_t stride = round_up(UBLK_MAX_QUEUE_DEPTH * sizeof(struct ublksrv_io_desc),
				   (uint64_t)sysconf(_SC_PAGESIZE));

	return queue * stride;
}

/*
 * Before 6.13 a ring lets go of removed registered files in order: one file waits for every request
 * that began on an earlier one. Our FETCHes never end, so that the DEL_DEV of one device would wait
 * for the end of all older ones on the ring. The flag is of the same age.
 */
static bool may_register_cdev(const struct device *d)
{
	return d->host->ctl->features & UBLK_F_USER_RECOVERY_FAIL_IO;
}

static int map_queue(struct device *d, unsigned idx)
{
	struct queue_setup *setup = &d->queues[idx].setup;
	void *descs;
	int ret;

	d->descs_bytes = round_up(d->spec.depth * sizeof(struct ublksrv_io_desc),
				  (uint64_t)sysconf(_SC_PAGESIZE));
	ret = ring_map(d->cdev_fd, d->descs_bytes, descs_offset(idx), &descs);
	if (ret < 0)
		return ret;
	*setup = (struct queue_setup){
		.home = d->host->ctl->reactor,
		.backend = d->backend,
		.device_name = d->spec.name,
		.errors = d->errors,
		.dev_id = (int)d->info.dev_id,
		.descs = descs,
		.cdev_fd = d->cdev_fd,
		.cdev_registered = may_register_cdev(d),
		.idx = (uint16_t)idx,
		.depth = (uint16_t)d->spec.depth,
		.max_io_bytes = d->spec.max_io_bytes,
		.data = d->data,
		.shmem = device_shmem_buffers(d),
		.backend_moves = backend_spec_data(d->spec.backend) & BACKEND_DATA_MOVES,
		.attached = device_queue_attached,
		.drained = device_queue_drained,
		.released = device_queue_released,
		.fenced = device_queue_fenced,
		.flushed = device_queue_flushed,
		.owner = d,
	};
	d->mapped_nr++;
	return 0;
}

static void set_params(struct device *d);

/* The driver's end is open. */
static void cdev_opened(struct device *d)
{
	for (unsigned i = 0; i < d->spec.queues; i++) {
		int ret = map_queue(d, i);

		if (ret < 0) {
			device_fail(d, "mapping the queue's descriptors", ret);
			return;
		}
	}
	device_set_state(d, DEVICE_PLACING);
	place_next(d);
}

/* Of an unprivileged device: DEL_DEV will be refused for the same reason. */
static void fail_not_ours(struct device *d)
{
	device_set_error(d,
			 "/dev/ublkc%u was not given to user %u in %llu s: udev and ublkd's rule "
			 "59-ublkd-owner.rules must be there (ublkctl doctor); root removes the "
			 "device: ublkctl gc --remove %u",
			 d->info.dev_id, (unsigned)geteuid(), NODE_DEADLINE_NS / NS_PER_SEC,
			 d->info.dev_id);
	d->failed = true;
	device_go_down(d);
}

static void try_open(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, retry);
	struct reactor *home = d->host->ctl->reactor;
	char path[32];

	if (device_turned_back(d))
		return;
	snprintf(path, sizeof(path), "/dev/ublkc%u", d->info.dev_id);
	d->cdev_fd = ring_open(path, O_RDWR);
	/* udev makes the node, sets its mode, and may have it open for a moment. */
	if ((d->cdev_fd == -ENOENT || d->cdev_fd == -EACCES || d->cdev_fd == -EBUSY) &&
	    home->now_ns < d->retry_until_ns) {
		reactor_timer_arm(home, timer, home->now_ns + NODE_RETRY_NS);
		return;
	}
	if (d->cdev_fd == -EACCES && ctl_wants_path(d->info.flags))
		fail_not_ours(d);
	else if (d->cdev_fd < 0)
		device_fail(d, path, d->cdev_fd);
	else if (d->adopting || d->has_params)
		cdev_opened(d);
	else
		set_params(d);
}

void device_open_driver(struct device *d)
{
	device_set_state(d, DEVICE_OPENING);
	timer_init(&d->retry, try_open);
	d->retry_until_ns = d->host->ctl->reactor->now_ns + NODE_DEADLINE_NS;
	try_open(&d->retry);
}

static void params_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (device_turned_back(d))
		return;
	if (res < 0) {
		device_fail_cmd(d, cmd, res);
		return;
	}
	d->has_params = true;
	if (d->cdev_fd >= 0)
		cdev_opened(d);
	else
		device_open_driver(d);
}

static void set_params(struct device *d)
{
	device_set_state(d, DEVICE_PARAMS);
	device_send(d, UBLK_U_CMD_SET_PARAMS, &d->params, sizeof(d->params), params_done);
}

static uint64_t wanted_flags(const struct device *d)
{
	uint64_t flags = data_path_flags(&d->data) | recovery_flags(d->spec.recovery);

	if (d->host->ctl->unprivileged)
		return flags | UBLK_F_UNPRIVILEGED_DEV;
	return flags | partition_scan_flags(!d->spec.no_partition_scan);
}

/* The driver may give less than was asked for. */
static int check_negotiated(struct device *d)
{
	uint64_t flags = wanted_flags(d);

	if ((d->info.flags & flags) != flags)
		return -EOPNOTSUPP;
	if (d->info.queue_depth == 0 || d->info.nr_hw_queues == 0)
		return -EPROTO;
	if (d->info.nr_hw_queues < d->spec.queues || d->info.queue_depth < d->spec.depth)
		log_warn("the driver gave less than asked for",
			 "dev=%s queues=%u depth=%u asked_queues=%u asked_depth=%u", d->spec.name,
			 d->info.nr_hw_queues, d->info.queue_depth, d->spec.queues, d->spec.depth);
	d->spec.queues = MIN(d->spec.queues, (uint32_t)d->info.nr_hw_queues);
	d->spec.depth = MIN(d->spec.depth, (uint32_t)d->info.queue_depth);
	d->spec.max_io_bytes = MIN(d->spec.max_io_bytes, d->info.max_io_buf_bytes);
	return 0;
}

static int told_added(struct device *d)
{
	char words[DEVICE_ERROR_BYTES];

	if (!d->host->added || d->host->added(d, d->host->arg, words, sizeof(words)) == 0)
		return 0;
	device_set_error(d, "%s", words);
	d->failed = true;
	device_go_down(d);
	return -ECANCELED;
}

static void add_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (res < 0) {
		d->id_taken = res == -EEXIST;
		device_fail_cmd(d, cmd, res);
		return;
	}
	d->added = true;
	if (device_turned_back(d))
		return;
	res = check_negotiated(d);
	if (res < 0) {
		device_fail(d, "ADD_DEV answered other than asked", res);
		return;
	}
	if (told_added(d) < 0)
		return;
	params_fill(&d->params, &d->spec, &d->backend->limits, d->data.path);
	/* SET_PARAMS of an unprivileged device needs its node, which udev gives us in its time. */
	if (ctl_wants_path(d->info.flags))
		device_open_driver(d);
	else
		set_params(d);
}

void device_go_up(struct device *d)
{
	d->info = (struct ublksrv_ctrl_dev_info){
		.nr_hw_queues = (uint16_t)d->spec.queues,
		.queue_depth = (uint16_t)d->spec.depth,
		.max_io_buf_bytes = d->spec.max_io_bytes,
		.dev_id = (uint32_t)d->spec.id,
		.ublksrv_pid = getpid(),
		.flags = UBLK_F_CMD_IOCTL_ENCODE | wanted_flags(d) |
			 (d->host->ctl->features & UBLK_F_UPDATE_SIZE),
		.ublksrv_flags = d->spec.mark,
	};
	device_set_state(d, DEVICE_ADDING);
	device_send(d, UBLK_U_CMD_ADD_DEV, &d->info, sizeof(d->info), add_done);
}
