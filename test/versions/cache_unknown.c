/*
 * A cache whose origin says no version, or says beforehand which one a close leaves, and is written
 * by others while no cache has it open. Prints TAP.
 */
#include "test/versions/cache_version_case.h"

/* ---- an origin without a version ---- */

static void expect_forced(void)
{
	with_store(cache_store_accept, 0);
	if (!open_cache())
		return;
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a dirty byte is lost");
	EXPECT(read_is(3 * BLOCK, BLOCK, VALUE_LATER), "an old byte");
	end_all();
}

/* It was taken away with dirty blocks: nobody knows who wrote since. */
static void check_asked(void)
{
	if (!open_kind(BACKEND_VERSION_NONE, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	another_opens(true);
	expect_asked();
	expect_asked();
	/* In another mode, too, which would write them at once. */
	config.mode = CACHE_WRITETHROUGH;
	expect_asked();
	config.mode = CACHE_WRITEBACK;
	expect_forced();
}

static void check_hangs(void)
{
	check_given_up(BACKEND_VERSION_NONE);
	another_opens(true);
	expect_asked();
	expect_forced();
}

/* A close that has written all says nothing. */
static void check_drained(void)
{
	if (!open_kind(BACKEND_VERSION_NONE, CACHE_WRITEBACK) || !make_dirty())
		return;
	EXPECT(cache_rig_close(&rig) == 0, "it cannot be closed");
	if (!open_cache())
		return;
	EXPECT(cache()->ix->dirty_nr == 0, "it is dirty");
	expect_hits(DIRTY_BYTES, WARM_BYTES - DIRTY_BYTES);
	end_all();
}

/* A kill and a power cut are gone over as they come. */
static void check_goes_on(void)
{
	int fd;

	if (!open_kind(BACKEND_VERSION_NONE, CACHE_WRITEBACK) || !make_dirty())
		return;
	fd = die();
	EXPECT(open_with(fd, 0) == 0, "%s", rig.words);
	close(fd);
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a byte is lost");
	cut_power();
	expect_dirty_kept();
	free_disks();
}

/* A start that cannot write them: the next one tries it again. */
static void check_undrained_open(void)
{
	struct disk *may_fail;

	if (!open_kind(BACKEND_VERSION_NONE, CACHE_WRITEBACK) || !make_dirty())
		return;
	cut_power();
	config.mode = CACHE_WRITETHROUGH;
	may_fail = disk_new(&prng, origin->capacity, false, false);
	disk_copy(origin, may_fail);
	disk_free(origin);
	origin = may_fail;
	origin->error_one_in = 1;
	EXPECT(open_with(0, 0) < 0, "it is open");
	origin->error_one_in = 0;
	if (!open_cache())
		return;
	EXPECT(read_is(0, DIRTY_BYTES, VALUE_WRITTEN), "a byte is lost");
	end_all();
}

/* ---- others ---- */

/* Dirty blocks that cannot be written are no change by others. */
static void check_read_only(void)
{
	int ret;

	if (!open_kind(BACKEND_VERSION_NOW, CACHE_WRITEBACK) || !make_dirty())
		return;
	close_undrained();
	another_opens(true);
	config.mode = CACHE_MODE_AUTO;
	origin->is_read_only = true;
	ret = open_with(0, 0);
	EXPECT(ret == -EROFS && strstr(rig.words, "read-only now"), "%d %s", ret, rig.words);
	origin->is_read_only = false;
	config.mode = CACHE_WRITEBACK;
	expect_refused();
	free_disks();
}

/* A copy of the origin from before it was written through us is put back, with what it says. */
static void put_back(struct disk *copy)
{
	disk_free(origin);
	origin = copy;
}

static void check_copy_put_back(bool is_written)
{
	struct disk *copy;

	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITETHROUGH))
		return;
	EXPECT(cache_rig_close(&rig) == 0);
	origin->is_known_now = true;
	if (!open_cache())
		return;
	copy = disk_new(&prng, origin->capacity, false, true);
	disk_copy(origin, copy);
	EXPECT(!is_written || write_value(0, BLOCK), "a WRITE fails");
	EXPECT(cache_rig_close(&rig) == 0);
	put_back(copy);
	if (!open_cache())
		return;
	EXPECT((cache()->stats.moved_bytes > 0) == is_written, "%llu bytes were dropped",
	       (unsigned long long)cache()->stats.moved_bytes);
	EXPECT(read_is(0, BLOCK, VALUE_IMAGE), "a byte that was written since");
	end_all();
}

static void check_old_copy(void)
{
	check_copy_put_back(true);
}

static void check_equal_copy(void)
{
	check_copy_put_back(false);
}

/* Its own writes are its own, whether it is closed or not. */
static void check_known_kept(void)
{
	if (!open_kind(BACKEND_VERSION_LASTING, CACHE_WRITEBACK))
		return;
	origin->is_known_now = true;
	EXPECT(cache_rig_close(&rig) == 0 && open_cache() && make_dirty());
	EXPECT(cache_rig_close(&rig) == 0 && open_cache(), "%s", rig.words);
	EXPECT(cache()->stats.moved_bytes == 0, "its own writes are taken for another's");
	EXPECT(make_dirty());
	close_undrained();
	expect_dirty_kept();
	EXPECT(open_cache() && make_dirty());
	cut_power();
	expect_dirty_kept();
	another_opens(true);
	expect_refused();
	free_disks();
}

int main(int argc, char **argv)
{
	static const struct cache_check checks[] = {
		{ "no version: dirty blocks, closed in order, another wrote", check_asked },
		{ "no version: an origin that hangs, then another wrote", check_hangs },
		{ "no version: closed in order, nothing is dirty", check_drained },
		{ "no version: a kill, and a power cut", check_goes_on },
		{ "no version: an open cannot write dirty blocks", check_undrained_open },
		{ "dirty blocks, and the origin is read-only now", check_read_only },
		{ "an old copy of the origin is put back", check_old_copy },
		{ "... that nothing was written to since", check_equal_copy },
		{ "a version that is known beforehand, and nobody else wrote", check_known_kept },
	};

	return run_checks(argc, argv, checks, ARRAY_SIZE(checks));
}
