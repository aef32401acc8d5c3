/*
 * See cache_format.h. Owns nothing; any thread.
 *
 * Happy path: parse and write are each other's opposite. Failure modes: bytes that nobody has
 * written, or only in part: told apart by magic, instance and sum; a header or an entry that makes
 * no sense is refused.
 */
#include "filters/cache/cache_format.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/util.h"

#define CACHE_MAGIC "ublkdcac"
#define CACHE_PAGE_MAGIC "ublkdidx"
#define CACHE_VERSION 2u /* raised with the layout: test/kept.py */
/* Without a version of the origin: where it stands in the header there are zeroes. */
#define CACHE_VERSION_OLDEST 1u

/* The sum is of the page with these four bytes as 0. */
struct cache_header_disk {
	char magic[8];
	uint32_t version, sum;
	uint64_t generation, instance, origin_bytes;
	uint32_t block_bytes, slot_nr;
	char origin[CACHE_ORIGIN_BYTES];
	char found[CACHE_NOTE_BYTES], ours[CACHE_NOTE_BYTES];
};

struct cache_entry_disk {
	uint64_t block, valid, dirty, reserved;
};

struct cache_page_disk {
	char magic[8];
	uint32_t page_idx, sum;
	uint64_t seq, instance;
	struct cache_entry_disk entry[CACHE_PAGE_ENTRIES];
};

_Static_assert(sizeof(struct cache_page_disk) == CACHE_PAGE_BYTES, "a page");

/* Of a page whose sum stands at sum_at. */
static uint32_t cache_sum_of(const void *at, size_t sum_at)
{
	uint8_t page[CACHE_PAGE_BYTES];

	memcpy(page, at, sizeof(page));
	memset(page + sum_at, 0, sizeof(uint32_t));
	return crc32c(0, page, sizeof(page));
}

/* ---- the header ---- */

static int cache_header_check(const struct cache_header *h)
{
	if (h->block_bytes < CACHE_BLOCK_BYTES_MIN || h->block_bytes > CACHE_BLOCK_BYTES_MAX ||
	    !is_power_of_two(h->block_bytes) || h->slot_nr < CACHE_SLOTS_MIN ||
	    h->slot_nr > CACHE_SLOTS_MAX || h->origin_bytes == 0)
		return -EINVAL;
	return memchr(h->origin, 0, sizeof(h->origin)) && memchr(h->found, 0, sizeof(h->found)) &&
			       memchr(h->ours, 0, sizeof(h->ours))
		       ? 0
		       : -EINVAL;
}

int cache_header_parse(struct cache_header *h, const void *at, char words[static CACHE_WORDS_BYTES])
{
	struct cache_header_disk disk;

	memcpy(&disk, at, sizeof(disk));
	if (memcmp(disk.magic, CACHE_MAGIC, sizeof(disk.magic)) != 0) {
		snprintf(words, CACHE_WORDS_BYTES, "it has no header of a cache");
		return -ENODATA;
	}
	if (le32toh(disk.sum) != cache_sum_of(at, offsetof(struct cache_header_disk, sum))) {
		snprintf(words, CACHE_WORDS_BYTES, "the sum of its header is wrong");
		return -EINVAL;
	}
	*h = (struct cache_header){ .generation = le64toh(disk.generation),
				    .instance = le64toh(disk.instance),
				    .origin_bytes = le64toh(disk.origin_bytes),
				    .block_bytes = le32toh(disk.block_bytes),
				    .slot_nr = le32toh(disk.slot_nr) };
	memcpy(h->origin, disk.origin, sizeof(h->origin));
	memcpy(h->found, disk.found, sizeof(h->found));
	memcpy(h->ours, disk.ours, sizeof(h->ours));
	if (le32toh(disk.version) < CACHE_VERSION_OLDEST || le32toh(disk.version) > CACHE_VERSION) {
		snprintf(words, CACHE_WORDS_BYTES, "its version is %u, known is %u",
			 le32toh(disk.version), CACHE_VERSION);
		return -EINVAL;
	}
	if (cache_header_check(h) < 0) {
		snprintf(words, CACHE_WORDS_BYTES, "its header makes no sense");
		return -EINVAL;
	}
	return 0;
}

