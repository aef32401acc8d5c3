/*
 * A client that shares its memory with the device of a slot, takes it back, shares it again: while
 * I/O runs, and through the death of servers. By the seed and not by chance, as other things that
 * came late: what else happens to a seed stays what it was.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/sim/slot.h"
#include "ublk/shmem.h"

static bool slot_shares(const struct slot *slot)
{
	return sim.defect == DEFECT_NONE && !sim.cut.on && (sim.seed + slot->idx) % 4 == 3;
}

void slot_shmem_choose(struct slot *slot)
{
	char words[SHMEM_ERROR_BYTES];

	if (!slot_shares(slot) ||
	    shmem_check(DATA_PATH_AUTO, slot->spec.backend, slot_features(slot->host), words) < 0)
		return;
	slot->spec.has_shmem = true;
	slot->spec.shmem_bytes = MODEL_SHMEM_BYTES;
	slot->spec.data_path = DATA_PATH_USER_COPY;
}

static void make_memory(struct slot *slot)
{
	if (slot->shmem_view)
		return;
	slot->shmem_fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	sim_fd_own(slot->shmem_fd);
	if (ftruncate(slot->shmem_fd, MODEL_SHMEM_BYTES) < 0 ||
	    fcntl(slot->shmem_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		sim_fail("no memory to share");
	slot->shmem_view = mmap(NULL, MODEL_SHMEM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				slot->shmem_fd, 0);
	if (slot->shmem_view == MAP_FAILED)
		sim_fail("no memory to share");
}

void slot_shmem_fini(struct slot *slot)
{
	sim_event_cancel(&slot->shmem_event);
	if (!slot->shmem_view)
		return;
	munmap(slot->shmem_view, MODEL_SHMEM_BYTES);
	sim_fd_close(slot->shmem_fd);
	slot->shmem_view = NULL;
}

/* Shares it, or takes it back; a refusal is the device's right: it is on its way down, or a
 * request has been served for long. */
static void change(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, shmem_event);
	char error[DEVICE_ERROR_BYTES] = "";
	unsigned idx = slot->past.shmem_idx;
	int ret;

	if (!slot->dev || slot->ended)
		return;
	sim_cross(SIM_PRODUCT);
	ret = slot->past.shmem
		      ? device_shmem_unshare(slot->dev, idx, error, sizeof(error))
		      : device_shmem_share(slot->dev, slot->shmem_fd, false, error, sizeof(error));
	sim_cross(SIM_WORLD);
	sim_trace("share", slot->idx, slot->past.shmem, idx, ret);
	if (ret < 0 && error[0] == '\0')
		sim_fail("%s: memory is refused without a word", slot->name);
	/* Before the driver is asked: device_set_shmem.c. */
	if (ret == 0)
		slot->past.shmem = false;
	slot_shmem_later(slot);
}

void slot_shmem_later(struct slot *slot)
{
	if (slot->spec.has_shmem)
		sim_event_arm(&slot->shmem_event,
			      sim.now_ns + sim_skewed(NS_PER_US, 200 * NS_PER_MS), change);
}

/* The driver has a disk: its client does I/O in this memory from now on. */
void slot_shmem_live(struct slot *slot, struct model_dev *dev)
{
	if (!slot->spec.has_shmem)
		return;
	make_memory(slot);
	dev->shmem_view = slot->shmem_view;
}

void slot_shmem_ended(struct slot *slot)
{
	struct device_shmem_end end;

	device_shmem_ended(slot->dev, &end);
	if (end.err < 0 && end.words[0] == '\0')
		sim_fail("%s: memory is refused without a word", slot->name);
	slot->past.shmem = end.shares && end.err == 0;
	slot->past.shmem_idx = end.idx;
}

void slot_shmem_restore(struct slot *slot)
{
	if (slot->past.shmem &&
	    device_shmem_restore(slot->dev, slot->past.shmem_idx, slot->shmem_fd) == 0)
		sim_saw(FAULT_SHMEM_RESTORED);
}
