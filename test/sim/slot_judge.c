/*
 * What the world may see of a slot's device: which failures it has a reason for, and what must hold
 * when it is asked to stop and when it has ended.
 */
#include <stdio.h>

#include "test/sim/slot.h"
#include "test/sim/ublk_model.h"
#include "ublk/device/device_internal.h"
#include "ublk/partition_scan.h"

static uint64_t sum_of(const enum fault *list, size_t nr)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < nr; i++)
		sum += sim.fault_nr[list[i]];
	return sum;
}

uint64_t slot_excuses(void)
{
	static const enum fault list[] = {
		FAULT_FILE_SET,	      FAULT_BACKEND_QUEUE_INIT, FAULT_BACKEND_IO_INIT,
		FAULT_CTL_ADD,	      FAULT_CTL_SET_PARAMS,	FAULT_CTL_AFFINITY,
		FAULT_CTL_START,      FAULT_OPEN_FAILS,		FAULT_MAP_FAILS,
		FAULT_FETCH_FAILS,    FAULT_FOREIGN_STOP,	FAULT_FOREIGN_DEL,
		FAULT_CTL_EEXIST,     FAULT_NO_MEMORY,		FAULT_NO_MAPPING,
		FAULT_GROUP_SET,      FAULT_NOTE_FAILS,		FAULT_RECOVERY_GET_PARAMS,
		FAULT_RECOVERY_START, FAULT_RECOVERY_END,
	};

	return sum_of(list, ARRAY_SIZE(list));
}

uint64_t slot_attach_excuses(void)
{
	static const enum fault list[] = {
		FAULT_FILE_SET,	    FAULT_BACKEND_QUEUE_INIT, FAULT_BACKEND_IO_INIT,
		FAULT_FETCH_FAILS,  FAULT_FOREIGN_STOP,	      FAULT_FOREIGN_DEL,
		FAULT_NO_MEMORY,    FAULT_NO_MAPPING,	      FAULT_GROUP_SET,
		FAULT_RECOVERY_END,
	};

	return sum_of(list, ARRAY_SIZE(list));
}

uint64_t slot_open_excuses(void)
{
	return sim.fault_nr[FAULT_BACKEND_OPEN] + sim.fault_nr[FAULT_NO_MEMORY] +
	       sim.fault_nr[FAULT_NO_MAPPING];
}

/* What its user has switched off stays off, through recoveries too. */
void slot_judge_live(const struct slot *slot)
{
	struct device_info info;

	device_info(slot->dev, &info);
	if (info.flags & UBLK_F_UNPRIVILEGED_DEV) {
		if (info.partition_scan)
			sim_fail("%s: nobody scans partitions for a user", slot->name);
		if (!slot->stop_asked && !model_disk_is_ours((uint32_t)info.id))
			sim_fail("%s is live, and its owner cannot open it", slot->name);
		return;
	}
	if (info.partition_scan == slot->spec.no_partition_scan ||
	    partition_scan_of_flags(info.flags) == slot->spec.no_partition_scan)
		sim_fail("%s: its partition scan is not what was asked for", slot->name);
}

/* While it is flushed nothing is cancelled: somebody stops it by force. */
void slot_stop_is_late(struct slot *slot)
{
	sim_saw(FAULT_STOP_LATE);
	/* One that goes down unasked has its deadline from its host. */
	if (slot->stop_asked ? sim.now_ns + NS_PER_US < slot->late_ns
			     : device_error(slot->dev)[0] == '\0')
		sim_fail("%s: a stop is late %llu us before its deadline", slot->name,
			 (unsigned long long)(slot->late_ns - sim.now_ns) / 1000);
	if (device_state(slot->dev) != DEVICE_FLUSHING)
		slot->st->cancel_until_ns = UINT64_MAX;
	else if (slot->stop_event.pos == 0)
		sim_event_arm(&slot->stop_event, sim.now_ns + sim_skewed(0, 20 * NS_PER_SEC),
			      slot_ask_stop);
}

/* A stop was late, and then refused: no request of later may come to a queue that cancels. */
void slot_judge_cancels(const struct slot *slot)
{
	const struct device *d = slot->dev;
	uint64_t until_ns = slot->st->cancel_until_ns;

	for (unsigned i = 0; until_ns && sim.now_ns > until_ns && i < d->attach_nr; i++)
		if (d->queues[i].care & QUEUE_CANCELLING)
			sim_fail("%s: queue %u cancels, but no stop is late", slot->name, i);
}

