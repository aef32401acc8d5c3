/*
 * Which values a sector of the guest may have. An operation covers sectors from its begin on; when
 * it has succeeded, what had ended before it began is gone from there. After a cut that is so only
 * when it is durable: a FLUSH that began after its end has succeeded. One that failed, or died with
 * its process, may have had its effect or not. One thread.
 */
#ifndef TEST_CUTS_CUTS_MODEL_H
#define TEST_CUTS_CUTS_MODEL_H

#include "test/cuts/cuts.h"

#define MODEL_SECTORS_MAX 8192u
#define MODEL_ENTRIES 16u

struct model_entry {
	uint32_t value;
	bool is_strong; /* what was before is gone: not a DISCARD, and not what failed */
	bool is_durable;
	uint64_t begin, end; /* end 0: under way */
};

struct model_sector {
	unsigned nr;
	struct model_entry entry[MODEL_ENTRIES];
};

/* In memory that is shared with processes that die. */
struct model {
	uint64_t sector_nr, clock;
	uint32_t next_value;
	struct model_sector sector[MODEL_SECTORS_MAX];
};

void model_init(struct model *m, uint64_t bytes);
/* What was there at first, durable. */
void model_set(struct model *m, uint64_t sector, uint32_t value);

/* False: too much is known of one of the sectors; a FLUSH helps, or an end. */
bool model_has_room(const struct model *m, uint64_t offset, uint64_t bytes);
/* Returns when it began, which names it. */
uint64_t model_begin(struct model *m, uint64_t offset, uint64_t bytes, uint32_t value,
		     bool is_strong);
void model_end(struct model *m, uint64_t begin, uint64_t offset, uint64_t bytes, bool is_failed,
	       bool is_durable);
static inline uint64_t model_now(struct model *m)
{
	return ++m->clock;
}
/* The same for all sectors at once, each with a value of its own; strong. */
uint64_t model_begin_values(struct model *m, const uint32_t *value);
/* What began then, and had no end, is known to have had its effect, durable, or not. */
void model_settle(struct model *m, uint64_t begin, bool is_done);
/* A FLUSH that began then has succeeded. oldest_read: of the READs under way, when it began. */
void model_flushed(struct model *m, uint64_t begin, uint64_t oldest_read);
/* What is not durable may be lost, whether it has ended or not. */
void model_lost(struct model *m);
/* What is under way will never end. */
void model_killed(struct model *m);

/* For a READ that began then. */
bool model_may_read(const struct model *m, uint64_t sector, uint32_t value, uint64_t begin);
bool model_may_be_left(const struct model *m, uint64_t sector, uint32_t value);
/* When the only write of this value began that is known of the sector; else 0. */
uint64_t model_began(const struct model *m, uint64_t sector, uint32_t value);
/*
 * Whether the value says that what began then, without an end, has had its effect there: 1; that it
 * has not: -1; or neither: 0.
 */
int model_side(const struct model *m, uint64_t sector, uint32_t value, uint64_t begin,
	       bool after_cut);
/* Words for a person. */
void model_tell(const struct model *m, uint64_t sector, char *words, size_t bytes);

#endif
