/*
 * Trees of stripes by chance over a slot's scripted backend, with other filters between them: as if
 * they were not there, but for time and for errors of several leaves at once.
 */
#ifndef SIM_TREE_H
#define SIM_TREE_H

#include "test/sim/tree/filters.h"
#include "test/sim/scripted.h"

#define SIM_LEAVES_MAX 16
/* Each stripe has two children or more; a filter or two over each of these. */
#define SIM_STRIPES_MAX (SIM_LEAVES_MAX - 1)

struct sim_tree {
	struct scripted_config leaf[SIM_LEAVES_MAX];
	struct backend_spec leaf_spec[SIM_LEAVES_MAX];
	struct backend_spec stripe[SIM_STRIPES_MAX];
	void *config[SIM_STRIPES_MAX];
	unsigned leaf_nr, stripe_nr;
	struct sim_filters filters; /* between */
	/* The device's sizes are multiples of it. */
	uint64_t row_bytes;
};

/*
 * The top of a tree over leaves like bottom, whose configuration is a scripted_config, often bottom
 * itself. Frees the tree before it.
 */
const struct backend_spec *sim_tree_choose(struct sim_tree *t, const struct backend_spec *bottom);
/* For the coverage: such a tree is served. */
void sim_tree_count(const struct sim_tree *t);
/* Accepts a zeroed one. */
void sim_tree_fini(struct sim_tree *t);

static inline bool sim_tree_is(const struct sim_tree *t)
{
	return t->stripe_nr > 0;
}

#endif
