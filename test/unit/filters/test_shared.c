/* shared: who opens, waits for, leaves and closes what devices share, and what they see of it. */
#include "test/unit/filters/shared_rig.h"

/* ---- one tree ---- */

static void test_opened_once(void **state)
{
	(void)state;
	gates[0].holds_open = true;
	begin_open(&users[0]);
	begin_open(&users[1]);
	turns(3);
	assert_int_equal(gates[0].opened_nr, 1);
	assert_int_equal(users[0].ended_nr + users[1].ended_nr, 0);
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[0]), 0);
	assert_int_equal(end_of(&users[1]), 0);
	open_user(&users[2]);
	assert_int_equal(gates[0].opened_nr, 1);
	assert_ptr_equal(tree_of_user(&users[0]), tree_of_user(&users[2]));
}

static void test_last_one_closes(void **state)
{
	(void)state;
	open_user(&users[0]);
	open_user(&users[1]);
	close_user(&users[0]);
	assert_int_equal(gates[0].closed_nr, 0);
	gates[0].holds_close = true;
	begin_close(&users[1]);
	/* The daemon may be about to end: the reactors stay until this has. */
	assert_int_equal(rig.control.leaving, 1);
	TURN_UNTIL(gates[0].visit);
	turns(3);
	assert_int_equal(users[1].ended_nr, 0);
	assert_int_equal(rig.control.leaving, 1);
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[1]), 0);
	assert_int_equal(gates[0].closed_nr, 1);
	assert_int_equal(rig.control.leaving, 0);
}

/* A leaf that is only read, in as many queues as one likes. */
static void test_limits(void **state)
{
	const struct backend_limits *limits;

	(void)state;
	gates[0].limits = (struct backend_limits){
		.size_bytes = 3 << 20,
		.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_FUA | BACKEND_CAP_DISCARD |
			BACKEND_CAP_WRITE_ZEROES | BACKEND_CAP_ROTATIONAL,
		.physical_block_bytes = 4096,
		.io_opt_bytes = 65536,
		.max_io_bytes = 1 << 19,
		.queue_nr_max = 1,
		.queue_nr_cure = "set queues: 1",
		.discard_granularity_bytes = 4096,
		.max_discard_bytes = 1 << 20,
		.max_write_zeroes_bytes = 1 << 20,
	};
	open_user(&users[0]);
	limits = &users[0].device->limits;
	assert_int_equal(limits->size_bytes, 3 << 20);
	assert_int_equal(limits->caps, BACKEND_CAP_READ_ONLY | BACKEND_CAP_ROTATIONAL);
	assert_int_equal(limits->physical_block_bytes, 4096);
	assert_int_equal(limits->io_opt_bytes, 65536);
	assert_int_equal(limits->max_io_bytes, 1 << 19);
	assert_int_equal(limits->queue_nr_max, 0);
	assert_null(limits->queue_nr_cure);
	assert_int_equal(limits->discard_granularity_bytes, 0);
	assert_int_equal(limits->max_discard_bytes, 0);
	assert_int_equal(limits->max_write_zeroes_bytes, 0);
}

/* What its queue is made for. */
static void test_opened_to_be_read(void **state)
{
	const struct backend_device *tree;

	(void)state;
	open_user(&users[0]);
	tree = tree_of_user(&users[0])->device;
	assert_true(tree->open_params.read_only);
	assert_int_equal(tree->open_params.queue_nr, 1);
	assert_int_equal(tree->open_params.depth, SHARED_DEPTH);
	assert_int_equal(tree->open_params.logical_block_bytes, 512);
	assert_string_equal(tree->name, "shared/s");
	assert_false(users[0].device->open_params.read_only);
}

/* ---- it cannot be opened ---- */

static void test_failure_reaches_all(void **state)
{
	(void)state;
	gates[0].holds_open = true;
	begin_open(&users[0]);
	begin_open(&users[1]);
	gate_answer(&gates[0], -EIO);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(end_of(&users[i]), -EIO);
		assert_string_equal(users[i].words, "shared: does not answer");
		assert_true(users[i].waited);
	}
	assert_int_equal(gates[0].closed_nr, 1);
	/* Nothing is left of it. */
	gates[0].holds_open = false;
	open_user(&users[0]);
}

static void test_failure_at_once(void **state)
{
	(void)state;
	gates[0].open_err = -ENXIO;
	begin_open(&users[0]);
	assert_int_equal(end_of(&users[0]), -ENXIO);
	assert_string_equal(users[0].words, "shared: is not there");
	/* So the device waits for its file, as without shared. */
	assert_false(users[0].waited);
}

