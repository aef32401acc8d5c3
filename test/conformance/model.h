/*
 * The oracle: random I/Os against a device and a byte model of what it must hold. Many I/Os are in
 * flight at once, on every queue; ranges in flight do not overlap (else no answer would be wrong),
 * those of I/Os one after the other do. A block that was discarded is unknown until written.
 */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include <stdint.h>

#include "base/prng.h"
#include "rig.h"

enum model_content {
	MODEL_ZEROES,	 /* a fresh device */
	MODEL_PATTERN,	 /* each 8-byte word holds its offset */
	MODEL_UNKNOWN,	 /* anything where nothing was written yet */
	MODEL_UNDEFINED, /* null: reads return anything */
};

struct model {
	uint64_t size_bytes;
	uint32_t block_bytes;
	bool is_undefined;
	uint8_t *bytes;
	uint8_t *known; /* per block */
};

struct model_stats {
	uint64_t io_nr[BACKEND_OP_NR];
	uint64_t error_nr; /* wrong answers: 0 when the device is right */
	uint64_t wrong_nr; /* of those: READs that succeeded with bytes that never were there */
	char first_error[256];
};

void model_init(struct model *model, const struct rig *rig, enum model_content content);
void model_fini(struct model *model);

/* What a completed WRITE, WRITE_ZEROES or DISCARD did. */
void model_apply(struct model *model, const struct backend_io *io);
/* Offset of the first wrong byte of a completed READ, or -1. */
int64_t model_compare(const struct model *model, const struct backend_io *io);

/* io_nr random I/Os, then all of the device is read and compared. */
void model_run(struct model *model, struct rig *rig, struct prng *prng, uint64_t io_nr,
	       struct model_stats *stats);
/* All of the device is read and compared. */
void model_verify(struct model *model, struct rig *rig, struct model_stats *stats);

#endif
