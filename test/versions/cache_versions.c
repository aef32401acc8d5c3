/* A cache whose origin is written by others while no cache has it open. Prints TAP. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/owed.h"
#include "test/versions/cache_version_case.h"

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
	free_disks();
}

static void check_lasting_refused(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITEBACK) || !make_dirty())
		return;
	cut_power();
	another_opens(true);
	expect_refused();
	free_disks();
}

static void check_dirty_kept(enum backend_version_kind kind)
{
	if (!open_kind(kind, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	expect_dirty_kept();
	free_disks();
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
	set_rig();
	EXPECT(cache_rig_open(&rig, 0) == -EIO || cache_rig_open(&rig, 0) == -ENOSPC, "%s",
	       rig.words);
	origin->error_one_in = 0;
	expect_dirty_kept();
	another_opens(true);
	expect_refused();
	free_disks();
}

/* ---- the ways out ---- */

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

/* What the memory of a dead process has of clean blocks is forgotten, too. */
static void check_force_adopted(void)
{
	int fd;

	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITEBACK) || !make_dirty())
		return;
	settle();
	fd = die();
	another_opens(true);
	expect_refused_with(fd);
	with_store(cache_store_accept, 0);
	EXPECT(open_with(fd, 0) == 0, "%s", rig.words);
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a dirty byte is lost");
	for (unsigned i = 3; i < 20; i++)
		EXPECT(read_is(i * BLOCK, BLOCK, VALUE_LATER), "an old byte of block %u", i);
	end_all();
	close(fd);
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

/* ---- opens that fail ---- */

static uint64_t drain_begins; /* write_nr of the origin; UINT64_MAX: it has begun */

static void copy_at_write(void *arg)
{
	if (drain_begins == UINT64_MAX || origin->write_nr == drain_begins)
		return;
	drain_begins = UINT64_MAX;
	disk_copy(store, arg);
}

/* An open that fails at its end leaves the note: nobody of us has written. */
static void check_unflushed_open(void)
{
	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	disk_fail_flushes(origin, 1);
	EXPECT(open_with(0, 0) == -EIO, "%s", rig.words);
	disk_fail_flushes(origin, 0);
	another_opens(true);
	expect_refused();
	free_disks();
}

/* ... and after a drain notes what there is then. */
static void fail_second_flush(void *arg)
{
	struct disk *d = arg;

	disk_fail_flushes(d, d->flush_nr > 0);
}

static void check_unflushed_after_drain(void)
{
	uint64_t before;

	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	config.mode = CACHE_WRITETHROUGH;
	before = origin->write_nr;
	origin->flush_nr = 0;
	set_rig();
	rig.on_step = fail_second_flush;
	rig.arg = origin;
	EXPECT(cache_rig_open(&rig, 0) == -EIO && origin->write_nr > before, "%s", rig.words);
	disk_fail_flushes(origin, 0);
	expect_dirty_kept();
	another_opens(true);
	expect_refused();
	free_disks();
}

/* It is given up in the middle of the drain, as by whoever removes the device: no last words. */
static void check_cut_in_drain(void)
{
	struct disk *left;

	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	left = disk_new(&prng, store->capacity, false, true);
	config.mode = CACHE_WRITETHROUGH;
	set_rig();
	rig.on_step = copy_at_write;
	rig.arg = left;
	drain_begins = origin->write_nr;
	EXPECT(cache_rig_open(&rig, 0) == 0 && cache_rig_close(&rig) == 0, "%s", rig.words);
	EXPECT(drain_begins == UINT64_MAX, "it was not drained");
	disk_free(store);
	store = left;
	another_opens(true);
	expect_asked();
	with_store(cache_store_accept, 0);
	if (!open_cache())
		return;
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a dirty byte is lost");
	end_all();
}

static void check_hangs(void)
{
	check_given_up(BACKEND_VERSION_NOW);
	another_opens(true);
	expect_asked();
	free_disks();
}

/* A web server that does not say its version once. */
static void check_silent_once(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_READTHROUGH))
		return;
	EXPECT(cache_rig_close(&rig) == 0);
	origin->is_read_only = true;
	if (!open_cache())
		return;
	EXPECT(cache_rig_close(&rig) == 0);
	origin->version_kind = BACKEND_VERSION_NONE;
	if (!open_cache())
		return;
	EXPECT(cache()->stats.moved_bytes == 0, "it is dropped");
	EXPECT(cache_rig_close(&rig) == 0);
	origin->version_kind = BACKEND_VERSION_LASTING;
	another_opens(true);
	expect_dropped();
}

