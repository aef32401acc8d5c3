/* A range is fetched ahead into a cache that serves; and what commands to it are refused. Prints
 * TAP. */
#include <errno.h>

#include "test/cuts/cache_case.h"

static void check_warm(void)
{
	uint64_t bytes = ORIGIN_BYTES - 5 * SECTOR_BYTES;

	if (!open_new(CACHE_READTHROUGH, 80, bytes))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0, "%s", rig.job.words);
	EXPECT(rig.job.fetched_bytes == bytes && rig.job.present_bytes == 0 &&
		       rig.job.total_bytes == bytes && !rig.job.is_full,
	       "%llu fetched", (unsigned long long)rig.job.fetched_bytes);
	EXPECT(origin->read_bytes == bytes, "more was read than there is");
	expect_hits(0, bytes);
	/* It is there after a restart, too. */
	EXPECT(cache_rig_close(&rig) == 0);
	if (!open_cache())
		return;
	expect_hits(0, bytes);
	end_all();
}

static void check_warm_skips(void)
{
	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(read_is(2 * UNIT, UNIT, VALUE_IMAGE) && read_is(5 * BLOCK, 2 * BLOCK, VALUE_IMAGE));
	EXPECT(write_value(9 * BLOCK, UNIT));
	settle();
	origin->read_bytes = 0;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 10 * BLOCK) == 0, "%s", rig.job.words);
	EXPECT(rig.job.present_bytes == 2 * UNIT + 2 * BLOCK, "%llu were there",
	       (unsigned long long)rig.job.present_bytes);
	EXPECT(rig.job.fetched_bytes == 8 * BLOCK - 2 * UNIT &&
		       origin->read_bytes == rig.job.fetched_bytes,
	       "%llu fetched", (unsigned long long)rig.job.fetched_bytes);
	/* Once more there is nothing to do. */
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 10 * BLOCK) == 0 &&
	       rig.job.present_bytes == 10 * BLOCK && rig.job.fetched_bytes == 0);
	EXPECT(read_is(9 * BLOCK, UNIT, VALUE_WRITTEN), "a written block was fetched over");
	end_all();
}

/* Units that a range touches, and no more. */
static void check_warm_range(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 3 * UNIT + 1000, UNIT) == 0, "%s", rig.job.words);
	EXPECT(rig.job.total_bytes == 2 * UNIT && rig.job.fetched_bytes == 2 * UNIT &&
		       origin->read_bytes == 2 * UNIT,
	       "%llu fetched", (unsigned long long)rig.job.fetched_bytes);
	expect_hits(3 * UNIT, 2 * UNIT);
	EXPECT(run_job(BACKEND_CACHE_WARM, ORIGIN_BYTES - 1, 1) == 0 &&
	       rig.job.fetched_bytes == UNIT);
	end_all();
}

/* What was warmed is not given up for what comes behind it, nor is what was there before. */
static void check_warm_full(void)
{
	uint64_t fetched;

	if (!open_new(CACHE_READTHROUGH, 20, ORIGIN_BYTES))
		return;
	EXPECT(read_is(60 * BLOCK, BLOCK, VALUE_IMAGE));
	settle();
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0, "%s", rig.job.words);
	fetched = rig.job.fetched_bytes;
	EXPECT(rig.job.is_full, "it is not full");
	EXPECT(fetched >= 12 * BLOCK && fetched < 20 * BLOCK, "%llu fetched",
	       (unsigned long long)fetched);
	EXPECT(cache()->stats.evictions == 0, "blocks were given up");
	expect_hits(0, fetched);
	expect_hits(60 * BLOCK, BLOCK);
	/* Another range finds no room, and takes none. */
	EXPECT(run_job(BACKEND_CACHE_WARM, 30 * BLOCK, 0) == 0 && rig.job.is_full &&
	       rig.job.fetched_bytes == 0);
	settle();
	EXPECT(cache()->stats.evictions == 0, "blocks were given up");
	expect_hits(0, fetched);
	end_all();
}

