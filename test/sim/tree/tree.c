/* The choice of a tree. Its root is a stripe; depth and width are chance's, within limits. */
#include "test/sim/tree/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/registry.h"
#include "test/sim/world.h"

#define TRIES 8
/* Chunks from 4096 bytes on. */
#define CHUNK_SHIFT_MIN 12u
#define CHUNK_SHIFTS 4u
/* Rows of a device, at least: it is to become smaller and larger. */
#define ROWS_MIN 4

struct build {
	struct sim_tree *t;
	const struct backend_spec *bottom;
	unsigned leaves_left;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static uint64_t lcm(uint64_t a, uint64_t b)
{
	return a / gcd(a, b) * b;
}

struct built {
	struct backend_spec *spec;
	uint64_t row_bytes;
};

/* Some leaves are a little larger than their place in the tree, by less than a chunk. */
static struct built build_leaf(const struct build *b, const struct sim_part *part)
{
	struct sim_tree *t = b->t;
	unsigned i = t->leaf_nr++;
	struct scripted_config *c = &t->leaf[i];
	uint64_t block;

	*c = *(const struct scripted_config *)b->bottom->config;
	block = c->st->block_bytes;
	c->part = *part;
	/* A cache in some of them only. */
	c->has_cache = c->has_cache && !sim_one_in(4);
	c->has_fua = c->has_fua && (c->has_cache || sim_one_in(2));
	if (sim_one_in(4))
		c->extra_bytes =
			sim_below((1u << part->level[part->level_nr - 1].shift) / block) * block;
	t->leaf_spec[i] = (struct backend_spec){ .ops = b->bottom->ops, .config = c };
	return (struct built){ &t->leaf_spec[i], block };
}

static struct built build_node(struct build *b, unsigned depth, struct sim_part part);

static struct built build_stripe(struct build *b, unsigned depth, struct sim_part part)
{
	struct sim_tree *t = b->t;
	unsigned i = t->stripe_nr++, shift = CHUNK_SHIFT_MIN + (unsigned)sim_below(CHUNK_SHIFTS);
	unsigned nr = (unsigned)sim_between(2, MIN(4u, b->leaves_left + 1));
	const struct backend_spec **end = &t->stripe[i].child;
	struct sim_level *level = &part.level[part.level_nr++];
	uint64_t below_bytes = 1u << shift;
	char yaml[32];

	b->leaves_left -= nr - 1;
	snprintf(yaml, sizeof(yaml), "chunk: %u", 1u << shift);
	t->config[i] = sim_parse_options(&backend_stripe, yaml);
	t->stripe[i] = (struct backend_spec){ .ops = &backend_stripe, .config = t->config[i] };
	for (unsigned idx = 0; idx < nr; idx++) {
		struct built child;

		*level = (struct sim_level){ .shift = shift, .child_nr = nr, .idx = idx };
		child = build_node(b, depth - 1, part);
		child.spec->as = backend_stripe.children;
		child.spec->as_idx = idx;
		*end = child.spec;
		end = &child.spec->sibling;
		below_bytes = lcm(below_bytes, child.row_bytes);
	}
	return (struct built){ &t->stripe[i], below_bytes * nr };
}

/* depth: nodes that may stand above each other. */
static struct built build_node(struct build *b, unsigned depth, struct sim_part part)
{
	struct sim_filters *f = &b->t->filters;
	struct built built;

	/* As deep as a node may be that has one more stripe and a leaf below. */
	if (depth > 2 && f->nr < SIM_FILTERS_MAX && sim_one_in(6)) {
		built = build_node(b, depth - 1, part);
		built.spec = sim_filters_add(f, built.spec);
		return built;
	}
	if (depth > 1 && part.level_nr < SIM_LEVELS_MAX && b->leaves_left > 0 &&
	    (part.level_nr == 0 || sim_one_in(3)))
		return build_stripe(b, depth, part);
	return build_leaf(b, &part);
}

const struct backend_spec *sim_tree_choose(struct sim_tree *t, const struct backend_spec *bottom)
{
	const struct storage *st = ((const struct scripted_config *)bottom->config)->st;
	struct sim_part all = { 0 };

	sim_tree_fini(t);
	if (sim.defect != DEFECT_NONE || sim.cut.on || sim_one_in(2))
		return bottom;
	for (int i = 0; i < TRIES; i++) {
		struct build b = { .t = t,
				   .bottom = bottom,
				   .leaves_left = (unsigned)sim_skewed(1, SIM_LEAVES_MAX - 1) };
		struct built top = build_node(&b, SIM_DEPTH_MAX - SIM_STACK_MAX, all);

		t->row_bytes = top.row_bytes;
		for (unsigned l = 0; l < t->leaf_nr; l++)
			t->leaf[l].row_bytes = t->row_bytes;
		if (t->row_bytes * ROWS_MIN <= st->max_bytes)
			return top.spec;
		sim_tree_fini(t);
	}
	return bottom;
}

void sim_tree_fini(struct sim_tree *t)
{
	for (unsigned i = 0; i < t->stripe_nr; i++) {
		option_free(backend_stripe.options, t->config[i]);
		free(t->config[i]);
	}
	sim_filters_fini(&t->filters);
	t->leaf_nr = t->stripe_nr = 0;
	t->row_bytes = 0;
}

void sim_tree_count(const struct sim_tree *t)
{
	bool deep = false;

	for (unsigned i = 0; i < t->leaf_nr; i++)
		deep |= t->leaf[i].part.level_nr > 1;
	sim_saw(FAULT_TREE);
	if (deep)
		sim_saw(FAULT_TREE_DEEP);
}
