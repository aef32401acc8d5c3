/*
 * nvme_faults [--seed N] [--only TEXT]: the nvme-tcp backend on real rings against nvme_target.py,
 * which breaks every rule. Prints TAP; needs python3, no root.
 */
#include "nvme_case.h"

static void run_all(uint64_t seed)
{
	refusals_run(seed);
	bad_pdus_run(seed);
	cuts_run(seed);
	changes_run(seed);
	outages_run(seed);
	statuses_run(seed);
	paths_run(seed);
	limits_run(seed);
	abandon_run(seed);
}

int main(int argc, char **argv)
{
	return fault_case_main(argc, argv, run_all);
}
