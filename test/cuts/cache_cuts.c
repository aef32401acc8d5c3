/*
 * cache_cuts [--seed N] [--cuts N] [--only TEXT] [--run N] [--soak]: power is cut in the middle of
 * what a cache does, or its process dies. No byte may be stale, torn or lost. Prints TAP.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "test/conformance/tap.h"
#include "test/cuts/cuts_program.h"
#include "test/cuts/cache_rig.h"

#define RUN_ALARM_S 300

struct scenario {
	const char *name;
	int mode;
	bool origin_fails, store_fails, cancels, dies, is_warm, origin_loses, store_loses;
};

static const struct scenario scenarios[] = {
	{ .name = "readthrough", .mode = CACHE_READTHROUGH },
	{ .name = "readthrough, mostly read, processes die",
	  .mode = CACHE_READTHROUGH,
	  .is_warm = true,
	  .dies = true },
	{ .name = "writethrough", .mode = CACHE_WRITETHROUGH },
	{ .name = "writethrough, processes die", .mode = CACHE_WRITETHROUGH, .dies = true },
	{ .name = "writethrough, the store fails",
	  .mode = CACHE_WRITETHROUGH,
	  .store_fails = true },
	{ .name = "writethrough, the origin fails, requests are cancelled",
	  .mode = CACHE_WRITETHROUGH,
	  .origin_fails = true,
	  .cancels = true },
	{ .name = "writeback", .mode = CACHE_WRITEBACK },
	{ .name = "writeback, processes die", .mode = CACHE_WRITEBACK, .dies = true },
	{ .name = "writeback, the origin fails, requests are cancelled",
	  .mode = CACHE_WRITEBACK,
	  .origin_fails = true,
	  .cancels = true,
	  .dies = true },
	{ .name = "readthrough, FLUSHes of the origin fail, and what they cover is lost",
	  .mode = CACHE_READTHROUGH,
	  .origin_loses = true,
	  .dies = true },
	{ .name = "writethrough, FLUSHes of the origin fail, and what they cover is lost",
	  .mode = CACHE_WRITETHROUGH,
	  .origin_loses = true,
	  .dies = true },
	{ .name = "writeback, FLUSHes of the origin fail, and what they cover is lost",
	  .mode = CACHE_WRITEBACK,
	  .origin_loses = true,
	  .dies = true },
	{ .name = "readthrough, FLUSHes of the store fail, and what they cover is lost",
	  .mode = CACHE_READTHROUGH,
	  .store_loses = true,
	  .dies = true },
	{ .name = "writethrough, FLUSHes of the store fail, and what they cover is lost",
	  .mode = CACHE_WRITETHROUGH,
	  .store_loses = true,
	  .dies = true },
	{ .name = "writeback, FLUSHes of the store fail, and what they cover is lost",
	  .mode = CACHE_WRITEBACK,
	  .store_loses = true,
	  .dies = true },
	{ .name = "writeback, the store fails",
	  .mode = CACHE_WRITEBACK,
	  .store_fails = true,
	  .dies = true },
};

static struct disk *disk_for(struct prng *p, uint64_t bytes, bool is_plain, bool is_blank)
{
	struct disk *d = disk_new(p, bytes, false, is_plain);

	if (is_blank) {
		memset(d->now, 0, bytes);
		memset(d->durable, 0, bytes);
	}
	return d;
}

static void choose_config(struct cache_world *w, const struct scenario *s)
{
	static const uint64_t blocks[] = { 4096, 8192, 16384, 65536 };
	struct prng *p = &w->prng;

	w->config.mode = s->mode;
	w->config.block_bytes = blocks[prng_below(p, ARRAY_SIZE(blocks))];
	w->config.prefetch = prng_below(p, 4);
	w->config.dirty_max = prng_one_in(p, 2) ? 0.5 : 0.2;
	/* The clock goes on by a microsecond with each turn. */
	w->config.commit_ns = prng_between(p, 20, 2000) * NS_PER_US;
	w->config.clean_ns = prng_between(p, 20, 2000) * NS_PER_US;
	w->origin_bytes = prng_between(p, 16, 64) * w->config.block_bytes;
	w->origin_bytes = MIN(w->origin_bytes, MIB(1)) - prng_below(p, 8) * SECTOR_BYTES;
	w->store_bytes = prng_between(p, 10, 40) * w->config.block_bytes + KIB(96);
}

static void choose_ways(struct cache_world *w, const struct scenario *s)
{
	struct prng *p = &w->prng;

	w->depth = (unsigned)prng_between(p, 1, 16);
	w->request_nr = (unsigned)prng_between(p, 200, 1500);
	w->cut_max = 25;
	w->cut_one_in = (unsigned)prng_between(p, 20, 200);
	w->submit_part = (unsigned)prng_between(p, 1, 8);
	w->turn_part = (unsigned)prng_between(p, 1, 8);
	w->end_part = (unsigned)prng_between(p, 1, 8);
	w->dies = s->dies;
	w->is_warm = s->is_warm;
	w->store_fails = s->store_fails || s->store_loses;
	/* In writeback the store has bytes that nobody else has. */
	w->may_fail =
		s->origin_fails || s->cancels || (s->store_fails && s->mode == CACHE_WRITEBACK);
	w->loses = s->origin_loses || (s->store_loses && s->mode == CACHE_WRITEBACK);
	w->may_fail |= w->loses;
	/* What a FLUSH of it did not cover is not in the index that the next process reads. */
	w->loses |= s->store_fails && s->mode == CACHE_WRITEBACK;
	w->cancel_one_in = s->cancels ? 100 : 0;
	w->job_one_in = (unsigned)prng_between(p, 20, 2000);
}

