/*
 * What opening and closing a cache share: requests by a visit (storage/visit.h), one after the
 * other but for the drain of dirty blocks. Control reactor.
 */
#ifndef FILTERS_CACHE_CACHE_VISIT_H
#define FILTERS_CACHE_CACHE_VISIT_H

#include "filters/cache/cache.h"
#include "storage/version.h"

#define CACHE_VISIT_BYTES 65536u
#define CACHE_DRAINS_NR 4u
/* So long without an end of anything, and the drain of a close is given up. */
#define CACHE_STUCK_NS (60 * NS_PER_SEC)

/* A run of dirty units on its way to the origin. */
struct cache_drain {
	bool is_busy;
	uint64_t offset; /* of the origin */
	uint64_t at;	 /* in the store */
	uint32_t bytes;
	uint8_t *buf; /* CACHE_VISIT_BYTES */
};

struct cache_visit {
	struct cache_device *d;
	struct backend_visit *visit;
	uint8_t *buf; /* CACHE_VISIT_BYTES */
	void (*then)(struct cache_visit *v, int result);
	void (*committed)(struct cache_visit *v, int result); /* the last commit has ended */

	/* Of an open. */
	struct cache_header wanted; /* as the configuration has it */
	struct cache_header found;
	bool has_found, has_foreign;
	unsigned damaged_nr; /* headers that were ours once */
	uint32_t next;
	struct cache_index *ix; /* being loaded */
	bool is_other;		/* of another origin, or shape: only dirty blocks matter */
	bool is_adopted;	/* ... it is the memory of a process before */
	bool has_drained;	/* dirty blocks may have been written to the origin */

	/* cache_version.c */
	struct backend_version version; /* of the origin */
	void (*headed)(struct cache_visit *v, int result);
	void (*noted)(struct cache_visit *v, int result);
	int result_before;

	/* Of a drain, and of the last commit. */
	struct cache_drain drain[CACHE_DRAINS_NR];
	uint32_t slot_idx;
	uint64_t left; /* units of that slot */
	unsigned drain_nr;
	int result;
	bool is_careful;  /* the last commit names nothing new as clean */
	bool is_given_up; /* the drain: what ends of it is of no interest */
	struct timer stuck;
	unsigned stuck_nr; /* requests that had ended when it was armed */
	unsigned ended_nr;
	uint64_t began_ns;
	uint32_t began_nr;
};

/* then is called from a turn; what fails to begin is told so too. */
void cache_visit_io(struct cache_visit *v, unsigned child_idx, enum backend_op op, uint64_t offset,
		    uint32_t bytes, const char *doing,
		    void (*then)(struct cache_visit *v, int result));
struct cache_visit *cache_visit_of(struct backend_visit *visit);
/* NULL: no memory. Owned by d->visit. */
struct cache_visit *cache_visit_new(struct cache_device *d);
void cache_visit_free(struct cache_device *d);

/* Writes all dirty blocks to the origin and flushes it; then all is clean in memory, or an error.
 */
void cache_drain_begin(struct cache_visit *v, void (*then)(struct cache_visit *v, int result));
/* The index reaches the store. */
void cache_last_commit(struct cache_visit *v, void (*then)(struct cache_visit *v, int result));

/* ---- cache_version.c ---- */

/* Both headers become `wanted`, durably. */
void cache_headers_write(struct cache_visit *v, void (*then)(struct cache_visit *v, int result));
/* Open: the version of the origin, and what `wanted` is to say of it while the cache serves. */
void cache_version_ask(struct cache_visit *v);
/* Whether the header that was found is of another version. */
bool cache_version_has_moved(const struct cache_visit *v);
/* In the note of what may have been written since it was noted last: the version is not known. */
bool cache_version_is_unknown(const struct cache_header *h);
void cache_version_set_unknown(struct cache_header *h);
/* The header says what `wanted` does, of the index that was found; `found` then says it too. */
void cache_version_note(struct cache_visit *v, void (*then)(struct cache_visit *v, int result));
/* Close: the header says that the version is not known, but for one that lasts. */
void cache_version_void(struct cache_visit *v, void (*then)(struct cache_visit *v, int result));
/* Nobody of us writes to the origin any more. then gets result_before, or why it is not noted. */
void cache_version_close(struct cache_visit *v, int result_before,
			 void (*then)(struct cache_visit *v, int result));

#endif
