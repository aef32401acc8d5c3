/*
 * The table of internal snapshots in memory, with its entries as they are on disk: what another
 * program has put into them stays.
 */
#ifndef BACKENDS_QCOW2_QCOW2_SNAPSHOTS_H
#define BACKENDS_QCOW2_QCOW2_SNAPSHOTS_H

#include "backends/qcow2/format/qcow2_snapshot.h"
#include "backends/qcow2/qcow2_tables.h"

/* As QEMU: a table that is longer is refused. */
#define QCOW2_SNAPSHOTS_BYTES_MAX (64u << 20)

struct qcow2_snapshots {
	struct qcow2_snapshot *entry;
	unsigned nr, room;
	uint8_t *raw; /* the table: entries, each with its padding */
	size_t raw_bytes, raw_room;
	size_t fed_bytes; /* of raw, as they came: while it is read */
};

/* Accept NULL: no snapshot. */
static inline unsigned qcow2_snapshots_nr(const struct qcow2_snapshots *list)
{
	return list ? list->nr : 0;
}

void qcow2_snapshots_free(struct qcow2_snapshots *list);
/* By ID, and when none has it by name, as QEMU looks; -1: none. */
int qcow2_snapshots_find(const struct qcow2_snapshots *list, const char *id_or_name);
/* "a, b, c", cut when there are many; "none". */
void qcow2_snapshots_names(const struct qcow2_snapshots *list, char *buf, size_t bytes);

/*
 * Reads a table: the next bytes of it, from its start on, as they come. list starts zeroed. Returns
 * 0: it has all h->snapshot_nr entries; -EAGAIN: more bytes are wanted; -ENOMEM, or -EINVAL with
 * words.
 */
int qcow2_snapshots_feed(struct qcow2_snapshots *list, const struct qcow2_header *h,
			 const void *bytes, size_t nr_bytes, char words[static QCOW2_WORDS_BYTES]);

/*
 * A new list: those of this one (which may be NULL) and another, or without one. NULL: no memory.
 * The ID of s is filled in: the next number that is free.
 */
struct qcow2_snapshots *qcow2_snapshots_with(const struct qcow2_snapshots *list,
					     struct qcow2_snapshot *s);
struct qcow2_snapshots *qcow2_snapshots_without(const struct qcow2_snapshots *list, unsigned idx);
/* The last one has its L1 table there. */
void qcow2_snapshots_place_last(struct qcow2_snapshots *list, uint64_t l1_offset);

/* Whether the L1 table of a snapshot can lie where it says; else words. */
int qcow2_snapshot_check_place(const struct qcow2_tables *t, const struct qcow2_snapshot *s,
			       char *words, size_t words_bytes);

#endif
