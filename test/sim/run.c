/*
 * One run. The scheduler turns the control reactor and the data reactors in an order of chance,
 * each only when a real one would have been awake (plus now and then for no reason); when nobody
 * has anything to do, the clock moves to the next event or deadline. At the end everything must be
 * given back, and nothing may have been left in the driver.
 */
#include "test/sim/run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "test/sim/client.h"
#include "test/sim/disk.h"
#include "test/sim/kill.h"
#include "test/sim/net.h"
#include "test/sim/ring_sim.h"
#include "test/sim/slot.h"
#include "test/sim/visits.h"
#include "storage/sharing.h"
#include "ublk/device/device.h"

#define REACTOR_NR_MAX 3
#define SLOT_NR_MAX 4
/* So many runs are about the network. */
#define NET_ONE_IN 8
/* Far above every deadline of the product and every delay of the world. */
#define STALL_NS (600 * NS_PER_SEC)
/* What turns for ever moves the clock too little for that: ten times what has been seen. */
#define STALL_TURNS 1000000

static struct run {
	struct reactor control, data[REACTOR_NR_MAX];
	struct reactor *data_ptr[REACTOR_NR_MAX];
	int cpus[REACTOR_NR_MAX];
	unsigned data_nr;
	struct ctl ctl;
	bool ctl_opened, up;
	int ctl_res;
	struct device_host host;
	struct slot slots[SLOT_NR_MAX];
	unsigned slot_nr;
	uint64_t budget;
	bool has_tree;	    /* some device was one */
	bool tree;	    /* most of the devices may be one */
	bool net;	    /* most of the devices are on servers */
	bool control_awake; /* had something to do when it was looked at last */
	uint64_t progress, progress_ns, progress_turns;
	uint64_t turns;
	struct sim_event start_event;
} r;

static void dump(void)
{
	reactor_dump_ops(&r.control, 2);
	for (unsigned i = 0; i < r.data_nr; i++) {
		fprintf(stderr, "reactor=%u sq_entries=%u cq_entries=%u\n", i,
			r.data[i].ring.uring.sq.ring_entries, r.data[i].ring.uring.cq.ring_entries);
		reactor_dump_ops(&r.data[i], 2);
	}
	for (unsigned i = 0; i < r.slot_nr; i++)
		slot_dump(&r.slots[i]);
	for (unsigned i = 0; i < MODEL_DEV_NR; i++) {
		const struct model_dev *d = model.devs[i];

		if (d)
			fprintf(stderr,
				"driver dev=%u live=%d stopping=%d deleted=%d inflight=%u open=%d "
				"maps=%u files=%u openers=%u probes=%u starting=%d stop=%d del=%d "
				"ready=%d disk=%d state=%u releasing=%d recovering=%d flags=%llx\n",
				i, d->live, d->stopping, d->deleted, d->inflight_nr,
				d->cdev_fd >= 0, d->map_nr, d->file_ref_nr, d->opener_nr,
				d->probe_nr, d->start_op != NULL, d->stop_op != NULL,
				d->del_op != NULL, model_ready(d), d->has_disk, d->info.state,
				d->releasing, d->recover_op != NULL,
				(unsigned long long)d->info.flags);
	}
	fprintf(stderr, "requests left=%llu turns=%llu\n", (unsigned long long)r.budget,
		(unsigned long long)r.turns);
}

static void on_assert(void)
{
	fprintf(stderr, "SIM FAILED seed=%llu time=%.9f: assertion of the product\n",
		(unsigned long long)sim.seed, (double)sim.now_ns / 1e9);
	dump();
}

