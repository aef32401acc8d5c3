/*
 * zoned over zones below, for its tests: a drive of their own, which reports at once (or when the
 * test lets it) and keeps all else until the test ends or cancels it, whole, in part or with an
 * error; and the device over it. With drive_make_plain: zones of our own over a disk without any.
 */
#ifndef TEST_ZONE_DRIVE_H
#define TEST_ZONE_DRIVE_H

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
	uint8_t *plain; /* its bytes; it keeps only while `keeps` is set */
	bool keeps, ignores_cancel;
} drive;

static inline void drive_make(void)
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

/* Room for the table and BELOW_ZONES - 1 zones. */
static inline void drive_make_plain(void)
{
	drive.zone_bytes = 0;
	drive.plain = calloc(1, drive.size_bytes);
}

static inline void plain_move(const struct backend_io *io)
{
	if (io->op == BACKEND_READ)
		memcpy(io->buf, drive.plain + io->offset_bytes, io->length_bytes);
	else if (io->op == BACKEND_WRITE)
		memcpy(drive.plain + io->offset_bytes, io->buf, io->length_bytes);
}

static inline struct blk_zone *drive_zone(uint64_t offset_bytes)
{
	return &drive.zone[offset_bytes / BELOW_ZONE];
}

static inline void drive_set(unsigned idx, unsigned cond, uint64_t written_bytes)
{
	drive.zone[idx].cond = (uint8_t)cond;
	drive.zone[idx].wp = drive.zone[idx].start + written_bytes / 512;
}

static inline int drive_open(struct backend_device *device)
{
	device->limits = (struct backend_limits){
		.size_bytes = drive.size_bytes,
		.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_DISCARD | BACKEND_CAP_FUA,
		.zones = { .bytes = drive.zone_bytes, .open_nr_max = 2, .active_nr_max = 77 },
	};
	return 0;
}

static inline int drive_report(struct backend_io *io)
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

static inline unsigned writes_of(const struct blk_zone *zone)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < drive.kept_nr; i++)
		nr += drive.kept[i]->op == BACKEND_WRITE &&
		      drive_zone(drive.kept[i]->offset_bytes) == zone;
	return nr;
}

static inline enum backend_submit drive_submit(struct backend_io *io)
{
	struct blk_zone *zone = drive_zone(io->offset_bytes);

	if (io->op == BACKEND_ZONE_MANAGE && io->zone == BACKEND_ZONE_REPORT &&
	    !drive.keeps_reports) {
		io->result = drive_report(io);
		return BACKEND_DONE;
	}
	if (drive.plain && !drive.keeps) {
		plain_move(io);
		io->result = 0;
		return BACKEND_DONE;
	}
	assert_true(drive.kept_nr < KEPT_MAX);
	drive.kept[drive.kept_nr++] = io;
	if (io->op == BACKEND_WRITE && zone->type != BLK_ZONE_TYPE_CONVENTIONAL)
		drive.most_of_a_zone = MAX(drive.most_of_a_zone, writes_of(zone));
	return BACKEND_QUEUED;
}

static inline void drive_write(const struct backend_io *io, uint32_t bytes)
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
static inline void drive_end(int result, uint32_t bytes)
{
	struct backend_io *io = drive.kept[0];

	assert_true(drive.kept_nr > 0);
	memmove(drive.kept, drive.kept + 1, --drive.kept_nr * sizeof(*drive.kept));
	if (drive.plain && result == 0)
		plain_move(io);
	else if (!drive.plain && io->op == BACKEND_WRITE)
		drive_write(io, bytes);
	if (io->op == BACKEND_ZONE_MANAGE && io->zone == BACKEND_ZONE_RESET && result == 0)
		drive_set((unsigned)(io->offset_bytes / BELOW_ZONE), BLK_ZONE_COND_EMPTY, 0);
	backend_io_complete(io, result);
}

static inline void drive_write_ends(void)
{
	drive_end(0, drive.kept[0]->length_bytes);
}

