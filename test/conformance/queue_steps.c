/*
 * A queue of ublk, command by command, against a driver that the test plays: what becomes of the
 * buffers that are provided for the numbers of tags, and of the memory of requests. Prints TAP.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/backend.h"
#include "base/log.h"
#include "base/util.h"
#include "holding_backend.h"
#include "ring_script.h"
#include "tap.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue_internal.h"

#define SECTORS (IO_BYTES / 512)
#define BUFFER_NR 16u /* batch.c */

/* ---- the driver ---- */

static struct ublksrv_io_desc descs[DEPTH];
static uint64_t fetches[DEPTH]; /* user_data of each tag's command, or 0: not armed */
static uint64_t batch_fetch_data, batch_commit_data;
static unsigned fetch_nr, commit_nr;
static int commit_res; /* of COMMITs to come: 0: all of it is taken */

static int on_batch_cmd(const struct io_uring_sqe *sqe, const struct ublk_batch_io *cmd)
{
	int bytes = cmd->nr_elem * cmd->elem_bytes;

	switch (sqe->cmd_op) {
	case UBLK_U_IO_FETCH_IO_CMDS:
		fetch_nr++;
		batch_fetch_data = sqe->user_data;
		return SCRIPT_LATER;
	case UBLK_U_IO_COMMIT_IO_CMDS:
		commit_nr++;
		batch_commit_data = sqe->user_data;
		return commit_res ? commit_res : bytes;
	default:
		return 0;
	}
}

static int on_sqe(const struct io_uring_sqe *sqe)
{
	const void *cmd = (const char *)sqe + 48;
	unsigned tag = ((const struct ublksrv_io_cmd *)cmd)->tag;

	ring_script.log_nr = 0;
	if (sqe->cmd_op != UBLK_U_IO_FETCH_REQ && sqe->cmd_op != UBLK_U_IO_COMMIT_AND_FETCH_REQ)
		return on_batch_cmd(sqe, cmd);
	if (sqe->cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ)
		commit_nr++;
	if (sqe->cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ && commit_res)
		return commit_res;
	fetches[tag] = sqe->user_data;
	return SCRIPT_LATER;
}

/* ---- the rig ---- */

static struct reactor reactor;
static struct queue queue;
static struct backend_device *device;
static struct io_errors *io_errors;
static bool attached, drained, released, fenced;

static void on_attached(struct queue *q, int err)
{
	(void)q;
	EXPECT(err == 0, "%d", err);
	attached = true;
}

static void on_drained(struct queue *q)
{
	(void)q;
	drained = true;
}

static void on_fenced(struct queue *q)
{
	(void)q;
	fenced = true;
}

static void on_released(struct queue *q)
{
	(void)q;
	released = true;
}

/* With mail each time: there may be some. */
static void turn(void)
{
	ring_script.mail = true;
	reactor_turn(&reactor, false);
}

static void turns(unsigned nr)
{
	while (nr-- > 0)
		turn();
}

static void open_queue(bool batch)
{
	static const struct backend_spec spec = { .ops = &holding_backend };
	static const struct backend_open_params open_params = { .logical_block_bytes = 512,
								.max_io_bytes = IO_BYTES };
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct queue_setup setup = {
		.reactor = &reactor,
		.home = &reactor,
		.device_name = "t",
		.descs = descs,
		.cdev_fd = -1,
		.depth = DEPTH,
		.max_io_bytes = IO_BYTES,
		.data = { .path = DATA_PATH_COPY, .batch = batch },
		.attached = on_attached,
		.drained = on_drained,
		.released = on_released,
		.fenced = on_fenced,
	};
	char error[BACKEND_ERROR_BYTES];

	ring_script = (struct ring_script){ .answer = on_sqe, .now_ns = NS_PER_SEC };
	memset(fetches, 0, sizeof(fetches));
	for (unsigned tag = 0; tag < DEPTH; tag++)
		descs[tag] = (struct ublksrv_io_desc){ .nr_sectors = SECTORS };
	attached = drained = released = keeps = false;
	fetch_nr = commit_nr = submitted_nr = out_nr = 0;
	room = DEPTH;
	commit_res = 0;
	if (reactor_init(&reactor, &params) < 0 ||
	    backend_open(&device, &spec, "t", &open_params, error, sizeof(error)) < 0)
		abort();
	io_errors = io_errors_create(backend_node_nr(device));
	if (!io_errors)
		abort();
	setup.backend = device;
	setup.errors = io_errors;
	queue_attach(&queue, &setup);
	turns(4);
	EXPECT(attached, "the queue is not attached");
}