static void make_reactor(struct reactor *reactor, unsigned idx, bool control)
{
	struct reactor_params params = {
		.idx = idx,
		.sq_entries = 1u << sim_below(8),
		.cq_entries = 1u << sim_below(13),
		.op_nr = sim.cut.on ? 1024 : 65536,
		.control = control,
	};
	int ret;

	if (!control && sim.defect == DEFECT_NONE && !sim.cut.on && sim_one_in(8)) {
		/* A reactor takes three, a connection three before any request can be made. */
		params.op_nr = (unsigned)sim_between(r.net || sim.only_net ? 100 : 12, 200);
		sim.few_op_slots = true;
		sim_saw(FAULT_NO_OP_SLOTS);
	}
	/* No room for two CQEs at a time. */
	if (sim.defect == DEFECT_BUFFER_LOST)
		params.sq_entries = params.cq_entries = 1;
	sim_cross(SIM_BOOT);
	ret = reactor_init(reactor, &params);
	sim_cross(SIM_WORLD);
	if (ret < 0)
		sim_fail("reactor_init: %d", ret);
}

static void on_event(struct device *device, enum device_event event, void *arg)
{
	enum sim_side side = sim_cross(SIM_WORLD);

	(void)arg;
	slot_event(device, event);
	sim_cross(side);
}

static struct slot *slot_of(const struct model_dev *dev)
{
	for (unsigned i = 0; i < r.slot_nr; i++) {
		struct device_info info;

		if (!r.slots[i].dev)
			continue;
		device_info(r.slots[i].dev, &info);
		if (info.id == (int64_t)dev->id && device_state(r.slots[i].dev) == DEVICE_STARTING)
			return &r.slots[i];
	}
	sim_fail("device %u became live for nobody", dev->id);
}

static void on_live(struct model_dev *dev)
{
	struct slot *slot = slot_of(dev);

	slot_live(slot, dev);
	r.has_tree |= slot->st->has_tree;
	visits_begin(dev);
}

static void on_ctl_opened(struct ctl *ctl, int res)
{
	(void)ctl;
	r.ctl_opened = true;
	r.ctl_res = res;
}

static void open_ctl(struct sim_event *event)
{
	int ret;

	(void)event;
	r.ctl_opened = false;
	ret = ctl_open(&r.ctl, &r.control, on_ctl_opened);
	if (ret < 0)
		sim_fail("ctl_open: %d", ret);
	r.ctl.unprivileged = model.unprivileged;
}

static enum slot_kind choose_any_kind(void)
{
	if (sim.defect == DEFECT_LOST_MEMORY)
		return SLOT_MEM;
	if (defect_of_net(sim.defect) || sim.only_net || sim.cut.on || (r.net && !sim_one_in(4)))
		return sim_seed_is_nvme(sim.seed) ? SLOT_NVME : SLOT_NBD;
	if (sim.defect >= DEFECT_NO_DSYNC)
		return SLOT_FILE;
	if (sim.defect != DEFECT_NONE)
		return SLOT_SCRIPTED;
	if (r.tree && !sim_one_in(3))
		return sim_one_in(3) ? SLOT_MOVER : SLOT_SCRIPTED;
	switch (sim_below(16)) {
	case 0:
		return SLOT_NULL;
	case 1:
		return SLOT_PATTERN;
	case 2 ... 4:
		return SLOT_MEM;
	case 5 ... 9:
		return SLOT_FILE;
	case 10 ... 11:
		return SLOT_MOVER;
	default:
		return SLOT_SCRIPTED;
	}
}

/* Where zones are to be: a backend that they can stand over. */
static enum slot_kind choose_kind(unsigned idx)
{
	enum slot_kind kind = choose_any_kind();

	if (kind >= SLOT_NBD || !slot_zones_seed(idx))
		return kind;
	return sim.seed / 8 % 2 ? SLOT_MOVER : SLOT_SCRIPTED;
}

