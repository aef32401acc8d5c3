/*
 * zoned over zones below: a drive of the test's own, which reports at once (or when the test lets
 * it) and keeps all else until the test ends it, whole, in part or with an error.
 */
#include <errno.h>
#include <linux/blkzoned.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "filters/zoned/zoned.h"
#include "storage/life.h"
#include "storage/registry.h"
#include "storage/spec.h"
#include "storage/zones.h"
#include "test/rig/config_check.h"

#define BELOW_DEPTH 8u
#define BELOW_ZONE KIB(64)
#define BELOW_CAPACITY KIB(48)
#define BELOW_ZONES 6u /* the first and the last one are conventional */
#define KEPT_MAX 16u

/* ---- the drive ---- */

static struct {
	uint64_t zone_bytes, size_bytes;
	struct blk_zone zone[BELOW_ZONES];
	struct backend_io *kept[KEPT_MAX];
	unsigned kept_nr, report_nr, most_of_a_zone;
	int report_with;
	bool keeps_reports;
} drive;

static void drive_make(void)
{
	const uint64_t len = BELOW_ZONE / 512;

	memset(&drive, 0, sizeof(drive));
	drive.zone_bytes = BELOW_ZONE;
	drive.size_bytes = BELOW_ZONES * BELOW_ZONE;
	for (unsigned i = 0; i < BELOW_ZONES; i++) {
		bool is_conventional = i == 0 || i == BELOW_ZONES - 1;

		drive.zone[i] = (struct blk_zone){
			.start = i * len,
			.len = len,
			.capacity = is_conventional ? len : BELOW_CAPACITY / 512,
			.wp = i * len,
			.type = is_conventional ? BLK_ZONE_TYPE_CONVENTIONAL
						: BLK_ZONE_TYPE_SEQWRITE_REQ,
			.cond = is_conventional ? BLK_ZONE_COND_NOT_WP : BLK_ZONE_COND_EMPTY,
		};
	}
}

static struct blk_zone *drive_zone(uint64_t offset_bytes)
{
	return &drive.zone[offset_bytes / BELOW_ZONE];
}

static void drive_set(unsigned idx, unsigned cond, uint64_t written_bytes)
{
	drive.zone[idx].cond = (uint8_t)cond;
	drive.zone[idx].wp = drive.zone[idx].start + written_bytes / 512;
}

static int drive_open(struct backend_device *device)
{
	device->limits = (struct backend_limits){
		.size_bytes = drive.size_bytes,
		.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_DISCARD | BACKEND_CAP_FUA,
		.zones = { .bytes = drive.zone_bytes, .open_nr_max = 2, .active_nr_max = 77 },
	};
	return 0;
}

static int drive_report(struct backend_io *io)
{
	drive.report_nr++;
	memset(io->buf, 0, io->length_bytes);
	for (unsigned i = 0; i < io->length_bytes / BACKEND_ZONE_REPORT_BYTES &&
			     io->offset_bytes / BELOW_ZONE + i < BELOW_ZONES;
	     i++)
		memcpy((char *)io->buf + i * sizeof(struct blk_zone),
		       drive_zone(io->offset_bytes) + i, sizeof(struct blk_zone));
	return drive.report_with;
}

static unsigned writes_of(const struct blk_zone *zone)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < drive.kept_nr; i++)
		nr += drive.kept[i]->op == BACKEND_WRITE &&
		      drive_zone(drive.kept[i]->offset_bytes) == zone;
	return nr;
}

static enum backend_submit drive_submit(struct backend_io *io)
{
	struct blk_zone *zone = drive_zone(io->offset_bytes);

	if (io->op == BACKEND_ZONE_MANAGE && io->zone == BACKEND_ZONE_REPORT &&
	    !drive.keeps_reports) {
		io->result = drive_report(io);
		return BACKEND_DONE;
	}
	assert_true(drive.kept_nr < KEPT_MAX);
	drive.kept[drive.kept_nr++] = io;
	if (io->op == BACKEND_WRITE && zone->type != BLK_ZONE_TYPE_CONVENTIONAL)
		drive.most_of_a_zone = MAX(drive.most_of_a_zone, writes_of(zone));
	return BACKEND_QUEUED;
}

static void drive_write(const struct backend_io *io, uint32_t bytes)
{
	struct blk_zone *zone = drive_zone(io->offset_bytes);

	if (zone->type == BLK_ZONE_TYPE_CONVENTIONAL)
		return;
	assert_int_equal(io->offset_bytes / 512, zone->wp);
	zone->wp += bytes / 512;
	if (bytes)
		zone->cond = zone->wp == zone->start + zone->capacity ? BLK_ZONE_COND_FULL
								      : BLK_ZONE_COND_IMP_OPEN;
}

