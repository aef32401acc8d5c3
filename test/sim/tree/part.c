/* Offsets in a leaf and in its device. */
#include "test/sim/tree/part.h"

uint64_t sim_part_place(const struct sim_part *part, uint64_t leaf_offset_bytes)
{
	uint64_t at = leaf_offset_bytes;

	for (unsigned i = part->level_nr; i-- > 0;) {
		const struct sim_level *l = &part->level[i];
		uint64_t row = at >> l->shift, within = at - (row << l->shift);

		at = ((row * l->child_nr + l->idx) << l->shift) + within;
	}
	return at;
}

bool sim_part_has(const struct sim_part *part, uint64_t offset_bytes)
{
	uint64_t at = offset_bytes;

	for (unsigned i = 0; i < part->level_nr; i++) {
		const struct sim_level *l = &part->level[i];
		uint64_t chunk = at >> l->shift, within = at - (chunk << l->shift);

		if (chunk % l->child_nr != l->idx)
			return false;
		at = ((chunk / l->child_nr) << l->shift) + within;
	}
	return true;
}

uint64_t sim_part_leaves(const struct sim_part *part)
{
	uint64_t leaves = 1;

	for (unsigned i = 0; i < part->level_nr; i++)
		leaves *= part->level[i].child_nr;
	return leaves;
}