/* The server is up; perhaps not for the first time. */
static void ctl_is_open(void)
{
	if (r.ctl_res < 0) {
		ctl_close(&r.ctl);
		sim_event_arm(&r.start_event, sim.now_ns + NS_PER_SEC, open_ctl);
		r.ctl_opened = false;
		return;
	}
	r.up = true;
	for (unsigned i = 0; i < r.slot_nr; i++)
		slot_restart(&r.slots[i]);
	if (r.slot_nr > 0)
		return;
	r.slot_nr = sim.cut.on ? 1 : (unsigned)sim_between(1, SLOT_NR_MAX);
	for (unsigned i = 0; i < r.slot_nr; i++)
		slot_init(&r.slots[i], i, choose_kind(i), &r.host, &r.budget);
}

/* A server begins. */
static void boot(void)
{
	make_reactor(&r.control, 0, true);
	r.data_nr = sim.cut.on ? 1 : (unsigned)sim_between(1, REACTOR_NR_MAX);
	for (unsigned i = 0; i < r.data_nr; i++) {
		make_reactor(&r.data[i], i, false);
		r.data_ptr[i] = &r.data[i];
		r.cpus[i] = sim_one_in(4) ? -1 : (int)i;
	}
	r.host = (struct device_host){
		.ctl = &r.ctl,
		.reactors = r.data_ptr,
		.reactor_cpus = r.cpus,
		.reactor_nr = r.data_nr,
		.event = on_event,
		.stop_deadline_ns = 15 * NS_PER_SEC,
		.added = slot_added,
	};
	r.control_awake = true;
}

static void set_up(uint64_t ios)
{
	r = (struct run){ .budget = ios, .progress_ns = sim.now_ns };
	r.net = sim.defect == DEFECT_NONE && sim_one_in(NET_ONE_IN);
	r.tree = sim.defect == DEFECT_NONE && !r.net && sim_one_in(2);
	sim_fds_init();
	model_init();
	model.live = on_live;
	sim.dump = dump;
	assert_hook = on_assert;
	kill_init(r.slots, &r.slot_nr);
	boot();
	open_ctl(NULL);
}

/* kill -9, and another one begins after a while. */
static void die(void)
{
	sim_trace("killed", r.turns, 0, 0, 0);
	kill_count();
	sim.progress++;
	sim_rings_die();
	for (unsigned i = 0; i < r.slot_nr; i++)
		slot_killed(&r.slots[i]);
	list_init(&backend_claims);
	sim_owned_drop();
	sim_fds_drop();
	memset(&r.ctl, 0, sizeof(r.ctl));
	memset(&r.control, 0, sizeof(r.control));
	memset(r.data, 0, sizeof(r.data));
	r.ctl_opened = r.up = false;
	boot();
	sim_event_arm(&r.start_event, sim.now_ns + sim_skewed(NS_PER_US, 2 * NS_PER_SEC), open_ctl);
}

static bool readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}

static bool due(const struct reactor *reactor)
{
	return reactor_next_deadline_ns(reactor) <= sim.now_ns;
}

/* As in the daemon: libev sleeps when there was nothing to do, until the eventfd says so. */
static bool control_is_awake(void)
{
	return r.control_awake || due(&r.control) || readable(r.control.event_fd);
}

static bool data_is_awake(const struct reactor *reactor)
{
	return reactor_has_work(reactor) || sim_ring_ready(&reactor->ring) || due(reactor);
}

static bool survives_turn(struct reactor *reactor)
{
	bool may_wait = !sim_one_in(8), killed = setjmp(kill_frame) != 0;

	kill_set_frame(!killed);
	if (!killed) {
		sim_cross(SIM_PRODUCT);
		reactor_turn(reactor, may_wait);
	}
	kill_set_frame(false);
	sim_cross(SIM_WORLD);
	return !killed;
}