static uint64_t some_bytes(const void *config)
{
	(void)config;
	return 4096;
}

static void test_memory_is_refused(void **state)
{
	struct backend memory = backend_gate;

	(void)state;
	memory.memory_bytes = some_bytes;
	users[0].below.ops = users[1].below.ops = &memory;
	gates[0].holds_open = true;
	begin_open(&users[0]);
	begin_open(&users[1]);
	gate_answer(&gates[0], 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(end_of(&users[i]), -EINVAL);
		assert_non_null(strstr(users[i].words, "memory of this process cannot be shared"));
	}
	TURN_UNTIL(gates[0].closed_nr == 1);
}

/* Somewhere below. */
static void test_memory_under_a_filter_is_refused(void **state)
{
	struct backend memory = backend_gate;
	struct backend_spec low = { .ops = &memory,
				    .config = &gates[0],
				    .as = backend_stripe.children };
	static const uint64_t chunk_bytes[] = { 4096,
						0 }; /* a stripe's configuration, without verify */

	(void)state;
	memory.memory_bytes = some_bytes;
	users[0].below.ops = &backend_stripe;
	users[0].below.config = &chunk_bytes;
	users[0].below.child = &low;
	begin_open(&users[0]);
	/* The stripe looks for labels. */
	TURN_UNTIL(gates[0].out_nr == 1);
	gate_complete(&gates[0], -EIO);
	assert_int_equal(end_of(&users[0]), -EINVAL);
	TURN_UNTIL(gates[0].closed_nr == 1);
}

static int no_queue(struct backend_queue *queue)
{
	(void)queue;
	return -ENOMEM;
}

static void test_queue_cannot_be_opened(void **state)
{
	struct backend poor = backend_gate;

	(void)state;
	poor.queue_init = no_queue;
	users[0].below.ops = users[1].below.ops = &poor;
	begin_open(&users[0]);
	begin_open(&users[1]);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(end_of(&users[i]), -ENOMEM);
		assert_string_equal(users[i].words, "shared: its queue cannot be opened");
	}
	TURN_UNTIL(gates[0].closed_nr == 1);
}

/* ---- a user is not wanted any more ---- */

static void test_one_of_two_is_cancelled(void **state)
{
	(void)state;
	gates[0].holds_open = true;
	begin_open(&users[0]);
	begin_open(&users[1]);
	backend_life_cancel(users[0].life);
	assert_int_equal(end_of(&users[0]), -ECANCELED);
	turns(3);
	assert_int_equal(gates[0].cancelled_nr, 0);
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[1]), 0);
	assert_int_equal(gates[0].opened_nr, 1);
}

static void test_nobody_is_left(void **state)
{
	(void)state;
	gates[0].holds_open = true;
	begin_open(&users[0]);
	begin_open(&users[1]);
	backend_life_cancel(users[0].life);
	backend_life_cancel(users[1].life);
	assert_int_equal(end_of(&users[0]), -ECANCELED);
	assert_int_equal(end_of(&users[1]), -ECANCELED);
	assert_int_equal(gates[0].cancelled_nr, 1);
	TURN_UNTIL(gates[0].closed_nr == 1);
}

/* An open that was cancelled is of no use to who comes now: it is opened anew. */
static void test_comes_after_the_cancel(void **state)
{
	(void)state;
	gates[0].holds_open = gates[0].ignores_cancel = true;
	begin_open(&users[0]);
	backend_life_cancel(users[0].life);
	assert_int_equal(end_of(&users[0]), -ECANCELED);
	begin_open(&users[1]);
	turns(3);
	assert_int_equal(users[1].ended_nr, 0);
	gates[0].holds_open = false;
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[1]), 0);
	assert_int_equal(gates[0].opened_nr, 2);
	assert_int_equal(gates[0].closed_nr, 1);
}

/* Its queue is being opened: that ends first. */
static void test_cancelled_while_the_queue_opens(void **state)
{
	(void)state;
	gates[0].holds_open = true;
	begin_open(&users[0]);
	gate_answer(&gates[0], 0);
	/* Home does not turn. */
	for (unsigned i = 0; i < 5; i++)
		reactor_turn(&rig.control, false);
	assert_int_equal(users[0].ended_nr, 0);
	backend_life_cancel(users[0].life);
	assert_int_equal(end_of(&users[0]), -ECANCELED);
	TURN_UNTIL(gates[0].closed_nr == 1);
	assert_int_equal(gates[0].cancelled_nr, 0);
	gates[0].holds_open = false;
	open_user(&users[1]);
}

