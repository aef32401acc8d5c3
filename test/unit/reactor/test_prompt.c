/* prompt: an enter sleeps over the CQEs of ops that it executes itself, and not for long. */
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

/* An op that knows in which turn its CQE was run. */
struct seen {
	struct op op;
	uint64_t turn; /* from 1 on; 0: not yet */
	int res;
	struct __kernel_timespec ts;
};

static void on_seen(struct op *op, int res, uint32_t cqe_flags)
{
	struct seen *seen = container_of(op, struct seen, op);

	(void)cqe_flags;
	seen->turn = r.stats.turns + 1;
	seen->res = res;
}

static void seen_init(struct seen *seen)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND };

	*seen = (struct seen){ 0 };
	assert_int_equal(op_init(&seen->op, &r, owner, on_seen), 0);
}

static void start_nop(struct seen *seen)
{
	struct io_uring_sqe *sqe;

	seen_init(seen);
	sqe = op_sqe(&seen->op);
	io_uring_prep_nop(sqe);
	op_start_prompt(&seen->op, sqe);
}

static void start_timeout(struct seen *seen, uint64_t ns)
{
	struct io_uring_sqe *sqe;

	seen_init(seen);
	seen->ts.tv_nsec = (long long)ns;
	sqe = op_sqe(&seen->op);
	io_uring_prep_timeout(sqe, &seen->ts, 0, 0);
	op_start(&seen->op, sqe);
}

static void turn_until(const struct seen *seen)
{
	while (!seen->turn)
		reactor_turn(&r, true);
}

/* Without a sleep: nothing may be in the CQ before a test begins. */
static void settle(void)
{
	for (unsigned i = 0; i < 3; i++)
		reactor_turn(&r, false);
}

static void test_one_turn_for_both(void **state)
{
	struct seen nop, other;
	uint64_t turns;

	(void)state;
	settle();
	turns = r.stats.turns;
	start_nop(&nop);
	start_timeout(&other, 20 * NS_PER_MS);
	turn_until(&other);
	assert_int_equal(r.stats.turns, turns + 1);
	assert_int_equal(nop.turn, other.turn);
	op_fini(&nop.op);
	op_fini(&other.op);
}

static void test_several_at_once(void **state)
{
	struct seen nop[3], other;

	(void)state;
	settle();
	for (unsigned i = 0; i < ARRAY_SIZE(nop); i++)
		start_nop(&nop[i]);
	start_timeout(&other, 20 * NS_PER_MS);
	turn_until(&other);
	for (unsigned i = 0; i < ARRAY_SIZE(nop); i++) {
		assert_int_equal(nop[i].turn, other.turn);
		op_fini(&nop[i].op);
	}
	op_fini(&other.op);
}

/* The count is of one enter: the next one without prompt ops is ended by one CQE. */
static void test_not_one_too_many(void **state)
{
	struct seen nop, first, second;

	(void)state;
	settle();
	start_nop(&nop);
	start_timeout(&first, 10 * NS_PER_MS);
	turn_until(&first);
	start_timeout(&second, 10 * NS_PER_MS);
	reactor_turn(&r, true);
	assert_true(second.turn > first.turn);
	op_fini(&nop.op);
	op_fini(&first.op);
	op_fini(&second.op);
}

/* As a failure would: it is run when the look is due, though nothing else happens. */
static void test_looked_at_soon(void **state)
{
	uint64_t start_ns = ring_clock_ns();
	struct seen nop;

	(void)state;
	settle();
	start_nop(&nop);
	turn_until(&nop);
	assert_true(ring_clock_ns() - start_ns >= PROMPT_LOOK_NS / 2);
	/* On a busy machine, and yet not never. */
	assert_true(ring_clock_ns() - start_ns < 100 * PROMPT_LOOK_NS);
	op_fini(&nop.op);
}

static void test_idle_reactor_does_not_look(void **state)
{
	struct seen nop;
	uint64_t turns;

	(void)state;
	settle();
	start_nop(&nop);
	turn_until(&nop);
	turns = r.stats.turns;
	while (op_inflight(&r.prompt.look))
		reactor_turn(&r, true);
	assert_true(r.stats.turns - turns <= 1);
	op_fini(&nop.op);
}

/* An enter that made room for SQEs has run it: then its CQE waits, and nothing sleeps. */
static void test_sent_to_make_room(void **state)
{
	struct seen nop;

	(void)state;
	settle();
	start_nop(&nop);
	op_sqe_room(&r, r.ring.uring.sq.ring_entries);
	reactor_turn(&r, true);
	assert_int_not_equal(nop.turn, 0);
	op_fini(&nop.op);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_turn_for_both, setup, teardown),
		cmocka_unit_test_setup_teardown(test_several_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_one_too_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_looked_at_soon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle_reactor_does_not_look, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sent_to_make_room, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
