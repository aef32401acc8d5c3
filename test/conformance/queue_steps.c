/*
 * A queue of ublk, command by command, against a driver that the test plays: what becomes of the
 * buffers that are provided for the numbers of tags, and of the memory of requests. Prints TAP.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "storage/backend.h"
#include "storage/owed.h"
#include "base/log.h"
#include "base/util.h"
#include "ring_script.h"
#include "tap.h"
#include "test/steps/queue_rig.h"

#define BUFFER_NR 16u /* batch.c */

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
	ring_script_post(qrig.batch_fetch_data, sizeof(tag),
			 IORING_CQE_F_MORE | IORING_CQE_F_BUFFER |
				 (uint32_t)buf->bid << IORING_CQE_BUFFER_SHIFT);
	qrig_turn();
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
	unsigned before = qrig.fetch_nr;

	while (nr-- > 0)
		take_buffer();
	ring_script_post(qrig.batch_fetch_data, -ENOBUFS, 0);
	qrig_turns(2);
	EXPECT(qrig.fetch_nr == before + 1, "no FETCH after the loss");
	expect_all_buffers();
}

static void test_buffer_counts_wrap(void)
{
	unsigned served_nr = 0;

	if (!tap_begin("batch: lost buffers are found where their count wraps"))
		return;
	qrig_open(true);
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
	EXPECT(qrig.queue.stats.lost_tags == 0, "tags were lost");
	qrig_close(true);
	tap_end();
}

/* ---- memory of requests ---- */

/* The FETCH ends before or after the news that a COMMIT has failed. */
static void end_around_commit(bool before)
{
	qrig_open(true);
	keeps = true;
	bring(0);
	qrig_answer(0);
	qrig.commit_res = SCRIPT_LATER;
	qrig_turns(2);
	qrig.commit_res = 0;
	EXPECT(qrig.queue.ios[0].state == TAG_ARMED, "state %d", qrig.queue.ios[0].state);
	if (before)
		ring_script_post(qrig.batch_fetch_data, UBLK_IO_RES_ABORT, 0);
	ring_script_post(qrig.batch_commit_data, -ENOMEM, 0);
	if (!before)
		ring_script_post(qrig.batch_fetch_data, UBLK_IO_RES_ABORT, 0);
	qrig_turn();
	EXPECT(qrig.queue.up_nr == 1, "%u tags are left", qrig.queue.up_nr);
	qrig_turns(4);
	EXPECT(qrig.commit_nr == 2, "%u COMMITs", qrig.commit_nr);
	qrig_release();
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
	uint8_t *buf = queue_buffer(&qrig.queue, tag);

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
		qrig_turn();
	}
}

/* Timers of many queues are due at few times. */
static bool is_trimmed_with_others(void)
{
	return qrig.queue.trim_timer.armed &&
	       qrig.queue.trim_timer.deadline_ns % (100 * NS_PER_MS) == 0;
}

static void test_slow_request(void)
{
	uint8_t *buf;

	if (!tap_begin("trim: the memory of one slow request stays, and goes when it is over"))
		return;
	qrig_open(false);
	keeps = true;
	for (unsigned op = BACKEND_READ; op <= BACKEND_WRITE; op++) {
		buf = fill(1);
		ring_script.now_ns += 7 * NS_PER_MS;
		qrig_turn();
		qrig_bring(1, op);
		EXPECT(is_trimmed_with_others(), "it goes off when those of other queues do");
		for (unsigned seconds = 1; seconds <= 9; seconds++) {
			pass(1);
			EXPECT(holds(buf, true), "%s lost its bytes after %u s",
			       backend_op_name(op), seconds);
		}
		qrig_answer(1);
		qrig_turn();
		EXPECT(holds(buf, true), "%s lost its bytes at its end", backend_op_name(op));
		pass(5);
		EXPECT(holds(buf, false), "the memory of an idle queue is not given back");
	}
	qrig_close(false);
	tap_end();
}