/* Blocks that were not asked for go first. */
static void check_warm_stays(void)
{
	if (!open_new(CACHE_READTHROUGH, 20, ORIGIN_BYTES))
		return;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 8 * BLOCK) == 0, "%s", rig.job.words);
	EXPECT(read_is(59 * BLOCK, 4 * BLOCK, VALUE_IMAGE));
	settle();
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0 && rig.job.is_full, "%s", rig.job.words);
	for (unsigned i = 0; cache()->stats.evictions == 0 && i < 8; i++) {
		EXPECT(read_is((40 + i) * BLOCK, UNIT, VALUE_IMAGE));
		settle();
	}
	EXPECT(cache()->stats.evictions > 0 && cache()->stats.evictions <= 4, "%llu are given up",
	       (unsigned long long)cache()->stats.evictions);
	expect_hits(0, rig.job.present_bytes + rig.job.fetched_bytes);
	end_all();
}

static void check_warm_cancelled(void)
{
	uint64_t read, fetched;

	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_WARM, 0, 0) == 0);
	while (rig.job.fetched_bytes < 10 * BLOCK) {
		turn(1);
		cache_rig_end_one(&rig, &prng);
	}
	backend_cache_cancel(&rig.job);
	/* Though nothing ends at the disks. */
	turn(300);
	EXPECT(!rig.is_job_out && rig.job_ret == -ECANCELED, "it goes on");
	EXPECT(strstr(rig.job.words, "cancelled") != NULL, "%s", rig.job.words);
	fetched = rig.job.fetched_bytes;
	read = origin->read_bytes;
	EXPECT(fetched < ORIGIN_BYTES && read <= fetched + CACHE_WARM_NR * BLOCK, "%llu read",
	       (unsigned long long)read);
	settle();
	EXPECT(origin->read_bytes == read, "more is read");
	expect_hits(0, 8 * BLOCK);
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0 && rig.job.fetched_bytes > 0, "%s",
	       rig.job.words);
	EXPECT(origin->read_bytes == ORIGIN_BYTES, "something was fetched twice");
	expect_hits(0, ORIGIN_BYTES);
	end_all();
}

/* Requests go first: while they fill, it has one fill under way. */
static void check_warm_stands_back(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_WARM, 0, 0) == 0);
	turn(10);
	EXPECT(cache()->control.under_way == CACHE_WARM_NR, "%u under way",
	       cache()->control.under_way);
	for (unsigned tag = 0; tag < 12; tag++)
		cache_rig_submit(&rig, &rig.io[tag], BACKEND_READ, 0, (40 + tag) * BLOCK, UNIT);
	EXPECT(rig.out_nr == 12 && cache()->stats.passed_by == 0, "no fill is left for them");
	while (cache()->control.under_way > 1) {
		turn(1);
		disk_end_one(origin);
		disk_end_one(store);
	}
	for (unsigned i = 0; i < 500 && cache()->q->nr[CACHE_OWN_FILL] > 1; i++) {
		EXPECT(cache()->control.under_way <= 1 ||
			       cache()->q->nr[CACHE_OWN_FILL] == cache()->control.under_way,
		       "%u of %u are not for requests", cache()->control.under_way,
		       cache()->q->nr[CACHE_OWN_FILL]);
		turn(1);
		cache_rig_end_one(&rig, &prng);
	}
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	settle();
	expect_hits(0, ORIGIN_BYTES);
	end_all();
}

/* A write that does not end keeps its block; the others are fetched. */
static void check_warm_passes_over(void)
{
	unsigned i = 0;

	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	cache_rig_submit(&rig, &rig.io[1], BACKEND_WRITE, 0, 3 * BLOCK, UNIT);
	turn(5);
	EXPECT(rig.out_nr == 1 && origin->flight_nr == 1);
	for (unsigned k = 0; k < DISK_FLIGHT_NR; k++)
		EXPECT(!origin->flight[k].is_used || origin->flight[k].op == BACKEND_WRITE);
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_WARM, 0, 8 * BLOCK) == 0);
	for (; rig.is_job_out && i < 20000; i++) {
		turn(1);
		disk_end_one(store);
		end_but_first(origin); /* that is the write */
	}
	EXPECT(!rig.is_job_out && rig.job_ret == 0, "it waits for ever");
	EXPECT(rig.job.passed_bytes == BLOCK && rig.job.fetched_bytes == 7 * BLOCK,
	       "%llu passed over", (unsigned long long)rig.job.passed_bytes);
	settle();
	EXPECT(rig.out_nr == 0);
	end_all();
}

