/* Zones as a state machine: pointers, conditions, limits, writes that come again after a death. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/blkzoned.h>
#include <string.h>

#include "base/util.h"
#include "filters/zoned/zone_table.h"

#define NR 8u
#define DEPTH 4u
#define ZONE MIB(1)
#define CAP KIB(768)
#define BLOCK 4096u

static struct zone_kept zone[NR];
static struct zone_write writes[DEPTH], old[DEPTH * ZONE_OLD_FACTOR];
static struct zone_table t;
static unsigned changed_nr;

static void changed(struct zone_table *table, uint32_t idx)
{
	assert_ptr_equal(table, &t);
	assert_true(idx >= 1 && idx < NR);
	changed_nr++;
}

static void begin(uint32_t open_nr_max, uint32_t active_nr_max, bool is_again)
{
	const struct zone_shape shape = { .zone_bytes = ZONE,
					  .capacity_bytes = CAP,
					  .zone_nr = NR,
					  .conventional_nr = 1,
					  .open_nr_max = open_nr_max,
					  .active_nr_max = active_nr_max,
					  .depth = DEPTH };

	zone_table_fini(&t);
	assert_int_equal(zone_table_init(&t, &shape, zone, writes, old, is_again, changed), 0);
}

static int blank(void **state)
{
	(void)state;
	memset(zone, 0, sizeof(zone));
	memset(writes, 0, sizeof(writes));
	memset(old, 0, sizeof(old));
	changed_nr = 0;
	begin(0, 0, false);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	zone_table_fini(&t);
	return 0;
}

static uint64_t at(uint32_t idx, uint64_t bytes)
{
	return idx * ZONE + bytes;
}

/* A write of one tag after the other that succeeds. */
static int put(uint32_t idx, uint64_t bytes, uint32_t length)
{
	int ret = zone_table_write(&t, 0, at(idx, bytes), length);

	if (ret == 0)
		assert_int_equal(zone_table_write_done(&t, 0, true), idx);
	return ret;
}

static void expect(uint32_t idx, enum zone_condition condition, uint64_t written)
{
	assert_int_equal(zone[idx].condition, condition);
	assert_int_equal(zone[idx].written_bytes, written);
}

static void test_in_order(void **state)
{
	(void)state;
	assert_int_equal(put(1, BLOCK, BLOCK), -EIO);
	expect(1, ZONE_EMPTY, 0);
	assert_int_equal(changed_nr, 0);
	assert_int_equal(put(1, 0, BLOCK), 0);
	expect(1, ZONE_IMPLICIT, BLOCK);
	assert_int_equal(put(1, 0, BLOCK), -EIO);
	assert_int_equal(put(1, BLOCK, 2 * BLOCK), 0);
	expect(1, ZONE_IMPLICIT, 3 * BLOCK);
	assert_int_equal(t.refused, 2);
	assert_true(changed_nr > 0);
	assert_int_equal(zone_table_readable(&t, at(1, 0)), 3 * BLOCK);
	assert_int_equal(zone_table_readable(&t, at(1, 2 * BLOCK)), BLOCK);
	assert_int_equal(zone_table_readable(&t, at(1, 5 * BLOCK)), 0);
}

static void test_capacity(void **state)
{
	(void)state;
	assert_int_equal(put(2, 0, CAP - BLOCK), 0);
	assert_int_equal(put(2, CAP - BLOCK, 2 * BLOCK), -EIO);
	expect(2, ZONE_IMPLICIT, CAP - BLOCK);
	assert_int_equal(put(2, CAP - BLOCK, BLOCK), 0);
	expect(2, ZONE_FULL, CAP);
	assert_int_equal(put(2, CAP, BLOCK), -EIO);
	assert_int_equal(t.nr[ZONE_FULL], 1);
	assert_int_equal(t.nr[ZONE_IMPLICIT], 0);
	assert_int_equal(t.nr[ZONE_EMPTY], NR - 2);
}

static void test_append(void **state)
{
	uint64_t a = at(3, 0), b = at(3, 0), c = at(3, BLOCK), conventional = 0;

	(void)state;
	assert_int_equal(zone_table_append(&t, 0, &a, BLOCK), 0);
	assert_int_equal(zone_table_append(&t, 1, &b, 2 * BLOCK), 0);
	assert_int_equal(a, at(3, 0));
	assert_int_equal(b, at(3, BLOCK));
	assert_int_equal(zone_table_append(&t, 2, &c, BLOCK), -EIO);
	assert_int_equal(zone_table_append(&t, 2, &conventional, BLOCK), -EIO);
	zone_table_write_done(&t, 1, true);
	zone_table_write_done(&t, 0, true);
	expect(3, ZONE_IMPLICIT, 3 * BLOCK);
}

