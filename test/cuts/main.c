/*
 * qcow2_cuts [--seed N] [--cuts N] [--only TEXT] [--run N] [--soak]: power is cut, or the process
 * killed, in the middle of writes to qcow2 images, so often in all. Each run is a process and has
 * a seed of its own, which is told when it fails: --seed that one --run 1 repeats it. --soak: ten
 * times as many, and qemu-img checks one of a hundred (UBLKD_SOAK=1: the same). Prints TAP.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "test/conformance/tap.h"
#include "test/cuts/cuts_program.h"
#include "test/cuts/cuts_world.h"

/* A run that takes longer hangs; it has some hundred cuts at most. */
#define RUN_SECONDS_MAX 40u

struct scenario {
	const char *name;
	bool needs_qemu;
	void (*choose)(struct world *w, struct prng *p);
};

/* ---- what runs have in common ---- */

static void choose_backing(struct world *w, struct prng *p)
{
	w->shape.backing = w->shape.bytes;
	if (prng_one_in(p, 3))
		w->shape.backing = round_up(prng_between(p, 1, w->shape.bytes), SECTOR_BYTES);
}

static void choose_all(struct world *w, struct prng *p)
{
	w->shape = (struct image_shape){ .version = 3, .cluster_bits = 9, .refcount_order = 4 };
	w->shape.bytes = SECTOR_BYTES * prng_between(p, 512, 1024);
	w->cache_bytes = prng_one_in(p, 2) ? KIB(64) : MIB(1);
	w->queue_nr = w->reactor_nr = 1;
	w->depth = 1u << prng_below(p, 6);
	w->cut_one_in = 1u << prng_between(p, 1, 7);
	w->submit_part = (unsigned)prng_between(p, 1, 8);
	w->turn_part = (unsigned)prng_between(p, 1, 8);
	w->end_part = (unsigned)prng_between(p, 1, 8);
	w->request_nr = (unsigned)prng_between(p, 50, 1000);
}

static void choose_disk(struct world *w, struct prng *p, uint64_t capacity)
{
	w->disk = disk_new(&w->prng, capacity, !prng_one_in(p, 3), false);
	w->left = disk_new(&w->prng, capacity, true, true);
	w->disk->can_discard = prng_one_in(p, 2);
	w->disk->sync_one_in = prng_one_in(p, 2) ? 8 : 0;
	w->disk->busy_one_in = prng_one_in(p, 3) ? 8 : 0;
}

/* ---- scenarios ---- */

static void choose_small(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 10);
}

static void choose_medium(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 11, 13);
	w->shape.bytes *= prng_between(p, 1, 2);
}

static void choose_large(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 14, 17);
	w->shape.bytes *= prng_between(p, 1, 4);
}

static void choose_counts(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 12);
	w->shape.refcount_order = (unsigned)prng_between(p, 0, 6);
}

static void choose_version_2(struct world *w, struct prng *p)
{
	w->shape.version = 2;
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 12);
	if (prng_one_in(p, 2))
		choose_backing(w, p);
}

static void choose_over_backing(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 16);
	choose_backing(w, p);
}

static void choose_subclusters(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 14, 16);
	w->shape.with_subclusters = true;
	w->shape.bytes *= prng_between(p, 1, 3);
	if (prng_one_in(p, 2))
		choose_backing(w, p);
}

static void choose_queues(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 14);
	w->queue_nr = (unsigned)prng_between(p, 2, RIG_QUEUES_MAX);
	w->reactor_nr = (unsigned)prng_between(p, 2, w->queue_nr);
	if (prng_one_in(p, 2))
		choose_backing(w, p);
}

static void choose_made(struct world *w, struct prng *p)
{
	w->shape.kind = IMAGE_NONE;
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 13);
	w->request_nr = (unsigned)prng_between(p, 1, 100);
	w->cut_one_in = 1u << prng_between(p, 0, 3);
	w->cut_max = 40;
}

