/*
 * One run: a guest with many requests under way, an origin and a store that answer in any order.
 * After any step power may be cut, or the process die: what is left is judged, and the run goes on.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "test/cuts/cache_rig.h"

/* So many steps without an end of anything: nothing will ever end. */
#define STEPS_MAX 60000u

static struct cache_world *world; /* of the request that ends */

bool cache_world_fail(struct cache_world *w, const char *format, ...)
{
	va_list args;

	if (cache_world_failed(w))
		return false;
	va_start(args, format);
	vsnprintf(w->words, sizeof(w->words), format, args);
	va_end(args);
	return false;
}

/* ---- the guest ---- */

static void check_read(struct cache_world *w, const struct cache_rig_io *rio)
{
	uint64_t first = rio->io.offset_bytes / SECTOR_BYTES;

	for (uint64_t i = 0; i < rio->io.length_bytes / SECTOR_BYTES; i++) {
		uint32_t value = cache_content_value(rio->buf + i * SECTOR_BYTES, first + i);
		char words[300];

		if (model_may_read(&w->model, first + i, cache_model_value(value), rio->begin))
			continue;
		model_tell(&w->model, first + i, words, sizeof(words));
		cache_world_fail(w, "a READ that began at %llu finds %u in sector %llu, allowed:%s",
				 (unsigned long long)rio->begin, value,
				 (unsigned long long)(first + i), words);
		return;
	}
}

static uint64_t oldest_read(const struct cache_rig *rig)
{
	uint64_t oldest = UINT64_MAX;

	for (unsigned tag = 0; tag < rig->depth; tag++)
		if (rig->io[tag].is_out && rig->io[tag].io.op == BACKEND_READ)
			oldest = MIN(oldest, rig->io[tag].begin);
	return oldest;
}

static void guest_ended(struct cache_rig_io *rio)
{
	const struct backend_io *io = &rio->io;
	struct cache_world *w = world;

	w->request_done_nr++;
	w->aside_write_nr += w->is_aside && io->op == BACKEND_WRITE;
	w->failed_nr += io->result < 0;
	if (io->result < 0 && !w->may_fail)
		cache_world_fail(w, "op %u at %llu, %u bytes: %d, and nothing is wrong", io->op,
				 (unsigned long long)io->offset_bytes, io->length_bytes,
				 io->result);
	if (io->op == BACKEND_READ) {
		/* What is lost reads as anything until that is told. */
		if (io->result == 0 && !w->owes && rio->begin > w->told)
			check_read(w, rio);
	} else if (io->op == BACKEND_FLUSH && io->result < 0) {
		if (w->loses)
			model_lost(&w->model);
		w->told = model_now(&w->model);
		w->owes = false;
	} else if (io->op == BACKEND_FLUSH) {
		if (w->owes)
			cache_world_fail(w, "a FLUSH succeeds, though one below has failed");
		model_flushed(&w->model, rio->begin, oldest_read(rio->rig));
	} else {
		bool is_fua = io->flags & BACKEND_FUA;

		model_end(&w->model, rio->begin, io->offset_bytes, io->length_bytes,
			  io->result < 0 || (w->owes && !is_fua), is_fua);
	}
}

static enum backend_op choose_op(struct cache_world *w, const struct cache_rig *rig)
{
	uint32_t caps = rig->device->limits.caps;
	unsigned n = (unsigned)prng_below(&w->prng, 100);

	if (n < (w->is_warm ? 80u : 45u))
		return BACKEND_READ;
	if (n < 88)
		return BACKEND_WRITE;
	if (n < 95 || !(caps & BACKEND_CAP_DISCARD))
		return BACKEND_FLUSH;
	return BACKEND_DISCARD;
}

