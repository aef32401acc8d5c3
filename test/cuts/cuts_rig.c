/* See cuts_rig.h. */
#include "test/cuts/cuts_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "storage/life.h"
#include "storage/registry.h"
#include "test/cuts/cuts_luks.h"

#define TURNS_MAX 200000u

/* ---- what the image stands over ---- */

struct backing_config {
	uint64_t bytes;
};

static enum backend_submit backing_submit(struct backend_io *io)
{
	uint8_t *to = io->buf;

	ASSERT(io->op == BACKEND_READ);
	for (uint32_t i = 0; i < io->length_bytes; i += SECTOR_BYTES)
		content_fill(to + i, VALUE_BACKING, (io->offset_bytes + i) / SECTOR_BYTES);
	io->result = 0;
	return BACKEND_DONE;
}

static int backing_open(struct backend_device *device)
{
	const struct backing_config *config = device->config;

	device->limits.size_bytes = config->bytes;
	return 0;
}

static const struct backend backing_backend = {
	.name = "cuts_backing",
	.config_bytes = sizeof(struct backing_config),
	.open = backing_open,
	.submit = backing_submit,
};

/* ---- reactors ---- */

static struct reactor reactors[2][RIG_QUEUES_MAX + 1];
static bool has_reactor[2][RIG_QUEUES_MAX + 1];

struct reactor *rig_reactor(unsigned set, unsigned idx)
{
	struct reactor_params params = {
		.idx = idx, .sq_entries = 32, .cq_entries = 64, .op_nr = 64
	};

	if (!has_reactor[set][idx])
		ASSERT(reactor_init(&reactors[set][idx], &params) == 0);
	has_reactor[set][idx] = true;
	return &reactors[set][idx];
}

void rig_reactors_drop(void)
{
	for (unsigned set = 0; set < 2; set++)
		for (unsigned i = 0; i <= RIG_QUEUES_MAX; i++) {
			if (has_reactor[set][i])
				reactor_fini(&reactors[set][i]);
			has_reactor[set][i] = false;
		}
}

/* ---- open and close ---- */

static const struct backend_child_option *child_option(const char *name)
{
	const struct backend_child_option *option = backend_qcow2.children;

	while (strcmp(option->name, name) != 0)
		option++;
	return option;
}

static void make_spec(struct rig *rig, const struct image_shape *shape, struct disk *d)
{
	const struct backend_spec **next;

	rig->config.is_created = shape->kind == IMAGE_NONE;
	rig->config.size_bytes = shape->bytes;
	rig->config.cluster_bytes = 1ull << shape->cluster_bits;
	rig->config.with_subclusters = shape->with_subclusters;
	rig->config.key_file = shape->is_encrypted ? (char *)cuts_luks_key_file() : NULL;
	rig->data_config.disk = d;
	rig->disk = d;
	rig->data_file_config.disk = d->beside;
	rig->backing_bytes = shape->backing;
	rig->data = (struct backend_spec){ .ops = &cuts_disk_backend,
					   .config = &rig->data_config,
					   .as = child_option("data") };
	rig->backing = (struct backend_spec){ .ops = &backing_backend,
					      .config = &rig->backing_bytes,
					      .as = child_option("backing") };
	rig->qcow2 = (struct backend_spec){ .ops = &backend_qcow2,
					    .config = &rig->config,
					    .child = &rig->data };
	rig->data_file = (struct backend_spec){ .ops = &cuts_disk_backend,
						.config = &rig->data_file_config,
						.as = child_option("data_file") };
	next = &rig->data.sibling;
	if (d->beside) {
		*next = &rig->data_file;
		next = &rig->data_file.sibling;
	}
	if (shape->backing)
		*next = &rig->backing;
}

static void on_opened(void *arg, const struct backend_life_end *end)
{
	struct rig *rig = arg;

	rig->device = end->device;
	rig->end_ret = end->ret;
	if (end->ret < 0)
		snprintf(rig->words, sizeof(rig->words), "%s", end->words);
}

static void on_closed(void *arg, const struct backend_life_end *end)
{
	struct rig *rig = arg;

	rig->end_ret = end->ret;
}

static int wait_for_end(struct rig *rig)
{
	for (unsigned i = 0; rig->end_ret > 0; i++) {
		if (i == TURNS_MAX)
			return -ETIME;
		reactor_turn(rig->home, false);
		disk_end_one(rig->disk);
		if (rig->on_step && rig->end_ret > 0)
			rig->on_step(rig->arg);
	}
	return rig->end_ret;
}

static void on_io_done(struct backend_io *io)
{
	struct rig_io *rio = container_of(io, struct rig_io, io);

	ASSERT(rio->is_out);
	rio->is_out = false;
	rio->rig->out_nr--;
	if (rio->rig->on_end)
		rio->rig->on_end(rio);
}

