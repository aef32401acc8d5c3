/*
 * What a cache does, seen from outside: its counters, how often the origin is asked, and what it
 * says of a store that is not its own. On a real ring, one thread. Prints TAP.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "filters/cache/cache_format.h"
#include "rig.h"
#include "tap.h"

#define ALARM_S 120

static char folder[] = "/tmp/ublkd-cache.XXXXXX";
static struct rig rig;

/* options: of the cache; the origin has 4 MiB, the store `store_kib`. */
static int try_open(const char *options, unsigned store_kib, bool read_only)
{
	static char yaml[1024];
	struct rig_params params = {
		.ops = backend_find("cache"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = 512,
		.read_only = read_only,
		.queue_nr = 1,
		.depth = 8,
	};

	snprintf(yaml, sizeof(yaml),
		 "type: cache\n%s\n"
		 "backend: {type: file, path: %s/origin, size: 4MiB, create: true}\n"
		 "store: {type: file, path: %s/store, size: %uKiB, create: true}\n",
		 options, folder, folder, store_kib);
	return rig_open(&rig, &params);
}

static bool must_open(const char *options, unsigned store_kib)
{
	int ret = try_open(options, store_kib, false);

	EXPECT(ret == 0, "%s", rig.error);
	return ret == 0;
}

static void look_at(struct backend_cache_look *look)
{
	memset(look, 0, sizeof(*look));
	ASSERT(backend_cache_at(rig.queue[0].queue, 0, look));
}

/* Fills go on behind the back of reads. */
static void wait_filled(uint64_t bytes)
{
	struct backend_cache_look look;

	do {
		rig_turn(&rig);
		look_at(&look);
	} while (look.filled_bytes < bytes);
}

static int read_at(uint64_t offset, uint32_t bytes)
{
	return rig_do(&rig, BACKEND_READ, 0, offset, bytes, NULL);
}

static int write_at(uint64_t offset, uint32_t bytes, int byte)
{
	memset(rig.queue[0].io[0].io.buf, byte, bytes);
	return rig_do(&rig, BACKEND_WRITE, 0, offset, bytes, NULL);
}

static bool reads_as(uint64_t offset, int byte)
{
	const uint8_t *buf = rig.queue[0].io[0].io.buf;

	return read_at(offset, 4096) == 0 && buf[0] == byte && memcmp(buf, buf + 1, 4095) == 0;
}

/* Not of the product: what lies in a file. */
static void put_in(const char *name, uint64_t offset, const void *bytes, size_t nr)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ASSERT(fd >= 0 && pwrite(fd, bytes, nr, (off_t)offset) == (ssize_t)nr);
	close(fd);
}

static void remove_all(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/origin", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/store", folder);
	unlink(path);
}

/* ---- what is counted ---- */

static void check_counts(void)
{
	struct backend_cache_look look;

	if (!must_open("block: 16KiB\nprefetch: 0", 1024))
		return;
	EXPECT(read_at(8192, 4096) == 0);
	wait_filled(4096);
	EXPECT(read_at(8192, 4096) == 0 && read_at(8704, 512) == 0);
	look_at(&look);
	EXPECT(look.misses == 1 && look.hits == 2, "%llu %llu", (unsigned long long)look.misses,
	       (unsigned long long)look.hits);
	EXPECT(look.filled_bytes == 4096 && look.hit_bytes == 4608 && look.miss_bytes == 4096);
	EXPECT(look.used_nr == 1 && look.dirty_bytes == 0 && look.block_bytes == 16384);
	EXPECT(strcmp(look.mode, "writethrough") == 0 && strcmp(look.node, "disk") == 0);
	EXPECT(!backend_cache_at(rig.queue[0].queue, 1, &look), "a second cache");
	rig_close(&rig);
}

/* Reads of all of it, with all tags at once: nothing is read past the store. */
static void check_all_is_kept(void)
{
	const uint32_t bytes = 512 << 10;
	struct backend_cache_look look;

	if (!must_open("block: 16KiB", 8192))
		return;
	for (unsigned tag = 0; tag < 8; tag++) {
		struct backend_io *io = &rig.queue[0].io[tag].io;

		io->op = BACKEND_READ;
		io->flags = 0;
		io->offset_bytes = (uint64_t)tag * bytes;
		io->length_bytes = bytes;
		rig_submit(&rig, &rig.queue[0].io[tag]);
	}
	rig_drain(&rig);
	wait_filled(8 * bytes);
	look_at(&look);
	EXPECT(look.passed_by == 0 && look.filled_bytes == 8 * bytes, "%llu passed by, %llu filled",
	       (unsigned long long)look.passed_by, (unsigned long long)look.filled_bytes);
	rig_close(&rig);
}

