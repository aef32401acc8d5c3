/*
 * lost_flushes [--seed N] [--seeds N] [--only TEXT]: what a failed FLUSH means (storage/owed.h),
 * for each node over others. A FLUSH of the storage fails, whoever wanted it, and what it covers is
 * lost; then all works. The user writes, flushes, and loses power, the process or neither. Prints
 * TAP.
 *
 * The model knows of each sector the oldest content that it may have (of the last good FLUSH), and
 * the newest. What a failed FLUSH covers is given up: a later one that is good proves nothing about
 * it, until it is written again. The model takes no word of the storage but one: how many FLUSHes
 * have failed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/util.h"
#include "filters/cache/cache_store.h"
#include "storage/registry.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"
#include "test/lost_flushes/volatile.h"

#define SECTOR_BYTES 512u
#define BLOCK_BYTES 4096u
#define BLOCK_SECTORS (BLOCK_BYTES / SECTOR_BYTES)
#define SECTORS_MAX (MIB(8) / SECTOR_BYTES)
#define SEEDS 8u /* of each tree */
#define STEPS 250u
#define FAILURES_MAX 3u
#define LOOK_BLOCKS 32u

struct tree {
	const char *name, *yaml;
	bool is_torn; /* a block that is not flushed may be unreadable after a cut: its parts are in
			 two places */
	/* After a loss it fails FLUSH or WRITE until it is opened again. */
	bool must_reopen;
};

#define DISK(name) "{type: volatile, name: " name "}"
#define SMALL_DISK(name) "{type: volatile, name: " name ", size: 1MiB}"
#define BIG_DISK(name) "{type: volatile, name: " name ", size: 12MiB, fua: false}"
#define QCOW2_OVER(disk)                                                                           \
	"{type: qcow2, create: true, size: 4MiB, cluster_size: 4KiB, data: " disk "}"
#define QCOW2 QCOW2_OVER(BIG_DISK("a"))
#define CACHE(mode, origin, store)                                                                 \
	"type: cache\nmode: " mode "\nblock: 16KiB\nbackend: " origin "\nstore: " store
#define CACHE_OVER(mode)                                                                           \
	"{type: cache, block: 8KiB, mode: " mode                                                   \
	", backend: " DISK("a") ", store: " SMALL_DISK("b") "}"

