/* alarm: the one timeout in the ring that serves all sleeps before a timer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "reactor/reactor.h"

static struct reactor r;

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 64 };

	(void)state;
	return reactor_init(&r, &params);
}

static int teardown(void **state)
{
	(void)state;
	reactor_fini(&r);
	return 0;
}

struct nop {
	struct op op;
	bool done;
};

static void on_nop(struct op *op, int res, uint32_t cqe_flags)
{
	(void)res, (void)cqe_flags;
	container_of(op, struct nop, op)->done = true;
}

static void turn_for_a_nop(void)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND };
	struct nop nop = { 0 };
	struct io_uring_sqe *sqe;

	assert_int_equal(op_init(&nop.op, &r, owner, on_nop), 0);
	sqe = op_sqe(&nop.op);
	io_uring_prep_nop(sqe);
	op_start(&nop.op, sqe);
	while (!nop.done)
		reactor_turn(&r, true);
	op_fini(&nop.op);
}

struct alarm_clock {
	struct timer timer;
	unsigned ran_nr;
};

static void on_alarm(struct timer *timer)
{
	container_of(timer, struct alarm_clock, timer)->ran_nr++;
}

static void test_alarm_wakes_for_a_far_timer(void **state)
{
	struct alarm_clock a = { 0 };
	uint64_t deadline_ns = ring_clock_ns() + 500 * NS_PER_MS;

	(void)state;
	timer_init(&a.timer, on_alarm);
	reactor_timer_arm(&r, &a.timer, deadline_ns);
	for (unsigned i = 0; i < 3; i++) {
		turn_for_a_nop();
		assert_true(op_inflight(&r.alarm.timeouts[0].op));
		assert_int_equal(r.alarm.at_ns, deadline_ns);
	}
	while (a.ran_nr == 0)
		reactor_turn(&r, true);
	assert_true(ring_clock_ns() >= deadline_ns);
	assert_true(r.stats.turns < 20);
	/* On a busy machine the timer may have been due before the ring told so. */
	while (op_inflight(&r.alarm.timeouts[0].op))
		reactor_turn(&r, false);
}

static void test_alarm_is_no_reason_to_be_late(void **state)
{
	struct alarm_clock far = { 0 }, near = { 0 };

	(void)state;
	timer_init(&far.timer, on_alarm);
	timer_init(&near.timer, on_alarm);
	reactor_timer_arm(&r, &far.timer, ring_clock_ns() + 30 * NS_PER_SEC);
	turn_for_a_nop();
	assert_true(op_inflight(&r.alarm.timeouts[0].op));
	reactor_timer_arm(&r, &near.timer, ring_clock_ns() + 20 * NS_PER_MS);
	while (near.ran_nr == 0)
		reactor_turn(&r, true);
	assert_int_equal(far.ran_nr, 0);
	assert_true(r.stats.turns < 20);
	reactor_timer_cancel(&r, &far.timer);
}

/* A nearer timer than the one that it is set for, and then a farther and a nearer one again. */
static void test_alarm_is_set_for_a_nearer_timer(void **state)
{
	struct alarm_clock far = { 0 }, near = { 0 }, nearest = { 0 };
	uint64_t now_ns = ring_clock_ns(), near_ns = now_ns + NS_PER_SEC;

	(void)state;
	timer_init(&far.timer, on_alarm);
	timer_init(&near.timer, on_alarm);
	timer_init(&nearest.timer, on_alarm);
	reactor_timer_arm(&r, &far.timer, now_ns + 30 * NS_PER_SEC);
	turn_for_a_nop();
	reactor_timer_arm(&r, &near.timer, near_ns);
	turn_for_a_nop();
	assert_int_equal(r.alarm.at_ns, near_ns);
	assert_int_equal(alarm_limit_ns(&r.alarm, near_ns - r.now_ns), RING_NO_TIMEOUT);
	/* Both are set: this one has a limit of its own. */
	reactor_timer_arm(&r, &nearest.timer, near_ns - NS_PER_MS);
	assert_int_equal(alarm_limit_ns(&r.alarm, near_ns - NS_PER_MS - r.now_ns),
			 near_ns - NS_PER_MS - r.now_ns);
	while (near.ran_nr == 0)
		reactor_turn(&r, true);
	assert_true(ring_clock_ns() >= near_ns);
	assert_int_equal(nearest.ran_nr, 1);
	assert_int_equal(far.ran_nr, 0);
	assert_true(r.stats.turns < 20);
	while (op_inflight(&r.alarm.timeouts[1].op))
		reactor_turn(&r, false);
	/* The first is still there, and the second can be set again. */
	assert_int_equal(r.alarm.at_ns, now_ns + 30 * NS_PER_SEC);
	assert_int_equal(alarm_limit_ns(&r.alarm, NS_PER_SEC), RING_NO_TIMEOUT);
	reactor_timer_cancel(&r, &far.timer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_alarm_wakes_for_a_far_timer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_alarm_is_no_reason_to_be_late, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_alarm_is_set_for_a_nearer_timer, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