/* Of many that want the same bytes one asks the origin. */
static void check_single_flight(void)
{
	struct backend_cache_look look;

	if (!must_open("prefetch: 0", 1024))
		return;
	for (unsigned tag = 0; tag < 8; tag++) {
		struct backend_io *io = &rig.queue[0].io[tag].io;

		io->op = BACKEND_READ;
		io->flags = 0;
		io->offset_bytes = 65536;
		io->length_bytes = 4096;
		rig_submit(&rig, &rig.queue[0].io[tag]);
	}
	rig_drain(&rig);
	look_at(&look);
	EXPECT(look.misses == 1 && look.hits == 7, "%llu %llu", (unsigned long long)look.misses,
	       (unsigned long long)look.hits);
	rig_close(&rig);
}

static void check_prefetch(void)
{
	struct backend_cache_look look;

	if (!must_open("block: 16KiB\nprefetch: 2", 2048))
		return;
	EXPECT(read_at(0, 4096) == 0 && read_at(4096, 4096) == 0);
	/* The rest of the block, and two more. */
	wait_filled(16384 + 2 * 16384);
	look_at(&look);
	EXPECT(look.prefetched == 2, "%llu", (unsigned long long)look.prefetched);
	/* The first of these asks for two more. */
	EXPECT(read_at(16384, 4096) == 0);
	wait_filled(16384 + 4 * 16384);
	look_at(&look);
	EXPECT(look.misses == 2 && look.hits == 1 && look.prefetched == 4);
	rig_close(&rig);
}

static void check_warm(void)
{
	struct backend_cache_look look;

	if (!must_open("mode: writethrough", 1024))
		return;
	EXPECT(write_at(0, 65536, 7) == 0);
	rig_close(&rig);
	if (!must_open("mode: readthrough", 1024))
		return;
	EXPECT(reads_as(4096, 7), "other bytes");
	look_at(&look);
	EXPECT(look.hits == 1 && look.misses == 0, "it is cold");
	rig_close(&rig);
	EXPECT(try_open("", 1024, true) == 0, "read_only: %s", rig.error);
	EXPECT(reads_as(8192, 7), "other bytes");
	look_at(&look);
	EXPECT(look.hits == 1, "it is cold");
	rig_close(&rig);
}

static void check_evicts(void)
{
	struct backend_cache_look look;

	if (!must_open("block: 64KiB\nprefetch: 0", 1024))
		return;
	/* What comes while all slots are on their way passes by: again and again, then. */
	do {
		for (unsigned i = 0; i < 64; i++)
			EXPECT(read_at(i * 65536ull, 4096) == 0);
		look_at(&look);
		EXPECT(look.used_nr <= look.block_nr, "more than there is room for");
	} while (!tap_failed() && look.evicted < 40);
	rig_close(&rig);
}

/* ---- writeback ---- */

