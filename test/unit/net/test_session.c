/* session: requests by connections that come and go, with a toy protocol. */
#include "test/rig/session_rig.h"

static void test_answers(void **state)
{
	struct net_connection_look seen;

	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	assert_string_equal(session_request_doing(&toy.io[0].r), "waiting for the server's answer");
	peer_expects_request(&peers[0], 0);
	peer_expects_request(&peers[0], 1);
	peer_say(&peers[0], 'e', 1);
	peer_say(&peers[0], 'a', 0);
	expect_done(1, 1, -EIO);
	expect_done(0, 1, 0);
	assert_null(session_request_doing(&toy.io[0].r));
	assert_int_equal(toy.left_nr, 2);
	seen = look(0);
	assert_string_equal(seen.state, "connected");
	assert_true(seen.connects == 1 && seen.lost == 0 && seen.last_end == -1);
	assert_true(seen.answered == 2 && seen.resent == 0);
	assert_false(session_look(&toy.s, 1, &seen));
}

/* In the order in which they came; what `done` adds goes behind. */
static void test_held(void **state)
{
	(void)state;
	begin();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(submit(i), 0);
	assert_string_equal(session_request_doing(&toy.io[0].r),
			    "waiting for the server to come back");
	peer_serve(&peers[0]);
	toy.again = &toy.io[3];
	for (unsigned i = 0; i < 3; i++) {
		peer_expects_request(&peers[0], i);
		peer_say(&peers[0], 'a', i);
	}
	for (unsigned i = 0; i < 3; i++)
		expect_done(i, 1, 0);
	peer_expects_request(&peers[0], 3);
	peer_say(&peers[0], 'a', 3);
	expect_done(3, 1, 0);
}

/* ---- the peer is gone ---- */

/* What was not answered goes again by the connection that comes next, the other not. */
static void test_resends(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 1);
	assert_true(peer_hears_nothing(&peers[0]));
	peer_say(&peers[0], 'a', 1);
	expect_done(1, 1, 0);
	assert_int_equal(toy.lost_nr, 1);
	assert_int_equal(toy.io[0].asked_nr, 0);
	assert_int_equal(toy.io[1].asked_nr, 1);
	assert_true(look(0).resent == 1 && look(0).lost == 1);
	assert_int_equal(look(0).ends[NET_END_CLOSED], 1);
}

static void test_may_not_resend(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	toy.may_resend = -ENODATA;
	close(peers[0].fd);
	peers[0].fd = -1;
	expect_done(0, 1, -ENODATA);
	peer_serve(&peers[0]);
	assert_true(peer_hears_nothing(&peers[0]));
}

/* Another peer than before: nothing is sent again or tried again. */
static void test_over(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	toy.over = true;
	close(peers[0].fd);
	peers[0].fd = -1;
	expect_done(0, 1, -EIO);
	assert_string_equal(look(0).state, "closed");
	turn_some();
	assert_true(accept4(peers[0].listener, NULL, NULL, SOCK_NONBLOCK) < 0);
}

/* ---- one that does not do as it should ---- */

static void test_no_answer(void **state)
{
	(void)state;
	params.timeout_ns = 50 * NS_PER_MS;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	UNTIL(look(0).ends[NET_END_SILENT] == 1);
	assert_int_equal(toy.io[0].done_nr, 0);
	toy.s.timeout_ns = 60 * NS_PER_SEC;
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
}

/* The time of a request that is answered ends, and nobody minds. */
static void test_answered_in_time(void **state)
{
	struct session_connection *c;

	(void)state;
	begin();
	peer_serve(&peers[0]);
	toy.s.timeout_ns = 300 * NS_PER_MS;
	c = toy.s.connection[0];
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
	UNTIL(!c->timer.armed);
	turn_some();
	assert_string_equal(look(0).state, "connected");
}

