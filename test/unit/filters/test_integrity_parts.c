/* Which requests wait for which, and metadata as they are stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "filters/integrity/integrity_range.h"
#include "filters/integrity/integrity_tuple.h"

/* ---- ranges ---- */

static struct integrity_ranges ranges;
static struct integrity_range range[6];

static bool enter(unsigned idx, uint64_t start_bytes, uint64_t end_bytes, bool modifies)
{
	range[idx].start_bytes = start_bytes;
	range[idx].end_bytes = end_bytes;
	range[idx].modifies = modifies;
	return integrity_range_enter(&ranges, &range[idx]);
}

/* Which goes on when this one has ended; -1: none. */
static int leave(unsigned idx)
{
	struct integrity_range *next;

	integrity_range_leave(&ranges, &range[idx]);
	next = integrity_range_next(&ranges);
	return next ? (int)(next - range) : -1;
}

static void test_what_may_go_on(void **state)
{
	(void)state;
	integrity_ranges_init(&ranges);
	assert_true(enter(0, 0, 4096, false));
	assert_true(enter(2, 4096, 8192, true));
	assert_true(enter(1, 0, 4096, false));
	assert_true(enter(3, 8192, 12288, false));
	assert_false(enter(4, 4095, 4097, false)); /* a write is under way */
	assert_false(enter(5, 8191, 8193, true));  /* a read is, beside it */
	assert_int_equal(leave(0), -1);
	assert_int_equal(leave(2), 4);
	assert_int_equal(leave(1), -1);
	assert_int_equal(leave(3), 5);
	assert_int_equal(leave(4), -1);
	assert_int_equal(leave(5), -1);
	assert_true(ranges.modifier_nr == 0 && ranges.held_nr == 0);
}

/* Nobody overtakes one that waits: a stream of reads cannot hold up a write for ever. */
static void test_in_the_order_in_which_they_came(void **state)
{
	(void)state;
	integrity_ranges_init(&ranges);
	assert_true(enter(0, 0, 4096, false));
	assert_false(enter(1, 0, 8192, true));
	assert_false(enter(2, 0, 4096, false));
	assert_false(enter(3, 4096, 8192, false));
	assert_int_equal(leave(0), 1);
	assert_null(integrity_range_next(&ranges));
	assert_int_equal(leave(1), 2);
	assert_ptr_equal(integrity_range_next(&ranges), &range[3]);
	assert_int_equal(leave(2), -1);
	assert_int_equal(leave(3), -1);
}

/* One that waits and is cancelled lets others pass. */
static void test_held_one_leaves(void **state)
{
	(void)state;
	integrity_ranges_init(&ranges);
	assert_true(enter(0, 0, 4096, false));
	assert_false(enter(1, 0, 8192, true));
	assert_false(enter(2, 4096, 8192, false));
	assert_int_equal(leave(1), 2);
	assert_true(enter(3, 0, 8192, false));
	assert_int_equal(ranges.modifier_nr, 0);
	assert_int_equal(leave(0), -1);
}

/* ---- tuples ---- */

static void test_two_tuples_change_places(void **state)
{
	const struct backend_integrity_limits shape = { .metadata_bytes = 11,
							.tuple_at = 3,
							.checksum = BACKEND_CHECKSUM_CRC };
	uint8_t metadata[4][11] = { "abc", "", "x\xff\xff\xff\xff\xff\xff\xff\xff\xff",
				    "abcdefghijk" },
		before[4][11];

	(void)state;
	metadata[2][2] = metadata[2][10] = 0xff;
	memcpy(before, metadata, sizeof(before));
	integrity_tuples_swap(&shape, metadata, 4);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(metadata[0][3 + i], 0xff);
		assert_int_equal(metadata[1][3 + i], 0xff);
		assert_int_equal(metadata[2][3 + i], 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_memory_equal(metadata[i], before[i], 3);
	assert_memory_equal(metadata[3], before[3], 11);
	integrity_tuples_swap(&shape, metadata, 4);
	assert_memory_equal(metadata, before, sizeof(before));
}

static void test_tuple_of_nvme_is_longer(void **state)
{
	const struct backend_integrity_limits shape = { .metadata_bytes = 16,
							.checksum = BACKEND_CHECKSUM_NVME };
	uint8_t metadata[4][16] = { { 0 } }, before[4][16];

	(void)state;
	memset(metadata[1], 0xff, 8); /* one half alone */
	memset(metadata[2] + 8, 0xff, 8);
	memset(metadata[3], 0xff, 16);
	memcpy(before, metadata, sizeof(before));
	integrity_tuples_swap(&shape, metadata, 4);
	assert_memory_equal(metadata[0], before[3], 16);
	assert_memory_equal(metadata[1], before[1], 32);
	assert_memory_equal(metadata[3], before[0], 16);
}

static void test_no_tuple(void **state)
{
	const struct backend_integrity_limits shape = { .metadata_bytes = 8 };
	uint8_t metadata[8] = { 0 };

	(void)state;
	integrity_tuples_swap(&shape, metadata, 1);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(metadata[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_may_go_on),
		cmocka_unit_test(test_in_the_order_in_which_they_came),
		cmocka_unit_test(test_held_one_leaves),
		cmocka_unit_test(test_two_tuples_change_places),
		cmocka_unit_test(test_tuple_of_nvme_is_longer),
		cmocka_unit_test(test_no_tuple),
	};

	return cmocka_run_group_tests_name("integrity, parts", tests, NULL, NULL);
}
