/*
 * What checks share of a cache whose origin others write while it is away (storage/version.h).
 * Definitions: for one program.
 */
#ifndef TEST_VERSIONS_CACHE_VERSION_CASE_H
#define TEST_VERSIONS_CACHE_VERSION_CASE_H

#include <errno.h>
#include <unistd.h>

#include "filters/cache/cache_store.h"
#include "filters/cache/cache_visit.h"
#include "test/cuts/cache_case.h"

#define WARM_BYTES (20 * BLOCK)
#define DIRTY_BYTES (3 * BLOCK)

/* ---- beginnings and ends ---- */

static inline bool open_kind(enum backend_version_kind kind, int mode)
{
	if (!open_new(mode, 80, ORIGIN_BYTES))
		return false;
	EXPECT(cache_rig_close(&rig) == 0);
	origin->version_kind = kind;
	/* It was none until now: nothing was noted. */
	if (!open_cache())
		return false;
	EXPECT(cache()->stats.moved_bytes == 0);
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, WARM_BYTES) == 0, "%s", rig.job.words);
	settle();
	return true;
}

/* The first blocks are dirty, and flushed, which is to be named. */
static inline bool make_dirty(void)
{
	EXPECT(write_value(0, DIRTY_BYTES), "a WRITE fails");
	EXPECT(cache_rig_do(&rig, BACKEND_FLUSH, 0, 0) == 0, "a FLUSH fails");
	return cache()->ix->dirty_nr > 0;
}

/* In order, with an origin that cannot be written: what is dirty stays so. */
static inline void close_undrained(void)
{
	origin->error_one_in = 1;
	cache_rig_close(&rig);
	origin->error_one_in = 0;
}

static inline void cut_power(void)
{
	struct disk *left_store = disk_new(&prng, store->capacity, false, true);
	struct disk *left_origin = disk_new(&prng, origin->capacity, false, true);

	disk_cut(store, left_store);
	disk_cut(origin, left_origin);
	cache_rig_close(&rig);
	disk_free(store);
	disk_free(origin);
	store = left_store;
	origin = left_origin;
}

/* Somebody else opens the origin, and writes to it or not. */
static inline void another_opens(bool writes)
{
	disk_begin_version(origin);
	snprintf(origin->ours, sizeof(origin->ours), "other.");
	if (writes)
		put_value(VALUE_LATER, 0, ORIGIN_BYTES);
}

static inline void set_rig(void)
{
	cache_rig_init(&rig, 0);
	rig.origin = origin;
	rig.store = store;
	rig.config = &config;
	rig.depth = 16;
}

/* With what a process has left, or without. */
static inline int open_with(int stored_fd, int owed_fd)
{
	set_rig();
	rig.owed_fd = owed_fd;
	return cache_rig_open(&rig, stored_fd);
}

static inline void expect_refused_as(int stored_fd, const char *why)
{
	char bytes[64];
	int ret = open_with(stored_fd, 0);

	snprintf(bytes, sizeof(bytes), "the store has %u bytes that were never written",
		 DIRTY_BYTES);
	EXPECT(ret == -ESTALE, "%d %s", ret, rig.words);
	EXPECT(strstr(rig.words, bytes) && strstr(rig.words, why) &&
		       strstr(rig.words, "--discard") && strstr(rig.words, "written over it"),
	       "%s", rig.words);
}

static inline void expect_refused_with(int stored_fd)
{
	expect_refused_as(stored_fd, "was changed without the cache");
}

static inline void expect_refused(void)
{
	expect_refused_with(0);
}

/* Which version the origin has is not known. */
static inline void expect_asked(void)
{
	expect_refused_as(0, "did not take them then, and may have been changed");
}

static inline void free_disks(void)
{
	disk_free(origin);
	disk_free(store);
}

/* The process is dead, its memory is left; who looks on has the disks as they were then. */
static inline int die(void)
{
	struct disk *left_store = disk_new(&prng, store->capacity, false, true);
	struct disk *left_origin = disk_new(&prng, origin->capacity, false, true);
	int fd = cuts_copy_memory(backend_stored_fd(rig.device, 0));

	disk_copy(store, left_store);
	disk_copy(origin, left_origin);
	cache_rig_close(&rig);
	free_disks();
	store = left_store;
	origin = left_origin;
	return fd;
}

static inline void expect_dropped(void)
{
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes > 0, "nothing was dropped");
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are left", cache()->ix->used_nr);
	EXPECT(read_is(0, BLOCK, VALUE_LATER) && read_is(10 * BLOCK, BLOCK, VALUE_LATER),
	       "an old byte");
	end_all();
}

/* Nobody else wrote: it goes on, and ends as before. */
static inline void expect_dirty_kept(void)
{
	config.mode = CACHE_WRITEBACK;
	if (!open_cache())
		return;
	EXPECT(cache()->ix->dirty_nr > 0, "nothing is dirty");
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a byte is lost");
	close_undrained();
}

/* ---- the store, as the command has it ---- */

static inline void add_bytes(void *arg, const struct cache_entry *entry)
{
	uint64_t *bytes = arg;

	bytes[0] += (unsigned)__builtin_popcountll(entry->dirty) * UNIT;
	bytes[1] += (unsigned)__builtin_popcountll(entry->valid & ~entry->dirty) * UNIT;
}

/* As a file, as the command has it. */
static inline void with_store(int (*change)(struct cache_store *s), uint64_t clean_min)
{
	char path[] = "/tmp/cache_versions.XXXXXX", words[CACHE_STORE_WORDS_BYTES] = "";
	int fd = mkstemp(path);
	struct cache_store s;
	uint64_t bytes[2] = { 0 };

	ASSERT(fd >= 0 && pwrite(fd, store->now, store->capacity, 0) == (ssize_t)store->capacity);
	EXPECT(cache_store_open(&s, path, true, words) == 0, "%s", words);
	EXPECT(cache_store_walk(&s, add_bytes, bytes) == 0);
	EXPECT(bytes[0] == DIRTY_BYTES && bytes[1] >= clean_min, "%llu dirty, %llu clean",
	       (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
	EXPECT(change(&s) == 0);
	cache_store_close(&s);
	ASSERT(pread(fd, store->now, store->capacity, 0) == (ssize_t)store->capacity);
	memcpy(store->durable, store->now, store->capacity);
	unlink(path);
	close(fd);
}

/* ---- a close that is given up ---- */

/* As if a minute had passed without an answer. */
static inline void pass_a_minute(void *arg)
{
	struct cache_visit *v = cache()->visit;

	if (!v || v->is_given_up || origin->write_nr == *(uint64_t *)arg || origin->flight_nr == 0)
		return;
	v->stuck_nr = v->ended_nr;
	reactor_timer_cancel(rig.home, &v->stuck);
	v->stuck.fn(&v->stuck);
}

static inline void check_given_up(enum backend_version_kind kind)
{
	uint64_t before;

	if (!open_kind(kind, CACHE_WRITEBACK) || !make_dirty())
		return;
	before = origin->write_nr;
	rig.on_step = pass_a_minute;
	rig.arg = &before;
	EXPECT(cache_rig_close(&rig) == -ETIMEDOUT, "it is closed as if nothing were wrong");
}

#endif
