/*
 * See cache_index.h. Owns the memfd and its mapping.
 *
 *   | kept | number of each page | slots ... |
 *
 * Happy path: new -> load, page by page, or adopt -> find, take, drop. Failure modes: no memory; a
 * memfd of another cache; entries of the store that make no sense are passed over and counted.
 */
#include "filters/cache/cache_index.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"

#define CACHE_KEPT_MAGIC 0x63616368656d656dull
#define CACHE_KEPT_VERSION 1u /* raised with the layout: test/kept.py */
/* Where the numbers of the pages begin. */
#define CACHE_KEPT_SEQ_AT 4096u
/* Slots that the clock's hand passes at a time. */
#define CACHE_HAND_STEPS 4096u

/* At the start of the memfd. */
struct cache_kept {
	uint64_t magic;
	uint32_t version, is_filled;
	uint32_t is_off, reserved;
	uint64_t area_bytes;
	struct cache_header header;
};

/* ---- memory ---- */

/* Where the slots begin in the memfd, in bytes. */
static size_t cache_index_slots_at(const struct cache_header *h)
{
	return CACHE_KEPT_SEQ_AT + round_up(cache_page_nr(h->slot_nr) * sizeof(uint64_t), 4096);
}

static void cache_index_place(struct cache_index *ix, uint8_t *area)
{
	ix->kept = (struct cache_kept *)area;
	ix->page_seq = (uint64_t *)(area + CACHE_KEPT_SEQ_AT);
	ix->slot = (struct cache_slot *)(area + cache_index_slots_at(&ix->header));
}

static size_t cache_bitmap_bytes(const struct cache_index *ix)
{
	return round_up(cache_page_nr(ix->header.slot_nr), 64) / 8;
}

static int cache_index_alloc_rest(struct cache_index *ix)
{
	uint32_t nr = 1;

	while (nr < ix->header.slot_nr)
		nr *= 2;
	ix->bucket_mask = nr - 1;
	ix->bucket = malloc(nr * sizeof(*ix->bucket));
	ix->unused = malloc(ix->header.slot_nr * sizeof(*ix->unused));
	ix->page_dirty = calloc(1, cache_bitmap_bytes(ix));
	ix->page_now = calloc(1, cache_bitmap_bytes(ix));
	if (!ix->bucket || !ix->unused || !ix->page_dirty || !ix->page_now)
		return -ENOMEM;
	memset(ix->bucket, 0xff, nr * sizeof(*ix->bucket));
	return 0;
}

static int cache_index_map(struct cache_index *ix)
{
	void *area = mmap(NULL, ix->area_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			  ix->fd, 0);

	if (area == MAP_FAILED)
		return -errno;
	ix->area = area;
	cache_index_place(ix, area);
	return cache_index_alloc_rest(ix);
}

static struct cache_index *cache_index_alloc(const struct cache_header *h)
{
	struct cache_index *ix = calloc(1, sizeof(*ix));

	if (!ix)
		return NULL;
	ix->fd = -1;
	ix->header = *h;
	ix->slots_at = cache_slots_at(h->slot_nr, h->block_bytes);
	ix->area_bytes =
		cache_index_slots_at(h) + round_up(h->slot_nr * sizeof(struct cache_slot), 4096);
	return ix;
}

static int cache_index_make(struct cache_index *ix)
{
	ix->fd = memfd_create("ublkd-cache", MFD_CLOEXEC);
	if (ix->fd < 0 || ftruncate(ix->fd, (off_t)ix->area_bytes) < 0)
		return -errno;
	return cache_index_map(ix);
}

void cache_index_set_header(struct cache_index *ix, const struct cache_header *h)
{
	ix->header = *h;
	ix->kept->header = *h;
}

void cache_index_set_filled(struct cache_index *ix)
{
	cache_index_set_header(ix, &ix->header);
	__atomic_store_n(&ix->kept->is_filled, 1, __ATOMIC_RELEASE);
}

void cache_index_set_off(struct cache_index *ix)
{
	__atomic_store_n(&ix->kept->is_off, 1, __ATOMIC_RELEASE);
}

void cache_index_set_lost(struct cache_index *ix)
{
	__atomic_store_n(&ix->kept->is_filled, 0, __ATOMIC_RELEASE);
}

int cache_index_new(struct cache_index **ret_ix, const struct cache_header *h)
{
	struct cache_index *ix = cache_index_alloc(h);
	int ret = ix ? cache_index_make(ix) : -ENOMEM;

	if (ret < 0) {
		cache_index_free(ix);
		return ret;
	}
	ASSERT(ix->kept);
	ix->kept->magic = CACHE_KEPT_MAGIC;
	ix->kept->version = CACHE_KEPT_VERSION;
	ix->kept->area_bytes = ix->area_bytes;
	for (uint32_t i = h->slot_nr; i-- > 0;)
		ix->unused[ix->unused_nr++] = i;
	*ret_ix = ix;
	return 0;
}

