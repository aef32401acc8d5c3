/* The life of the devices in one slot, as a daemon that does not know what it wants. */
#include "test/sim/slot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/mem/mem.h"
#include "storage/registry.h"
#include "config/option.h"
#include "config/yaml.h"
#include "test/sim/client.h"
#include "test/sim/disk.h"
#include "test/sim/server/server.h"
#include "ublk/device/device_internal.h"
#include "ublk/partition_scan.h"
#include "ublk/unprivileged.h"

/* Of one reactor: queues of all devices, rounded up. */
#define FETCH_NR_MAX 16
#define TREE_DEPTH_MAX 256u
/* From the refusal of a stop to the last queue's turn, in which it hears that it cancels no more.
 */
#define CANCEL_GRACE_NS NS_PER_SEC

static void begin(struct sim_event *event);

static void init_file(struct slot *slot, uint64_t size_bytes)
{
	static const char *const direct[] = { "auto", "off", "auto", "on" };
	struct stat stat;
	char yaml[128];

	slot->file_fd = memfd_create("sim", MFD_CLOEXEC);
	sim_fd_own(slot->file_fd);
	if (ftruncate(slot->file_fd, (off_t)size_bytes) < 0 || fstat(slot->file_fd, &stat) < 0)
		sim_fail("memfd: %s", strerror(errno));
	snprintf(yaml, sizeof(yaml), "path: /proc/self/fd/%d\ndirect: '%s'\n", slot->file_fd,
		 direct[sim_below(ARRAY_SIZE(direct))]);
	slot->config = sim_parse_options(&backend_file, yaml);
	slot->st->has_cache = true;
	storage_set_inode(slot->st, stat.st_dev, stat.st_ino);
}

static bool is_scripted(const struct slot *slot)
{
	return slot->kind == SLOT_SCRIPTED || slot->kind == SLOT_MOVER;
}

static void init_scripted(struct slot *slot)
{
	slot->scripted.st = slot->st;
	slot->scripted.row_bytes = slot->st->block_bytes;
	slot->scripted.max_io_bytes = sim_one_in(4) ? 65536 : 0;
	slot->st->medium = calloc(1, slot->st->max_bytes);
	slot->scripted.has_cache = sim.defect != DEFECT_NONE || !sim_one_in(3);
	slot->scripted.has_fua =
		slot->scripted.has_cache && (sim.defect != DEFECT_NONE || !sim_one_in(3));
	slot->st->has_cache = slot->scripted.has_cache;
}

static const struct backend *backend_of(const struct slot *slot)
{
	static const struct backend *const backends[] = {
		[SLOT_SCRIPTED] = &scripted_backend, [SLOT_MOVER] = &scripted_mover,
		[SLOT_FILE] = &backend_file,	     [SLOT_MEM] = &backend_mem,
		[SLOT_NULL] = &backend_null,	     [SLOT_PATTERN] = &backend_pattern,
		[SLOT_NBD] = &backend_nbd,	     [SLOT_NVME] = &backend_nvme_tcp,
	};

	return backends[slot->kind];
}

void slot_init(struct slot *slot, unsigned idx, enum slot_kind kind, const struct device_host *host,
	       uint64_t *budget)
{
	uint32_t block_bytes = sim.cut.on || sim_one_in(2) ? 512 : sim_one_in(2) ? 1024 : 4096;
	uint64_t size_bytes = (sim.cut.on ? 64 : sim_skewed(64, 1024)) * 4096;
	char yaml[64];

	*slot = (struct slot){
		.idx = idx,
		.kind = kind,
		.host = host,
		.budget = budget,
		.file_fd = -1,
		.first_bytes = size_bytes,
	};
	snprintf(slot->name, sizeof(slot->name), "slot%u", idx);
	snprintf(yaml, sizeof(yaml), "size: %llu\n", (unsigned long long)size_bytes);
	slot->st = storage_create(idx, size_bytes, block_bytes);
	if (is_scripted(slot))
		init_scripted(slot);
	else if (kind == SLOT_FILE)
		init_file(slot, size_bytes);
	else if (kind == SLOT_NBD)
		slot_nbd_init(slot);
	else if (kind == SLOT_NVME)
		slot_nvme_init(slot);
	else
		slot->config = sim_parse_options(backend_of(slot), yaml);
	slot->st->has_data = kind != SLOT_NULL;
	sim_event_arm(&slot->event, sim.now_ns + sim_skewed(0, 10 * NS_PER_MS), begin);
}

