/* reactor: what ends the sleep of a turn, and where the time of a turn is counted. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "test/unit/reactor/reactor_rig.h"

struct alarm_clock {
	struct timer timer;
	unsigned ran_nr;
};

static void on_alarm(struct timer *timer)
{
	container_of(timer, struct alarm_clock, timer)->ran_nr++;
}

static void test_turn_sleeps_until_the_timer(void **state)
{
	struct alarm_clock a = { 0 };
	uint64_t start_ns = ring_clock_ns();
	uint64_t deadline_ns = start_ns + 20 * NS_PER_MS;

	(void)state;
	timer_init(&a.timer, on_alarm);
	reactor_timer_arm(&r, &a.timer, deadline_ns);
	assert_int_equal(reactor_next_deadline_ns(&r), deadline_ns);
	reactor_turn(&r, false);
	assert_int_equal(a.ran_nr, 0);
	while (a.ran_nr == 0)
		reactor_turn(&r, true);
	assert_true(ring_clock_ns() >= deadline_ns);
	assert_true(r.stats.turns < 10); /* slept, did not spin */
	assert_int_equal(r.stats.timers, 1);
}

static void sleep_ms(long ms)
{
	struct timespec ts = { .tv_nsec = ms * (long)NS_PER_MS };

	nanosleep(&ts, NULL);
}

struct slow_task {
	struct task task;
	long ms;
};

static void run_slowly(struct task *task)
{
	sleep_ms(container_of(task, struct slow_task, task)->ms);
}

/* A turn with a task that takes so long. */
static void turn_slowly(long ms)
{
	struct slow_task slow = { .ms = ms };

	reactor_defer(&r, &slow.task, run_slowly);
	reactor_turn(&r, true);
}

static void test_turn_is_accounted(void **state)
{
	struct alarm_clock a = { 0 };
	struct probe p[3];
	uint64_t stalls;

	(void)state;
	timer_init(&a.timer, on_alarm);
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
		probe_init(&p[i]);
		nop_or_park(&p[i].op);
	}
	reactor_turn(&r, true);
	assert_int_equal(r.stats.cqes, 3);
	assert_int_equal(r.stats.cqes_max, 3);
	stalls = r.stats.stalls;
	/* One may be: another process had the CPU. */
	assert_true(stalls == 0 || r.stats.turn_ns_max >= REACTOR_STALL_NS);
	turn_slowly(15);
	assert_int_equal(r.stats.turns, 2);
	assert_int_equal(r.stats.stalls, stalls + 1);
	assert_true(r.stats.turn_ns_max >= 15 * NS_PER_MS);
	assert_true(r.stats.callback_ns >= 15 * NS_PER_MS);
	/* A stall is counted though it is not the longest. */
	turn_slowly(60);
	turn_slowly(15);
	assert_int_equal(r.stats.stalls, stalls + 3);
	assert_true(r.stats.turn_ns_max >= 60 * NS_PER_MS);
	reactor_timer_arm(&r, &a.timer, r.now_ns);
	sleep_ms(15);
	reactor_turn(&r, true);
	assert_int_equal(r.stats.timers_late, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
		op_fini(&p[i].op);
}

/* 30 ms of the thread's CPU time. */
static void burn(struct task *task)
{
	clock_t end = clock() + 30 * CLOCKS_PER_SEC / 1000;

	(void)task;
	while (clock() < end)
		;
}

static void fill_memory(struct probe *p, int fd)
{
	static char megabyte[1 << 20];
	struct io_uring_sqe *sqe = op_sqe(&p->op);

	io_uring_prep_read(sqe, fd, megabyte, sizeof(megabyte), 0);
	op_start(&p->op, sqe);
}

/*
 * Sleep is idle, a callback is callback, and a copy by the kernel is kernel: each where it belongs.
 * Another process that gets the CPU adds to any of them, so that each has to be seen once only.
 */
#define TRIES 50

static void test_sleep_is_idle(void **state)
{
	struct reactor_times before, after;
	unsigned tries = 0;

	(void)state;
	do {
		struct alarm_clock a = { 0 };

		assert_true(tries++ < TRIES);
		reactor_turn(&r, false);
		reactor_times(&r, &before);
		timer_init(&a.timer, on_alarm);
		reactor_timer_arm(&r, &a.timer, r.now_ns + 60 * NS_PER_MS);
		while (a.ran_nr == 0)
			reactor_turn(&r, true);
		reactor_times(&r, &after);
	} while (after.idle_ns - before.idle_ns < 40 * NS_PER_MS ||
		 after.callback_ns - before.callback_ns > 20 * NS_PER_MS);
}

static void test_a_callback_is_callback(void **state)
{
	struct reactor_times before, after;
	struct task task = { 0 };
	unsigned tries = 0;

	(void)state;
	reactor_turn(&r, false);
	do {
		assert_true(tries++ < TRIES);
		reactor_times(&r, &before);
		reactor_defer(&r, &task, burn);
		reactor_turn(&r, false);
		reactor_times(&r, &after);
		assert_in_range(after.callback_ns - before.callback_ns, 30 * NS_PER_MS, UINT64_MAX);
	} while (after.idle_ns - before.idle_ns > 20 * NS_PER_MS);
}

static void test_a_copy_is_kernel(void **state)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	struct reactor_times before, after;
	struct probe p;

	(void)state;
	reactor_turn(&r, false);
	reactor_times(&r, &before);
	probe_init(&p);
	for (after = before; after.kernel_ns - before.kernel_ns < 5 * NS_PER_MS;) {
		fill_memory(&p, zero);
		reactor_turn(&r, true);
		reactor_times(&r, &after);
	}
	op_fini(&p.op);
	close(zero);
}

static void test_waiting_cqe_ends_the_sleep(void **state)
{
	struct probe p;

	(void)state;
	probe_init(&p);
	nop_or_park(&p.op);
	assert_true(ring_enter(&r.ring, 0, 0) >= 0);
	assert_true(reactor_has_work(&r));
	reactor_turn(&r, true);
	assert_int_equal(p.called_nr, 1);
	op_fini(&p.op);
}

static void on_signal(int number)
{
	(void)number;
}

static void test_signal_ends_the_sleep(void **state)
{
	struct sigaction action = { .sa_handler = on_signal }, before;
	struct itimerval soon = { .it_value.tv_usec = 20000 };

	(void)state;
	/* An enter that submits something tells of that. */
	reactor_turn(&r, false);
	assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
	reactor_turn(&r, true);
	assert_int_equal(r.stats.turns, 2);
	assert_int_equal(r.stats.cqes, 0);
	sigaction(SIGALRM, &before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_REACTOR(test_turn_sleeps_until_the_timer),
		WITH_REACTOR(test_turn_is_accounted),
		WITH_REACTOR(test_sleep_is_idle),
		WITH_REACTOR(test_a_callback_is_callback),
		WITH_REACTOR(test_a_copy_is_kernel),
		WITH_REACTOR(test_waiting_cqe_ends_the_sleep),
		WITH_REACTOR(test_signal_ends_the_sleep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
