/*
 * shared: requests of users, whose reactor is the home of what they share (TEST) or another
 * one (TEST_OTHER_HOME), and when a queue rests.
 */
#include "test/unit/filters/shared_rig.h"

/* The users' reactor is always the control reactor. */
static void start(struct user *u)
{
	open_user(u);
	open_queue(u, &rig.control);
}

static struct shared_io *shared_io_of(struct user *u, unsigned tag)
{
	return u->io[tag].priv;
}

/* One of the two alone, until it has read its mail. */
static void let_read(struct reactor *r)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	while (!mailbox_empty(&r->mailbox)) {
		assert_true(ring_clock_ns() < until_ns);
		reactor_turn(r, false);
	}
}

/* ---- bytes and results ---- */

static const uint64_t pattern_bytes = 1 << 20;

static void check_bytes(const struct user *u, unsigned tag, uint64_t offset_bytes)
{
	const uint64_t *words = buf_of(u, tag);

	for (unsigned i = 0; i < READ_BYTES / sizeof(*words); i++)
		assert_int_equal(words[i], offset_bytes + i * sizeof(*words));
}

static void test_right_bytes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		users[i].below.ops = &backend_pattern;
		users[i].below.config = &pattern_bytes;
		start(&users[i]);
	}
	for (unsigned tag = 0; tag < 16; tag++) {
		submit_read(&users[0], tag, tag * 8192ull);
		submit_read(&users[1], tag, tag * 12288ull);
	}
	TURN_UNTIL(users[0].done_nr == 16 && users[1].done_nr == 16);
	for (unsigned tag = 0; tag < 16; tag++) {
		assert_int_equal(users[0].io[tag].result, 0);
		check_bytes(&users[0], tag, tag * 8192ull);
		check_bytes(&users[1], tag, tag * 12288ull);
	}
	assert_int_equal(tree_of_user(&users[0])->home.queue->inflight, 0);
}

/* All of the request is the leaf's, and the result with the time in throttles the user's. */
static void test_request_and_result(void **state)
{
	const struct backend_io *below;

	(void)state;
	start(&users[0]);
	submit_read(&users[0], 3, 8192);
	TURN_UNTIL(gates[0].out_nr == 1);
	below = gates[0].out[0];
	assert_int_equal(below->op, BACKEND_READ);
	assert_int_equal(below->offset_bytes, 8192);
	assert_int_equal(below->length_bytes, READ_BYTES);
	assert_ptr_equal(below->buf, buf_of(&users[0], 3));
	assert_int_equal(below->buf_index, -1);
	gate_complete(&gates[0], -EIO);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].io[3].result, -EIO);
	assert_int_equal(users[0].io[3].throttle_ns, 7);
}

static void test_ends_at_once(void **state)
{
	bool is_home = !rig.data[0];

	(void)state;
	gates[0].answers_at_once = true;
	start(&users[0]);
	for (unsigned tag = 0; tag < 2; tag++)
		assert_int_equal(submit(&users[0], tag, BACKEND_READ, tag * 4096),
				 is_home ? BACKEND_DONE : BACKEND_QUEUED);
	TURN_UNTIL(users[0].done_nr == (is_home ? 0 : 2));
	assert_int_equal(users[0].io[0].result, 0);
	assert_int_equal(users[0].io[0].throttle_ns, 7);
	assert_int_equal(users[0].io[1].result, -EIO);
	assert_int_equal(tree_of_user(&users[0])->home.busy_nr, 0);
}

static void test_only_read(void **state)
{
	(void)state;
	gates[0].limits.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_DISCARD;
	start(&users[0]);
	assert_int_equal(submit(&users[0], 0, BACKEND_WRITE, 0), BACKEND_DONE);
	assert_int_equal(users[0].io[0].result, -EIO);
	assert_int_equal(submit(&users[0], 0, BACKEND_DISCARD, 0), BACKEND_DONE);
	assert_int_equal(users[0].io[0].result, -EIO);
	assert_int_equal(submit(&users[0], 0, BACKEND_FLUSH, 0), BACKEND_DONE);
	assert_int_equal(users[0].io[0].result, 0);
	assert_int_equal(gates[0].out_nr, 0);
}

/* ---- more than there are tags ---- */