void slot_fini(struct slot *slot)
{
	sim_event_cancel(&slot->event);
	sim_event_cancel(&slot->stop_event);
	sim_event_cancel(&slot->truncate_event);
	sim_event_cancel(&slot->tune_event);
	sim_event_cancel(&slot->resize_event);
	slot_shmem_fini(slot);
	sim_filters_fini(&slot->filters);
	sim_tree_fini(&slot->tree);
	sim_top_fini(&slot->top);
	slot_zones_fini(slot);
	if (slot->config && backend_of(slot)->options)
		option_free(backend_of(slot)->options, slot->config);
	free(slot->config);
	if (slot->file_fd >= 0)
		sim_fd_close(slot->file_fd);
	slot_forget(slot);
	server_destroy(slot->st->server);
	storage_destroy(slot->st);
}

/* Where a defect is to be caught: what it is about, and else nothing new. */
static bool choose_for_defect(struct device_spec *spec)
{
	spec->data_path = DATA_PATH_COPY;
	spec->batch = BATCH_OFF;
	switch (sim.defect) {
	case DEFECT_NONE:
		return false;
	case DEFECT_SHORT_COPY:
		spec->data_path = DATA_PATH_USER_COPY;
		return true;
	case DEFECT_NO_HAND_COPY:
	case DEFECT_BUFFER_KEPT:
		spec->data_path = DATA_PATH_ZERO_COPY;
		return true;
	case DEFECT_PARTIAL_COMMIT:
	case DEFECT_BUFFER_LOST:
		spec->batch = BATCH_ON;
		return true;
	default:
		return true;
	}
}

/*
 * A multishot FETCH that finds no room in the CQ ends, which takes a CQE. Where the CQ is smaller
 * than the number of FETCHes they end each other for ever: not with a CQ as large as the daemon's.
 */
static bool has_room_for_batches(const struct device_host *host)
{
	for (unsigned i = 0; i < host->reactor_nr; i++)
		if (host->reactors[i]->ring.uring.cq.ring_entries < FETCH_NR_MAX)
			return false;
	return true;
}

uint64_t slot_features(const struct device_host *host)
{
	uint64_t features = host->ctl->features;

	return host->ctl->unprivileged ? unprivileged_features(features) : features;
}

/* Any way that the kernel of this seed and the backends allow; as often what the product chooses.
 */
static void choose_data(const struct slot *slot, struct device_spec *spec)
{
	char words[DATA_PATH_ERROR_BYTES];
	struct data_choice choice;

	if (choose_for_defect(spec))
		return;
	spec->data_path = (enum data_path)sim_below(DATA_PATH_NR);
	spec->batch = (enum batch_choice)sim_below(BATCH_NR);
	if (data_path_choose(&choice, spec->data_path, BATCH_OFF, spec->backend,
			     slot_features(slot->host), words) < 0)
		spec->data_path = DATA_PATH_AUTO;
	if (!has_room_for_batches(slot->host))
		spec->batch = backend_spec_batches(spec->backend) ? BATCH_OFF : BATCH_AUTO;
	else if (data_path_choose(&choice, spec->data_path, spec->batch, spec->backend,
				  slot_features(slot->host), words) < 0)
		spec->batch = BATCH_AUTO;
}

static enum recovery choose_recovery(const struct device_host *host)
{
	enum recovery recovery = (enum recovery)sim_below(RECOVERY_NR);
	char words[RECOVERY_ERROR_BYTES];

