/*
 * A queue of a zoned device, command by command, against a driver that the test plays: how requests
 * of zones reach the backend, and what their COMMITs say. Prints TAP.
 */
#include <errno.h>
#include <linux/blkzoned.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "test/conformance/ring_script.h"
#include "storage/backend.h"
#include "storage/zones.h"
#include "test/conformance/tap.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue_internal.h"

#define ZSTEPS_DEPTH 2u
#define ZSTEPS_IO_BYTES 8192u
#define ZSTEPS_ZONE_BYTES MIB(1)

/* ---- a backend with zones ---- */

static struct backend_io seen; /* the last request, as it came */
static uint8_t seen_bytes[ZSTEPS_IO_BYTES];
static unsigned seen_nr;
static int answer_with;

static int zsteps_open(struct backend_device *device)
{
	device->limits = (struct backend_limits){
		.size_bytes = 8 * ZSTEPS_ZONE_BYTES,
		.caps = BACKEND_CAP_FLUSH,
		.zones = { .bytes = ZSTEPS_ZONE_BYTES, .append_bytes = ZSTEPS_IO_BYTES },
	};
	return 0;
}

static enum backend_submit zsteps_submit(struct backend_io *io)
{
	const struct blk_zone zone = { .start = io->offset_bytes >> 9, .len = 77 };

	seen = *io;
	seen_nr++;
	io->result = answer_with;
	if (io->op == BACKEND_ZONE_APPEND) {
		backend_data_get(io, 0, seen_bytes, io->length_bytes);
		io->offset_bytes += 5 * 512;
	} else if (io->op == BACKEND_ZONE_MANAGE && io->zone == BACKEND_ZONE_REPORT) {
		backend_data_put(io, 0, &zone, sizeof(zone));
	} else if (io->op == BACKEND_READ) {
		memset(io->buf, 0x5a, io->length_bytes);
	}
	return BACKEND_DONE;
}

static const struct backend zsteps_backend = {
	.name = "zsteps", .is_zoned = true, .open = zsteps_open, .submit = zsteps_submit
};

/* ---- the driver ---- */

static struct ublksrv_io_desc zsteps_descs[ZSTEPS_DEPTH];
static uint64_t armed[ZSTEPS_DEPTH]; /* user_data of each tag's command */
static struct ublksrv_io_cmd committed;
static unsigned zsteps_commit_nr;
static int refuse_commit; /* of COMMITs to come; 0: none */
static int pages = -1;	  /* of requests: what is /dev/ublkcN */

static int zsteps_on_sqe(const struct io_uring_sqe *sqe)
{
	const struct ublksrv_io_cmd *cmd = (const void *)((const char *)sqe + 48);

	ring_script.log_nr = 0;
	if (sqe->cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ) {
		committed = *cmd;
		zsteps_commit_nr++;
		if (refuse_commit)
			return refuse_commit;
	}
	armed[cmd->tag] = sqe->user_data;
	return SCRIPT_LATER;
}

/* ---- the rig ---- */

static struct reactor zsteps_reactor;
static struct queue zsteps_queue;
static struct backend_device *zsteps_device;
static struct io_errors *zsteps_errors;
static bool is_attached, is_drained, is_released;

static void zsteps_attached(struct queue *q, int err)
{
	(void)q;
	EXPECT(err == 0, "%d", err);
	is_attached = true;
}

static void zsteps_drained(struct queue *q)
{
	(void)q;
	is_drained = true;
}

static void zsteps_released(struct queue *q)
{
	(void)q;
	is_released = true;
}

static void zsteps_turns(unsigned nr)
{
	while (nr-- > 0) {
		ring_script.mail = true;
		reactor_turn(&zsteps_reactor, false);
	}
}

static off_t pages_at(void)
{
	return (off_t)ublk_user_copy_pos(0, 1);
}

