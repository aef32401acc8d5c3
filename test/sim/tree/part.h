/*
 * Which bytes of a device lie on one leaf of its tree of stripes, and where: what stripe.c must
 * come to, by other means. The chunks of a level lie on its children in turn.
 */
#ifndef SIM_PART_H
#define SIM_PART_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_LEVELS_MAX 3

struct sim_part {
	unsigned level_nr; /* 0: all of the device, as it is */
	struct sim_level {
		unsigned shift; /* of the chunk's bytes */
		unsigned child_nr, idx;
	} level[SIM_LEVELS_MAX]; /* the uppermost first */
};

/* Where a byte of the leaf lies in the device. */
uint64_t sim_part_place(const struct sim_part *part, uint64_t leaf_offset_bytes);
/* Whether a byte of the device lies on the leaf. */
bool sim_part_has(const struct sim_part *part, uint64_t offset_bytes);
/* How many leaves like this one make the device. */
uint64_t sim_part_leaves(const struct sim_part *part);

#endif