/* Both users have all their requests under way: 200 of them. */
static void start_many(void)
{
	for (unsigned i = 0; i < 2; i++)
		start(&users[i]);
	for (unsigned i = 0; i < 2; i++)
		for (unsigned tag = 0; tag < USER_DEPTH; tag++)
			submit_read(&users[i], tag, tag * 4096ull);
	TURN_UNTIL(gates[0].out_nr == SHARED_DEPTH);
	turns(3);
	assert_int_equal(gates[0].out_nr, SHARED_DEPTH);
}

/* The one that came last to the leaf. */
static const void *last_buf(void)
{
	return gates[0].out[gates[0].out_nr - 1]->buf;
}

static void test_more_than_tags_wait_in_order(void **state)
{
	unsigned first_waiting = SHARED_DEPTH - USER_DEPTH;

	(void)state;
	start_many();
	for (unsigned tag = first_waiting; tag < USER_DEPTH; tag++) {
		gate_complete(&gates[0], 0);
		assert_int_equal(gates[0].out_nr, SHARED_DEPTH);
		assert_ptr_equal(last_buf(), buf_of(&users[1], tag));
	}
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == USER_DEPTH && users[1].done_nr == USER_DEPTH);
	for (unsigned i = 0; i < USER_DEPTH; i++) {
		assert_int_equal(users[0].done[i], i);
		assert_int_equal(users[1].done[i], i);
	}
	assert_int_equal(tree_of_user(&users[0])->home.busy_nr, 0);
}

/* Who comes while others wait does not get the tag that has just become free. */
static void test_nobody_overtakes(void **state)
{
	unsigned first_waiting = SHARED_DEPTH - USER_DEPTH;

	(void)state;
	start_many();
	users[0].again_nr = 1; /* at home, before the tag goes to the next one */
	gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == 1);
	turns(3);
	assert_ptr_equal(last_buf(), buf_of(&users[1], first_waiting));
	for (unsigned tag = first_waiting + 1; tag < USER_DEPTH; tag++)
		gate_complete(&gates[0], 0);
	assert_ptr_equal(last_buf(), buf_of(&users[1], USER_DEPTH - 1));
	gate_complete(&gates[0], 0);
	assert_ptr_equal(last_buf(), buf_of(&users[0], 0));
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == USER_DEPTH + 1 && users[1].done_nr == USER_DEPTH);
}

/* Those that wait end at once when their turn comes. */
static void test_waiting_ones_end_at_once(void **state)
{
	(void)state;
	start_many();
	gates[0].answers_at_once = true;
	gate_complete(&gates[0], 0);
	assert_int_equal(gates[0].out_nr, SHARED_DEPTH - 1);
	TURN_UNTIL(users[1].done_nr == 2 * USER_DEPTH - SHARED_DEPTH);
	assert_int_equal(users[0].done_nr, 1);
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == USER_DEPTH && users[1].done_nr == USER_DEPTH);
}

static void test_leaf_is_busy(void **state)
{
	(void)state;
	gates[0].room = 2;
	start(&users[0]);
	for (unsigned tag = 0; tag < 5; tag++)
		submit_read(&users[0], tag, tag * 4096ull);
	for (unsigned tag = 0; tag < 5; tag++) {
		TURN_UNTIL(gates[0].out_nr == (tag < 4 ? 2 : 1));
		assert_ptr_equal(gates[0].out[0]->buf, buf_of(&users[0], tag));
		gate_complete(&gates[0], 0);
	}
	TURN_UNTIL(users[0].done_nr == 5);
}

/* ---- cancel ---- */

static void test_cancel_in_the_leaf(void **state)
{
	(void)state;
	start(&users[0]);
	submit_read(&users[0], 0, 0);
	submit_read(&users[0], 1, 4096);
	TURN_UNTIL(gates[0].out_nr == 2);
	backend_io_cancel(&users[0].io[1]);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].done[0], 1);
	assert_int_equal(users[0].io[1].result, backend_errno_map(-ECANCELED));
	assert_int_equal(gates[0].io_cancelled_nr, 1);
	gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == 2);
	assert_int_equal(users[0].io[0].result, 0);
}

/* The leaf has no room for it, and never hears of it. */
static void test_cancel_before_the_leaf(void **state)
{
	(void)state;
	gates[0].room = 1;
	start(&users[0]);
	submit_read(&users[0], 0, 0);
	submit_read(&users[0], 1, 4096);
	TURN_UNTIL(gates[0].out_nr == 1);
	turns(2);
	backend_io_cancel(&users[0].io[1]);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].done[0], 1);
	assert_int_equal(gates[0].io_cancelled_nr, 0);
	gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == 2);
}

