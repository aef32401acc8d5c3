/* socket: the transport alone, with a handler that echoes, holds back or floods. */
#include "test/rig/socket_rig.h"

static void test_line_in_line_out(void **state)
{
	struct peer p = peer_connect(path);

	(void)state;
	peer_send(&p, "one\n");
	peer_expect(&p, "one");
	peer_send(&p, "two\n");
	peer_expect(&p, "two");
	peer_close(&p);
	peer_pump_for(0.05);
	assert_int_equal(server.client_nr, 0);
}

static void test_mode_is_private(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_byte_by_byte(void **state)
{
	struct peer p = peer_connect(path);

	(void)state;
	for (const char *c = "slow\nand steady\n"; *c; c++)
		assert_true(peer_send_bytes(&p, c, 1));
	peer_expect(&p, "slow");
	peer_expect(&p, "and steady");
	peer_close(&p);
}

static void test_many_requests_in_one_write(void **state)
{
	struct peer p = peer_connect(path);
	char text[4096], expected[8];
	size_t len = 0;

	(void)state;
	for (int i = 0; i < 500; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "r%d\n", i);
	assert_true(peer_send(&p, text));
	for (int i = 0; i < 500; i++) {
		snprintf(expected, sizeof(expected), "r%d", i);
		peer_expect(&p, expected);
	}
	peer_close(&p);
}

static void test_requests_then_end_of_input(void **state)
{
	struct peer p = peer_connect(path);

	(void)state;
	peer_send(&p, "one\ntwo\nthree");
	shutdown(p.fd, SHUT_WR);
	peer_expect(&p, "one");
	peer_expect(&p, "two");
	assert_true(peer_closed(&p)); /* three never was a line */
	peer_close(&p);
}

static void test_longest_request(void **state)
{
	size_t bytes = SOCKET_REQUEST_BYTES_MAX - 1;
	struct peer p = peer_connect(path);
	char *text = malloc(bytes + 2), *line;

	(void)state;
	memset(text, 'a', bytes);
	strcpy(text + bytes, "\n");
	assert_true(peer_send(&p, text));
	line = peer_line(&p);
	assert_non_null(line);
	assert_int_equal(strlen(line), bytes);
	free(line);
	free(text);
	peer_close(&p);
}

static void test_too_long_request(void **state)
{
	size_t bytes = SOCKET_REQUEST_BYTES_MAX;
	struct peer p = peer_connect(path);
	char *text = malloc(bytes + 1);

	(void)state;
	memset(text, 'a', bytes);
	text[bytes] = '\0';
	peer_send(&p, text);
	peer_expect(&p, "{\"ok\":false,\"error\":\"request is longer than 1 MiB\"}");
	assert_true(peer_closed(&p));
	free(text);
	peer_close(&p);
}

static void test_close_after_answer(void **state)
{
	struct peer p = peer_connect(path);

	(void)state;
	peer_send(&p, "bye\nnot heard\n");
	peer_expect(&p, "bye");
	assert_true(peer_closed(&p));
	peer_close(&p);
}

static void test_no_memory_for_the_answer(void **state)
{
	struct peer p = peer_connect(path);

	(void)state;
	peer_send(&p, "nothing\n");
	assert_true(peer_closed(&p));
	peer_close(&p);
}

/* What one client in this state has left of its time, at most `seconds`, is over soon. */
static void hurry(enum client_state state, double seconds)
{
	unsigned nr = 0;

	list_for_each (node, &server.clients) {
		struct socket_client *c = list_entry(node, struct socket_client, node);

		if (c->state != state)
			continue;
		assert_true(ev_is_active(&c->timeout));
		assert_true(c->timeout.repeat > 0 && c->timeout.repeat <= seconds);
		c->timeout.repeat = 0.01;
		ev_timer_again(peer_loop, &c->timeout);
		nr++;
	}
	assert_int_equal(nr, 1);
}

static void wait_for_clients(unsigned nr)
{
	double until = ev_time() + PEER_OUTAGE_TIMEOUT_SECONDS;

	while (server.client_nr != nr && ev_time() < until)
		peer_pump();
	assert_int_equal(server.client_nr, nr);
}

static void test_idle_client_is_dropped(void **state)
{
	struct peer p;

	(void)state;
	p = peer_connect(path);
	peer_send(&p, "one\n");
	peer_expect(&p, "one");
	hurry(CLIENT_READING, SOCKET_IDLE_SECONDS);
	assert_true(peer_closed(&p));
	peer_close(&p);
}

/* A byte now and then is not a request. */
static void test_dripping_client_is_dropped(void **state)
{
	double begin = ev_time();
	struct peer p;

	(void)state;
	server.idle_seconds = 0.5;
	p = peer_connect(path);
	while (peer_send(&p, "x") && ev_time() < begin + PEER_OUTAGE_TIMEOUT_SECONDS)
		peer_pump_for(0.01);
	assert_int_equal(server.client_nr, 0);
	assert_true(ev_time() - begin >= 0.4);
	peer_close(&p);
}

/* The answer stays where it is; others are served; then the client is dropped. */
static void test_client_that_never_reads(void **state)
{
	struct peer deaf, other;

	(void)state;
	deaf = peer_connect(path);
	peer_send(&deaf, "flood\n");
	other = peer_connect(path);
	peer_send(&other, "still there?\n");
	peer_expect(&other, "still there?");
	assert_int_equal(server.client_nr, 2);
	hurry(CLIENT_WRITING, SOCKET_WRITE_SECONDS);
	wait_for_clients(1);
	peer_close(&deaf);
	peer_close(&other);
}

/* Requests that nobody reads the answers of are not taken in: memory has a bound. */
static void test_client_that_only_sends(void **state)
{
	struct peer p = peer_connect(path);
	char line[1000];
	size_t sent = 0;

	(void)state;
	server.write_seconds = 600;
	memset(line, 'y', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	for (int i = 0; i < 2000; i++) {
		ssize_t ret = send(p.fd, line, sizeof(line), MSG_NOSIGNAL);

		sent += ret > 0 ? (size_t)ret : 0;
		peer_pump();
	}
	/* What sockets hold both ways, and one request. */
	assert_true(sent < 4000000);
	assert_int_equal(server.client_nr, 1);
	/* Its last answer found no room from the start. */
	hurry(CLIENT_WRITING, 600);
	wait_for_clients(0);
	peer_close(&p);
}

static void test_flood_is_read_to_its_end(void **state)
{
	struct peer p = peer_connect(path);
	char *line;

	(void)state;
	peer_send(&p, "flood\nafter\n");
	line = peer_line(&p);
	assert_non_null(line);
	assert_int_equal(strlen(line), FLOOD_BYTES);
	free(line);
	peer_expect(&p, "after");
	peer_close(&p);
}

static void test_answer_comes_later(void **state)
{
	struct peer p, other;

	(void)state;
	p = peer_connect(path);
	peer_send(&p, "hold\nnext\n");
	peer_pump_for(0.02);
	assert_non_null(held);
	assert_false(ev_is_active(&held->timeout)); /* not for one that waits for its answer */
	other = peer_connect(path);
	peer_send(&other, "hello\n");
	peer_expect(&other, "hello");
	socket_reply(held, strdup("late"), false);
	peer_expect(&p, "late");
	peer_expect(&p, "next");
	peer_close(&p);
	peer_close(&other);
}

/* Whoever waits and goes away is found out when it is answered. */
static void test_client_leaves_while_waiting(void **state)
{
	struct peer p = peer_connect(path);

	(void)state;
	peer_send(&p, "hold\n");
	peer_pump_for(0.02);
	assert_non_null(held);
	peer_close(&p);
	peer_pump_for(0.02);
	assert_int_equal(canceled_nr, 0);
	socket_reply(held, strdup("nobody hears this"), false);
	peer_pump_for(0.02);
	assert_int_equal(server.client_nr, 0);
}

static void test_end_cancels_what_waits(void **state)
{
	struct peer p = peer_connect(path);

	peer_send(&p, "hold\n");
	peer_pump_for(0.02);
	socket_fini(&server);
	assert_int_equal(canceled_nr, 1);
	assert_true(peer_closed(&p));
	peer_close(&p);
	assert_int_equal(start(state), 0);
}

static void test_too_many_clients(void **state)
{
	struct peer p[SOCKET_CLIENTS_MAX], extra;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = peer_connect(path);
		peer_pump();
	}
	peer_pump_for(0.05);
	assert_int_equal(server.client_nr, SOCKET_CLIENTS_MAX);
	extra = peer_connect(path);
	peer_expect(&extra, "{\"ok\":false,\"error\":\"too many clients\"}");
	assert_true(peer_closed(&extra));
	peer_close(&extra);
	peer_close(&p[0]);
	peer_pump_for(0.02);
	extra = peer_connect(path);
	peer_send(&extra, "room again\n");
	peer_expect(&extra, "room again");
	peer_close(&extra);
	for (size_t i = 1; i < ARRAY_SIZE(p); i++) {
		peer_send(&p[i], "hi\n");
		peer_expect(&p[i], "hi");
		peer_close(&p[i]);
	}
}

/* Out of descriptors: the loop does not spin, and goes on when there are some again. */
static void test_out_of_descriptors(void **state)
{
	struct rlimit before, none;
	struct peer p;

	(void)state;
	p = peer_connect(path);
	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	peer_send(&p, "hello\n");
	peer_pump_for(0.05);
	assert_true(ev_is_active(&server.pause));
	assert_false(ev_is_active(&server.acceptable));
	setrlimit(RLIMIT_NOFILE, &before);
	peer_expect(&p, "hello");
	peer_close(&p);
}

static void test_not_before_listen(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	socket_fini(&server);
	assert_int_equal(socket_bind(&server, peer_loop, path), 0);
	strcpy(addr.sun_path, path);
	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	socket_fini(&server);
	assert_int_equal(start(state), 0);
}

/* A killed daemon leaves its socket; any other file is not ours to remove. */
static void test_what_is_in_the_way(void **state)
{
	int fd;

	socket_stop_listening(&server);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(socket_bind(&server, peer_loop, path), -EEXIST);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
	assert_int_equal(mknod(path, S_IFSOCK | 0777, 0), 0);
	if (geteuid() == 0) {
		/* Another user's, who may be serving it. */
		assert_int_equal(chown(path, 65534, 0), 0);
		assert_int_equal(socket_bind(&server, peer_loop, path), -EPERM);
		assert_int_equal(access(path, F_OK), 0);
		assert_int_equal(chown(path, 0, 0), 0);
	}
	assert_int_equal(start(state), 0);
	test_mode_is_private(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_line_in_line_out),
		TEST(test_mode_is_private),
		TEST(test_byte_by_byte),
		TEST(test_many_requests_in_one_write),
		TEST(test_requests_then_end_of_input),
		TEST(test_longest_request),
		TEST(test_too_long_request),
		TEST(test_close_after_answer),
		TEST(test_no_memory_for_the_answer),
		TEST(test_idle_client_is_dropped),
		TEST(test_dripping_client_is_dropped),
		TEST(test_client_that_never_reads),
		TEST(test_client_that_only_sends),
		TEST(test_flood_is_read_to_its_end),
		TEST(test_answer_comes_later),
		TEST(test_client_leaves_while_waiting),
		TEST(test_end_cancels_what_waits),
		TEST(test_too_many_clients),
		TEST(test_out_of_descriptors),
		TEST(test_not_before_listen),
		TEST(test_what_is_in_the_way),
	};

	return cmocka_run_group_tests_name("socket", tests, setup, teardown);
}