static void test_open_limit(void **state)
{
	(void)state;
	begin(2, 4, false);
	assert_int_equal(put(1, 0, BLOCK), 0);
	assert_int_equal(put(2, 0, BLOCK), 0);
	/* The one that was opened first makes room. */
	assert_int_equal(put(3, 0, BLOCK), 0);
	expect(1, ZONE_CLOSED, BLOCK);
	expect(2, ZONE_IMPLICIT, BLOCK);
	assert_int_equal(zone_table_open(&t, 2), 0);
	assert_int_equal(zone_table_open(&t, 1), 0);
	expect(3, ZONE_CLOSED, BLOCK);
	/* Commands have opened all. */
	assert_int_equal(put(3, BLOCK, BLOCK), -ETOOMANYREFS);
	assert_int_equal(zone_table_open(&t, 3), -ETOOMANYREFS);
	assert_int_equal(zone_table_close(&t, 2), 0);
	assert_int_equal(put(3, BLOCK, BLOCK), 0);
	expect(2, ZONE_CLOSED, BLOCK);
	expect(3, ZONE_IMPLICIT, 2 * BLOCK);
}

static void test_active_limit(void **state)
{
	(void)state;
	begin(2, 3, false);
	for (uint32_t i = 1; i < 4; i++)
		assert_int_equal(put(i, 0, BLOCK), 0);
	assert_int_equal(put(4, 0, BLOCK), -EOVERFLOW);
	expect(4, ZONE_EMPTY, 0);
	expect(2, ZONE_IMPLICIT, BLOCK);
	assert_int_equal(zone_table_open(&t, 4), -EOVERFLOW);
	assert_int_equal(put(1, BLOCK, BLOCK), 0);
	assert_int_equal(zone_table_finish(&t, 1), 0);
	assert_int_equal(put(4, 0, BLOCK), 0);
	assert_int_equal(put(5, 0, BLOCK), -EOVERFLOW);
	assert_int_equal(zone_table_reset(&t, 2), 0);
	assert_int_equal(put(5, 0, BLOCK), 0);
}

static void test_commands(void **state)
{
	(void)state;
	assert_int_equal(zone_table_open(&t, 1), 0);
	expect(1, ZONE_EXPLICIT, 0);
	assert_int_equal(put(1, 0, BLOCK), 0);
	expect(1, ZONE_EXPLICIT, BLOCK);
	assert_int_equal(zone_table_close(&t, 1), 0);
	expect(1, ZONE_CLOSED, BLOCK);
	assert_int_equal(zone_table_close(&t, 1), 0);
	assert_int_equal(zone_table_open(&t, 2), 0);
	assert_int_equal(zone_table_close(&t, 2), 0);
	expect(2, ZONE_EMPTY, 0);
	assert_int_equal(zone_table_close(&t, 2), -EIO);
	assert_int_equal(zone_table_finish(&t, 1), 0);
	expect(1, ZONE_FULL, BLOCK);
	assert_int_equal(zone_table_readable(&t, at(1, BLOCK)), 0);
	assert_int_equal(zone_table_open(&t, 1), -EIO);
	assert_int_equal(put(1, BLOCK, BLOCK), -EIO);
	assert_int_equal(zone_table_finish(&t, 1), 0);
	assert_int_equal(zone_table_reset(&t, 1), 0);
	expect(1, ZONE_EMPTY, 0);
	for (unsigned i = 0; i < 4; i++) {
		int (*const action[])(struct zone_table *,
				      uint32_t) = { zone_table_open, zone_table_close,
						    zone_table_finish, zone_table_reset };

		assert_int_equal(action[i](&t, 0), -EIO);
	}
	assert_int_equal(t.nr[ZONE_EMPTY], NR - 1);
}

static void test_held(void **state)
{
	uint64_t a = at(1, 0);

	(void)state;
	t.now[1].is_held = true;
	assert_int_equal(put(1, 0, BLOCK), -EIO);
	assert_int_equal(zone_table_append(&t, 0, &a, BLOCK), -EIO);
	assert_int_equal(put(2, 0, BLOCK), 0);
}

