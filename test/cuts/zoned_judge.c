/*
 * What a cut, or the death of the process, has left: the product opens it.
 *
 * After a cut each zone is written as far as a FLUSH has said, at least, and no further than the
 * guest has written; below its pointer is what the guest has written there, each sector of it, and
 * behind it zeroes. A RESET or FINISH that was acknowledged has happened, one under way has or not.
 * After a death the pointers are where they were, and what was not answered is sent again, in any
 * order: it succeeds, and then all sectors are right.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "test/cuts/zoned_rig.h"

static struct zcuts_rig judge;

static uint64_t written(uint32_t idx)
{
	return zcuts_device(&judge)->memory.zone[idx].written_bytes;
}

static bool is_full(uint32_t idx)
{
	return zcuts_device(&judge)->memory.zone[idx].condition == ZONE_FULL;
}

/* What the product reads of a zone. */
static bool read_values(struct zcuts_world *w, uint32_t idx, uint32_t value[ZCUTS_SECTORS])
{
	struct zcuts_io *zio = &judge.io[0];
	int ret;

	zcuts_rig_submit(&judge, zio, BACKEND_READ, 0, (uint64_t)idx * ZCUTS_ZONE_BYTES,
			 ZCUTS_ZONE_BYTES);
	ret = zcuts_rig_wait(&judge, zio);
	if (ret < 0)
		return zcuts_fail(w, "zone %u cannot be read: %d", idx, ret);
	for (uint32_t i = 0; i < ZCUTS_SECTORS; i++)
		value[i] = content_value(zio->buf + i * SECTOR_BYTES, 0);
	return true;
}

static bool judge_content(struct zcuts_world *w, uint32_t idx, uint64_t end, const char *what)
{
	const struct zcuts_zone *z = &w->zone[idx];
	uint32_t value[ZCUTS_SECTORS];

	if (!read_values(w, idx, value))
		return false;
	for (uint32_t i = 0; i < ZCUTS_SECTORS; i++) {
		uint32_t wanted = i < end / SECTOR_BYTES ? z->value[i] : 0;

		if (value[i] != wanted)
			return zcuts_fail(
				w, "%s: sector %u of zone %u is %u, not %u (written: %llu)", what,
				i, idx, value[i], wanted, (unsigned long long)written(idx));
	}
	return true;
}

static bool judge_pointer(struct zcuts_world *w, uint32_t idx)
{
	const struct zcuts_zone *z = &w->zone[idx];
	uint64_t now = written(idx);

	if (now < z->durable)
		return zcuts_fail(w, "zone %u: written to %llu, a FLUSH has said %llu", idx,
				  (unsigned long long)now, (unsigned long long)z->durable);
	if (now > z->issued)
		return zcuts_fail(w, "zone %u: written to %llu, nobody has beyond %llu", idx,
				  (unsigned long long)now, (unsigned long long)z->issued);
	if (is_full(idx) && now < ZCUTS_CAP_BYTES && !z->is_full && !z->is_finishing)
		return zcuts_fail(w, "zone %u is full, and nobody has finished it", idx);
	if (z->is_full && !is_full(idx))
		return zcuts_fail(w, "zone %u is not full, and it was finished", idx);
	return true;
}

static bool judge_zone(struct zcuts_world *w, uint32_t idx)
{
	const struct zcuts_zone *z = &w->zone[idx];

	if (z->is_resetting && written(idx) == 0 && !is_full(idx))
		return judge_content(w, idx, 0, "reset and cut");
	return judge_pointer(w, idx) && judge_content(w, idx, written(idx), "cut");
}

static bool open_left(struct zcuts_world *w, int stored_fd, int owed_fd)
{
	int ret;

	zcuts_rig_init(&judge, 1, w->left, w->moves);
	judge.owed_fd = owed_fd;
	ret = zcuts_rig_open(&judge, stored_fd);
	return ret == 0 || zcuts_fail(w, "it cannot be opened: %d %s", ret, judge.words);
}

static bool close_left(struct zcuts_world *w)
{
	return zcuts_rig_close(&judge) == 0 || zcuts_fail(w, "it cannot be closed");
}

static bool judge_zones(struct zcuts_world *w)
{
	for (uint32_t i = ZCUTS_CONVENTIONAL; i < ZCUTS_ZONES; i++)
		if (!judge_zone(w, i))
			return false;
	return true;
}

static bool judge_cut_zones(struct zcuts_world *w)
{
	return open_left(w, 0, 0) && judge_zones(w) && close_left(w);
}

/* ---- a death ---- */

/* Whether the driver sends it again: it was not answered, or the answer has not come through. */
static bool comes_again(struct zcuts_world *w, const struct zcuts_io *zio)
{
	const struct zcuts_zone *z = &w->zone[zio->io.offset_bytes / ZCUTS_ZONE_BYTES];
	uint64_t at = zio->io.offset_bytes % ZCUTS_ZONE_BYTES / SECTOR_BYTES;

	if (zio->is_out)
		return zio->io.op != BACKEND_READ && zio->io.op != BACKEND_FLUSH;
	/* A write whose zone was not reset or finished since. */
	return zio->io.op == BACKEND_WRITE && zio->io.result == 0 && zio->value != 0 &&
	       z->value[at] == zio->value && !z->is_resetting && !z->is_finishing && !z->is_full &&
	       prng_one_in(&w->prng, 3);
}

