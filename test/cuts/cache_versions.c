/* A cache whose origin is written by others while no cache has it open. Prints TAP. */
#include <errno.h>
#include <unistd.h>

#include "filters/cache/cache_store.h"
#include "test/cuts/cache_case.h"

#define WARM_BYTES (20 * BLOCK)
#define DIRTY_BYTES (3 * BLOCK)

/* ---- beginnings and ends ---- */

static bool open_kind(enum backend_version_kind kind, int mode)
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
static bool make_dirty(void)
{
	EXPECT(write_value(0, DIRTY_BYTES), "a WRITE fails");
	EXPECT(cache_rig_do(&rig, BACKEND_FLUSH, 0, 0) == 0, "a FLUSH fails");
	return cache()->ix->dirty_nr > 0;
}

/* In order, with an origin that cannot be written: what is dirty stays so. */
static void close_undrained(void)
{
	origin->error_one_in = 1;
	cache_rig_close(&rig);
	origin->error_one_in = 0;
}

static void cut_power(void)
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
static void another_opens(bool writes)
{
	disk_begin_version(origin);
	snprintf(origin->ours, sizeof(origin->ours), "other.");
	if (writes)
		put_value(VALUE_LATER, 0, ORIGIN_BYTES);
}

static void expect_refused(void)
{
	char bytes[64];

	cache_rig_init(&rig, 0);
	rig.origin = origin;
	rig.store = store;
	rig.config = &config;
	rig.depth = 16;
	snprintf(bytes, sizeof(bytes), "the store has %u bytes that were never written",
		 DIRTY_BYTES);
	EXPECT(cache_rig_open(&rig, 0) == -ESTALE, "it is opened");
	EXPECT(strstr(rig.words, bytes) && strstr(rig.words, "changed without the cache") &&
		       strstr(rig.words, "--discard") && strstr(rig.words, "written over it"),
	       "%s", rig.words);
}

static void expect_dropped(void)
{
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes > 0, "nothing was dropped");
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are left", cache()->ix->used_nr);
	EXPECT(read_is(0, BLOCK, VALUE_LATER) && read_is(10 * BLOCK, BLOCK, VALUE_LATER),
	       "an old byte");
	end_all();
}

/* ---- clean blocks ---- */

static void check_now_kept(void)
{
	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITETHROUGH))
		return;
	EXPECT(write_value(30 * BLOCK, BLOCK), "a WRITE fails");
	EXPECT(cache_rig_close(&rig) == 0);
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes == 0, "its own writes are taken for another's");
	expect_hits(0, WARM_BYTES);
	end_all();
}

static void check_now_dropped(void)
{
	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITETHROUGH))
		return;
	EXPECT(cache_rig_close(&rig) == 0);
	another_opens(true);
	expect_dropped();
}

/* What changes with our own writes is not in the header while there may be some. */
static void check_now_void(void)
{
	struct cache_header h;
	char words[CACHE_WORDS_BYTES];

	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITETHROUGH))
		return;
	for (unsigned i = 0; i < CACHE_HEADER_NR; i++)
		EXPECT(cache_header_parse(&h, store->now + i * CACHE_PAGE_BYTES, words) == 0 &&
			       !h.found[0],
		       "header %u: %s %s", i, words, h.found);
	EXPECT(write_value(30 * BLOCK, BLOCK) && cache_rig_do(&rig, BACKEND_FLUSH, 0, 0) == 0);
	cut_power();
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes == 0, "its own writes are taken for another's");
	end_all();
}

static void check_lasting_kept(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITETHROUGH))
		return;
	EXPECT(write_value(30 * BLOCK, BLOCK) && cache_rig_do(&rig, BACKEND_FLUSH, 0, 0) == 0);
	settle();
	cut_power();
	/* It is opened, and nothing is written; so by others. */
	another_opens(false);
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes == 0, "its own writes are taken for another's");
	expect_hits(0, WARM_BYTES);
	EXPECT(cache_rig_close(&rig) == 0);
	another_opens(false);
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes == 0, "nobody has written");
	end_all();
}