	if (sim.defect != DEFECT_NONE || sim_one_in(2) ||
	    recovery_check(recovery, slot_features(host), words) < 0)
		return host->ctl->unprivileged ? RECOVERY_NONE : RECOVERY_REISSUE;
	return recovery;
}

/* By the seed and not by chance: what else happens to a seed stays what it was. */
static bool forgoes_partition_scan(const struct slot *slot)
{
	char words[PARTITION_SCAN_ERROR_BYTES];

	return sim.defect == DEFECT_NONE && (sim.seed + slot->idx) % 16 == 5 &&
	       partition_scan_check(false, slot_features(slot->host), words) == 0;
}

/* By the seed, as above. */
static bool keeps_metadata(const struct slot *slot)
{
	const uint64_t needed = UBLK_F_INTEGRITY | UBLK_F_USER_COPY;

	return sim.defect == DEFECT_NONE && !sim.cut.on && is_scripted(slot) &&
	       (sim.seed + slot->idx) % 8 == 3 && (slot_features(slot->host) & needed) == needed;
}

/* The top of the backend's tree, for a size that it can have. */
static const struct backend_spec *choose_tree(struct slot *slot)
{
	struct storage *st = slot->st;
	const struct backend_spec *top = &slot->backend;
	uint64_t row_bytes;

	slot_zones_choose(slot);
	if (is_scripted(slot))
		top = sim_tree_choose(&slot->tree, top);
	st->has_tree = sim_tree_is(&slot->tree);
	if (st->has_tree) {
		row_bytes = slot->tree.row_bytes;
		storage_resize(st, MAX(row_bytes, st->size_bytes - st->size_bytes % row_bytes));
		sim_tree_count(&slot->tree);
	}
	top = sim_filters_choose(&slot->filters, top);
	if (slot_zones_wanted(slot))
		return slot_zones_make(slot, top);
	return keeps_metadata(slot) ? sim_top_make(&slot->top, top, st->size_bytes, st->block_bytes)
				    : top;
}

static void choose_spec(struct slot *slot)
{
	slot->backend = (struct backend_spec){
		.ops = backend_of(slot),
		.config = is_scripted(slot) ? (void *)&slot->scripted : slot->config,
	};
	slot->spec = (struct device_spec){
		.name = slot->name,
		.id = sim_one_in(2) ? -1
				    : (int64_t)(sim_one_in(16) ? 0 : SLOT_ID_FIRST + slot->idx),
		.queues = (uint32_t)sim_skewed(1, 4),
		.depth = (uint32_t)sim_skewed(1, sim_one_in(30) ? 2048 : 64),
		.logical_block_bytes = slot->st->block_bytes,
		.max_io_bytes = 4096u << sim_below(7),
		.read_only = sim.defect == DEFECT_NONE && !sim.cut.on && sim_one_in(16),
		.no_partition_scan = forgoes_partition_scan(slot),
		.recovery = choose_recovery(slot->host),
		.mark = slot_mark(slot),
		.backend = choose_tree(slot),
	};
	if (sim.cut.on) {
		slot->spec.queues = 1;
		slot->spec.depth = 8;
	}
	/* Each leaf has I/Os of its own for all tags. */
	if (slot->st->has_tree)
		slot->spec.depth = MIN(slot->spec.depth, TREE_DEPTH_MAX);
	if (slot->st->zones)
		slot_zones_fit(slot);
	choose_data(slot, &slot->spec);
	slot_shmem_choose(slot);
}

void slot_reset_counters(struct slot *slot)
{
	slot->was_live = slot->stop_asked = slot->stop_forced = slot->ended = false;
	slot->st->cancel_until_ns = 0;
	memset(slot->st->done_nr, 0, sizeof(slot->st->done_nr));
	memset(slot->st->failed_nr, 0, sizeof(slot->st->failed_nr));
	slot->st->fallback_nr = slot->st->shmem_nr = 0;
}

