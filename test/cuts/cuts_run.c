/*
 * One run: a guest with many requests under way, several reactors that are turned in any order, a
 * disk that answers in any order. After any step power may be cut: what is left is judged, and the
 * run goes on.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "test/cuts/cuts_world.h"

/* So many steps without an end of anything: nothing will ever end. */
#define STEPS_MAX 20000u

bool world_fail(struct world *w, const char *format, ...)
{
	va_list args;

	if (world_failed(w))
		return false;
	va_start(args, format);
	vsnprintf(w->words, sizeof(w->words), format, args);
	va_end(args);
	return false;
}

/* ---- the guest ---- */

static struct world *world; /* of the request that ends */

static bool read_is_right(struct world *w, const struct rig_io *rio)
{
	uint64_t first = rio->io.offset_bytes / SECTOR_BYTES;

	for (uint64_t i = 0; i < rio->io.length_bytes / SECTOR_BYTES; i++) {
		uint32_t value = content_value(rio->buf + i * SECTOR_BYTES, first + i);
		char words[300];

		if (model_may_read(&w->model, first + i, value, rio->begin))
			continue;
		model_tell(&w->model, first + i, words, sizeof(words));
		return world_fail(w,
				  "a READ that began at %llu finds %u in sector %llu, allowed:%s",
				  (unsigned long long)rio->begin, value,
				  (unsigned long long)(first + i), words);
	}
	return true;
}

static uint64_t oldest_read(const struct rig *rig)
{
	uint64_t oldest = UINT64_MAX;

	for (unsigned q = 0; q < rig->queue_nr; q++)
		for (unsigned tag = 0; tag < rig->depth; tag++)
			if (rig->io[q][tag].is_out && rig->io[q][tag].io.op == BACKEND_READ)
				oldest = MIN(oldest, rig->io[q][tag].begin);
	return world->changes.state == CHANGE_RUNS ? MIN(oldest, world->changes.begin) : oldest;
}

static void guest_ended(struct rig_io *rio)
{
	const struct backend_io *io = &rio->io;
	struct world *w = world;

	w->request_done_nr++;
	w->failed_nr += io->result < 0;
	if (io->result < 0 && !w->may_fail)
		world_fail(w, "op %u at %llu, %u bytes: %d, and nothing is wrong", io->op,
			   (unsigned long long)io->offset_bytes, io->length_bytes, io->result);
	if (io->op == BACKEND_READ) {
		/* What is lost reads as anything until that is told. */
		if (io->result == 0 && !w->owes && rio->begin > w->told)
			read_is_right(w, rio);
	} else if (io->op == BACKEND_FLUSH && io->result < 0) {
		/* All that was not durable counts as not written. */
		model_lost(&w->model);
		w->told = model_now(&w->model);
		w->owes = false;
	} else if (io->op == BACKEND_FLUSH) {
		if (w->owes)
			world_fail(w, "a FLUSH succeeds, though one of the disk has failed");
		model_flushed(&w->model, rio->begin, oldest_read(rio->rig));
	} else {
		bool is_fua = io->flags & BACKEND_FUA;

		model_end(&w->model, rio->begin, io->offset_bytes, io->length_bytes,
			  io->result < 0 || (w->owes && !is_fua), is_fua);
	}
}

static enum backend_op choose_op(struct world *w, const struct rig *rig)
{
	uint32_t caps = rig->device->limits.caps;
	unsigned n = (unsigned)prng_below(&w->prng, 100);

	if (n < 60)
		return BACKEND_WRITE;
	if (n < 75)
		return BACKEND_READ;
	if (n < 83)
		return BACKEND_FLUSH;
	if (n < 92 && (caps & BACKEND_CAP_DISCARD))
		return BACKEND_DISCARD;
	return caps & BACKEND_CAP_WRITE_ZEROES ? BACKEND_WRITE_ZEROES : BACKEND_WRITE;
}

