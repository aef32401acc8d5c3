/* The table of zones as bytes: there and back, and what is torn or of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "filters/zoned/zone_format.h"

static uint8_t places[2 * ZONE_PAGE_BYTES];
static uint64_t entry[ZONE_PAGE_ENTRIES], found[ZONE_PAGE_ENTRIES];

static void test_header(void **state)
{
	const struct zone_header h = { .instance = 7,
				       .zone_bytes = MIB(4),
				       .capacity_bytes = MIB(3),
				       .zone_nr = 600,
				       .conventional_nr = 2 };
	struct zone_header back;

	(void)state;
	memset(places, 0, sizeof(places));
	assert_int_equal(zone_header_parse(&back, places), -ENODATA);
	zone_header_write(&h, places);
	assert_int_equal(zone_header_parse(&back, places), 0);
	assert_memory_equal(&back, &h, sizeof(h));
	for (unsigned i = 8; i < ZONE_PAGE_BYTES; i += 5) {
		places[i] ^= 1;
		assert_int_equal(zone_header_parse(&back, places), -EINVAL);
		places[i] ^= 1;
	}
	assert_int_equal(zone_header_parse(&back, places), 0);
}

static int parse(uint32_t idx, uint64_t *seq)
{
	return zone_page_parse(places, 7, idx, seq, found);
}

static void test_pages(void **state)
{
	uint64_t seq = 0;

	(void)state;
	memset(places, 0, sizeof(places));
	assert_int_equal(parse(3, &seq), -ENODATA);
	entry[0] = 4096;
	entry[ZONE_PAGE_ENTRIES - 1] = ZONE_ENTRY_FULL;
	zone_page_write(places, 7, 3, 8, entry);
	assert_int_equal(parse(3, &seq), 0);
	assert_int_equal(seq, 8);
	assert_memory_equal(found, entry, sizeof(entry));
	assert_int_equal(parse(2, &seq), -ENODATA);
	assert_int_equal(zone_page_parse(places, 8, 3, &seq, found), -ENODATA);
	/* The newer of two. */
	entry[0] = 8192;
	zone_page_write(places + ZONE_PAGE_BYTES, 7, 3, 9, entry);
	assert_int_equal(parse(3, &seq), 0);
	assert_int_equal(seq, 9);
	assert_int_equal(found[0], 8192);
	/* Torn: the older one. */
	places[ZONE_PAGE_BYTES + 512] ^= 1;
	assert_int_equal(parse(3, &seq), 0);
	assert_int_equal(seq, 8);
	assert_int_equal(found[0], 4096);
}

static void test_places(void **state)
{
	(void)state;
	assert_int_equal(zone_page_nr(1), 1);
	assert_int_equal(zone_page_nr(ZONE_PAGE_ENTRIES), 1);
	assert_int_equal(zone_page_nr(ZONE_PAGE_ENTRIES + 1), 2);
	assert_int_equal(zone_page_at(0, 0), ZONE_PAGE_BYTES);
	assert_int_equal(zone_page_at(1, 1), 4 * ZONE_PAGE_BYTES);
	assert_int_equal(zone_data_at(1), ZONE_DATA_ALIGN);
	assert_true(zone_data_at(ZONE_NR_MAX) >=
		    zone_page_at(zone_page_nr(ZONE_NR_MAX) - 1, 1) + ZONE_PAGE_BYTES);
	assert_int_equal(zone_format_fit(MIB(1), MIB(1)), 0);
	assert_int_equal(zone_format_fit(MIB(1) + ZONE_DATA_ALIGN, MIB(1)), 1);
	assert_int_equal(zone_format_fit(MIB(65), MIB(4)), 16);
	assert_int_equal(zone_format_fit(0, MIB(4)), 0);
	assert_int_equal(zone_format_fit(UINT64_MAX / 2, KIB(64)), ZONE_NR_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
