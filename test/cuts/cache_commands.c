/*
 * cache_commands [--only TEXT]: what can be asked of a cache while it serves (cache_control.h), one
 * thing at a time, over made-up disks that count what is read and end requests when they are told
 * to. Prints TAP.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/cache_control.h"
#include "test/conformance/tap.h"
#include "test/cuts/cache_rig.h"

#define BLOCK 16384u
#define UNIT CACHE_UNIT_BYTES
#define ORIGIN_BYTES (64 * BLOCK)
#define SETTLE_TURNS 4000u
/* Of what the origin is changed to behind the cache's back. */
#define VALUE_LATER 50u
#define VALUE_WRITTEN 60u

static struct prng prng;
static struct cache_rig rig;
static struct cache_config config;
static struct disk *origin, *store;

/* ---- the rig ---- */

static void put_value(uint32_t value, uint64_t at, uint64_t bytes)
{
	uint8_t sector[SECTOR_BYTES];

	for (uint64_t i = 0; i < bytes; i += SECTOR_BYTES) {
		content_fill(sector, value, (at + i) / SECTOR_BYTES);
		disk_put(origin, at + i, sector, SECTOR_BYTES);
	}
}

static bool open_cache(void)
{
	int ret;

	cache_rig_init(&rig, 0);
	rig.origin = origin;
	rig.store = store;
	rig.config = &config;
	rig.depth = 16;
	ret = cache_rig_open(&rig, 0);
	EXPECT(ret == 0, "%d %s", ret, rig.words);
	return ret == 0;
}

/* slots: blocks that the store has room for. */
static bool open_new(int mode, unsigned slots, uint64_t origin_bytes)
{
	config = (struct cache_config){ .block_bytes = BLOCK,
					.mode = mode,
					.dirty_max = 0.5,
					.commit_ns = 2 * NS_PER_MS,
					.clean_ns = 3600 * NS_PER_SEC };
	prng_init(&prng, 1);
	origin = disk_new(&prng, origin_bytes, false, false);
	store = disk_new(&prng, (uint64_t)slots * BLOCK + 2 * BLOCK, false, false);
	memset(store->now, 0, store->capacity);
	memset(store->durable, 0, store->capacity);
	put_value(VALUE_IMAGE, 0, origin_bytes);
	return open_cache();
}

static void end_all(void)
{
	EXPECT(cache_rig_close(&rig) == 0, "it cannot be closed");
	disk_free(origin);
	disk_free(store);
}

static struct cache_device *cache(void)
{
	return rig.device->priv;
}

static void turn(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		reactor_turn(rig.reactor, false);
		reactor_turn(rig.home, false);
	}
}

static void settle(void)
{
	for (unsigned i = 0; i < SETTLE_TURNS; i++) {
		turn(1);
		cache_rig_end_one(&rig, &prng);
	}
}

/* All that is under way at this disk ends, and nothing at the other one. */
static void end_those_of(struct disk *d)
{
	while (disk_end_one(d))
		;
}

static bool read_is(uint64_t at, uint32_t bytes, uint32_t value)
{
	if (cache_rig_do(&rig, BACKEND_READ, at, bytes) != 0)
		return false;
	for (uint32_t i = 0; i < bytes; i += SECTOR_BYTES)
		if (content_value(rig.io[0].buf + i, (at + i) / SECTOR_BYTES) != value)
			return false;
	return true;
}

static bool write_value(uint64_t at, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += SECTOR_BYTES)
		content_fill(rig.io[0].buf + i, VALUE_WRITTEN, (at + i) / SECTOR_BYTES);
	return cache_rig_do(&rig, BACKEND_WRITE, at, bytes) == 0;
}

static int run_job(enum backend_cache_op op, uint64_t at, uint64_t bytes)
{
	int ret = cache_rig_job(&rig, op, at, bytes);

	return ret < 0 ? ret : cache_rig_wait_job(&rig);
}

/* READs of a range, in pieces: all of them are hits, and the origin sees none. */
static void expect_hits(uint64_t at, uint64_t bytes)
{
	uint64_t before = origin->read_bytes, misses = cache()->stats.misses;

	for (uint64_t i = 0; i < bytes; i += UNIT)
		EXPECT(read_is(at + i, (uint32_t)MIN((uint64_t)UNIT, bytes - i), VALUE_IMAGE),
		       "wrong at %llu", (unsigned long long)(at + i));
	EXPECT(origin->read_bytes == before && cache()->stats.misses == misses,
	       "the origin was asked for %llu bytes",
	       (unsigned long long)(origin->read_bytes - before));
}

/* ---- warm ---- */

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
		/* The write is the first one. */
		if (origin->flight_nr > 1)
			for (unsigned k = 1; k < DISK_FLIGHT_NR; k++)
				if (origin->flight[k].is_used) {
					struct disk_flight *f = &origin->flight[k];

					disk_get(origin, f->at, f->io->buf, f->bytes);
					f->is_used = false;
					origin->flight_nr--;
					backend_io_complete(f->io, 0);
				}
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

/* ---- drop ---- */

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
	EXPECT(run_job(BACKEND_CACHE_DROP, 0, 0) == 0, "%s", rig.job.words);
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

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
	{ "warmed, all reads are hits", check_warm },
	{ "a warm skips what is there", check_warm_skips },
	{ "a warm of a range", check_warm_range },
	{ "a warm ends when the cache is full", check_warm_full },
	{ "a warm that is cancelled", check_warm_cancelled },
	{ "a warm stands back for requests", check_warm_stands_back },
	{ "a warm passes over what is being changed", check_warm_passes_over },
	{ "a warm of an origin that fails", check_warm_fails },
	{ "dropped, reads are misses", check_drop },
	{ "what was dropped does not come back", check_drop_is_durable },
	{ "a drop keeps dirty blocks", check_drop_dirty },
	{ "a drop while fills are under way", check_drop_with_fills },
	{ "a drop whose index cannot be written", check_drop_fails },
	{ "what is refused", check_refusals },
	{ "a device that rests", check_rest },
};

int main(int argc, char **argv)
{
	tap_init(argv[0], argc > 2 ? argv[2] : NULL, 0);
	log_init(getenv("CUTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	for (unsigned i = 0; i < ARRAY_SIZE(checks); i++) {
		if (!tap_begin("%s", checks[i].name))
			continue;
		checks[i].run();
		tap_end();
	}
	return tap_finish();
}