/* Each request that the driver saw answered was counted once, by its kind. */
static void check_stats(const struct slot *slot)
{
	static const uint8_t ublk_op[BACKEND_OP_NR] = {
		[BACKEND_READ] = UBLK_IO_OP_READ,
		[BACKEND_WRITE] = UBLK_IO_OP_WRITE,
		[BACKEND_FLUSH] = UBLK_IO_OP_FLUSH,
		[BACKEND_DISCARD] = UBLK_IO_OP_DISCARD,
		[BACKEND_WRITE_ZEROES] = UBLK_IO_OP_WRITE_ZEROES,
		[BACKEND_ZONE_APPEND] = STORAGE_OP_APPEND,
		[BACKEND_ZONE_MANAGE] = STORAGE_OP_MANAGE,
	};
	static struct device_stats stats;

	device_stats(slot->dev, &stats);
	if (stats.inflight != 0)
		sim_fail("%s: %llu I/Os in flight after the end", slot->name,
			 (unsigned long long)stats.inflight);
	if (stats.fallbacks != slot->st->fallback_nr)
		sim_fail("%s: statistics say %llu fallbacks, it were %llu", slot->name,
			 (unsigned long long)stats.fallbacks,
			 (unsigned long long)slot->st->fallback_nr);
	if (stats.shmem > slot->st->shmem_nr)
		sim_fail("%s: statistics say %llu in shared memory, it were %llu", slot->name,
			 (unsigned long long)stats.shmem, (unsigned long long)slot->st->shmem_nr);
	if (stats.shmem > 0)
		sim_saw(FAULT_PATH_SHMEM);
	for (int op = 0; op < BACKEND_OP_NR; op++)
		if (stats.op[op].done != slot->st->done_nr[ublk_op[op]] ||
		    stats.op[op].failed != slot->st->failed_nr[ublk_op[op]] ||
		    histogram_count(&stats.op[op].layer[QUEUE_LAYER_TOTAL]) != stats.op[op].done)
			sim_fail("%s: %s: statistics say %llu done %llu failed, it were %llu and "
				 "%llu",
				 slot->name, backend_op_name((enum backend_op)op),
				 (unsigned long long)stats.op[op].done,
				 (unsigned long long)stats.op[op].failed,
				 (unsigned long long)slot->st->done_nr[ublk_op[op]],
				 (unsigned long long)slot->st->failed_nr[ublk_op[op]]);
}

/* Nothing of it may be left in the driver, but for a node that somebody else still has open. */
static void check_gone(const struct slot *slot)
{
	const struct model_dev *dev = slot->st->user;

	check_stats(slot);
	for (unsigned i = 0; i < MODEL_DEV_NR; i++) {
		const struct model_dev *d = model.devs[i];

		if (d && d->cdev_fd >= 0 && d == dev)
			sim_fail("%s is gone, but holds /dev/ublkc%u", slot->name, i);
		if (d && d == dev && !d->deleted && !slot->past.kept)
			sim_fail("%s is gone, but device %u is still there", slot->name, i);
	}
}

void slot_judge_end(const struct slot *slot, bool failed)
{
	bool excused = sim.few_op_slots || slot->st->visit_faults > 0;

	if (failed && slot_excuses() == slot->excuses && !excused &&
	    !(slot->past.kept && (slot->stop_asked || slot_is_excused(slot))))
		sim_fail("%s failed for no reason: %s", slot->name, device_error(slot->dev));
	if (failed && device_error(slot->dev)[0] == '\0')
		sim_fail("%s failed without a word", slot->name);
	if (!failed && !slot->stop_asked)
		sim_fail("%s is gone without being asked", slot->name);
	if (failed && slot->past.note == NOTE_RECOVERING && !slot->past.kept && !slot->stop_asked &&
	    slot_attach_excuses() == slot->past.attach_excuses && !excused)
		sim_fail("%s could not be recovered, and is lost: %s", slot->name,
			 device_error(slot->dev));
	check_gone(slot);
}

void slot_dump(const struct slot *slot)
{
	fprintf(stderr,
		"slot %u kind=%d path=%s batch=%s state=%s over=%d stop_asked=%d error=\"%s\"\n",
		slot->idx, slot->kind, data_path_names[slot->spec.data_path],
		batch_choice_names[slot->spec.batch],
		slot->dev ? device_state_name(device_state(slot->dev)) : "none", slot->over,
		slot->stop_asked, slot->dev ? device_error(slot->dev) : "");
}
