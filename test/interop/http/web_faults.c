/*
 * web_faults [--seed N] [--only TEXT]: the backends http, s3 and s3-disk on real rings
 * against http_server.py and s3_store.py, which break every rule. Prints TAP; needs python3 and
 * certtool, no root.
 */
#include "web_case.h"

static void run_all(uint64_t seed)
{
	web_opens_run(seed);
	web_answers_run(seed);
	web_outages_run(seed);
	web_cache_run(seed);
	s3_run(seed);
	s3_disk_run(seed);
	s3_disk_lists_run(seed);
	s3_disk_leases_run(seed);
}

int main(int argc, char **argv)
{
	return fault_case_main(argc, argv, run_all);
}
