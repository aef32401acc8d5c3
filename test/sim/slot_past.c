/*
 * What a daemon notes of its devices, and what the next one makes of it: as
 * daemon/devices/device_notes.c, daemon/handover/adopt.c and the recovering half of
 * daemon/devices/device_set.c.
 *
 * Happy path: a note ADDING before the driver knows the device, SERVING with its id before anybody
 * can use it, RECOVERING before a recovery, none when it is gone. After a kill: what can be
 * recovered is, what is dead is deleted, and there is nothing in the driver that no note names.
 * Failure modes: the file is locked by the dead server's I/O (tried again), or shorter than it was
 * (made whole), the recovery fails (tried again, or given up after a while).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "storage/registry.h"
#include "filters/throttle/throttle.h"
#include "filters/throttle/throttle_group.h"
#include "test/sim/client.h"
#include "test/sim/disk.h"
#include "test/sim/slot.h"
#include "ublk/device/device_internal.h"

#define LOCKED_RETRY_NS (10 * NS_PER_MS)
#define MARK 0x75621234567800ull

uint64_t slot_mark(const struct slot *slot)
{
	return MARK + slot->idx;
}

/* ---- notes ---- */

void slot_note_adding(struct slot *slot)
{
	slot->past.note = NOTE_ADDING;
	slot->past.id = -1;
}

void slot_note_size(struct slot *slot, uint64_t size_bytes)
{
	slot->past.size_bytes = size_bytes;
}

void slot_note_serving(struct slot *slot, const struct device *device)
{
	struct device_info info;

	device_info(device, &info);
	slot->past.note = NOTE_SERVING;
	slot->past.id = info.id;
	slot->past.size_bytes = info.size_bytes;
	if (info.size_bytes != slot->st->size_bytes)
		sim_fail("%s has %llu bytes, not %llu", slot->name,
			 (unsigned long long)info.size_bytes,
			 (unsigned long long)slot->st->size_bytes);
	slot->past.retries = 0;
	backend_identity(device->backend, slot->past.identity);
}

void slot_forget(struct slot *slot)
{
	for (unsigned i = 0; i < BACKEND_STORED_MAX; i++)
		if (slot->past.stored_fds[i])
			sim_fd_close(slot->past.stored_fds[i]);
	slot->past = (struct slot_past){ .id = -1 };
}

static void park(struct slot *slot, const struct device *device)
{
	unsigned nr =
		recovery_possible(device->info.flags) ? backend_stored_nr(device->backend) : 0;

	for (unsigned i = 0; i < nr; i++) {
		int fd = backend_stored_fd(device->backend, i);

		if (fd >= 0)
			slot->past.stored_fds[i] = sim_fd_dup(fd);
	}
}

int slot_added(struct device *device, void *arg, char *error, size_t error_bytes)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	struct slot *slot = device_owner(device);
	int ret = sim_fault(FAULT_NOTE_FAILS) ? -ENOSPC : 0;

	(void)arg;
	sim_kill_point();
	if (ret < 0) {
		snprintf(error, error_bytes, "no room for a note");
	} else {
		park(slot, device);
		slot_note_serving(slot, device);
	}
	sim_kill_point();
	sim_cross(side);
	return ret;
}

/* ---- killed ---- */

/* Lists of the product that stand in its static memory, which a new process has anew. */
static void leave_lists(const struct backend_device *device)
{
	if (device->ops == &backend_file)
		list_remove(&((struct file_device *)device->priv)->opened);
	if (device->ops == &backend_throttle && ((struct throttle_device *)device->priv)->group)
		list_remove(&((struct throttle_device *)device->priv)->group->node);
	for (struct backend_device *c = device->child; c; c = c->sibling)
		leave_lists(c);
}

void slot_killed(struct slot *slot)
{
	const struct backend_device *walked = slot_zones_killed(slot);

	if (slot->dev && slot->dev->backend)
		leave_lists(slot->dev->backend);
	if (walked)
		leave_lists(walked);
	slot->dev = NULL;
	slot->ended = slot->past.kept = false;
	slot->past.retries = 0;
	sim_event_cancel(&slot->event);
	sim_event_cancel(&slot->stop_event);
	sim_event_cancel(&slot->tune_event);
	sim_event_cancel(&slot->shmem_event);
	slot_resize_killed(slot);
	if (slot->kind == SLOT_FILE && sim.defect == DEFECT_NONE && sim_one_in(8))
		slot_truncate_file(&slot->truncate_event);
}

/* ---- the next daemon ---- */

static void adopt(struct sim_event *event);

static struct model_dev *find(const struct slot *slot)
{
	for (unsigned i = 0; i < MODEL_DEV_NR; i++) {
		struct model_dev *dev = model.devs[i];

		if (!dev || dev->deleted || dev->info.ublksrv_flags != slot_mark(slot))
			continue;
		if (slot->past.note == NOTE_NONE ||
		    (slot->past.note != NOTE_ADDING && slot->past.id != (int64_t)i))
			sim_fail("device %u is in the driver, but no note names it", i);
		return dev;
	}
	return NULL;
}