static inline void drive_cancel(struct backend_io *io)
{
	unsigned i = 0;

	if (drive.ignores_cancel)
		return;
	while (drive.kept[i] != io)
		assert_true(++i < drive.kept_nr);
	drive.kept[i] = drive.kept[0];
	drive.kept[0] = io;
	drive_end(-ECANCELED, 0);
}

static const struct backend drive_backend = {
	.name = "drive",
	.data = BACKEND_DATA_ANY,
	.open = drive_open,
	.submit = drive_submit,
	.cancel = drive_cancel,
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

static inline void below_opened(void *arg, const struct backend_life_end *end)
{
	(void)arg;
	below.device = end->device;
	below.open_ret = end->ret;
	if (end->ret < 0)
		snprintf(below.words, sizeof(below.words), "%s", end->words);
}

static inline void below_done(struct backend_io *io)
{
	assert_false(below.is_done[io->tag]);
	below.is_done[io->tag] = true;
}

static inline int below_open(int stored_fd)
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

static inline void below_close(void)
{
	for (unsigned tag = 0; tag < BELOW_DEPTH; tag++)
		backend_io_fini(&below.io[tag]);
	backend_queue_close(below.queue);
	backend_close(below.device);
	below.device = NULL;
}

static inline int below_setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	memset(&below, 0, sizeof(below));
	below.buf = aligned_alloc(4096, KIB(64));
	drive_make();
	return reactor_init(&below.reactor, &params);
}

static inline int below_teardown(void **state)
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
	free(drive.plain);
	free(below.buf);
	return 0;
}

static inline void ask(unsigned tag, enum backend_op op, enum backend_zone_action action,
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

static inline void cancel(unsigned tag)
{
	assert_false(below.is_done[tag]);
	backend_io_cancel(&below.io[tag]);
}

static inline uint64_t at(unsigned idx, uint64_t bytes)
{
	return idx * BELOW_ZONE + bytes;
}

static inline void write_at(unsigned tag, unsigned idx, uint64_t bytes, uint32_t length_bytes)
{
	ask(tag, BACKEND_WRITE, 0, at(idx, bytes), length_bytes);
}

static inline void append_to(unsigned tag, unsigned idx, uint32_t length_bytes)
{
	ask(tag, BACKEND_ZONE_APPEND, 0, at(idx, 0), length_bytes);
}

static inline void manage(unsigned tag, enum backend_zone_action action, unsigned idx)
{
	ask(tag, BACKEND_ZONE_MANAGE, action, at(idx, 0), 0);
}

static inline void is_answered(unsigned tag, int result)
{
	assert_true(below.is_done[tag]);
	assert_int_equal(below.io[tag].result, result);
}

static inline void appended(unsigned tag, unsigned idx, uint64_t bytes)
{
	is_answered(tag, 0);
	assert_int_equal(below.io[tag].offset_bytes, at(idx, bytes));
}

/* What the oldest one wants that the drive keeps. */
static inline void drive_has(enum backend_op op, uint64_t offset_bytes, uint32_t length_bytes)
{
	assert_true(drive.kept_nr > 0);
	assert_int_equal(drive.kept[0]->op, op);
	assert_int_equal(drive.kept[0]->offset_bytes, offset_bytes);
	assert_int_equal(drive.kept[0]->length_bytes, length_bytes);
}

/* What the drive has answered at once is told in a turn. */
static inline void turn(void)
{
	for (unsigned i = 0; i < 3; i++)
		reactor_turn(&below.reactor, false);
}

static inline void look_is(unsigned empty_nr, unsigned open_nr, unsigned closed_nr,
			   unsigned full_nr)
{
	struct backend_zones_look look;

	assert_true(backend_zones_look(below.queue, &look));
	assert_int_equal(look.empty_nr, empty_nr);
	assert_int_equal(look.implicit_nr + look.explicit_nr, open_nr);
	assert_int_equal(look.closed_nr, closed_nr);
	assert_int_equal(look.full_nr, full_nr);
}

#define BELOW_TEST(name) cmocka_unit_test_setup_teardown(name, below_setup, below_teardown)

#endif