static void release_queue(void)
{
	EXPECT(drained, "the queue is not drained");
	queue_release(&queue);
	turns(4);
	EXPECT(released, "the queue is not released");
	backend_close(device);
	free(io_errors);
	reactor_fini(&reactor);
}

static void close_queue(bool batch)
{
	if (batch)
		ring_script_post(batch_fetch_data, UBLK_IO_RES_ABORT, 0);
	for (unsigned tag = 0; !batch && tag < DEPTH; tag++)
		ring_script_post(fetches[tag], UBLK_IO_RES_ABORT, 0);
	turns(4);
	release_queue();
}

/* ---- buffers for the numbers of tags ---- */

/* Of the ring's head and tail, which are 16 bits wide, the head is the driver's. */
static unsigned given_nr(void)
{
	return (uint16_t)(ring_script.group->tail - ring_script.group_used);
}

static const struct io_uring_buf *take_buffer(void)
{
	return &ring_script.group->bufs[ring_script.group_used++ % BUFFER_NR];
}

static void bring(uint16_t tag)
{
	const struct io_uring_buf *buf = take_buffer();

	memcpy((void *)(uintptr_t)buf->addr, &tag, sizeof(tag));
	ring_script_post(batch_fetch_data, sizeof(tag),
			 IORING_CQE_F_MORE | IORING_CQE_F_BUFFER |
				 (uint32_t)buf->bid << IORING_CQE_BUFFER_SHIFT);
	turn();
}

static void expect_all_buffers(void)
{
	unsigned seen = 0;

	EXPECT(given_nr() == BUFFER_NR, "%u buffers are with the driver after %u", given_nr(),
	       ring_script.group_used);
	for (unsigned i = 0; i < BUFFER_NR; i++)
		seen |= 1u << ring_script.group->bufs[i].bid;
	EXPECT(seen == (1u << BUFFER_NR) - 1, "not each buffer once: %x", seen);
}

/* No room in the CQ: buffers were used up and no CQE names them. */
static void lose_buffers(unsigned nr)
{
	unsigned before = fetch_nr;

	while (nr-- > 0)
		take_buffer();
	ring_script_post(batch_fetch_data, -ENOBUFS, 0);
	turns(2);
	EXPECT(fetch_nr == before + 1, "no FETCH after the loss");
	expect_all_buffers();
}

static void test_buffer_counts_wrap(void)
{
	unsigned served_nr = 0;

	if (!tap_begin("batch: lost buffers are found where their count wraps"))
		return;
	open_queue(true);
	expect_all_buffers();
	for (int round = 0; round < 2; round++) {
		while (ring_script.group_used != UINT16_MAX - 7 && !tap_failed()) {
			bring((uint16_t)(served_nr++ % DEPTH));
			if (served_nr % 9999 == 0)
				expect_all_buffers();
		}
		/* Before it, up to it, across it, from it on; one and all of them. */
		lose_buffers(1);
		lose_buffers(7);
		bring(0);
		bring(1);
		served_nr += 2;
		lose_buffers(BUFFER_NR);
		while (ring_script.group_used != UINT16_MAX - 4 && !tap_failed())
			bring((uint16_t)(served_nr++ % DEPTH));
		lose_buffers(BUFFER_NR);
		bring(2);
		served_nr++;
		expect_all_buffers();
	}
	EXPECT(submitted_nr == served_nr, "%u of %u came", submitted_nr, served_nr);
	EXPECT(queue.stats.lost_tags == 0, "tags were lost");
	close_queue(true);
	tap_end();
}

