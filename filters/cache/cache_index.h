/*
 * What the slots of a cache hold, in memory. One reactor at a time, but where said.
 *
 * It lies in a memfd, so that it outlives the process (storage/backend.h, stored_fd). `valid` is
 * the truth at every moment: what a process dies in the middle of is not valid.
 *
 * Beside it each slot has what the index on the store may say of it (`named`): a commit sets that
 * before it writes, and what a commit has taken back is `moving` until the store has forgotten it.
 */
#ifndef FILTERS_CACHE_CACHE_INDEX_H
#define FILTERS_CACHE_CACHE_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "filters/cache/cache_format.h"

#define CACHE_NO_SLOT UINT32_MAX
#define CACHE_FLUSHES_NEVER UINT64_MAX

/* All uint64_t but block and flushes: bits of units. In the memfd. */
struct cache_slot {
	uint64_t block; /* of the origin */
	uint64_t valid;
	uint64_t dirty; /* of valid: the origin does not have it */
	/*
	 * The store's index may say that it is here: of valid, and of what was valid when the last
	 * commit began.
	 */
	uint64_t named;
	uint64_t named_dirty; /* of named: and that it is dirty */
	uint64_t moving;      /* what the store's index says is between two states */
	uint64_t owned;	      /* somebody is writing to the slot */
	uint64_t will;	      /* of owned: valid when that has ended */
	uint64_t cleaning;    /* of dirty: on its way to the origin, and not changed since */
	uint64_t ban;	      /* the next commit is not to name it */
	/* Of the origin, that had begun when it changed; CACHE_FLUSHES_NEVER: none makes it
	 * durable. */
	uint64_t flushes;
	uint32_t pins;	     /* requests that read or write here */
	uint32_t next;	     /* of the same bucket; CACHE_NO_SLOT: the last */
	uint8_t is_used;     /* has a block */
	uint8_t was_used;    /* since the clock's hand passed */
	uint8_t is_evicting; /* gives up its block when the store has forgotten it */
	uint8_t is_fresh;    /* was written since the last commit: perhaps again soon */
	uint8_t is_marker;   /* a read of it asks for what follows */
	uint8_t is_cleaning; /* cache_clean.c has it */
};

struct cache_kept;

struct cache_index {
	struct cache_header header;
	uint64_t slots_at; /* in the store */
	struct cache_slot *slot;
	uint64_t *page_seq; /* of each page, what the store has for sure */
	struct cache_kept *kept;
	int fd; /* the memfd */
	void *area;
	size_t area_bytes;

	/* Not in the memfd. */
	uint32_t *bucket, bucket_mask; /* first slot of each */
	uint32_t *unused, unused_nr;   /* slots without a block */
	uint32_t hand;
	uint64_t *page_dirty, *page_now; /* bitmaps: to be looked at; by the commit under way */
	bool writes_all;		 /* pages that are looked at are written, changed or not */
	uint32_t used_nr, dirty_nr;	 /* slots; with dirty units */
	uint64_t dirty_units;		 /* of all; other threads read it, and used_nr */
	uint64_t lie_nr;		 /* entries of the store that made no sense */
};

/* 0 or -errno. */
int cache_index_new(struct cache_index **ret_ix, const struct cache_header *h);
/*
 * What a process before has left, for a store with this header; fd is duplicated. -ENODATA: it is
 * of an index that the store does not have any more, or has changed since. -EBUSY: it is of another
 * shape. -ESTALE: it says that
 * this store has failed, and is not to be trusted.
 */
int cache_index_adopt(struct cache_index **ret_ix, const struct cache_header *h, int fd);
void cache_index_free(struct cache_index *ix); /* accepts NULL */
/* Before the store's header says so: a header that is newer than the memory's voids the memory. */
void cache_index_set_header(struct cache_index *ix, const struct cache_header *h);
/* From now on it may be adopted. */
void cache_index_set_filled(struct cache_index *ix);
/* The store's index is not to be trusted any more: who adopts it hears that. */
void cache_index_set_off(struct cache_index *ix);
/* The other way round: who would adopt it reads the store's. */
void cache_index_set_lost(struct cache_index *ix);

/* From the store, as it was opened: what both places of a page hold. Lies are counted. */
void cache_index_load(struct cache_index *ix, uint32_t page_idx, const void *two_pages);

struct cache_slot *cache_slot_find(const struct cache_index *ix, uint64_t block);
/* For a block that has none; NULL: none is unused. */
struct cache_slot *cache_slot_take(struct cache_index *ix, uint64_t block);
/* Nobody uses it, and the store has forgotten it. */
void cache_slot_drop(struct cache_index *ix, struct cache_slot *slot);
void cache_slot_set_dirty(struct cache_index *ix, struct cache_slot *slot, uint64_t dirty);
/* The next one that may be evicted; NULL: none was found soon. */
struct cache_slot *cache_index_victim(struct cache_index *ix);

/* ---- the store's index ---- */

/* All that the store is to say is known to be durable there: flushed_nr of struct cache_device. */
struct cache_naming {
	bool flush_matters;
	uint64_t flushed_nr;
};

/*
 * Begins a commit: decides of all dirty pages what they will say. Returns how many have changed.
 * *ret_names: some of it is new, and must be durable first.
 */
uint32_t cache_naming_begin(struct cache_index *ix, const struct cache_naming *naming,
			    bool *ret_names);
/* The next page of the commit from *idx on, as bytes; false: there is none. */
bool cache_naming_next(struct cache_index *ix, uint32_t *idx, void *page, uint64_t *ret_at);
/* Its end. Failed: the store may say either. */
void cache_naming_end(struct cache_index *ix, bool is_failed);

static inline uint32_t cache_slot_idx(const struct cache_index *ix, const struct cache_slot *slot)
{
	return (uint32_t)(slot - ix->slot);
}

static inline void cache_page_touch(struct cache_index *ix, const struct cache_slot *slot)
{
	uint32_t page = cache_slot_idx(ix, slot) / CACHE_PAGE_ENTRIES;

	ix->page_dirty[page / 64] |= 1ull << (page % 64);
}

static inline uint64_t cache_slot_at(const struct cache_index *ix, const struct cache_slot *slot)
{
	return ix->slots_at + (uint64_t)cache_slot_idx(ix, slot) * ix->header.block_bytes;
}

#endif
