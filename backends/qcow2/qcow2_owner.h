/*
 * Who changes the tables of an image that is written: one thread, the reactor of queue 0. What
 * qcow2_owner.c, qcow2_alloc.c, qcow2_change.c, qcow2_jobs.c and qcow2_commit.c share; nobody else
 * includes it but open and close.
 *
 * A question (qcow2_io) is answered at once, or waits in one list: of a slice that is being read,
 * of a table that is being made, of an allocation for the same clusters, for an own request, or
 * until a commit has ended. When what it waited for has come it is asked again, from its beginning:
 * a handler changes nothing before it has all that it needs.
 */
#ifndef BACKENDS_QCOW2_QCOW2_OWNER_H
#define BACKENDS_QCOW2_QCOW2_OWNER_H

#include "backends/qcow2/qcow2.h"

/* Beside 0 and -errno: it stands in a list, and will be asked again. */
#define QCOW2_WAITS 1

#define QCOW2_JOBS_NR 4u

/* A slice on its way from the disk. */
struct qcow2_load {
	struct qcow2_own *own; /* NULL: unused */
	uint64_t at;
	bool is_l2;
	bool is_stale; /* the cluster has become another table meanwhile */
	struct list_node waiters;
};

/* A table that is being made: of L2, or a block of reference counts. */
struct qcow2_job {
	struct qcow2_own *own; /* NULL: unused */
	bool is_refblock;
	uint64_t idx;	    /* in L1, or in the reference count table */
	uint64_t host;	    /* where it will be */
	unsigned taken_idx; /* L2: qcow2_taken.c */
	uint64_t old;	    /* L2: the table that it is a copy of; 0: none */
	uint64_t at;	    /* bytes of it that are written */
	uint32_t losses;    /* qcow2_losses when it began */
	unsigned flush_nr;  /* refblock: tries to make it durable */
	bool is_ready;	    /* written: to be entered when no commit is under way */
	struct list_node waiters;
};

enum qcow2_commit_phase {
	QCOW2_COMMIT_NONE,
	QCOW2_COMMIT_REFCOUNTS, /* dirty slices of blocks are written */
	QCOW2_COMMIT_REFTABLE,
	QCOW2_COMMIT_FLUSH_BELOW, /* data and counts are durable before L2 names them */
	QCOW2_COMMIT_L2,	  /* slices of L2, and L1, whose new tables are durable */
	QCOW2_COMMIT_FLUSH,
	QCOW2_COMMIT_REAP, /* counts of what was freed fall */
};

struct qcow2_commit;

/* What a commit asks for: a request to the image (or its data file). */
struct qcow2_commit_io {
	enum backend_op op;
	unsigned child_idx;
	uint64_t at, bytes;
	void *buf; /* NULL: a buffer of who issues it, which fill fills (not for READ) */
	void (*fill)(struct qcow2_commit *c, void *buf, uint64_t at, uint64_t bytes);
	uint32_t what; /* the commit's */
};

/*
 * The tables on their way to the disk. issue: takes it, and qcow2_commit_ended follows from a turn;
 * false: not now, and qcow2_commit_pump is called when there is room again.
 */
struct qcow2_commit {
	struct qcow2_device *d;
	enum qcow2_commit_phase phase;
	/* Slots that it writes, and up to which one it has begun: is_writing until its end. */
	uint32_t *batch, batch_nr, batch_next;
	uint32_t next;	 /* of a phase: a chunk, a child, a note of what is freed */
	uint32_t losses; /* qcow2_losses when it began */
	bool flush_failed;
	bool owes; /* writes that an undo has met under way may be lost: the next one says so */
	unsigned inflight;
	bool is_stuck;
	int result;
	bool (*issue)(struct qcow2_commit *c, const struct qcow2_commit_io *io);
	/* Ended; may begin again. */
	void (*done)(struct qcow2_commit *c, int result);
	/* REAP: whether no request of this epoch is under way. */
	bool (*is_quiet)(struct qcow2_commit *c, unsigned epoch_idx);
	uint64_t trim_at, trim_end; /* REAP: given back to the storage below, or not worth it */
	bool no_trim;		    /* it does not take it */
	/* A count has fallen to 0; may be NULL. */
	void (*freed_cluster)(struct qcow2_commit *c, uint64_t cluster);
};

struct qcow2_owner {
	struct qcow2_device *d;
	struct qcow2_tables *t;
	struct qcow2_queue *q; /* queue 0 */
	struct reactor *reactor;
	struct qcow2_queue **queues; /* by index; NULL: not there */
	unsigned queue_nr;

	struct list_node asked; /* by queues of this reactor */
	struct task task, commit_task;
	struct list_node starved; /* for an own request */
	struct list_node held;	  /* until the commit has ended */
	struct list_node allocs;  /* struct qcow2_alloc under way */
	struct list_node flushes; /* FLUSHes that the commit is for */
	struct qcow2_load load[QCOW2_TABLE_OWN_NR];
	struct qcow2_job job[QCOW2_JOBS_NR];
	struct qcow2_commit commit;
	bool commits_again; /* for those in held, as the last one has met a loss */
	struct qcow2_commit_io committing[QCOW2_OWN_NR]; /* by own request */

