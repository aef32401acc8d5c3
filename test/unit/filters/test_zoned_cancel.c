/*
 * zoned: what is cancelled ends soon, and nothing goes below for it any more, where nobody would
 * cancel it. Zones of our own over a disk that keeps its requests; at last over zones below.
 */
#include "test/unit/filters/zone_drive.h"

/* Where zones begin on the disk: behind the table. */
#define DATA_AT KIB(64)

static struct zoned_zones_config zones = { .zone_bytes = BELOW_ZONE };

static void open_plain(void)
{
	drive_make_plain();
	below.config.zones = &zones;
	assert_int_equal(below_open(0), 0);
	drive.keeps = true;
}

static void write_zone(unsigned idx, uint32_t length_bytes)
{
	append_to(0, idx, length_bytes);
	drive_end(0, 0);
	is_answered(0, 0);
}

static void flush(unsigned tag)
{
	ask(tag, BACKEND_FLUSH, 0, 0, 0);
}

/* The steps of a round until the table is durable, when something has changed. */
static void round_writes_table(void)
{
	drive_has(BACKEND_FLUSH, 0, 0);
	drive_end(0, 0);
	assert_int_equal(drive.kept[0]->op, BACKEND_WRITE);
	drive_end(0, 0);
	drive_has(BACKEND_FLUSH, 0, 0);
	drive_end(0, 0);
}

static void nothing_is_below(void)
{
	turn();
	assert_int_equal(drive.kept_nr, 0);
}

/* Before the write that it waits for, as a queue does that cancels one tag after the other. */
static void test_held(void **state)
{
	(void)state;
	open_plain();
	append_to(1, 1, 512);
	manage(0, BACKEND_ZONE_RESET_ALL, 0);
	assert_int_equal(drive.kept_nr, 1);
	cancel(0);
	is_answered(0, -EIO);
	cancel(1);
	is_answered(1, -EIO);
	nothing_is_below();
	/* No zone is held. */
	write_zone(1, 512);
	write_zone(2, 512);
}

static void test_next_round(void **state)
{
	(void)state;
	open_plain();
	write_zone(1, 512);
	flush(0);
	flush(1);
	cancel(1);
	is_answered(1, -EIO);
	assert_int_equal(drive.kept_nr, 1);
	round_writes_table();
	is_answered(0, 0);
	nothing_is_below();
}

/* What is written to the zone after that is not discarded by the next round. */
static void test_reset_in_next_round(void **state)
{
	(void)state;
	open_plain();
	write_zone(1, 1024);
	flush(0);
	manage(1, BACKEND_ZONE_RESET, 1);
	assert_int_equal(drive.kept_nr, 1);
	cancel(1);
	is_answered(1, -EIO);
	round_writes_table();
	is_answered(0, 0);
	nothing_is_below();
	write_zone(1, 512);
	flush(0);
	round_writes_table();
	is_answered(0, 0);
	nothing_is_below();
}

static void test_round(void **state)
{
	(void)state;
	open_plain();
	write_zone(1, 512);
	flush(0);
	cancel(0);
	is_answered(0, -EIO);
	nothing_is_below();
	flush(0);
	round_writes_table();
	is_answered(0, 0);
}

/* A step comes to its end by itself: no other one begins, and the next round does all of it. */
static void test_step_ends_well(void **state)
{
	(void)state;
	open_plain();
	drive.ignores_cancel = true;
	write_zone(1, 512);
	flush(0);
	cancel(0);
	drive_end(0, 0);
	is_answered(0, -EIO);
	nothing_is_below();
	flush(0);
	drive_end(0, 0);
	cancel(0);
	drive_end(0, 0);
	is_answered(0, -EIO);
	nothing_is_below();
	flush(0);
	round_writes_table();
	is_answered(0, 0);
}

/* The table is durable: it has been done, and space stays. */
static void test_trims(void **state)
{
	(void)state;
	open_plain();
	write_zone(1, 512);
	write_zone(2, 512);
	manage(0, BACKEND_ZONE_RESET_ALL, 0);
	round_writes_table();
	drive_has(BACKEND_DISCARD, DATA_AT + at(1, 0), BELOW_ZONE);
	cancel(0);
	is_answered(0, 0);
	nothing_is_below();
	write_zone(1, 512);
	manage(0, BACKEND_ZONE_RESET, 1);
	round_writes_table();
	drive_has(BACKEND_DISCARD, DATA_AT + at(1, 0), BELOW_ZONE);
	drive_end(0, 0);
	is_answered(0, 0);
	nothing_is_below();
}

static void test_zones_below(void **state)
{
	(void)state;
	assert_int_equal(below_open(0), 0);
	append_to(0, 1, 512);
	append_to(1, 1, 512);
	manage(2, BACKEND_ZONE_RESET, 1);
	cancel(1);
	is_answered(1, -EIO);
	cancel(2);
	is_answered(2, -EIO);
	drive_write_ends();
	appended(0, 1, 0);
	nothing_is_below();
	append_to(1, 1, 512);
	drive_write_ends();
	appended(1, 1, 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BELOW_TEST(test_held),
		BELOW_TEST(test_next_round),
		BELOW_TEST(test_reset_in_next_round),
		BELOW_TEST(test_round),
		BELOW_TEST(test_step_ends_well),
		BELOW_TEST(test_trims),
		BELOW_TEST(test_zones_below),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
