/* What the programs that cut have in common: their command line, and a run in a process of its own.
 */
#ifndef TEST_CUTS_CUTS_PROGRAM_H
#define TEST_CUTS_CUTS_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

struct cuts_args {
	uint64_t seed;
	uint64_t cut_nr; /* of all scenarios together */
	unsigned run_nr; /* of each scenario; 0: as many as it takes */
	const char *only;
	bool is_soak;
};

/* --soak, or UBLKD_SOAK: 25 times as many cuts. False: stderr says how it is used. */
bool cuts_args_parse(int argc, char **argv, struct cuts_args *args);

/* Runs run(arg) in a process that a signal ends after so many seconds; returns its wait status. */
int cuts_run_in_process(void (*run)(void *arg), void *arg, unsigned seconds);

#endif
