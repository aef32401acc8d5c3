/* socket: clients that want everything for themselves: turns, and bounds of what is unread. */
#include "test/rig/socket_rig.h"

#define GREEDY_NR 20
#define GREEDY_REQUESTS 200

/* Each has sent many requests, and all have had a turn. */
static void connect_greedy(struct peer *p)
{
	static char text[GREEDY_REQUESTS * 5 + 1];

	for (unsigned i = 0; i < GREEDY_REQUESTS; i++)
		memcpy(text + (size_t)i * 5, "work\n", 5);
	for (unsigned i = 0; i < GREEDY_NR; i++) {
		p[i] = peer_connect(path);
		assert_int_equal(send(p[i].fd, text, strlen(text), 0), strlen(text));
	}
	while (worked_nr < 2 * GREEDY_NR)
		peer_pump();
}

/* Counted in requests of others, so that the machine's load does not matter. */
static void test_greedy_clients_starve_nobody(void **state)
{
	struct peer greedy[GREEDY_NR], p;

	(void)state;
	connect_greedy(greedy);
	for (int i = 0; i < 5; i++) {
		worked_nr = 0;
		p = peer_connect(path);
		assert_int_equal(send(p.fd, "hello\n", 6, 0), 6);
		peer_expect(&p, "hello");
		assert_in_range(worked_nr, 0, GREEDY_NR / 2);
		/* Nor is it starved by its own next request. */
		worked_nr = 0;
		assert_int_equal(send(p.fd, "work\n", 5, 0), 5);
		peer_expect(&p, "worked");
		assert_in_range(worked_nr, 1, GREEDY_NR / 2);
		peer_close(&p);
	}
	for (unsigned i = 0; i < GREEDY_NR; i++)
		peer_close(&greedy[i]);
}

/* The rest of the daemon has its turn after each request that took long. */
static void test_requests_leave_the_loop_its_turn(void **state)
{
	struct peer greedy[GREEDY_NR];

	(void)state;
	connect_greedy(greedy);
	for (int i = 0; i < 20; i++) {
		worked_nr = 0;
		peer_pump();
		assert_in_range(worked_nr, 0, 1);
	}
	for (unsigned i = 0; i < GREEDY_NR; i++)
		peer_close(&greedy[i]);
}

/* Nor are they starved, by each other or by those who come anew for each request. */
static void test_greedy_clients_go_on(void **state)
{
	struct peer greedy[GREEDY_NR], fresh[3] = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };
	unsigned got[GREEDY_NR] = { 0 };
	char *line;

	(void)state;
	connect_greedy(greedy);
	worked_nr = 0;
	/* Some of these always wait. */
	for (unsigned i = 0; i < 100; i++) {
		struct peer *p = &fresh[i % ARRAY_SIZE(fresh)];

		if (p->fd >= 0)
			peer_expect(p, "worked");
		peer_close(p);
		*p = peer_connect(path);
		assert_int_equal(send(p->fd, "work\n", 5, 0), 5);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(fresh); i++)
		peer_close(&fresh[i]);
	assert_true(worked_nr > 130); /* 100 are of those that came anew */
	for (unsigned i = 0; i < GREEDY_NR; i++) {
		peer_read_some(&greedy[i]);
		while (greedy[i].in_bytes && (line = peer_line(&greedy[i]))) {
			free(line);
			got[i]++;
		}
		/* Parts of time, not of requests. */
		assert_in_range(got[i], 1, GREEDY_REQUESTS);
		peer_close(&greedy[i]);
	}
}

/* One that takes a byte now and then does not keep its answer for ever. */
static void test_answer_is_taken_too_slowly(void **state)
{
	double begin = ev_time();
	struct peer p;
	char byte;

	(void)state;
	server.answer_seconds = 0.3;
	p = peer_connect(path);
	peer_send(&p, "flood\n");
	peer_pump_for(0.02);
	while (server.client_nr > 0 && ev_time() < begin + PEER_OUTAGE_TIMEOUT_SECONDS) {
		char some[65536];

		assert_true(recv(p.fd, some, sizeof(some), 0) > 0);
		peer_pump_for(0.01);
	}
	assert_int_equal(server.client_nr, 0);
	assert_int_equal(server.unread_bytes, 0);
	while (recv(p.fd, &byte, 1, 0) > 0)
		;
	peer_close(&p);
}

static void test_unread_answers_have_a_limit(void **state)
{
	struct peer deaf[4];
	char *line;

	(void)state;
	server.unread_bytes_max = 2 * FLOOD_BYTES;
	for (unsigned i = 0; i < ARRAY_SIZE(deaf); i++) {
		deaf[i] = peer_connect(path);
		peer_send(&deaf[i], "flood\n");
		peer_pump_for(0.02);
		assert_in_range(server.unread_bytes, 1, 2 * FLOOD_BYTES);
	}
	/* What sockets hold is not counted. */
	assert_in_range(server.client_nr, 2, 3);
	for (unsigned i = 0; i < ARRAY_SIZE(deaf); i++)
		peer_close(&deaf[i]);
	peer_pump_for(0.02);
	assert_int_equal(server.unread_bytes, 0);
	/* A single one may be larger than that. */
	server.unread_bytes_max = 10;
	deaf[0] = peer_connect(path);
	peer_send(&deaf[0], "flood\n");
	line = peer_line(&deaf[0]);
	assert_non_null(line);
	assert_int_equal(strlen(line), FLOOD_BYTES);
	free(line);
	peer_close(&deaf[0]);
}

static void test_client_leaves_before_its_turn(void **state)
{
	struct peer greedy[GREEDY_NR];

	(void)state;
	connect_greedy(greedy);
	socket_fini(&server);
	assert_int_equal(server.waiting_nr, 0);
	for (unsigned i = 0; i < GREEDY_NR; i++)
		peer_close(&greedy[i]);
	assert_int_equal(start(state), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_greedy_clients_starve_nobody),
		TEST(test_requests_leave_the_loop_its_turn),
		TEST(test_greedy_clients_go_on),
		TEST(test_answer_is_taken_too_slowly),
		TEST(test_unread_answers_have_a_limit),
		TEST(test_client_leaves_before_its_turn),
	};

	return cmocka_run_group_tests_name("socket_turns", tests, setup, teardown);
}