static void turn(struct reactor *reactor)
{
	uint64_t allocs = sim.alloc_nr, mails = reactor->stats.mails;

	sim_trace("turn", reactor == &r.control, reactor->idx, reactor->stats.turns, 0);
	sim.now_ns += sim_between(100, 2000);
	r.turns++;
	if (!survives_turn(reactor)) {
		die();
		return;
	}
	/* Queues come and go by mail: only then. The control thread may allocate. */
	if (reactor != &r.control && sim.alloc_nr != allocs && reactor->stats.mails == mails)
		sim_fail("reactor %u allocates while its devices run", reactor->idx);
}

static uint64_t next_deadline(void)
{
	uint64_t next = MIN(sim_next_event_ns(), reactor_next_deadline_ns(&r.control));

	for (unsigned i = 0; i < r.data_nr; i++) {
		next = MIN(next, reactor_next_deadline_ns(&r.data[i]));
		next = MIN(next, sim_ring_wake_ns(&r.data[i].ring));
	}
	return next;
}

static void advance(void)
{
	uint64_t next = next_deadline();

	if (next == UINT64_MAX)
		sim_fail("nothing can happen any more");
	sim.now_ns = MAX(sim.now_ns, next);
}

static void check_progress(void)
{
	if (sim.progress != r.progress) {
		r.progress = sim.progress;
		r.progress_ns = sim.now_ns;
		r.progress_turns = r.turns;
	} else if (r.turns - r.progress_turns > STALL_TURNS) {
		sim_fail("no progress for %d turns", STALL_TURNS);
	} else if (sim.now_ns - r.progress_ns > STALL_NS) {
		sim_fail("no progress for %llu s of virtual time",
			 (unsigned long long)(STALL_NS / NS_PER_SEC));
	}
}

/* Whom to turn: one of those awake, seldom any. NULL: all sleep. */
static struct reactor *choose_reactor(void)
{
	struct reactor *awake[REACTOR_NR_MAX + 1];
	unsigned nr = 0;

	if (control_is_awake())
		awake[nr++] = &r.control;
	for (unsigned i = 0; i < r.data_nr; i++)
		if (data_is_awake(&r.data[i]))
			awake[nr++] = &r.data[i];
	if (sim_fault(FAULT_WAKE_SPURIOUS))
		return sim_one_in(2) ? &r.control : &r.data[sim_below(r.data_nr)];
	return nr ? awake[sim_below(nr)] : NULL;
}

/* As people do who ask why it is stuck: at any time. */
static void ask_driver(void)
{
	struct slot *slot = r.slot_nr && sim_one_in(32) ? &r.slots[sim_below(r.slot_nr)] : NULL;

	if (!slot || !slot->dev)
		return;
	sim_cross(SIM_PRODUCT);
	device_ask_driver(slot->dev);
	sim_cross(SIM_WORLD);
	r.control_awake |= reactor_has_work(&r.control);
}

static void look_at_devices(void)
{
	static struct device_stats stats;
	struct device_info info;

	for (unsigned i = 0; i < r.slot_nr; i++) {
		if (!r.slots[i].dev || !sim_one_in(500))
			continue;
		device_info(r.slots[i].dev, &info);
		device_stats(r.slots[i].dev, &stats);
	}
}

static bool finished(void)
{
	for (unsigned i = 0; i < r.slot_nr; i++)
		if (!r.slots[i].over)
			return false;
	/* What says good-bye to a server may outlive its device. */
	return model_dev_nr() == 0 && net_socket_nr() == 0;
}

static void step(void)
{
	struct reactor *reactor;

	if (sim_events_run() > 0)
		r.control_awake |= reactor_has_work(&r.control);
	sim_ring_poll_mail(&r.control.ring);
	for (unsigned i = 0; i < r.data_nr; i++)
		sim_ring_poll_mail(&r.data[i].ring);
	if (kill_is_due())
		die();
	reactor = choose_reactor();
	if (!reactor) {
		if (!r.up || !finished())
			advance();
		check_progress();
		return;
	}
	turn(reactor);
	if (reactor == &r.control)
		r.control_awake = reactor_has_work(&r.control);
	look_at_devices();
	ask_driver();
	check_progress();
}