/* The oldest of those that it keeps ends; of a write so many bytes are written. */
static void drive_end(int result, uint32_t bytes)
{
	struct backend_io *io = drive.kept[0];

	assert_true(drive.kept_nr > 0);
	memmove(drive.kept, drive.kept + 1, --drive.kept_nr * sizeof(*drive.kept));
	if (io->op == BACKEND_WRITE)
		drive_write(io, bytes);
	if (io->op == BACKEND_ZONE_MANAGE && io->zone == BACKEND_ZONE_RESET && result == 0)
		drive_set((unsigned)(io->offset_bytes / BELOW_ZONE), BLK_ZONE_COND_EMPTY, 0);
	backend_io_complete(io, result);
}

static void drive_write_ends(void)
{
	drive_end(0, drive.kept[0]->length_bytes);
}

static const struct backend drive_backend = {
	.name = "drive", .data = BACKEND_DATA_ANY, .open = drive_open, .submit = drive_submit
};

/* ---- the device ---- */

static struct {
	struct reactor reactor;
	struct zoned_config config;
	struct backend_spec drive_spec, spec;
	struct backend_device *device;
	struct backend_queue *queue;
	struct backend_io io[BELOW_DEPTH];
	bool is_done[BELOW_DEPTH];
	uint8_t *buf;
	int open_ret;
	char words[BACKEND_LIFE_WORDS_BYTES];
} below;

static void below_opened(void *arg, const struct backend_life_end *end)
{
	(void)arg;
	below.device = end->device;
	below.open_ret = end->ret;
	if (end->ret < 0)
		snprintf(below.words, sizeof(below.words), "%s", end->words);
}

static void below_done(struct backend_io *io)
{
	assert_false(below.is_done[io->tag]);
	below.is_done[io->tag] = true;
}

static int below_open(int stored_fd)
{
	int stored[BACKEND_STORED_MAX] = { stored_fd };
	const struct backend_open_params params = { .logical_block_bytes = 512,
						    .max_io_bytes = KIB(64),
						    .queue_nr = 1,
						    .depth = BELOW_DEPTH,
						    .stored_fds = stored };
	const struct backend_life_owner owner = { .done = below_opened };
	const struct backend_home home = { .reactor = &below.reactor };
	struct backend_life *life;

	below.drive_spec = (struct backend_spec){ .ops = &drive_backend, .as = backend_one_child };
	below.spec = (struct backend_spec){ .ops = &backend_zoned,
					    .config = &below.config,
					    .child = &below.drive_spec };
	below.open_ret = 1;
	assert_int_equal(backend_open_begin(&life, &home, &below.spec, "t", &params, &owner), 0);
	for (unsigned i = 0; below.open_ret > 0 && i < 1000; i++)
		reactor_turn(&below.reactor, false);
	if (below.open_ret < 0)
		return below.open_ret;
	assert_int_equal(
		backend_queue_open(&below.queue, below.device, &below.reactor, 0, BELOW_DEPTH), 0);
	for (unsigned tag = 0; tag < BELOW_DEPTH; tag++) {
		memset(&below.io[tag], 0, sizeof(below.io[tag]));
		assert_int_equal(backend_io_init(&below.io[tag], below.queue, tag, below_done), 0);
		list_init(&below.io[tag].waiting);
		below.is_done[tag] = true;
	}
	return 0;
}

static void below_close(void)
{
	for (unsigned tag = 0; tag < BELOW_DEPTH; tag++)
		backend_io_fini(&below.io[tag]);
	backend_queue_close(below.queue);
	backend_close(below.device);
	below.device = NULL;
}

static int below_setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	memset(&below, 0, sizeof(below));
	below.buf = aligned_alloc(4096, KIB(64));
	drive_make();
	return reactor_init(&below.reactor, &params);
}

static int below_teardown(void **state)
{
	(void)state;
	/* What a test that has failed left. */
	while (drive.kept_nr > 0) {
		backend_io_complete(drive.kept[--drive.kept_nr], -EIO);
		reactor_turn(&below.reactor, false);
	}
	if (below.device)
		below_close();
	reactor_fini(&below.reactor);
	free(below.buf);
	return 0;
}