static void zsteps_begin(bool is_zoned)
{
	static const struct backend_spec spec = { .ops = &zsteps_backend };
	static const struct backend_open_params open_params = { .logical_block_bytes = 512,
								.max_io_bytes = ZSTEPS_IO_BYTES };
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct queue_setup setup = {
		.reactor = &zsteps_reactor,
		.home = &zsteps_reactor,
		.device_name = "t",
		.descs = zsteps_descs,
		.depth = ZSTEPS_DEPTH,
		.max_io_bytes = ZSTEPS_IO_BYTES,
		.data = { .path = DATA_PATH_USER_COPY, .zoned = is_zoned },
		.attached = zsteps_attached,
		.drained = zsteps_drained,
		.released = zsteps_released,
	};
	char error[BACKEND_ERROR_BYTES];

	ring_script = (struct ring_script){ .answer = zsteps_on_sqe, .now_ns = NS_PER_SEC };
	is_attached = is_drained = is_released = false;
	answer_with = refuse_commit = 0;
	seen_nr = zsteps_commit_nr = 0;
	pages = setup.cdev_fd = memfd_create("pages", MFD_CLOEXEC);
	if (pages < 0 || ftruncate(pages, pages_at() + ZSTEPS_IO_BYTES) < 0 ||
	    reactor_init(&zsteps_reactor, &params) < 0 ||
	    backend_open(&zsteps_device, &spec, "t", &open_params, error, sizeof(error)) < 0)
		abort();
	zsteps_errors = io_errors_create(backend_node_nr(zsteps_device));
	if (!zsteps_errors)
		abort();
	setup.backend = zsteps_device;
	setup.errors = zsteps_errors;
	queue_attach(&zsteps_queue, &setup);
	zsteps_turns(4);
	EXPECT(is_attached, "the queue is not attached");
}

static void zsteps_end(void)
{
	for (unsigned tag = 0; tag < ZSTEPS_DEPTH; tag++)
		ring_script_post(armed[tag], UBLK_IO_RES_ABORT, 0);
	zsteps_turns(4);
	EXPECT(is_drained, "the queue is not drained");
	queue_release(&zsteps_queue);
	zsteps_turns(4);
	EXPECT(is_released, "the queue is not released");
	backend_close(zsteps_device);
	free(zsteps_errors);
	reactor_fini(&zsteps_reactor);
	close(pages);
}

/* A request comes on tag 1 and is handed back. */
static void request(uint32_t op, uint64_t sector, uint32_t nr)
{
	unsigned before = zsteps_commit_nr;

	zsteps_descs[1] = (struct ublksrv_io_desc){ .op_flags = op,
						    .start_sector = sector,
						    .nr_sectors = nr };
	ring_script_post(armed[1], UBLK_IO_RES_OK, 0);
	zsteps_turns(3);
	EXPECT(zsteps_commit_nr == before + 1 && committed.tag == 1, "%u is not handed back", op);
}

static void test_actions(void)
{
	static const struct {
		uint32_t ublk_op;
		enum backend_zone_action action;
	} cases[] = {
		{ UBLK_IO_OP_ZONE_RESET, BACKEND_ZONE_RESET },
		{ UBLK_IO_OP_ZONE_RESET_ALL, BACKEND_ZONE_RESET_ALL },
		{ UBLK_IO_OP_ZONE_OPEN, BACKEND_ZONE_OPEN },
		{ UBLK_IO_OP_ZONE_CLOSE, BACKEND_ZONE_CLOSE },
		{ UBLK_IO_OP_ZONE_FINISH, BACKEND_ZONE_FINISH },
	};

	if (!tap_begin("actions on zones reach the backend"))
		return;
	zsteps_begin(true);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		request(cases[i].ublk_op, 4096, 0);
		EXPECT(seen_nr == i + 1 && seen.op == BACKEND_ZONE_MANAGE &&
			       seen.zone == cases[i].action && seen.offset_bytes == MIB(2) &&
			       seen.length_bytes == 0,
		       "case %u: op %u action %u", i, seen.op, seen.zone);
		EXPECT(committed.result == 0 && committed.addr == 0, "case %u: %d", i,
		       committed.result);
	}
	answer_with = -ETOOMANYREFS;
	request(UBLK_IO_OP_ZONE_OPEN, 4096, 0);
	EXPECT(committed.result == -ETOOMANYREFS, "%d", committed.result);
	zsteps_end();
	tap_end();
}

static void test_append(void)
{
	uint8_t bytes[4096];

	if (!tap_begin("append: its bytes come, and its answer says where they are"))
		return;
	zsteps_begin(true);
	memset(bytes, 0x42, sizeof(bytes));
	EXPECT(pwrite(pages, bytes, sizeof(bytes), pages_at()) == sizeof(bytes), "pwrite");
	request(UBLK_IO_OP_ZONE_APPEND, 2048, 8);
	EXPECT(seen.op == BACKEND_ZONE_APPEND && seen.offset_bytes == MIB(1) &&
		       seen.length_bytes == 4096 && memcmp(seen_bytes, bytes, 4096) == 0,
	       "op %u of %u bytes", seen.op, seen.length_bytes);
	EXPECT(committed.result == 0 && committed.addr == 2048 + 5, "it is at %llu",
	       (unsigned long long)committed.addr);
	/* The driver refuses an address of any other request. */
	request(UBLK_IO_OP_READ, 0, 8);
	EXPECT(committed.result == 4096 && committed.addr == 0, "%d at %llu", committed.result,
	       (unsigned long long)committed.addr);
	answer_with = -EIO;
	request(UBLK_IO_OP_ZONE_APPEND, 2048, 8);
	EXPECT(committed.result == -EIO && committed.addr == 0, "%d", committed.result);
	seen_nr = 0;
	request(UBLK_IO_OP_ZONE_APPEND, 2048, ZSTEPS_IO_BYTES / 512 + 1);
	EXPECT(seen_nr == 0 && committed.result == -EIO, "one that is too long: %d",
	       committed.result);
	zsteps_end();
	tap_end();
}