static const struct tree trees[] = {
	{ .name = "throttle",
	  .yaml = "type: throttle\ntotal_iops_sec: 1000000\nbackend: " DISK("a") },
	{ .name = "delay", .yaml = "type: delay\nall: 10us\nbackend: " DISK("a") },
	{ .name = "error", .yaml = "type: error\ntrigger: /nonexistent\nbackend: " DISK("a") },
	{ .name = "stripe",
	  .yaml = "type: stripe\nchunk: 8KiB\nbackends: [" DISK("a") ", " DISK("b") "]" },
	{ .name = "stripe with labels",
	  .yaml = "type: stripe\nverify: true\nchunk: 8KiB\nbackends: [" DISK("a") ", " DISK(
		  "b") "]" },
	{ .name = "zoned",
	  .yaml = "type: zoned\nzones: {size: 64KiB, conventional: 62}\nbackend: " DISK("a"),
	  .must_reopen = true },
	{ .name = "integrity",
	  .yaml = "type: integrity\ndata: " DISK("a") "\nmetadata: " SMALL_DISK("b"),
	  .is_torn = true },
	{ .name = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\nsize: 4MiB\ncluster_size: 4KiB\ndata: " BIG_DISK(
		  "a") },
	{ .name = "qcow2 over a backing disk",
	  .yaml = "type: qcow2\ncreate: true\ncluster_size: 16KiB\ndata: " BIG_DISK(
		  "a") "\nbacking: " DISK("b") },
	{ .name = "cache, writethrough",
	  .yaml = "type: cache\nmode: writethrough\nblock: 8KiB\nbackend: " DISK(
		  "a") "\nstore: " SMALL_DISK("b") },
	{ .name = "cache, readthrough",
	  .yaml = "type: cache\nmode: readthrough\nblock: 8KiB\nbackend: " DISK(
		  "a") "\nstore: " SMALL_DISK("b") },
	{ .name = "cache, writeback",
	  .yaml = "type: cache\nmode: writeback\nblock: 8KiB\ndirty_time: 1ms\nbackend: " DISK(
		  "a") "\nstore: " SMALL_DISK("b"),
	  .must_reopen = true },
	{ .name = "stripe of qcow2 and a disk",
	  .yaml = "type: stripe\nbackends: [" QCOW2 ", " DISK("b") "]" },
	{ .name = "cache over qcow2", .yaml = CACHE("writethrough", QCOW2, SMALL_DISK("b")) },
	{ .name = "cache over qcow2, readthrough",
	  .yaml = CACHE("readthrough", QCOW2, SMALL_DISK("b")) },
	{ .name = "cache over qcow2, writeback",
	  .yaml = CACHE("writeback\ndirty_time: 1ms", QCOW2, SMALL_DISK("b")),
	  .must_reopen = true },
	{ .name = "cache over stripe of qcow2",
	  .yaml = CACHE("writethrough",
			"{type: stripe, backends: [" QCOW2 ", " QCOW2_OVER(BIG_DISK("c")) "]}",
			SMALL_DISK("b")) },
	{ .name = "stripe of caches",
	  .yaml = "type: stripe\nbackends: [{type: cache, block: 16KiB, backend: " QCOW2
		  ", store: " SMALL_DISK("b") "}, {type: cache, block: 8KiB, backend: " DISK(
			  "c") ", store: " SMALL_DISK("d") "}]" },
	{ .name = "cache over cache, both writeback",
	  .yaml = CACHE("writeback\ndirty_time: 1ms", CACHE_OVER("writeback, dirty_time: 1ms"),
			SMALL_DISK("c")),
	  .must_reopen = true },
	{ .name = "cache over cache, writethrough over writeback",
	  .yaml = CACHE("writethrough", CACHE_OVER("writeback, dirty_time: 1ms"), SMALL_DISK("c")),
	  .must_reopen = true },
	{ .name = "cache over cache, writeback over writethrough",
	  .yaml = CACHE("writeback\ndirty_time: 1ms", CACHE_OVER("writethrough"), SMALL_DISK("c")),
	  .must_reopen = true },
	{ .name = "zoned over qcow2",
	  .yaml = "type: zoned\nzones: {size: 64KiB, conventional: 62}\nbackend: " QCOW2,
	  .must_reopen = true },
	{ .name = "integrity over qcow2",
	  .yaml = "type: integrity\ndata: " QCOW2 "\nmetadata: " SMALL_DISK("b"),
	  .is_torn = true },
};

/* ---- the model ---- */

static struct run {
	const struct tree *tree;
	struct rig rig;
	struct prng prng;
	int owed_fd;
	uint64_t sector_nr;
	uint32_t newest[SECTORS_MAX], oldest[SECTORS_MAX];
	bool is_given_up[SECTORS_MAX];
	uint32_t version;
	unsigned lost_at_open, lost_at_flush;
	unsigned failed_nr; /* FLUSHes, since the last loss */
} run;

static bool has_lost_since_flush(void)
{
	return volatile_lost_nr() != run.lost_at_flush;
}

static bool may_fail(void)
{
	return run.tree->must_reopen && volatile_lost_nr() != run.lost_at_open;
}

static uint64_t word_of(uint64_t sector, uint32_t version)
{
	return version ? (uint64_t)version << 32 | sector : 0;
}

/* Whether all of the sector is of one version that it may have. */
static bool is_right(uint64_t sector, const uint64_t *words, bool is_exact)
{
	uint32_t version = (uint32_t)(words[0] >> 32);

	for (unsigned i = 0; i < SECTOR_BYTES / sizeof(*words); i++)
		if (words[i] != word_of(sector, version))
			return false;
	return version <= run.newest[sector] &&
	       version >= (is_exact ? run.newest[sector] : run.oldest[sector]);
}