/* A RAM disk begins empty; its file is known only to itself. */
static void prepare_storage(struct slot *slot)
{
	struct stat stat;

	slot_reset_counters(slot);
	if (slot->kind == SLOT_FILE || slot_on_server(slot))
		return;
	if (slot->st->zones) {
		slot_zones_begin(slot);
		return;
	}
	storage_reset(slot->st);
	for (uint64_t i = 0; slot->kind == SLOT_PATTERN && i < slot->st->size_bytes; i += 8)
		memcpy(slot->st->image + i, &i, sizeof(i));
	if (slot->kind == SLOT_MEM) {
		const struct backend_device *bottom = slot->dev->backend;
		const struct mem_device *mem;

		while (bottom->child)
			bottom = bottom->child;
		mem = bottom->priv;
		if (fstat(mem->fd, &stat) < 0)
			sim_fail("the mem backend has no file");
		storage_set_inode(slot->st, stat.st_dev, stat.st_ino);
	}
}

void slot_begin_later(struct slot *slot)
{
	if (*slot->budget == 0 && !slot_zones_are_busy(slot))
		slot->over = true;
	else
		sim_event_arm(&slot->event, sim.now_ns + sim_skewed(0, 100 * NS_PER_MS), begin);
}

static void retune(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, tune_event);

	sim_filters_retune(slot->dev->backend);
	sim_event_arm(event, sim.now_ns + sim_skewed(NS_PER_US, 10 * NS_PER_SEC), retune);
}

/* ret, error: of opening its backend. */
static void start(struct slot *slot, int ret, char error[static DEVICE_ERROR_BYTES])
{
	sim_cross(SIM_PRODUCT);
	if (ret == 0)
		ret = device_start(&slot->dev, slot->host, &slot->spec, slot, error,
				   DEVICE_ERROR_BYTES);
	slot_opened(slot, ret);
	sim_cross(SIM_WORLD);
	sim_trace("start", slot->idx, slot->spec.queues,
		  slot->spec.depth | slot->spec.data_path << 16 | slot->spec.batch << 20, ret);
	if (ret < 0) {
		slot->dev = NULL;
		slot_forget(slot);
		if (ret == -EBUSY && disk_has_orphans(slot->file_fd))
			sim_saw(FAULT_RECOVERY_LOCKED);
		else if (!slot_may_not_open(slot) || error[0] == '\0')
			sim_fail("device_start: %d: %s", ret, error);
		slot_begin_later(slot);
		return;
	}
	prepare_storage(slot);
	if (slot->filters.nr > 0 && sim_one_in(2))
		sim_event_arm(&slot->tune_event, sim.now_ns + sim_skewed(0, NS_PER_SEC), retune);
	if (sim_fault(FAULT_STOP_ON_WAY_UP))
		sim_event_arm(&slot->stop_event, sim.now_ns + sim_skewed(0, 300 * NS_PER_MS),
			      slot_ask_stop);
}

static void start_zones(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, event);

	start(slot, slot->zones.ret, slot->zones.words);
}

static void begin(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, event);
	char error[DEVICE_ERROR_BYTES] = "";
	int ret;

	if (slot_zones_are_busy(slot) || (slot->st->zones && *slot->budget == 0)) {
		slot_begin_later(slot);
		return;
	}
	slot->open_excuses = slot_open_excuses();
	choose_spec(slot);
	slot->st->keeps = slot->zones.is_kept;
	slot->st->visit_faults = 0;
	slot_note_adding(slot);
	slot->excuses = slot_excuses();
	slot->starts++;
	slot->resize_kept = false;
	/* What has a size in its configuration has that again. */
	if (slot->config && slot->kind != SLOT_FILE)
		storage_resize(slot->st, slot->first_bytes);
	/* A truncated file is made whole by its owner before it is served again. */
	if (slot->file_fd >= 0 && ftruncate(slot->file_fd, (off_t)slot->st->size_bytes) < 0)
		sim_fail("ftruncate: %s", strerror(errno));
	storage_forget(slot->st, slot->st->size_bytes, slot->st->max_bytes - slot->st->size_bytes);
	slot_server_begin(slot, true);
	if (slot->st->zones) {
		slot_zones_open(slot, NULL, start_zones);
		return;
	}
	sim_cross(SIM_PRODUCT);
	ret = slot_open(slot, NULL, error, sizeof(error));
	start(slot, ret, error);
}