static void choose_range(struct cache_world *w, enum backend_op op, uint64_t *ret_offset,
			 uint32_t *ret_bytes)
{
	static uint64_t last_end;
	struct prng *p = &w->prng;
	uint64_t block = w->config.block_bytes, max = CUTS_IO_BYTES, bytes, offset;

	if (op > BACKEND_FLUSH)
		max = prng_one_in(p, 4) ? w->origin_bytes : 4 * block;
	max = MIN(max, w->origin_bytes);
	bytes = prng_one_in(p, 3) ? prng_between(p, SECTOR_BYTES, max)
				  : prng_between(p, SECTOR_BYTES, MIN(max, 6000u));
	offset = prng_below(p, w->origin_bytes);
	/* Half of it goes to one eighth; some goes on where the last one ended. */
	if (prng_one_in(p, 2))
		offset /= 8;
	if (prng_one_in(p, 4) && last_end < w->origin_bytes)
		offset = last_end;
	if (prng_one_in(p, 3)) {
		offset = round_down(offset, CACHE_UNIT_BYTES);
		bytes = MIN(round_up(bytes, CACHE_UNIT_BYTES), max);
	}
	offset = round_down(offset, SECTOR_BYTES);
	bytes = MIN(round_up(bytes, SECTOR_BYTES), w->origin_bytes - offset);
	last_end = offset + bytes;
	*ret_offset = offset;
	*ret_bytes = (uint32_t)bytes;
}

static void begin_change(struct cache_world *w, struct cache_rig_io *rio, enum backend_op op,
			 uint64_t offset, uint32_t bytes)
{
	uint32_t value = op == BACKEND_WRITE ? w->model.next_value++ : VALUE_ZERO;

	for (uint32_t i = 0; op == BACKEND_WRITE && i < bytes; i += SECTOR_BYTES)
		content_fill(rio->buf + i, value, (offset + i) / SECTOR_BYTES);
	rio->begin = model_begin(&w->model, offset, bytes, value, op != BACKEND_DISCARD);
}

static void guest_submit(struct cache_world *w, struct cache_rig *rig)
{
	struct cache_rig_io *rio = &rig->io[prng_below(&w->prng, rig->depth)];
	enum backend_op op = choose_op(w, rig);
	unsigned flags = 0;
	uint64_t offset = 0;
	uint32_t bytes = 0;

	if (rio->is_out)
		return;
	if (op != BACKEND_FLUSH)
		choose_range(w, op, &offset, &bytes);
	if (op != BACKEND_FLUSH && op != BACKEND_READ && !model_has_room(&w->model, offset, bytes))
		op = BACKEND_FLUSH, offset = bytes = 0;
	if (op == BACKEND_FLUSH || op == BACKEND_READ)
		rio->begin = model_now(&w->model);
	else
		begin_change(w, rio, op, offset, bytes);
	if (op == BACKEND_WRITE && (rig->device->limits.caps & BACKEND_CAP_FUA) &&
	    prng_one_in(&w->prng, 10))
		flags = BACKEND_FUA;
	cache_rig_submit(rig, rio, op, flags, offset, bytes);
}

static void guest_cancel(struct cache_world *w, struct cache_rig *rig)
{
	struct cache_rig_io *rio = &rig->io[prng_below(&w->prng, rig->depth)];

	if (rio->is_out)
		backend_io_cancel(&rio->io);
}

/* ---- commands ---- */

static void check_job(struct cache_world *w, const struct cache_rig *rig)
{
	const struct backend_cache_job *job = &rig->job;
	uint64_t looked = backend_cache_done_bytes(job);

	if (rig->job_ret < 0) {
		if (rig->job_ret != -ECANCELED && !w->may_fail && !w->store_fails)
			cache_world_fail(w, "a command fails with %d: %s", rig->job_ret,
					 job->words);
	} else if (job->op == BACKEND_CACHE_YIELD || job->op == BACKEND_CACHE_EMPTY) {
		w->is_aside = true;
		w->aside_nr++;
		cache_judge_aside(w);
	} else if (job->op == BACKEND_CACHE_BACK) {
		w->is_aside = false;
	} else if (job->op == BACKEND_CACHE_DROP) {
		w->drop_nr++;
		w->dropped_bytes += job->dropped_bytes;
	} else {
		w->warm_nr++;
		w->warmed_bytes += job->fetched_bytes;
		if (looked > job->total_bytes || (looked < job->total_bytes && !job->is_full))
			cache_world_fail(w, "a warm has looked at %llu of %llu bytes",
					 (unsigned long long)looked,
					 (unsigned long long)job->total_bytes);
	}
}