static struct cache_world *world_new(const struct scenario *s, uint64_t seed)
{
	struct cache_world *w = cuts_shared_alloc(sizeof(*w));
	struct prng *p = &w->prng;

	prng_init(p, seed);
	choose_config(w, s);
	choose_ways(w, s);
	w->moves = seed & 1;
	w->origin = disk_for(p, w->origin_bytes, false, false);
	w->store = disk_for(p, w->store_bytes, false, true);
	w->left_origin = disk_for(p, w->origin_bytes, true, false);
	w->left_store = disk_for(p, w->store_bytes, true, true);
	w->origin->can_discard = prng_one_in(p, 2);
	w->left_origin->can_discard = w->origin->can_discard;
	w->origin->version_kind = (enum backend_version_kind)prng_below(p, 3);
	w->origin->is_known_now = seed & 2;
	w->origin->error_one_in = s->origin_fails ? 200 : 0;
	w->store->error_one_in = s->store_fails ? 400 : 0;
	w->origin->flush_error_one_in = s->origin_loses ? 4 : 0;
	w->store->flush_error_one_in = s->store_loses ? 30 : 0;
	w->origin->sync_one_in = prng_one_in(p, 2) ? 5 : 0;
	w->store->sync_one_in = prng_one_in(p, 2) ? 5 : 0;
	w->origin->busy_one_in = w->store->busy_one_in = prng_one_in(p, 3) ? 5 : 0;
	return w;
}

static void world_free(struct cache_world *w)
{
	disk_free(w->origin);
	disk_free(w->store);
	disk_free(w->left_origin);
	disk_free(w->left_store);
	cuts_shared_free(w, sizeof(*w));
}

static void world_run(void *world)
{
	cache_run(world);
}

static void run_in_process(const struct scenario *s, struct cache_world *w, uint64_t seed)
{
	int status = cuts_run_in_process(world_run, w, RUN_ALARM_S);

	if (status != 0)
		cache_world_fail(w, "the process ends with status 0x%x", status);
	if (!cache_world_failed(w))
		return;
	tap_fail(__FILE__, __LINE__, "%s", w->words);
	printf("# again: --seed %llu --run 1 --only '%s'\n", (unsigned long long)seed, s->name);
}

static void run_scenario(const struct scenario *s, const struct cuts_args *args, uint64_t cut_nr)
{
	uint64_t run_nr = 0, cuts = 0, deaths = 0, requests = 0, failed = 0, hits = 0, cleaned = 0;
	uint64_t evictions = 0, warms = 0, warmed = 0, drops = 0, dropped = 0, asides = 0;
	uint64_t aside_writes = 0;

	if (!tap_begin("%s", s->name))
		return;
	while (!tap_failed() && (args->run_nr ? run_nr < args->run_nr : cuts < cut_nr)) {
		struct cache_world *w = world_new(s, args->seed + run_nr);

		run_in_process(s, w, args->seed + run_nr);
		run_nr++;
		cuts += w->cut_nr;
		deaths += w->death_nr;
		requests += w->request_done_nr;
		failed += w->failed_nr;
		hits += w->hits;
		evictions += w->evictions;
		warms += w->warm_nr;
		warmed += w->warmed_bytes;
		drops += w->drop_nr;
		dropped += w->dropped_bytes;
		asides += w->aside_nr;
		aside_writes += w->aside_write_nr;
		cleaned += w->cleaned_bytes;
		world_free(w);
	}
	printf("# %llu runs, %llu cuts (%llu deaths), %llu requests (%llu failed), %llu hits, "
	       "%llu blocks given up, %llu bytes cleaned, %llu warms (%llu bytes), %llu drops "
	       "(%llu bytes), %llu times aside (%llu writes meanwhile)\n",
	       (unsigned long long)run_nr, (unsigned long long)cuts, (unsigned long long)deaths,
	       (unsigned long long)requests, (unsigned long long)failed, (unsigned long long)hits,
	       (unsigned long long)evictions, (unsigned long long)cleaned,
	       (unsigned long long)warms, (unsigned long long)warmed, (unsigned long long)drops,
	       (unsigned long long)dropped, (unsigned long long)asides,
	       (unsigned long long)aside_writes);
	EXPECT(tap_failed() || args->run_nr || (hits > 0 && evictions > 0),
	       "the cache does nothing");
	EXPECT(tap_failed() || args->run_nr || (warmed > 0 && dropped > 0), "commands do nothing");
	EXPECT(tap_failed() || args->run_nr || (asides > 0 && aside_writes > 0),
	       "it does not stand aside");
	tap_end();
}

int main(int argc, char **argv)
{
	struct cuts_args args;
	unsigned nr = 0;

	if (!cuts_args_parse(argc, argv, &args))
		return 2;
	/* Stores that fail are told of by lines of errors. */
	log_init(getenv("CUTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	if (!getenv("CUTS_LOG"))
		ASSERT(freopen("/dev/null", "w", stderr));
	tap_init(argv[0], args.only, args.seed);
	for (unsigned i = 0; i < ARRAY_SIZE(scenarios); i++)
		nr += tap_is_wanted("%s", scenarios[i].name);
	for (unsigned i = 0; i < ARRAY_SIZE(scenarios); i++)
		run_scenario(&scenarios[i], &args, args.cut_nr / MAX(nr, 1u) + 1);
	return tap_finish();
}