static void check_lasting_dropped(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_READTHROUGH))
		return;
	cut_power();
	another_opens(true);
	expect_dropped();
}

/* ---- dirty blocks ---- */

static void check_now_refused(void)
{
	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	another_opens(true);
	expect_refused();
	/* The next try is no better. */
	expect_refused();
	disk_free(origin);
	disk_free(store);
}

static void check_lasting_refused(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITEBACK) || !make_dirty())
		return;
	cut_power();
	another_opens(true);
	expect_refused();
	disk_free(origin);
	disk_free(store);
}

static void check_dirty_kept(enum backend_version_kind kind)
{
	if (!open_kind(kind, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	if (!open_cache())
		return;
	EXPECT(cache()->ix->dirty_nr > 0, "nothing is dirty");
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a byte is lost");
	end_all();
}

static void check_now_dirty_kept(void)
{
	check_dirty_kept(BACKEND_VERSION_NOW);
}

static void check_lasting_dirty_kept(void)
{
	check_dirty_kept(BACKEND_VERSION_LASTING);
}

/* A start that was to drain it cannot: that is a close, too. */
static void check_undrained_open(void)
{
	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	config.mode = CACHE_WRITETHROUGH;
	origin->error_one_in = 1;
	cache_rig_init(&rig, 0);
	rig.origin = origin;
	rig.store = store;
	rig.config = &config;
	rig.depth = 16;
	EXPECT(cache_rig_open(&rig, 0) == -EIO || cache_rig_open(&rig, 0) == -ENOSPC, "%s",
	       rig.words);
	origin->error_one_in = 0;
	another_opens(true);
	expect_refused();
	disk_free(origin);
	disk_free(store);
}

/* ---- the ways out ---- */

static void add_bytes(void *arg, const struct cache_entry *entry)
{
	uint64_t *bytes = arg;

	bytes[0] += (unsigned)__builtin_popcountll(entry->dirty) * UNIT;
	bytes[1] += (unsigned)__builtin_popcountll(entry->valid & ~entry->dirty) * UNIT;
}

/* As a file, as the command has it. */
static void with_store(int (*change)(struct cache_store *s), uint64_t clean_min)
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

static void check_force(void)
{
	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	another_opens(true);
	with_store(cache_store_accept, 10 * BLOCK);
	if (!open_cache())
		return;
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a dirty byte is lost");
	for (unsigned i = 3; i < 20; i++)
		EXPECT(read_is(i * BLOCK, BLOCK, VALUE_LATER), "an old byte of block %u", i);
	EXPECT(cache_rig_close(&rig) == 0);
	config.mode = CACHE_WRITETHROUGH;
	if (!open_cache())
		return;
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "it was not written back");
	end_all();
}

static void check_discard(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	another_opens(true);
	with_store(cache_store_forget, 10 * BLOCK);
	if (!open_cache())
		return;
	EXPECT(cache()->ix->used_nr == 0, "%u blocks are left", cache()->ix->used_nr);
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_LATER), "an old byte");
	end_all();
}

int main(int argc, char **argv)
{
	static const struct cache_check checks[] = {
		{ "closed in order, an origin that nobody wrote to", check_now_kept },
		{ "closed in order, an origin that was written", check_now_dropped },
		{ "power is cut, the version changes with each write", check_now_void },
		{ "power is cut, the version lasts, nobody wrote", check_lasting_kept },
		{ "power is cut, the version lasts, another wrote", check_lasting_dropped },
		{ "dirty blocks, closed in order, another wrote", check_now_refused },
		{ "dirty blocks, power is cut, another wrote", check_lasting_refused },
		{ "dirty blocks, closed in order, nobody wrote", check_now_dirty_kept },
		{ "dirty blocks, the version lasts, nobody wrote", check_lasting_dirty_kept },
		{ "dirty blocks that an open cannot write, then another wrote",
		  check_undrained_open },
		{ "dirty blocks are forced", check_force },
		{ "dirty blocks are discarded", check_discard },
	};

	return run_checks(argc, argv, checks, ARRAY_SIZE(checks));
}