static void begin_command(struct cache_world *w, struct cache_rig *rig)
{
	struct prng *p = &w->prng;
	uint64_t offset = prng_one_in(p, 2) ? 0 : prng_below(p, w->origin_bytes);
	uint64_t bytes = prng_one_in(p, 3) ? 0 : prng_between(p, 1, w->origin_bytes - offset);

	enum backend_cache_op op = prng_one_in(p, 3) ? BACKEND_CACHE_DROP : BACKEND_CACHE_WARM;

	if (prng_one_in(p, 3))
		op = prng_one_in(p, 2) ? BACKEND_CACHE_YIELD : BACKEND_CACHE_EMPTY;
	if (w->is_aside && cache_judge_aside(w))
		op = BACKEND_CACHE_BACK;
	if (cache_rig_job(rig, op, offset, bytes) < 0 && op == BACKEND_CACHE_BACK)
		cache_world_fail(w, "it does not come back: %s", rig->job.words);
}

/* One begins, is cancelled, or has ended. */
static void step_commands(struct cache_world *w, struct cache_rig *rig, bool may_begin)
{
	bool was_out = rig->is_job_out;

	reactor_turn(rig->home, false);
	if (was_out && !rig->is_job_out)
		check_job(w, rig);
	if (!prng_one_in(&w->prng, w->job_one_in))
		return;
	if (w->is_aside && !cache_judge_aside(w))
		return;
	if (rig->is_job_out && prng_one_in(&w->prng, 4))
		backend_cache_cancel(&rig->job);
	else if (!rig->is_job_out && may_begin)
		begin_command(w, rig);
}

static void end_commands(struct cache_world *w, struct cache_rig *rig)
{
	if (!rig->is_job_out && !w->is_aside)
		return;
	if (!rig->is_job_out)
		begin_command(w, rig);
	else if (prng_one_in(&w->prng, 2))
		backend_cache_cancel(&rig->job);
	if (cache_rig_wait_job(rig) == -ETIME)
		cache_world_fail(w, "a command never ends");
	else
		check_job(w, rig);
	if (w->is_aside && !cache_world_failed(w))
		end_commands(w, rig);
}

/* ---- steps ---- */

static void one_step(struct cache_world *w, struct cache_rig *rig, bool may_submit)
{
	unsigned submit = may_submit ? w->submit_part : 0;
	unsigned n = (unsigned)prng_below(&w->prng, submit + w->turn_part + w->end_part);

	if (n < submit)
		guest_submit(w, rig);
	else if (n < submit + w->turn_part)
		reactor_turn(rig->reactor, false);
	else
		cache_rig_end_one(rig, &w->prng);
	if (prng_one_in(&w->prng, w->cancel_one_in))
		guest_cancel(w, rig);
	step_commands(w, rig, may_submit);
}

/*
 * The store could not be told that it counts no more: the log says that it must be removed. Where
 * only FLUSHes of it fail, now and then, it can.
 */
static bool store_is_lost(const struct cache_world *w, const struct cache_rig *rig)
{
	const struct cache_device *d = rig->device ? rig->device->priv : NULL;

	return w->store->error_one_in && d && d->is_off && d->is_wiped && d->commit.result < 0;
}

/* One of the disks has changed: this may be the moment. */
static void maybe_cut(struct cache_world *w, struct cache_rig *rig, bool is_open)
{
	static uint64_t seen;
	uint64_t seq = w->store->seq + w->origin->seq;
	unsigned one_in = w->cut_one_in;

	if (seq == seen || w->cut_nr >= w->cut_max || cache_world_failed(w) ||
	    store_is_lost(w, rig))
		return;
	seen = seq;
	if (w->store->flush_flight_nr > 0 && w->store->done_nr > 0)
		one_in = one_in / 4 + 1;
	if (prng_one_in(&w->prng, one_in))
		cache_judge(w, rig, is_open && w->dies && prng_one_in(&w->prng, 2));
}

