/*
 * web_faults [--seed N] [--only TEXT]: the backends http and s3 on real rings against
 * http_server.py, which breaks every rule. Prints TAP; needs python3 and certtool, no root.
 */
#include "web_case.h"

static void run_all(uint64_t seed)
{
	web_opens_run(seed);
	web_answers_run(seed);
	web_outages_run(seed);
	web_cache_run(seed);
	s3_run(seed);
}

int main(int argc, char **argv)
{
	return fault_case_main(argc, argv, run_all);
}