static bool is_settled(uint64_t block)
{
	for (uint64_t i = block * BLOCK_SECTORS; i < (block + 1) * BLOCK_SECTORS; i++)
		if (run.oldest[i] != run.newest[i])
			return false;
	return true;
}

static bool is_given_up(uint64_t block)
{
	return memchr(run.is_given_up + block * BLOCK_SECTORS, true, BLOCK_SECTORS);
}

static void settle(bool is_good)
{
	for (uint64_t i = 0; i < run.sector_nr; i++) {
		if (!is_good)
			run.is_given_up[i] |= run.oldest[i] != run.newest[i];
		else if (!run.is_given_up[i])
			run.oldest[i] = run.newest[i];
	}
	run.lost_at_flush = volatile_lost_nr();
}

static uint64_t *buf(void)
{
	return run.rig.queue[0].io[0].io.buf;
}

static void judge_block(uint64_t block, const uint64_t *words, bool is_exact)
{
	for (unsigned i = 0; i < BLOCK_SECTORS; i++, words += SECTOR_BYTES / sizeof(*words)) {
		uint64_t sector = block * BLOCK_SECTORS + i;

		EXPECT(is_right(sector, words, is_exact),
		       "sector %llu: %llx, not from version %x to %x", (unsigned long long)sector,
		       (unsigned long long)words[0], run.oldest[sector], run.newest[sector]);
	}
}

/* False: it cannot be read. */
static bool check_block(uint64_t block, bool is_exact)
{
	int ret = rig_do(&run.rig, BACKEND_READ, 0, block * BLOCK_BYTES, BLOCK_BYTES, NULL);

	if (ret == 0)
		judge_block(block, buf(), is_exact);
	else
		EXPECT(may_fail() || (run.tree->is_torn && !is_exact && !is_settled(block)),
		       "READ of block %llu: %s", (unsigned long long)block, errname(ret));
	return ret == 0;
}

/* ---- what the user does ---- */

/* More than once a node may say it: for the user's own, and for what it did by itself. */
static void expect_cause(const char *what, int ret)
{
	EXPECT(has_lost_since_flush() || run.failed_nr++ < FAILURES_MAX || may_fail(),
	       "%s: %s, though nothing is lost", what, errname(ret));
}

static void write_blocks(uint64_t block, unsigned nr, unsigned flags)
{
	uint64_t first = block * BLOCK_SECTORS;
	int ret;

	run.version++;
	for (uint64_t i = 0; i < nr * BLOCK_BYTES / sizeof(uint64_t); i++)
		buf()[i] = word_of(first + i * sizeof(uint64_t) / SECTOR_BYTES, run.version);
	ret = rig_do(&run.rig, BACKEND_WRITE, flags, block * BLOCK_BYTES, nr * BLOCK_BYTES, NULL);
	/* FUA may be a FLUSH, and be told what is owed. */
	if (ret < 0 && flags)
		expect_cause("WRITE with FUA", ret);
	else
		EXPECT(ret == 0 || may_fail(), "WRITE: %s", errname(ret));
	for (uint64_t i = first; i < first + nr * BLOCK_SECTORS; i++) {
		run.newest[i] = run.version;
		run.is_given_up[i] = ret < 0;
		if (ret == 0 && flags)
			run.oldest[i] = run.version;
	}
}

static int flush(void)
{
	int ret = rig_do(&run.rig, BACKEND_FLUSH, 0, 0, 0, NULL);

	if (ret < 0)
		expect_cause("FLUSH", ret);
	if (ret == 0 || has_lost_since_flush())
		run.failed_nr = ret < 0 ? 0 : FAILURES_MAX;
	settle(ret == 0);
	return ret;
}