	struct qcow2_snapshot_op *snapshot_op; /* qcow2_snapshot_op.c: under way; or NULL */
	uint64_t next_cluster;		       /* where the search for a free one begins */
	uint64_t allocations;		       /* counter */
};

/* ---- qcow2_owner.c ---- */

/* Asks again whoever stands in a list. */
void qcow2_owner_wake(struct qcow2_owner *o, struct list_node *waiters, int result);
/* Those in o->asked, later in this turn. */
void qcow2_owner_ask_again(struct qcow2_owner *o);
/* Waits until no commit is under way; one is begun if none is. */
int qcow2_owner_hold(struct qcow2_owner *o, struct qcow2_io *s);
int qcow2_owner_starve(struct qcow2_owner *o, struct qcow2_io *s);
/* 0 with the slot of a slice, which stays until the handler returns; or WAITS. */
int qcow2_owner_slot(struct qcow2_owner *o, struct qcow2_io *s, uint64_t at, bool is_l2,
		     struct qcow2_slot **ret_slot);
/* A cluster becomes a table: slices of it that are being read are not. */
void qcow2_owner_forget_loads(struct qcow2_owner *o, uint64_t at);
static inline bool qcow2_owner_commits(const struct qcow2_owner *o)
{
	return o->commit.phase != QCOW2_COMMIT_NONE;
}
void qcow2_owner_commit(struct qcow2_owner *o);
/* An own request has become free. */
void qcow2_owner_has_own(struct qcow2_owner *o);

/* ---- qcow2_commit.c ---- */

void qcow2_mark_dirty(struct qcow2_tables *t, struct qcow2_slot *slot);
void qcow2_mark_l1(struct qcow2_tables *t, uint64_t idx);
void qcow2_mark_reftable(struct qcow2_tables *t, uint64_t idx);

/* ---- qcow2_alloc.c ---- */

/*
 * Up to nr clusters one after the other, each with a count of 1. 0, WAITS, or -ENOSPC.
 * ret_is_fresh: the file has ended before them until now.
 */
int qcow2_clusters_take(struct qcow2_owner *o, struct qcow2_io *s, uint64_t nr, uint64_t *ret_host,
			uint64_t *ret_nr, bool *ret_is_fresh);
/* Of clusters that no table has ever named: at once. 0 or WAITS. */
int qcow2_clusters_give_back(struct qcow2_owner *o, struct qcow2_io *s, uint64_t host, uint64_t nr);
/* The slice with the count of a cluster, and which of it; 0: there is no block. */
uint64_t qcow2_refcount_slice(const struct qcow2_tables *t, uint64_t cluster, unsigned *ret_idx);
/* Whether so many more can be noted. */
bool qcow2_freed_has_room(const struct qcow2_tables *t, unsigned nr);
void qcow2_freed_add(struct qcow2_tables *t, uint64_t at, uint64_t bytes);
/* Takes an entry out of the notes of what an L2 entry names: its clusters are given up. */
void qcow2_freed_add_entry(struct qcow2_tables *t, uint64_t entry);

/* ---- qcow2_taken.c ---- */

/* For one more write: if not, one of those under way has to end. */
bool qcow2_taken_has_room(const struct qcow2_tables *t);
/* Notes clusters that have been taken; returns where. */
unsigned qcow2_taken_add(struct qcow2_tables *t, enum qcow2_taken_kind kind, uint64_t what,
			 uint64_t host, uint64_t nr);
/* A table names them, or they are being given back. */
void qcow2_taken_end(struct qcow2_tables *t, unsigned idx);
/* The slot that has a guest's L2 entry, and its first word there; NULL: not in memory. */
struct qcow2_slot *qcow2_entry_slot(const struct qcow2_tables *t, uint64_t guest,
				    unsigned *ret_idx);
/* Of a new memfd, or of one that a process before has left: what no table names is given up. */
void qcow2_taken_init(struct qcow2_tables *t);
void qcow2_taken_revive(struct qcow2_tables *t);

/* ---- qcow2_mark.c ---- */

#define QCOW2_CHANGED_WORDS                                                                        \
	"qcow2: another program has changed the image since ublkd died: put it back and reload, "  \
	"or ublkctl del --force and add it as it is now, without what was not flushed"

/* header: its first bytes, whole sectors. */
void qcow2_seen_fill(struct qcow2_seen *seen, const void *header, uint64_t header_bytes,
		     uint64_t image_bytes);
/* Whether another program has changed the image: then no table in memory is true any more. */
bool qcow2_image_is_changed(const struct qcow2_image_note *image, const struct qcow2_seen *seen);
/*
 * Notes of what the disk has. saw: at open; header_changes: a header with this first sector is
 * about to be written, header_settled: it is durable, or the one before is again; until then the
 * disk may have either, header_is_known: it is not so; reaches: the image has so many bytes, and
 * they are durable; handed_over: no other program can write before the next process reads this.
 */