/* ---- memory that waits ---- */

/* What was made anew, and failed then, is not refused. */
static void check_adopt_again(void)
{
	int fd;

	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITEBACK))
		return;
	fd = die();
	another_opens(true);
	origin->is_plain = false;
	disk_fail_flushes(origin, 1);
	EXPECT(open_with(fd, 0) == -EIO, "%s", rig.words);
	disk_fail_flushes(origin, 0);
	origin->is_plain = true;
	EXPECT(open_with(fd, 0) == 0, "%s", rig.words);
	EXPECT(read_is(0, BLOCK, VALUE_LATER) && read_is(10 * BLOCK, BLOCK, VALUE_LATER),
	       "an old byte");
	end_all();
	close(fd);
}

/* Its users wait for what it has alone: an origin that cannot be flushed keeps nobody out. */
static void check_adopt_unflushed(void)
{
	int fd, ret;

	if (!open_kind(BACKEND_VERSION_NONE, CACHE_WRITEBACK) || !make_dirty())
		return;
	fd = die();
	origin->is_plain = false;
	disk_fail_flushes(origin, 1);
	ret = open_with(fd, 0);
	EXPECT(ret == 0, "%s", rig.words);
	if (ret < 0)
		return;
	EXPECT(cache()->ix->dirty_nr > 0 && cache()->is_doubtful, "nothing is dirty");
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a byte is lost");
	disk_fail_flushes(origin, 0);
	origin->is_plain = true;
	end_all();
	close(fd);
}

/* Its store is owed a FLUSH, and has been given up: it is not to be trusted. */
static void check_given_up_is_owed(void)
{
	struct disk *unwritten;
	int owed, left_owed, fd;

	if (!open_new(CACHE_WRITETHROUGH, 80, ORIGIN_BYTES))
		return;
	EXPECT(cache_rig_close(&rig) == 0);
	owed = memfd_create("owed", MFD_CLOEXEC);
	ASSERT(ftruncate(owed, BACKEND_OWED_BYTES) == 0);
	EXPECT(open_with(0, owed) == 0, "%s", rig.words);
	EXPECT(run_job(BACKEND_CACHE_WARM, 0, WARM_BYTES) == 0, "%s", rig.job.words);
	EXPECT(cache_rig_close(&rig) == 0 && open_with(0, owed) == 0, "%s", rig.words);
	expect_hits(0, WARM_BYTES);
	/* No WRITE reaches it from now on, in no part. */
	unwritten = disk_new(&prng, store->capacity, false, true);
	disk_copy(store, unwritten);
	store->error_one_in = 1;
	backend_owe(rig.device->child->sibling);
	EXPECT(write_value(0, DIRTY_BYTES), "a WRITE fails");
	settle();
	EXPECT(cache()->is_off && cache()->is_wiped, "the store is not given up");
	left_owed = cuts_copy_memory(owed);
	fd = die();
	disk_free(store);
	store = unwritten;
	EXPECT(open_with(fd, left_owed) == 0, "%s", rig.words);
	EXPECT(backend_was_owed(rig.device->child->sibling), "nothing is owed");
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "an old byte");
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
		{ "an open cannot write dirty blocks, then another wrote", check_undrained_open },
		{ "dirty blocks are forced", check_force },
		{ "dirty blocks are discarded", check_discard },
		{ "dirty blocks are forced, and memory waits", check_force_adopted },
		{ "an open whose last FLUSH fails, then another wrote", check_unflushed_open },
		{ "... after dirty blocks were written", check_unflushed_after_drain },
		{ "an open ends amid dirty blocks, then another wrote", check_cut_in_drain },
		{ "an origin that hangs, then another wrote", check_hangs },
		{ "a version that is not said once", check_silent_once },
		{ "memory of a store that was made anew since", check_adopt_again },
		{ "memory of a cache whose origin cannot be flushed", check_adopt_unflushed },
		{ "memory of a store that was given up, and is owed", check_given_up_is_owed },
	};

	return run_checks(argc, argv, checks, ARRAY_SIZE(checks));
}