/* What fails gives its place back when it is the last. */
static void test_failed(void **state)
{
	(void)state;
	assert_int_equal(zone_table_write(&t, 0, at(1, 0), BLOCK), 0);
	assert_int_equal(zone_table_write(&t, 1, at(1, BLOCK), BLOCK), 0);
	zone_table_write_done(&t, 0, false);
	expect(1, ZONE_IMPLICIT, 2 * BLOCK);
	zone_table_write_done(&t, 1, false);
	expect(1, ZONE_IMPLICIT, BLOCK);
	assert_int_equal(put(1, BLOCK, BLOCK), 0);
}

static void test_failed_when_full(void **state)
{
	(void)state;
	begin(1, 1, false);
	assert_int_equal(put(1, 0, CAP - BLOCK), 0);
	assert_int_equal(zone_table_write(&t, 0, at(1, CAP - BLOCK), BLOCK), 0);
	expect(1, ZONE_FULL, CAP);
	zone_table_write_done(&t, 0, false);
	expect(1, ZONE_CLOSED, CAP - BLOCK);
	/* Another zone has taken what it gave up. */
	assert_int_equal(zone_table_write(&t, 0, at(1, CAP - BLOCK), BLOCK), 0);
	assert_int_equal(zone_table_write(&t, 1, at(2, 0), BLOCK), 0);
	zone_table_write_done(&t, 0, false);
	expect(1, ZONE_FULL, CAP);
}

/* Closed for another while its only write is under way. */
static void test_failed_when_closed(void **state)
{
	(void)state;
	begin(1, 0, false);
	assert_int_equal(zone_table_write(&t, 1, at(1, 0), BLOCK), 0);
	assert_int_equal(put(2, 0, BLOCK), 0);
	expect(1, ZONE_CLOSED, BLOCK);
	zone_table_write_done(&t, 1, false);
	expect(1, ZONE_EMPTY, 0);
}

/* A death: what was not answered comes again, in any order. */
static void test_again_write(void **state)
{
	(void)state;
	assert_int_equal(zone_table_write(&t, 1, at(1, 0), BLOCK), 0);
	assert_int_equal(zone_table_write(&t, 2, at(1, BLOCK), 2 * BLOCK), 0);
	zone_table_write_done(&t, 1, true);
	begin(0, 0, true);
	expect(1, ZONE_IMPLICIT, 3 * BLOCK);
	/* By another tag, and only as it was. */
	assert_int_equal(zone_table_write(&t, 3, at(1, BLOCK), BLOCK), -EIO);
	assert_int_equal(zone_table_write(&t, 3, at(1, BLOCK), 2 * BLOCK), 0);
	zone_table_write_done(&t, 3, true);
	/* Its answer may not have come through. */
	assert_int_equal(zone_table_write(&t, 3, at(1, 0), BLOCK), 0);
	zone_table_write_done(&t, 3, true);
	assert_int_equal(t.redone, 2);
	assert_int_equal(zone_table_write(&t, 3, at(1, 0), BLOCK), -EIO);
	expect(1, ZONE_IMPLICIT, 3 * BLOCK);
	assert_int_equal(put(1, 3 * BLOCK, BLOCK), 0);
}

static void test_again_append(void **state)
{
	uint64_t a = at(2, 0), b = at(2, 0), c = at(2, 0);

	(void)state;
	assert_int_equal(zone_table_append(&t, 0, &a, BLOCK), 0);
	assert_int_equal(zone_table_append(&t, 1, &b, BLOCK), 0);
	zone_table_write_done(&t, 0, true);
	begin(0, 0, true);
	/* The place of the one that was answered below is never given away again. */
	assert_int_equal(zone_table_append(&t, 2, &c, BLOCK), 0);
	assert_int_equal(c, at(2, BLOCK));
	c = at(2, 0);
	assert_int_equal(zone_table_append(&t, 3, &c, BLOCK), 0);
	assert_int_equal(c, at(2, 2 * BLOCK));
}

/* Killed before the pointer moved. */
static void test_again_before_pointer(void **state)
{
	uint64_t a = at(2, 0);

	(void)state;
	writes[0] = (struct zone_write){ .offset_bytes = at(2, 0),
					 .length_bytes = BLOCK,
					 .state = ZONE_WRITE_UNDER_WAY,
					 .is_append = true };
	begin(0, 0, true);
	assert_int_equal(zone_table_append(&t, 1, &a, BLOCK), 0);
	assert_int_equal(a, at(2, 0));
	assert_int_equal(zone[2].written_bytes, BLOCK);
	zone_table_write_done(&t, 1, true);
}

