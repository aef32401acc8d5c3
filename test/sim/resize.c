/*
 * Devices that become larger and smaller while they are used, politely or by force, and the
 * judgement of how that ended: sizes agree everywhere, no acknowledged data is lost without force,
 * and what was thrown away is zeroes when the device has grown again.
 */
#include <errno.h>

#include "test/sim/client.h"
#include "test/sim/slot.h"

static void resize(struct sim_event *event);

static void again(struct slot *slot, uint64_t within_ns)
{
	sim_event_arm(&slot->resize_event, sim.now_ns + sim_skewed(NS_PER_US, within_ns), resize);
}

/* Mostly one that all nodes of a tree can have. */
static uint64_t choose_size(const struct slot *slot)
{
	const struct storage *st = slot->st;
	uint64_t unit = st->has_tree && !sim_one_in(8) ? slot->tree.row_bytes : st->block_bytes;
	uint64_t units = sim_between(1, st->max_bytes / unit), now = st->size_bytes / unit;

	/* A little smaller at the end is what a polite one may be. */
	if (sim_one_in(3) && now > 0)
		units = now - sim_below(now / 16 + 1);
	return units * unit;
}

/* By the rows of the tree. */
static bool can_have(const struct slot *slot, uint64_t size_bytes)
{
	return !slot->st->has_tree || size_bytes % slot->tree.row_bytes == 0;
}

static void refused(const struct slot *slot, int ret, uint64_t size_bytes, const char *error)
{
	if (ret == -EINVAL && can_have(slot, size_bytes))
		sim_fail("%s: refuses %llu bytes: %s", slot->name, (unsigned long long)size_bytes,
			 error);
	if (ret == -EINVAL)
		sim_saw(FAULT_TREE_NO_SIZE);
	if (ret == -EALREADY && size_bytes != slot->st->size_bytes)
		sim_fail("%s: %llu bytes are no news", slot->name, (unsigned long long)size_bytes);
	if (ret != -EALREADY && error[0] == '\0')
		sim_fail("%s: a resize is refused without a word", slot->name);
	sim_saw(FAULT_RESIZE_REFUSED);
}

/* A discard or a write in flight may have changed what was acknowledged. */
static bool changes_beyond(const struct client *c, uint64_t size_bytes)
{
	list_for_each (node, &c->inflight) {
		const struct client_rq *rq = list_entry(node, struct client_rq, node);

		if (client_rq_op(rq) != UBLK_IO_OP_READ &&
		    (rq->start_sector + rq->nr_sectors) << 9 > size_bytes)
			return true;
	}
	return false;
}

static void check_polite(const struct slot *slot, uint64_t size_bytes)
{
	const struct storage *st = slot->st;

	if (st->has_data && size_bytes < st->size_bytes && st->user &&
	    !changes_beyond(st->user->client, size_bytes) &&
	    storage_has_data(st, size_bytes, st->size_bytes - size_bytes))
		sim_fail("%s: a polite resize to %llu bytes would throw data away", slot->name,
			 (unsigned long long)size_bytes);
}

static void resize(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, resize_event);
	uint64_t size_bytes = choose_size(slot);
	bool force = sim_one_in(2);
	char error[DEVICE_ERROR_BYTES] = "";
	int ret;

	if (!slot->dev || slot->ended)
		return;
	if (slot->resizing) {
		again(slot, NS_PER_SEC);
		return;
	}
	slot->resize_excuses = sim.fault_nr[FAULT_CTL_UPDATE_SIZE];
	sim_cross(SIM_PRODUCT);
	ret = device_resize(slot->dev, size_bytes, force, error, sizeof(error));
	sim_cross(SIM_WORLD);
	sim_trace("resize", slot->idx, (uint32_t)(size_bytes >> 9), force, ret);
	if (ret == 0 && !can_have(slot, size_bytes))
		sim_fail("%s: a tree takes %llu bytes, with rows of %llu", slot->name,
			 (unsigned long long)size_bytes, (unsigned long long)slot->tree.row_bytes);
	if (ret < 0)
		refused(slot, ret, size_bytes, error);
	else if (!force)
		check_polite(slot, size_bytes);
	slot->resizing = ret == 0;
	slot->resize_forced = force;
	again(slot, sim_one_in(2) ? NS_PER_SEC : 10 * NS_PER_SEC);
}

void slot_resize_often(struct slot *slot)
{
	/* A namespace is as large as its target says: the device follows it by itself. */
	if (slot->kind != SLOT_NVME && sim.defect == DEFECT_NONE && !sim.cut.on &&
	    slot->resize_event.pos == 0 && sim_one_in(2))
		again(slot, NS_PER_SEC);
}

static void failed(const struct slot *slot, const struct device_resized *r)
{
	const struct model_dev *dev = slot->st->user;

	if (r->words[0] == '\0')
		sim_fail("%s: a resize failed without a word", slot->name);
	if (sim.fault_nr[FAULT_CTL_UPDATE_SIZE] == slot->resize_excuses && dev && dev->live &&
	    !dev->stopping)
		sim_fail("%s: a resize failed for no reason: %s", slot->name, r->words);
}

static void done(struct slot *slot, const struct device_resized *r)
{
	if (r->to_bytes > r->from_bytes) {
		sim_saw(FAULT_RESIZE_GROWN);
	} else if (r->words[0] == '\0') {
		sim_saw(FAULT_RESIZE_SHRUNK);
		storage_forget(slot->st, r->to_bytes, r->from_bytes - r->to_bytes);
		/* What was kept beyond may be gone with it. */
		if (slot->resize_kept)
			storage_set_unknown(slot->st, r->from_bytes,
					    (uint32_t)(slot->st->max_bytes - r->from_bytes));
	} else {
		sim_saw(FAULT_RESIZE_KEPT);
		slot->resize_kept = true;
		if (slot->resize_forced)
			sim_fail("%s: a forced resize keeps data: %s", slot->name, r->words);
	}
}

void slot_resize_killed(struct slot *slot)
{
	struct storage *st = slot->st;

	sim_event_cancel(&slot->resize_event);
	/* What was to be thrown away may be, and what grew may hold what was there before. */
	if (slot->resizing)
		storage_set_unknown(st, st->size_bytes, (uint32_t)(st->max_bytes - st->size_bytes));
	slot->resizing = false;
}

void slot_resized(struct slot *slot)
{
	struct device_resized r;
	struct device_info info;

	device_resized(slot->dev, &r);
	device_info(slot->dev, &info);
	if (!slot->resizing)
		sim_fail("%s: the end of no resize is told", slot->name);
	slot->resizing = false;
	if (r.err)
		failed(slot, &r);
	else
		done(slot, &r);
	if (slot->st->has_tree && !r.err)
		sim_saw(FAULT_TREE_RESIZED);
	slot_note_size(slot, info.size_bytes);
	if (info.size_bytes != (r.err ? r.from_bytes : r.to_bytes) ||
	    (slot->st->user && slot->st->size_bytes != info.size_bytes))
		sim_fail("%s: the device has %llu bytes, its users see %llu", slot->name,
			 (unsigned long long)info.size_bytes,
			 (unsigned long long)slot->st->size_bytes);
}
