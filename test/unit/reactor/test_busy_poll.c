/* reactor: busy polling. When it polls, what ends it, where its time is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "reactor/reactor.h"

/* A poll that no test waits for. */
#define FOR_EVER_NS (600 * NS_PER_SEC)

struct probe {
	struct op op;
	struct __kernel_timespec ts; /* an SQE points at it */
	unsigned called_nr;
};

struct alarm_clock {
	struct timer timer;
	unsigned ran_nr;
};

static struct reactor r;
static struct probe probe;

static void on_probe(struct op *op, int res, uint32_t cqe_flags)
{
	(void)res, (void)cqe_flags;
	container_of(op, struct probe, op)->called_nr++;
}

static void on_alarm(struct timer *timer)
{
	container_of(timer, struct alarm_clock, timer)->ran_nr++;
}

static void start(uint64_t busy_poll_ns)
{
	struct reactor_params params = {
		.sq_entries = 8,
		.cq_entries = 64,
		.busy_poll_ns = busy_poll_ns,
	};
	struct op_owner owner = { .kind = OP_KIND_BACKEND };

	probe = (struct probe){ 0 };
	assert_int_equal(reactor_init(&r, &params), 0);
	assert_int_equal(op_init(&probe.op, &r, owner, on_probe), 0);
}

static int stop(void **state)
{
	(void)state;
	op_fini(&probe.op);
	reactor_fini(&r);
	return 0;
}

static void nop(void)
{
	struct io_uring_sqe *sqe = op_sqe(&probe.op);

	io_uring_prep_nop(sqe);
	op_start(&probe.op, sqe);
}

/* Completes by itself, later, and not inside io_uring_enter. */
static void complete_in(uint64_t ns)
{
	struct io_uring_sqe *sqe = op_sqe(&probe.op);

	probe.ts = (struct __kernel_timespec){ .tv_nsec = (long long)ns };
	io_uring_prep_timeout(sqe, &probe.ts, 0, 0);
	op_start(&probe.op, sqe);
}

/* A turn with work, after which it may poll. */
static void work(void)
{
	unsigned before = probe.called_nr;

	nop();
	reactor_turn(&r, false);
	assert_int_equal(probe.called_nr, before + 1);
}

static void turn_until(const unsigned *count, unsigned wanted)
{
	while (*count < wanted)
		reactor_turn(&r, true);
}

/*
 * Another process that gets the CPU may take the time of a poll, or let it begin when its work is
 * there: what is measured has to be seen once only. Each attempt starts a reactor.
 */
static void see_once(bool (*attempt)(void))
{
	unsigned tries = 1;

	for (; !attempt(); tries++) {
		assert_true(tries < 30);
		stop(NULL);
	}
}

static void test_off_by_default(void **state)
{
	(void)state;
	start(0);
	work();
	complete_in(5 * NS_PER_MS);
	turn_until(&probe.called_nr, 2);
	assert_int_equal(r.stats.poll_ns, 0);
	assert_int_equal(r.stats.poll_hits, 0);
	assert_false(r.ring.uring.flags & IORING_SETUP_TASKRUN_FLAG);
}

/* The SQE is handed over first, or nothing would ever come. */
static bool try_work_ends_the_poll(void)
{
	struct reactor_times times;

	start(FOR_EVER_NS);
	work();
	complete_in(200 * NS_PER_MS);
	turn_until(&probe.called_nr, 2);
	assert_in_range(r.stats.poll_ns, 0, FOR_EVER_NS / 2);
	reactor_times(&r, &times);
	assert_int_equal(times.poll_ns, r.stats.poll_ns);
	return r.stats.turns == 2 && r.stats.poll_hits == 1 && r.stats.poll_ns >= 150 * NS_PER_MS &&
	       times.idle_ns + times.kernel_ns <= 100 * NS_PER_MS &&
	       times.callback_ns <= 100 * NS_PER_MS;
}

static void test_work_ends_the_poll(void **state)
{
	(void)state;
	see_once(try_work_ends_the_poll);
}

