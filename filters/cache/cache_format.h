/*
 * The file of a cache as bytes. Pure: no file, no memory of its own. All numbers are little-endian.
 *
 *   | header | header | page 0, twice | page 1, twice | ... | slot 0 | slot 1 | ... |
 *
 * Both headers say the same; the newer good one counts. A page of the index says what 127 slots
 * hold; of its two places the newer good one counts, and the next write goes to the other one. A
 * page belongs to the instance that the header names: what a life before has left is empty.
 */
#ifndef FILTERS_CACHE_CACHE_FORMAT_H
#define FILTERS_CACHE_CACHE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#define CACHE_PAGE_BYTES 4096u
#define CACHE_PAGE_ENTRIES 127u
#define CACHE_HEADER_NR 2u
/* The smallest part of a block that is cached alone; 64 of them at most. */
#define CACHE_UNIT_BYTES 4096u
#define CACHE_BLOCK_BYTES_MIN 4096u
#define CACHE_BLOCK_BYTES_MAX 262144u
#define CACHE_SLOTS_MIN 8u
#define CACHE_SLOTS_MAX (1u << 24)
#define CACHE_ORIGIN_BYTES 128u
#define CACHE_WORDS_BYTES 160u
#define CACHE_NOTE_BYTES 96u

struct cache_header {
	uint64_t generation;   /* the higher one is the newer */
	uint64_t instance;     /* of the index; 0: nothing is cached */
	uint64_t origin_bytes; /* size of the origin */
	uint32_t block_bytes, slot_nr;
	char origin[CACHE_ORIGIN_BYTES]; /* whose bytes these are; ends with 0 */
	/*
	 * Which of its versions the origin has, as struct backend_version_note; both end with 0. ""
	 * in found: not known, as while it changes with each write. Version 1 of the format has
	 * none. At the end: the memory that a process leaves behind begins as before.
	 */
	char found[CACHE_NOTE_BYTES], ours[CACHE_NOTE_BYTES];
};

/* What a slot holds. valid 0: nothing. */
struct cache_entry {
	uint64_t block; /* of the origin, counted in block_bytes */
	/* Bits of units, from the block's first on: whose bytes are right; ... that the origin
	 * does not have. */
	uint64_t valid, dirty;
};

struct cache_page {
	uint64_t seq; /* the higher one is the newer; from 1 on */
	struct cache_entry entry[CACHE_PAGE_ENTRIES];
};

enum cache_page_kind {
	CACHE_PAGE_GOOD,
	CACHE_PAGE_OTHER, /* never written by this instance */
	CACHE_PAGE_TORN,  /* of this instance, and its sum is wrong */
};

/* 0; -ENODATA: it is no header; -EINVAL: it makes no sense, or its sum is wrong; words say. h is
 * changed also then. */
int cache_header_parse(struct cache_header *h, const void *at,
		       char words[static CACHE_WORDS_BYTES]);
/* CACHE_PAGE_BYTES. */
void cache_header_write(const struct cache_header *h, void *at);

enum cache_page_kind cache_page_parse(struct cache_page *page, const void *at, uint64_t instance,
				      uint32_t page_idx);
void cache_page_write(const struct cache_page *page, void *at, uint64_t instance,
		      uint32_t page_idx);
/* The newer one of both places of a page; false: neither is good. */
bool cache_page_choose(struct cache_page *page, const void *two_pages, uint64_t instance,
		       uint32_t page_idx);

/* Whether an entry may be true of an origin of this size. */
int cache_entry_check(const struct cache_header *h, const struct cache_entry *entry);

/* So many slots fit a file of this size; below CACHE_SLOTS_MIN: it is too small. */
uint32_t cache_slots_for(uint64_t store_bytes, uint32_t block_bytes);

static inline uint32_t cache_page_nr(uint32_t slot_nr)
{
	return (slot_nr + CACHE_PAGE_ENTRIES - 1) / CACHE_PAGE_ENTRIES;
}

static inline uint64_t cache_page_at(uint32_t page_idx, uint64_t seq)
{
	return (CACHE_HEADER_NR + 2ull * page_idx + (seq & 1)) * CACHE_PAGE_BYTES;
}

/* Where slot 0 begins: at a multiple of a block. */
static inline uint64_t cache_slots_at(uint32_t slot_nr, uint32_t block_bytes)
{
	uint64_t at = (CACHE_HEADER_NR + 2ull * cache_page_nr(slot_nr)) * CACHE_PAGE_BYTES;

	return (at + block_bytes - 1) / block_bytes * block_bytes;
}

/* All units of a block. */
static inline uint64_t cache_units_all(uint32_t block_bytes)
{
	unsigned nr = block_bytes / CACHE_UNIT_BYTES;

	return nr == 64 ? UINT64_MAX : (1ull << nr) - 1;
}

#endif