/* Requests behind the gate: the bytes of a WRITE are with us since it came. */
static void test_quiesced_write(void)
{
	uint8_t *buf;

	if (!tap_begin("trim: the memory of a WRITE behind the gate stays"))
		return;
	qrig_open(false);
	qrig_bring(0, BACKEND_READ);
	queue_quiesce(&qrig.queue, true);
	qrig_turns(2);
	EXPECT(queue_quiet(&qrig.queue), "the queue is not quiet");
	buf = fill(2);
	qrig_bring(2, BACKEND_WRITE);
	pass(5);
	EXPECT(submitted_nr == 1, "it was served behind the gate");
	queue_quiesce(&qrig.queue, false);
	qrig_turns(2);
	EXPECT(submitted_nr == 2 && holds(written, true), "other bytes were written");
	pass(5);
	EXPECT(holds(buf, false), "the memory of an idle queue is not given back");
	qrig_close(false);
	tap_end();
}

/* Answered, but the kernel takes the COMMIT late: for want of memory. */
static void test_refused_commit(void)
{
	uint8_t *buf;

	if (!tap_begin("trim: the memory of a READ stays until the kernel has its COMMIT"))
		return;
	qrig_open(false);
	keeps = true;
	buf = fill(3);
	qrig_bring(3, BACKEND_READ);
	pass(3);
	qrig_answer(3);
	ring_script.refuse_nr = 90;
	for (unsigned i = 0; i < 90; i++) {
		ring_script.now_ns += NS_PER_SEC / 20;
		qrig_turn();
		EXPECT(holds(buf, true), "it lost its bytes after %u refusals", i);
	}
	EXPECT(qrig.commit_nr == 0, "it was taken");
	/* Then the command itself is refused, again and again. */
	qrig.commit_res = -ENOMEM;
	pass(5);
	EXPECT(qrig.commit_nr > 1 && holds(buf, true), "it lost its bytes after %u COMMITs",
	       qrig.commit_nr);
	qrig.commit_res = 0;
	qrig_turns(3);
	EXPECT(qrig.fetches[3] != 0, "it is not handed back");
	pass(6);
	EXPECT(holds(buf, false), "the memory of an idle queue is not given back");
	qrig_close(false);
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
	qrig_open(false);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		qrig_bring(0, cases[i].op_flags);
		qrig_turns(2);
		EXPECT(submitted_nr == i + 1 && last_flags == cases[i].flags, "case %u: %x", i,
		       last_flags);
	}
	qrig_close(false);
	tap_end();
}

/* The SQ has room for some of them and the kernel takes none: the others go later, each once. */
static void test_some_commits(void)
{
	struct io_uring_sqe *sqe;

	if (!tap_begin("commit: what finds no room goes later, and nothing twice"))
		return;
	qrig_open(false);
	keeps = true;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		qrig_bring(tag, BACKEND_READ);
	ring_script.refuse_nr = 5;
	for (unsigned i = 0; i < 6 && (sqe = io_uring_get_sqe(&qrig.reactor.ring.uring)); i++) {
		io_uring_prep_nop(sqe);
		sqe->user_data = 0;
	}
	for (unsigned tag = 0; tag < DEPTH; tag++)
		qrig_answer(tag);
	qrig_turn();
	EXPECT(qrig.queue.commit_nr > 0 && qrig.queue.commit_nr < DEPTH, "%u have found no room",
	       qrig.queue.commit_nr);
	qrig_turns(10);
	EXPECT(qrig.commit_nr == DEPTH, "%u COMMITs of %u requests", qrig.commit_nr, DEPTH);
	for (unsigned tag = 0; tag < DEPTH; tag++)
		EXPECT(qrig.fetches[tag] != 0, "tag %u was not handed back", tag);
	qrig_close(false);
	tap_end();
}

/* Its turn comes when another one ends, not when a clock says so: here that stands still. */
static void test_busy(void)
{
	if (!tap_begin("busy: the next goes when one ends"))
		return;
	qrig_open(false);
	keeps = true;
	room = 1;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		qrig_bring(tag, BACKEND_READ);
	for (unsigned tag = 0; tag < DEPTH; tag++) {
		EXPECT(submitted_nr == tag + 1 && kept->tag == tag, "%u are with the backend",
		       submitted_nr);
		qrig_answer(tag);
		qrig_turn();
	}
	EXPECT(out_nr == 0, "%u are left", out_nr);
	qrig_turns(2);
	qrig_close(false);
	tap_end();
}

/* ---- quiesce and fence ---- */

static void quiesce(bool on)
{
	queue_quiesce(&qrig.queue, on);
	qrig_turns(3);
}