void cache_index_free(struct cache_index *ix)
{
	if (!ix)
		return;
	if (ix->area)
		munmap(ix->area, ix->area_bytes);
	if (ix->fd >= 0)
		close(ix->fd);
	free(ix->bucket);
	free(ix->unused);
	free(ix->page_dirty);
	free(ix->page_now);
	free(ix);
}

/* ---- of a process before ---- */

static bool cache_kept_is_ours(const struct cache_kept *k, const struct cache_header *h)
{
	return k->header.origin_bytes == h->origin_bytes &&
	       k->header.block_bytes == h->block_bytes && k->header.slot_nr == h->slot_nr &&
	       memcmp(k->header.origin, h->origin, sizeof(h->origin)) == 0;
}

static void cache_bucket_add(struct cache_index *ix, struct cache_slot *slot);

/* Nothing is under way; what a commit was about may be on the store in either state. */
static void cache_slot_revive(struct cache_index *ix, struct cache_slot *slot)
{
	uint64_t dirty = slot->dirty & slot->valid, said = slot->named | slot->moving;

	slot->named_dirty &= ~slot->moving & slot->valid;
	slot->named = said & slot->valid;
	slot->moving = said & ~slot->valid;
	slot->owned = slot->will = slot->cleaning = slot->ban = 0;
	slot->pins = 0;
	slot->is_evicting = slot->is_marker = slot->is_cleaning = 0;
	slot->is_fresh = 1;
	slot->dirty = 0;
	cache_bucket_add(ix, slot);
	cache_slot_set_dirty(ix, slot, dirty);
	cache_page_touch(ix, slot);
}

static void cache_index_revive(struct cache_index *ix)
{
	ASSERT(ix->slot);
	for (uint32_t i = ix->header.slot_nr; i-- > 0;) {
		if (ix->slot[i].is_used)
			cache_slot_revive(ix, &ix->slot[i]);
		else
			ix->unused[ix->unused_nr++] = i;
	}
}

static int cache_index_take(struct cache_index *ix, int fd)
{
	struct cache_kept k;
	struct stat st;

	if (fstat(fd, &st) < 0 || pread(fd, &k, sizeof(k), 0) != (ssize_t)sizeof(k) ||
	    k.magic != CACHE_KEPT_MAGIC || k.version != CACHE_KEPT_VERSION || !k.is_filled)
		return -ENODATA;
	/* The store was made anew since: what the memory says of its slots is over. */
	if (k.header.instance != ix->header.instance)
		return -ENODATA;
	if (!cache_kept_is_ours(&k, &ix->header) || (uint64_t)st.st_size != ix->area_bytes ||
	    k.area_bytes != ix->area_bytes)
		return -EBUSY;
	if (k.is_off)
		return -ESTALE;
	/* Somebody has changed the store since: cache_store_accept. */
	if (ix->header.generation > k.header.generation)
		return -ENODATA;
	ix->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return ix->fd < 0 ? -errno : cache_index_map(ix);
}

int cache_index_adopt(struct cache_index **ret_ix, const struct cache_header *h, int fd)
{
	struct cache_index *ix = cache_index_alloc(h);
	int ret = ix ? cache_index_take(ix, fd) : -ENOMEM;

	if (ret < 0) {
		cache_index_free(ix);
		return ret;
	}
	cache_index_revive(ix);
	ix->writes_all = true;
	*ret_ix = ix;
	return 0;
}

/* ---- slots ---- */

static uint32_t *cache_bucket_of(const struct cache_index *ix, uint64_t block)
{
	return &ix->bucket[(block * 0x9e3779b97f4a7c15ull >> 32) & ix->bucket_mask];
}

static void cache_bucket_add(struct cache_index *ix, struct cache_slot *slot)
{
	uint32_t *bucket = cache_bucket_of(ix, slot->block);

	slot->next = *bucket;
	*bucket = cache_slot_idx(ix, slot);
	__atomic_store_n(&ix->used_nr, ix->used_nr + 1, __ATOMIC_RELAXED);
}

static void cache_bucket_remove(struct cache_index *ix, const struct cache_slot *slot)
{
	uint32_t *at = cache_bucket_of(ix, slot->block);

	while (*at != cache_slot_idx(ix, slot))
		at = &ix->slot[*at].next;
	*at = slot->next;
	__atomic_store_n(&ix->used_nr, ix->used_nr - 1, __ATOMIC_RELAXED);
}