/* ---- memory of requests ---- */

static void bring_request(unsigned tag, uint32_t op)
{
	descs[tag].op_flags = op;
	ring_script_post(fetches[tag], UBLK_IO_RES_OK, 0);
	fetches[tag] = 0;
	turn();
}

static void answer(unsigned tag)
{
	out_nr--;
	backend_io_complete(kept_of[tag], 0);
}

/* The FETCH ends before or after the news that a COMMIT has failed. */
static void end_around_commit(bool before)
{
	open_queue(true);
	keeps = true;
	bring(0);
	answer(0);
	commit_res = SCRIPT_LATER;
	turns(2);
	commit_res = 0;
	EXPECT(queue.ios[0].state == TAG_ARMED, "state %d", queue.ios[0].state);
	if (before)
		ring_script_post(batch_fetch_data, UBLK_IO_RES_ABORT, 0);
	ring_script_post(batch_commit_data, -ENOMEM, 0);
	if (!before)
		ring_script_post(batch_fetch_data, UBLK_IO_RES_ABORT, 0);
	turn();
	EXPECT(queue.up_nr == 1, "%u tags are left", queue.up_nr);
	turns(4);
	EXPECT(commit_nr == 2, "%u COMMITs", commit_nr);
	release_queue();
}

static void test_batch_ends(void)
{
	if (!tap_begin("batch: a failed COMMIT goes again after the FETCH"))
		return;
	end_around_commit(true);
	end_around_commit(false);
	tap_end();
}

static uint8_t pattern(unsigned at)
{
	return (uint8_t)(at * 7 + (at >> 8) + 1);
}

static uint8_t *fill(unsigned tag)
{
	uint8_t *buf = queue_buffer(&queue, tag);

	for (unsigned i = 0; i < IO_BYTES; i++)
		buf[i] = pattern(i);
	return buf;
}

/* Filled, or else empty. */
static bool holds(const uint8_t *buf, bool filled)
{
	for (unsigned i = 0; i < IO_BYTES; i++)
		if (buf[i] != (filled ? pattern(i) : 0))
			return false;
	return true;
}

/* Long enough for buffers that nobody uses to be given back. */
static void pass(unsigned seconds)
{
	for (unsigned i = 0; i < 20 * seconds; i++) {
		ring_script.now_ns += NS_PER_SEC / 20;
		turn();
	}
}

/* Timers of many queues are due at few times. */
static bool is_trimmed_with_others(void)
{
	return queue.trim_timer.armed && queue.trim_timer.deadline_ns % (100 * NS_PER_MS) == 0;
}

static void test_slow_request(void)
{
	uint8_t *buf;

	if (!tap_begin("trim: the memory of one slow request stays, and goes when it is over"))
		return;
	open_queue(false);
	keeps = true;
	for (unsigned op = BACKEND_READ; op <= BACKEND_WRITE; op++) {
		buf = fill(1);
		ring_script.now_ns += 7 * NS_PER_MS;
		turn();
		bring_request(1, op);
		EXPECT(is_trimmed_with_others(), "it goes off when those of other queues do");
		for (unsigned seconds = 1; seconds <= 9; seconds++) {
			pass(1);
			EXPECT(holds(buf, true), "%s lost its bytes after %u s",
			       backend_op_name(op), seconds);
		}
		answer(1);
		turn();
		EXPECT(holds(buf, true), "%s lost its bytes at its end", backend_op_name(op));
		pass(5);
		EXPECT(holds(buf, false), "the memory of an idle queue is not given back");
	}
	close_queue(false);
	tap_end();
}

