/* A cache stands aside while a snapshot of its origin is created or applied. Prints TAP. */
#include <errno.h>

#include "test/cuts/cache_case.h"

static bool origin_is(uint64_t at, uint64_t bytes, uint32_t value)
{
	uint8_t sector[SECTOR_BYTES];

	for (uint64_t i = at; i < at + bytes; i += SECTOR_BYTES) {
		disk_get(origin, i, sector, sizeof(sector));
		if (content_value(sector, i / SECTOR_BYTES) != value)
			return false;
	}
	return true;
}

static bool aside(enum backend_cache_op op)
{
	EXPECT(run_job(op, 0, 0) == 0, "%s", rig.job.words);
	return rig.job_ret == 0;
}

static void come_back(void)
{
	EXPECT(run_job(BACKEND_CACHE_BACK, 0, 0) == 0, "%s", rig.job.words);
	EXPECT(!cache()->is_aside && !cache()->keeps_nothing, "it is aside");
}

static void check_yield(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	EXPECT(write_value(2 * BLOCK + UNIT, UNIT) && write_value(40 * BLOCK, 2 * BLOCK));
	EXPECT(origin_is(40 * BLOCK, 2 * BLOCK, VALUE_IMAGE), "it is not writeback");
	aside(BACKEND_CACHE_YIELD);
	EXPECT(cache()->ix->dirty_nr == 0, "%u blocks are dirty", cache()->ix->dirty_nr);
	EXPECT(origin_is(2 * BLOCK + UNIT, UNIT, VALUE_WRITTEN) &&
		       origin_is(40 * BLOCK, 2 * BLOCK, VALUE_WRITTEN),
	       "the origin does not have what was written");
	/* What is kept is of use: of a create the bytes stay. */
	expect_hits(3 * BLOCK, 10 * BLOCK);
	/* To a block that is here, in part and not; and to one that is not. */
	EXPECT(write_value(3 * BLOCK + 512, UNIT) && write_value(30 * BLOCK, BLOCK));
	EXPECT(cache()->ix->dirty_nr == 0, "%u blocks are dirty", cache()->ix->dirty_nr);
	EXPECT(origin_is(3 * BLOCK + 512, UNIT, VALUE_WRITTEN) &&
		       origin_is(30 * BLOCK, BLOCK, VALUE_WRITTEN),
	       "the origin does not have what is written meanwhile");
	EXPECT(read_is(3 * BLOCK + 512, UNIT, VALUE_WRITTEN) &&
		       read_is(3 * BLOCK, 512, VALUE_IMAGE) &&
		       read_is(30 * BLOCK, BLOCK, VALUE_WRITTEN),
	       "wrong bytes");
	come_back();
	EXPECT(write_value(50 * BLOCK, BLOCK) && origin_is(50 * BLOCK, BLOCK, VALUE_IMAGE),
	       "it is writeback no more");
	end_all();
}

/* One that is acknowledged while the snapshot is made, and flushed, would not be in it. */
static void check_yield_waits_for_a_write(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	settle();
	for (uint32_t i = 0; i < BLOCK; i += SECTOR_BYTES)
		content_fill(rig.io[1].buf + i, VALUE_WRITTEN, (10 * BLOCK + i) / SECTOR_BYTES);
	cache_rig_submit(&rig, &rig.io[1], BACKEND_WRITE, 0, 10 * BLOCK, BLOCK);
	turn(5);
	EXPECT(store->flight_nr == 1 && rig.io[1].is_out, "it is not on its way to the store");
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_YIELD, 0, 0) == 0, "%s", rig.job.words);
	turn(500);
	EXPECT(rig.is_job_out, "it has not waited for the write");
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	EXPECT(!rig.io[1].is_out && origin_is(10 * BLOCK, BLOCK, VALUE_WRITTEN),
	       "the origin does not have it");
	come_back();
	end_all();
}