static void open_queue(struct rig *rig, unsigned idx)
{
	ASSERT(backend_queue_open(&rig->queue[idx], rig->device, rig->reactor[idx], idx,
				  rig->depth) == 0);
	for (unsigned tag = 0; tag < rig->depth; tag++) {
		struct rig_io *rio = &rig->io[idx][tag];

		memset(rio, 0, sizeof(*rio));
		rio->rig = rig;
		rio->buf = aligned_alloc(4096, CUTS_IO_BYTES);
		ASSERT(backend_io_init(&rio->io, rig->queue[idx], tag, on_io_done) == 0);
		list_init(&rio->io.waiting);
		rio->io.driver_fd = -1;
	}
}

int rig_open(struct rig *rig, const struct image_shape *shape, struct disk *d, int stored_fd)
{
	int stored[BACKEND_STORED_MAX] = { stored_fd };
	const struct backend_open_params params = {
		.logical_block_bytes = SECTOR_BYTES,
		.max_io_bytes = CUTS_IO_BYTES,
		.queue_nr = rig->queue_nr,
		.depth = rig->depth,
		.stored_fds = stored,
		.owed_fd = rig->owed_fd,
	};
	const struct backend_life_owner owner = { .done = on_opened, .arg = rig };
	const struct backend_home home = { .reactor = rig->home };
	struct backend_life *life;
	int ret;

	make_spec(rig, shape, d);
	rig->end_ret = 1;
	ASSERT(backend_open_begin(&life, &home, &rig->qcow2, "cuts", &params, &owner) == 0);
	ret = wait_for_end(rig);
	for (unsigned i = 0; ret == 0 && i < rig->queue_nr; i++)
		open_queue(rig, i);
	return ret;
}

static void close_queues(struct rig *rig)
{
	for (unsigned i = 0; i < rig->queue_nr; i++) {
		for (unsigned tag = 0; tag < rig->depth; tag++) {
			free(rig->io[i][tag].buf);
			backend_io_fini(&rig->io[i][tag].io);
		}
		backend_queue_close(rig->queue[i]);
	}
}

int rig_close(struct rig *rig)
{
	const struct backend_life_owner owner = { .done = on_closed, .arg = rig };
	const struct backend_home home = { .reactor = rig->home };
	struct backend_life *life;

	close_queues(rig);
	rig->end_ret = 1;
	ASSERT(backend_close_begin(&life, &home, rig->device, &owner) == 0);
	return wait_for_end(rig);
}

void rig_drop(struct rig *rig)
{
	close_queues(rig);
	backend_close(rig->device);
}

/* ---- requests ---- */

void rig_submit(struct rig *rig, struct rig_io *rio, enum backend_op op, unsigned flags,
		uint64_t offset, uint32_t bytes)
{
	rio->io.op = (uint8_t)op;
	rio->io.flags = (uint8_t)flags;
	rio->io.offset_bytes = offset;
	rio->io.length_bytes = bytes;
	rio->io.buf = rio->buf;
	rio->io.buf_index = -1;
	rio->is_out = true;
	rig->out_nr++;
	switch (backend_io_submit(&rio->io)) {
	case BACKEND_DONE:
		on_io_done(&rio->io);
		break;
	case BACKEND_QUEUED:
		break;
	case BACKEND_BUSY:
		ASSERT(!"a node over others is never BUSY");
	}
}

void rig_turn_all(struct rig *rig)
{
	for (unsigned i = 0; i < rig->queue_nr; i++)
		reactor_turn(rig->reactor[i], false);
}

int rig_do(struct rig *rig, enum backend_op op, uint64_t offset, uint32_t bytes)
{
	struct rig_io *rio = &rig->io[0][0];

	rig_submit(rig, rio, op, 0, offset, bytes);
	for (unsigned i = 0; rio->is_out; i++) {
		if (i == TURNS_MAX)
			return -ETIME;
		rig_turn_all(rig);
		disk_end_one(rig->disk);
	}
	return rio->io.result;
}

/* ---- snapshots ---- */

static void change_done(struct backend_snapshot_change *change, int ret)
{
	struct rig *rig = container_of(change, struct rig, change);

	rig->is_changing = false;
	rig->end_ret = ret;
	if (rig->on_changed)
		rig->on_changed(rig, ret);
}

int rig_change(struct rig *rig, enum backend_snapshot_op op, const char *name)
{
	int ret;

	rig->change = (struct backend_snapshot_change){
		.op = op, .name = name, .reactor = rig->home, .done = change_done
	};
	ret = backend_qcow2.snapshots->begin(rig->device, &rig->change);
	rig->is_changing = ret == 0;
	return ret;
}

int rig_change_do(struct rig *rig, enum backend_snapshot_op op, const char *name)
{
	int ret = rig_change(rig, op, name);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; rig->is_changing; i++) {
		if (i == TURNS_MAX)
			return -ETIME;
		rig_turn_all(rig);
		reactor_turn(rig->home, false);
		disk_end_one(rig->disk);
	}
	return rig->end_ret;
}
