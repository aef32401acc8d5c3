/* witness: a connection that stands, and each way in which one does not. */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/witness.h"
#include "reactor/ring.h"
#include "base/util.h"

/* The device's end, and the server's. */
static int ours, server;

static void connect_tcp(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int listens = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(listens, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listens, 1), 0);
	assert_int_equal(getsockname(listens, (struct sockaddr *)&at, &bytes), 0);
	ours = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(ours, (struct sockaddr *)&at, sizeof(at)), 0);
	server = accept(listens, NULL, NULL);
	assert_true(server > 0);
	close(listens);
}

static void connect_local(void)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ours = pair[0];
	server = pair[1];
}

/* A server that goes on: it reads what comes, and closes when that ends. */
static void *serve(void *arg)
{
	char buf[64];

	(void)arg;
	while (read(server, buf, sizeof(buf)) > 0)
		;
	close(server);
	return NULL;
}

static void test_stands(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		pthread_t thread;
		char late[] = "an answer to nobody";

		i ? connect_tcp() : connect_local();
		/* It does not matter that nobody reads the answers. */
		assert_int_equal(write(server, late, sizeof(late)), sizeof(late));
		assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
		/* As often as somebody tries. */
		assert_true(net_witness_hear(ours) && net_witness_hear(ours));
		net_witness_end(ours);
		pthread_join(thread, NULL); /* it was told of the end */
		assert_false(net_witness_hear(ours));
		close(ours);
	}
}

static void test_closed(void **state)
{
	struct linger reset = { .l_onoff = 1 };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		i ? connect_tcp() : connect_local();
		if (i == 2)
			setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(server);
		assert_false(net_witness_hear(ours));
		close(ours);
	}
}

/* A server that does not close: the end of the connection does not wait for ever. */
static void test_stays(void **state)
{
	uint64_t begin_ns = ring_clock_ns();

	(void)state;
	connect_tcp();
	assert_true(net_witness_hear(ours));
	net_witness_end(ours);
	assert_true(ring_clock_ns() - begin_ns < 4 * NET_WITNESS_MS * NS_PER_MS);
	close(ours);
	close(server);
}

/* The one before ends when there is another, whoever has descriptors of it besides. */
static void test_before(void **state)
{
	struct net_witness w;
	char byte;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	for (unsigned i = 0; i < 2; i++) {
		connect_local();
		net_witness_init(&w, ours, false);
		assert_true(w.stood);
		/* Nobody got so far: it stands for the next try. */
		net_witness_fini(&w);
		net_witness_init(&w, ours, false);
		assert_true(w.stood);
		if (i == 1)
			close(server);
		assert_int_equal(net_witness_is(&w, pair[0]), i == 0);
		if (i == 0) {
			assert_int_equal(read(server, &byte, 1), 0);
			close(server);
		}
		assert_true(net_witness_is(&w, pair[0]));
		net_witness_fini(&w);
		net_witness_init(&w, ours, false);
		assert_false(w.stood);
		net_witness_fini(&w);
		close(ours);
	}
	close(pair[0]);
	close(pair[1]);
}

/* What an fd store gave that is no connection. */
static void test_no_connection(void **state)
{
	int fd = memfd_create("memory", MFD_CLOEXEC);

	(void)state;
	assert_false(net_witness_hear(fd));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_false(net_witness_hear(fd));
	close(fd);
}

/* The newest connection is the one to be held, and who has it holds it until it asks again. */
static void test_newest(void **state)
{
	struct net_witness w;
	int first;

	(void)state;
	net_witness_init(&w, -1, false);
	assert_int_equal(net_witness_fd(&w), -1);
	connect_local();
	net_witness_is(&w, ours);
	first = net_witness_fd(&w);
	assert_true(first > 0 && first != ours);
	assert_int_equal(net_witness_fd(&w), first);
	close(ours);
	close(server);
	connect_local();
	net_witness_is(&w, ours);
	net_witness_is(&w, ours);
	assert_true(fcntl(first, F_GETFD) >= 0);
	close(ours);
	assert_true(net_witness_fd(&w) > 0);
	/* The connection lives by it alone. */
	assert_int_equal(send(net_witness_fd(&w), "x", 1, 0), 1);
	net_witness_fini(&w);
	assert_int_equal(send(server, "x", 1, MSG_NOSIGNAL), -1);
	close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stands), cmocka_unit_test(test_closed),
		cmocka_unit_test(test_stays),  cmocka_unit_test(test_no_connection),
		cmocka_unit_test(test_newest), cmocka_unit_test(test_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