static void write_somewhere(unsigned flags)
{
	bool has_fua = run.rig.device->limits.caps & BACKEND_CAP_FUA;
	unsigned nr = 1 + (unsigned)prng_below(&run.prng, 6);

	/* Half of the time among few blocks. */
	if (prng_one_in(&run.prng, 2))
		write_blocks(prng_below(&run.prng, 16), nr, has_fua ? flags : 0);
	else
		write_blocks(prng_below(&run.prng, run.sector_nr / BLOCK_SECTORS - nr), nr,
			     has_fua ? flags : 0);
}

static void look_somewhere(void)
{
	uint64_t block = prng_below(&run.prng, run.sector_nr / BLOCK_SECTORS);

	check_block(block, !has_lost_since_flush() && !is_given_up(block));
}

/* ---- opening, and its ends ---- */

/* As an administrator does who knows that nobody else has written. */
static void force_store(const char *path)
{
	char words[CACHE_STORE_WORDS_BYTES];
	struct cache_store s;

	if (cache_store_open(&s, path, true, words) == 0)
		cache_store_accept(&s);
	cache_store_close(&s);
}

static int open_tree(const int stored_fds[RIG_STORED_MAX])
{
	struct rig_params params = { .ops = backend_find("throttle"), /* any with children */
				     .name = "disk",
				     .yaml = run.tree->yaml,
				     .block_bytes = BLOCK_BYTES,
				     .queue_nr = 1,
				     .depth = 4,
				     .owed_fd = run.owed_fd };
	unsigned lost_nr;
	int ret;

	run.lost_at_open = volatile_lost_nr();
	if (stored_fds)
		memcpy(params.stored_fds, stored_fds, sizeof(params.stored_fds));
	/* Its own FLUSH may fail. */
	do {
		lost_nr = volatile_lost_nr();
		ret = rig_open(&run.rig, &params);
		if (ret < 0 && strstr(run.rig.error, "--force")) {
			volatile_as_files(force_store);
			ret = rig_open(&run.rig, &params);
		}
	} while (ret < 0 && volatile_lost_nr() != lost_nr);
	EXPECT(ret == 0, "%s", run.rig.error);
	if (ret < 0)
		return ret;
	run.sector_nr =
		MIN(backend_size(run.rig.device) / BLOCK_BYTES * BLOCK_SECTORS, SECTORS_MAX);
	run.failed_nr = 0;
	return 0;
}

static void take_block(uint64_t block, const uint64_t *words)
{
	memset(run.is_given_up + block * BLOCK_SECTORS, false, BLOCK_SECTORS);
	for (uint64_t i = 0; i < BLOCK_SECTORS; i++)
		run.newest[block * BLOCK_SECTORS + i] = run.oldest[block * BLOCK_SECTORS + i] =
			(uint32_t)(words[i * SECTOR_BYTES / sizeof(*words)] >> 32);
}

static void look_at_each(uint64_t block, unsigned nr)
{
	for (; nr > 0 && !tap_failed(); block++, nr--) {
		if (check_block(block, false))
			take_block(block, buf());
		else
			write_blocks(block, 1, 0);
	}
}

/* What is there now is all that there is. Many at a time, as each I/O takes its time. */
static void look_at_all(void)
{
	uint64_t block_nr = run.sector_nr / BLOCK_SECTORS;

	for (uint64_t block = 0; block < block_nr && !tap_failed(); block += LOOK_BLOCKS) {
		unsigned nr = (unsigned)MIN(block_nr - block, (uint64_t)LOOK_BLOCKS);

		if (rig_do(&run.rig, BACKEND_READ, 0, block * BLOCK_BYTES, nr * BLOCK_BYTES, NULL) <
		    0) {
			look_at_each(block, nr);
			continue;
		}
		for (unsigned i = 0; i < nr; i++) {
			const uint64_t *words = buf() + i * BLOCK_BYTES / sizeof(*words);

			judge_block(block + i, words, false);
			take_block(block + i, words);
		}
	}
}

static int lose_power(void)
{
	rig_crash(&run.rig);
	volatile_power_cut();
	if (open_tree(NULL) < 0)
		return -1;
	look_at_all();
	return 0;
}