struct cache_slot *cache_slot_find(const struct cache_index *ix, uint64_t block)
{
	uint32_t idx = *cache_bucket_of(ix, block);

	while (idx != CACHE_NO_SLOT && ix->slot[idx].block != block)
		idx = ix->slot[idx].next;
	return idx == CACHE_NO_SLOT ? NULL : &ix->slot[idx];
}

struct cache_slot *cache_slot_take(struct cache_index *ix, uint64_t block)
{
	struct cache_slot *slot;

	if (ix->unused_nr == 0)
		return NULL;
	slot = &ix->slot[ix->unused[--ix->unused_nr]];
	*slot = (struct cache_slot){ .block = block };
	/* A process that dies between finds an empty slot. */
	__atomic_store_n(&slot->is_used, 1, __ATOMIC_RELEASE);
	cache_bucket_add(ix, slot);
	return slot;
}

void cache_slot_drop(struct cache_index *ix, struct cache_slot *slot)
{
	ASSERT(!slot->pins && !slot->owned && !slot->named && !slot->moving && !slot->dirty);
	cache_bucket_remove(ix, slot);
	slot->is_used = 0;
	slot->valid = 0;
	ix->unused[ix->unused_nr++] = cache_slot_idx(ix, slot);
}

void cache_slot_set_dirty(struct cache_index *ix, struct cache_slot *slot, uint64_t dirty)
{
	uint64_t units = ix->dirty_units + (uint64_t)__builtin_popcountll(dirty) -
			 (uint64_t)__builtin_popcountll(slot->dirty);

	ix->dirty_nr += (dirty != 0) - (slot->dirty != 0);
	__atomic_store_n(&ix->dirty_units, units, __ATOMIC_RELAXED);
	slot->dirty = dirty;
}

struct cache_slot *cache_index_victim(struct cache_index *ix)
{
	for (unsigned i = 0; i < CACHE_HAND_STEPS; i++) {
		struct cache_slot *slot = &ix->slot[ix->hand];

		ix->hand = ix->hand + 1 == ix->header.slot_nr ? 0 : ix->hand + 1;
		if (!slot->is_used || slot->pins || slot->owned || slot->dirty ||
		    slot->is_evicting || slot->is_cleaning)
			continue;
		if (!slot->was_used)
			return slot;
		slot->was_used = 0;
	}
	return NULL;
}

/* ---- from the store ---- */

static bool cache_index_enter(struct cache_index *ix, uint32_t idx, const struct cache_entry *entry)
{
	struct cache_slot *slot = &ix->slot[idx];

	if (cache_entry_check(&ix->header, entry) < 0 || cache_slot_find(ix, entry->block))
		return false;
	*slot = (struct cache_slot){ .block = entry->block,
				     .valid = entry->valid,
				     .named = entry->valid,
				     .named_dirty = entry->dirty,
				     .is_used = 1 };
	cache_bucket_add(ix, slot);
	cache_slot_set_dirty(ix, slot, entry->dirty);
	return true;
}

static void cache_index_remove_unused(struct cache_index *ix)
{
	ix->unused_nr = 0;
	for (uint32_t i = ix->header.slot_nr; i-- > 0;)
		if (!ix->slot[i].is_used)
			ix->unused[ix->unused_nr++] = i;
}

void cache_index_load(struct cache_index *ix, uint32_t page_idx, const void *two_pages)
{
	uint32_t first = page_idx * CACHE_PAGE_ENTRIES;
	struct cache_page page;

	if (cache_page_choose(&page, two_pages, ix->header.instance, page_idx)) {
		ix->page_seq[page_idx] = page.seq;
		for (unsigned i = 0; i < CACHE_PAGE_ENTRIES; i++) {
			const struct cache_entry *entry = &page.entry[i];

			if (entry->valid == 0 && entry->dirty == 0)
				continue;
			if (first + i >= ix->header.slot_nr ||
			    !cache_index_enter(ix, first + i, entry))
				ix->lie_nr++;
		}
	}
	if (page_idx + 1 == cache_page_nr(ix->header.slot_nr))
		cache_index_remove_unused(ix);
}

/* ---- to the store ---- */

/* What the store may say of a slot from the next commit on. */
static uint64_t cache_slot_nameable(const struct cache_slot *slot,
				    const struct cache_naming *naming)
{
	bool is_durable = slot->flushes != CACHE_FLUSHES_NEVER &&
			  (!naming->flush_matters || naming->flushed_nr > slot->flushes);

	if (slot->is_evicting)
		return 0;
	if (slot->is_fresh || slot->owned || !is_durable)
		return (slot->named & slot->valid) | (slot->dirty & slot->valid);
	return slot->valid;
}

