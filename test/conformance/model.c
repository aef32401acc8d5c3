/* The byte model and the random driver over it. One thread, which turns the reactors. */
#include "model.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* Bytes that no model holds, put into a buffer before it is read into. */
#define POISON 0xa5

struct run {
	struct model *model;
	struct rig *rig;
	struct prng *prng;
	struct model_stats *stats;
	uint64_t left_nr;
};

/* Storage that ends within a block is followed by zeroes (storage/resize.h). */
static void fill_pattern(struct model *model, uint64_t found_bytes)
{
	uint64_t end = found_bytes ? MIN(found_bytes, model->size_bytes) : model->size_bytes;

	for (uint64_t i = 0; i < end; i += sizeof(uint64_t)) {
		uint64_t word = htole64(i);

		memcpy(model->bytes + i, &word, MIN(sizeof(word), end - i));
	}
}

void model_init(struct model *model, const struct rig *rig, enum model_content content)
{
	uint64_t block_nr;

	*model = (struct model){
		.size_bytes = rig->device->limits.size_bytes,
		.block_bytes = rig->device->open_params.logical_block_bytes,
		.is_undefined = content == MODEL_UNDEFINED,
	};
	block_nr = model->size_bytes / model->block_bytes;
	if (model->is_undefined)
		return;
	model->bytes = calloc(1, model->size_bytes);
	model->known = malloc(block_nr);
	memset(model->known, content != MODEL_UNKNOWN, block_nr);
	if (content == MODEL_PATTERN)
		fill_pattern(model, rig->device->tail.found_bytes);
}

void model_fini(struct model *model)
{
	free(model->bytes);
	free(model->known);
	*model = (struct model){ 0 };
}

void model_apply(struct model *model, const struct backend_io *io)
{
	uint64_t first = io->offset_bytes / model->block_bytes;
	uint64_t nr = io->length_bytes / model->block_bytes;

	if (model->is_undefined)
		return;
	if (io->op == BACKEND_WRITE)
		memcpy(model->bytes + io->offset_bytes, io->buf, io->length_bytes);
	else if (io->op == BACKEND_WRITE_ZEROES)
		memset(model->bytes + io->offset_bytes, 0, io->length_bytes);
	if (io->op == BACKEND_WRITE || io->op == BACKEND_WRITE_ZEROES)
		memset(model->known + first, 1, nr);
	else if (io->op == BACKEND_DISCARD)
		memset(model->known + first, 0, nr);
}

/* The answer that storage/io.c's rules demand of a device that works. */
static int expected_result(const struct backend_io *io)
{
	uint32_t caps = io->queue->device->limits.caps;

	if (io->op == BACKEND_READ || io->op == BACKEND_FLUSH)
		return 0;
	if (caps & BACKEND_CAP_READ_ONLY)
		return -EIO;
	if ((io->op == BACKEND_DISCARD && !(caps & BACKEND_CAP_DISCARD)) ||
	    (io->op == BACKEND_WRITE_ZEROES && !(caps & BACKEND_CAP_WRITE_ZEROES)))
		return -EOPNOTSUPP;
	return 0;
}

/* A modification that failed: nothing may be assumed. One that was refused changed nothing. */
static void model_forget(struct model *model, const struct backend_io *io)
{
	uint64_t first = io->offset_bytes / model->block_bytes;

	if (io->op == BACKEND_READ || io->op == BACKEND_FLUSH || model->is_undefined ||
	    io->result == expected_result(io))
		return;
	memset(model->known + first, 0, io->length_bytes / model->block_bytes);
}

