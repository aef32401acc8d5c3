/* One run of the simulator: a world made from a seed, until its requests are used up. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include <stdint.h>

#include "test/sim/world.h"

struct run_result {
	uint64_t ios;	     /* requests answered */
	uint64_t trace_hash; /* two runs of one seed have the same */
	uint64_t turns, lives, starts;
	uint64_t virtual_ns;
};

/* Returns only when all is well; otherwise ends the process. ios: requests to make. */
void run(uint64_t seed, uint64_t ios, enum defect defect, uint64_t *fault_nr,
	 struct run_result *ret_result);

#endif