static void choose_full(struct world *w, struct prng *p)
{
	choose_small(w, p);
	w->may_fail = true;
	choose_disk(w, p,
		    round_down(w->shape.bytes * prng_between(p, 50, 120) / 100 + KIB(64), 4096));
}

static void choose_errors(struct world *w, struct prng *p)
{
	if (!w->shape.with_subclusters)
		w->shape.cluster_bits = (unsigned)prng_between(p, 9, 13);
	w->may_fail = true;
	w->cancel_one_in = prng_one_in(p, 2) ? 50 : 0;
	if (!w->shape.with_subclusters && prng_one_in(p, 2))
		choose_queues(w, p);
	choose_disk(w, p, 4 * w->shape.bytes + MIB(1));
	w->disk->error_one_in = 1u << prng_between(p, 3, 8);
}

static void choose_qemu(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 9, 14);
	w->shape.version = 3;
	w->shape.refcount_order = 4;
	if (prng_one_in(p, 3))
		choose_version_2(w, p);
	w->shape.backing = 0;
	if (w->shape.version > 2 && prng_one_in(p, 3))
		w->shape.cluster_bits = 14, w->shape.with_subclusters = true;
}

static void choose_snapshots(struct world *w, struct prng *p)
{
	choose_qemu(w, p);
	w->shape.kind = prng_one_in(p, 8) ? IMAGE_FULL : IMAGE_SNAPSHOTS;
}

static void choose_packed(struct world *w, struct prng *p)
{
	choose_qemu(w, p);
	w->shape.kind = IMAGE_PACKED;
	w->shape.is_zstd = w->shape.version > 2 && prng_one_in(p, 2);
}

static void choose_dirty(struct world *w, struct prng *p)
{
	do
		choose_qemu(w, p);
	while (w->shape.version == 2);
	w->shape.is_dirty = true;
	w->shape.kind = prng_one_in(p, 2) ? IMAGE_FULL : IMAGE_SNAPSHOTS;
	w->request_nr = (unsigned)prng_between(p, 1, 100);
	w->cut_one_in = 1u << prng_between(p, 0, 3);
	w->cut_max = 40;
	choose_disk(w, p, 4 * w->shape.bytes + MIB(1));
	/* They go behind the end of the image. */
	if (!w->disk->grows) {
		disk_free(w->disk);
		w->disk = disk_new(&w->prng, 4 * w->shape.bytes + MIB(1), true, false);
	}
}

static void choose_kills(struct world *w, struct prng *p)
{
	static void (*const kind[])(struct world *, struct prng *) = {
		choose_small,	  choose_medium,       choose_large,	   choose_counts,
		choose_version_2, choose_over_backing, choose_subclusters, choose_queues,
	};

	kind[prng_below(p, ARRAY_SIZE(kind))](w, p);
	w->is_killed = true;
	w->cut_one_in = 1u << prng_between(p, 4, 10);
	w->request_nr = (unsigned)prng_between(p, 50, 400);
}

static void choose_kills_qemu(struct world *w, struct prng *p)
{
	choose_kills(w, p);
	w->shape.with_subclusters = false;
	if (prng_one_in(p, 2))
		choose_snapshots(w, p);
	else
		choose_packed(w, p);
}

static void choose_kills_errors(struct world *w, struct prng *p)
{
	choose_kills(w, p);
	choose_errors(w, p);
}

static void choose_data_file(struct world *w, struct prng *p)
{
	static void (*const kind[])(struct world *, struct prng *) = {
		choose_small,	     choose_medium,	 choose_large,
		choose_over_backing, choose_subclusters, choose_queues,
	};
	uint64_t bytes;

	kind[prng_below(p, ARRAY_SIZE(kind))](w, p);
	choose_disk(w, p, 4 * w->shape.bytes + MIB(1));
	bytes = round_up(w->shape.bytes, 1ull << w->shape.cluster_bits);
	w->disk->beside = disk_new(&w->prng, bytes, !prng_one_in(p, 3), false);
	w->left->beside = disk_new(&w->prng, bytes, true, true);
	w->is_killed = prng_one_in(p, 4);
	if (w->is_killed)
		w->request_nr = (unsigned)prng_between(p, 50, 400);
}

