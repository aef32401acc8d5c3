/* See cache_rig.h. */
#include "test/cuts/cache_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "storage/life.h"
#include "storage/registry.h"

#define TURNS_MAX 400000u

static struct reactor *reactor_of(unsigned set, unsigned idx)
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

void cache_rig_init(struct cache_rig *rig, unsigned set)
{
	memset(rig, 0, sizeof(*rig));
	rig->home = reactor_of(set, 0);
	rig->reactor = reactor_of(set, 1);
}

void cache_rig_end_one(struct cache_rig *rig, struct prng *prng)
{
	bool store_first = prng_one_in(prng, 2);

	if (!disk_end_one(store_first ? rig->store : rig->origin))
		disk_end_one(store_first ? rig->origin : rig->store);
}

/* ---- open and close ---- */

static void make_specs(struct cache_rig *rig)
{
	rig->origin_config.disk = rig->origin;
	rig->store_config.disk = rig->store;
	rig->store_spec =
		(struct backend_spec){ .ops = rig->moves ? &cuts_mover_backend : &cuts_disk_backend,
				       .config = &rig->store_config,
				       .as = &backend_cache.children[CACHE_STORE] };
	rig->origin_spec = (struct backend_spec){ .ops = &cuts_disk_backend,
						  .config = &rig->origin_config,
						  .as = &backend_cache.children[CACHE_ORIGIN],
						  .sibling = &rig->store_spec };
	rig->cache = (struct backend_spec){ .ops = &backend_cache,
					    .config = rig->config,
					    .child = &rig->origin_spec };
}

static void on_opened(void *arg, const struct backend_life_end *end)
{
	struct cache_rig *rig = arg;

	rig->device = end->device;
	rig->end_ret = end->ret;
	if (end->ret < 0)
		snprintf(rig->words, sizeof(rig->words), "%s", end->words);
}

static void on_closed(void *arg, const struct backend_life_end *end)
{
	((struct cache_rig *)arg)->end_ret = end->ret;
}

static int wait_for_end(struct cache_rig *rig)
{
	for (unsigned i = 0; rig->end_ret > 0; i++) {
		if (i == TURNS_MAX)
			return -ETIME;
		reactor_turn(rig->home, false);
		cache_rig_end_one(rig, rig->store->prng);
		if (rig->on_step && rig->end_ret > 0)
			rig->on_step(rig->arg);
	}
	return rig->end_ret;
}

static void on_io_done(struct backend_io *io)
{
	struct cache_rig_io *rio = container_of(io, struct cache_rig_io, io);

	ASSERT(rio->is_out);
	rio->is_out = false;
	rio->rig->out_nr--;
	if (rio->rig->on_end)
		rio->rig->on_end(rio);
}

static void open_queue(struct cache_rig *rig)
{
	ASSERT(backend_queue_open(&rig->queue, rig->device, rig->reactor, 0, rig->depth) == 0);
	for (unsigned tag = 0; tag < rig->depth; tag++) {
		struct cache_rig_io *rio = &rig->io[tag];

		memset(rio, 0, sizeof(*rio));
		rio->rig = rig;
		rio->buf = aligned_alloc(4096, CUTS_IO_BYTES);
		ASSERT(backend_io_init(&rio->io, rig->queue, tag, on_io_done) == 0);
		list_init(&rio->io.waiting);
		rio->io.driver_fd = CUTS_DRIVER_FD;
	}
}

int cache_rig_open(struct cache_rig *rig, int stored_fd)
{
	/* The node first, then its leaves. */
	int stored[BACKEND_STORED_MAX] = { stored_fd };
	const struct backend_open_params params = {
		.logical_block_bytes = SECTOR_BYTES,
		.max_io_bytes = CUTS_IO_BYTES,
		.queue_nr = 1,
		.depth = rig->depth,
		.stored_fds = stored,
		.owed_fd = rig->owed_fd,
	};
	const struct backend_life_owner owner = { .done = on_opened, .arg = rig };
	const struct backend_home home = { .reactor = rig->home };
	struct backend_life *life;
	int ret;

	make_specs(rig);
	rig->end_ret = 1;
	ASSERT(backend_open_begin(&life, &home, &rig->cache, "cuts", &params, &owner) == 0);
	ret = wait_for_end(rig);
	if (ret == 0)
		ASSERT(!rig->moves || backend_spec_data(&rig->cache) == BACKEND_DATA_MOVES);
	if (ret == 0)
		open_queue(rig);
	return ret;
}