static void on_life_step(void *arg)
{
	maybe_cut(world, arg, false);
}

static bool guest_works(struct cache_world *w, struct cache_rig *rig)
{
	uint64_t last = w->request_done_nr;
	unsigned idle = 0;

	while (!cache_world_failed(w)) {
		bool is_over = w->request_done_nr >= w->request_nr || w->cut_nr >= w->cut_max;

		if (is_over && rig->out_nr == 0)
			return true;
		one_step(w, rig, !is_over);
		maybe_cut(w, rig, true);
		idle = w->request_done_nr == last ? idle + 1 : 0;
		last = w->request_done_nr;
		if (idle > STEPS_MAX)
			return cache_world_fail(w, "%u requests never end", rig->out_nr);
	}
	return false;
}

/* ---- begin and end ---- */

static void note_stats(struct cache_world *w, const struct cache_rig *rig)
{
	const struct cache_device *d = rig->device->priv;

	w->hits += d->stats.hits;
	w->evictions += d->stats.evictions;
	w->cleaned_bytes += d->stats.cleaned_bytes;
}

static void close_and_judge(struct cache_world *w, struct cache_rig *rig)
{
	bool is_lost = store_is_lost(w, rig);
	int ret;

	end_commands(w, rig);
	note_stats(w, rig);
	ret = cache_rig_close(rig);
	if (ret < 0 && !w->may_fail && !w->store_fails)
		cache_world_fail(w, "it cannot be closed: %d", ret);
	w->origin->error_one_in = w->store->error_one_in = 0;
	w->origin->flush_error_one_in = w->store->flush_error_one_in = 0;
	if (!is_lost && !cache_world_failed(w))
		cache_judge_closed(w, !w->may_fail && !w->store_fails);
}

static void fill_origin(struct cache_world *w)
{
	uint8_t sector[SECTOR_BYTES];

	for (uint64_t i = 0; i < w->model.sector_nr; i++) {
		content_fill(sector, VALUE_IMAGE, i);
		disk_put(w->origin, i * SECTOR_BYTES, sector, SECTOR_BYTES);
		model_set(&w->model, i, VALUE_IMAGE);
	}
}

static void flush_failed(void *arg)
{
	struct cache_world *w = arg;

	w->owes = true;
	if (w->loses)
		model_lost(&w->model);
}

static void hear_of_flushes(struct cache_world *w)
{
	w->origin->on_flush_failed = flush_failed;
	w->origin->on_flush_failed_arg = w->store->on_flush_failed_arg = w;
	/* Else it has copies alone. */
	if (w->config.mode == CACHE_WRITEBACK)
		w->store->on_flush_failed = flush_failed;
	w->owed_fd = memfd_create("owed", MFD_CLOEXEC);
	ASSERT(w->owed_fd > 0 && ftruncate(w->owed_fd, BACKEND_OWED_BYTES) == 0);
}

void cache_run(struct cache_world *w)
{
	static struct cache_rig rig;
	int ret;

	world = w;
	model_init(&w->model, w->origin_bytes);
	fill_origin(w);
	cache_rig_init(&rig, 0);
	hear_of_flushes(w);
	rig.owed_fd = w->owed_fd;
	rig.origin = w->origin;
	rig.store = w->store;
	rig.config = &w->config;
	rig.moves = w->moves;
	rig.depth = w->depth;
	rig.on_end = guest_ended;
	rig.on_step = on_life_step;
	rig.arg = &rig;
	ret = cache_rig_open(&rig, 0);
	if (ret < 0) {
		if (!w->may_fail && !w->store_fails)
			cache_world_fail(w, "it cannot be opened: %d %s", ret, rig.words);
		return;
	}
	if (guest_works(w, &rig))
		close_and_judge(w, &rig);
}
