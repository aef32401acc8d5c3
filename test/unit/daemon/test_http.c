/* http: clients of the metrics that are too many, too slow, or never end what they say. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include "base/log.h"
#include "daemon/metrics/http.h"
#include "test/rig/fake_device.h"
#include "test/rig/socket_check.h"

static struct device_set device_set;
static struct reactors reactors;
static struct reactor control;
static struct watchdog watchdog;
static const struct metrics_source source = { &device_set, &reactors, &control, &watchdog };
static struct http http;

#define ASK "GET /page.js HTTP/1.1\r\nHost: x\r\n\r\n"
#define ASK_ALL "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
/* Far less than those may take who hold a place: what waits for one of them is late. */
#define AT_ONCE_SECONDS 60.
#define PLACE_SECONDS 600.

/* From 127.0.0.`from`. */
static struct peer connect_from(unsigned from, int receive_bytes)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((in_port_t)http_port(&http)) },
			   own = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	own.sin_addr.s_addr = htonl(0x7f000000 + from);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (void *)&own, sizeof(own)), 0);
	if (receive_bytes)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
	assert_int_equal(connect(fd, (void *)&to, sizeof(to)), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return (struct peer){ .fd = fd };
}

/* The first line of the next answer came in time. */
static bool is_answered(struct peer *p)
{
	double until = ev_time() + AT_ONCE_SECONDS;
	bool ok;

	while (p->in_bytes < 16 && !p->eof && ev_time() < until) {
		peer_pump();
		peer_read_some(p);
	}
	ok = p->in_bytes >= 16 && memcmp(p->in, "HTTP/1.1 200 OK\r", 16) == 0;
	p->in_bytes = 0;
	return ok;
}

static bool is_served(unsigned from)
{
	struct peer p = connect_from(from, 0);
	bool ok = peer_send(&p, ASK) && is_answered(&p);

	peer_close(&p);
	return ok;
}

static void drip_all(struct peer *p, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		send(p[i].fd, "x", 1, MSG_NOSIGNAL);
	peer_pump();
}

/* Forty that send a byte now and then hold every place there was. */
static void test_dripping_clients(void **state)
{
	struct peer slow[40];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(slow); i++)
		slow[i] = connect_from(1, 0);
	for (int i = 0; i < 5; i++) {
		drip_all(slow, ARRAY_SIZE(slow));
		assert_true(is_served(1));
		assert_true(is_served(2));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(slow); i++)
		peer_close(&slow[i]);
}

/* Who waits behind them in the backlog waits for all of them. */
static void test_stalled_clients(void **state)
{
	static struct peer stalled[200];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(stalled); i++)
		stalled[i] = connect_from(1 + i % 4, 0);
	assert_true(is_served(1));
	assert_true(is_served(9));
	assert_in_range(http_clients_nr(&http.clients), HTTP_ADDRESS_CLIENTS_MAX, HTTP_CLIENTS_MAX);
	for (unsigned i = 0; i < ARRAY_SIZE(stalled); i++)
		peer_close(&stalled[i]);
}

static void test_header_has_a_deadline(void **state)
{
	double begin = ev_time();
	struct peer p;

	(void)state;
	http.clients.seconds[HTTP_REQUEST] = 0.2;
	p = connect_from(1, 0);
	peer_send(&p, "GET / HTTP/1.1\r\nx: ");
	while (!p.eof && ev_time() < begin + PEER_OUTAGE_TIMEOUT_SECONDS) {
		send(p.fd, "y", 1, MSG_NOSIGNAL);
		peer_pump_for(0.01);
		peer_read_some(&p);
	}
	assert_true(p.eof);
	assert_true(ev_time() - begin >= 0.15);
	peer_close(&p);
}

/* Its answer does not fit into what sockets hold, and it does not read. */
static struct peer connect_slow_reader(unsigned from)
{
	struct peer p = connect_from(from, 4096);

	assert_true(peer_send(&p, ASK_ALL));
	return p;
}

static unsigned nr_in(enum http_phase phase)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		nr += http.clients.slot[i].phase == phase;
	return nr;
}