static void choose_encrypted(struct world *w, struct prng *p)
{
	w->shape.cluster_bits = (unsigned)prng_between(p, 12, 16);
	if (w->shape.cluster_bits >= 14 && prng_one_in(p, 2))
		w->shape.with_subclusters = true;
	if (prng_one_in(p, 2))
		choose_backing(w, p);
	if (prng_one_in(p, 2))
		w->changes.one_in = 1u << prng_between(p, 4, 9);
	w->shape.is_encrypted = true;
	choose_disk(w, p, 8 * w->shape.bytes + MIB(2));
	w->is_killed = prng_one_in(p, 4);
	if (w->is_killed)
		w->request_nr = (unsigned)prng_between(p, 50, 400);
}

/* Nothing else fails, nor is changed. */
static void fail_flushes(struct world *w, struct prng *p)
{
	unsigned one_in = 1u << prng_between(p, 1, 5);

	w->may_fail = true;
	w->is_killed = false;
	w->changes.one_in = 0;
	if (!w->disk)
		choose_disk(w, p, 4 * w->shape.bytes + MIB(1));
	disk_fail_flushes(w->disk, one_in);
}

static void choose_lost(struct world *w, struct prng *p)
{
	static void (*const kind[])(struct world *, struct prng *) = {
		choose_small,  choose_medium,	    choose_large,
		choose_counts, choose_over_backing, choose_subclusters,
		choose_queues, choose_data_file,    choose_encrypted,
	};

	kind[prng_below(p, ARRAY_SIZE(kind))](w, p);
	fail_flushes(w, p);
}

static void choose_lost_qemu(struct world *w, struct prng *p)
{
	if (prng_one_in(p, 3))
		choose_packed(w, p);
	else
		choose_snapshots(w, p);
	fail_flushes(w, p);
}

static void choose_lost_killed(struct world *w, struct prng *p)
{
	choose_lost(w, p);
	w->is_killed = true;
	w->cut_one_in = 1u << prng_between(p, 4, 10);
	w->request_nr = (unsigned)prng_between(p, 50, 400);
}

static void choose_changes(struct world *w, struct prng *p)
{
	static void (*const kind[])(struct world *, struct prng *) = {
		choose_small,	     choose_medium,	 choose_counts, choose_version_2,
		choose_over_backing, choose_subclusters, choose_queues,
	};

	kind[prng_below(p, ARRAY_SIZE(kind))](w, p);
	/* Fewer bits than 8 do not count what a few kills leave. */
	w->shape.refcount_order = MAX(w->shape.refcount_order, 3u);
	w->changes.one_in = 1u << prng_between(p, 4, 9);
	choose_disk(w, p, 8 * w->shape.bytes + MIB(2));
}

static void choose_changes_qemu(struct world *w, struct prng *p)
{
	if (prng_one_in(p, 2))
		choose_snapshots(w, p);
	else
		choose_packed(w, p);
	w->changes.one_in = 1u << prng_between(p, 4, 9);
	choose_disk(w, p, 8 * w->shape.bytes + MIB(2));
}

static void choose_changes_kills(struct world *w, struct prng *p)
{
	if (prng_one_in(p, 3))
		choose_changes_qemu(w, p);
	else
		choose_changes(w, p);
	w->is_killed = true;
	w->cut_one_in = 1u << prng_between(p, 4, 10);
	w->request_nr = (unsigned)prng_between(p, 50, 400);
}

