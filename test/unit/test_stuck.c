/* stuck: which verdict follows from what is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stuck.h"

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
	v.backend = v.backend_state = NULL;
	expect(&v, STUCK_BACKEND, "the backend does not answer");
	v.backend = "throttle";
	v.backend_state = "waiting for its turn";
	expect(&v, STUCK_THROTTLED, "holds it back");
	v.backend = "delay";
	v.backend_state = "delaying";
	expect(&v, STUCK_DELAYED, "delay");
	v.state = "busy";
	expect(&v, STUCK_BUSY, "did not take it");
	v.state = "done";
	expect(&v, STUCK_NOT_HANDED_BACK, "not handed back");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),	  cmocka_unit_test(test_backend),
		cmocka_unit_test(test_not_armed), cmocka_unit_test(test_reactor),
		cmocka_unit_test(test_unseen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
