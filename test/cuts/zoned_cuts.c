/*
 * zoned_cuts [--seed N] [--cuts N] [--only TEXT] [--run N] [--soak]: power is cut in the middle of
 * what a device with zones does, or its process dies. Prints TAP.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "test/conformance/tap.h"
#include "test/cuts/zoned_rig.h"

#define ZCUTS_ALARM_S 300

struct zcuts_scenario {
	const char *name;
	bool dies, is_busy;
};

static const struct zcuts_scenario zcuts_scenarios[] = {
	{ .name = "power is cut" },
	{ .name = "power is cut, the disk is busy", .is_busy = true },
	{ .name = "processes die", .dies = true },
	{ .name = "processes die, the disk is busy", .dies = true, .is_busy = true },
};

struct zcuts_args {
	uint64_t seed, cut_nr;
	unsigned run_nr;
	const char *only;
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

static void zcuts_run_in_process(const struct zcuts_scenario *s, struct zcuts_world *w,
				 uint64_t seed)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ASSERT(pid >= 0);
	if (pid == 0) {
		alarm(ZCUTS_ALARM_S);
		zcuts_run(w);
		_exit(0);
	}
	ASSERT(waitpid(pid, &status, 0) == pid);
	if (status != 0)
		zcuts_fail(w, "the process ends with status 0x%x", status);
	if (w->words[0] == '\0')
		return;
	tap_fail(__FILE__, __LINE__, "%s", w->words);
	printf("# again: --seed %llu --run 1 --only '%s'\n", (unsigned long long)seed, s->name);
}

static void zcuts_scenario_run(const struct zcuts_scenario *s, const struct zcuts_args *args,
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

/* By hand: getopt.h's struct option is not config/option.h's. */
static bool zcuts_parse(int argc, char **argv, struct zcuts_args *args)
{
	*args = (struct zcuts_args){ .seed = (uint64_t)time(NULL) * 100000, .cut_nr = 10000 };
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--soak") == 0)
			args->cut_nr *= 10;
		else if (i + 1 == argc)
			return false;
		else if (strcmp(argv[i], "--seed") == 0)
			args->seed = strtoull(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--cuts") == 0)
			args->cut_nr = strtoull(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--run") == 0)
			args->run_nr = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--only") == 0)
			args->only = argv[++i];
		else
			return false;
	}
	if (getenv("UBLKD_SOAK"))
		args->cut_nr *= 10;
	return true;
}

int main(int argc, char **argv)
{
	struct zcuts_args args;
	unsigned nr = 0;

	if (!zcuts_parse(argc, argv, &args)) {
		fprintf(stderr,
			"usage: %s [--seed N] [--cuts N] [--only TEXT] [--run N] [--soak]\n",
			argv[0]);
		return 2;
	}
	log_init(getenv("CUTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	tap_init(argv[0], args.only, args.seed);
	for (unsigned i = 0; i < ARRAY_SIZE(zcuts_scenarios); i++)
		nr += tap_is_wanted("%s", zcuts_scenarios[i].name);
	for (unsigned i = 0; i < ARRAY_SIZE(zcuts_scenarios); i++)
		zcuts_scenario_run(&zcuts_scenarios[i], &args, args.cut_nr / MAX(nr, 1u) + 1);
	return tap_finish();
}