static void choose_range(struct world *w, enum backend_op op, uint64_t *ret_offset,
			 uint32_t *ret_bytes)
{
	struct prng *p = &w->prng;
	uint64_t cluster = 1ull << w->shape.cluster_bits, max = CUTS_IO_BYTES, bytes, offset;

	if (op > BACKEND_FLUSH)
		max = prng_one_in(p, 4) ? w->shape.bytes : 4 * cluster;
	max = MIN(max, w->shape.bytes);
	bytes = prng_one_in(p, 3) ? prng_between(p, SECTOR_BYTES, max)
				  : prng_between(p, SECTOR_BYTES, MIN(max, 4096u));
	offset = prng_below(p, w->shape.bytes);
	/* Half of it goes to one sixteenth. */
	if (prng_one_in(p, 2))
		offset /= 16;
	if (prng_one_in(p, 3)) {
		offset = round_down(offset, cluster);
		bytes = MIN(round_up(bytes, cluster), max);
	}
	offset = round_down(offset, SECTOR_BYTES);
	bytes = MIN(round_up(bytes, SECTOR_BYTES), w->shape.bytes - offset);
	*ret_offset = offset;
	*ret_bytes = (uint32_t)bytes;
}

static struct rig_io *choose_tag(struct world *w, struct rig *rig)
{
	unsigned q = (unsigned)prng_below(&w->prng, rig->queue_nr);
	struct rig_io *rio = &rig->io[q][prng_below(&w->prng, rig->depth)];

	return rio->is_out ? NULL : rio;
}

static unsigned choose_flags(struct world *w, enum backend_op op)
{
	unsigned flags = 0;

	if (op != BACKEND_WRITE && op != BACKEND_WRITE_ZEROES)
		return 0;
	if (prng_one_in(&w->prng, 12))
		flags |= BACKEND_FUA;
	if (op == BACKEND_WRITE_ZEROES && prng_one_in(&w->prng, 2))
		flags |= BACKEND_NOUNMAP;
	return flags;
}

static void begin_change(struct world *w, struct rig_io *rio, enum backend_op op, uint64_t offset,
			 uint32_t bytes)
{
	rio->value = op == BACKEND_WRITE ? w->model.next_value++ : VALUE_ZERO;
	for (uint32_t i = 0; op == BACKEND_WRITE && i < bytes; i += SECTOR_BYTES)
		content_fill(rio->buf + i, rio->value, (offset + i) / SECTOR_BYTES);
	rio->begin = model_begin(&w->model, offset, bytes, rio->value, op != BACKEND_DISCARD);
}

static void guest_submit(struct world *w, struct rig *rig)
{
	struct rig_io *rio = choose_tag(w, rig);
	enum backend_op op = choose_op(w, rig);
	uint64_t offset = 0;
	uint32_t bytes = 0;

	if (!rio)
		return;
	if (op != BACKEND_FLUSH)
		choose_range(w, op, &offset, &bytes);
	if (op != BACKEND_FLUSH && op != BACKEND_READ && !model_has_room(&w->model, offset, bytes))
		op = BACKEND_FLUSH, offset = bytes = 0;
	if (op == BACKEND_FLUSH || op == BACKEND_READ)
		rio->begin = model_now(&w->model);
	else
		begin_change(w, rio, op, offset, bytes);
	rig_submit(rig, rio, op, choose_flags(w, op), offset, bytes);
}

static void guest_cancel(struct world *w, struct rig *rig)
{
	unsigned q = (unsigned)prng_below(&w->prng, rig->queue_nr);
	struct rig_io *rio = &rig->io[q][prng_below(&w->prng, rig->depth)];

	if (rio->is_out)
		backend_io_cancel(&rio->io);
}

/* ---- steps ---- */

