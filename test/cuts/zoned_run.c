/*
 * One run of zoned_cuts: a guest writes, appends, reads, flushes, resets and finishes, now and then
 * with power cut, or its process dead, behind any step of the disk. The guest knows each pointer: a
 * write that is not there, or comes while its zone is reset, has to fail.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "test/cuts/zoned_rig.h"

static struct zcuts_rig live;

bool zcuts_fail(struct zcuts_world *w, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (w->words[0] == '\0')
		vsnprintf(w->words, sizeof(w->words), format, ap);
	va_end(ap);
	return false;
}

/* ---- what the guest knows ---- */

static uint32_t zone_idx(uint64_t offset)
{
	return (uint32_t)(offset / ZCUTS_ZONE_BYTES);
}

/* The write of a zone that begins first of those under way; UINT64_MAX: none is. */
static uint64_t first_out(uint32_t idx)
{
	uint64_t first = UINT64_MAX;

	for (unsigned tag = 0; tag < ZCUTS_DEPTH; tag++) {
		const struct zcuts_io *zio = &live.io[tag];
		bool is_write = zio->io.op == BACKEND_WRITE || zio->io.op == BACKEND_ZONE_APPEND;

		if (zio->is_out && is_write && zone_idx(zio->io.offset_bytes) == idx)
			first = MIN(first, zio->io.offset_bytes % ZCUTS_ZONE_BYTES);
	}
	return first;
}

static void note_values(struct zcuts_world *w, uint64_t offset, uint32_t bytes, uint32_t value)
{
	struct zcuts_zone *z = &w->zone[zone_idx(offset)];
	uint64_t at = offset % ZCUTS_ZONE_BYTES;

	for (uint32_t i = 0; i < bytes / SECTOR_BYTES; i++)
		z->value[at / SECTOR_BYTES + i] = value + i;
	z->issued = MAX(z->issued, at + bytes);
}

static void flush_ended(struct zcuts_world *w, const struct zcuts_io *zio)
{
	for (uint32_t i = ZCUTS_CONVENTIONAL; i < ZCUTS_ZONES; i++)
		if (zio->life[i] == w->zone[i].life)
			w->zone[i].durable = MAX(w->zone[i].durable, zio->complete[i]);
	w->flush_nr++;
}

static void action_ended(struct zcuts_world *w, const struct zcuts_io *zio)
{
	struct zcuts_zone *z = &w->zone[zone_idx(zio->io.offset_bytes)];

	if (zio->io.zone == BACKEND_ZONE_RESET) {
		*z = (struct zcuts_zone){ .life = z->life + 1 };
		w->reset_nr++;
	} else {
		z->is_full = true;
		z->is_finishing = false;
		w->finish_nr++;
	}
}

static void check_read(struct zcuts_world *w, const struct zcuts_io *zio)
{
	const struct zcuts_zone *z = &w->zone[zone_idx(zio->io.offset_bytes)];
	uint64_t at = zio->io.offset_bytes % ZCUTS_ZONE_BYTES / SECTOR_BYTES;

	/* What is lost reads as anything until that is told. */
	if (w->owes || zio->lost_nr != w->lost_nr)
		return;
	/* Others have been at it meanwhile. */
	if (zio->life[0] != z->life || z->is_resetting ||
	    first_out(zone_idx(zio->io.offset_bytes)) != UINT64_MAX ||
	    zio->complete[0] != z->issued)
		return;
	for (uint32_t i = 0; i < zio->io.length_bytes / SECTOR_BYTES; i++) {
		uint32_t value = content_value(zio->buf + i * SECTOR_BYTES, 0);

		if (value != z->value[at + i])
			zcuts_fail(w, "sector %llu of a zone reads %u, not %u",
				   (unsigned long long)(at + i), value, z->value[at + i]);
	}
}

