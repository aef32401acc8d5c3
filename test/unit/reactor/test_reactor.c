/* reactor: ops and their slots, parking, stale completions, tasks, files, the turn's numbers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "reactor/reactor.h"

struct probe {
	struct op op;
	unsigned called_nr;
	int res;
	uint32_t cqe_flags;
	bool free_in_callback;
};

static struct reactor r;

static void setup_with(struct reactor_params params)
{
	assert_int_equal(reactor_init(&r, &params), 0);
}

static int setup(void **state)
{
	(void)state;
	setup_with((struct reactor_params){ .sq_entries = 8, .cq_entries = 64 });
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	reactor_fini(&r);
	return 0;
}

static void on_probe(struct op *op, int res, uint32_t cqe_flags)
{
	struct probe *p = container_of(op, struct probe, op);

	p->called_nr++;
	p->res = res;
	p->cqe_flags = cqe_flags;
	if (p->free_in_callback)
		op_fini(op);
}

static void probe_init(struct probe *p)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND, .queue = 5, .tag = 77, .leg = 3 };

	*p = (struct probe){ 0 };
	assert_int_equal(op_init(&p->op, &r, owner, on_probe), 0);
}

static void nop_or_park(struct op *op)
{
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, nop_or_park);
		return;
	}
	io_uring_prep_nop(sqe);
	op_start(op, sqe);
}

static void test_op_round_trip(void **state)
{
	struct probe p;
	uint64_t first;

	(void)state;
	probe_init(&p);
	nop_or_park(&p.op);
	first = p.op.user_data;
	assert_true(op_inflight(&p.op));
	assert_int_equal(user_data_kind(first), OP_KIND_BACKEND);
	assert_int_equal(user_data_queue(first), 5);
	assert_int_equal(user_data_tag(first), 77);
	assert_int_equal(user_data_leg(first), 3);
	reactor_turn(&r, true);
	assert_int_equal(p.called_nr, 1);
	assert_int_equal(p.res, 0);
	assert_false(op_inflight(&p.op));
	nop_or_park(&p.op);
	assert_int_equal(p.op.user_data, first + USER_DATA_GENERATION_ONE);
	reactor_turn(&r, true);
	assert_int_equal(p.called_nr, 2);
	op_fini(&p.op);
	op_fini(&p.op); /* as zeroed: harmless */
}

/* 4096 generations, then the number wraps without touching its neighbours. */
static void test_generation_wraps(void **state)
{
	struct probe p;

	(void)state;
	probe_init(&p);
	for (unsigned i = 0; i < 5000; i++) {
		nop_or_park(&p.op);
		reactor_turn(&r, true);
	}
	assert_int_equal(p.called_nr, 5000);
	assert_int_equal(p.op.user_data >> USER_DATA_GENERATION_SHIFT, 5000 % 4096);
	assert_int_equal(user_data_leg(p.op.user_data), 3);
	op_fini(&p.op);
	assert_int_equal(r.stats.stale, 0);
}

static void test_slots_run_out_and_come_back(void **state)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND };
	struct op op[4];

	(void)state;
	setup_with((struct reactor_params){
		.sq_entries = 8, .cq_entries = 16, .op_nr = REACTOR_OWN_OP_NR + 3 });
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(op_init(&op[i], &r, owner, on_probe), 0);
	assert_int_equal(op_init(&op[3], &r, owner, on_probe), -ENOBUFS);
	op_fini(&op[1]);
	assert_int_equal(op_init(&op[3], &r, owner, on_probe), 0);
	assert_int_equal(user_data_slot(op[3].user_data), REACTOR_OWN_OP_NR + 1);
	reactor_fini(&r);
}

/* The next owner of a slot must not be mistaken for the last one. */
static void test_slot_keeps_its_generation(void **state)
{
	struct probe a, b;

	(void)state;
	probe_init(&a);
	nop_or_park(&a.op);
	reactor_turn(&r, true);
	op_fini(&a.op);
	probe_init(&b);
	nop_or_park(&b.op);
	assert_int_equal(user_data_slot(a.op.user_data), user_data_slot(b.op.user_data));
	assert_int_not_equal(a.op.user_data, b.op.user_data);
	reactor_turn(&r, true);
	op_fini(&b.op);
}

static void test_op_may_be_freed_by_its_callback(void **state)
{
	struct probe p;

	(void)state;
	probe_init(&p);
	p.free_in_callback = true;
	nop_or_park(&p.op);
	reactor_turn(&r, true);
	assert_int_equal(p.called_nr, 1);
	assert_null(p.op.reactor);
}