uint64_t slot_choose_deadline(void)
{
	if (sim.defect != DEFECT_NONE || sim_one_in(2))
		return sim_between(10, 60) * NS_PER_SEC;
	return sim_skewed(NS_PER_US, NS_PER_SEC);
}

void slot_ask_stop(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, stop_event);
	bool force = slot->stop_asked || sim_one_in(3);
	uint64_t deadline_ns = slot_choose_deadline(), asked_ns = sim.now_ns;
	int ret;

	if (!slot->dev || slot->ended)
		return;
	slot_judge_cancels(slot);
	ret = device_stop(slot->dev, force, deadline_ns);
	if (ret == 0)
		slot->late_ns = asked_ns + deadline_ns;
	sim_trace("stop", slot->idx, force, slot->stop_asked, ret);
	if (ret < 0 && !(ret == -EALREADY && slot->stop_asked))
		sim_fail("device_stop: %d in state %s", ret,
			 device_state_name(device_state(slot->dev)));
	slot->stop_asked = true;
	slot->stop_forced |= force;
	if (sim_fault(FAULT_STOP_TWICE))
		sim_event_arm(&slot->stop_event, sim.now_ns + sim_skewed(0, NS_PER_SEC),
			      slot_ask_stop);
}

static void reap(struct slot *slot)
{
	if (slot->st->zones)
		slot_zones_close(slot, device_take_backend(slot->dev));
	device_free(slot->dev);
	slot->dev = NULL;
	if (slot->past.kept) {
		slot_retry(slot);
		return;
	}
	slot->st->user = NULL;
	slot_begin_later(slot);
}

static void reap_later(struct sim_event *event)
{
	reap(container_of(event, struct slot, event));
}

static void ended(struct slot *slot, enum device_event event)
{
	slot->past.kept = device_kept(slot->dev);
	slot_judge_end(slot, event == DEVICE_EVENT_FAILED);
	slot_zones_ended(slot, event == DEVICE_EVENT_FAILED);
	if (slot->past.kept)
		sim_saw(FAULT_RECOVERY_KEPT);
	else
		slot_forget(slot);
	slot->ended = true;
	sim_event_cancel(&slot->stop_event);
	sim_event_cancel(&slot->tune_event);
	sim_event_cancel(&slot->resize_event);
	sim_event_cancel(&slot->shmem_event);
	if (slot->resizing)
		sim_fail("%s has ended before its resize", slot->name);
	if (sim_one_in(2))
		reap(slot);
	else
		sim_event_arm(&slot->event, sim.now_ns + sim_skewed(0, NS_PER_SEC), reap_later);
}

static void refused(struct slot *slot)
{
	bool cancelled = slot->st->cancel_until_ns == UINT64_MAX;

	if (!slot->stop_asked || slot->stop_forced)
		sim_fail("%s: a stop is refused that was not polite", slot->name);
	if (device_error(slot->dev)[0] == '\0')
		sim_fail("%s: a stop is refused without a word", slot->name);
	sim_saw(FAULT_STOP_REFUSED);
	/* The FLUSH of the stop may have failed: it is owed to the user. */
	slot->st->flush_failed_seq = storage_next_seq();
	/* It stays, and so must its I/O, but for what was cancelled before. */
	if (cancelled) {
		sim_saw(FAULT_STOP_REFUSED_LATE);
		slot->st->cancel_until_ns = sim.now_ns + CANCEL_GRACE_NS;
	}
	slot->stop_asked = sim_one_in(2); /* the next is forced, or polite again */
	slot->refusals++;
	/* After a late one it serves for a while, to show that nothing is cancelled any more. */
	sim_event_arm(&slot->stop_event,
		      sim.now_ns + (cancelled ? 2 * CANCEL_GRACE_NS : 0) +
			      sim_skewed(0, NS_PER_SEC),
		      slot_ask_stop);
}