void qcow2_image_saw(struct qcow2_tables *t, const struct qcow2_seen *seen);
void qcow2_image_header_changes(struct qcow2_tables *t, const void *sector);
void qcow2_image_header_settled(struct qcow2_tables *t, bool is_new);
bool qcow2_image_header_is_known(const struct qcow2_tables *t);
void qcow2_image_reaches(struct qcow2_tables *t, uint64_t end_bytes);
void qcow2_image_handed_over(struct qcow2_tables *t);
/* The sum of a slice, as slot->disk. Never 0. */
uint32_t qcow2_slice_sum(const struct qcow2_tables *t, const void *slice);
/* It was written by a commit: notes what is durable now, which it may differ from since. */
void qcow2_slot_settled(struct qcow2_tables *t, struct qcow2_slot *slot, bool is_durable);

/* ---- qcow2_jobs.c ---- */

/* Has the L2 table of this L1 entry made, or copied when a snapshot has it too. WAITS or -errno. */
int qcow2_job_l2(struct qcow2_owner *o, struct qcow2_io *s, uint64_t l1_idx);
int qcow2_job_refblock(struct qcow2_owner *o, struct qcow2_io *s, uint64_t idx, uint64_t cluster);
/* The commit has ended: what is ready is entered. */
void qcow2_jobs_enter(struct qcow2_owner *o);

/* ---- qcow2_change.c: handlers ---- */

int qcow2_handle_alloc(struct qcow2_owner *o, struct qcow2_io *s);
int qcow2_handle_publish(struct qcow2_owner *o, struct qcow2_io *s);
int qcow2_handle_abort(struct qcow2_owner *o, struct qcow2_io *s);
int qcow2_handle_unmap(struct qcow2_owner *o, struct qcow2_io *s);
/* A PUBLISH or ABORT fails: the allocation is not under way any more. */
void qcow2_alloc_abandon(struct qcow2_owner *o, struct qcow2_io *s);
/* What those under way for the cluster at this offset of the guest write into is given up. */
void qcow2_allocs_are_stale(struct qcow2_owner *o, uint64_t guest);
/*
 * With subclusters: a cluster goes, or was compressed. The bits come first: a compressed entry does
 * not use them, so a process that dies in between has changed nothing (qcow2_tables_adopt clears
 * them). Who has read the bits of before and then the new entry finds that the slot has changed,
 * and looks again.
 */
void qcow2_entry_store_bits_first(struct qcow2_slot *slot, void *slice, unsigned idx,
				  uint64_t entry, uint64_t bits);

/* ---- qcow2_undo.c ---- */

/* How often writes to the image, or to its data file, may have been lost: storage/owed.h. */
uint32_t qcow2_losses(const struct qcow2_device *d);
uint32_t qcow2_undo_nr(const struct qcow2_tables *t);
bool qcow2_undo_has_room(const struct qcow2_tables *t, unsigned nr);
/*
 * Before the entry changes; no undo is wanted. losses: qcow2_losses since what it will name was
 * begun, and now.
 */
void qcow2_undo_add(struct qcow2_tables *t, const struct qcow2_undo *note, uint32_t losses);
/*
 * Whether the L2 table of this L1 entry is a copy that may be taken back: what is unmapped in it
 * would be named by the table before again, when its counts have fallen.
 */
bool qcow2_undo_has_copy(const struct qcow2_tables *t, uint64_t l1_idx);
/* All that is noted is durable. */
void qcow2_undo_settle(struct qcow2_tables *t);
/* Something was lost since the oldest of what is noted was begun. */
bool qcow2_undo_is_wanted(const struct qcow2_commit *c);
/* Takes all that is noted back. No commit is under way, or one that has failed. */
void qcow2_undo_run(struct qcow2_commit *c);
/* Of a memfd that a process before has left. */
void qcow2_undo_revive(struct qcow2_tables *t);

/* ---- qcow2_commit.c ---- */

int qcow2_commit_init(struct qcow2_commit *c, struct qcow2_device *d);
void qcow2_commit_fini(struct qcow2_commit *c);
void qcow2_commit_begin(struct qcow2_commit *c);
void qcow2_commit_pump(struct qcow2_commit *c);
void qcow2_commit_ended(struct qcow2_commit *c, const struct qcow2_commit_io *io, int result);
/*
 * qcow2_trim.c: whether the storage below can have clusters from f->at on back: c->trim_at to
 * c->trim_end. Before their counts fall, as then they may be taken again.
 */
bool qcow2_trim_next(struct qcow2_commit *c, const struct qcow2_freed *f);

/* Whether there is anything that the disk does not have. */
bool qcow2_tables_are_dirty(const struct qcow2_tables *t);

#endif
