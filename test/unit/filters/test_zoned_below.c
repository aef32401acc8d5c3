/* zoned over zones below: opening, writes, actions, reads, failures below. */
#include "test/unit/filters/zone_drive.h"

/* ---- opening ---- */

static void test_opened(void **state)
{
	struct backend_zones_look look;

	(void)state;
	drive_set(1, BLK_ZONE_COND_IMP_OPEN, 4096);
	drive_set(2, BLK_ZONE_COND_FULL, 0);
	drive_set(3, BLK_ZONE_COND_CLOSED, 512);
	assert_int_equal(below_open(0), 0);
	assert_int_equal(below.device->limits.zones.bytes, BELOW_ZONE);
	assert_int_equal(below.device->limits.zones.open_nr_max, 2);
	/* More than there are. */
	assert_int_equal(below.device->limits.zones.active_nr_max, 0);
	assert_int_equal(below.device->limits.size_bytes, BELOW_ZONES * BELOW_ZONE);
	assert_int_equal(below.device->limits.caps, BACKEND_CAP_FLUSH);
	assert_true(backend_zones_look(below.queue, &look));
	assert_int_equal(look.capacity_bytes, BELOW_CAPACITY);
	assert_int_equal(look.conventional_nr, 2);
	look_is(1, 1, 1, 1);
	write_at(0, 1, 4096, 512);
	drive_has(BACKEND_WRITE, at(1, 4096), 512);
	drive_write_ends();
	is_answered(0, 0);
	write_at(0, 2, 0, 512);
	is_answered(0, -EIO);
	/* In any order. */
	write_at(0, 5, 8192, 512);
	write_at(1, 5, 0, 512);
	assert_int_equal(drive.kept_nr, 2);
	drive_write_ends();
	drive_write_ends();
	is_answered(1, 0);
}

static void is_not_opened(const char *words)
{
	assert_true(below_open(0) < 0);
	if (!strstr(below.words, words))
		fail_msg("%s", below.words);
}

static void test_not_opened(void **state)
{
	struct zoned_zones_config zones = { .zone_bytes = BELOW_ZONE };

	(void)state;
	below.config.zones = &zones;
	is_not_opened("leave out zones");
	below.config.zones = NULL;
	drive.zone_bytes = 0;
	is_not_opened("say what they are to be like");
	drive.zone_bytes = KIB(96);
	is_not_opened("a power of two");
	drive.zone_bytes = 1ull << 32;
	is_not_opened("a power of two");
	drive.zone_bytes = KIB(64);
	drive.size_bytes = KIB(32);
	is_not_opened("0 zones below");
	drive.size_bytes = BELOW_ZONES * BELOW_ZONE;
	drive.report_with = -ENXIO;
	is_not_opened("does not say how its zones are");
	drive.report_with = 0;
	drive.zone[4].wp = 0;
	drive.zone[4].cond = BLK_ZONE_COND_CLOSED;
	is_not_opened("makes no sense");
}

/* Linux takes no such device. */
static void test_conventional_alone_below(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BELOW_ZONES; i++) {
		drive.zone[i].type = BLK_ZONE_TYPE_CONVENTIONAL;
		drive.zone[i].cond = BLK_ZONE_COND_NOT_WP;
		drive.zone[i].capacity = drive.zone[i].len;
	}
	is_not_opened("all zones of the backend are conventional");
}

static void test_conventional_alone(void **state)
{
	static const uint8_t none[ZONE_PAGE_BYTES];
	struct zoned_zones_config zones = { .zone_bytes = BELOW_ZONE, .conventional_nr = 1000 };
	struct zone_header header = { .instance = 1,
				      .zone_bytes = BELOW_ZONE,
				      .capacity_bytes = BELOW_ZONE,
				      .zone_nr = BELOW_ZONES - 1,
				      .conventional_nr = BELOW_ZONES - 1 };
	struct backend_zones_look look;

	(void)state;
	drive_make_plain();
	below.config.zones = &zones;
	is_not_opened("conventional to at most 4,");
	zones.conventional_nr = BELOW_ZONES - 1;
	is_not_opened("conventional to at most 4,");
	/* No table is left that another number would not fit. */
	assert_memory_equal(drive.plain, none, sizeof(none));
	zone_header_write(&header, drive.plain);
	is_not_opened("conventional zones alone");
	memset(drive.plain, 0, sizeof(none));
	zones.conventional_nr = BELOW_ZONES - 2;
	assert_int_equal(below_open(0), 0);
	assert_true(backend_zones_look(below.queue, &look));
	assert_int_equal(look.conventional_nr, BELOW_ZONES - 2);
	assert_int_equal(look.zone_nr, BELOW_ZONES - 1);
}

/* ---- writes ---- */

