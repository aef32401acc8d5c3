/* stuck: which verdict follows from what is seen. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ublkctl/ctl_kernel.h"
#include "daemon/verdict/stuck.h"

static const struct stuck_view idle = {
	.name = "x",
	.step = "live",
	.has_queues = true,
	.depth = 8,
	.armed = 8,
	.reactor = 0,
};

static const struct stuck_view serving = {
	.name = "x",
	.step = "live",
	.has_queues = true,
	.depth = 8,
	.armed = 7,
	.inflight = 1,
	.has_oldest = true,
	.queue = 0,
	.tag = 5,
	.sector = 24,
	.bytes = 4096,
	.age_ns = 12 * STUCK_IO_NS,
	.op = "write",
	.state = "serving",
	.backend = "nbd",
	.backend_state = "waiting for an answer",
	.seen_nr = 1,
	.kernel_nr = 1,
};

static void expect(const struct stuck_view *view, enum stuck_kind kind, const char *words)
{
	struct stuck_verdict v;

	stuck_judge(view, &v);
	assert_int_equal(v.kind, kind);
	if (!strstr(v.where, words))
		fail_msg("\"%s\" is not in: %s", words, v.where);
	assert_true(kind == STUCK_NOTHING ? v.cure[0] == '\0' : v.cure[0] != '\0');
}

static void test_nothing(void **state)
{
	struct stuck_view v = idle;

	(void)state;
	expect(&v, STUCK_NOTHING, "8 of 8 tags armed");
	v = serving;
	v.age_ns = STUCK_IO_NS - 1;
	expect(&v, STUCK_NOTHING, "the oldest of 1 I/Os is");
	v.kernel_nr = -1;
	expect(&v, STUCK_NOTHING, "nothing is stuck");
}

static void test_backend(void **state)
{
	struct stuck_view v = serving;

	(void)state;
	expect(&v, STUCK_BACKEND, "(queue 0 tag 5) is 12s old: the backend nbd does not answer");
	v.op = "flush";
	v.bytes = v.sector = 0;
	expect(&v, STUCK_BACKEND, "the flush (queue 0 tag 5) is 12s old: ");
	v.backend = v.backend_state = NULL;
	expect(&v, STUCK_BACKEND, "the backend does not answer");
	v.backend = "throttle";
	expect(&v, STUCK_BACKEND, "the backend throttle does not answer");
	v.backend_wait = "throttle";
	expect(&v, STUCK_THROTTLED, "delays it to keep its limits");
	v.backend_wait = "delay";
	expect(&v, STUCK_DELAYED, "delay");
	v.state = "busy";
	expect(&v, STUCK_BUSY, "has not accepted it");
	v.state = "done";
	expect(&v, STUCK_NOT_HANDED_BACK, "not committed");
}

static void test_not_armed(void **state)
{
	struct stuck_view v = idle;

	(void)state;
	v.armed = v.short_armed = 7;
	v.short_depth = 8;
	v.short_queue = 2;
	expect(&v, STUCK_NOT_ARMED, "queue 2 has armed 7 tags of depth 8 with nothing in flight");
	v.step = "starting";
	expect(&v, STUCK_NOT_ARMED, "START_DEV waits");
	v.step = "stopping";
	expect(&v, STUCK_NOT_SERVING, "stopping");
	v.has_queues = false;
	expect(&v, STUCK_NOT_SERVING, "no queues");
}

/* It hides all else: every I/O gets old behind it. */
static void test_reactor(void **state)
{
	struct stuck_view v = serving;

	(void)state;
	v.reactor = 1;
	v.silent_ns = 3 * STUCK_IO_NS;
	expect(&v, STUCK_REACTOR, "reactor 1 has not turned for 3.0s");
	v.doing = "runs a callback (tag) of disk1";
	expect(&v, STUCK_REACTOR,
	       "reactor 1 has not turned for 3.0s: it runs a callback (tag) of disk1");
	v.silent_ns = STUCK_REACTOR_NS - 1;
	expect(&v, STUCK_BACKEND, "nbd");
}

static void test_unseen(void **state)
{
	struct stuck_view v = idle;

	(void)state;
	v.kernel_nr = 3;
	expect(&v, STUCK_UNSEEN,
	       "the kernel has 3 requests in flight, of which the daemon has seen 0");
	v.seen_nr = 3;
	expect(&v, STUCK_NOTHING, "nothing is stuck");
}

