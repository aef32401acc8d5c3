/*
 * The tables of an image in memory: L1, the reference count table, and a cache of slices of L2
 * tables and of blocks of reference counts. Reactors look a guest's offset up in it without a lock
 * while one of them, the owner, changes it.
 *
 * A slice is up to 4 KiB of a table as it is on disk, known by its offset in the image. A slot of
 * the cache has a sequence number: odd while what is in it is being replaced. Who looks reads the
 * number, what he wants, and the number again; the owner never waits for him.
 *
 * Of an image that is written all of it lies in a memfd, so that what has not reached the disk
 * outlives the process (storage/backend.h, stored_fd); of one that is only read it is shared by all
 * devices that stand on the same image.
 */
#ifndef BACKENDS_QCOW2_QCOW2_TABLES_H
#define BACKENDS_QCOW2_QCOW2_TABLES_H

#include <endian.h>
#include <stdatomic.h>

#include "backends/qcow2/format/qcow2_header.h"
#include "base/list.h"

#define QCOW2_SLICE_BYTES_MAX 4096u
#define QCOW2_WAYS 8u
/* Parts of L1 and of the reference count table that are written together. */
#define QCOW2_CHUNK_BYTES 4096u

enum qcow2_freed_stage {
	QCOW2_FREED_NONE,
	QCOW2_FREED_PENDING, /* the disk may still say that it is used */
	QCOW2_FREED_DURABLE, /* it does not any more; requests may be under way there */
	QCOW2_FREED_WAITING, /* for those of the epoch before */
	QCOW2_FREED_QUIET,   /* its reference counts may fall */
};

/* What was given up and waits until nothing on the disk says any more that it is used. */
#define QCOW2_FREED_NR 1280u
struct qcow2_freed {
	uint64_t at, end; /* what is left of it */
	uint64_t stage;	  /* enum qcow2_freed_stage: 0: this place is free */
};

enum qcow2_taken_kind {
	QCOW2_TAKEN_NONE,
	QCOW2_TAKEN_DATA,  /* for a guest's offset */
	QCOW2_TAKEN_TABLE, /* for an L2 table */
};

/* Clusters that no table names yet: qcow2_taken.c. */
#define QCOW2_TAKEN_NR 256u
struct qcow2_taken {
	uint64_t what; /* DATA: the guest's offset; TABLE: the index in L1 */
	uint64_t host, nr;
	uint64_t kind; /* enum qcow2_taken_kind: 0: this place is free */
};

enum qcow2_undo_kind { QCOW2_UNDO_ENTRY, QCOW2_UNDO_TABLE };

/* An entry that has come to name a place of which nothing is durable yet: qcow2_undo.c. */
struct qcow2_undo {
	uint64_t what;		/* ENTRY: the guest's offset of a cluster; TABLE: the index in L1 */
	uint64_t old, old_bits; /* as it was before */
	uint64_t host;		/* what it names */
	uint32_t kind;		/* enum qcow2_undo_kind */
	uint32_t is_new;	/* host was taken for it */
};

/* More of them are durable by a commit. */
#define QCOW2_UNDO_NR 16384u
struct qcow2_undo_log {
	_Atomic uint32_t nr;
	uint32_t losses; /* of what is below (qcow2_losses), since they were begun */
	struct qcow2_undo note[QCOW2_UNDO_NR];
};

/* In the memfd, for the next process: the image on the disk, as qcow2_mark.c compares it. */
struct qcow2_image_note {
	uint64_t first[2];  /* of the header's first sector a hash: one of the two; 0: not known */
	uint64_t rest;	    /* the same of all that is behind it in its cluster */
	uint64_t end_bytes; /* the image is not shorter */
	uint64_t is_handed; /* the process that wrote it has handed it over: an upgrade */
};

/* What a process finds. */
struct qcow2_seen {
	uint64_t first, rest; /* hashes, never 0 */
	uint64_t image_bytes;
};

/* In the memfd: only numbers, and what a change in the middle of which the process dies leaves. */
struct qcow2_slot {
	_Atomic uint32_t seq;	  /* odd: being replaced */
	_Atomic uint8_t is_dirty; /* differs from the disk */
	uint8_t is_writing;	  /* the owner's: on its way to the disk */
	_Atomic uint8_t is_l2;	  /* has entries that were judged; 0: counts */
	uint8_t is_bad;		  /* an entry of it makes no sense: it is never changed */
	_Atomic uint8_t was_used; /* since the clock's hand passed */
	uint32_t disk;		  /* qcow2_mark.c: what the disk has there, a sum; 0: not known */
	_Atomic uint64_t at;	  /* offset of its slice in the image; 0: none */
};