static void begin_anew(struct slot *slot)
{
	slot_forget(slot);
	/* Deleted while the driver has yet to tell its clients what became of their requests. */
	if (slot->st->user && slot->st->user->client)
		client_abandon(slot->st->user->client);
	slot->st->user = NULL;
	slot_begin_later(slot);
}

static void adopt_later(struct slot *slot, uint64_t after_ns)
{
	sim_event_arm(&slot->event, sim.now_ns + after_ns, adopt);
}

void slot_restart(struct slot *slot)
{
	struct model_dev *dev;

	if (slot->past.note != NOTE_NONE && sim_defect(DEFECT_LOST_NOTE))
		slot_forget(slot);
	dev = find(slot);
	if (dev && slot->past.note != NOTE_ADDING && recovery_possible(dev->info.flags) &&
	    dev->info.state != UBLK_S_DEV_DEAD) {
		adopt_later(slot, sim_skewed(0, NS_PER_MS));
		return;
	}
	if (dev)
		model_remove(dev);
	if (!slot->over)
		begin_anew(slot);
}

bool slot_is_excused(const struct slot *slot)
{
	const struct model_dev *dev = find(slot);

	return !dev || dev->slow_release || dev->stopping;
}

/* ---- what became of its file ---- */

static void set_size(const struct slot *slot, uint64_t bytes)
{
	if (ftruncate(slot->file_fd, (off_t)bytes) < 0)
		sim_fail("ftruncate: %s", strerror(errno));
}

static int other_file(const struct slot *slot)
{
	int fd = memfd_create("other", MFD_CLOEXEC);

	sim_fd_own(fd);
	if (ftruncate(fd, (off_t)slot->st->size_bytes) < 0)
		sim_fail("ftruncate: %s", strerror(errno));
	return fd;
}

/*
 * Makes the file whole, or leaves that for the next time: then it must be refused. The driver may
 * have been told of more than the note says, just before the server was killed. The server learns
 * of that later, from the driver, so a file that is as large as the note says is made whole here.
 */
static bool is_shrunk(const struct slot *slot, const struct model_dev *dev)
{
	uint64_t whole = MAX(slot->past.size_bytes, dev->params.basic.dev_sectors << 9);
	struct stat stat;

	if (fstat(slot->file_fd, &stat) < 0 || (uint64_t)stat.st_size >= whole)
		return false;
	if (sim_one_in(2) && (uint64_t)stat.st_size < slot->past.size_bytes) {
		sim_saw(FAULT_RECOVERY_SHRUNK);
		return true;
	}
	set_size(slot, whole);
	return false;
}

/* True: it must be refused. ret_fd: the right file, where another one stands in its place. */
static bool spoil_file(struct slot *slot, const struct model_dev *dev, int *ret_fd)
{
	int other;

	if (slot->file_fd < 0)
		return false;
	if (is_shrunk(slot, dev))
		return true;
	if (sim_fault(FAULT_RECOVERY_GROWN))
		set_size(slot, slot->st->max_bytes);
	if (!sim_fault(FAULT_RECOVERY_OTHER))
		return false;
	*ret_fd = sim_fd_dup(slot->file_fd);
	other = other_file(slot);
	dup2(other, slot->file_fd);
	sim_fd_close(other);
	return true;
}

static void repair_file(const struct slot *slot, int fd)
{
	if (fd < 0)
		return;
	dup2(fd, slot->file_fd);
	sim_fd_close(fd);
}

/* Of mem, which in the sim is the only leaf. */
static void spoil_memory(const struct slot *slot)
{
	int fd = slot->past.stored_fds[0];

	if (fd && sim_defect_always(DEFECT_LOST_MEMORY) &&
	    (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)slot->st->size_bytes) < 0))
		sim_fail("ftruncate: %s", strerror(errno));
}

/* By the seed and not by chance, as forgoes_partition_scan; only at the first try. */
static bool slot_is_foreign(const struct slot *slot)
{
	return sim.defect == DEFECT_NONE && !sim.cut.on && (sim.seed + slot->idx) % 16 == 9 &&
	       slot->past.retries == 0;
}

static void fill_past(const struct slot *slot, struct model_dev *dev, struct device_past *past)
{
	*past = (struct device_past){
		.info = dev->info,
		.size_bytes = slot->past.size_bytes,
		.identity = slot->past.identity,
	};
	/* Another server has made it, which does what ublkd does not. */
	if (slot_is_foreign(slot))
		past->info.flags |= UBLK_F_NEED_GET_DATA;
	/* Somebody is faster; only of an id that nobody else gets (visits.c). */
	if (dev->id >= SLOT_ID_FIRST && sim_fault(FAULT_RECOVERY_VANISHED))
		model_remove(dev);
}

