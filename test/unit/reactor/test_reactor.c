/* reactor: ops and their slots, parking, stale completions, tasks, files. */
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
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/reactor/reactor_rig.h"

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
		cmocka_unit_test(test_control_reactor_signals_its_eventfd),
		WITH_REACTOR(test_dump_names_what_is_in_flight),
		cmocka_unit_test(test_failed_init_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