static void test_quiet(void)
{
	if (!tap_begin("quiesce: quiet is what has nothing in flight and nothing to hand back"))
		return;
	qrig_open(false);
	quiesce(true);
	EXPECT(queue_quiet(&qrig.queue), "an idle queue is not quiet");
	quiesce(false);
	EXPECT(!queue_quiet(&qrig.queue), "it is quiet without quiesce");
	keeps = true;
	qrig_bring(1, BACKEND_READ);
	quiesce(true);
	EXPECT(!queue_quiet(&qrig.queue), "it is quiet with a request in flight");
	qrig.commit_res = -ENOMEM;
	qrig_answer(1);
	pass(1);
	EXPECT(qrig.commit_nr > 1, "the COMMIT was not refused");
	EXPECT(!queue_quiet(&qrig.queue), "it is quiet with a request to hand back");
	qrig.commit_res = 0;
	pass(1);
	EXPECT(queue_quiet(&qrig.queue), "it never is quiet");
	quiesce(false);
	qrig_close(false);
	tap_end();
}

static bool fence_is_through(uint64_t size_bytes)
{
	qrig.fenced = false;
	queue_fence(&qrig.queue, size_bytes);
	pass(1);
	return qrig.fenced;
}

static void test_fence(void)
{
	if (!tap_begin("fence: waits for what reaches beyond the end, and for nothing else"))
		return;
	qrig_open(false);
	keeps = true;
	EXPECT(fence_is_through(0), "it waits for nothing");
	qrig.descs[0].start_sector = SECTORS;
	qrig_bring(0, BACKEND_WRITE);
	EXPECT(fence_is_through(3ull * IO_BYTES), "it waits for what is before the end");
	EXPECT(fence_is_through(2ull * IO_BYTES), "it waits for what ends at the end");
	EXPECT(!fence_is_through(2ull * IO_BYTES - 512), "a request reaches beyond the end");
	qrig_answer(0);
	pass(1);
	EXPECT(qrig.fenced, "it waits for what is over");
	qrig_close(false);
	tap_end();
}

/* io_uring had no memory for it, and said so late: the driver waits for all tags to start. */
static void test_late_refusal(void)
{
	if (!tap_begin(
		    "fetch: one that io_uring has no memory for is sent again once it is counted"))
		return;
	qrig_open(false);
	ring_script_post(qrig.fetches[2], -ENOMEM, 0);
	qrig.fetches[2] = 0;
	qrig_turns(2);
	EXPECT(qrig.fetches[2] != 0, "it is not sent again");
	EXPECT(qrig.queue.stats.lost_tags == 0, "a tag is lost");
	if (qrig.fetches[2] != 0) {
		qrig_bring(2, BACKEND_READ);
		qrig_turns(2);
		EXPECT(qrig.fetches[2] != 0, "its request is not served");
		qrig_close(false);
	}
	tap_end();
}

/* ---- a FLUSH of its own ---- */

/* A queue whose backend holds its requests, at work with all tags. */
static void open_at_work(void)
{
	qrig_open(false);
	keeps = true;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		qrig_bring(tag, BACKEND_READ);
}

static void begin_flush(void)
{
	qrig.flushed = 1;
	queue_flush(&qrig.queue);
	qrig_turns(3);
}

static void test_flush(void)
{
	if (!tap_begin("flush: requests go on, what comes for its tag waits for its end"))
		return;
	qrig_open(false);
	keeps = true;
	begin_flush();
	EXPECT(submitted_nr == 1 && kept_of[0]->op == BACKEND_FLUSH, "no FLUSH was submitted");
	qrig_bring(0, BACKEND_READ);
	EXPECT(submitted_nr == 1, "its tag is used for a request");
	qrig_bring(1, BACKEND_READ);
	EXPECT(submitted_nr == 2, "other tags do not serve");
	qrig_answer(1);
	pass(1);
	EXPECT(qrig.flushed == 1, "it has ended before its answer");
	qrig_answer(0);
	qrig_turns(3);
	EXPECT(qrig.flushed == 0, "it has not ended: %d", qrig.flushed);
	EXPECT(submitted_nr == 3 && kept_of[0]->op == BACKEND_READ, "what was kept is not served");
	qrig_answer(0);
	pass(1);
	EXPECT(qrig.commit_nr == 2, "%u requests of 2 are handed back", qrig.commit_nr);
	qrig_close(false);
	tap_end();
}

