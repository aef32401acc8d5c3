/* stripe, its open: backends whose label cannot be read, or that do not answer. */
#include "test/rig/life_rig.h"

#include "filters/stripe/stripe.h"

static void begin_stripe(unsigned nr)
{
	spec_stripe(nr);
	begin_open_tree();
}

/* The READ of the next backend is there. */
static struct backend_io *read_of(unsigned idx)
{
	struct backend_io *io;

	turns(3);
	assert_int_equal(leaves[idx].out_nr, 1);
	io = leaves[idx].out[0];
	assert_int_equal(io->op, BACKEND_READ);
	assert_int_equal(io->offset_bytes, 0);
	return io;
}

static void give_zeroes(unsigned idx)
{
	memset(read_of(idx)->buf, 0, STRIPE_LABEL_BYTES);
	leaf_complete(idx, 0);
}

static void give_label(unsigned idx, uint32_t child_nr)
{
	const struct stripe_label label = { .kind = STRIPE_LABEL_READY,
					    .set = { 1, 2 },
					    .chunk_bytes = chunk_bytes[0],
					    .child_nr = child_nr,
					    .idx = idx };

	stripe_label_write(&label, read_of(idx)->buf);
	leaf_complete(idx, 0);
}

static void expect_end(int ret)
{
	turn_until_done();
	assert_int_equal(walk.ret, ret);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(leaves[i].closed, ret < 0);
	assert_int_equal(rig.reactor.leaving, 0);
}

static void test_without_labels(void **state)
{
	(void)state;
	begin_stripe(2);
	give_zeroes(0);
	give_zeroes(1);
	expect_end(0);
}

/* What cannot be read is served, as long as the others have no label. */
static void test_unread(void **state)
{
	(void)state;
	begin_stripe(2);
	read_of(0);
	leaf_complete(0, -EIO);
	give_zeroes(1);
	expect_end(0);
}

static void test_unread_beside_a_label(void **state)
{
	(void)state;
	begin_stripe(2);
	read_of(0);
	leaf_complete(0, -EIO);
	give_label(1, 2);
	expect_end(-EIO);
	assert_non_null(strstr(walk.words, "backend 1 of the stripe cannot be read"));
}

static void test_one_label_alone(void **state)
{
	(void)state;
	begin_stripe(2);
	give_label(0, 2);
	give_zeroes(1);
	expect_end(-EINVAL);
	assert_non_null(strstr(walk.words, "set verify: true"));
}

static void test_ignored(void **state)
{
	static const struct stripe_config ignore = { 4096, STRIPE_VERIFY_IGNORE };

	(void)state;
	spec_stripe(2);
	root_spec.config = &ignore;
	begin_open_tree();
	expect_end(0);
}

/* A stripe over stripes: the label of the one above lies where one of the lower would. */
static void test_below_labels(void **state)
{
	static const struct stripe_config with_labels = { 4096, STRIPE_VERIFY_ON };
	struct backend_spec lower;

	(void)state;
	spec_stripe(2);
	lower = root_spec;
	lower.as = backend_stripe.children;
	lower.sibling = &leaf_spec[2];
	leaf_spec[2].as = backend_stripe.children;
	leaf_spec[2].as_idx = 1;
	root_spec.config = &with_labels;
	root_spec.child = &lower;
	begin_open_tree();
	for (unsigned i = 0; i < 2; i++) {
		const struct stripe_label label = {
			.kind = STRIPE_LABEL_READY, .chunk_bytes = 4096, .child_nr = 2, .idx = i
		};

		stripe_label_write(&label, read_of(2 * i)->buf);
		leaf_complete(2 * i, 0);
	}
	expect_end(0);
}

/* Nobody knows what it has: the stripe is not served for that, and the end is in time. */
static void test_silent(void **state)
{
	for (unsigned silent = 0; silent < 2; silent++) {
		begin_stripe(2);
		if (silent == 1)
			give_zeroes(0);
		read_of(silent);
		timer_heap_run(&rig.reactor.timers, ring_clock_ns() + BACKEND_VISIT_NS);
		expect_end(-ETIMEDOUT);
		assert_true(walk.waited);
		assert_string_equal(walk.words, "stripe: no answer for 30s: reading the label "
						"(leaf: waiting for an answer)");
		assert_int_equal(leaves[silent].cancelled, 1);
		life_teardown(state);
		life_setup(state);
	}
}

static void test_not_wanted_while_it_reads(void **state)
{
	(void)state;
	begin_stripe(2);
	give_zeroes(0);
	read_of(1);
	backend_life_cancel(walk.life);
	expect_end(-ECANCELED);
	assert_int_equal(leaves[1].cancelled, 1);
}

static void leaf_goes_on(struct backend_io *io)
{
	leaf_of(io->queue->device)->cancelled++;
}

/* A file whose server is gone: nothing is closed before its READ has ended. */
static void test_not_wanted_and_cannot_be_cancelled(void **state)
{
	struct backend stubborn = backend_leaf;

	(void)state;
	stubborn.cancel = leaf_goes_on;
	leaf_spec[0].ops = &stubborn;
	begin_stripe(2);
	read_of(0);
	backend_life_cancel(walk.life);
	turns(5);
	assert_int_equal(walk.done_nr, 0);
	assert_int_equal(leaves[0].cancelled, 1);
	assert_int_equal(leaves[0].closed + leaves[1].closed, 0);
	memset(leaves[0].out[0]->buf, 0, STRIPE_LABEL_BYTES);
	leaf_complete(0, 0);
	expect_end(-ECANCELED);
}

#define LIFE(fn) cmocka_unit_test_setup_teardown(fn, life_setup, life_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIFE(test_without_labels),
		LIFE(test_unread),
		LIFE(test_unread_beside_a_label),
		LIFE(test_one_label_alone),
		LIFE(test_ignored),
		LIFE(test_below_labels),
		LIFE(test_silent),
		LIFE(test_not_wanted_while_it_reads),
		LIFE(test_not_wanted_and_cannot_be_cancelled),
	};

	return cmocka_run_group_tests_name("stripe_open", tests, NULL, NULL);
}