static void check_warm_fails(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	origin->error_one_in = 1;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) < 0 && strstr(rig.job.words, "cannot be read"),
	       "%s", rig.job.words);
	origin->error_one_in = 0;
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0, "%s", rig.job.words);
	expect_hits(0, ORIGIN_BYTES);
	end_all();
}

/* ---- what is refused ---- */

static bool is_refused(enum backend_cache_op op, uint64_t at, uint64_t bytes, int err,
		       const char *words)
{
	int ret = cache_rig_job(&rig, op, at, bytes);

	return ret == err && strstr(rig.job.words, words) && !rig.is_job_out;
}

static void check_refusals(void)
{
	struct backend_cache_job other = { .op = BACKEND_CACHE_DROP, .reactor = rig.home };

	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(is_refused(BACKEND_CACHE_WARM, ORIGIN_BYTES, 0, -EINVAL, "smaller --offset"), "%s",
	       rig.job.words);
	EXPECT(is_refused(BACKEND_CACHE_WARM, 4096, ORIGIN_BYTES, -EINVAL, "smaller --length"),
	       "%s", rig.job.words);
	EXPECT(is_refused(BACKEND_CACHE_WARM, 4096, UINT64_MAX, -EINVAL, "smaller --length"), "%s",
	       rig.job.words);
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_WARM, 0, 0) == 0);
	EXPECT(rig.device->ops->cache_ops->begin(rig.device, &other) == -EBUSY &&
		       strstr(other.words, "being warmed"),
	       "%s", other.words);
	EXPECT(cache_rig_wait_job(&rig) == 0, "%s", rig.job.words);
	/* The store fails: the cache is off, and a command under way ends. */
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_DROP, 0, 0) == 0);
	store->error_one_in = 1;
	EXPECT(cache_rig_wait_job(&rig) == -EIO && cache()->is_off, "%s", rig.job.words);
	EXPECT(is_refused(BACKEND_CACHE_DROP, 0, 0, -EIO, "start the device again"), "%s",
	       rig.job.words);
	store->error_one_in = 0;
	settle();
	end_all();
}

/* A device that comes to rest ends it; one that has rested is woken by it. */
static void check_rest(void)
{
	if (!open_new(CACHE_READTHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(cache_rig_job(&rig, BACKEND_CACHE_WARM, 0, 0) == 0);
	turn(5);
	while (!backend_queue_rest(rig.queue)) {
		turn(1);
		cache_rig_end_one(&rig, &prng);
	}
	turn(5);
	EXPECT(!rig.is_job_out && rig.job_ret == -ECANCELED, "it goes on");
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, 0) == 0, "%s", rig.job.words);
	settle();
	EXPECT(cache()->ix->slot[0].named != 0, "what was fetched is never named");
	expect_hits(0, ORIGIN_BYTES);
	end_all();
}

int main(int argc, char **argv)
{
	static const struct cache_check checks[] = {
		{ "warmed, all reads are hits", check_warm },
		{ "a warm skips what is there", check_warm_skips },
		{ "a warm of a range", check_warm_range },
		{ "a warm ends when the cache is full", check_warm_full },
		{ "what was warmed goes last", check_warm_stays },
		{ "a warm that is cancelled", check_warm_cancelled },
		{ "a warm stands back for requests", check_warm_stands_back },
		{ "a warm passes over what is being changed", check_warm_passes_over },
		{ "a warm of an origin that fails", check_warm_fails },
		{ "what is refused", check_refusals },
		{ "a device that rests", check_rest },
	};

	return run_checks(argc, argv, checks, ARRAY_SIZE(checks));
}