/* A write to a block that is dirty goes behind those of before. */
static void check_write_meets_dirty(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	EXPECT(write_value(10 * BLOCK, BLOCK));
	settle();
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_YIELD, 0, 0) == 0, "%s", rig.job.words);
	turn(5);
	for (uint32_t i = 0; i < UNIT; i += SECTOR_BYTES)
		content_fill(rig.io[1].buf + i, VALUE_LATER, (10 * BLOCK + i) / SECTOR_BYTES);
	cache_rig_submit(&rig, &rig.io[1], BACKEND_WRITE, 0, 10 * BLOCK, UNIT);
	turn(5);
	EXPECT(cache()->is_aside && cache()->ix->dirty_nr == 1, "it is not under way");
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	settle();
	EXPECT(!rig.io[1].is_out && rig.io[1].io.result == 0, "the write has not ended");
	EXPECT(origin_is(10 * BLOCK, UNIT, VALUE_LATER), "the origin has old bytes");
	EXPECT(origin_is(10 * BLOCK + UNIT, BLOCK - UNIT, VALUE_WRITTEN), "and lost others");
	EXPECT(read_is(10 * BLOCK, UNIT, VALUE_LATER), "an old byte");
	come_back();
	end_all();
}

/* Applied: other bytes are below. */
static void check_empty(int mode)
{
	if (!open_new(mode, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	if (mode != CACHE_READTHROUGH)
		EXPECT(write_value(30 * BLOCK, BLOCK));
	settle();
	aside(BACKEND_CACHE_EMPTY);
	EXPECT(cache()->ix->dirty_nr == 0, "%u blocks are dirty", cache()->ix->dirty_nr);
	/* What is read, and written, until the snapshot is applied. */
	EXPECT(read_is(0, BLOCK, VALUE_IMAGE) && write_value(5 * BLOCK, BLOCK));
	EXPECT(read_is(5 * BLOCK, BLOCK, VALUE_WRITTEN));
	settle();
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	for (unsigned block = 0; block < 40; block++)
		EXPECT(read_is(block * BLOCK, BLOCK, VALUE_LATER), "an old byte of block %u",
		       block);
	come_back();
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are kept", cache()->ix->used_nr);
	EXPECT(read_is(0, BLOCK, VALUE_LATER) && read_is(30 * BLOCK, BLOCK, VALUE_LATER));
	settle();
	EXPECT(cache()->ix->used_nr == 2, "%u blocks are kept, not two", cache()->ix->used_nr);
	EXPECT(cache_rig_close(&rig) == 0, "it cannot be closed");
	EXPECT(origin_is(0, ORIGIN_BYTES, VALUE_LATER), "a byte of before is written over it");
	disk_free(origin);
	disk_free(store);
}

static void check_empty_readthrough(void)
{
	check_empty(CACHE_READTHROUGH);
}

static void check_empty_writethrough(void)
{
	check_empty(CACHE_WRITETHROUGH);
}

static void check_empty_writeback(void)
{
	check_empty(CACHE_WRITEBACK);
}

/* The power is cut when the snapshot has just been applied. */
static void check_empty_is_durable(void)
{
	struct disk *left;

	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	left = disk_new(&prng, store->capacity, false, true);
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	EXPECT(cache()->ix->slot[0].named != 0, "nothing is named, so nothing is shown");
	aside(BACKEND_CACHE_EMPTY);
	EXPECT(read_is(0, BLOCK, VALUE_IMAGE) && write_value(5 * BLOCK, BLOCK));
	settle();
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	disk_cut(store, left);
	come_back();
	EXPECT(cache_rig_close(&rig) == 0);
	disk_free(store);
	store = left;
	if (!open_cache())
		return;
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are back", cache()->ix->used_nr);
	EXPECT(read_is(0, BLOCK, VALUE_LATER) && read_is(5 * BLOCK, BLOCK, VALUE_LATER),
	       "an old byte");
	end_all();
}

/* What they have read before is not kept. */
static void check_empty_with_fills(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	for (unsigned tag = 1; tag < 8; tag++)
		cache_rig_submit(&rig, &rig.io[tag], BACKEND_READ, 0, tag * BLOCK, 2 * UNIT);
	while (store->flight_nr < 3) {
		disk_end_one(origin);
		turn(1);
	}
	aside(BACKEND_CACHE_EMPTY);
	settle();
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	come_back();
	for (unsigned tag = 1; tag < 8; tag++)
		EXPECT(read_is(tag * BLOCK, 2 * UNIT, VALUE_LATER), "an old byte of block %u", tag);
	end_all();
}

/* Its slot stays, for a READ is at the store, and a write would find it. */
static void check_empty_with_a_hit(void)
{
	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	cache_rig_submit(&rig, &rig.io[1], BACKEND_READ, 0, 3 * BLOCK, BLOCK);
	EXPECT(store->flight_nr == 1 && rig.io[1].is_out, "it is not at the store");
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_EMPTY, 0, 0) == 0, "%s", rig.job.words);
	for (unsigned i = 0; i < SETTLE_TURNS && rig.is_job_out; i++) {
		end_but_first(store);
		turn(1);
	}
	EXPECT(!rig.is_job_out && rig.job_ret == 0 && rig.io[1].is_out, "%s", rig.job.words);
	EXPECT(cache()->ix->used_nr == 1, "%u slots stay, not one", cache()->ix->used_nr);
	EXPECT(write_value(3 * BLOCK, BLOCK));
	settle();
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	come_back();
	EXPECT(read_is(3 * BLOCK, BLOCK, VALUE_LATER), "an old byte");
	end_all();
}