static void check_dirty(void)
{
	struct backend_cache_look look;
	char byte = 0;
	char path[128];
	int fd;

	if (!must_open("mode: writeback\ndirty_time: 1h", 1024))
		return;
	EXPECT(write_at(4096, 8192, 9) == 0);
	look_at(&look);
	EXPECT(look.dirty_bytes == 8192, "%llu", (unsigned long long)look.dirty_bytes);
	snprintf(path, sizeof(path), "%s/origin", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	EXPECT(pread(fd, &byte, 1, 4096) == 1 && byte == 0, "the origin has it already");
	rig_close(&rig);
	EXPECT(pread(fd, &byte, 1, 4096) == 1 && byte == 9, "the origin does not have it");
	close(fd);
}

/* A process dies with dirty blocks; what comes then must not lose them. */
static void check_refuses_other(void)
{
	if (!must_open("mode: writeback\ndirty_time: 1h\norigin_id: a", 1024))
		return;
	EXPECT(write_at(0, 4096, 3) == 0 && rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0);
	rig_crash(&rig);
	EXPECT(try_open("mode: writeback\norigin_id: b", 1024, false) == -EBUSY &&
		       strstr(rig.error, "never written to their origin"),
	       "%s", rig.error);
	EXPECT(try_open("mode: readthrough\nblock: 16KiB\norigin_id: a", 1024, false) == -EBUSY,
	       "%s", rig.error);
	EXPECT(try_open("origin_id: a", 1024, true) == -EROFS && strstr(rig.error, "read-only"),
	       "%s", rig.error);
	/* Another mode drains it. */
	if (!must_open("mode: readthrough\norigin_id: a", 1024))
		return;
	EXPECT(reads_as(0, 3), "lost");
	rig_close(&rig);
	if (!must_open("mode: writeback\norigin_id: b", 1024))
		return;
	EXPECT(reads_as(0, 3), "the origin does not have it");
	rig_close(&rig);
}

/* ---- stores that are none ---- */

static void check_foreign(void)
{
	char word[16] = "somebody's data";
	char now[16];
	char path[128];
	int fd;

	put_in("store", 0, word, sizeof(word));
	EXPECT(try_open("", 1024, false) == -EEXIST && strstr(rig.error, "no cache"), "%s",
	       rig.error);
	snprintf(path, sizeof(path), "%s/store", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	EXPECT(pread(fd, now, sizeof(now), 0) == sizeof(now) && memcmp(now, word, sizeof(now)) == 0,
	       "it was written over");
	close(fd);
	EXPECT(try_open("", 256, false) == -EINVAL && strstr(rig.error, "too small"), "%s",
	       rig.error);
}

/* One header, then both, of a cache that was good. */
static void check_damaged(void)
{
	const char junk = 0x55;

	if (!must_open("", 1024))
		return;
	EXPECT(write_at(0, 65536, 7) == 0);
	rig_close(&rig);
	put_in("store", 40, &junk, 1);
	if (!must_open("", 1024))
		return;
	EXPECT(reads_as(0, 7));
	rig_close(&rig);
	put_in("store", 40, &junk, 1);
	put_in("store", CACHE_PAGE_BYTES + 40, &junk, 1);
	EXPECT(try_open("", 1024, false) == -EEXIST && strstr(rig.error, "damaged"), "%s",
	       rig.error);
}

/* Somebody cuts the file off: nothing of it is used as it was. */
static void check_truncated(void)
{
	char path[128];

	if (!must_open("", 2048))
		return;
	EXPECT(write_at(0, 65536, 7) == 0);
	rig_close(&rig);
	snprintf(path, sizeof(path), "%s/store", folder);
	EXPECT(truncate(path, 1 << 20) == 0);
	EXPECT(try_open("", 1024, false) == -EINVAL && strstr(rig.error, "smaller"), "%s",
	       rig.error);
}

/* The index says what cannot be. */
static void check_lies(void)
{
	uint8_t at[CACHE_PAGE_BYTES];
	char words[CACHE_WORDS_BYTES], path[128];
	struct cache_page page = { .seq = 1000 };
	struct cache_header h;
	int fd;

	if (!must_open("", 1024))
		return;
	rig_close(&rig);
	snprintf(path, sizeof(path), "%s/store", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT(pread(fd, at, sizeof(at), 0) == sizeof(at));
	close(fd);
	ASSERT(cache_header_parse(&h, at, words) == 0);
	for (unsigned i = 0; i < CACHE_PAGE_ENTRIES; i++)
		page.entry[i] =
			(struct cache_entry){ .block = UINT64_MAX - i, .valid = UINT64_MAX };
	cache_page_write(&page, at, h.instance, 0);
	put_in("store", cache_page_at(0, page.seq), at, sizeof(at));
	if (!must_open("", 1024))
		return;
	EXPECT(reads_as(0, 0), "made-up bytes");
	rig_close(&rig);
}

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
	{ "what is counted", check_counts },
	{ "all that is read at once is kept", check_all_is_kept },
	{ "of many one asks the origin", check_single_flight },
	{ "reads that go on are fetched ahead", check_prefetch },
	{ "opened again it is warm", check_warm },
	{ "blocks are given up", check_evicts },
	{ "dirty blocks come to the origin at the end", check_dirty },
	{ "dirty blocks are not lost to another origin", check_refuses_other },
	{ "a file of another kind is left alone", check_foreign },
	{ "damaged headers", check_damaged },
	{ "a store that was cut off", check_truncated },
	{ "an index that lies", check_lies },
};

int main(int argc, char **argv)
{
	tap_init(argv[0], argc > 2 ? argv[2] : NULL, 0);
	log_init(LOG_LEVEL_ERROR);
	alarm(ALARM_S);
	ASSERT(mkdtemp(folder));
	for (unsigned i = 0; i < ARRAY_SIZE(checks); i++) {
		if (!tap_begin("%s", checks[i].name))
			continue;
		checks[i].run();
		tap_end();
		remove_all();
	}
	rmdir(folder);
	return tap_finish();
}