_Static_assert(sizeof(struct qcow2_slot) == 24, "as version 2 of what is kept has it");

struct qcow2_tables {
	struct qcow2_geometry g;
	uint32_t slice_bytes;
	unsigned slice_bits; /* L2 entries of a slice: 1 << slice_bits */
	/* Beyond it nothing is mapped: where the file ends, rounded up to a cluster. */
	_Atomic uint64_t end_bytes;

	uint64_t l1_offset, reftable_offset;
	uint32_t l1_entries, reftable_entries;
	/* Host order; written by the owner alone. */
	_Atomic uint64_t *l1, *reftable;
	uint64_t *l1_dirty, *reftable_dirty; /* bitmaps of chunks */

	_Atomic unsigned used_nr; /* slots that have a slice, for people */
	unsigned set_mask;	  /* sets of QCOW2_WAYS slots, minus 1 */
	struct qcow2_slot *slot;
	uint8_t *data; /* of slot i from i * QCOW2_SLICE_BYTES_MAX on */

	bool has_data_file; /* the guest's clusters are in a file of their own */
	/* The table of snapshots, which nothing may overwrite. */
	uint64_t snapshots_offset, snapshots_bytes;

	void *area; /* all of the above */
	size_t area_bytes;
	int fd; /* the memfd; -1: only read */

	/* qcow2_commit.c: slots that are dirty, each once; room for all. Not in the memfd. */
	uint32_t *dirty, dirty_nr;
	_Atomic bool is_changed; /* a table differs from the disk, or is not durable there */

	struct qcow2_freed *freed;     /* qcow2_alloc.c: QCOW2_FREED_NR of them */
	unsigned freed_last, freed_nr; /* the one noted last; how many are */
	unsigned freed_promised;       /* notes that copies and undo will need; not in the memfd */
	struct qcow2_taken *taken;     /* qcow2_taken.c: QCOW2_TAKEN_NR of them */
	uint16_t taken_free[QCOW2_TAKEN_NR], taken_free_nr;
	struct qcow2_undo_log *undo;	/* qcow2_undo.c; at the end of the area */
	unsigned undo_copy_nr;		/* its notes of tables that are copies; not in the memfd */
	struct qcow2_kept *kept;	/* qcow2_tables.c: what says whose tables these are */
	struct qcow2_image_note *image; /* of what is kept, too: qcow2_mark.c */

	/* Of shared ones; qcow2_tables.c's. */
	struct list_node shared;
	unsigned user_nr;
	char *key;
};

/*
 * ThreadSanitizer knows no fences. What they order here are atomic accesses, all of them: it has
 * nothing to find without.
 */
static inline void qcow2_fence(memory_order order)
{
#ifdef __SANITIZE_THREAD__
	(void)order;
#else
	atomic_thread_fence(order);
#endif
}

static inline unsigned qcow2_slot_nr(const struct qcow2_tables *t)
{
	return (t->set_mask + 1) * QCOW2_WAYS;
}

static inline unsigned qcow2_chunk_nr(uint32_t entries)
{
	return (unsigned)(((uint64_t)entries * 8 + QCOW2_CHUNK_BYTES - 1) / QCOW2_CHUNK_BYTES);
}

