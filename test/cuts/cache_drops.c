/* A cache that serves forgets its clean blocks. Prints TAP. */
#include <errno.h>

#include "test/cuts/cache_case.h"

static void check_drop(void)
{
	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	/* Somebody else writes to the origin. */
	put_value(VALUE_LATER, 0, 20 * BLOCK);
	EXPECT(read_is(0, UNIT, VALUE_IMAGE), "it was not in the cache");
	EXPECT(run_job(BACKEND_CACHE_DROP, 0, 0) == 0, "%s", rig.job.words);
	EXPECT(rig.job.dropped_bytes == 20 * BLOCK && rig.job.dirty_bytes == 0, "%llu dropped",
	       (unsigned long long)rig.job.dropped_bytes);
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are left", cache()->ix->used_nr);
	origin->read_bytes = 0;
	EXPECT(read_is(0, BLOCK, VALUE_LATER), "an old byte");
	EXPECT(origin->read_bytes == BLOCK, "it was no miss");
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0 && !rig.job.is_full, "%s", rig.job.words);
	EXPECT(read_is(10 * BLOCK, BLOCK, VALUE_LATER), "an old byte");
	end_all();
}

/* The store has forgotten it before the end of the command: power is cut right then. */
static void check_drop_is_durable(void)
{
	struct disk *left;

	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	left = disk_new(&prng, store->capacity, false, true);
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	EXPECT(cache()->ix->slot[0].named != 0, "nothing is named, so nothing is shown");
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_DROP, 0, 0) == 0);
	turn(500);
	EXPECT(rig.is_job_out, "it has ended before the store has");
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	disk_cut(store, left);
	EXPECT(cache_rig_close(&rig) == 0);
	disk_free(store);
	store = left;
	if (!open_cache())
		return;
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are back", cache()->ix->used_nr);
	EXPECT(read_is(0, BLOCK, VALUE_LATER), "an old byte");
	end_all();
}

/* A commit that had begun before it names what it forgets. */
static void check_drop_in_commit(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	while (cache()->commit.phase == CACHE_COMMIT_NONE)
		turn(1);
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_DROP, 0, 0) == 0);
	turn(10);
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are left", cache()->ix->used_nr);
	end_all();
}

/* What comes while it is under way stays. */
static void check_drop_and_reads(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_DROP, 0, 0) == 0);
	turn(5);
	EXPECT(store->flight_nr == 1 && rig.is_job_out, "its commit has not begun");
	cache_rig_submit(&rig, &rig.io[1], BACKEND_READ, 0, 30 * BLOCK, BLOCK);
	while (cache()->stats.filled_bytes < 21 * BLOCK) {
		disk_end_one(origin);
		end_but_first(store);
		turn(1);
	}
	EXPECT(rig.is_job_out && cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	expect_hits(30 * BLOCK, BLOCK);
	EXPECT(cache()->ix->used_nr == 1, "%u blocks are left", cache()->ix->used_nr);
	end_all();
}

static void check_drop_dirty(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	/* A part of a block that is there, and a block of its own. */
	EXPECT(write_value(UNIT, UNIT) && write_value(40 * BLOCK, BLOCK));
	settle();
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	EXPECT(run_job(BACKEND_CACHE_DROP, 0, 0) == 0, "%s", rig.job.words);
	EXPECT(rig.job.dirty_bytes == UNIT + BLOCK, "%llu are dirty",
	       (unsigned long long)rig.job.dirty_bytes);
	EXPECT(rig.job.dropped_bytes == 20 * BLOCK - UNIT, "%llu dropped",
	       (unsigned long long)rig.job.dropped_bytes);
	EXPECT(cache()->ix->used_nr == 2, "%u blocks are left", cache()->ix->used_nr);
	EXPECT(read_is(0, UNIT, VALUE_LATER) && read_is(2 * UNIT, UNIT, VALUE_LATER),
	       "an old byte");
	EXPECT(read_is(UNIT, UNIT, VALUE_WRITTEN) && read_is(40 * BLOCK, BLOCK, VALUE_WRITTEN),
	       "a written byte is lost");
	EXPECT(cache_rig_close(&rig) == 0, "it cannot be closed");
	for (uint64_t at = 40 * BLOCK; at < 41 * BLOCK; at += SECTOR_BYTES) {
		uint8_t sector[SECTOR_BYTES];

		disk_get(origin, at, sector, sizeof(sector));
		EXPECT(content_value(sector, at / SECTOR_BYTES) == VALUE_WRITTEN,
		       "the origin does not have it");
	}
	if (!open_cache())
		return;
	EXPECT(read_is(UNIT, UNIT, VALUE_WRITTEN) && read_is(0, UNIT, VALUE_LATER));
	end_all();
}

/* What fills have read before the drop is not used behind it. */
static void check_drop_with_fills(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	for (unsigned tag = 1; tag < 8; tag++)
		cache_rig_submit(&rig, &rig.io[tag], BACKEND_READ, 0, tag * BLOCK, 2 * UNIT);
	/* Of some the origin has answered, and the store is being written. */
	while (store->flight_nr < 3) {
		disk_end_one(origin);
		turn(1);
	}
	EXPECT(origin->flight_nr > 0, "none is at the origin any more");
	put_value(VALUE_LATER, 0, ORIGIN_BYTES);
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_DROP, 0, 0) == 0);
	turn(20);
	end_those_of(origin);
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	settle();
	EXPECT(rig.out_nr == 0, "a READ is forgotten");
	origin->read_bytes = 0;
	for (unsigned tag = 1; tag < 8; tag++)
		EXPECT(read_is(tag * BLOCK, 2 * UNIT, VALUE_LATER), "an old byte of block %u", tag);
	EXPECT(origin->read_bytes == 7 * 2 * UNIT, "%llu bytes were read",
	       (unsigned long long)origin->read_bytes);
	end_all();
}

static void check_drop_fails(void)
{
	if (!open_new(CACHE_WRITEBACK, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 20 * BLOCK) == 0, "%s", rig.job.words);
	settle();
	store->error_one_in = 1;
	EXPECT(run_job(BACKEND_CACHE_DROP, 0, 0) < 0 && strstr(rig.job.words, "index"), "%s",
	       rig.job.words);
	store->error_one_in = 0;
	EXPECT(read_is(0, BLOCK, VALUE_IMAGE), "wrong bytes");
	EXPECT(run_job(BACKEND_CACHE_DROP, 0, 0) == 0, "%s", rig.job.words);
	end_all();
}

int main(int argc, char **argv)
{
	static const struct cache_check checks[] = {
		{ "dropped, reads are misses", check_drop },
		{ "what was dropped does not come back", check_drop_is_durable },
		{ "a drop while the index is written", check_drop_in_commit },
		{ "what is read during a drop stays", check_drop_and_reads },
		{ "a drop keeps dirty blocks", check_drop_dirty },
		{ "a drop while fills are under way", check_drop_with_fills },
		{ "a drop whose index cannot be written", check_drop_fails },
	};

	return run_checks(argc, argv, checks, ARRAY_SIZE(checks));
}