static void check_commands_meanwhile(void)
{
	static const enum backend_cache_op ops[] = { BACKEND_CACHE_WARM, BACKEND_CACHE_DROP,
						     BACKEND_CACHE_YIELD, BACKEND_CACHE_EMPTY };

	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	aside(BACKEND_CACHE_YIELD);
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		EXPECT(run_job(ops[i], 0, 0) == -EBUSY && strstr(rig.job.words, "snapshot"), "%s",
		       rig.job.words);
	come_back();
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, BLOCK) == 0, "%s", rig.job.words);
	end_all();
}

/* As before: what comes goes to the store, and nobody's request has failed. */
static void check_origin_fails(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	EXPECT(write_value(10 * BLOCK, BLOCK));
	origin->error_one_in = 1;
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_YIELD, 0, 0) == 0, "%s", rig.job.words);
	turn(5);
	cache_rig_submit(&rig, &rig.io[1], BACKEND_WRITE, 0, 10 * BLOCK, UNIT);
	EXPECT(cache_rig_wait_job(&rig) == -EIO && strstr(rig.job.words, "`backend`"), "%s",
	       rig.job.words);
	settle();
	EXPECT(!rig.io[1].is_out && rig.io[1].io.result == 0, "a write fails, or never ends");
	EXPECT(!cache()->is_aside, "it is aside");
	EXPECT(write_value(20 * BLOCK, BLOCK), "a write fails");
	origin->error_one_in = 0;
	aside(BACKEND_CACHE_YIELD);
	EXPECT(origin_is(20 * BLOCK, BLOCK, VALUE_WRITTEN), "the origin does not have it");
	come_back();
	end_all();
}

static void check_cancel(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	EXPECT(write_value(10 * BLOCK, BLOCK));
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_YIELD, 0, 0) == 0, "%s", rig.job.words);
	turn(5);
	backend_cache_cancel(&rig.job);
	EXPECT(cache_rig_wait_job(&rig) == -ECANCELED, "%d", rig.job_ret);
	EXPECT(!cache()->is_aside, "it is aside");
	aside(BACKEND_CACHE_EMPTY);
	/* To come back is not cancelled. */
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_BACK, 0, 0) == 0, "%s", rig.job.words);
	backend_cache_cancel(&rig.job);
	EXPECT(cache_rig_wait_job(&rig) == 0 && !cache()->is_aside, "it is aside");
	end_all();
}

/* Until the store's header says that it counts no more its index would be believed after a cut. */
static void check_store_is_off(void)
{
	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	store->error_one_in = 1;
	EXPECT(read_is(0, BLOCK, VALUE_IMAGE), "wrong bytes");
	store->error_one_in = 0;
	EXPECT(cache()->is_off, "it is not off");
	aside(BACKEND_CACHE_EMPTY);
	EXPECT(cache()->is_wiped, "the store's header does not say so");
	come_back();
	aside(BACKEND_CACHE_YIELD);
	come_back();
	end_all();
}

int main(int argc, char **argv)
{
	static const struct cache_check checks[] = {
		{ "before a create the origin gets all, and what comes", check_yield },
		{ "... also what is on its way to the store", check_yield_waits_for_a_write },
		{ "a write to a dirty block waits", check_write_meets_dirty },
		{ "nothing is kept while one is applied: readthrough", check_empty_readthrough },
		{ "... writethrough", check_empty_writethrough },
		{ "... writeback", check_empty_writeback },
		{ "... and nothing comes back after a cut", check_empty_is_durable },
		{ "... nor from fills under way", check_empty_with_fills },
		{ "... nor from a slot that is being read", check_empty_with_a_hit },
		{ "no command meanwhile", check_commands_meanwhile },
		{ "the origin fails", check_origin_fails },
		{ "cancelled", check_cancel },
		{ "the store has failed", check_store_is_off },
	};

	return run_checks(argc, argv, checks, ARRAY_SIZE(checks));
}
