/*
 * Internal snapshots: opened, listed, and changed while the device serves.
 *
 * A change is a list of steps that the owner's reactor takes one after the other. It stands in the
 * owner's lists like a request (QCOW2_ASK_SNAPSHOT) while it waits for a slice, for clusters or for
 * a commit. What it changes on the disk is in this order, so that a power cut at any moment leaves
 * each table with counts that are at least its references:
 *
 *   create   counts of all that the disk has rise, COPIED goes -> L1 copy, new table of snapshots
 *            -> flush -> header
 *   delete   new table -> flush -> header -> flush -> counts of all that it had fall
 *            -> COPIED comes
 *   apply    counts of all that it has rise -> new L1 table -> flush -> header -> flush
 *            -> counts of what the disk had fall -> COPIED comes
 *
 * What a power cut leaves behind: counts that are too high (leaks), and COPIED that a count of 1
 * does not have yet, or a count of 2 still has: both cost space or a copy, and no data. QEMU leaves
 * the same; qemu-img check -r all mends it.
 *
 * A process that dies in it leaves the same to the one that adopts its tables, and that one writes
 * the header that it finds again, and flushes it, before it serves. Where counts were
 * rising, tables without COPIED may be dirty then: who copies one takes what the cache has of it
 * (qcow2_jobs.c). Counts that have risen are not noted (qcow2_taken.c): to take them back is a
 * walk.
 *
 * Who waits. create: what changes tables (writes to new clusters, discards) from when it raises
 * counts to its end; reads, writes in place and flushes go on. A write in place is in the snapshot
 * when it has found COPIED still there; else it waits. So whoever has heard of the end of a write
 * has it in the snapshot, or the write came after. delete: the same, but only while COPIED comes.
 * apply: all requests.
 */
#ifndef BACKENDS_QCOW2_QCOW2_SNAPSHOT_CHANGE_H
#define BACKENDS_QCOW2_QCOW2_SNAPSHOT_CHANGE_H

#include "backends/qcow2/qcow2_owner.h"
#include "storage/snapshot.h"

/* ---- qcow2_snapshot_open.c: control thread ---- */

/*
 * Reads the table of snapshots, if there is one, and makes the header that of config->snapshot when
 * that is set. done: 0, or -errno with words; perhaps from inside. buf: bytes of it, aligned.
 */
void qcow2_snapshots_read(struct backend_visit *visit, void *buf, uint32_t buf_bytes,
			  void (*done)(struct backend_visit *visit, int ret, const char *words));

/* ---- qcow2_snapshot_walk.c: the owner's reactor ---- */

/* Beside 0, -errno and QCOW2_WAITS: let others have a turn, then go on. */
#define QCOW2_YIELDS 2

/*
 * Goes over an L1 table and all that it leads to, and adds to the counts of each cluster: once for
 * each place that leads there. Starts zeroed, but for what it is to do.
 */
struct qcow2_walk {
	/* The L1 table: a copy, in the host's byte order; NULL: the one in use. */
	const uint64_t *l1;
	uint32_t l1_entries;
	/*
	 * 1, or -1: clusters are noted as given up, and a commit lowers their counts; or 0: COPIED
	 * of the tables in use becomes what the counts say, as it does with 1.
	 */
	int addend;
	bool judges;	    /* changes nothing: whether it can be done */
	uint64_t items_max; /* ends after so many tables and entries; 0: goes on to the end */

	/* Where it is. */
	uint64_t item_nr;
	uint32_t l1_idx;
	unsigned l2_idx, cluster_idx; /* of what an entry leads to */
	unsigned phase;
	char words[BACKEND_ERROR_BYTES];
};

/* The next slice. s: who waits. 0: the end has come. */
int qcow2_walk_step(struct qcow2_owner *o, struct qcow2_io *s, struct qcow2_walk *w);

/* ---- qcow2_snapshot_op.c ---- */

extern const struct backend_snapshots qcow2_backend_snapshots;

/* The owner: a request waits behind the change that is under way; false: it does not. */
bool qcow2_snapshot_holds(struct qcow2_owner *o, struct qcow2_io *s);
/* The next steps: QCOW2_WAITS. */
int qcow2_handle_snapshot(struct qcow2_owner *o, struct qcow2_io *s);
/* What it waited for has ended in this way. */
void qcow2_snapshot_answered(struct qcow2_owner *o, struct qcow2_io *s, int answer);

#endif
