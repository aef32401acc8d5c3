/*
 * What checks of commands to a cache share (storage/cache_control.h): one cache over made-up disks
 * that count what is read and end requests when they are told to. Definitions: for one program.
 */
#ifndef TEST_CUTS_CACHE_CASE_H
#define TEST_CUTS_CACHE_CASE_H

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

static inline void put_value(uint32_t value, uint64_t at, uint64_t bytes)
{
	uint8_t sector[SECTOR_BYTES];

	for (uint64_t i = 0; i < bytes; i += SECTOR_BYTES) {
		content_fill(sector, value, (at + i) / SECTOR_BYTES);
		disk_put(origin, at + i, sector, SECTOR_BYTES);
	}
}

static inline bool open_cache(void)
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
static inline bool open_new(int mode, unsigned slots, uint64_t origin_bytes)
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

static inline void end_all(void)
{
	EXPECT(cache_rig_close(&rig) == 0, "it cannot be closed");
	disk_free(origin);
	disk_free(store);
}

static inline struct cache_device *cache(void)
{
	return rig.device->priv;
}

static inline void turn(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		reactor_turn(rig.reactor, false);
		reactor_turn(rig.home, false);
	}
}

static inline void settle(void)
{
	for (unsigned i = 0; i < SETTLE_TURNS; i++) {
		turn(1);
		cache_rig_end_one(&rig, &prng);
	}
}

/* All that is under way at this disk ends, and nothing at the other one. */
static inline void end_those_of(struct disk *d)
{
	while (disk_end_one(d))
		;
}

/* All but the one that came to it when it had none. */
static inline void end_but_first(struct disk *d)
{
	for (unsigned i = 1; i < DISK_FLIGHT_NR; i++) {
		struct disk_flight *f = &d->flight[i];

		if (!f->is_used)
			continue;
		if (f->op == BACKEND_READ)
			disk_get(d, f->at, f->io->buf, f->bytes);
		else
			disk_put(d, f->at, f->io->buf, f->bytes);
		f->is_used = false;
		d->flight_nr--;
		backend_io_complete(f->io, 0);
	}
}

static inline bool read_is(uint64_t at, uint32_t bytes, uint32_t value)
{
	if (cache_rig_do(&rig, BACKEND_READ, at, bytes) != 0)
		return false;
	for (uint32_t i = 0; i < bytes; i += SECTOR_BYTES)
		if (content_value(rig.io[0].buf + i, (at + i) / SECTOR_BYTES) != value)
			return false;
	return true;
}

static inline bool write_value(uint64_t at, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += SECTOR_BYTES)
		content_fill(rig.io[0].buf + i, VALUE_WRITTEN, (at + i) / SECTOR_BYTES);
	return cache_rig_do(&rig, BACKEND_WRITE, at, bytes) == 0;
}

static inline int run_job(enum backend_cache_op op, uint64_t at, uint64_t bytes)
{
	int ret = cache_rig_job(&rig, op, at, bytes);

	return ret < 0 ? ret : cache_rig_wait_job(&rig);
}

/* READs of a range, in pieces: all of them are hits, and the origin sees none. */
static inline void expect_hits(uint64_t at, uint64_t bytes)
{
	uint64_t before = origin->read_bytes, misses = cache()->stats.misses;

	for (uint64_t i = 0; i < bytes; i += UNIT)
		EXPECT(read_is(at + i, (uint32_t)MIN((uint64_t)UNIT, bytes - i), VALUE_IMAGE),
		       "wrong at %llu", (unsigned long long)(at + i));
	EXPECT(origin->read_bytes == before && cache()->stats.misses == misses,
	       "the origin was asked for %llu bytes",
	       (unsigned long long)(origin->read_bytes - before));
}

struct cache_check {
	const char *name;
	void (*run)(void);
};

/* [--only TEXT]; returns the exit code. */
static inline int run_checks(int argc, char **argv, const struct cache_check *checks, size_t nr)
{
	tap_init(argv[0], argc > 2 ? argv[2] : NULL, 0);
	log_init(getenv("CUTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	if (!getenv("CUTS_LOG"))
		ASSERT(freopen("/dev/null", "w", stderr));
	for (size_t i = 0; i < nr; i++) {
		if (!tap_begin("%s", checks[i].name))
			continue;
		checks[i].run();
		tap_end();
	}
	return tap_finish();
}

#endif