/* As when the process is killed: the next one takes over what it kept. */
static int lose_process(void)
{
	int fds[RIG_STORED_MAX], ret;

	rig_stored_dup(&run.rig, fds);
	rig_crash(&run.rig);
	ret = open_tree(fds);
	rig_stored_close(fds);
	return ret;
}

static int stop_and_start(void)
{
	rig_close(&run.rig);
	return open_tree(NULL);
}

/* Returns -1 when it could not be opened any more. */
static int step(void)
{
	switch (prng_below(&run.prng, 64)) {
	case 0:
		return lose_power();
	case 1:
		return lose_process();
	case 2:
		return stop_and_start();
	case 3 ... 5:
		volatile_lose((unsigned)prng_below(&run.prng, 4));
		return 0;
	case 6 ... 16:
		flush();
		return 0;
	case 17 ... 20:
		write_somewhere(BACKEND_FUA);
		return 0;
	case 21 ... 32:
		look_somewhere();
		return 0;
	default:
		write_somewhere(0);
		return 0;
	}
}

/* Opened again after a loss, a node works as if nothing had been. */
static int end_well(void)
{
	volatile_lose(1000000);
	if (stop_and_start() < 0)
		return -1;
	while (flush() < 0 && !tap_failed())
		;
	for (uint64_t block = 0; block < run.sector_nr / BLOCK_SECTORS; block += 5)
		write_blocks(block, 1, 0);
	EXPECT(flush() == 0, "the last FLUSH");
	return lose_power();
}

static void run_seed(uint64_t seed)
{
	volatile_begin(seed);
	memset(run.newest, 0, sizeof(run.newest));
	memset(run.oldest, 0, sizeof(run.oldest));
	memset(run.is_given_up, 0, sizeof(run.is_given_up));
	run.version = 0;
	run.lost_at_flush = 0;
	prng_init(&run.prng, seed);
	run.owed_fd = memfd_create("owed", MFD_CLOEXEC);
	ASSERT(run.owed_fd > 0 && ftruncate(run.owed_fd, BACKEND_OWED_BYTES) == 0);
	if (open_tree(NULL) == 0) {
		bool is_open = true;

		for (unsigned i = 0; i < STEPS && is_open && !tap_failed(); i++)
			is_open = step() == 0;
		if (is_open && !tap_failed())
			is_open = end_well() == 0;
		if (is_open)
			rig_crash(&run.rig);
	}
	close(run.owed_fd);
	if (tap_failed())
		printf("# seed %llu\n", (unsigned long long)seed);
}

static void run_tree(const struct tree *tree, uint64_t seed, unsigned seed_nr)
{
	if (!tap_begin("%s", tree->name))
		return;
	run.tree = tree;
	for (unsigned i = 0; i < seed_nr && !tap_failed(); i++)
		run_seed(seed + i);
	tap_end();
}

/* A new one cannot be forgotten here. */
static void check_all_are_here(void)
{
	char type[64];

	if (!tap_begin("every node over others is here"))
		return;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		/* What is shared is only read. */
		bool is_here = !(*b)->children || strcmp((*b)->name, "shared") == 0;

		snprintf(type, sizeof(type), "type: %s\n", (*b)->name);
		for (unsigned i = 0; i < ARRAY_SIZE(trees); i++)
			is_here |= strncmp(trees[i].yaml, type, strlen(type)) == 0;
		EXPECT(is_here, "%s is not", (*b)->name);
	}
	tap_end();
}

int main(int argc, char **argv)
{
	unsigned seed_nr = SEEDS;
	uint64_t seed = 1;
	const char *only = NULL;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--seeds") == 0)
			seed_nr = (unsigned)strtoul(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--only") == 0)
			only = argv[i + 1];
	}
	log_init(LOG_LEVEL_ERROR);
	alarm(600 + 60 * seed_nr);
	tap_init(argv[0], only, seed);
	check_all_are_here();
	for (unsigned i = 0; i < ARRAY_SIZE(trees); i++)
		run_tree(&trees[i], seed, seed_nr);
	return tap_finish();
}