/* Requests behind the gate: the bytes of a WRITE are with us since it came. */
static void test_quiesced_write(void)
{
	uint8_t *buf;

	if (!tap_begin("trim: the memory of a WRITE behind the gate stays"))
		return;
	open_queue(false);
	bring_request(0, BACKEND_READ);
	queue_quiesce(&queue, true);
	turns(2);
	EXPECT(queue_quiet(&queue), "the queue is not quiet");
	buf = fill(2);
	bring_request(2, BACKEND_WRITE);
	pass(5);
	EXPECT(submitted_nr == 1, "it was served behind the gate");
	queue_quiesce(&queue, false);
	turns(2);
	EXPECT(submitted_nr == 2 && holds(written, true), "other bytes were written");
	pass(5);
	EXPECT(holds(buf, false), "the memory of an idle queue is not given back");
	close_queue(false);
	tap_end();
}

/* Answered, but the kernel takes the COMMIT late: for want of memory. */
static void test_refused_commit(void)
{
	uint8_t *buf;

	if (!tap_begin("trim: the memory of a READ stays until the kernel has its COMMIT"))
		return;
	open_queue(false);
	keeps = true;
	buf = fill(3);
	bring_request(3, BACKEND_READ);
	pass(3);
	answer(3);
	ring_script.refuse_nr = 90;
	for (unsigned i = 0; i < 90; i++) {
		ring_script.now_ns += NS_PER_SEC / 20;
		turn();
		EXPECT(holds(buf, true), "it lost its bytes after %u refusals", i);
	}
	EXPECT(commit_nr == 0, "it was taken");
	/* Then the command itself is refused, again and again. */
	commit_res = -ENOMEM;
	pass(5);
	EXPECT(commit_nr > 1 && holds(buf, true), "it lost its bytes after %u COMMITs", commit_nr);
	commit_res = 0;
	turns(3);
	EXPECT(fetches[3] != 0, "it is not handed back");
	pass(6);
	EXPECT(holds(buf, false), "the memory of an idle queue is not given back");
	close_queue(false);
	tap_end();
}

/* ---- requests ---- */

static void test_flags(void)
{
	static const struct {
		uint32_t op_flags, flags;
	} cases[] = {
		{ UBLK_IO_OP_WRITE, 0 },
		{ UBLK_IO_OP_WRITE | UBLK_IO_F_FUA, BACKEND_FUA },
		{ UBLK_IO_OP_READ | UBLK_IO_F_INTEGRITY, BACKEND_METADATA },
		{ UBLK_IO_OP_WRITE_ZEROES, 0 },
		{ UBLK_IO_OP_WRITE_ZEROES | UBLK_IO_F_NOUNMAP, BACKEND_NOUNMAP },
		{ UBLK_IO_OP_WRITE_ZEROES | UBLK_IO_F_FUA, BACKEND_FUA },
	};

	if (!tap_begin("request: its flags reach the backend"))
		return;
	open_queue(false);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		bring_request(0, cases[i].op_flags);
		turns(2);
		EXPECT(submitted_nr == i + 1 && last_flags == cases[i].flags, "case %u: %x", i,
		       last_flags);
	}
	close_queue(false);
	tap_end();
}

/* The SQ has room for some of them and the kernel takes none: the others go later, each once. */
static void test_some_commits(void)
{
	struct io_uring_sqe *sqe;

	if (!tap_begin("commit: what finds no room goes later, and nothing twice"))
		return;
	open_queue(false);
	keeps = true;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		bring_request(tag, BACKEND_READ);
	ring_script.refuse_nr = 5;
	for (unsigned i = 0; i < 6 && (sqe = io_uring_get_sqe(&reactor.ring.uring)); i++) {
		io_uring_prep_nop(sqe);
		sqe->user_data = 0;
	}
	for (unsigned tag = 0; tag < DEPTH; tag++)
		answer(tag);
	turn();
	EXPECT(queue.commit_nr > 0 && queue.commit_nr < DEPTH, "%u have found no room",
	       queue.commit_nr);
	turns(10);
	EXPECT(commit_nr == DEPTH, "%u COMMITs of %u requests", commit_nr, DEPTH);
	for (unsigned tag = 0; tag < DEPTH; tag++)
		EXPECT(fetches[tag] != 0, "tag %u was not handed back", tag);
	close_queue(false);
	tap_end();
}

