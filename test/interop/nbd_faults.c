/*
 * nbd_faults [--seed N] [--only TEXT]: the NBD backend on real rings against nbd_server.py, which
 * breaks every rule. Prints TAP; needs python3, no root.
 */
#include "nbd_case.h"

static void run_all(uint64_t seed)
{
	changes_run(seed);
	bad_replies_run(seed);
	disconnects_run(seed);
	outage_timeout_run(seed);
	lives_run(seed);
	restarts_run(seed);
}

int main(int argc, char **argv)
{
	return fault_case_main(argc, argv, run_all);
}