static void wait_for_nr(enum http_phase phase, unsigned nr)
{
	double until = ev_time() + PEER_OUTAGE_TIMEOUT_SECONDS;

	while (nr_in(phase) != nr && ev_time() < until)
		peer_pump_for(0.001);
	assert_int_equal(nr_in(phase), nr);
}

/* A byte now and then is not enough. */
static void test_answer_has_a_deadline(void **state)
{
	double begin = ev_time();
	struct peer p;
	char byte;

	(void)state;
	http.clients.seconds[HTTP_ANSWER] = 0.3;
	p = connect_slow_reader(1);
	wait_for_nr(HTTP_ANSWER, 1);
	while (http_clients_nr(&http.clients) > 0 &&
	       ev_time() < begin + PEER_OUTAGE_TIMEOUT_SECONDS) {
		peer_pump_for(0.01);
		assert_int_equal(recv(p.fd, &byte, 1, 0), 1);
	}
	assert_int_equal(http_clients_nr(&http.clients), 0);
	assert_true(ev_time() - begin >= 0.25);
	peer_close(&p);
}

/* All places of an address are held by those who do not read: one of them goes. */
static void test_slow_readers(void **state)
{
	struct peer slow[HTTP_ADDRESS_CLIENTS_MAX];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(slow); i++)
		slow[i] = connect_slow_reader(1);
	wait_for_nr(HTTP_ANSWER, HTTP_ADDRESS_CLIENTS_MAX);
	for (int i = 0; i < 5; i++) {
		assert_true(is_served(1));
		assert_true(is_served(2));
	}
	assert_true(nr_in(HTTP_ANSWER) >= HTTP_ADDRESS_CLIENTS_MAX - 5);
	for (unsigned i = 0; i < ARRAY_SIZE(slow); i++)
		peer_close(&slow[i]);
}

/* Many scrapers on one host, or behind one proxy, at once. */
static void test_scrapers_of_one_host(void **state)
{
	struct peer p[HTTP_ADDRESS_CLIENTS_MAX];

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
			p[i] = connect_from(1, 0);
		wait_for_nr(HTTP_REQUEST, ARRAY_SIZE(p));
		for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
			assert_true(peer_send(&p[i], ASK));
		for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
			assert_true(is_answered(&p[i]));
		for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
			peer_close(&p[i]);
	}
}

/* What one address does costs another nothing: not even a connection that has not asked yet. */
static void test_one_address_cannot_push_out_another(void **state)
{
	struct peer scraper = connect_from(2, 0), many[100];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++) {
		many[i] = connect_from(1 + 2 * (i % 2), 0);
		peer_pump();
	}
	peer_pump_for(0.01);
	assert_int_equal(http_clients_nr(&http.clients), HTTP_CLIENTS_MAX);
	assert_true(peer_send(&scraper, ASK));
	assert_true(is_answered(&scraper));
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
		peer_close(&many[i]);
	peer_close(&scraper);
}

static void take(struct http_clients *c, int fd, const char *address)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_storage from = { 0 };

	assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
	memcpy(&from, &v6, sizeof(v6));
	http_clients_take(c, fd, &from);
}

/* One machine has all addresses of its network: they count as one. */
static void test_networks_of_ipv6(void **state)
{
	static struct http_clients c;
	char address[64];

	(void)state;
	http_clients_init(&c, peer_loop);
	take(&c, 1000, "2001:db8:0:2::1");
	take(&c, 1001, "::ffff:192.0.2.1");
	take(&c, 1002, "::ffff:192.0.2.2");
	for (int i = 0; i < 40; i++) {
		snprintf(address, sizeof(address), "2001:db8:0:1::%x", i + 1);
		take(&c, 2000 + i, address);
	}
	assert_int_equal(http_clients_nr(&c), 3 + HTTP_ADDRESS_CLIENTS_MAX);
	for (int fd = 1000; fd < 1003; fd++)
		assert_int_equal(http_clients_find(&c, fd)->phase, HTTP_REQUEST);
	for (int i = 0; i < 8; i++)
		assert_int_equal(http_clients_find(&c, 2000 + i)->phase, HTTP_LEAVING);
	http_clients_fini(&c);
}