static void on_end(struct zcuts_io *zio, void *arg)
{
	struct zcuts_world *w = arg;

	w->done_nr++;
	if (zio->io.op == BACKEND_FLUSH && zio->io.result == 0 && w->owes)
		zcuts_fail(w, "a FLUSH succeeds, though one of the disk has failed");
	if (zio->io.op == BACKEND_FLUSH && zio->io.result < 0)
		w->owes = false;
	if (zio->io.result < 0 && w->disk->flush_error_one_in)
		return;
	if (zio->io.result < 0) {
		zcuts_fail(w, "%s at %llu fails with %d", backend_op_name(zio->io.op),
			   (unsigned long long)zio->asked_bytes, zio->io.result);
		return;
	}
	switch (zio->io.op) {
	case BACKEND_READ:
		check_read(w, zio);
		break;
	case BACKEND_FLUSH:
		flush_ended(w, zio);
		break;
	case BACKEND_ZONE_MANAGE:
		action_ended(w, zio);
		break;
	default:
		break;
	}
}

/* ---- the guest ---- */

static uint32_t some_bytes(struct prng *p, uint64_t most)
{
	return (uint32_t)(prng_between(p, 1, MIN(most / SECTOR_BYTES, (uint64_t)24)) *
			  SECTOR_BYTES);
}

static void guest_write(struct zcuts_world *w, struct zcuts_io *zio, uint32_t idx, bool is_append)
{
	struct zcuts_zone *z = &w->zone[idx];
	uint64_t start = (uint64_t)idx * ZCUTS_ZONE_BYTES;
	uint64_t at = start + z->issued;
	uint32_t bytes;

	if (z->is_full || z->is_finishing || z->is_resetting || z->issued == ZCUTS_CAP_BYTES)
		return;
	bytes = some_bytes(&w->prng, ZCUTS_CAP_BYTES - z->issued);
	zcuts_fill(zio, at, bytes, w->next_value);
	w->next_value += 128;
	note_values(w, at, bytes, zio->value);
	zcuts_rig_submit(&live, zio, is_append ? BACKEND_ZONE_APPEND : BACKEND_WRITE, 0,
			 is_append ? start : at, bytes);
	if (zio->io.offset_bytes != at)
		zcuts_fail(w, "an append goes to %llu, not %llu",
			   (unsigned long long)zio->io.offset_bytes, (unsigned long long)at);
	*(is_append ? &w->append_nr : &w->write_nr) += 1;
}

/* Where it must not be. */
static void guest_write_wrong(struct zcuts_world *w, struct zcuts_io *zio, uint32_t idx)
{
	struct zcuts_zone *z = &w->zone[idx];
	uint64_t at = prng_below(&w->prng, ZCUTS_SECTORS) * SECTOR_BYTES;

	if (at == z->issued && !z->is_resetting && !z->is_finishing && !z->is_full)
		return;
	live.on_end = NULL;
	zcuts_rig_submit(&live, zio, BACKEND_WRITE, 0, (uint64_t)idx * ZCUTS_ZONE_BYTES + at,
			 SECTOR_BYTES);
	live.on_end = on_end;
	if (zio->is_out || zio->io.result >= 0)
		zcuts_fail(w, "a write that is not at the pointer goes through");
}

static void guest_read(struct zcuts_world *w, struct zcuts_io *zio, uint32_t idx)
{
	uint64_t at = prng_below(&w->prng, ZCUTS_SECTORS) * SECTOR_BYTES;

	zio->life[0] = w->zone[idx].life;
	zio->lost_nr = w->lost_nr;
	/* None under way, or it is not judged. */
	zio->complete[0] = first_out(idx) == UINT64_MAX ? w->zone[idx].issued : UINT64_MAX;
	zcuts_rig_submit(&live, zio, BACKEND_READ, 0, (uint64_t)idx * ZCUTS_ZONE_BYTES + at,
			 some_bytes(&w->prng, ZCUTS_ZONE_BYTES - at));
}

static void guest_flush(struct zcuts_world *w, struct zcuts_io *zio)
{
	for (uint32_t i = ZCUTS_CONVENTIONAL; i < ZCUTS_ZONES; i++) {
		zio->life[i] = w->zone[i].life;
		zio->complete[i] = MIN(first_out(i), w->zone[i].issued);
	}
	zcuts_rig_submit(&live, zio, BACKEND_FLUSH, 0, 0, 0);
}