static void test_cancel_while_it_waits_for_a_tag(void **state)
{
	unsigned first_waiting = SHARED_DEPTH - USER_DEPTH;

	(void)state;
	start_many();
	backend_io_cancel(&users[1].io[first_waiting]);
	TURN_UNTIL(users[1].done_nr == 1);
	assert_int_equal(users[1].done[0], first_waiting);
	assert_int_equal(users[1].io[first_waiting].result, backend_errno_map(-ECANCELED));
	assert_int_equal(gates[0].io_cancelled_nr, 0);
	/* A second time it is harmless. */
	backend_io_cancel(&users[1].io[first_waiting]);
	turns(3);
	/* The tag is for the next one. */
	gate_complete(&gates[0], 0);
	assert_ptr_equal(last_buf(), buf_of(&users[1], first_waiting + 1));
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == USER_DEPTH && users[1].done_nr == USER_DEPTH);
	assert_int_equal(tree_of_user(&users[0])->home.busy_nr, 0);
}

/* What a cancel frees goes to those that wait. */
static void test_cancelled_tag_is_used(void **state)
{
	(void)state;
	start_many();
	backend_io_cancel(&users[0].io[0]);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(gates[0].out_nr, SHARED_DEPTH);
	assert_ptr_equal(last_buf(), buf_of(&users[1], SHARED_DEPTH - USER_DEPTH));
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == USER_DEPTH && users[1].done_nr == USER_DEPTH);
}

/* Home has not even read the mail of the request. */
static void test_cancel_on_the_way(void **state)
{
	(void)state;
	start(&users[0]);
	submit_read(&users[0], 0, 0);
	backend_io_cancel(&users[0].io[0]);
	backend_io_cancel(&users[0].io[0]);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(gates[0].io_cancelled_nr, 1);
	assert_false(shared_io_of(&users[0], 0)->is_cancelling);
}

/* It ends while the cancel is under way: the mail of that has to be back before it is used again.
 */
static void test_cancel_just_as_it_ends(void **state)
{
	struct shared_io *s;

	(void)state;
	start(&users[0]);
	s = shared_io_of(&users[0], 0);
	submit_read(&users[0], 0, 0);
	TURN_UNTIL(gates[0].out_nr == 1);
	backend_io_cancel(&users[0].io[0]);
	gate_complete(&gates[0], 0);
	let_read(&rig.control);
	assert_true(s->is_cancelling && s->has_ended);
	assert_int_equal(users[0].done_nr, 0);
	/* Neither does it look as if it could be cancelled again. */
	backend_io_cancel(&users[0].io[0]);
	let_read(&rig.other);
	let_read(&rig.control);
	assert_int_equal(users[0].done_nr, 1);
	assert_int_equal(users[0].io[0].result, 0);
	assert_int_equal(gates[0].io_cancelled_nr, 0);
	assert_false(s->is_cancelling || s->has_ended);
	/* And again, for another request. */
	submit_read(&users[0], 0, 4096);
	TURN_UNTIL(gates[0].out_nr == 1);
	gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == 2);
}

/* ---- where a request is ---- */

static void test_where_it_is(void **state)
{
	struct backend_wait wait;

	(void)state;
	start_many();
	assert_ptr_equal(backend_io_where(&users[0].io[0], &wait), tree_of_user(&users[0])->device);
	assert_string_equal(wait.words, "waiting for an answer");
	/* Without a tag it is nowhere below. */
	assert_ptr_equal(backend_io_where(&users[1].io[USER_DEPTH - 1], &wait), users[1].device);
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == USER_DEPTH && users[1].done_nr == USER_DEPTH);
	assert_null(backend_io_where(&users[0].io[0], &wait));
	assert_null(shared_io_below(&users[0].io[0]));
}

/* ---- rest ---- */

static void test_last_one_waits_for_the_rest(void **state)
{
	(void)state;
	gates[0].is_busy = true;
	for (unsigned i = 0; i < 2; i++)
		start(&users[i]);
	/* The other one is awake. */
	assert_true(backend_queue_rest(users[0].queue));
	for (unsigned i = 0; i < 3; i++) {
		assert_false(backend_queue_rest(users[1].queue));
		turns(3);
	}
	assert_false(backend_queue_rest(users[0].queue));
	gates[0].is_busy = false;
	TURN_UNTIL(backend_queue_rest(users[1].queue));
	TURN_UNTIL(backend_queue_rest(users[0].queue));
}

