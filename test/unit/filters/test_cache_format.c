/* The store of a cache as bytes: what is written is read, what is torn or made up is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "filters/cache/cache_format.h"

#define INSTANCE 0x1234567890abcdefull

static const struct cache_header header = { .generation = 7,
					    .instance = INSTANCE,
					    .origin_bytes = MIB(10),
					    .block_bytes = 65536,
					    .slot_nr = 200,
					    .origin = "nbd somewhere",
					    .found = "ETag \"v1\"",
					    .ours = "0123." };

static void test_sum(void **state)
{
	(void)state;
	/* The check value of CRC-32C, as in RFC 3720, B.4. */
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
}

static void test_header(void **state)
{
	uint8_t at[CACHE_PAGE_BYTES];
	char words[CACHE_WORDS_BYTES];
	struct cache_header h;

	(void)state;
	cache_header_write(&header, at);
	assert_int_equal(cache_header_parse(&h, at, words), 0);
	assert_memory_equal(&h, &header, sizeof(h));
	for (unsigned i = 0; i < sizeof(at); i++) {
		at[i] ^= 0x20;
		assert_true(cache_header_parse(&h, at, words) < 0);
		at[i] ^= 0x20;
	}
	memset(at, 0, sizeof(at));
	assert_int_equal(cache_header_parse(&h, at, words), -ENODATA);
}

static int parse_changed(void (*change)(struct cache_header *h))
{
	uint8_t at[CACHE_PAGE_BYTES];
	char words[CACHE_WORDS_BYTES] = "";
	struct cache_header h = header;
	int ret;

	change(&h);
	cache_header_write(&h, at);
	ret = cache_header_parse(&h, at, words);
	assert_true(ret == 0 || words[0]);
	return ret;
}

static void no_block(struct cache_header *h)
{
	h->block_bytes = 0;
}

static void odd_block(struct cache_header *h)
{
	h->block_bytes = 65537;
}

static void large_block(struct cache_header *h)
{
	h->block_bytes = 2 * CACHE_BLOCK_BYTES_MAX;
}

static void few_slots(struct cache_header *h)
{
	h->slot_nr = CACHE_SLOTS_MIN - 1;
}

static void many_slots(struct cache_header *h)
{
	h->slot_nr = CACHE_SLOTS_MAX + 1;
}

static void no_origin(struct cache_header *h)
{
	h->origin_bytes = 0;
}

static void no_end(struct cache_header *h)
{
	memset(h->origin, 'x', sizeof(h->origin));
}

static void no_end_of_found(struct cache_header *h)
{
	memset(h->found, 'x', sizeof(h->found));
}

static void no_end_of_ours(struct cache_header *h)
{
	memset(h->ours, 'x', sizeof(h->ours));
}

static void test_header_lies(void **state)
{
	(void)state;
	assert_int_equal(parse_changed(no_block), -EINVAL);
	assert_int_equal(parse_changed(odd_block), -EINVAL);
	assert_int_equal(parse_changed(large_block), -EINVAL);
	assert_int_equal(parse_changed(few_slots), -EINVAL);
	assert_int_equal(parse_changed(many_slots), -EINVAL);
	assert_int_equal(parse_changed(no_origin), -EINVAL);
	assert_int_equal(parse_changed(no_end), -EINVAL);
	assert_int_equal(parse_changed(no_end_of_found), -EINVAL);
	assert_int_equal(parse_changed(no_end_of_ours), -EINVAL);
}

/* As another version of the format. */
static int parse_version(uint8_t version, struct cache_header *h, char *words)
{
	uint8_t at[CACHE_PAGE_BYTES];
	struct cache_header old = header;
	uint32_t sum;

	if (version == 1)
		old.found[0] = old.ours[0] = '\0';
	cache_header_write(&old, at);
	at[8] = version;
	memset(at + 12, 0, sizeof(sum));
	sum = htole32(crc32c(0, at, sizeof(at)));
	memcpy(at + 12, &sum, sizeof(sum));
	return cache_header_parse(h, at, words);
}

/* The first has no version of the origin; a later one may say what is not known here. */
static void test_header_versions(void **state)
{
	char words[CACHE_WORDS_BYTES];
	struct cache_header h;

	(void)state;
	assert_int_equal(parse_version(1, &h, words), 0);
	assert_string_equal(h.origin, header.origin);
	assert_int_equal(h.instance, INSTANCE);
	assert_string_equal(h.found, "");
	assert_string_equal(h.ours, "");
	assert_int_equal(parse_version(2, &h, words), 0);
	assert_string_equal(h.found, header.found);
	assert_int_equal(parse_version(0, &h, words), -EINVAL);
	assert_int_equal(parse_version(3, &h, words), -EINVAL);
	assert_string_equal(words, "its version is 3, known is 2");
}

static void fill_page(struct cache_page *page, uint64_t seq)
{
	page->seq = seq;
	for (unsigned i = 0; i < CACHE_PAGE_ENTRIES; i++)
		page->entry[i] = (struct cache_entry){ .block = seq * 1000 + i,
						       .valid = seq + i,
						       .dirty = i };
}

