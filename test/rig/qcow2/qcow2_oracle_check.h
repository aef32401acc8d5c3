/* What the check's parts share: one goes over the tables of guest clusters, one over all other
 * tables. */
#ifndef TEST_RIG_QCOW2_QCOW2_ORACLE_CHECK_H
#define TEST_RIG_QCOW2_QCOW2_ORACLE_CHECK_H

#include "test/rig/qcow2/qcow2_oracle_internal.h"

/* What a cluster of the file holds. */
enum oracle_kind {
	KIND_HEADER,
	KIND_REFTABLE,
	KIND_REFBLOCK,
	KIND_L1,
	KIND_L2,
	KIND_DATA,
	KIND_COMPRESSED,
	KIND_SNAPSHOTS,
	KIND_CRYPTO,
	KIND_BITMAP_DIRECTORY,
	KIND_BITMAP_TABLE,
	KIND_BITMAP,
};

struct oracle_check {
	struct qcow2_oracle *o;
	struct qcow2_oracle_report *report;
};

/* Counts a fault; the first ones are kept in words. */
void oracle_fault(struct oracle_check *c, enum qcow2_oracle_fault fault, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Counts a reference to each cluster of a range. l1_id: of the table that leads there, 0: none
 * does. */
void oracle_refer(struct oracle_check *c, struct oracle_range range, enum oracle_kind kind,
		  unsigned l1_id);

/* An L1 table, its L2 tables and their clusters. */
void oracle_l1_walk(struct oracle_check *c, const struct oracle_l1 *l1);
/* COPIED of the active tables, when all references are counted. */
void oracle_copied_judge(struct oracle_check *c);
/* The snapshot table, with all that its entries lead to. */
void oracle_snapshots_walk(struct oracle_check *c);
/* The bitmap directory, with all that its entries lead to. */
void oracle_bitmaps_walk(struct oracle_check *c);

#endif
