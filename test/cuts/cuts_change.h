/*
 * Internal snapshots of a run: which there are, what each has, and the change of them under way.
 * In memory that is shared with processes that die. One thread.
 */
#ifndef TEST_CUTS_CUTS_CHANGE_H
#define TEST_CUTS_CUTS_CHANGE_H

#include "storage/snapshot.h"
#include "test/cuts/cuts_model.h"

#define CHANGE_SNAPSHOTS_MAX 4u

struct world;
struct rig;

struct change_snapshot {
	char name[16];
	uint32_t value[MODEL_SECTORS_MAX];
};

enum change_state {
	CHANGE_NONE,
	CHANGE_RUNS, /* also when its process has died, until the next one has opened the image */
};

struct changes {
	/* In the order of the table; what the change makes or takes away counts at its end. */
	unsigned nr;
	struct change_snapshot entry[CHANGE_SNAPSHOTS_MAX];
	unsigned one_in; /* of the steps begins one; 0: none does */
	unsigned made_nr;
	uint64_t done_nr, failed_nr;

	enum change_state state;
	enum backend_snapshot_op op;
	unsigned idx;	 /* of the snapshot; of a new one: nr */
	uint64_t begin;	 /* model.h's */
	bool may_differ; /* a process died in one: COPIED may not fit the counts any more */
};

/* The image has this one at first. */
void changes_add(struct changes *c, const char *name, const uint32_t *value, uint64_t sector_nr);

/* Begins a change, if one can begin now. */
void change_maybe_begin(struct world *w, struct rig *rig);
/*
 * The process has died, and the next one has opened the image: from now on it is done, or not,
 * whatever is lost later. values: what the disk has. False: world_fail.
 */
bool change_adopted(struct world *w, const uint32_t *values);

/*
 * Of w->left, which the oracle has opened: its snapshots are those that may be there, and have what
 * they had. again: the same ones as when it was asked last. False: world_fail.
 */
bool change_judge_snapshots(struct world *w, bool again);
/* An apply under way has changed all of the disk or nothing. False: world_fail. */
bool change_judge_apply(struct world *w, const uint32_t *values, bool after_cut);

#endif