/* A second death before it has come again. */
static void test_again_twice(void **state)
{
	(void)state;
	assert_int_equal(zone_table_write(&t, 1, at(1, 0), BLOCK), 0);
	begin(0, 0, true);
	assert_int_equal(put(3, 0, BLOCK), 0);
	begin(0, 0, true);
	assert_int_equal(zone_table_write(&t, 2, at(1, 0), BLOCK), 0);
	zone_table_write_done(&t, 2, true);
}

/* After a reset nothing of before is let through. */
static void test_again_reset(void **state)
{
	(void)state;
	assert_int_equal(put(1, 0, BLOCK), 0);
	assert_int_equal(zone_table_write(&t, 1, at(1, BLOCK), BLOCK), 0);
	begin(0, 0, true);
	assert_int_equal(zone_table_reset(&t, 1), 0);
	assert_int_equal(zone_table_write(&t, 2, at(1, BLOCK), BLOCK), -EIO);
	assert_int_equal(put(1, 0, 3 * BLOCK), 0);
	assert_int_equal(zone_table_write(&t, 2, at(1, BLOCK), BLOCK), -EIO);
}

/* What a kill between two stores leaves. */
static void test_settled(void **state)
{
	(void)state;
	zone[1] = (struct zone_kept){ .written_bytes = BLOCK, .condition = ZONE_EMPTY };
	zone[2] = (struct zone_kept){ .written_bytes = 0, .condition = ZONE_CLOSED };
	zone[3] = (struct zone_kept){ .written_bytes = CAP, .condition = ZONE_IMPLICIT };
	zone[4] = (struct zone_kept){ .written_bytes = CAP + BLOCK, .condition = ZONE_CLOSED };
	zone[5] = (struct zone_kept){ .written_bytes = BLOCK, .condition = ZONE_IMPLICIT };
	zone[6] = (struct zone_kept){ .written_bytes = BLOCK, .condition = ZONE_EXPLICIT };
	zone[7] = (struct zone_kept){ .written_bytes = 0, .condition = 77 };
	begin(1, 0, true);
	expect(1, ZONE_CLOSED, BLOCK);
	expect(2, ZONE_EMPTY, 0);
	expect(3, ZONE_FULL, CAP);
	expect(4, ZONE_FULL, 0);
	expect(5, ZONE_IMPLICIT, BLOCK);
	expect(6, ZONE_CLOSED, BLOCK);
	expect(7, ZONE_FULL, 0);
	assert_int_equal(t.nr[ZONE_FULL], 3);
}

static void test_report(void **state)
{
	struct blk_zone z;

	(void)state;
	zone_table_report(&t, 0, &z);
	assert_int_equal(z.type, BLK_ZONE_TYPE_CONVENTIONAL);
	assert_int_equal(z.cond, BLK_ZONE_COND_NOT_WP);
	assert_int_equal(z.capacity, ZONE >> 9);
	assert_int_equal(put(2, 0, BLOCK), 0);
	zone_table_report(&t, 2, &z);
	assert_int_equal(z.start, 2 * ZONE >> 9);
	assert_int_equal(z.len, ZONE >> 9);
	assert_int_equal(z.capacity, CAP >> 9);
	assert_int_equal(z.wp, z.start + (BLOCK >> 9));
	assert_int_equal(z.cond, BLK_ZONE_COND_IMP_OPEN);
	assert_int_equal(z.type, BLK_ZONE_TYPE_SEQWRITE_REQ);
	zone_table_finish(&t, 2);
	zone_table_report(&t, 2, &z);
	assert_int_equal(z.cond, BLK_ZONE_COND_FULL);
	assert_int_equal(z.wp, z.start + z.len);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, blank, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_in_order),
		CASE(test_capacity),
		CASE(test_append),
		CASE(test_open_limit),
		CASE(test_active_limit),
		CASE(test_commands),
		CASE(test_held),
		CASE(test_failed),
		CASE(test_failed_when_full),
		CASE(test_failed_when_closed),
		CASE(test_again_write),
		CASE(test_again_append),
		CASE(test_again_before_pointer),
		CASE(test_again_twice),
		CASE(test_again_reset),
		CASE(test_settled),
		CASE(test_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