static void test_page(void **state)
{
	struct cache_page page, read;
	uint8_t at[CACHE_PAGE_BYTES];

	(void)state;
	fill_page(&page, 3);
	cache_page_write(&page, at, INSTANCE, 9);
	assert_int_equal(cache_page_parse(&read, at, INSTANCE, 9), CACHE_PAGE_GOOD);
	assert_memory_equal(&read, &page, sizeof(page));
	assert_int_equal(cache_page_parse(&read, at, INSTANCE, 8), CACHE_PAGE_OTHER);
	assert_int_equal(cache_page_parse(&read, at, INSTANCE + 1, 9), CACHE_PAGE_OTHER);
	for (unsigned i = 0; i < sizeof(at); i++) {
		at[i] ^= 1;
		assert_true(cache_page_parse(&read, at, INSTANCE, 9) != CACHE_PAGE_GOOD);
		at[i] ^= 1;
	}
}

/* Sectors of two writes in any mixture. */
static void test_page_torn(void **state)
{
	struct cache_page page, read;
	uint8_t old[CACHE_PAGE_BYTES], new[CACHE_PAGE_BYTES], at[CACHE_PAGE_BYTES];

	(void)state;
	fill_page(&page, 3);
	cache_page_write(&page, old, INSTANCE, 0);
	fill_page(&page, 5);
	cache_page_write(&page, new, INSTANCE, 0);
	for (unsigned mix = 1; mix < 255; mix++) {
		for (unsigned i = 0; i < 8; i++)
			memcpy(at + i * 512, (mix >> i & 1 ? new : old) + i * 512, 512);
		assert_int_equal(cache_page_parse(&read, at, INSTANCE, 0), CACHE_PAGE_TORN);
	}
}

/* The newer good one, in its place. */
static void test_page_choose(void **state)
{
	static uint8_t at[2 * CACHE_PAGE_BYTES];
	struct cache_page page, read;

	(void)state;
	assert_false(cache_page_choose(&read, at, INSTANCE, 9));
	fill_page(&page, 4);
	cache_page_write(&page, at, INSTANCE, 9);
	assert_true(cache_page_choose(&read, at, INSTANCE, 9));
	assert_memory_equal(&read, &page, sizeof(page));
	fill_page(&page, 5);
	cache_page_write(&page, at + CACHE_PAGE_BYTES, INSTANCE, 9);
	assert_true(cache_page_choose(&read, at, INSTANCE, 9));
	assert_int_equal(read.seq, 5);
	at[CACHE_PAGE_BYTES + 100] ^= 1;
	assert_true(cache_page_choose(&read, at, INSTANCE, 9));
	assert_int_equal(read.seq, 4);
	/* An odd one in the place of the even ones. */
	fill_page(&page, 7);
	cache_page_write(&page, at, INSTANCE, 9);
	assert_false(cache_page_choose(&read, at, INSTANCE, 9));
}

static void test_entries(void **state)
{
	const struct cache_entry good = { .block = 159, .valid = 0xffff, .dirty = 0x0ff0 };
	struct cache_entry e = good;

	(void)state;
	assert_int_equal(cache_entry_check(&header, &e), 0);
	e.block = 160; /* the origin has 160 blocks */
	assert_int_equal(cache_entry_check(&header, &e), -EINVAL);
	e = good;
	e.valid = 0x1ffff; /* a block has 16 units */
	assert_int_equal(cache_entry_check(&header, &e), -EINVAL);
	e = good;
	e.dirty = 1ull << 63;
	assert_int_equal(cache_entry_check(&header, &e), -EINVAL);
	e = (struct cache_entry){ .dirty = 1 };
	assert_int_equal(cache_entry_check(&header, &e), -EINVAL);
}

static void test_slots(void **state)
{
	static const uint32_t blocks[] = { 4096, 65536, 262144 };
	static const uint64_t stores[] = { MIB(3), MIB(3) + 512, GIB(20), TIB(8) };

	(void)state;
	for (unsigned b = 0; b < ARRAY_SIZE(blocks); b++)
		for (unsigned s = 0; s < ARRAY_SIZE(stores); s++) {
			uint32_t nr = cache_slots_for(stores[s], blocks[b]);
			uint64_t end = cache_slots_at(nr, blocks[b]) + (uint64_t)nr * blocks[b];

			assert_true(nr >= CACHE_SLOTS_MIN && nr <= CACHE_SLOTS_MAX);
			assert_true(end <= stores[s]);
			/* No more than a fiftieth of it is the index, but of the smallest blocks.
			 */
			assert_true(nr == CACHE_SLOTS_MAX ||
				    end >= stores[s] - stores[s] / 50 - 2 * blocks[b]);
			assert_true(cache_page_at(cache_page_nr(nr) - 1, 1) + CACHE_PAGE_BYTES <=
				    cache_slots_at(nr, blocks[b]));
		}
	assert_true(cache_slots_for(0, 65536) < CACHE_SLOTS_MIN);
	assert_true(cache_slots_for(KIB(100), 65536) < CACHE_SLOTS_MIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sum),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_header_lies),
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_header_versions),
		cmocka_unit_test(test_page_choose),
		cmocka_unit_test(test_page_torn),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_slots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