static void again(struct zcuts_world *w, const struct zcuts_io *was, unsigned tag)
{
	struct zcuts_io *zio = &judge.io[tag];
	bool is_append = was->io.op == BACKEND_ZONE_APPEND;
	int ret;

	memcpy(zio->buf, was->buf, CUTS_IO_BYTES);
	zcuts_rig_submit(&judge, zio, was->io.op, was->io.zone, was->asked_bytes,
			 was->io.length_bytes);
	ret = zcuts_rig_wait(&judge, zio);
	w->redone_nr++;
	if (ret < 0)
		zcuts_fail(w, "sent again, %s at %llu fails with %d", backend_op_name(was->io.op),
			   (unsigned long long)was->asked_bytes, ret);
	/* Two of one length may have changed places. */
	else if (is_append)
		for (uint32_t i = 0; i < was->io.length_bytes / SECTOR_BYTES; i++)
			w->zone[zio->io.offset_bytes / ZCUTS_ZONE_BYTES]
				.value[zio->io.offset_bytes % ZCUTS_ZONE_BYTES / SECTOR_BYTES + i] =
				was->value + i;
}

/* Writes before actions: a zone that is being reset takes none. In between by any order and tag. */
static void send_again(struct zcuts_world *w, const struct zcuts_rig *rig, bool is_action)
{
	unsigned first = (unsigned)prng_below(&w->prng, ZCUTS_DEPTH);

	for (unsigned i = 0; i < ZCUTS_DEPTH && !w->words[0]; i++) {
		const struct zcuts_io *was = &rig->io[(first + i) % ZCUTS_DEPTH];

		if ((was->io.op == BACKEND_ZONE_MANAGE) == is_action && comes_again(w, was))
			again(w, was, (unsigned)prng_below(&w->prng, ZCUTS_DEPTH));
	}
}

static bool judge_life(struct zcuts_world *w, const struct zcuts_rig *rig)
{
	struct zcuts_zone before[ZCUTS_ZONES];

	/* The guest that lives on knows nothing of this. */
	memcpy(before, w->zone, sizeof(before));
	send_again(w, rig, false);
	for (uint32_t i = ZCUTS_CONVENTIONAL; i < ZCUTS_ZONES && !w->words[0]; i++) {
		bool is_acted = w->zone[i].is_resetting || w->zone[i].is_finishing;

		if (!is_acted && written(i) != w->zone[i].issued)
			zcuts_fail(w, "after a death zone %u is written to %llu, not %llu", i,
				   (unsigned long long)written(i),
				   (unsigned long long)w->zone[i].issued);
		else if (!is_acted)
			judge_content(w, i, w->zone[i].issued, "after a death");
	}
	send_again(w, rig, true);
	for (uint32_t i = ZCUTS_CONVENTIONAL; i < ZCUTS_ZONES && !w->words[0]; i++)
		if (w->zone[i].is_resetting)
			judge_content(w, i, 0, "reset after a death");
		else if (w->zone[i].is_finishing && !is_full(i))
			zcuts_fail(w, "zone %u was finished after a death, and is not full", i);
	memcpy(w->zone, before, sizeof(before));
	return w->words[0] == '\0';
}

/* What was owed still is. */
static bool judge_owed(struct zcuts_world *w)
{
	struct zcuts_io *zio = &judge.io[0];

	if (!backend_is_owed(judge.device))
		return !w->owes || zcuts_fail(w, "a FLUSH has failed, and nothing is owed");
	zcuts_rig_submit(&judge, zio, BACKEND_FLUSH, 0, 0, 0);
	return zcuts_rig_wait(&judge, zio) < 0 || zcuts_fail(w, "a FLUSH succeeds that is owed");
}

static bool judge_death(struct zcuts_world *w, const struct zcuts_rig *rig)
{
	int fd = cuts_copy_memory(backend_stored_fd(rig->device, 0));
	int owed_fd = cuts_copy_memory(rig->owed_fd);
	bool is_lost = zcuts_device(rig)->is_lost;
	bool good;

	w->death_nr++;
	disk_copy_of_dead(&w->prng, w->disk, w->left);
	good = open_left(w, fd, owed_fd);
	/* Nobody has looked for the loss yet: the next process has the table alone. */
	is_lost = is_lost || (good && backend_was_owed(judge.device->child));
	good = good && judge_owed(w) && (is_lost ? judge_zones(w) : judge_life(w, rig)) &&
	       close_left(w);
	close(fd);
	close(owed_fd);
	return good;
}

bool zcuts_judge(struct zcuts_world *w, const struct zcuts_rig *rig, bool is_death)
{
	w->cut_nr++;
	if (is_death)
		return judge_death(w, rig);
	disk_cut(w->disk, w->left);
	return judge_cut_zones(w);
}

bool zcuts_judge_closed(struct zcuts_world *w)
{
	for (uint32_t i = ZCUTS_CONVENTIONAL; i < ZCUTS_ZONES; i++)
		w->zone[i].durable = w->zone[i].issued;
	disk_cut(w->disk, w->left);
	return judge_cut_zones(w);
}