static void test_close_cannot_be_cancelled(void **state)
{
	(void)state;
	open_user(&users[0]);
	gates[0].holds_close = true;
	begin_close(&users[0]);
	TURN_UNTIL(gates[0].visit);
	backend_life_cancel(users[0].life);
	turns(5);
	assert_int_equal(users[0].ended_nr, 0);
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[0]), 0);
}

/* ---- a user that comes while it closes ---- */

static const char *doing_of(const struct user *u)
{
	struct backend_life_look look;

	backend_life_look(u->life, &look);
	return look.doing;
}

static void test_comes_while_it_closes(void **state)
{
	(void)state;
	open_user(&users[0]);
	gates[0].holds_close = true;
	begin_close(&users[0]);
	TURN_UNTIL(gates[0].visit);
	begin_open(&users[1]);
	begin_open(&users[2]);
	turns(3);
	assert_int_equal(gates[0].opened_nr, 1);
	assert_string_equal(doing_of(&users[1]), "waiting for the shared backend to be closed");
	gates[0].holds_open = true;
	gates[0].holds_close = false;
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[0]), 0);
	TURN_UNTIL(gates[0].visit);
	assert_int_equal(gates[0].closed_nr, 1);
	assert_string_equal(doing_of(&users[1]), "opening what devices share");
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[1]), 0);
	assert_int_equal(end_of(&users[2]), 0);
	assert_int_equal(gates[0].opened_nr, 2);
}

static void test_goes_while_it_waits_for_the_close(void **state)
{
	(void)state;
	open_user(&users[0]);
	gates[0].holds_close = true;
	begin_close(&users[0]);
	TURN_UNTIL(gates[0].visit);
	begin_open(&users[1]);
	backend_life_cancel(users[1].life);
	assert_int_equal(end_of(&users[1]), -ECANCELED);
	gate_answer(&gates[0], 0);
	assert_int_equal(end_of(&users[0]), 0);
	turns(3);
	assert_int_equal(gates[0].opened_nr, 1);
}

/* ---- another tree under the name ---- */

static void use_gate(struct user *u, unsigned idx)
{
	u->below.config = &gates[idx];
}

/* As if this much time were over. */
static void let_pass(uint64_t ns)
{
	timer_heap_run(&rig.control.timers, ring_clock_ns() + ns);
}

static void test_another_tree_waits(void **state)
{
	(void)state;
	use_gate(&users[1], 1);
	open_user(&users[0]);
	begin_open(&users[1]);
	turns(3);
	assert_string_equal(doing_of(&users[1]), "waiting for devices that share another backend "
						 "of this name to stop");
	assert_int_equal(gates[1].opened_nr, 0);
	close_user(&users[0]);
	assert_int_equal(end_of(&users[1]), 0);
	assert_int_equal(gates[1].opened_nr, 1);
	/* Its time does not count any more. */
	let_pass(2 * SHARED_OTHERS_NS);
	turns(3);
	assert_int_equal(users[1].ended_nr, 1);
}

static void check_others_stay(struct user *u)
{
	begin_open(u);
	let_pass(SHARED_OTHERS_NS - NS_PER_SEC);
	turns(3);
	assert_int_equal(u->ended_nr, 0);
	let_pass(SHARED_OTHERS_NS + NS_PER_SEC);
	assert_int_equal(end_of(u), -EBUSY);
	assert_string_equal(u->words,
			    "shared: other devices use \"s\" with another backend or block_size: "
			    "say the same one in each of them, or give this one a name of its own");
}

static void test_another_tree_is_refused(void **state)
{
	(void)state;
	use_gate(&users[1], 1);
	open_user(&users[0]);
	check_others_stay(&users[1]);
	assert_int_equal(gates[1].opened_nr, 0);
	/* Who has it goes on. */
	open_user(&users[2]);
	assert_int_equal(gates[0].opened_nr, 1);
}

static void test_another_block_size_is_refused(void **state)
{
	(void)state;
	users[1].params.logical_block_bytes = 4096;
	open_user(&users[0]);
	check_others_stay(&users[1]);
}

static void test_waits_for_another_one_and_goes(void **state)
{
	(void)state;
	use_gate(&users[1], 1);
	open_user(&users[0]);
	begin_open(&users[1]);
	backend_life_cancel(users[1].life);
	assert_int_equal(end_of(&users[1]), -ECANCELED);
	let_pass(2 * SHARED_OTHERS_NS);
	turns(3);
	assert_int_equal(users[1].ended_nr, 1);
	close_user(&users[0]);
	assert_int_equal(gates[1].opened_nr, 0);
}