/* A command gives the tree something to do, without a request of a user. */
static void test_no_rest_any_more(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		start(&users[i]);
		backend_queue_rest(users[i].queue);
	}
	TURN_UNTIL(backend_queue_rest(users[0].queue));
	gates[0].is_busy = true;
	for (unsigned i = 0; i < 3; i++) {
		assert_false(backend_queue_rest(users[0].queue));
		turns(3);
	}
	gates[0].is_busy = false;
	TURN_UNTIL(backend_queue_rest(users[0].queue));
}

/* One device that has it twice: both nodes rest, in one and the same look. */
static void test_rests_with_two_nodes(void **state)
{
	static const uint64_t chunk_bytes[] = { 4096,
						0 }; /* a stripe's configuration, without verify */
	struct backend_spec shared[2] = { users[0].spec, users[0].spec };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		shared[i].as = backend_stripe.children;
		shared[i].as_idx = i;
	}
	shared[0].sibling = &shared[1];
	users[0].spec = (struct backend_spec){ .ops = &backend_stripe,
					       .config = &chunk_bytes,
					       .child = &shared[0] };
	/* The stripe looks for labels. */
	gates[0].answers_at_once = true;
	start(&users[0]);
	TURN_UNTIL(backend_queue_rest(users[0].queue));
	close_queue(&users[0]);
	close_user(&users[0]);
}

/* A request wakes it: what was said of rest is no longer true. */
static void test_request_wakes_it(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		start(&users[i]);
	assert_true(backend_queue_rest(users[0].queue));
	TURN_UNTIL(backend_queue_rest(users[1].queue));
	/* One more answer, which the other one does not take. */
	backend_queue_rest(users[0].queue);
	TURN_UNTIL(backend_queue_rest(users[0].queue));
	gates[0].is_busy = true;
	submit_read(&users[1], 0, 0);
	TURN_UNTIL(gates[0].out_nr == 1);
	assert_true(backend_queue_rest(users[0].queue));
	gate_complete(&gates[0], 0);
	TURN_UNTIL(users[1].done_nr == 1);
	for (unsigned i = 0; i < 3; i++) {
		assert_false(backend_queue_rest(users[1].queue));
		turns(3);
	}
	gates[0].is_busy = false;
	TURN_UNTIL(backend_queue_rest(users[1].queue));
}

/* A queue that is closed without having been asked does not keep the others awake. */
static void test_closed_queue_is_not_awake(void **state)
{
	(void)state;
	gates[0].is_busy = true;
	for (unsigned i = 0; i < 3; i++)
		start(&users[i]);
	close_queue(&users[0]);
	assert_true(backend_queue_rest(users[1].queue));
	close_queue(&users[1]);
	assert_false(backend_queue_rest(users[2].queue));
	gates[0].is_busy = false;
	TURN_UNTIL(backend_queue_rest(users[2].queue));
	assert_int_equal(tree_of_user(&users[2])->home.awake_nr, 0);
	close_queue(&users[2]);
	assert_int_equal(tree_of_user(&users[2])->home.awake_nr, 0);
}

#define BOTH(fn) TEST(fn), TEST_OTHER_HOME(fn)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_right_bytes),
		BOTH(test_request_and_result),
		BOTH(test_ends_at_once),
		BOTH(test_only_read),
		BOTH(test_more_than_tags_wait_in_order),
		BOTH(test_nobody_overtakes),
		BOTH(test_waiting_ones_end_at_once),
		BOTH(test_leaf_is_busy),
		BOTH(test_cancel_in_the_leaf),
		BOTH(test_cancel_before_the_leaf),
		BOTH(test_cancel_while_it_waits_for_a_tag),
		BOTH(test_cancelled_tag_is_used),
		TEST_OTHER_HOME(test_cancel_on_the_way),
		TEST_OTHER_HOME(test_cancel_just_as_it_ends),
		BOTH(test_where_it_is),
		BOTH(test_last_one_waits_for_the_rest),
		BOTH(test_no_rest_any_more),
		BOTH(test_rests_with_two_nodes),
		BOTH(test_request_wakes_it),
		BOTH(test_closed_queue_is_not_awake),
	};

	return cmocka_run_group_tests(tests, log_errors_only, NULL);
}