static void test_out_of_descriptors(void **state)
{
	struct rlimit before, none;
	struct peer p;

	(void)state;
	p = connect_from(1, 0);
	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	peer_pump_for(0.05);
	assert_true(ev_is_active(&http.pause));
	assert_false(ev_is_active(&http.acceptable));
	setrlimit(RLIMIT_NOFILE, &before);
	assert_true(peer_send(&p, ASK));
	assert_true(is_answered(&p));
	peer_close(&p);
}

static bool is_all_served(void)
{
	struct peer p = connect_from(1, 0);
	bool ok = peer_send(&p, ASK_ALL) && is_answered(&p);

	peer_close(&p);
	return ok;
}

/* A text that took long is not made again for each of those who ask at once. */
static void test_text_is_shared(void **state)
{
	uint64_t *until_ns = &http.text[HTTP_TEXT_OPENMETRICS].until_ns, far_ns;
	struct peer crowd[4];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++)
		crowd[i] = connect_from(2, 0);
	assert_true(is_all_served());
	far_ns = *until_ns += 3600 * NS_PER_SEC;
	assert_true(is_all_served());
	assert_int_equal(*until_ns, far_ns);
	*until_ns = 0;
	assert_true(is_all_served());
	assert_in_range(*until_ns, 1, far_ns - NS_PER_SEC);
	*until_ns = far_ns;
	for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++)
		peer_close(&crowd[i]);
	/* Nearly alone: it is made anew. The closed ones may be seen to go only by then. */
	assert_true(is_all_served());
	assert_true(is_all_served());
	assert_in_range(*until_ns, 1, far_ns - NS_PER_SEC);
}

static void add(const char *name)
{
	struct config_errors e;
	struct settings s;
	char yaml[128];

	config_errors_init(&e, "test");
	snprintf(yaml, sizeof(yaml), "{name: %s, backend: {type: mem, size: 1M}}", name);
	assert_int_equal(settings_parse_devices(&s, yaml, strlen(yaml), &e), 0);
	device_set_add(&device_set, settings_take(&s, 0), false);
	settings_free(&s);
	config_errors_fini(&e);
	peer_pump_for(0.02);
}

static int setup(void **state)
{
	static struct device_host host;
	int send_bytes = 4096;

	(void)state;
	device_set_init(&device_set, peer_loop, &host, 10 * NS_PER_SEC);
	for (const char *name = "abcdefghij"; *name; name++)
		add((char[]){ *name, '\0' });
	if (http_start(&http, peer_loop, "127.0.0.1:0", &source) < 0)
		return -1;
	http.clients.seconds[HTTP_REQUEST] = http.clients.seconds[HTTP_ANSWER] = PLACE_SECONDS;
	/* Those that are accepted have it too. */
	return setsockopt(http.fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
}

/* All are gone: so are their slots. */
static int teardown(void **state)
{
	double until = ev_time() + PEER_OUTAGE_TIMEOUT_SECONDS;
	unsigned free_nr = 0;

	(void)state;
	while (http_clients_nr(&http.clients) > 0 && ev_time() < until)
		peer_pump_for(0.001);
	peer_pump_for(0.01);
	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		free_nr += http.clients.slot[i].phase == HTTP_FREE;
	http_stop(&http);
	device_set_stop_all(&device_set);
	peer_pump_for(0.05);
	device_set_fini(&device_set);
	return free_nr == HTTP_SLOT_NR && fake_nr == 0 ? 0 : -1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_dripping_clients),
		TEST(test_stalled_clients),
		TEST(test_header_has_a_deadline),
		TEST(test_answer_has_a_deadline),
		TEST(test_slow_readers),
		TEST(test_scrapers_of_one_host),
		TEST(test_one_address_cannot_push_out_another),
		TEST(test_networks_of_ipv6),
		TEST(test_out_of_descriptors),
		TEST(test_text_is_shared),
	};

	log_init(LOG_LEVEL_ERROR);
	peer_loop = ev_default_loop(0);
	return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