/* What is there as soon as the SQEs are handed over needs no poll. */
static void test_work_at_hand_is_no_hit(void **state)
{
	(void)state;
	start(FOR_EVER_NS);
	work();
	nop();
	reactor_turn(&r, true);
	assert_int_equal(probe.called_nr, 2);
	assert_int_equal(r.stats.poll_hits, 0);
	assert_int_equal(r.stats.poll_ns, 0);
}

static bool try_a_timer_ends_the_poll(void)
{
	struct alarm_clock a = { 0 };

	start(FOR_EVER_NS);
	work();
	timer_init(&a.timer, on_alarm);
	reactor_timer_arm(&r, &a.timer, r.now_ns + 20 * NS_PER_MS);
	turn_until(&a.ran_nr, 1);
	assert_in_range(r.stats.poll_ns, 0, FOR_EVER_NS / 2);
	assert_int_equal(r.stats.poll_hits, 0);
	if (r.stats.poll_ns < 15 * NS_PER_MS)
		return false;
	/* The next turn, after one without CQEs. */
	reactor_timer_arm(&r, &a.timer, r.now_ns + 20 * NS_PER_MS);
	turn_until(&a.ran_nr, 2);
	assert_true(r.stats.turns < 10);
	return true;
}

static void test_a_timer_ends_the_poll(void **state)
{
	(void)state;
	see_once(try_a_timer_ends_the_poll);
}

/* Polls for as long as it was told, then sleeps; and only once for what came. */
static bool try_then_it_sleeps(void)
{
	struct reactor_times times;
	struct alarm_clock a = { 0 };
	uint64_t poll_ns;

	start(100 * NS_PER_MS);
	work();
	timer_init(&a.timer, on_alarm);
	reactor_timer_arm(&r, &a.timer, r.now_ns + 200 * NS_PER_MS);
	turn_until(&a.ran_nr, 1);
	poll_ns = r.stats.poll_ns;
	reactor_timer_arm(&r, &a.timer, r.now_ns + 100 * NS_PER_MS);
	turn_until(&a.ran_nr, 2);
	assert_int_equal(r.stats.poll_ns, poll_ns);
	reactor_times(&r, &times);
	assert_true(r.stats.turns < 10);
	return poll_ns >= 100 * NS_PER_MS && times.idle_ns >= 90 * NS_PER_MS &&
	       times.kernel_ns <= 50 * NS_PER_MS;
}

static void test_then_it_sleeps(void **state)
{
	(void)state;
	see_once(try_then_it_sleeps);
}

static void test_may_not_wait(void **state)
{
	(void)state;
	start(FOR_EVER_NS);
	work();
	complete_in(NS_PER_MS);
	for (int i = 0; i < 3; i++)
		reactor_turn(&r, false);
	assert_int_equal(r.stats.poll_ns, 0);
	turn_until(&probe.called_nr, 2);
}

static void deferred(struct task *task)
{
	(void)task;
}

static bool try_tasks_do_not_wait(void)
{
	struct task task = { 0 };

	start(FOR_EVER_NS);
	work();
	reactor_defer(&r, &task, deferred);
	reactor_turn(&r, true);
	assert_int_equal(r.stats.poll_ns, 0);
	/* The poll that the work earned comes afterwards. */
	complete_in(20 * NS_PER_MS);
	turn_until(&probe.called_nr, 2);
	return r.stats.poll_hits == 1;
}

static void test_tasks_do_not_wait(void **state)
{
	(void)state;
	see_once(try_tasks_do_not_wait);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_off_by_default, stop),
		cmocka_unit_test_teardown(test_work_ends_the_poll, stop),
		cmocka_unit_test_teardown(test_work_at_hand_is_no_hit, stop),
		cmocka_unit_test_teardown(test_a_timer_ends_the_poll, stop),
		cmocka_unit_test_teardown(test_then_it_sleeps, stop),
		cmocka_unit_test_teardown(test_may_not_wait, stop),
		cmocka_unit_test_teardown(test_tasks_do_not_wait, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
