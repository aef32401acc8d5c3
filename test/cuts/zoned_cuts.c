/*
 * zoned_cuts [--seed N] [--cuts N] [--only TEXT] [--run N] [--soak]: power is cut in the middle of
 * what a device with zones does, or its process dies. Prints TAP.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "test/conformance/tap.h"
#include "test/cuts/cuts_program.h"
#include "test/cuts/zoned_rig.h"

#define ZCUTS_ALARM_S 300

struct zcuts_scenario {
	const char *name;
	bool dies, is_busy, loses;
};

static const struct zcuts_scenario zcuts_scenarios[] = {
	{ .name = "power is cut" },
	{ .name = "power is cut, the disk is busy", .is_busy = true },
	{ .name = "processes die", .dies = true },
	{ .name = "processes die, the disk is busy", .dies = true, .is_busy = true },
	{ .name = "FLUSHes fail, and what they cover is lost", .dies = true, .loses = true },
};

static struct disk *blank_disk(struct prng *p, bool is_plain)
{
	uint64_t bytes = ZONE_DATA_ALIGN + (uint64_t)ZCUTS_ZONES * ZCUTS_ZONE_BYTES;
	struct disk *d = disk_new(p, bytes, false, is_plain);

	/* The table; zones hold what somebody has left there. */
	memset(d->now, 0, ZONE_DATA_ALIGN);
	memset(d->durable, 0, ZONE_DATA_ALIGN);
	return d;
}

static struct zcuts_world *zcuts_world_new(const struct zcuts_scenario *s, uint64_t seed)
{
	struct zcuts_world *w = cuts_shared_alloc(sizeof(*w));
	struct prng *p = &w->prng;

	prng_init(p, seed);
	w->moves = seed & 1;
	w->dies = s->dies;
	w->disk = blank_disk(p, false);
	w->left = blank_disk(p, true);
	w->disk->can_discard = prng_one_in(p, 2);
	w->left->can_discard = w->disk->can_discard;
	w->disk->sync_one_in = prng_one_in(p, 2) ? 5 : 0;
	w->disk->flush_error_one_in = s->loses ? 1u << prng_between(p, 3, 7) : 0;
	w->disk->busy_one_in = s->is_busy ? 5 : 0;
	w->request_nr = (unsigned)prng_between(p, 100, 1000);
	w->cut_max = 25;
	w->cut_one_in = (unsigned)prng_between(p, 10, 100);
	w->submit_part = (unsigned)prng_between(p, 1, 8);
	w->turn_part = (unsigned)prng_between(p, 1, 8);
	w->end_part = (unsigned)prng_between(p, 1, 8);
	w->next_value = VALUE_FIRST;
	return w;
}

static void zcuts_world_free(struct zcuts_world *w)
{
	disk_free(w->disk);
	disk_free(w->left);
	cuts_shared_free(w, sizeof(*w));
}

static void zcuts_world_run(void *world)
{
	zcuts_run(world);
}

static void zcuts_run_in_process(const struct zcuts_scenario *s, struct zcuts_world *w,
				 uint64_t seed)
{
	int status = cuts_run_in_process(zcuts_world_run, w, ZCUTS_ALARM_S);

	if (status != 0)
		zcuts_fail(w, "the process ends with status 0x%x", status);
	if (w->words[0] == '\0')
		return;
	tap_fail(__FILE__, __LINE__, "%s", w->words);
	printf("# again: --seed %llu --run 1 --only '%s'\n", (unsigned long long)seed, s->name);
}

static void zcuts_scenario_run(const struct zcuts_scenario *s, const struct cuts_args *args,
			       uint64_t cut_nr)
{
	uint64_t run_nr = 0, cuts = 0, deaths = 0, writes = 0, appends = 0, flushes = 0, resets = 0;
	uint64_t finishes = 0, redone = 0;

	if (!tap_begin("%s", s->name))
		return;
	while (!tap_failed() && (args->run_nr ? run_nr < args->run_nr : cuts < cut_nr)) {
		struct zcuts_world *w = zcuts_world_new(s, args->seed + run_nr);

		zcuts_run_in_process(s, w, args->seed + run_nr);
		run_nr++;
		cuts += w->cut_nr;
		deaths += w->death_nr;
		writes += w->write_nr;
		appends += w->append_nr;
		flushes += w->flush_nr;
		resets += w->reset_nr;
		finishes += w->finish_nr;
		redone += w->redone_nr;
		zcuts_world_free(w);
	}
	printf("# %llu runs, %llu cuts (%llu deaths), %llu writes, %llu appends, %llu flushes, "
	       "%llu resets, %llu finished, %llu sent again\n",
	       (unsigned long long)run_nr, (unsigned long long)cuts, (unsigned long long)deaths,
	       (unsigned long long)writes, (unsigned long long)appends, (unsigned long long)flushes,
	       (unsigned long long)resets, (unsigned long long)finishes,
	       (unsigned long long)redone);
	EXPECT(tap_failed() || args->run_nr || (resets > 0 && finishes > 0 && appends > 0),
	       "the guest does nothing");
	EXPECT(tap_failed() || args->run_nr || !s->dies || redone > 0, "nothing is sent again");
	tap_end();
}

/* A table that is on the disk is durable when the disk says so; one that is not cannot get there.
 */
static void next_is_read_only(uint64_t seed)
{
	static const int results[] = { [false] = -EIO, [true] = 0 };
	struct prng p;

	if (!tap_begin("the next process is read-only"))
		return;
	prng_init(&p, seed);
	for (unsigned flushes = 0; flushes < 2; flushes++) {
		struct disk *disk = blank_disk(&p, true), *left = blank_disk(&p, true);

		zcuts_read_only(disk, left, flushes, results[flushes]);
		disk_free(disk);
		disk_free(left);
	}
	tap_end();
}

int main(int argc, char **argv)
{
	struct cuts_args args;
	unsigned nr = 0;

	if (!cuts_args_parse(argc, argv, &args))
		return 2;
	log_init(getenv("CUTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	tap_init(argv[0], args.only, args.seed);
	for (unsigned i = 0; i < ARRAY_SIZE(zcuts_scenarios); i++)
		nr += tap_is_wanted("%s", zcuts_scenarios[i].name);
	for (unsigned i = 0; i < ARRAY_SIZE(zcuts_scenarios); i++)
		zcuts_scenario_run(&zcuts_scenarios[i], &args, args.cut_nr / MAX(nr, 1u) + 1);
	next_is_read_only(args.seed);
	return tap_finish();
}