/*
 * Returns whether the page has to be written. *names: something new is said of it; that it is clean
 * is new, too: what was written over dirty bytes may not be durable here, only at the origin.
 */
static bool cache_slot_name(struct cache_slot *slot, const struct cache_naming *naming, bool *names)
{
	uint64_t named = cache_slot_nameable(slot, naming) & ~slot->ban;
	uint64_t dirty = slot->dirty & named;
	bool has_changed = named != slot->named || dirty != slot->named_dirty || slot->moving;

	*names |= (named & ~slot->named) || (dirty ^ (slot->named_dirty & named));
	slot->moving |= (slot->named & ~named) | (dirty & ~slot->named_dirty);
	slot->named = named;
	slot->named_dirty = dirty;
	slot->ban = 0;
	slot->is_fresh = 0;
	return has_changed;
}

/* Whether there is more to say of it later. */
static bool cache_slot_has_more(const struct cache_slot *slot)
{
	return slot->valid != slot->named;
}

/* Returns whether it has to be written. */
static bool cache_page_name(struct cache_index *ix, uint32_t page_idx,
			    const struct cache_naming *naming, bool *names)
{
	uint32_t first = page_idx * CACHE_PAGE_ENTRIES;
	uint32_t end = MIN(first + CACHE_PAGE_ENTRIES, ix->header.slot_nr);
	bool has_changed = ix->writes_all;

	for (uint32_t i = first; i < end; i++) {
		struct cache_slot *slot = &ix->slot[i];

		if (!slot->is_used)
			continue;
		has_changed |= cache_slot_name(slot, naming, names);
		if (cache_slot_has_more(slot) && !slot->is_evicting)
			cache_page_touch(ix, slot);
	}
	return has_changed;
}

uint32_t cache_naming_begin(struct cache_index *ix, const struct cache_naming *naming,
			    bool *ret_names)
{
	uint32_t page_nr = cache_page_nr(ix->header.slot_nr), nr = 0;

	memcpy(ix->page_now, ix->page_dirty, cache_bitmap_bytes(ix));
	memset(ix->page_dirty, 0, cache_bitmap_bytes(ix));
	*ret_names = false;
	for (uint32_t i = 0; i < page_nr; i++)
		if (ix->page_now[i / 64] >> (i % 64) & 1) {
			if (cache_page_name(ix, i, naming, ret_names))
				nr++;
			else
				ix->page_now[i / 64] &= ~(1ull << (i % 64));
		}
	return nr;
}

bool cache_naming_next(struct cache_index *ix, uint32_t *idx, void *page, uint64_t *ret_at)
{
	uint32_t page_nr = cache_page_nr(ix->header.slot_nr);
	struct cache_page p = { 0 };

	while (*idx < page_nr && !(ix->page_now[*idx / 64] >> (*idx % 64) & 1))
		(*idx)++;
	if (*idx >= page_nr)
		return false;
	p.seq = ix->page_seq[*idx] + 1;
	for (uint32_t i = 0; i < CACHE_PAGE_ENTRIES; i++) {
		uint32_t at = *idx * CACHE_PAGE_ENTRIES + i;
		const struct cache_slot *slot = &ix->slot[at];

		if (at < ix->header.slot_nr && slot->is_used && slot->named)
			p.entry[i] = (struct cache_entry){ .block = slot->block,
							   .valid = slot->named,
							   .dirty = slot->named_dirty };
	}
	cache_page_write(&p, page, ix->header.instance, *idx);
	*ret_at = cache_page_at(*idx, p.seq);
	(*idx)++;
	return true;
}

static void cache_slot_moved(struct cache_index *ix, struct cache_slot *slot, bool is_failed)
{
	if (!is_failed) {
		slot->moving = 0;
	} else if (slot->moving) {
		/* Until a commit has gone well, the store may say that it is here. */
		cache_page_touch(ix, slot);
	}
}

void cache_naming_end(struct cache_index *ix, bool is_failed)
{
	uint32_t page_nr = cache_page_nr(ix->header.slot_nr);

	/* What was to be written may be there or not. */
	ix->writes_all = is_failed;
	for (uint32_t i = 0; i < page_nr; i++) {
		uint32_t first = i * CACHE_PAGE_ENTRIES;

		if (!(ix->page_now[i / 64] >> (i % 64) & 1))
			continue;
		/* First: a process that dies between must not write over what is durable. */
		if (is_failed)
			ix->page_dirty[i / 64] |= 1ull << (i % 64);
		else
			ix->page_seq[i]++;
		for (uint32_t k = first; k < MIN(first + CACHE_PAGE_ENTRIES, ix->header.slot_nr);
		     k++)
			cache_slot_moved(ix, &ix->slot[k], is_failed);
	}
}
