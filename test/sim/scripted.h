/* A backend of the test's own, in memory: slow, busy, failing, out of order, or plainly wrong. */
#ifndef SIM_SCRIPTED_H
#define SIM_SCRIPTED_H

#include "storage/backend.h"
#include "test/sim/storage.h"

struct scripted_config {
	struct storage *st;
	bool has_cache, has_fua;
	uint32_t max_io_bytes;
	/* What it has of the device, whose sizes are whole rows; how much more it has than that. */
	struct sim_part part;
	uint64_t row_bytes, extra_bytes;
};

/* The same twice: with bytes in memory only, or wherever they are. */
extern const struct backend scripted_backend, scripted_mover;

#endif