static void ask(unsigned tag, enum backend_op op, enum backend_zone_action action,
		uint64_t offset_bytes, uint32_t length_bytes)
{
	struct backend_io *io = &below.io[tag];

	assert_true(below.is_done[tag]);
	below.is_done[tag] = false;
	io->op = (uint8_t)op;
	io->zone = (uint8_t)action;
	io->offset_bytes = offset_bytes;
	io->length_bytes = length_bytes;
	io->buf = below.buf;
	io->buf_index = -1;
	if (backend_io_submit(io) == BACKEND_DONE)
		below_done(io);
}

static uint64_t at(unsigned idx, uint64_t bytes)
{
	return idx * BELOW_ZONE + bytes;
}

static void write_at(unsigned tag, unsigned idx, uint64_t bytes, uint32_t length_bytes)
{
	ask(tag, BACKEND_WRITE, 0, at(idx, bytes), length_bytes);
}

static void append_to(unsigned tag, unsigned idx, uint32_t length_bytes)
{
	ask(tag, BACKEND_ZONE_APPEND, 0, at(idx, 0), length_bytes);
}

static void manage(unsigned tag, enum backend_zone_action action, unsigned idx)
{
	ask(tag, BACKEND_ZONE_MANAGE, action, at(idx, 0), 0);
}

static void is_answered(unsigned tag, int result)
{
	assert_true(below.is_done[tag]);
	assert_int_equal(below.io[tag].result, result);
}

static void appended(unsigned tag, unsigned idx, uint64_t bytes)
{
	is_answered(tag, 0);
	assert_int_equal(below.io[tag].offset_bytes, at(idx, bytes));
}

/* What the oldest one wants that the drive keeps. */
static void drive_has(enum backend_op op, uint64_t offset_bytes, uint32_t length_bytes)
{
	assert_true(drive.kept_nr > 0);
	assert_int_equal(drive.kept[0]->op, op);
	assert_int_equal(drive.kept[0]->offset_bytes, offset_bytes);
	assert_int_equal(drive.kept[0]->length_bytes, length_bytes);
}

/* What the drive has answered at once is told in a turn. */
static void turn(void)
{
	for (unsigned i = 0; i < 3; i++)
		reactor_turn(&below.reactor, false);
}

static void look_is(unsigned empty_nr, unsigned open_nr, unsigned closed_nr, unsigned full_nr)
{
	struct backend_zones_look look;

	assert_true(backend_zones_look(below.queue, &look));
	assert_int_equal(look.empty_nr, empty_nr);
	assert_int_equal(look.implicit_nr + look.explicit_nr, open_nr);
	assert_int_equal(look.closed_nr, closed_nr);
	assert_int_equal(look.full_nr, full_nr);
}

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

/* ---- the next process ---- */

/* What it would find of this one now. */
static int memory_now(void)
{
	int from = backend_stored_fd(below.device, 0), fd = memfd_create("memory", MFD_CLOEXEC);
	static uint8_t bytes[1 << 20];
	ssize_t n = pread(from, bytes, sizeof(bytes), 0);

	assert_true(n > 0);
	assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
	return fd;
}

/* A write under way is sent again; so many bytes of it are there. */
static void again(uint32_t there_bytes)
{
	int fd;

	below_open(0);
	write_at(0, 1, 0, 4096);
	drive_write_ends();
	write_at(1, 1, 4096, 4096);
	fd = memory_now();
	drive_end(-EIO, there_bytes);
	turn();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
	/* Nobody had this one under way. */
	write_at(2, 1, 512, 512);
	is_answered(2, -EIO);
	write_at(3, 1, 4096, 4096);
	if (there_bytes < 4096) {
		drive_has(BACKEND_WRITE, at(1, 4096 + there_bytes), 4096 - there_bytes);
		assert_ptr_equal(drive.kept[0]->buf, below.buf + there_bytes);
		drive_write_ends();
	}
	is_answered(3, 0);
	assert_int_equal(drive.kept_nr, 0);
	/* Once. */
	write_at(3, 1, 4096, 4096);
	is_answered(3, -EIO);
	/* Whose answer may have been on its way. */
	write_at(3, 1, 0, 4096);
	is_answered(3, 0);
	write_at(4, 1, 8192, 512);
	drive_write_ends();
	is_answered(4, 0);
}

static void test_again(void **state)
{
	static const uint32_t there_bytes[] = { 512, 4096 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(there_bytes); i++) {
		again(there_bytes[i]);
		below_close();
		drive_make();
	}
}

/* What had not begun below is a write as any other, once. */
static void test_again_from_the_start(void **state)
{
	int fd;

	(void)state;
	below_open(0);
	write_at(0, 1, 0, 4096);
	fd = memory_now();
	drive_end(-EIO, 0);
	turn();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
	write_at(0, 1, 0, 4096);
	drive_write_ends();
	is_answered(0, 0);
	write_at(0, 1, 0, 4096);
	is_answered(0, -EIO);
}

