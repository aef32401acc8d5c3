/* Filters by chance over a slot's backend: all of them as if they were not there, but for time. */
#ifndef SIM_FILTERS_H
#define SIM_FILTERS_H

#include "storage/backend.h"

/* Of one device; of those, over each other at its top. */
#define SIM_FILTERS_MAX 16
#define SIM_STACK_MAX 3
/* Nodes above each other, those included. */
#define SIM_DEPTH_MAX 8

struct sim_filters {
	struct backend_spec spec[SIM_FILTERS_MAX];
	void *config[SIM_FILTERS_MAX];
	unsigned nr;
};

/* The top of a stack over bottom, often bottom itself. Frees the stack before it. */
const struct backend_spec *sim_filters_choose(struct sim_filters *f,
					      const struct backend_spec *bottom);
/* One more over child, of chance. */
struct backend_spec *sim_filters_add(struct sim_filters *f, const struct backend_spec *child);
/* Accepts a zeroed one. */
void sim_filters_fini(struct sim_filters *f);

/* Other limits for the uppermost throttle; nothing without one. */
void sim_filters_retune(struct backend_device *top);

/* A product's backend gets its options as from a file; the caller frees by the table. */
void *sim_parse_options(const struct backend *ops, const char *yaml);

#endif