/* Its turn comes when another one ends, not when a clock says so: here that stands still. */
static void test_busy(void)
{
	if (!tap_begin("busy: the next goes when one ends"))
		return;
	open_queue(false);
	keeps = true;
	room = 1;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		bring_request(tag, BACKEND_READ);
	for (unsigned tag = 0; tag < DEPTH; tag++) {
		EXPECT(submitted_nr == tag + 1 && kept->tag == tag, "%u are with the backend",
		       submitted_nr);
		answer(tag);
		turn();
	}
	EXPECT(out_nr == 0, "%u are left", out_nr);
	turns(2);
	close_queue(false);
	tap_end();
}

/* ---- quiesce and fence ---- */

static void quiesce(bool on)
{
	queue_quiesce(&queue, on);
	turns(3);
}

static void test_quiet(void)
{
	if (!tap_begin("quiesce: quiet is what has nothing in flight and nothing to hand back"))
		return;
	open_queue(false);
	quiesce(true);
	EXPECT(queue_quiet(&queue), "an idle queue is not quiet");
	quiesce(false);
	EXPECT(!queue_quiet(&queue), "it is quiet without quiesce");
	keeps = true;
	bring_request(1, BACKEND_READ);
	quiesce(true);
	EXPECT(!queue_quiet(&queue), "it is quiet with a request in flight");
	commit_res = -ENOMEM;
	answer(1);
	pass(1);
	EXPECT(commit_nr > 1, "the COMMIT was not refused");
	EXPECT(!queue_quiet(&queue), "it is quiet with a request to hand back");
	commit_res = 0;
	pass(1);
	EXPECT(queue_quiet(&queue), "it never is quiet");
	quiesce(false);
	close_queue(false);
	tap_end();
}

static bool fence_is_through(uint64_t size_bytes)
{
	fenced = false;
	queue_fence(&queue, size_bytes);
	pass(1);
	return fenced;
}

static void test_fence(void)
{
	if (!tap_begin("fence: waits for what reaches beyond the end, and for nothing else"))
		return;
	open_queue(false);
	keeps = true;
	EXPECT(fence_is_through(0), "it waits for nothing");
	descs[0].start_sector = SECTORS;
	bring_request(0, BACKEND_WRITE);
	EXPECT(fence_is_through(3ull * IO_BYTES), "it waits for what is before the end");
	EXPECT(fence_is_through(2ull * IO_BYTES), "it waits for what ends at the end");
	EXPECT(!fence_is_through(2ull * IO_BYTES - 512), "a request reaches beyond the end");
	answer(0);
	pass(1);
	EXPECT(fenced, "it waits for what is over");
	close_queue(false);
	tap_end();
}

/* io_uring had no memory for it, and said so late: the driver waits for all tags to start. */
static void test_late_refusal(void)
{
	if (!tap_begin(
		    "fetch: one that io_uring has no memory for is sent again once it is counted"))
		return;
	open_queue(false);
	ring_script_post(fetches[2], -ENOMEM, 0);
	fetches[2] = 0;
	turns(2);
	EXPECT(fetches[2] != 0, "it is not sent again");
	EXPECT(queue.stats.lost_tags == 0, "a tag is lost");
	if (fetches[2] != 0) {
		bring_request(2, BACKEND_READ);
		turns(2);
		EXPECT(fetches[2] != 0, "its request is not served");
		close_queue(false);
	}
	tap_end();
}

int main(int argc, char **argv)
{
	bool has_only = argc > 2 && strcmp(argv[argc - 2], "--only") == 0;

	tap_init(argv[0], has_only ? argv[argc - 1] : NULL, 0);
	log_init(LOG_LEVEL_ERROR);
	alarm(300);
	test_buffer_counts_wrap();
	test_batch_ends();
	test_slow_request();
	test_quiesced_write();
	test_refused_commit();
	test_flags();
	test_some_commits();
	test_busy();
	test_quiet();
	test_fence();
	test_late_refusal();
	return tap_finish();
}
