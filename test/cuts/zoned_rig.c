/* See zoned_rig.h. */
#include "test/cuts/zoned_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "storage/life.h"
#include "storage/registry.h"

#define ZCUTS_TURNS_MAX 400000u

static struct reactor *zcuts_reactor(unsigned set, unsigned idx)
{
	static struct reactor reactors[2][2];
	static bool has_reactor[2][2];
	const struct reactor_params params = {
		.idx = idx, .sq_entries = 32, .cq_entries = 64, .op_nr = 64
	};

	if (!has_reactor[set][idx])
		ASSERT(reactor_init(&reactors[set][idx], &params) == 0);
	has_reactor[set][idx] = true;
	return &reactors[set][idx];
}

void zcuts_rig_init(struct zcuts_rig *rig, unsigned set, struct disk *disk, bool moves)
{
	memset(rig, 0, sizeof(*rig));
	rig->home = zcuts_reactor(set, 0);
	rig->reactor = zcuts_reactor(set, 1);
	rig->disk = disk;
	rig->moves = moves;
	rig->zones = (struct zoned_zones_config){ .zone_bytes = ZCUTS_ZONE_BYTES,
						  .capacity_bytes = ZCUTS_CAP_BYTES,
						  .open_nr_max = 3,
						  .conventional_nr = ZCUTS_CONVENTIONAL };
}

/* ---- open and close ---- */

static void zcuts_make_specs(struct zcuts_rig *rig)
{
	rig->config.zones = &rig->zones;
	rig->disk_config.disk = rig->disk;
	rig->disk_spec =
		(struct backend_spec){ .ops = rig->moves ? &cuts_mover_backend : &cuts_disk_backend,
				       .config = &rig->disk_config,
				       .as = backend_one_child };
	rig->zoned = (struct backend_spec){ .ops = &backend_zoned,
					    .config = &rig->config,
					    .child = &rig->disk_spec };
}

static void zcuts_opened(void *arg, const struct backend_life_end *end)
{
	struct zcuts_rig *rig = arg;

	rig->device = end->device;
	rig->end_ret = end->ret;
	if (end->ret < 0)
		snprintf(rig->words, sizeof(rig->words), "%s", end->words);
}

static void zcuts_closed(void *arg, const struct backend_life_end *end)
{
	((struct zcuts_rig *)arg)->end_ret = end->ret;
}

static int zcuts_wait_for_end(struct zcuts_rig *rig)
{
	for (unsigned i = 0; rig->end_ret > 0; i++) {
		if (i == ZCUTS_TURNS_MAX)
			return -ETIME;
		reactor_turn(rig->home, false);
		disk_end_one(rig->disk);
	}
	return rig->end_ret;
}

static void zcuts_io_done(struct backend_io *io)
{
	struct zcuts_io *zio = container_of(io, struct zcuts_io, io);

	ASSERT(zio->is_out);
	zio->is_out = false;
	zio->rig->out_nr--;
	if (zio->rig->on_end)
		zio->rig->on_end(zio, zio->rig->arg);
}

static void zcuts_open_queue(struct zcuts_rig *rig)
{
	ASSERT(backend_queue_open(&rig->queue, rig->device, rig->reactor, 0, ZCUTS_DEPTH) == 0);
	for (unsigned tag = 0; tag < ZCUTS_DEPTH; tag++) {
		struct zcuts_io *zio = &rig->io[tag];

		memset(zio, 0, sizeof(*zio));
		zio->rig = rig;
		zio->buf = aligned_alloc(4096, CUTS_IO_BYTES);
		ASSERT(backend_io_init(&zio->io, rig->queue, tag, zcuts_io_done) == 0);
		list_init(&zio->io.waiting);
		zio->io.driver_fd = CUTS_DRIVER_FD;
	}
}

int zcuts_rig_open(struct zcuts_rig *rig, int stored_fd)
{
	int stored[BACKEND_STORED_MAX] = { stored_fd };
	const struct backend_open_params params = {
		.logical_block_bytes = SECTOR_BYTES,
		.max_io_bytes = CUTS_IO_BYTES,
		.queue_nr = 1,
		.depth = ZCUTS_DEPTH,
		.read_only = rig->is_read_only,
		.stored_fds = stored,
		.owed_fd = rig->owed_fd,
	};
	const struct backend_life_owner owner = { .done = zcuts_opened, .arg = rig };
	const struct backend_home home = { .reactor = rig->home };
	struct backend_life *life;
	int ret;

	zcuts_make_specs(rig);
	rig->end_ret = 1;
	ASSERT(backend_open_begin(&life, &home, &rig->zoned, "cuts", &params, &owner) == 0);
	ret = zcuts_wait_for_end(rig);
	if (ret == 0)
		zcuts_open_queue(rig);
	return ret;
}

int zcuts_rig_close(struct zcuts_rig *rig)
{
	const struct backend_life_owner owner = { .done = zcuts_closed, .arg = rig };
	const struct backend_home home = { .reactor = rig->home };
	struct backend_life *life;

	ASSERT(rig->out_nr == 0);
	for (unsigned tag = 0; tag < ZCUTS_DEPTH; tag++) {
		free(rig->io[tag].buf);
		backend_io_fini(&rig->io[tag].io);
	}
	backend_queue_close(rig->queue);
	rig->end_ret = 1;
	ASSERT(backend_close_begin(&life, &home, rig->device, &owner) == 0);
	return zcuts_wait_for_end(rig);
}

/* ---- requests ---- */

void zcuts_fill(struct zcuts_io *zio, uint64_t offset, uint32_t bytes, uint32_t value)
{
	/* Where an append lands is not known: sectors are numbered from its own start. */
	(void)offset;
	for (uint32_t i = 0; i < bytes / SECTOR_BYTES; i++)
		content_fill(zio->buf + i * SECTOR_BYTES, value + i, 0);
	zio->value = value;
}

void zcuts_rig_submit(struct zcuts_rig *rig, struct zcuts_io *zio, enum backend_op op,
		      enum backend_zone_action action, uint64_t offset, uint32_t bytes)
{
	zio->io.op = (uint8_t)op;
	zio->io.zone = (uint8_t)action;
	zio->io.flags = 0;
	zio->io.offset_bytes = zio->asked_bytes = offset;
	zio->io.length_bytes = bytes;
	zio->io.buf = rig->moves ? NULL : zio->buf;
	zio->io.driver_pos = (uintptr_t)zio->buf;
	zio->io.buf_index = -1;
	zio->is_out = true;
	rig->out_nr++;
	if (backend_io_submit(&zio->io) == BACKEND_DONE)
		zcuts_io_done(&zio->io);
}

int zcuts_rig_wait(struct zcuts_rig *rig, struct zcuts_io *zio)
{
	for (unsigned i = 0; zio->is_out; i++) {
		if (i == ZCUTS_TURNS_MAX)
			return -ETIME;
		reactor_turn(rig->reactor, false);
		disk_end_one(rig->disk);
	}
	return zio->io.result;
}
