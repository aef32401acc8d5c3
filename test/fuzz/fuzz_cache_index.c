/*
 * Any bytes as the header of a cache and as a page of its index. The first byte says what: 0, a
 * header as it is; 1, one whose magic and sum are made right; else as many entries of a page as
 * there are bytes, below a right head. What is taken keeps every limit.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/util.h"
#include "filters/cache/cache_index.h"

#define SLOTS 200u
#define INSTANCE 5u

const char *const fuzz_words[] = { "ublkdcac",
				   "ublkdidx",
				   "\x01\x00\x00\x00",
				   "\x00\x10\x00\x00",
				   "\xff\xff\xff\xff\xff\xff\xff\xff",
				   "\x05\x00\x00\x00\x00\x00\x00\x00",
				   NULL };

static void check_header(const struct cache_header *h)
{
	ASSERT(is_power_of_two(h->block_bytes) && h->block_bytes >= CACHE_BLOCK_BYTES_MIN);
	ASSERT(h->block_bytes <= CACHE_BLOCK_BYTES_MAX && h->origin_bytes > 0);
	ASSERT(h->slot_nr >= CACHE_SLOTS_MIN && h->slot_nr <= CACHE_SLOTS_MAX);
	ASSERT(memchr(h->origin, 0, sizeof(h->origin)));
}

static void fuzz_header(const uint8_t *data, size_t bytes, bool is_mended)
{
	uint8_t at[CACHE_PAGE_BYTES] = { 0 };
	char words[CACHE_WORDS_BYTES];
	struct cache_header h;
	uint32_t sum;
	int ret;

	memcpy(at, data, MIN(bytes, sizeof(at)));
	if (is_mended) {
		memcpy(at, "ublkdcac", 8);
		memset(at + 12, 0, 4);
		sum = crc32c(0, at, sizeof(at));
		memcpy(at + 12, &sum, sizeof(sum));
	}
	memset(words, 'x', sizeof(words));
	ret = cache_header_parse(&h, at, words);
	if (ret == 0)
		check_header(&h);
	else
		ASSERT((ret == -EINVAL || ret == -ENODATA) && memchr(words, 0, sizeof(words)));
}

static void check_index(const struct cache_index *ix)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct cache_slot *slot = &ix->slot[i];
		const struct cache_entry entry = { .block = slot->block,
						   .valid = slot->valid,
						   .dirty = slot->dirty };

		if (!slot->is_used)
			continue;
		used++;
		ASSERT(entry.valid && cache_entry_check(&ix->header, &entry) == 0);
		ASSERT(cache_slot_find(ix, slot->block) == slot);
	}
	ASSERT(used == ix->used_nr && used + ix->unused_nr == SLOTS);
}

static void fuzz_page(const uint8_t *data, size_t bytes, uint32_t page_idx)
{
	const struct cache_header h = { .generation = 1,
					.instance = INSTANCE,
					.origin_bytes = MIB(20),
					.block_bytes = 65536,
					.slot_nr = SLOTS };
	uint8_t at[2][CACHE_PAGE_BYTES] = { 0 };
	struct cache_page page = { .seq = 2 };
	struct cache_index *ix;

	memcpy(page.entry, data, MIN(bytes, sizeof(page.entry)));
	cache_page_write(&page, at[0], INSTANCE, page_idx);
	memcpy(at[1], data, MIN(bytes, sizeof(at[1])));
	ASSERT(cache_index_new(&ix, &h) == 0);
	for (uint32_t i = 0; i < cache_page_nr(SLOTS); i++)
		cache_index_load(ix, i, at);
	check_index(ix);
	cache_index_free(ix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes == 0)
		return 0;
	if (data[0] < 2)
		fuzz_header(data + 1, bytes - 1, data[0] == 1);
	else
		fuzz_page(data + 1, bytes - 1, data[0] % 2);
	return 0;
}