static void test_no_hello(void **state)
{
	(void)state;
	params.timeout_ns = 50 * NS_PER_MS;
	begin();
	peer_accept(&peers[0]);
	UNTIL(look(0).ends[NET_END_SILENT] == 1);
	assert_true(look(0).connects == 0 && look(0).failed_tries == 1);
	peer_accept(&peers[0]);
	peer_say(&peers[0], 'N', 'O');
	UNTIL(look(0).ends[NET_END_REFUSED] == 1);
	peer_accept(&peers[0]);
	close(peers[0].fd);
	peers[0].fd = -1;
	UNTIL(look(0).ends[NET_END_CLOSED] == 1);
	assert_int_equal(look(0).failed_tries, 3);
	assert_int_equal(toy.lost_nr, 0);
}

static void test_breaks_the_protocol(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], '?', 0);
	UNTIL(look(0).ends[NET_END_PROTOCOL] == 1);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
	/* Nobody asked. */
	peer_say(&peers[0], 'a', 0);
	UNTIL(look(0).ends[NET_END_PROTOCOL] == 2);
}

/* ---- taking back ---- */

static void test_cancel_held(void **state)
{
	(void)state;
	begin();
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	session_cancel(&toy.s, &toy.io[0].r);
	expect_done(0, 1, -ECANCELED);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 1);
	assert_true(peer_hears_nothing(&peers[0]));
	peer_say(&peers[0], 'a', 1);
	expect_done(1, 1, 0);
}

/* The others of its connection are sent again. */
static void test_cancel_sent(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	session_cancel(&toy.s, &toy.io[0].r);
	assert_int_equal(toy.io[0].done_nr, 0);
	expect_done(0, 1, -ECANCELED);
	assert_int_equal(look(0).last_end, NET_END_CANCELLED);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 1);
	peer_say(&peers[0], 'a', 1);
	expect_done(1, 1, 0);
}

/* ---- several connections ---- */

static void begin_two(void)
{
	static const char *const path[] = { "first", "second" };

	params.connection_nr = 2;
	params.path = path;
	addresses.nr = 2;
	begin();
	peer_serve(&peers[0]);
	peer_serve(&peers[1]);
}

/* By turns; what one lost goes to the other at once. */
static void test_two_connections(void **state)
{
	(void)state;
	begin_two();
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	peer_expects_request(&peers[0], 0);
	peer_expects_request(&peers[1], 1);
	peer_is_down(&peers[0]);
	peer_expects_request(&peers[1], 0);
	peer_say(&peers[1], 'a', 0);
	peer_say(&peers[1], 'a', 1);
	expect_done(0, 1, 0);
	expect_done(1, 1, 0);
	assert_int_equal(look(1).resent, 1);
	/* The address is a path. */
	UNTIL(look(0).ends[NET_END_UNREACHABLE] >= 3);
	assert_true(accept4(peers[1].listener, NULL, NULL, SOCK_NONBLOCK) < 0);
}

/* Requests prefer one, and take the other when there is no better. */
static void test_ranks(void **state)
{
	(void)state;
	begin_two();
	session_rank_set(toy.s.connection[0], SESSION_USABLE);
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[1], 0);
	session_rank_set(toy.s.connection[1], SESSION_UNUSABLE);
	assert_int_equal(submit(1), 0);
	peer_expects_request(&peers[0], 1);
	session_rank_set(toy.s.connection[0], SESSION_UNUSABLE);
	assert_int_equal(submit(2), 0);
	assert_true(peer_hears_nothing(&peers[0]) && peer_hears_nothing(&peers[1]));
	session_rank_set(toy.s.connection[1], SESSION_USABLE);
	peer_expects_request(&peers[1], 2);
	for (unsigned i = 0; i < 3; i++)
		peer_say(&peers[i != 1], 'a', i);
	for (unsigned i = 0; i < 3; i++)
		expect_done(i, 1, 0);
}

/* It outlives the connection. */
static void test_rank_stays(void **state)
{
	(void)state;
	begin_two();
	session_rank_set(toy.s.connection[0], SESSION_USABLE);
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[1], 0);
	peer_say(&peers[1], 'a', 0);
	expect_done(0, 1, 0);
}