static void one_step(struct world *w, struct rig *rig, bool may_submit)
{
	unsigned submit = may_submit ? w->submit_part : 0;
	unsigned n = (unsigned)prng_below(&w->prng, submit + w->turn_part + w->end_part);

	if (n < submit)
		guest_submit(w, rig);
	else if (n < submit + w->turn_part)
		reactor_turn(rig->reactor[prng_below(&w->prng, rig->queue_nr)], false);
	else
		disk_end_one(w->disk);
	if (prng_one_in(&w->prng, w->cancel_one_in))
		guest_cancel(w, rig);
	if (may_submit)
		change_maybe_begin(w, rig);
	if (rig->is_changing)
		reactor_turn(rig->home, false);
}

/*
 * The disk has changed: this may be the moment. More often while a FLUSH is under way: what must
 * not be lost apart stands side by side then, if a FLUSH is missing.
 */
static void maybe_cut(struct world *w)
{
	static uint64_t seen;
	const struct disk *d = w->disk;
	unsigned one_in = w->cut_one_in;

	if (disk_moment(d) == seen || w->cut_nr >= w->cut_max)
		return;
	seen = disk_moment(d);
	if (disk_is_flushing(d))
		one_in = one_in / 8 + 1;
	if (prng_one_in(&w->prng, one_in))
		judge_cut(w);
}

static void on_step(void *arg)
{
	maybe_cut(arg);
}

/* A change of snapshots goes through all tables, and requests may wait for it. */
static unsigned steps_max(const struct rig *rig)
{
	return rig->is_changing ? 20 * STEPS_MAX : STEPS_MAX;
}

static bool drain(struct world *w, struct rig *rig)
{
	for (unsigned i = 0; (rig->out_nr > 0 || rig->is_changing) && !world_failed(w); i++) {
		if (i == steps_max(rig))
			return world_fail(w, "%u requests never end", rig->out_nr);
		one_step(w, rig, false);
		maybe_cut(w);
	}
	return !world_failed(w);
}

bool run_guest(struct world *w, struct rig *rig)
{
	uint64_t until = w->request_done_nr + w->request_nr, last = w->request_done_nr;
	unsigned idle = 0;

	while (w->request_done_nr < until && w->cut_nr < w->cut_max && !world_failed(w)) {
		one_step(w, rig, true);
		maybe_cut(w);
		idle = w->request_done_nr == last ? idle + 1 : 0;
		last = w->request_done_nr;
		if (idle > steps_max(rig))
			return world_fail(w, "%u requests never end", rig->out_nr);
	}
	return !world_failed(w) && drain(w, rig);
}

/* ---- begin and end ---- */

static void flush_failed(void *arg)
{
	struct world *w = arg;

	w->owes = true;
	model_lost(&w->model);
}

void run_rig_init(struct world *w, struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	world = w;
	rig->queue_nr = w->queue_nr;
	rig->depth = w->depth;
	rig->home = rig_reactor(0, 0);
	for (unsigned i = 0; i < w->queue_nr; i++)
		rig->reactor[i] = rig_reactor(0, 1 + i % w->reactor_nr);
	rig->config.cache_bytes = w->cache_bytes;
	rig->on_end = guest_ended;
	rig->on_step = on_step;
	rig->arg = w;
	for (struct disk *d = w->disk; d; d = d->beside) {
		d->on_flush_failed = flush_failed;
		d->on_flush_failed_arg = w;
	}
}

bool run_close(struct world *w, struct rig *rig)
{
	int ret;

	disk_forget_failures(w->disk);
	ret = rig_close(rig);
	if (ret < 0 && !w->may_fail)
		return world_fail(w, "it cannot be closed: %d", ret);
	/* Tables that cannot be written are lost, as with a cut. */
	disk_copy(w->disk, w->left);
	return judge_image(w, disk_has_failed(w->disk), !w->may_fail && w->kill_nr == 0, NULL);
}

void run_world(struct world *w)
{
	static struct rig rig;
	int ret;

	run_rig_init(w, &rig);
	ret = rig_open(&rig, &w->shape, w->disk, 0);
	if (ret < 0) {
		if (!w->may_fail)
			world_fail(w, "it cannot be opened: %d %s", ret, rig.words);
		return;
	}
	if (run_guest(w, &rig) && run_close(w, &rig))
		judge_cut(w);
}
