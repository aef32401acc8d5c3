/*
 * The rows of an option table with those of its groups, in order. Pure; any thread. A walk keeps
 * its place in the table and in each group that it is in, and allocates nothing.
 *
 * Failure modes: none but bugs of a table: groups too deep in each other, a group that has what
 * only an option can have.
 */
#include "base/assert.h"
#include "config/option.h"

static void walk_enter_group(struct option_walk *walk, const struct option *group, size_t offset)
{
	ASSERT(walk->depth < OPTION_GROUP_DEPTH_MAX);
	ASSERT(!group->name && !group->def && !group->help && group->flags == 0);
	walk->group[walk->depth].next = group->table;
	walk->group[walk->depth].offset = offset;
	walk->depth++;
}

void option_walk_begin(struct option_walk *walk, const struct option *table)
{
	*walk = (struct option_walk){ .depth = 1, .group[0].next = table };
	option_walk_next(walk);
}

void option_walk_next(struct option_walk *walk)
{
	walk->row = NULL;
	while (walk->depth > 0 && !walk->row) {
		const struct option *o = walk->group[walk->depth - 1].next++;
		size_t offset = walk->group[walk->depth - 1].offset + o->offset;

		if (o->type == OPTION_GROUP) {
			walk_enter_group(walk, o, offset);
		} else if (o->name) {
			walk->row = o;
			walk->offset = offset;
		} else {
			walk->depth--;
		}
	}
}
