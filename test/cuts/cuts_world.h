/* One run: its image, its disk, what the guest knows. In memory that outlives killed processes. */
#ifndef TEST_CUTS_CUTS_WORLD_H
#define TEST_CUTS_CUTS_WORLD_H

#include "test/cuts/cuts_change.h"
#include "test/cuts/cuts_rig.h"

#define WORLD_WORDS_BYTES 512u

struct world {
	struct prng prng;
	struct image_shape shape;
	struct disk *disk, *left; /* left: what a cut has left, a plain one */
	struct model model;
	struct changes changes;
	uint64_t cache_bytes;
	unsigned queue_nr, reactor_nr, depth;
	unsigned cut_one_in; /* of the steps after which the disk has changed */
	unsigned submit_part, turn_part, end_part; /* how often what is done next, of their sum */
	unsigned request_nr;			   /* of the guest, at most */
	unsigned cut_max;
	unsigned cancel_one_in;
	bool is_killed; /* now and then */
	bool is_soak;
	uint64_t told; /* model's clock when a FLUSH of the guest failed last */
	bool owes;     /* a FLUSH of the disk has failed, and no FLUSH has told the guest so */
	bool may_fail; /* the disk is full or broken, or requests are cancelled: so may the guest's
			*/

	uint64_t cut_nr, kill_nr, request_done_nr, failed_nr, checked_nr;
	uint64_t points_left;	       /* until the process dies; 0: it does not */
	unsigned place;		       /* which points count: cuts_kill.c */
	uint64_t place_header_nr;      /* ... and from when on: disk's header_nr */
	char words[WORLD_WORDS_BYTES]; /* what is wrong; "": nothing */
};

/* The first one is kept. Returns false. */
bool world_fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool world_failed(const struct world *w)
{
	return w->words[0] != '\0';
}

/* What the guest may read of a device that is open and has nothing under way. */
bool world_read_all(struct world *w, struct rig *rig, bool after_cut, uint32_t *values);

/* cuts_judge.c: power is cut now; what is left is judged. False: world_fail. */
bool judge_cut(struct world *w);
/* w->left is judged by the oracle: no corruption, and each sector one of what may be left there
 * (after_cut) or what the guest may read. values: what they are; may be NULL. */
bool judge_image(struct world *w, bool after_cut, bool no_leaks, uint32_t *values);
/* The oracle opens what is on a disk now. */
bool judge_open(struct world *w, const struct disk *d);
unsigned judge_snapshot_nr(void); /* of what it has opened */
/* What it reads there: of a snapshot, or QCOW2_ORACLE_ACTIVE. */
bool judge_read(struct world *w, const struct disk *d, int snapshot, uint32_t *ret_values);
void judge_end(void);

/* cuts_run.c: a run, from its image to its orderly end. What is wrong: w->words. */
void run_world(struct world *w);
void run_rig_init(struct world *w, struct rig *rig);
/* The guest works, until it has had enough. */
bool run_guest(struct world *w, struct rig *rig);
/* Orderly, and judges what is there. */
bool run_close(struct world *w, struct rig *rig);

/* cuts_kill.c: the same, dying. */
void kill_world(struct world *w);

#endif