static void guest_act(struct zcuts_world *w, struct zcuts_io *zio, uint32_t idx, bool is_reset)
{
	struct zcuts_zone *z = &w->zone[idx];

	if (z->is_resetting || z->is_finishing)
		return;
	if (is_reset)
		z->is_resetting = true;
	else
		z->is_finishing = true;
	zcuts_rig_submit(&live, zio, BACKEND_ZONE_MANAGE,
			 is_reset ? BACKEND_ZONE_RESET : BACKEND_ZONE_FINISH,
			 (uint64_t)idx * ZCUTS_ZONE_BYTES, 0);
}

static void guest_step(struct zcuts_world *w)
{
	struct prng *p = &w->prng;
	uint32_t idx = (uint32_t)prng_between(p, ZCUTS_CONVENTIONAL, ZCUTS_ZONES - 1);
	struct zcuts_io *zio = &live.io[prng_below(p, ZCUTS_DEPTH)];

	if (zio->is_out)
		return;
	switch (prng_below(p, 20)) {
	case 0:
	case 1:
		guest_read(w, zio, idx);
		break;
	case 2:
	case 3:
		guest_flush(w, zio);
		break;
	case 4:
		guest_act(w, zio, idx, true);
		break;
	case 5:
		if (prng_one_in(p, 4))
			guest_act(w, zio, idx, false);
		break;
	case 6:
		guest_write_wrong(w, zio, idx);
		break;
	default:
		guest_write(w, zio, idx, prng_one_in(p, 3));
	}
}

static bool step(struct zcuts_world *w, bool may_submit)
{
	uint64_t before = disk_moment(w->disk);
	uint64_t way = prng_below(&w->prng, w->submit_part + w->turn_part + w->end_part);

	if (way < w->submit_part && may_submit)
		guest_step(w);
	else if (way < w->submit_part + w->turn_part)
		reactor_turn(live.reactor, false);
	else
		disk_end_one(w->disk);
	if (w->words[0])
		return false;
	if (disk_moment(w->disk) == before || w->cut_nr == w->cut_max ||
	    !prng_one_in(&w->prng, w->cut_one_in))
		return true;
	return zcuts_judge(w, &live, w->dies && prng_one_in(&w->prng, 2));
}

static void flush_failed(void *arg)
{
	struct zcuts_world *w = arg;

	w->owes = true;
	w->lost_nr++;
}

/* What is left as after a cut. */
static bool ends_lost(struct zcuts_world *w)
{
	if (zcuts_rig_close(&live) == 0)
		return zcuts_fail(w, "it is closed as if all were well");
	return zcuts_judge(w, NULL, false);
}

/* A FLUSH of the close may fail as well. */
static void ends(struct zcuts_world *w)
{
	if (zcuts_rig_close(&live) == 0)
		zcuts_judge_closed(w);
	else if (!w->disk->flush_error_one_in)
		zcuts_fail(w, "it cannot be closed");
	else
		zcuts_judge(w, NULL, false);
}

void zcuts_run(struct zcuts_world *w)
{
	unsigned left = 1000000, flush_error_one_in = w->disk->flush_error_one_in;
	int ret;

	zcuts_rig_init(&live, 0, w->disk, w->moves);
	live.on_end = on_end;
	live.arg = w;
	w->disk->on_flush_failed = flush_failed;
	w->disk->on_flush_failed_arg = w;
	w->owed_fd = memfd_create("owed", MFD_CLOEXEC);
	ASSERT(w->owed_fd > 0 && ftruncate(w->owed_fd, BACKEND_OWED_BYTES) == 0);
	live.owed_fd = w->owed_fd;
	w->disk->flush_error_one_in = 0;
	ret = zcuts_rig_open(&live, 0);
	w->disk->flush_error_one_in = flush_error_one_in;
	if (ret < 0) {
		zcuts_fail(w, "it cannot be opened: %d %s", ret, live.words);
		return;
	}
	while (w->done_nr < w->request_nr && !zcuts_device(&live)->is_lost)
		if (!step(w, true))
			return;
	while (live.out_nr > 0 && left-- > 0)
		if (!step(w, false))
			return;
	if (live.out_nr > 0)
		zcuts_fail(w, "requests never end");
	else if (zcuts_device(&live)->is_lost)
		ends_lost(w);
	else
		ends(w);
}