void cache_header_write(const struct cache_header *h, void *at)
{
	struct cache_header_disk disk = { .version = htole32(CACHE_VERSION),
					  .generation = htole64(h->generation),
					  .instance = htole64(h->instance),
					  .origin_bytes = htole64(h->origin_bytes),
					  .block_bytes = htole32(h->block_bytes),
					  .slot_nr = htole32(h->slot_nr) };

	memcpy(disk.magic, CACHE_MAGIC, sizeof(disk.magic));
	memcpy(disk.origin, h->origin, sizeof(disk.origin));
	memcpy(disk.found, h->found, sizeof(disk.found));
	memcpy(disk.ours, h->ours, sizeof(disk.ours));
	memset(at, 0, CACHE_PAGE_BYTES);
	memcpy(at, &disk, sizeof(disk));
	disk.sum = htole32(crc32c(0, at, CACHE_PAGE_BYTES));
	memcpy(at, &disk, sizeof(disk));
}

/* ---- pages ---- */

enum cache_page_kind cache_page_parse(struct cache_page *page, const void *at, uint64_t instance,
				      uint32_t page_idx)
{
	struct cache_page_disk disk;

	memcpy(&disk, at, sizeof(disk));
	if (memcmp(disk.magic, CACHE_PAGE_MAGIC, sizeof(disk.magic)) != 0 ||
	    le64toh(disk.instance) != instance || le32toh(disk.page_idx) != page_idx)
		return CACHE_PAGE_OTHER;
	if (le32toh(disk.sum) != cache_sum_of(at, offsetof(struct cache_page_disk, sum)))
		return CACHE_PAGE_TORN;
	page->seq = le64toh(disk.seq);
	for (unsigned i = 0; i < CACHE_PAGE_ENTRIES; i++)
		page->entry[i] = (struct cache_entry){ .block = le64toh(disk.entry[i].block),
						       .valid = le64toh(disk.entry[i].valid),
						       .dirty = le64toh(disk.entry[i].dirty) };
	return CACHE_PAGE_GOOD;
}

void cache_page_write(const struct cache_page *page, void *at, uint64_t instance, uint32_t page_idx)
{
	struct cache_page_disk disk = { .page_idx = htole32(page_idx),
					.seq = htole64(page->seq),
					.instance = htole64(instance) };

	memcpy(disk.magic, CACHE_PAGE_MAGIC, sizeof(disk.magic));
	for (unsigned i = 0; i < CACHE_PAGE_ENTRIES; i++) {
		disk.entry[i].block = htole64(page->entry[i].block);
		disk.entry[i].valid = htole64(page->entry[i].valid);
		disk.entry[i].dirty = htole64(page->entry[i].dirty);
	}
	disk.sum = htole32(crc32c(0, &disk, sizeof(disk)));
	memcpy(at, &disk, sizeof(disk));
}

bool cache_page_choose(struct cache_page *page, const void *two_pages, uint64_t instance,
		       uint32_t page_idx)
{
	struct cache_page of_place[2];
	bool is_good[2];

	for (unsigned i = 0; i < 2; i++)
		is_good[i] = cache_page_parse(&of_place[i],
					      (const uint8_t *)two_pages + i * CACHE_PAGE_BYTES,
					      instance, page_idx) == CACHE_PAGE_GOOD &&
			     (of_place[i].seq & 1) == i;
	if (!is_good[0] && !is_good[1])
		return false;
	*page = of_place[is_good[1] && (!is_good[0] || of_place[1].seq > of_place[0].seq)];
	return true;
}

int cache_entry_check(const struct cache_header *h, const struct cache_entry *entry)
{
	uint64_t block_nr = (h->origin_bytes + h->block_bytes - 1) / h->block_bytes;

	if (entry->valid == 0)
		return entry->dirty == 0 ? 0 : -EINVAL;
	if (entry->block >= block_nr || (entry->valid & ~cache_units_all(h->block_bytes)) ||
	    (entry->dirty & ~entry->valid))
		return -EINVAL;
	return 0;
}

/* ---- how many ---- */

uint32_t cache_slots_for(uint64_t store_bytes, uint32_t block_bytes)
{
	/* A slot, and its part of two pages, rounded up; beside them headers, the pages that are
	 * not full, and what the slots are aligned by. */
	uint64_t slot_bytes = block_bytes + 2 * CACHE_PAGE_BYTES / CACHE_PAGE_ENTRIES + 1;
	uint64_t beside = (CACHE_HEADER_NR + 2) * CACHE_PAGE_BYTES + block_bytes;

	if (store_bytes <= beside)
		return 0;
	return (uint32_t)MIN((store_bytes - beside) / slot_bytes, CACHE_SLOTS_MAX);
}