/* All paths are there and none is usable: an outage as any other. */
static void test_ranks_outage(void **state)
{
	(void)state;
	params.outage_timeout_ns = 100 * NS_PER_MS;
	begin_two();
	session_rank_set(toy.s.connection[0], SESSION_UNUSABLE);
	session_rank_set(toy.s.connection[1], SESSION_UNUSABLE);
	assert_int_equal(submit(0), 0);
	expect_done(0, 1, -EIO);
}

/* An answer by one that is of no use any more: what is held still waits no longer than it may. */
static void test_ranks_outage_of_held(void **state)
{
	(void)state;
	params.outage_timeout_ns = 100 * NS_PER_MS;
	begin_two();
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[0], 0);
	session_rank_set(toy.s.connection[0], SESSION_UNUSABLE);
	session_rank_set(toy.s.connection[1], SESSION_UNUSABLE);
	assert_int_equal(submit(1), 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
	expect_done(1, 1, -EIO);
}

/* The next outage has its whole time, though none was answered since the last: none had to wait. */
static void test_ranks_outage_of_idle(void **state)
{
	(void)state;
	params.outage_timeout_ns = 100 * NS_PER_MS;
	begin_two();
	session_rank_set(toy.s.connection[0], SESSION_UNUSABLE);
	session_rank_set(toy.s.connection[1], SESSION_UNUSABLE);
	assert_true(toy.s.outage.armed);
	session_rank_set(toy.s.connection[1], SESSION_USABLE);
	assert_false(toy.s.outage.armed);
	session_rank_set(toy.s.connection[1], SESSION_UNUSABLE);
	UNTIL(toy.s.gave_up);
	session_rank_set(toy.s.connection[1], SESSION_USABLE);
	session_rank_set(toy.s.connection[1], SESSION_UNUSABLE);
	assert_int_equal(submit(0), 0);
	session_rank_set(toy.s.connection[1], SESSION_USABLE);
	peer_expects_request(&peers[1], 0);
	peer_say(&peers[1], 'a', 0);
	expect_done(0, 1, 0);
}

/* "Not I": the other one does it, as the first has become a spare one. */
static void test_refused(void **state)
{
	(void)state;
	begin_two();
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'b', 0);
	peer_say(&peers[0], 'x', 0);
	peer_expects_request(&peers[1], 0);
	peer_say(&peers[1], 'a', 0);
	expect_done(0, 1, 0);
	assert_int_equal(toy.io[0].asked_nr, 1);
	assert_string_equal(look(0).state, "connected");
}

/* It goes: it gets no more, answers what it has, hears a last word, and is tried again. */
static void test_retires(void **state)
{
	(void)state;
	begin_two();
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(2), 0);
	peer_expects_request(&peers[0], 0);
	peer_expects_request(&peers[0], 2);
	peer_say(&peers[0], 'g', 0);
	peer_expects_request(&peers[1], 0);
	assert_string_equal(look(0).state, "leaving");
	assert_int_equal(submit(4), 0);
	peer_expects_request(&peers[1], 4);
	peer_say(&peers[0], 'a', 2);
	expect_done(2, 1, 0);
	peer_expects(&peers[0], "BYE!", 4);
	peer_serve(&peers[0]);
	assert_int_equal(look(0).ends[NET_END_SHUTDOWN], 1);
	peer_say(&peers[1], 'a', 0);
	peer_say(&peers[1], 'a', 4);
	expect_done(0, 1, 0);
	expect_done(4, 1, 0);
}

static void test_retires_idle(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	session_retire(toy.s.connection[0]);
	peer_expects(&peers[0], "BYE!", 4);
	peer_serve(&peers[0]);
	assert_int_equal(look(0).ends[NET_END_SHUTDOWN], 1);
}

/* Nobody at the first address. */
static void test_next_address(void **state)
{
	(void)state;
	addresses.nr = 2;
	peer_is_down(&peers[0]);
	begin();
	peer_serve(&peers[1]);
	assert_int_equal(look(0).ends[NET_END_UNREACHABLE], 1);
}

