/* socket: the transport alone, with a handler that echoes, holds back or floods. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/socket.h"
#include "test/unit/socket_check.h"

#define FLOOD_BYTES (8u << 20)
#define WORK_NS (2 * SOCKET_TURN_NS)

static char dir[] = "/tmp/test_socket.XXXXXX";
static char path[64];
static struct socket_server server;
static struct socket_client *held;
static unsigned canceled_nr, worked_nr;

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

/* "hold": answered later; "work": takes its time; "flood": a long answer; "bye": answered and
 * closed; else: echo. */
static void on_request(struct socket_client *client, char *line, size_t bytes)
{
	char *flood;

	if (strcmp(line, "hold") == 0) {
		held = client;
	} else if (strcmp(line, "flood") == 0) {
		flood = malloc(FLOOD_BYTES + 1);
		memset(flood, 'x', FLOOD_BYTES);
		flood[FLOOD_BYTES] = '\0';
		socket_reply(client, flood, false);
	} else if (strcmp(line, "work") == 0) {
		for (uint64_t end_ns = cpu_ns() + WORK_NS; cpu_ns() < end_ns;)
			;
		worked_nr++;
		socket_reply(client, strdup("worked"), false);
	} else if (strcmp(line, "bye") == 0) {
		socket_reply(client, strdup("bye"), true);
	} else if (strcmp(line, "nothing") == 0) {
		socket_reply(client, NULL, false);
	} else {
		assert_int_equal(strlen(line), bytes);
		socket_reply(client, strdup(line), false);
	}
}

static void on_cancel(struct socket_client *client)
{
	assert_ptr_equal(client, held);
	held = NULL;
	canceled_nr++;
}

static int start(void **state)
{
	(void)state;
	server = (struct socket_server){ .request = on_request, .cancel = on_cancel };
	held = NULL;
	canceled_nr = worked_nr = 0;
	if (socket_bind(&server, peer_loop, path) < 0)
		return -1;
	return socket_listen(&server);
}

static int stop(void **state)
{
	(void)state;
	socket_fini(&server);
	return server.client_nr == 0 && access(path, F_OK) < 0 ? 0 : -1;
}

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

static void test_idle_client_is_dropped(void **state)
{
	struct peer p;

	(void)state;
	server.idle_seconds = 0.05;
	p = peer_connect(path);
	peer_send(&p, "one\n");
	peer_expect(&p, "one");
	assert_true(peer_closed(&p));
	peer_close(&p);
}

/* A byte now and then is not a request. */
static void test_dripping_client_is_dropped(void **state)
{
	struct peer p;
	int nr = 0;

	(void)state;
	server.idle_seconds = 0.5;
	p = peer_connect(path);
	while (peer_send(&p, "x") && nr++ < 300)
		peer_pump_for(0.01);
	assert_in_range(nr, 3, 200);
	peer_close(&p);
}

/* The answer stays where it is; others are served; then the client is dropped. */
static void test_client_that_never_reads(void **state)
{
	struct peer deaf, other;

	(void)state;
	server.write_seconds = 0.5;
	deaf = peer_connect(path);
	peer_send(&deaf, "flood\n");
	other = peer_connect(path);
	peer_send(&other, "still there?\n");
	peer_expect(&other, "still there?");
	assert_int_equal(server.client_nr, 2);
	peer_pump_for(0.8);
	assert_int_equal(server.client_nr, 1);
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
	server.write_seconds = 0.3;
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
	peer_pump_for(0.5);
	assert_int_equal(server.client_nr, 0);
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
	server.idle_seconds = 0.05; /* not for one that waits for its answer */
	p = peer_connect(path);
	peer_send(&p, "hold\nnext\n");
	peer_pump_for(0.2);
	assert_non_null(held);
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

/* ---- clients that want everything ---- */

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
	while (server.client_nr > 0 && ev_time() < begin + PEER_PATIENCE_SECONDS) {
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
	test_flood_is_read_to_its_end(state);
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
	assert_int_equal(start(state), 0);
	test_mode_is_private(state);
}

static int setup(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	peer_loop = ev_default_loop(0);
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/socket", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ev_loop_destroy(peer_loop);
	return rmdir(dir);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, start, stop)

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
		TEST(test_greedy_clients_starve_nobody),
		TEST(test_requests_leave_the_loop_its_turn),
		TEST(test_greedy_clients_go_on),
		TEST(test_answer_is_taken_too_slowly),
		TEST(test_unread_answers_have_a_limit),
		TEST(test_client_leaves_before_its_turn),
		TEST(test_not_before_listen),
		TEST(test_what_is_in_the_way),
	};

	return cmocka_run_group_tests_name("socket", tests, setup, teardown);
}