/* In a reload two devices change what they share, one after the other. */
static void test_all_change_to_another_tree(void **state)
{
	(void)state;
	open_user(&users[0]);
	open_user(&users[1]);
	use_gate(&users[2], 1);
	use_gate(&users[3], 1);
	begin_open(&users[2]);
	close_user(&users[0]);
	begin_open(&users[3]);
	close_user(&users[1]);
	assert_int_equal(end_of(&users[2]), 0);
	assert_int_equal(end_of(&users[3]), 0);
	assert_int_equal(gates[0].closed_nr, 1);
	assert_int_equal(gates[1].opened_nr, 1);
}

static void test_other_name_is_another_tree(void **state)
{
	char name[] = "t";
	struct shared_config other = { .name = name };

	(void)state;
	users[1].spec.config = &other;
	open_user(&users[0]);
	open_user(&users[1]);
	assert_int_equal(gates[0].opened_nr, 2);
	close_user(&users[1]);
}

/* ---- the end of it ---- */

static void test_close_waits_for_the_queue_to_rest(void **state)
{
	(void)state;
	open_user(&users[0]);
	gates[0].is_busy = gates[0].holds_close = true;
	begin_close(&users[0]);
	for (uint64_t until_ns = ring_clock_ns() + 5 * NS_PER_MS; ring_clock_ns() < until_ns;)
		turns(1);
	/* Not even its last words are asked for. */
	assert_null(gates[0].visit);
	assert_int_equal(users[0].ended_nr, 0);
	gates[0].is_busy = gates[0].holds_close = false;
	assert_int_equal(end_of(&users[0]), 0);
	assert_int_equal(gates[0].closed_nr, 1);
}

/* ---- who it is ---- */

static void test_says_what_the_tree_says(void **state)
{
	char text[BACKEND_IDENTITY_BYTES], of_tree[BACKEND_IDENTITY_BYTES];

	(void)state;
	use_gate(&users[0], 1);
	open_user(&users[0]);
	backend_identity(users[0].device, text);
	backend_identity(tree_of_user(&users[0])->device, of_tree);
	assert_string_equal(text, of_tree);
	assert_string_equal(text, "gate 1");
	assert_null(backend_failure(users[0].device, NULL));
	gates[1].failure = "it is broken";
	assert_string_equal(backend_failure(users[0].device, NULL), "it is broken");
	assert_false(backend_settle(users[0].device));
	assert_true(backend_settle(users[0].device));
	assert_ptr_equal(backend_below(users[0].device), tree_of_user(&users[0])->device);
}

static void test_abandoned_once(void **state)
{
	(void)state;
	open_user(&users[0]);
	open_user(&users[1]);
	backend_abandon(users[0].device);
	backend_abandon(users[1].device);
	assert_int_equal(gates[0].abandoned_nr, 1);
}

/* Who has it longest. */
static void test_one_counts(void **state)
{
	const struct backend_shared_ops *ops = backend_shared.shared;

	(void)state;
	open_user(&users[0]);
	open_user(&users[1]);
	open_user(&users[2]);
	assert_true(ops->counts(users[0].device));
	assert_false(ops->counts(users[1].device));
	close_user(&users[0]);
	assert_true(ops->counts(users[1].device));
	assert_false(ops->counts(users[2].device));
	open_user(&users[0]);
	assert_false(ops->counts(users[0].device));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_opened_once),
		TEST(test_last_one_closes),
		TEST(test_limits),
		TEST(test_opened_to_be_read),
		TEST(test_failure_reaches_all),
		TEST(test_failure_at_once),
		TEST(test_memory_is_refused),
		TEST(test_memory_under_a_filter_is_refused),
		TEST(test_queue_cannot_be_opened),
		TEST(test_one_of_two_is_cancelled),
		TEST(test_nobody_is_left),
		TEST(test_comes_after_the_cancel),
		TEST_OTHER_HOME(test_cancelled_while_the_queue_opens),
		TEST(test_close_cannot_be_cancelled),
		TEST(test_comes_while_it_closes),
		TEST(test_goes_while_it_waits_for_the_close),
		TEST(test_another_tree_waits),
		TEST(test_another_tree_is_refused),
		TEST(test_another_block_size_is_refused),
		TEST(test_waits_for_another_one_and_goes),
		TEST(test_all_change_to_another_tree),
		TEST(test_other_name_is_another_tree),
		TEST(test_close_waits_for_the_queue_to_rest),
		TEST_OTHER_HOME(test_opened_once),
		TEST_OTHER_HOME(test_close_waits_for_the_queue_to_rest),
		TEST(test_says_what_the_tree_says),
		TEST(test_abandoned_once),
		TEST(test_one_counts),
	};

	return cmocka_run_group_tests(tests, log_errors_only, NULL);
}