/* ---- what the protocol does by itself ---- */

static void test_keepalive(void **state)
{
	(void)state;
	params.keepalive_ns = 20 * NS_PER_MS;
	params.timeout_ns = 200 * NS_PER_MS;
	begin();
	peer_serve(&peers[0]);
	for (unsigned i = 0; i < 3; i++) {
		peer_expects(&peers[0], "k\xff", 2);
		peer_say(&peers[0], 'a', TOY_OWN);
	}
	/* Then it is silent. */
	assert_int_equal(submit(0), 0);
	UNTIL(look(0).ends[NET_END_SILENT] == 1);
	assert_int_equal(toy_of(toy.s.connection[0])->own.result, -ECONNRESET);
	assert_int_equal(toy_of(toy.s.connection[0])->own.asked_nr, 0);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
}

/* The peer asks for more of the first, whose last byte is behind the second from then on. */
static void test_sends_more(void **state)
{
	const struct list_node *last;

	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	peer_expects_request(&peers[0], 0);
	peer_expects_request(&peers[0], 1);
	peer_say(&peers[0], 'm', 0);
	peer_expects(&peers[0], "more", 4);
	last = toy.s.connection[0]->sent.prev;
	assert_ptr_equal(last, &toy.io[0].r.node);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
	peer_say(&peers[0], 'a', 1);
	expect_done(1, 1, 0);
}

/* Both are on their way when the peer asks: nothing is taken for sent that is not. */
static void test_sends_more_at_once(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	assert_int_equal(submit(0), 0);
	peer_say(&peers[0], 'm', 0);
	peer_say(&peers[0], 'a', 0);
	peer_expects_request(&peers[0], 0);
	peer_expects(&peers[0], "more", 4);
	expect_done(0, 1, 0);
	assert_true(list_empty(&toy.s.connection[0]->sent));
	assert_ptr_equal(toy.s.connection[0]->unsent, &toy.s.connection[0]->sent);
}

/* ---- the end ---- */

static void test_goodbye(void **state)
{
	(void)state;
	begin();
	peer_serve(&peers[0]);
	session_fini(&toy.s);
	reactor_fini(&r);
	peer_expects(&peers[0], "BYE!", 4);
	assert_int_equal(
		reactor_init(&r, &(struct reactor_params){ .sq_entries = 8, .cq_entries = 16 }), 0);
}

/* Its own request is under way, and nobody hears of its end. */
static void test_end_with_own_request(void **state)
{
	struct toy_connection *conn;

	(void)state;
	begin();
	peer_serve(&peers[0]);
	conn = toy_of(toy.s.connection[0]);
	assert_int_equal(session_send_own(&conn->c, &conn->own.r), 0);
}

static void test_end_while_it_connects(void **state)
{
	(void)state;
	params.connection_nr = 3;
	begin();
	peer_accept(&peers[0]);
}

static void test_end_at_once(void **state)
{
	(void)state;
	begin();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SESSION(test_answers),
		SESSION(test_held),
		SESSION(test_resends),
		SESSION(test_may_not_resend),
		SESSION(test_over),
		SESSION(test_no_answer),
		SESSION(test_answered_in_time),
		SESSION(test_no_hello),
		SESSION(test_breaks_the_protocol),
		SESSION(test_cancel_held),
		SESSION(test_cancel_sent),
		SESSION(test_two_connections),
		SESSION(test_ranks),
		SESSION(test_rank_stays),
		SESSION(test_ranks_outage),
		SESSION(test_ranks_outage_of_held),
		SESSION(test_ranks_outage_of_idle),
		SESSION(test_refused),
		SESSION(test_retires),
		SESSION(test_retires_idle),
		SESSION(test_next_address),
		SESSION(test_keepalive),
		SESSION(test_sends_more),
		SESSION(test_sends_more_at_once),
		SESSION(test_goodbye),
		SESSION(test_end_with_own_request),
		SESSION(test_end_while_it_connects),
		SESSION(test_end_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