/* The drive has these bytes in the page that is read from it. */
static void page_is(uint64_t bytes, uint8_t value)
{
	drive_has(BACKEND_READ, at(1, bytes), 4096);
	memset(drive.kept[0]->buf, value, 4096);
	drive_end(0, 0);
}

/* A write that fills its zone was under way; what is there of it then, and how the zone is. */
static void last_write_again(uint32_t there_bytes, unsigned cond, uint8_t value, int result)
{
	int fd;

	drive_set(1, BLK_ZONE_COND_CLOSED, BELOW_CAPACITY - 4096);
	below_open(0);
	memset(below.buf, 0x11, 4096);
	write_at(0, 1, BELOW_CAPACITY - 4096, 4096);
	fd = memory_now();
	drive_end(-EIO, there_bytes);
	turn();
	below_close();
	drive.zone[1].cond = (uint8_t)cond;
	assert_int_equal(below_open(fd), 0);
	close(fd);
	write_at(0, 1, BELOW_CAPACITY - 4096, 4096);
	page_is(BELOW_CAPACITY - 4096, value);
	is_answered(0, result);
	assert_int_equal(drive.kept_nr, 0);
	/* Once. */
	if (result == 0) {
		write_at(0, 1, BELOW_CAPACITY - 4096, 4096);
		is_answered(0, -EIO);
	}
}

static void test_last_write_again(void **state)
{
	(void)state;
	last_write_again(4096, BLK_ZONE_COND_FULL, 0x11, 0);
}

static void test_write_to_what_is_read_only(void **state)
{
	(void)state;
	last_write_again(0, BLK_ZONE_COND_READONLY, 0, -EIO);
}

/* An append of two pages was under way, and is there as a whole. */
static void append_is_there(void)
{
	int fd;

	below_open(0);
	memset(below.buf, 0x11, 8192);
	append_to(0, 1, 8192);
	fd = memory_now();
	drive_write_ends();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
}

static void test_append_again(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	append_to(1, 1, 512);
	page_is(0, 0x11);
	page_is(4096, 0x11);
	appended(0, 1, 0);
	/* It waited for its turn. */
	drive_write_ends();
	appended(1, 1, 8192);
	/* Once. */
	append_to(0, 1, 8192);
	drive_write_ends();
	appended(0, 1, 8704);
}

/* Another one of the same length: it had not begun. The first one finds its place all the same. */
static void test_other_append(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	page_is(0, 0x11);
	page_is(4096, 0x12);
	drive_has(BACKEND_WRITE, at(1, 8192), 8192);
	drive_write_ends();
	appended(0, 1, 8192);
	append_to(0, 1, 8192);
	drive_end(-EIO, 0);
	drive_has(BACKEND_WRITE, at(1, 16384), 8192);
	drive_write_ends();
	appended(0, 1, 16384);
	append_to(0, 1, 8192);
	page_is(0, 0x11);
	page_is(4096, 0x11);
	appended(0, 1, 0);
	append_to(0, 1, 4096);
	drive_has(BACKEND_WRITE, at(1, 24576), 4096);
	drive_write_ends();
}

static void test_reset_while_compared(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	manage(1, BACKEND_ZONE_RESET, 1);
	assert_int_equal(drive.kept_nr, 1);
	page_is(0, 0);
	is_answered(0, -EIO);
	drive_has(BACKEND_ZONE_MANAGE, at(1, 0), 0);
	drive_end(0, 0);
	is_answered(1, 0);
	append_to(0, 1, 8192);
	drive_write_ends();
	appended(0, 1, 0);
}

/* Of one that is there in part nothing is kept. */
static void test_append_in_part(void **state)
{
	int fd;

	(void)state;
	below_open(0);
	append_to(0, 1, 4096);
	fd = memory_now();
	drive_end(-EIO, 512);
	turn();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
	append_to(0, 1, 4096);
	drive_write_ends();
	appended(0, 1, 512);
}

#define BELOW_TEST(name) cmocka_unit_test_setup_teardown(name, below_setup, below_teardown)

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
		BELOW_TEST(test_again),
		BELOW_TEST(test_again_from_the_start),
		BELOW_TEST(test_last_write_again),
		BELOW_TEST(test_write_to_what_is_read_only),
		BELOW_TEST(test_append_again),
		BELOW_TEST(test_other_append),
		BELOW_TEST(test_reset_while_compared),
		BELOW_TEST(test_append_in_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