static void test_flush_waits_for_a_tag(void)
{
	if (!tap_begin("flush: when all tags are at work it waits for one, a stop for it"))
		return;
	open_at_work();
	begin_flush();
	EXPECT(submitted_nr == DEPTH, "a FLUSH without a tag");
	qrig_answer(2);
	pass(2);
	EXPECT(submitted_nr == DEPTH + 1 && kept_of[2]->op == BACKEND_FLUSH, "no FLUSH");
	for (unsigned tag = 0; tag < DEPTH; tag++)
		if (tag != 2)
			qrig_answer(tag);
	pass(1);
	for (unsigned tag = 0; tag < DEPTH; tag++)
		ring_script_post(qrig.fetches[tag], UBLK_IO_RES_ABORT, 0);
	qrig_turns(4);
	EXPECT(qrig.drained && qrig.flushed == 1, "the end of its tag ends it");
	qrig_answer(2);
	qrig_turns(3);
	EXPECT(qrig.flushed == 0, "it has not ended: %d", qrig.flushed);
	qrig_release();
	tap_end();
}

static void test_flush_is_cancelled(void)
{
	if (!tap_begin("flush: a stop by force ends it, also one that waits for a tag"))
		return;
	open_at_work();
	begin_flush();
	queue_cancel(&qrig.queue, true);
	pass(2);
	EXPECT(qrig.flushed == -ECANCELED, "it goes on: %d", qrig.flushed);
	queue_cancel(&qrig.queue, false);
	qrig_turns(3);
	for (unsigned tag = 0; tag < DEPTH; tag++)
		qrig_answer(tag);
	pass(1);
	begin_flush();
	EXPECT(qrig.flushed == 1, "it is over before its answer");
	qrig_answer(0);
	qrig_turns(3);
	EXPECT(qrig.flushed == 0, "%d", qrig.flushed);
	qrig_close(false);
	tap_end();
}

/* From then on: before whoever asked for it hears of its end. */
static void test_flush_that_fails(void)
{
	if (!tap_begin("flush: when it fails the next one of the driver fails too, and no other"))
		return;
	qrig_open(false);
	keeps = true;
	begin_flush();
	qrig_answer_with(0, -EIO);
	EXPECT(qrig.flushed == 1 && backend_is_owed(qrig.device), "not owed at once");
	qrig_bring(1, UBLK_IO_OP_FLUSH);
	qrig_answer(1);
	pass(1);
	EXPECT(qrig.queue.stats.op[BACKEND_FLUSH].failed == 1, "the driver's does not fail");
	EXPECT(qrig.flushed == -EIO, "%d", qrig.flushed);
	qrig_bring(1, UBLK_IO_OP_FLUSH);
	qrig_answer(1);
	pass(1);
	EXPECT(qrig.queue.stats.op[BACKEND_FLUSH].failed == 1, "the one after it fails");
	qrig_close(false);
	tap_end();
}

/* What has ended before it began is covered, and nothing else. */
static void test_flush_of_the_driver(void)
{
	if (!tap_begin("flush: which writes a good one of the driver has covered"))
		return;
	qrig_open(false);
	keeps = true;
	qrig_bring(0, BACKEND_WRITE);
	qrig_answer(0);
	pass(1);
	qrig_bring(1, BACKEND_WRITE);
	qrig_bring(2, UBLK_IO_OP_FLUSH);
	qrig_answer(1);
	EXPECT(qrig.queue.writes_flushed == 0, "before its end");
	qrig_answer(2);
	pass(1);
	EXPECT(queue_writes(&qrig.queue) == 2 && qrig.queue.writes_flushed == 1, "%llu of %llu",
	       (unsigned long long)qrig.queue.writes_flushed,
	       (unsigned long long)queue_writes(&qrig.queue));
	qrig_bring(2, UBLK_IO_OP_FLUSH);
	qrig_answer_with(2, -EIO);
	pass(1);
	EXPECT(qrig.queue.writes_flushed == 1, "one that fails covers nothing");
	qrig_close(false);
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
	test_flush();
	test_flush_waits_for_a_tag();
	test_flush_is_cancelled();
	test_flush_that_fails();
	test_flush_of_the_driver();
	test_late_refusal();
	return tap_finish();
}