static inline bool qcow2_ranges_meet(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

/* Whether a range of the image has something of the header or of a table that never moves. */
static inline bool qcow2_range_is_table(const struct qcow2_tables *t, uint64_t at, uint64_t bytes)
{
	return at < qcow2_cluster_bytes(&t->g) ||
	       qcow2_ranges_meet(at, bytes, t->l1_offset, (uint64_t)t->l1_entries * 8) ||
	       qcow2_ranges_meet(at, bytes, t->reftable_offset,
				 (uint64_t)t->reftable_entries * 8) ||
	       qcow2_ranges_meet(at, bytes, t->snapshots_offset, t->snapshots_bytes);
}

static inline unsigned qcow2_slot_idx(const struct qcow2_tables *t, const struct qcow2_slot *slot)
{
	return (unsigned)(slot - t->slot);
}

static inline void *qcow2_slot_data(const struct qcow2_tables *t, const struct qcow2_slot *slot)
{
	return t->data + (size_t)qcow2_slot_idx(t, slot) * QCOW2_SLICE_BYTES_MAX;
}

static inline struct qcow2_slot *qcow2_set_of(const struct qcow2_tables *t, uint64_t at)
{
	/* No slice is smaller than a sector. */
	uint64_t hash = (at >> 9) * 0x9e3779b97f4a7c15ull;

	return t->slot + ((hash >> 40) & t->set_mask) * QCOW2_WAYS;
}

/* Any thread: the slot that has the slice; NULL: none. It may have lost it by the time of use. */
static inline struct qcow2_slot *qcow2_slot_find(const struct qcow2_tables *t, uint64_t at)
{
	struct qcow2_slot *set = qcow2_set_of(t, at);

	for (unsigned way = 0; way < QCOW2_WAYS; way++)
		if (atomic_load_explicit(&set[way].at, memory_order_relaxed) == at)
			return &set[way];
	return NULL;
}

/* Written only when it changes, as all reactors read it. */
static inline void qcow2_slot_touch(struct qcow2_slot *slot)
{
	if (!atomic_load_explicit(&slot->was_used, memory_order_relaxed))
		atomic_store_explicit(&slot->was_used, 1, memory_order_relaxed);
}

static inline uint64_t qcow2_entry_load(const void *entries, unsigned idx)
{
	return be64toh(__atomic_load_n((const uint64_t *)entries + idx, __ATOMIC_RELAXED));
}

static inline void qcow2_entry_store(void *entries, unsigned idx, uint64_t value)
{
	__atomic_store_n((uint64_t *)entries + idx, htobe64(value), __ATOMIC_RELAXED);
}

/*
 * Makes empty tables for an image of this header. cache_bytes: of slices, as wished; what the whole
 * disk needs is enough. in_memfd: for an image that is written. NULL: no memory (errno says).
 */
struct qcow2_tables *qcow2_tables_new(const struct qcow2_header *h, uint64_t cache_bytes,
				      bool in_memfd);
void qcow2_tables_free(struct qcow2_tables *t); /* accepts NULL; of shared ones: lets go */

/*
 * The tables in a memfd that a process before has left, of an image with this header, found as
 * `seen` says; the descriptor is duplicated. NULL: they are none, of another image or shape, or
 * another program has changed the image since: words say, and the memfd is as it was; "": they are
 * of no use, and nothing is lost with them.
 */
struct qcow2_tables *qcow2_tables_adopt(const struct qcow2_header *h, const struct qcow2_seen *seen,
					int fd, char words[static QCOW2_WORDS_BYTES]);

/*
 * Main thread: those that another device of this process shares under the key, with their L1 table;
 * NULL: there are none. share: offers these from now on.
 */
struct qcow2_tables *qcow2_tables_find(const char *key);
int qcow2_tables_share(struct qcow2_tables *t, const char *key);

/*
 * Puts a slice that was read from the disk into the cache, in the place of one that is not dirty.
 * Any thread for tables that are shared, else the owner's. NULL: all that could go are dirty, or
 * somebody else is at it. The entries of an L2 slice are judged first (is_l2): those that make no
 * sense are marked, in slice too.
 */
struct qcow2_slot *qcow2_tables_install(struct qcow2_tables *t, uint64_t at, void *slice,
					bool is_l2);

/* L1 and the reference count table are read: from now on the memfd may be adopted. */
void qcow2_tables_filled(struct qcow2_tables *t);
/*
 * The L1 table moves on the disk, when all tables are durable: between these two the memfd is of no
 * use to a process to come, which reads the image instead.
 */
void qcow2_tables_unfill(struct qcow2_tables *t);
void qcow2_tables_set_l1(struct qcow2_tables *t, uint64_t l1_offset);
/*
 * The owner: a cluster becomes a table: what the cache has of its life before, as another table, is
 * of no use.
 */
void qcow2_tables_forget(struct qcow2_tables *t, uint64_t at);
void qcow2_tables_set_end(struct qcow2_tables *t, uint64_t end_bytes);

/* Bits that no valid entry has: set in memory, in entries that make no sense. */
#define QCOW2_L2_BAD (1ull << 56)

#endif
