/* Between qcow2_snapshot_op.c and qcow2_snapshot_steps.c: a change of snapshots under way. */
#ifndef BACKENDS_QCOW2_QCOW2_SNAPSHOT_OP_H
#define BACKENDS_QCOW2_QCOW2_SNAPSHOT_OP_H

#include "backends/qcow2/qcow2_snapshot_change.h"
#include "base/util.h"

/* 0: the next step; QCOW2_WAITS: it is called again; or -errno, with words in walk or words. */
typedef int qcow2_snapshot_step(struct qcow2_snapshot_op *p);

/* What it has of the guests' requests behind it. */
enum qcow2_snapshot_hold {
	QCOW2_HOLDS_NONE,
	QCOW2_HOLDS_CHANGES, /* what changes tables */
	QCOW2_HOLDS_ALL,
};

struct qcow2_snapshot_op {
	struct backend_snapshot_change *change;
	struct qcow2_device *d;
	struct qcow2_owner *o;
	struct mail mail;
	struct backend_io io; /* s has one, like a request */
	struct qcow2_io s;
	struct timer timer;
	enum qcow2_snapshot_hold holds;
	struct list_node behind;

	/* The table as it will be; of the one that is deleted or applied, what it was. */
	struct qcow2_snapshots *next;
	struct qcow2_snapshot snapshot;

	qcow2_snapshot_step *const *steps;
	unsigned idx, step_nr;
	/* Of the step under way, zeroes at its beginning. */
	unsigned sub;
	uint64_t at;
	struct qcow2_own *own;
	int io_result;
	bool io_ended;

	struct qcow2_walk walk;
	unsigned walk_nr, walks_done; /* for progress */
	uint64_t raised_items;
	uint64_t grace_epoch;
	uint32_t losses; /* qcow2_losses when what is proved next was about to be written */

	/* Taken: the new L1 table, and the new table of snapshots. */
	uint64_t l1_host, l1_clusters, table_host, table_clusters;
	uint64_t taken_host, taken_nr; /* of the one that is being taken */
	/* The L1 table of the snapshot, and what the disk had before it was applied. */
	uint64_t *l1, *old_l1;
	uint64_t old_l1_offset;
	struct qcow2_header header; /* as it will be */

	int err; /* of what it waited for */
	int result;
	bool is_raised;	   /* counts have risen, and nothing names what they count */
	bool is_published; /* the header may be on the disk */
	bool is_adopted;   /* it is */
	char words[BACKEND_ERROR_BYTES];
};

/* By the kind of change, NULL at the end; and what takes a create or an apply back. */
extern qcow2_snapshot_step *const qcow2_create_steps[];
extern qcow2_snapshot_step *const qcow2_delete_steps[];
extern qcow2_snapshot_step *const qcow2_apply_steps[];
extern qcow2_snapshot_step *const qcow2_undo_steps[];

/* Those that read and write: qcow2_snapshot_io.c. */
int qcow2_step_read_l1(struct qcow2_snapshot_op *p);
int qcow2_step_write_l1(struct qcow2_snapshot_op *p);
int qcow2_step_write_table(struct qcow2_snapshot_op *p);
int qcow2_step_header(struct qcow2_snapshot_op *p);

/* Called again in a moment, or by a turn to come; both return QCOW2_WAITS. */
int qcow2_snapshot_pause(struct qcow2_snapshot_op *p);
int qcow2_snapshot_yield(struct qcow2_snapshot_op *p);
void qcow2_snapshot_drop_own(struct qcow2_snapshot_op *p);
/* From now on, until the end, those requests wait. */
void qcow2_snapshot_hold(struct qcow2_snapshot_op *p, enum qcow2_snapshot_hold holds);

static inline uint64_t qcow2_op_cluster(const struct qcow2_snapshot_op *p)
{
	return qcow2_cluster_bytes(&p->o->t->g);
}

static inline bool qcow2_op_is_create(const struct qcow2_snapshot_op *p)
{
	return p->change->op == BACKEND_SNAPSHOT_CREATE;
}

static inline bool qcow2_op_is_apply(const struct qcow2_snapshot_op *p)
{
	return p->change->op == BACKEND_SNAPSHOT_APPLY;
}

/* Of the table in use; tables fill whole clusters. */
static inline uint64_t qcow2_op_l1_bytes(const struct qcow2_snapshot_op *p)
{
	return round_up((uint64_t)p->o->t->l1_entries * 8, qcow2_op_cluster(p));
}

#endif
