/*
 * A node at the top of some devices that keeps metadata of their clients (type integrity), over a
 * slot's backend and metadata in memory of the product.
 */
#ifndef SIM_TOP_H
#define SIM_TOP_H

#include "storage/backend.h"

struct sim_top {
	struct backend_spec data, metadata, spec;
	void *config, *metadata_config; /* NULL: there is none */
};

/* Over data, of a device of so many bytes and blocks. Frees the one before it. */
const struct backend_spec *sim_top_make(struct sim_top *t, const struct backend_spec *data,
					uint64_t size_bytes, uint32_t block_bytes);
/* Accepts a zeroed one. */
void sim_top_fini(struct sim_top *t);

#endif
