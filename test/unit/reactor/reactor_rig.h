/* A reactor of the real kernel for unit tests, and an op that notes its completions. */
#ifndef TEST_UNIT_REACTOR_REACTOR_RIG_H
#define TEST_UNIT_REACTOR_REACTOR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

#define WITH_REACTOR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