/* With what is lost gone at once: a snapshot has what can be read when it is made. */
static void choose_changes_lost(struct world *w, struct prng *p)
{
	unsigned one_in;

	if (prng_one_in(p, 3))
		choose_changes_qemu(w, p);
	else
		choose_changes(w, p);
	one_in = w->changes.one_in;
	fail_flushes(w, p);
	w->changes.one_in = one_in;
	w->disk->lost_is_gone = true;
}

static void choose_changes_lost_killed(struct world *w, struct prng *p)
{
	choose_changes_lost(w, p);
	w->changes.one_in = 1u << prng_between(p, 2, 6);
	w->is_killed = true;
	w->cut_one_in = 1u << prng_between(p, 4, 10);
	w->request_nr = (unsigned)prng_between(p, 50, 400);
}

static const struct scenario scenarios[] = {
	{ "clusters of 512 and 1024 bytes", false, choose_small },
	{ "clusters of 2 to 8 KiB", false, choose_medium },
	{ "clusters of 16 to 128 KiB", false, choose_large },
	{ "reference counts of 1 to 64 bits", false, choose_counts },
	{ "version 2", false, choose_version_2 },
	{ "over a backing image", false, choose_over_backing },
	{ "subclusters", false, choose_subclusters },
	{ "queues of several reactors", false, choose_queues },
	{ "a new image is made", false, choose_made },
	{ "the storage is full", false, choose_full },
	{ "the storage fails, requests are cancelled", false, choose_errors },
	{ "FLUSHes fail, and what they cover is lost", false, choose_lost },
	{ "the same, and the process is killed", false, choose_lost_killed },
	{ "the same of qemu-img's images, with snapshots or compressed clusters", true,
	  choose_lost_qemu },
	{ "snapshots", true, choose_snapshots },
	{ "compressed clusters", true, choose_packed },
	{ "reference counts are made anew", true, choose_dirty },
	{ "an external data file", false, choose_data_file },
	{ "encrypted", false, choose_encrypted },
	{ "snapshots are changed", false, choose_changes },
	{ "snapshots are changed, of qemu-img's images", true, choose_changes_qemu },
	{ "snapshots are changed, and FLUSHes fail", true, choose_changes_lost },
	{ "the process is killed", false, choose_kills },
	{ "the process is killed, snapshots and compressed clusters", true, choose_kills_qemu },
	{ "the process is killed, snapshots are changed", true, choose_changes_kills },
	{ "the process is killed, snapshots are changed, and FLUSHes fail", true,
	  choose_changes_lost_killed },
	{ "the process is killed, the storage fails", false, choose_kills_errors },
};

/* ---- runs ---- */

/* qemu-img's, of the image as it is at first. */
static void add_snapshots(struct world *w)
{
	static uint32_t value[MODEL_SECTORS_MAX];

	if (w->shape.kind != IMAGE_SNAPSHOTS)
		return;
	for (uint64_t i = 0; i < w->model.sector_nr; i++)
		value[i] = image_value(&w->shape, i);
	changes_add(&w->changes, "a", value, w->model.sector_nr);
	changes_add(&w->changes, "b", value, w->model.sector_nr);
}

static void run_one(struct world *w)
{
	add_snapshots(w);
	if (w->is_killed)
		kill_world(w);
	else
		run_world(w);
}

static void world_run(struct world *w)
{
	alarm(RUN_SECONDS_MAX);
	if (!w->disk)
		choose_disk(w, &w->prng, 4 * w->shape.bytes + MIB(1));
	if (!image_put(&w->shape, w->disk, &w->model))
		world_fail(w, "qemu-img fails");
	else
		run_one(w);
	if (!world_failed(w))
		rig_reactors_drop();
	judge_end();
	disk_free(w->disk);
	disk_free(w->left);
	/* What a failed run holds nobody needs. */
	if (world_failed(w))
		_exit(0);
	exit(0);
}

static struct world *world_new(const struct scenario *s, uint64_t seed, bool is_soak)
{
	struct world *w = cuts_shared_alloc(sizeof(*w));