static void test_reactor_and_ring(void **state)
{
	struct stuck_view v = serving;

	(void)state;
	v.silent_ns = 3 * STUCK_IO_NS;
	v.cq_unseen = 4;
	v.kernel_nr = 6;
	expect(&v, STUCK_REACTOR, "4 completions in its ring are not reaped");
	expect(&v, STUCK_REACTOR, "the daemon has not received 5 requests");
	v.silent_ns = 0;
	expect(&v, STUCK_BACKEND, "nbd");
	v.sq_waiting = 7;
	expect(&v, STUCK_RING, "the kernel has not consumed 7 submissions of reactor 0");
	v.overflow = 2;
	expect(&v, STUCK_RING, "2 completions overflowed the ring of reactor 0");
}

static void test_driver(void **state)
{
	struct stuck_view v = serving;

	(void)state;
	v.driver_state = "LIVE";
	v.server_pid = v.daemon_pid = 7;
	expect(&v, STUCK_BACKEND, "nbd");
	v.server_pid = 8;
	expect(&v, STUCK_DRIVER, "the driver reports pid 8 as its server, not this ublkd (pid 7)");
	v.driver_state = "QUIESCED";
	expect(&v, STUCK_DRIVER, "the driver reports this device as QUIESCED: its server is gone");
	v.driver_state = "DEAD";
	expect(&v, STUCK_DRIVER, "the driver reports this device as DEAD");
	v.driver_state = "FAIL_IO";
	expect(&v, STUCK_DRIVER, "the driver reports this device as FAIL_IO");
	v.driver_error = "ENODEV";
	expect(&v, STUCK_DRIVER, "the driver does not know this device: ENODEV");
	/* On its way up or down that is as it should be. */
	v.step = "stopping";
	expect(&v, STUCK_BACKEND, "nbd");
	v = idle;
	v.driver_owed_ns = STUCK_REACTOR_NS - 1;
	expect(&v, STUCK_NOTHING, "8 of 8 tags armed");
	v.driver_owed_ns = 2 * STUCK_IO_NS;
	expect(&v, STUCK_DRIVER_SILENT, "has not answered GET_DEV_INFO for 2.0s");
}

static int read_ring(const char *text, struct kernel_ring *ret_ring)
{
	FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	int ret = kernel_read_ring(file, ret_ring);

	fclose(file);
	return ret;
}

#define FDINFO "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1054\n"

static void test_fdinfo(void **state)
{
	struct kernel_ring ring;

	(void)state;
	assert_int_equal(
		read_ring(FDINFO
			  "SqMask:\t0xfff\nSqHead:\t4294967295\nSqTail:\t2\nCachedSqHead:\t2\n"
			  "CqMask:\t0x3fff\nCqHead:\t10\nCqTail:\t15\nCachedCqTail:\t15\n"
			  "SQEs:\t1\n    0: opcode:URING_CMD, fd:4, flags:1, off:0, addr:0x0, "
			  "rw_flags:0x0, buf_index:0 user_data:18\n"
			  "CQEs:\t1\n   10: user_data:99, res:0, flags:0\n"
			  "SqThread:\t-1\nSqThreadCpu:\t-1\nUserFiles:\t2\nUserBufs:\t0\n"
			  "PollList:\nCqOverflowList:\n  user_data=7, res=0, flags=0\n"
			  "  user_data=8, res=-5, flags=0\n",
			  &ring),
		0);
	assert_int_equal(ring.sq_waiting, 3);
	assert_int_equal(ring.cq_head, 10);
	assert_int_equal(ring.cq_unseen, 5);
	assert_int_equal(ring.overflow, 2);
	/* The kernel prints nothing of a ring that is locked. */
	assert_int_equal(read_ring(FDINFO, &ring), -EAGAIN);
	assert_int_equal(read_ring(FDINFO "SqHead:\t1\nSqTail:\tx\n", &ring), -EBADMSG);
	kernel_look_ring(0, 0, &ring);
	assert_int_equal(ring.err, -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),	  cmocka_unit_test(test_backend),
		cmocka_unit_test(test_not_armed), cmocka_unit_test(test_reactor),
		cmocka_unit_test(test_unseen),	  cmocka_unit_test(test_reactor_and_ring),
		cmocka_unit_test(test_driver),	  cmocka_unit_test(test_fdinfo),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
