/* session: what becomes of requests while the peer is away. */
#include "net/options.h"
#include "test/rig/session_rig.h"

/* {queue: 100ms}: held, then failed, and so is what comes; until an answer. */
static void test_outage(void **state)
{
	(void)state;
	params.outage_timeout_ns = 100 * NS_PER_MS;
	begin();
	peer_serve(&peers[0]);
	peer_is_down(&peers[0]);
	UNTIL(serving_nr() == 0);
	assert_int_equal(submit(0), 0);
	turn_some();
	assert_int_equal(toy.io[0].done_nr, 0);
	expect_done(0, 1, -EIO);
	assert_int_equal(submit(0), -EIO);
	assert_int_equal(toy.io[0].done_nr, 1);
	peer_listen(&peers[0]);
	peer_serve(&peers[0]);
	/* It is there, and has answered nothing. */
	assert_true(toy.s.gave_up);
	assert_int_equal(submit(0), 0);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 2, 0);
	assert_false(toy.s.gave_up);
}

/* A peer that takes requests and goes without a word is not back: the time goes on. */
static void test_outage_of_one_that_accepts(void **state)
{
	(void)state;
	params.timeout_ns = params.outage_timeout_ns = 300 * NS_PER_MS;
	begin();
	assert_int_equal(submit(0), 0);
	while (toy.io[0].done_nr == 0) {
		peers[0].fd = accept4(peers[0].listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (peers[0].fd >= 0) {
			peer_say(&peers[0], 'O', 'K');
			turn_some();
			close(peers[0].fd);
		}
		peers[0].fd = -1;
		reactor_turn(&r, false);
	}
	expect_done(0, 1, -EIO);
	assert_true(look(0).connects > 1);
}

/* `fail`: what is lost fails at once, what comes too, and the first connection is waited for. */
static void test_no_outage(void **state)
{
	(void)state;
	params.outage_timeout_ns = 0;
	begin();
	assert_int_equal(submit(0), 0);
	peer_serve(&peers[0]);
	assert_int_equal(submit(1), 0);
	peer_is_down(&peers[0]);
	expect_done(0, 1, -EIO);
	expect_done(1, 1, -EIO);
	assert_int_equal(toy.io[0].asked_nr, 1);
	assert_int_equal(submit(0), -EIO);
}

/* One that fails fast waits for the first connection, and for no other; another one waits. */
static void test_fails_fast(void **state)
{
	(void)state;
	begin();
	toy.fast = 1u << 0;
	assert_int_equal(submit(0), 0);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 0);
	peer_say(&peers[0], 'a', 0);
	expect_done(0, 1, 0);
	assert_int_equal(submit(0), 0);
	assert_int_equal(submit(1), 0);
	peer_is_down(&peers[0]);
	expect_done(0, 2, -ENOLINK);
	assert_int_equal(submit(0), -ENOLINK);
	turn_some();
	assert_int_equal(toy.io[1].done_nr, 0);
	peer_listen(&peers[0]);
	peer_serve(&peers[0]);
	peer_expects_request(&peers[0], 1);
	peer_say(&peers[0], 'a', 1);
	expect_done(1, 1, 0);
}

/* What a server may make us wait: never so long that it is not asked again in time. */
static void test_wishes(void **state)
{
	static const struct {
		uint64_t limit_ns, wish_ns, grant_ns;
	} cases[] = {
		{ 30 * NS_PER_SEC, 7 * NS_PER_SEC, 7 * NS_PER_SEC },
		{ 30 * NS_PER_SEC, 15 * NS_PER_SEC + 1, 15 * NS_PER_SEC },
		{ 5 * NS_PER_SEC, 3600 * NS_PER_SEC, 5 * NS_PER_SEC / 2 },
		{ 3600 * NS_PER_SEC, 3600 * NS_PER_SEC, 60 * NS_PER_SEC },
		{ OPTION_FOREVER, UINT64_MAX, 60 * NS_PER_SEC },
		{ 0, UINT64_MAX, NS_PER_SEC },
		{ 0, 1, 1 },
		{ OPTION_FOREVER, 0, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct net_outage_config outage = { .outage_timeout_ns = cases[i].limit_ns };

		assert_int_equal(net_outage_grant_ns(&outage, cases[i].wish_ns), cases[i].grant_ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SESSION(test_outage),	       SESSION(test_outage_of_one_that_accepts),
		SESSION(test_no_outage),       SESSION(test_fails_fast),
		cmocka_unit_test(test_wishes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