static void test_multishot_stays_in_flight(void **state)
{
	int efd = eventfd(0, EFD_CLOEXEC);
	struct io_uring_sqe *sqe;
	uint64_t value = 1;
	struct probe p;

	(void)state;
	probe_init(&p);
	sqe = op_sqe(&p.op);
	io_uring_prep_poll_multishot(sqe, efd, POLLIN);
	op_start(&p.op, sqe);
	reactor_turn(&r, false);
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(write(efd, &value, sizeof(value)), sizeof(value));
		while (p.called_nr < i)
			reactor_turn(&r, true);
		assert_true(p.cqe_flags & IORING_CQE_F_MORE);
		assert_true(op_inflight(&p.op));
	}
	close(efd);
	/* The ring ends it; what is left of the op is not touched again. */
}

static void forge(uint64_t user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r.ring.uring);

	io_uring_prep_nop(sqe);
	sqe->user_data = user_data;
}

static void test_stale_completions_reach_nobody(void **state)
{
	struct probe p;

	(void)state;
	probe_init(&p);
	forge(user_data_make(OP_KIND_BACKEND, 0, 0, 0, (1u << USER_DATA_SLOT_BITS) - 1));
	forge(user_data_make(OP_KIND_BACKEND, 0, 0, 0, 2)); /* a slot never used */
	forge(p.op.user_data);				    /* idle */
	forge(0);					    /* the mailbox's slot, another kind */
	forge(UINT64_MAX);
	reactor_turn(&r, true);
	assert_int_equal(r.stats.stale, 5);
	nop_or_park(&p.op);
	forge(p.op.user_data + USER_DATA_GENERATION_ONE);
	forge(p.op.user_data - USER_DATA_GENERATION_ONE);
	reactor_turn(&r, true);
	assert_int_equal(r.stats.stale, 7);
	assert_int_equal(p.called_nr, 1);
	op_fini(&p.op);
}

/* An SQ of two entries: op_sqe makes room by itself. */
static void test_tiny_sq_submits_early(void **state)
{
	struct probe p[50];
	unsigned called_nr = 0;

	(void)state;
	setup_with((struct reactor_params){ .sq_entries = 2, .cq_entries = 64 });
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
		probe_init(&p[i]);
		nop_or_park(&p[i].op);
	}
	for (int turn = 0; turn < 10; turn++)
		reactor_turn(&r, false);
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
		called_nr += p[i].called_nr;
		op_fini(&p[i].op);
	}
	assert_int_equal(called_nr, 50);
	assert_int_equal(r.stats.sq_full, 0);
	reactor_fini(&r);
}

/* The kernel takes nothing while the ring's descriptor is wrong: the rest parks and comes later. */
static void test_full_sq_parks(void **state)
{
	struct probe p[6];
	int enter_fd;

	(void)state;
	setup_with((struct reactor_params){ .sq_entries = 2, .cq_entries = 64 });
	reactor_turn(&r, false); /* the mailbox's SQE goes out */
	enter_fd = r.ring.enter_fd;
	r.ring.enter_fd = -1;
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
		probe_init(&p[i]);
		nop_or_park(&p[i].op);
	}
	r.ring.enter_fd = enter_fd;
	assert_int_equal(r.stats.sq_full, 4);
	assert_true(reactor_has_work(&r));
	assert_true(op_unpark(&p[3].op));
	assert_false(op_unpark(&p[3].op));
	assert_false(op_unpark(&p[0].op)); /* in flight, not parked */
	op_fini(&p[5].op);		   /* the end of a parked op */
	for (int turn = 0; turn < 10; turn++)
		reactor_turn(&r, false);
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
		assert_int_equal(p[i].called_nr, i == 3 || i == 5 ? 0 : 1);
		op_fini(&p[i].op);
	}
	assert_false(reactor_has_work(&r));
	reactor_fini(&r);
}

struct job {
	struct task task;
	unsigned ran_nr, again_nr;
	bool at_end;
	char *trace;
	char letter;
};

static void run_job(struct task *task)
{
	struct job *job = container_of(task, struct job, task);

	job->ran_nr++;
	strncat(job->trace, &job->letter, 1);
	if (job->again_nr == 0)
		return;
	job->again_nr--;
	if (job->at_end)
		reactor_at_turn_end(&r, task, run_job);
	else
		reactor_defer(&r, task, run_job);
}

/* CQEs for which the CQ had no room are work: nobody would fetch them otherwise. */
static void test_kept_cqes_are_work(void **state)
{
	(void)state;
	reactor_turn(&r, false);
	assert_false(reactor_has_work(&r));
	/* As the kernel says it. */
	*r.ring.uring.sq.kflags |= IORING_SQ_CQ_OVERFLOW;
	assert_true(reactor_has_work(&r));
	*r.ring.uring.sq.kflags &= ~IORING_SQ_CQ_OVERFLOW;
	assert_false(reactor_has_work(&r));
}