/* Turns everything until the last completions have been seen. */
static void settle(void)
{
	kill_end();
	memset(sim.fault_ppm, 0, sizeof(sim.fault_ppm));
	for (int i = 0; i < 20; i++) {
		sim.now_ns += 10 * NS_PER_MS;
		sim_events_run();
		reactor_turn(&r.control, true);
		for (unsigned n = 0; n < r.data_nr; n++)
			reactor_turn(&r.data[n], true);
	}
}

static void check_reactor(struct reactor *reactor)
{
	uint64_t made = sim_ring_stale_nr(&reactor->ring);

	if (reactor->slot_fresh - reactor->slot_free_nr != REACTOR_OWN_OP_NR)
		sim_fail("reactor %u: %u op slots in use at the end, not %u", reactor->idx,
			 reactor->slot_fresh - reactor->slot_free_nr, REACTOR_OWN_OP_NR);
	if (reactor->stats.stale != made)
		sim_fail("reactor %u: %llu stale completions seen, %llu were made", reactor->idx,
			 (unsigned long long)reactor->stats.stale, (unsigned long long)made);
	for (size_t i = 0; i < ARRAY_SIZE(reactor->file_used); i++)
		if (reactor->file_used[i])
			sim_fail("reactor %u: registered files are left", reactor->idx);
	for (size_t i = 0; i < ARRAY_SIZE(reactor->buffer_used); i++)
		if (reactor->buffer_used[i])
			sim_fail("reactor %u: registered buffers are left", reactor->idx);
	for (size_t i = 0; i < ARRAY_SIZE(reactor->group_used); i++)
		if (reactor->group_used[i])
			sim_fail("reactor %u: groups of buffers are left", reactor->idx);
	if (reactor_next_deadline_ns(reactor) != RING_NO_TIMEOUT)
		sim_fail("reactor %u: a timer is left", reactor->idx);
	if (reactor_has_work(reactor))
		sim_fail("reactor %u: work is left", reactor->idx);
}

static void tear_down(void)
{
	settle();
	visits_fini();
	ctl_close(&r.ctl);
	check_reactor(&r.control);
	for (unsigned i = 0; i < r.data_nr; i++)
		check_reactor(&r.data[i]);
	if (sim_ring_files_nr() > 0 || model.ctl_fd >= 0)
		sim_fail("files are left open");
	for (unsigned i = 0; i < r.slot_nr; i++)
		slot_fini(&r.slots[i]);
	for (unsigned i = 0; i < r.data_nr; i++)
		reactor_fini(&r.data[i]);
	reactor_fini(&r.control);
	if (sim_ring_nr() > 0)
		sim_fail("rings are left");
	if (sim_owned_nr() > 0)
		sim_fail("memory of the product is not given back: %u pieces", sim_owned_nr());
	disk_fini();
	if (sim_fds_drop() > 0)
		sim_fail("descriptors of the product are left open");
	model_fini();
}

void run(uint64_t seed, uint64_t ios, enum defect defect, uint64_t *fault_nr,
	 struct run_result *ret_result)
{
	uint64_t start_ns;

	sim_init(seed, defect, fault_nr);
	start_ns = sim.now_ns;
	set_up(ios);
	while (!r.up || !finished()) {
		step();
		if (r.ctl_opened && !r.up)
			ctl_is_open();
	}
	*ret_result = (struct run_result){
		.ios = model.commit_nr,
		.turns = r.turns,
		.virtual_ns = sim.now_ns - start_ns,
	};
	if (r.has_tree)
		sim_saw(FAULT_TREE_RUN);
	for (unsigned i = 0; i < r.slot_nr; i++) {
		ret_result->lives += r.slots[i].lives;
		ret_result->starts += r.slots[i].starts;
	}
	tear_down();
	ret_result->trace_hash = sim.trace_hash;
	sim_fini();
}
