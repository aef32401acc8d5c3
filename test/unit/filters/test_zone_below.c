/* zone_below: what a drive's report means, and which drives can be served. */
#include <errno.h>
#include <linux/blkzoned.h>
#include <string.h>

#include "filters/zoned/zone_below.h"
#include "test/rig/config_check.h"

#define ZONE_SECTORS 256u /* 128 KiB, of which 96 can be written */
#define CAPACITY_SECTORS 192u

static const struct zone_shape shape = { .zone_bytes = 512 * ZONE_SECTORS,
					 .capacity_bytes = 512 * CAPACITY_SECTORS,
					 .zone_nr = 4 };

static struct blk_zone zone_of_report(uint32_t idx, unsigned cond, uint64_t written_sectors)
{
	uint64_t start = idx * ZONE_SECTORS;

	return (struct blk_zone){ .start = start,
				  .len = ZONE_SECTORS,
				  .capacity = CAPACITY_SECTORS,
				  .wp = start + written_sectors,
				  .type = BLK_ZONE_TYPE_SEQWRITE_REQ,
				  .cond = (uint8_t)cond };
}

static void parses(unsigned cond, uint64_t wp_sectors, enum zone_condition condition,
		   uint64_t written_sectors)
{
	struct blk_zone zone = zone_of_report(2, cond, wp_sectors);
	struct zone_kept kept;

	memset(&kept, 0xee, sizeof(kept));
	assert_int_equal(zone_below_parse(&shape, 2, &zone, &kept), 0);
	assert_int_equal(kept.condition, condition);
	assert_int_equal(kept.written_bytes, 512 * written_sectors);
	assert_int_equal(kept.is_conventional, 0);
}

static void test_conditions(void **state)
{
	(void)state;
	parses(BLK_ZONE_COND_EMPTY, 0, ZONE_EMPTY, 0);
	parses(BLK_ZONE_COND_IMP_OPEN, 8, ZONE_IMPLICIT, 8);
	parses(BLK_ZONE_COND_EXP_OPEN, 0, ZONE_EXPLICIT, 0);
	parses(BLK_ZONE_COND_CLOSED, CAPACITY_SECTORS - 1, ZONE_CLOSED, CAPACITY_SECTORS - 1);
	/* Where the write pointer of these is nobody may ask. */
	parses(BLK_ZONE_COND_FULL, ZONE_SECTORS, ZONE_FULL, CAPACITY_SECTORS);
	parses(BLK_ZONE_COND_FULL, 12345, ZONE_FULL, CAPACITY_SECTORS);
	parses(BLK_ZONE_COND_READONLY, 12345, ZONE_FULL, CAPACITY_SECTORS);
	parses(BLK_ZONE_COND_OFFLINE, 12345, ZONE_FULL, CAPACITY_SECTORS);
	parses(7, 12345, ZONE_FULL, CAPACITY_SECTORS);
}

static void test_conventional(void **state)
{
	struct blk_zone zone = zone_of_report(1, BLK_ZONE_COND_NOT_WP, 99999);
	struct zone_kept kept;

	(void)state;
	zone.type = BLK_ZONE_TYPE_CONVENTIONAL;
	assert_int_equal(zone_below_parse(&shape, 1, &zone, &kept), 0);
	assert_int_equal(kept.is_conventional, 1);
}

static void makes_no_sense(const struct blk_zone *zone)
{
	struct zone_kept kept = { .written_bytes = 77 };

	assert_int_equal(zone_below_parse(&shape, 2, zone, &kept), -EIO);
	assert_int_equal(kept.written_bytes, 77);
}

static void test_no_sense(void **state)
{
	struct blk_zone zone = zone_of_report(1, BLK_ZONE_COND_EMPTY, 0);

	(void)state;
	makes_no_sense(&zone);
	zone = zone_of_report(2, BLK_ZONE_COND_EMPTY, 0);
	zone.len--;
	makes_no_sense(&zone);
	zone = zone_of_report(2, BLK_ZONE_COND_IMP_OPEN, CAPACITY_SECTORS + 1);
	makes_no_sense(&zone);
	zone = zone_of_report(2, BLK_ZONE_COND_IMP_OPEN, 0);
	zone.wp--;
	makes_no_sense(&zone);
	/* So far away that it would wrap. */
	zone.wp = zone.start + (1ull << 55);
	makes_no_sense(&zone);
	memset(&zone, 0, sizeof(zone));
	makes_no_sense(&zone);
}

static void test_first_look(void **state)
{
	struct zone_shape found_shape = { .zone_bytes = shape.zone_bytes, .zone_nr = 4 };
	struct zone_below_found found = { 0 };
	struct blk_zone zone[4] = {
		zone_of_report(0, BLK_ZONE_COND_NOT_WP, 0),
		zone_of_report(1, BLK_ZONE_COND_OFFLINE, 0),
		zone_of_report(2, BLK_ZONE_COND_EMPTY, 0),
		zone_of_report(3, BLK_ZONE_COND_NOT_WP, 0),
	};
	struct zone_kept kept[4];

	(void)state;
	zone[0].type = zone[3].type = BLK_ZONE_TYPE_CONVENTIONAL;
	zone[0].capacity = zone[3].capacity = ZONE_SECTORS;
	zone[1].capacity = 0;
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(zone_below_first_look(&found, &found_shape, i, &zone[i], &kept[i]),
				 0);
	assert_int_equal(found_shape.capacity_bytes, shape.capacity_bytes);
	assert_int_equal(found.conventional_nr, 2);
	assert_int_equal(kept[3].is_conventional, 1);
	assert_null(found.words);
}

static void is_refused(const struct blk_zone *zone, const char *words)
{
	struct zone_below_found found = { 0 };
	struct zone_shape found_shape = shape;
	struct zone_kept kept;

	assert_int_equal(zone_below_first_look(&found, &found_shape, 2, zone, &kept), -EINVAL);
	assert_non_null(strstr(found.words, words));
}

static void test_refused(void **state)
{
	struct blk_zone zone = zone_of_report(2, BLK_ZONE_COND_EMPTY, 0);

	(void)state;
	zone.capacity--;
	is_refused(&zone, "several capacities");
	zone.capacity = CAPACITY_SECTORS + (1ull << 55);
	is_refused(&zone, "several capacities");
	zone = zone_of_report(2, BLK_ZONE_COND_EMPTY, 0);
	zone.type = BLK_ZONE_TYPE_SEQWRITE_PREF;
	is_refused(&zone, "neither conventional");
	zone = zone_of_report(3, BLK_ZONE_COND_EMPTY, 0);
	is_refused(&zone, "makes no sense");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conditions), cmocka_unit_test(test_conventional),
		cmocka_unit_test(test_no_sense),   cmocka_unit_test(test_first_look),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