/* ---- commands ---- */

static void on_job_done(struct backend_cache_job *job, int ret)
{
	struct cache_rig *rig = container_of(job, struct cache_rig, job);

	ASSERT(rig->is_job_out);
	rig->is_job_out = false;
	rig->job_ret = ret;
}

int cache_rig_job(struct cache_rig *rig, enum backend_cache_op op, uint64_t offset, uint64_t bytes)
{
	int ret;

	ASSERT(!rig->is_job_out);
	rig->job = (struct backend_cache_job){ .op = op,
					       .offset_bytes = offset,
					       .length_bytes = bytes,
					       .reactor = rig->home,
					       .done = on_job_done };
	ret = rig->device->ops->cache_ops->begin(rig->device, &rig->job);
	rig->is_job_out = ret == 0;
	return ret;
}

int cache_rig_wait_job(struct cache_rig *rig)
{
	for (unsigned i = 0; rig->is_job_out; i++) {
		if (i == TURNS_MAX)
			return -ETIME;
		reactor_turn(rig->reactor, false);
		reactor_turn(rig->home, false);
		cache_rig_end_one(rig, rig->store->prng);
		if (rig->on_step)
			rig->on_step(rig->arg);
	}
	return rig->job_ret;
}

static bool close_queue(struct cache_rig *rig)
{
	ASSERT(!rig->is_job_out);
	for (unsigned i = 0; !backend_queue_rest(rig->queue); i++) {
		if (i == TURNS_MAX)
			return false;
		reactor_turn(rig->reactor, false);
		cache_rig_end_one(rig, rig->store->prng);
		if (rig->on_step)
			rig->on_step(rig->arg);
	}
	for (unsigned tag = 0; tag < rig->depth; tag++) {
		free(rig->io[tag].buf);
		backend_io_fini(&rig->io[tag].io);
	}
	backend_queue_close(rig->queue);
	return true;
}

int cache_rig_close(struct cache_rig *rig)
{
	const struct backend_life_owner owner = { .done = on_closed, .arg = rig };
	const struct backend_home home = { .reactor = rig->home };
	struct backend_life *life;

	if (!close_queue(rig))
		return -ETIME;
	rig->end_ret = 1;
	ASSERT(backend_close_begin(&life, &home, rig->device, &owner) == 0);
	return wait_for_end(rig);
}

/* ---- requests ---- */

void cache_rig_submit(struct cache_rig *rig, struct cache_rig_io *rio, enum backend_op op,
		      unsigned flags, uint64_t offset, uint32_t bytes)
{
	rio->io.op = (uint8_t)op;
	rio->io.flags = (uint8_t)flags;
	rio->io.offset_bytes = offset;
	rio->io.length_bytes = bytes;
	rio->io.buf = rig->moves ? NULL : rio->buf;
	rio->io.driver_pos = (uintptr_t)rio->buf;
	rio->io.buf_index = -1;
	rio->is_out = true;
	rig->out_nr++;
	if (backend_io_submit(&rio->io) == BACKEND_DONE)
		on_io_done(&rio->io);
}

int cache_rig_do(struct cache_rig *rig, enum backend_op op, uint64_t offset, uint32_t bytes)
{
	struct cache_rig_io *rio = &rig->io[0];

	cache_rig_submit(rig, rio, op, 0, offset, bytes);
	for (unsigned i = 0; rio->is_out; i++) {
		if (i == TURNS_MAX)
			return -ETIME;
		reactor_turn(rig->reactor, false);
		cache_rig_end_one(rig, rig->store->prng);
	}
	return rio->io.result;
}