static void refused(struct slot *slot, int err, bool excused, const char *error)
{
	if (error[0] == '\0')
		sim_fail("device_recover: %d without a word", err);
	if (err == -EBUSY && disk_has_orphans(slot->file_fd)) {
		sim_saw(FAULT_RECOVERY_LOCKED);
		adopt_later(slot, LOCKED_RETRY_NS);
		return;
	}
	if (!excused)
		sim_fail("device_recover: %d: %s", err, error);
	slot_retry(slot);
}

/* What came of opening its backend, and whether that had a reason to fail. */
static void recover_opened(struct slot *slot, int ret, bool excused,
			   char error[static DEVICE_ERROR_BYTES])
{
	const struct device_past *past = &slot->adopted;

	sim_cross(SIM_PRODUCT);
	if (ret == 0)
		ret = device_recover(&slot->dev, slot->host, &slot->spec, past, slot, error,
				     DEVICE_ERROR_BYTES);
	if (ret == 0)
		slot_shmem_restore(slot);
	slot_opened(slot, ret);
	sim_cross(SIM_WORLD);
	sim_trace("recover", slot->idx, past->info.dev_id, past->info.state, ret);
	if (ret < 0) {
		slot->dev = NULL;
		refused(slot, ret, excused || slot_may_not_open(slot), error);
		return;
	}
	if (excused)
		sim_fail("%s is recovered with flags that nobody serves, or a file that is not "
			 "what it was",
			 slot->name);
	slot->starts++;
	slot_reset_counters(slot);
	if (sim_fault(FAULT_STOP_ON_WAY_UP))
		sim_event_arm(&slot->stop_event, sim.now_ns + sim_skewed(0, 300 * NS_PER_MS),
			      slot_ask_stop);
}

static void recover_zones(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, event);

	recover_opened(slot, slot->zones.ret, slot_is_foreign(slot), slot->zones.words);
}

static void recover(struct slot *slot, struct model_dev *dev)
{
	int file_fd = -1, ret;
	bool foreign = slot_is_foreign(slot), spoiled = spoil_file(slot, dev, &file_fd);
	char error[DEVICE_ERROR_BYTES] = "";

	slot->open_excuses = slot_open_excuses();
	fill_past(slot, dev, &slot->adopted);
	slot->st->keeps = true;
	slot->st->visit_faults = 0;
	slot->excuses = slot_excuses();
	slot->past.attach_excuses = slot_attach_excuses();
	slot->past.note = NOTE_RECOVERING;
	slot->past.kept = false;
	if (slot->st->zones) {
		slot_zones_open(slot, &slot->adopted, recover_zones);
		return;
	}
	spoil_memory(slot);
	slot_server_begin(slot, false);
	sim_cross(SIM_PRODUCT);
	ret = slot_open(slot, &slot->adopted, error, sizeof(error));
	sim_cross(SIM_WORLD);
	repair_file(slot, file_fd);
	recover_opened(slot, ret, foreign || spoiled, error);
}

static void adopt(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, event);
	struct model_dev *dev = find(slot);

	/* What the last try has opened is still being closed. */
	if (slot_zones_are_busy(slot)) {
		adopt_later(slot, NS_PER_MS);
		return;
	}
	if (!dev) {
		begin_anew(slot);
		return;
	}
	/* A process of its own waits until it can have the device to itself, and ends. */
	if (slot->past.note == NOTE_RECOVERING && !(model.features & UBLK_F_QUIESCE)) {
		if (dev->releasing) {
			adopt_later(slot, NS_PER_MS);
			return;
		}
		if (model_is_old() && !model_ready(dev))
			model_sweep(dev);
	}
	recover(slot, dev);
}

/* Nobody wants it any more: ublkctl del. */
static void discard(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, event);
	struct model_dev *dev = find(slot);
	char error[DEVICE_ERROR_BYTES] = "";
	uint64_t open_faults = slot_open_excuses();
	struct device_past past;
	int ret;

	if (!dev) {
		begin_anew(slot);
		return;
	}
	fill_past(slot, dev, &past);
	slot->excuses = slot_excuses();
	slot->past.kept = false;
	slot_server_begin(slot, false);
	sim_cross(SIM_PRODUCT);
	ret = device_discard(&slot->dev, slot->host, &slot->spec, &past, slot, error,
			     sizeof(error));
	sim_cross(SIM_WORLD);
	sim_trace("discard", slot->idx, past.info.dev_id, past.info.state, ret);
	if (ret < 0) {
		slot->dev = NULL;
		if (slot_open_excuses() == open_faults)
			sim_fail("device_discard: %d: %s", ret, error);
		slot_retry(slot);
		return;
	}
	slot_reset_counters(slot);
	sim_saw(FAULT_RECOVERY_DISCARDED);
	slot_ask_stop(&slot->stop_event);
}

void slot_retry(struct slot *slot)
{
	uint64_t at_ns = sim.now_ns + sim_skewed(NS_PER_MS, NS_PER_SEC);
	bool gives_up = ++slot->past.retries > 5 || sim_one_in(8);

	sim_event_arm(&slot->event, at_ns, gives_up ? discard : adopt);
}