/* Some live until those who wait for a server should have lost outage timeout. */
static void plan_stop(struct slot *slot)
{
	bool waits = slot_on_server(slot) && sim_one_in(4);
	uint64_t max_ns = waits ? 100 * NS_PER_SEC : 20 * NS_PER_SEC;

	if (slot->stop_event.pos == 0)
		sim_event_arm(&slot->stop_event,
			      sim.now_ns + (waits ? max_ns : sim_skewed(10 * NS_PER_MS, max_ns)),
			      slot_ask_stop);
}

static void became_live(struct slot *slot)
{
	if (slot->past.note == NOTE_RECOVERING) {
		sim_saw(FAULT_RECOVERED);
		if (slot->st->has_tree)
			sim_saw(FAULT_TREE_RECOVERED);
		if (slot->st->zones)
			sim_saw(FAULT_ZONE_RECOVERED);
	}
	slot_judge_live(slot);
	slot_note_serving(slot, slot->dev);
	slot->was_live = true;
	slot->lives++;
	slot->st->serve_nr++;
	/* What keeps metadata, or has zones, has its size for life. */
	if (slot->st->zones)
		sim_saw(FAULT_ZONED);
	else if (!slot->top.config)
		slot_resize_often(slot);
	slot_shmem_later(slot);
	plan_stop(slot);
}

void slot_event(struct device *device, enum device_event event)
{
	struct slot *slot = device_owner(device);

	sim_trace("device-event", slot->idx, event, device_state(device), 0);
	sim.progress++;
	switch (event) {
	case DEVICE_EVENT_LIVE:
		became_live(slot);
		break;
	case DEVICE_EVENT_STOP_REFUSED:
		refused(slot);
		break;
	case DEVICE_EVENT_LATE:
		slot_stop_is_late(slot);
		break;
	case DEVICE_EVENT_RESIZED:
		slot_resized(slot);
		break;
	case DEVICE_EVENT_SHMEM:
		slot_shmem_ended(slot);
		break;
	case DEVICE_EVENT_SNAPSHOT: /* none is asked for */
	case DEVICE_EVENT_CACHE:
		break;
	case DEVICE_EVENT_FAILED:
	case DEVICE_EVENT_GONE:
		ended(slot, event);
		break;
	}
}

/* Somebody makes the file of a running device shorter. */
void slot_truncate_file(struct sim_event *event)
{
	struct slot *slot = container_of(event, struct slot, truncate_event);
	struct storage *st = slot->st;
	uint64_t bytes = sim_below(st->block_nr) * st->block_bytes;

	if (!st->user)
		return;
	if (ftruncate(slot->file_fd, (off_t)bytes) < 0)
		sim_fail("ftruncate: %s", strerror(errno));
	/* What a smaller device has kept behind its end goes too. */
	storage_set_unknown(st, bytes, (uint32_t)(st->max_bytes - bytes));
	client_taint(st->user->client, bytes);
}

void slot_live(struct slot *slot, struct model_dev *dev)
{
	slot->st->user = dev;
	slot_shmem_live(slot, dev);
	dev->client = client_create(dev, slot->st, slot->budget);
	if (slot->kind == SLOT_FILE && sim_fault(FAULT_FILE_TRUNCATED))
		sim_event_arm(&slot->truncate_event, sim.now_ns + sim_skewed(0, NS_PER_SEC),
			      slot_truncate_file);
	plan_stop(slot);
}