	prng_init(&w->prng, seed);
	w->is_soak = is_soak;
	w->cut_max = 100;
	choose_all(w, &w->prng);
	s->choose(w, &w->prng);
	return w;
}

static void tell_shape(const struct world *w)
{
	printf("# kind %u, clusters of %u, counts of %u bits, version %u%s, %llu bytes over %llu, "
	       "cache %llu, %u queues on %u reactors, depth %u\n",
	       w->shape.kind, 1u << w->shape.cluster_bits, 1u << w->shape.refcount_order,
	       w->shape.version, w->shape.with_subclusters ? " with subclusters" : "",
	       (unsigned long long)w->shape.bytes, (unsigned long long)w->shape.backing,
	       (unsigned long long)w->cache_bytes, w->queue_nr, w->reactor_nr, w->depth);
}

static void run_in_process(const struct scenario *s, struct world *w, uint64_t seed)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ASSERT(pid >= 0);
	if (pid == 0)
		world_run(w);
	ASSERT(waitpid(pid, &status, 0) == pid);
	if (!world_failed(w) && status != 0)
		snprintf(w->words, sizeof(w->words), "the process ends with status 0x%x%s", status,
			 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
	if (!world_failed(w))
		return;
	tap_fail(__FILE__, __LINE__, "%s", w->words);
	tell_shape(w);
	printf("# again: --seed %llu --run 1 --only '%s'\n", (unsigned long long)seed, s->name);
}

struct sums {
	uint64_t cut_nr, kill_nr, request_nr, failed_nr, change_nr, change_failed_nr, run_nr;
};

static void one_run(const struct scenario *s, uint64_t seed, bool is_soak, struct sums *sums)
{
	struct world *w = world_new(s, seed, is_soak);

	run_in_process(s, w, seed);
	sums->cut_nr += w->cut_nr;
	sums->kill_nr += w->kill_nr;
	sums->request_nr += w->request_done_nr;
	sums->failed_nr += w->failed_nr;
	sums->change_nr += w->changes.done_nr;
	sums->change_failed_nr += w->changes.failed_nr;
	sums->run_nr++;
	cuts_shared_free(w, sizeof(*w));
}

static void run_scenario(const struct scenario *s, const struct cuts_args *args, uint64_t cut_nr)
{
	struct sums sums = { 0 };

	if (!tap_begin("%s", s->name))
		return;
	if (s->needs_qemu && !image_can_convert()) {
		tap_skip("there is no qemu-img");
		tap_end();
		return;
	}
	while (!tap_failed() && (args->run_nr ? sums.run_nr < args->run_nr : sums.cut_nr < cut_nr))
		one_run(s, args->seed + sums.run_nr, args->is_soak, &sums);
	printf("# %llu runs, %llu cuts, %llu kills, %llu requests, of which %llu failed, %llu "
	       "changes of snapshots, beside %llu that failed\n",
	       (unsigned long long)sums.run_nr, (unsigned long long)sums.cut_nr,
	       (unsigned long long)sums.kill_nr, (unsigned long long)sums.request_nr,
	       (unsigned long long)sums.failed_nr, (unsigned long long)sums.change_nr,
	       (unsigned long long)sums.change_failed_nr);
	tap_end();
}

/* Of the scenarios that are wanted, each has as many cuts. */
static uint64_t cuts_of_each(uint64_t cut_nr)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(scenarios); i++)
		nr += tap_is_wanted("%s", scenarios[i].name);
	return cut_nr / MAX(nr, 1u) + 1;
}

int main(int argc, char **argv)
{
	struct cuts_args args;

	if (!cuts_args_parse(argc, argv, &args))
		return 2;
	log_init(getenv("CUTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	tap_init(argv[0], args.only, args.seed);
	for (unsigned i = 0; i < ARRAY_SIZE(scenarios); i++)
		run_scenario(&scenarios[i], &args, cuts_of_each(args.cut_nr));
	return tap_finish();
}