static void test_tasks_run_once_per_turn(void **state)
{
	char trace[64] = "";
	struct job a = { .trace = trace, .letter = 'a', .again_nr = 2 };
	struct job b = { .trace = trace, .letter = 'b' };
	struct job e = { .trace = trace, .letter = 'e', .again_nr = 1, .at_end = true };

	(void)state;
	reactor_at_turn_end(&r, &e.task, run_job);
	reactor_defer(&r, &a.task, run_job);
	reactor_defer(&r, &b.task, run_job);
	reactor_defer(&r, &a.task, run_job);
	assert_true(reactor_has_work(&r));
	reactor_turn(&r, true);
	assert_string_equal(trace, "abe");
	reactor_turn(&r, true);
	assert_string_equal(trace, "abeae");
	reactor_turn(&r, true);
	assert_string_equal(trace, "abeaea");
	reactor_turn(&r, false);
	assert_string_equal(trace, "abeaea");
	assert_false(reactor_has_work(&r));
}

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

static void run_slowly(struct task *task)
{
	(void)task;
	sleep_ms(15);
}

static void test_turn_is_accounted(void **state)
{
	struct task task = { 0 };
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
	reactor_defer(&r, &task, run_slowly);
	reactor_turn(&r, true);
	assert_int_equal(r.stats.turns, 2);
	assert_int_equal(r.stats.stalls, stalls + 1);
	assert_true(r.stats.turn_ns_max >= 15 * NS_PER_MS);
	assert_true(r.stats.callback_ns >= 15 * NS_PER_MS);
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

static void test_control_reactor_signals_its_eventfd(void **state)
{
	struct pollfd pfd = { .events = POLLIN };
	struct io_uring_sqe *sqe;
	struct probe p;

	(void)state;
	setup_with((struct reactor_params){ .sq_entries = 8, .cq_entries = 16, .control = true });
	pfd.fd = r.event_fd;
	probe_init(&p);
	reactor_turn(&r, false);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	sqe = op_sqe(&p.op);
	memset(sqe, 0, 128);
	io_uring_prep_nop(sqe);
	op_start(&p.op, sqe);
	assert_true(reactor_has_work(&r));
	assert_int_equal(ring_enter(&r.ring, 0, 0), 0);
	assert_int_equal(poll(&pfd, 1, 1000), 1);
	reactor_turn(&r, false);
	assert_int_equal(p.called_nr, 1);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	op_fini(&p.op);
	reactor_fini(&r);
}

static void test_dump_names_what_is_in_flight(void **state)
{
	struct probe p;
	char text[1024];
	int fds[2];
	ssize_t n;

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	probe_init(&p);
	nop_or_park(&p.op);
	reactor_dump_ops(&r, fds[1]);
	n = read(fds[0], text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	assert_non_null(strstr(text, "kind=mailbox"));
	assert_non_null(strstr(text, "kind=backend queue=5 tag=77 leg=3 state=inflight"));
	reactor_turn(&r, true);
	op_fini(&p.op);
	close(fds[0]);
	close(fds[1]);
}

static void test_failed_init_leaves_nothing(void **state)
{
	struct reactor_params params = { .sq_entries = 0, .cq_entries = 0 };
	int before = open("/dev/null", O_RDONLY | O_CLOEXEC), after;

	(void)state;
	close(before);
	assert_int_equal(reactor_init(&r, &params), -EINVAL);
	after = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(before, after);
	close(after);
	reactor_fini(&r);
}

#define WITH_REACTOR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_REACTOR(test_op_round_trip),
		WITH_REACTOR(test_generation_wraps),
		cmocka_unit_test(test_slots_run_out_and_come_back),
		WITH_REACTOR(test_slot_keeps_its_generation),
		WITH_REACTOR(test_op_may_be_freed_by_its_callback),
		WITH_REACTOR(test_multishot_stays_in_flight),
		WITH_REACTOR(test_stale_completions_reach_nobody),
		cmocka_unit_test(test_tiny_sq_submits_early),
		cmocka_unit_test(test_full_sq_parks),
		WITH_REACTOR(test_kept_cqes_are_work),
		WITH_REACTOR(test_tasks_run_once_per_turn),
		WITH_REACTOR(test_turn_sleeps_until_the_timer),
		WITH_REACTOR(test_turn_is_accounted),
		WITH_REACTOR(test_sleep_is_idle),
		WITH_REACTOR(test_a_callback_is_callback),
		WITH_REACTOR(test_a_copy_is_kernel),
		cmocka_unit_test(test_control_reactor_signals_its_eventfd),
		WITH_REACTOR(test_dump_names_what_is_in_flight),
		cmocka_unit_test(test_failed_init_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