static void test_one_at_a_time(void **state)
{
	(void)state;
	below_open(0);
	append_to(0, 1, 1024);
	append_to(1, 1, 512);
	append_to(2, 2, 512);
	write_at(3, 1, 1536, 512);
	append_to(4, 1, 2048);
	/* One of each zone. */
	assert_int_equal(drive.kept_nr, 2);
	drive_write_ends();
	appended(0, 1, 0);
	drive_write_ends();
	appended(2, 2, 0);
	drive_write_ends();
	appended(1, 1, 1024);
	drive_has(BACKEND_WRITE, at(1, 1536), 512);
	drive_write_ends();
	is_answered(3, 0);
	drive_write_ends();
	appended(4, 1, 2048);
	assert_int_equal(drive.kept_nr, 0);
	assert_int_equal(drive.most_of_a_zone, 1);
	assert_int_equal(drive.report_nr, 1);
}

static void test_out_of_order(void **state)
{
	(void)state;
	below_open(0);
	write_at(0, 1, 512, 512);
	is_answered(0, -EIO);
	write_at(0, 1, 0, 512);
	drive_write_ends();
	write_at(0, 1, 0, 512);
	is_answered(0, -EIO);
	write_at(0, 1, 512, BELOW_CAPACITY);
	is_answered(0, -EIO);
	assert_int_equal(drive.kept_nr, 0);
}

/* Half of it is written: what waits goes on behind that. */
static void test_failed_in_part(void **state)
{
	(void)state;
	below_open(0);
	append_to(0, 1, 4096);
	append_to(1, 1, 512);
	write_at(2, 1, 4096, 512);
	drive_end(-EIO, 2048);
	is_answered(0, -EIO);
	/* Not before the drive has said how far it came. */
	assert_int_equal(drive.kept_nr, 0);
	turn();
	drive_has(BACKEND_WRITE, at(1, 2048), 512);
	drive_write_ends();
	appended(1, 1, 2048);
	is_answered(2, -EIO);
	assert_int_equal(drive.report_nr, 2);
	write_at(3, 1, 2560, 512);
	drive_write_ends();
	is_answered(3, 0);
}

static void test_errors_of_limits(void **state)
{
	(void)state;
	below_open(0);
	write_at(0, 1, 0, 512);
	drive_end(-ETOOMANYREFS, 0);
	is_answered(0, -ETOOMANYREFS);
	turn();
	look_is(4, 0, 0, 0);
	/* Three are written: which of them is closed for the third is the drive's to say. */
	for (unsigned idx = 1; idx <= 3; idx++) {
		write_at(0, idx, 0, 512);
		drive_write_ends();
		is_answered(0, 0);
	}
	look_is(1, 2, 1, 0);
	for (unsigned idx = 1; idx <= 3; idx++) {
		manage(0, BACKEND_ZONE_OPEN, idx);
		drive_end(0, 0);
		is_answered(0, 0);
	}
	write_at(0, 4, 0, 512);
	drive_write_ends();
	is_answered(0, 0);
}

/* Nobody says how far it is written: those that wait fail, and the next one has it asked again. */
static void test_no_answer(void **state)
{
	(void)state;
	below_open(0);
	write_at(0, 1, 0, 512);
	append_to(1, 1, 512);
	drive.report_with = -ENXIO;
	drive_end(-EIO, 0);
	turn();
	assert_true(below.is_done[1] && below.io[1].result < 0);
	assert_int_equal(drive.report_nr, 2);
	drive.report_with = 0;
	append_to(1, 1, 512);
	assert_false(below.is_done[1]);
	turn();
	drive_write_ends();
	appended(1, 1, 0);
}

/* The queue may not be closed as long as the drive is asked for what no request waits for. */
static void test_rests(void **state)
{
	(void)state;
	below_open(0);
	assert_true(backend_queue_rest(below.queue));
	write_at(0, 1, 0, 512);
	drive.keeps_reports = true;
	drive_end(-EIO, 0);
	is_answered(0, -EIO);
	assert_false(backend_queue_rest(below.queue));
	drive_report(drive.kept[0]);
	drive_end(0, 0);
	assert_true(backend_queue_rest(below.queue));
}

/* ---- actions ---- */

static void test_reset_waits(void **state)
{
	(void)state;
	below_open(0);
	append_to(0, 1, 512);
	append_to(1, 1, 512);
	manage(2, BACKEND_ZONE_RESET, 1);
	drive_has(BACKEND_WRITE, at(1, 0), 512);
	assert_int_equal(drive.kept_nr, 1);
	drive_write_ends();
	/* What has waited behind it is too late. */
	is_answered(1, -EIO);
	drive_has(BACKEND_ZONE_MANAGE, at(1, 0), 0);
	assert_int_equal(drive.kept[0]->zone, BACKEND_ZONE_RESET);
	append_to(1, 1, 512);
	is_answered(1, -EIO);
	look_is(3, 1, 0, 0);
	drive_end(0, 0);
	is_answered(2, 0);
	look_is(4, 0, 0, 0);
	append_to(1, 1, 512);
	drive_write_ends();
	appended(1, 1, 0);
}