/* As blk_rq_pos() has it: sector -1. */
static void test_flush(void)
{
	if (!tap_begin("a FLUSH has no place"))
		return;
	zsteps_begin(true);
	request(UBLK_IO_OP_FLUSH, UINT64_MAX, 0);
	EXPECT(seen.op == BACKEND_FLUSH && seen.offset_bytes == 0 && seen.length_bytes == 0,
	       "op %u at %llu", seen.op, (unsigned long long)seen.offset_bytes);
	zsteps_end();
	tap_end();
}

/* The kernel had no memory for the command: it says the same again. */
static void test_append_again(void)
{
	if (!tap_begin("append: a COMMIT that is sent again says where, too"))
		return;
	zsteps_begin(true);
	refuse_commit = -ENOMEM;
	zsteps_descs[1] = (struct ublksrv_io_desc){ .op_flags = UBLK_IO_OP_ZONE_APPEND,
						    .start_sector = 2048,
						    .nr_sectors = 8 };
	ring_script_post(armed[1], UBLK_IO_RES_OK, 0);
	zsteps_turns(4);
	EXPECT(zsteps_commit_nr > 1, "it is not sent again");
	committed = (struct ublksrv_io_cmd){ 0 };
	refuse_commit = 0;
	zsteps_turns(3);
	EXPECT(committed.addr == 2048 + 5, "it is at %llu", (unsigned long long)committed.addr);
	EXPECT(seen_nr == 1, "the backend had it %u times", seen_nr);
	zsteps_end();
	tap_end();
}

static void test_report(void)
{
	struct blk_zone zones[4];

	if (!tap_begin("report: the zones are in the request, and nothing is left to ask for"))
		return;
	zsteps_begin(true);
	memset(zones, 0xff, sizeof(zones));
	EXPECT(pwrite(pages, zones, sizeof(zones), pages_at()) == sizeof(zones), "pwrite");
	/* What the buffer of the tag has had before does not show. */
	request(UBLK_IO_OP_READ, 0, 16);
	request(UBLK_IO_OP_REPORT_ZONES, 2048, 3);
	EXPECT(seen.op == BACKEND_ZONE_MANAGE && seen.zone == BACKEND_ZONE_REPORT &&
		       seen.offset_bytes == MIB(1) && seen.length_bytes == 3 * sizeof(zones[0]),
	       "op %u of %u bytes", seen.op, seen.length_bytes);
	EXPECT(pread(pages, zones, sizeof(zones), pages_at()) == sizeof(zones), "pread");
	EXPECT(zones[0].start == 2048 && zones[0].len == 77, "another zone");
	EXPECT(zones[1].len == 0 && zones[2].len == 0, "zones that nobody has reported");
	EXPECT(committed.result == (int)ZSTEPS_IO_BYTES && committed.addr == 0, "%d",
	       committed.result);
	seen_nr = 0;
	request(UBLK_IO_OP_REPORT_ZONES, 0, ZSTEPS_IO_BYTES / sizeof(zones[0]) + 1);
	EXPECT(seen_nr == 0 && committed.result == -EIO, "one that is too long: %d",
	       committed.result);
	request(UBLK_IO_OP_REPORT_ZONES, 0, 0);
	EXPECT(seen_nr == 0 && committed.result == -EIO, "one of nothing: %d", committed.result);
	zsteps_end();
	tap_end();
}

static void test_without_zones(void)
{
	if (!tap_begin("a queue without zones refuses them"))
		return;
	zsteps_begin(false);
	request(UBLK_IO_OP_ZONE_RESET, 0, 0);
	EXPECT(seen_nr == 0 && committed.result == -EOPNOTSUPP, "%d", committed.result);
	request(UBLK_IO_OP_REPORT_ZONES, 0, 1);
	EXPECT(seen_nr == 0 && committed.result == -EOPNOTSUPP, "%d", committed.result);
	zsteps_end();
	tap_end();
}

int main(int argc, char **argv)
{
	log_init(LOG_LEVEL_ERROR);
	tap_init(argv[0], argc > 2 ? argv[argc - 1] : NULL, 0);
	test_actions();
	test_append();
	test_append_again();
	test_flush();
	test_report();
	test_without_zones();
	return tap_finish();
}