int64_t model_compare(const struct model *model, const struct backend_io *io)
{
	const uint8_t *got = io->buf;

	if (model->is_undefined)
		return -1;
	for (uint32_t i = 0; i < io->length_bytes; i += model->block_bytes) {
		const uint8_t *want = model->bytes + io->offset_bytes + i;

		if (!model->known[(io->offset_bytes + i) / model->block_bytes] ||
		    memcmp(got + i, want, model->block_bytes) == 0)
			continue;
		for (uint32_t j = 0; j < model->block_bytes; j++)
			if (got[i + j] != want[j])
				return (int64_t)(io->offset_bytes + i + j);
	}
	return -1;
}

static void note_error(struct model_stats *stats, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void note_error(struct model_stats *stats, const char *fmt, ...)
{
	va_list ap;

	if (stats->error_nr++ > 0)
		return;
	va_start(ap, fmt);
	vsnprintf(stats->first_error, sizeof(stats->first_error), fmt, ap);
	va_end(ap);
}

static void on_done(struct rig_io *rio, void *arg)
{
	struct backend_io *io = &rio->io;
	struct run *run = arg;
	int64_t wrong = -1;

	run->stats->io_nr[io->op]++;
	if (io->result != expected_result(io))
		note_error(run->stats, "%s flags=%u offset=%llu length=%u: result %d (%s)",
			   backend_op_name(io->op), io->flags, (unsigned long long)io->offset_bytes,
			   io->length_bytes, io->result, errname(io->result));
	if (io->result < 0) {
		model_forget(run->model, io);
		return;
	}
	if (io->op == BACKEND_READ)
		wrong = model_compare(run->model, io);
	else if (io->op != BACKEND_FLUSH)
		model_apply(run->model, io);
	run->stats->wrong_nr += wrong >= 0;
	if (wrong >= 0)
		note_error(run->stats,
			   "read offset=%llu length=%u: wrong byte at %lld: 0x%02x, not 0x%02x",
			   (unsigned long long)io->offset_bytes, io->length_bytes, (long long)wrong,
			   ((uint8_t *)io->buf)[(uint64_t)wrong - io->offset_bytes],
			   run->model->bytes[wrong]);
}

static bool overlaps_inflight(const struct rig *rig, uint64_t offset_bytes, uint64_t length_bytes)
{
	for (unsigned i = 0; i < rig->queue_nr; i++) {
		for (unsigned tag = 0; tag < rig->depth; tag++) {
			const struct rig_io *rio = &rig->queue[i].io[tag];

			if (rio->out &&
			    offset_bytes < rio->io.offset_bytes + rio->io.length_bytes &&
			    rio->io.offset_bytes < offset_bytes + length_bytes)
				return true;
		}
	}
	return false;
}

static enum backend_op pick_op(struct prng *prng)
{
	uint64_t n = prng_below(prng, 100);

	if (n < 45)
		return BACKEND_READ;
	if (n < 83)
		return BACKEND_WRITE;
	if (n < 91)
		return BACKEND_WRITE_ZEROES;
	return n < 98 ? BACKEND_DISCARD : BACKEND_FLUSH;
}

/* Mostly small, sometimes as long as may be. */
static uint64_t pick_length(struct run *run, enum backend_op op)
{
	static const uint64_t max_bytes[] = { 512, KIB(4), KIB(16), KIB(64), RIG_IO_BYTES };
	uint64_t max = max_bytes[prng_below(run->prng, ARRAY_SIZE(max_bytes))];
	uint64_t block_bytes = run->model->block_bytes;
	uint32_t limit = run->rig->device->limits.max_io_bytes;

	max = limit ? MIN(max, (uint64_t)limit) : max;
	if (op == BACKEND_DISCARD || op == BACKEND_WRITE_ZEROES)
		max *= 2;
	max = MIN(max, run->model->size_bytes);
	return (1 + prng_below(run->prng, MAX(max / block_bytes, 1ull))) * block_bytes;
}

static bool pick_range(struct run *run, struct backend_io *io)
{
	uint64_t block_bytes = run->model->block_bytes;

	for (int attempt = 0; attempt < 8; attempt++) {
		uint64_t length_bytes = MIN(pick_length(run, io->op), run->model->size_bytes);
		uint64_t last = (run->model->size_bytes - length_bytes) / block_bytes;
		uint64_t offset_bytes = prng_below(run->prng, last + 1) * block_bytes;

		if (overlaps_inflight(run->rig, offset_bytes, length_bytes))
			continue;
		io->offset_bytes = offset_bytes;
		io->length_bytes = (uint32_t)length_bytes;
		return true;
	}
	return false;
}

static void fill_buffer(struct run *run, struct backend_io *io)
{
	uint64_t *word = io->buf;

	if (io->op == BACKEND_READ)
		memset(io->buf, POISON, io->length_bytes);
	else if (io->op == BACKEND_WRITE)
		for (uint32_t i = 0; i < io->length_bytes / sizeof(*word); i++)
			word[i] = prng_next(run->prng);
}

static uint8_t pick_flags(struct run *run, enum backend_op op)
{
	uint32_t caps = run->rig->device->limits.caps;
	/* Of a device without a volatile cache all is durable. */
	bool can_fua = !(caps & BACKEND_CAP_FLUSH) || (caps & BACKEND_CAP_FUA);
	uint8_t flags = 0;

	if (can_fua && (op == BACKEND_WRITE || op == BACKEND_WRITE_ZEROES) &&
	    prng_one_in(run->prng, 50))
		flags |= BACKEND_FUA;
	if (op == BACKEND_WRITE_ZEROES && prng_one_in(run->prng, 2))
		flags |= BACKEND_NOUNMAP;
	return flags;
}

static void start_one(struct run *run, struct rig_io *rio)
{
	rio->io.op = pick_op(run->prng);
	rio->io.flags = pick_flags(run, rio->io.op);
	rio->io.offset_bytes = rio->io.length_bytes = 0;
	if (rio->io.op != BACKEND_FLUSH && !pick_range(run, &rio->io))
		return;
	fill_buffer(run, &rio->io);
	rio->done = on_done;
	rio->arg = run;
	run->left_nr--;
	rig_submit(run->rig, rio);
}

static void start_some(struct run *run)
{
	struct rig *rig = run->rig;

	for (unsigned i = 0; i < rig->queue_nr; i++)
		for (unsigned tag = 0; tag < rig->depth && run->left_nr > 0; tag++)
			if (!rig->queue[i].io[tag].out && !prng_one_in(run->prng, 4))
				start_one(run, &rig->queue[i].io[tag]);
}

void model_verify(struct model *model, struct rig *rig, struct model_stats *stats)
{
	struct run run = { .model = model, .rig = rig, .stats = stats };
	struct rig_io *rio = &rig->queue[0].io[0];

	uint32_t limit = rig->device->limits.max_io_bytes;
	uint32_t step = limit ? MIN(limit, RIG_IO_BYTES) : RIG_IO_BYTES;

	for (uint64_t pos = 0; !model->is_undefined && pos < model->size_bytes; pos += step) {
		rio->io.op = BACKEND_READ;
		rio->io.flags = 0;
		rio->io.offset_bytes = pos;
		rio->io.length_bytes = (uint32_t)MIN(step, model->size_bytes - pos);
		rio->done = on_done;
		rio->arg = &run;
		memset(rio->io.buf, POISON, rio->io.length_bytes);
		rig_submit(rig, rio);
		rig_drain(rig);
	}
}

void model_run(struct model *model, struct rig *rig, struct prng *prng, uint64_t io_nr,
	       struct model_stats *stats)
{
	struct run run = {
		.model = model, .rig = rig, .prng = prng, .stats = stats, .left_nr = io_nr
	};

	*stats = (struct model_stats){ 0 };
	while (run.left_nr > 0 && stats->error_nr == 0) {
		start_some(&run);
		rig_turn(rig);
	}
	rig_drain(rig);
	if (stats->error_nr == 0)
		model_verify(model, rig, stats);
}