static void test_reset_fails(void **state)
{
	(void)state;
	below_open(0);
	append_to(0, 1, 512);
	drive_write_ends();
	manage(0, BACKEND_ZONE_RESET, 1);
	drive_end(-EIO, 0);
	is_answered(0, -EIO);
	turn();
	assert_int_equal(drive.report_nr, 2);
	append_to(0, 1, 512);
	drive_write_ends();
	appended(0, 1, 512);
	manage(0, BACKEND_ZONE_RESET, 0);
	is_answered(0, -EIO);
	assert_int_equal(drive.kept_nr, 0);
}

/* The second of those that the drive keeps is the next to end. */
static void drive_swaps(void)
{
	struct backend_io *first = drive.kept[0];

	assert_true(drive.kept_nr >= 2);
	drive.kept[0] = drive.kept[1];
	drive.kept[1] = first;
}

/* A zone that was reset while it was asked for: the answer is from before. */
static void test_asked_and_reset(void **state)
{
	(void)state;
	below_open(0);
	append_to(0, 1, 512);
	drive.keeps_reports = true;
	drive_end(-EIO, 512);
	manage(0, BACKEND_ZONE_RESET, 1);
	append_to(1, 1, 1024);
	assert_int_equal(drive.kept_nr, 2);
	drive_report(drive.kept[0]);
	drive_swaps();
	drive_end(0, 0);
	is_answered(0, 0);
	assert_int_equal(drive.kept_nr, 1);
	drive_end(0, 0);
	drive_write_ends();
	appended(1, 1, 0);
}

static void test_report(void **state)
{
	const struct blk_zone *zone = (const struct blk_zone *)below.buf;

	(void)state;
	below_open(0);
	/* Somebody else has written there, and the device hears of it. */
	drive_set(1, BLK_ZONE_COND_CLOSED, 4096);
	ask(0, BACKEND_ZONE_MANAGE, BACKEND_ZONE_REPORT, at(1, 0), 2 * sizeof(*zone));
	is_answered(0, 0);
	assert_int_equal(zone[0].wp, drive.zone[1].wp);
	assert_int_equal(zone[1].start, drive.zone[2].start);
	look_is(3, 0, 1, 0);
	/* One that comes late says how a zone was. */
	drive.keeps_reports = true;
	ask(0, BACKEND_ZONE_MANAGE, BACKEND_ZONE_REPORT, at(1, 0), 2 * sizeof(*zone));
	drive_report(drive.kept[0]);
	append_to(1, 1, 512);
	drive_swaps();
	drive_write_ends();
	appended(1, 1, 4096);
	drive_end(0, 0);
	is_answered(0, 0);
	append_to(1, 1, 512);
	drive_write_ends();
	appended(1, 1, 4608);
}

/* ---- reads, flush ---- */

static void test_reads(void **state)
{
	(void)state;
	below_open(0);
	append_to(0, 1, 1024);
	drive_write_ends();
	memset(below.buf, 0x55, 4096);
	ask(0, BACKEND_READ, 0, at(1, 512), 2048);
	drive_has(BACKEND_READ, at(1, 512), 512);
	drive_end(0, 0);
	is_answered(0, 0);
	assert_int_equal(below.buf[511], 0x55);
	assert_int_equal(below.buf[512], 0);
	assert_int_equal(below.buf[2047], 0);
	assert_int_equal(below.buf[2048], 0x55);
	ask(0, BACKEND_READ, 0, at(1, BELOW_CAPACITY), 512);
	is_answered(0, 0);
	ask(0, BACKEND_FLUSH, 0, 0, 0);
	drive_has(BACKEND_FLUSH, 0, 0);
	drive_end(0, 0);
	is_answered(0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BELOW_TEST(test_opened),
		BELOW_TEST(test_not_opened),
		BELOW_TEST(test_one_at_a_time),
		BELOW_TEST(test_out_of_order),
		BELOW_TEST(test_failed_in_part),
		BELOW_TEST(test_errors_of_limits),
		BELOW_TEST(test_no_answer),
		BELOW_TEST(test_rests),
		BELOW_TEST(test_reset_waits),
		BELOW_TEST(test_reset_fails),
		BELOW_TEST(test_asked_and_reset),
		BELOW_TEST(test_report),
		BELOW_TEST(test_reads),
		BELOW_TEST(test_conventional_alone_below),
		BELOW_TEST(test_conventional_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
