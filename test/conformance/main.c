/*
 * conformance [--seed N] [--only TEXT] [--third N] [--ios N]: every backend on real rings, in one
 * thread, without need of root. --only ^TEXT: all but those; --third: each third variant, those of
 * N modulo 3. Prints TAP. What it makes is in a directory below TMPDIR that it removes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "rbd_cluster.h"
#include "suite.h"
#include "tap.h"
#include "test/rig/heap.h"
#include "variants.h"

/* A backend that never completes is ended by this. */
#define ALARM_S 1800

struct args {
	uint64_t seed;
	const char *only;
	struct suite_part part;
	unsigned io_nr;
};

/* By hand: getopt.h's struct option is not config/option.h's. */
static int parse_args(struct args *args, int argc, char **argv)
{
	*args = (struct args){ .seed = (uint64_t)time(NULL), .part.nr = 1, .io_nr = 1000 };
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			args->seed = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--only") == 0)
			args->only = argv[i + 1];
		else if (strcmp(argv[i], "--third") == 0)
			args->part = (struct suite_part){ strtoull(argv[i + 1], NULL, 0) % 3, 3 };
		else if (strcmp(argv[i], "--ios") == 0)
			args->io_nr = (unsigned)strtoul(argv[i + 1], NULL, 0);
		else
			return -1;
	}
	return argc % 2 == 1 ? 0 : -1;
}

static int make_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(variant_dir, sizeof(variant_dir), "%s/ublkd-conformance.XXXXXX",
		 tmp ? tmp : "/tmp");
	return mkdtemp(variant_dir) ? 0 : -1;
}

static void remove_dir(void)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", variant_dir);
	if (system(command) != 0)
		fprintf(stderr, "cannot remove %s\n", variant_dir);
}

int main(int argc, char **argv)
{
	struct args args;

	heap_without_caches(argv);
	if (parse_args(&args, argc, argv) < 0) {
		fprintf(stderr, "usage: %s [--seed N] [--only TEXT] [--third N] [--ios N]\n",
			argv[0]);
		return 2;
	}
	if (make_dir() < 0) {
		perror(variant_dir);
		return 1;
	}
	log_init(LOG_LEVEL_ERROR);
	alarm(ALARM_S);
	tap_init(argv[0], args.only, args.seed);
	suite_run(args.seed, args.io_nr, args.part);
	file_cases_run();
	mem_cases_run();
	resize_cases_run();
	rbd_cases_run();
	contract_run(args.seed);
	rbd_end();
	remove_dir();
	return tap_finish();
}
