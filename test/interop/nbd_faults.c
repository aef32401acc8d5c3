/*
 * nbd_faults [--seed N] [--only TEXT]: the NBD backend on real rings against nbd_server.py, which
 * breaks every rule. Prints TAP; needs python3, no root.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nbd_case.h"

int main(int argc, char **argv)
{
	uint64_t seed = (uint64_t)time(NULL);
	const char *only = NULL;

	for (int i = 1; i < argc; i += 2) {
		if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
			seed = strtoull(argv[i + 1], NULL, 0);
		} else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
			only = argv[i + 1];
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--only TEXT]\n", argv[0]);
			return 2;
		}
	}
	tap_init(argv[0], only, seed);
	changes_run(seed);
	bad_replies_run(seed);
	disconnects_run(seed);
	outage_timeout_run(seed);
	lives_run(seed);
	restarts_run(seed);
	return tap_finish();
}
