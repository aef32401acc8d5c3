/* Asking an NBD server what it offers, over real sockets: waiting for the answer, and turn by turn.
 */
#include <netinet/tcp.h>

#include "test/rig/nbd_fake_server.h"

static struct peer peer;
static struct nbd_uri uri;
static struct nbd_handshake_config wish;
static struct nbd_export export;
static char error[512], listed[256], where[64];
static int credentials; /* its address is all that is used */

static void parse(const char *text)
{
	struct nbd_uri_error e;

	if (nbd_uri_parse(text, &uri, &e) < 0)
		fail_msg("%s: %s", text, e.text);
}

static void on_export(void *ctx, const uint8_t *name, size_t name_bytes, const uint8_t *description,
		      size_t description_bytes)
{
	size_t at = strlen(listed);

	(void)ctx;
	snprintf(listed + at, sizeof(listed) - at, "%.*s(%.*s)", (int)name_bytes, name,
		 (int)description_bytes, description);
}

static int ask(enum nbd_handshake_mode mode, uint64_t timeout_ms)
{
	wish = (struct nbd_handshake_config){
		.mode = mode,
		.export_name = uri.export_name,
		.on_export = on_export,
	};
	error[0] = listed[0] = '\0';
	return nbd_examine_wait(&uri, uri.tls ? (const struct tls_credentials *)&credentials : NULL,
				&wish, timeout_ms * NS_PER_MS, &export, error, sizeof(error));
}

/* On an abstract unix socket; uri becomes scheme + export there. */
static void listen_here(const char *scheme, const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char text[256];

	/* Bound without a name: the kernel chooses one (unix(7), autobind). */
	peer_start(&peer, &un, sizeof(sa_family_t), sizeof(un));
	snprintf(where, sizeof(where), "%.5s", un.sun_path + 1);
	snprintf(text, sizeof(text), "%s:///%s?socket=%%2Ftmp", scheme, name);
	parse(text);
	memset(uri.server.path, 0, sizeof(uri.server.path));
	memcpy(uri.server.path + 1, where, 5);
	uri.server.path_bytes = 6;
}

static int setup(void **state)
{
	(void)state;
	peer = (struct peer){ 0 };
	tls_nr = 0;
	return 0;
}

static void test_go(void **state)
{
	(void)state;
	listen_here("nbd+unix", "disk");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), 0);
	peer_end(&peer);
	assert_true(export.size_bytes == GIB(1));
	assert_int_equal(export.flags, NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH);
	assert_true(peer.disc);
	assert_string_equal(error, "");
}

static void test_list(void **state)
{
	(void)state;
	listen_here("nbd+unix", "");
	assert_int_equal(ask(NBD_HANDSHAKE_LIST, 60000), 0);
	peer_end(&peer);
	assert_string_equal(listed, "one(the first)two()");
	assert_int_equal(peer.asked_nr, 2);
	assert_int_equal(peer.asked[1], NBD_OPT_ABORT);
}

/* The second address of the name is the one that answers. */
static void test_tcp(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	(void)state;
	peer_start(&peer, &in, sizeof(in), sizeof(in));
	parse("nbd://localhost/");
	uri.server.port = ntohs(in.sin_port);
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), 0);
	peer_end(&peer);
	assert_true(peer.disc);
}

static void test_tcp6(void **state)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool possible = fd >= 0 && bind(fd, (struct sockaddr *)&in6, sizeof(in6)) == 0;

	(void)state;
	close(fd);
	if (!possible)
		skip();
	peer_start(&peer, &in6, sizeof(in6), sizeof(in6));
	parse("nbd://[::1]/");
	uri.server.port = ntohs(in6.sin6_port);
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), 0);
	peer_end(&peer);
	assert_true(peer.disc);
}

/* Refused on both addresses, or not there at all. */
static void test_nobody(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char words[64];

	(void)state;
	peer_start(&peer, &in, sizeof(in), sizeof(in));
	peer_end(&peer);
	parse("nbd://127.0.0.1/");
	uri.server.port = ntohs(in.sin_port);
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), -ECONNREFUSED);
	snprintf(words, sizeof(words), "no server at 127.0.0.1:%u: is it started?",
		 uri.server.port);
	assert_string_equal(error, words);
	parse("nbd+unix:///?socket=/nowhere/x");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), -ENOENT);
	assert_string_equal(error, "no server at unix:/nowhere/x: is it started?");
}

static void test_no_such_export(void **state)
{
	(void)state;
	listen_here("nbd+unix", "none");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), -ENOENT);
	peer_end(&peer);
	assert_non_null(strstr(error, where));
	assert_non_null(strstr(error, "there is no such export"));
	assert_non_null(strstr(error, "it says: \"ask Paul.\""));
	assert_int_equal(peer.asked[peer.asked_nr - 1], NBD_OPT_ABORT);
}

static void test_list_is_forbidden(void **state)
{
	(void)state;
	peer.no_list = true;
	listen_here("nbd+unix", "");
	assert_int_equal(ask(NBD_HANDSHAKE_LIST, 60000), -EACCES);
	peer_end(&peer);
	assert_non_null(strstr(error, "forbidden by the server's configuration"));
}

/* What comes before the silence takes longer on a machine that is busy: then it gets more time. */
#define TIME_IS_UP_MS 500
#define TIME_IS_UP_MS_MAX 16000

static void time_is_up(uint32_t at, const char *scheme, const char *words)
{
	for (unsigned ms = TIME_IS_UP_MS;; ms *= 2) {
		char limit[64];

		setup(NULL);
		peer.silent_at = at;
		peer.tls = true;
		listen_here(scheme, "disk");
		assert_int_equal(ask(NBD_HANDSHAKE_GO, ms), -ETIMEDOUT);
		peer_end(&peer);
		assert_int_equal(tls_nr, 0);
		snprintf(limit, sizeof(limit), "time is up (%u ms)", ms);
		if (strstr(error, words) && strstr(error, limit))
			return;
		if (ms >= TIME_IS_UP_MS_MAX || !strstr(error, limit))
			fail_msg("%s: not in: %s", words, error);
	}
}

static void test_time_is_up(void **state)
{
	(void)state;
	time_is_up(PEER_GREETING, "nbd+unix", "waiting for the server's greeting");
	time_is_up(NBD_OPT_GO, "nbd+unix", "waiting for the server's answer to GO");
	time_is_up(NBD_OPT_STARTTLS, "nbds+unix", "the server's answer to STARTTLS");
	time_is_up(PEER_TLS, "nbds+unix", "waiting for the server's TLS handshake");
	time_is_up(NBD_OPT_GO, "nbds+unix", "waiting for the server's answer to GO");
}

/* A backlog that is full: the kernel does not say how it will end. */
static void test_time_is_up_connecting(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t bytes = sizeof(un);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd[2];

	(void)state;
	assert_int_equal(bind(listener, (struct sockaddr *)&un, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(listener, 0), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&un, &bytes), 0);
	for (int i = 0; i < 2; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(fd[i], (struct sockaddr *)&un, bytes);
	}
	parse("nbd+unix:///?socket=/x");
	memcpy(uri.server.path, un.sun_path, 6);
	uri.server.path_bytes = 6;
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 30), -ETIMEDOUT);
	assert_non_null(strstr(error, "time is up while connecting"));
	close(fd[0]);
	close(fd[1]);
	close(listener);
}

static void hangs_up(uint32_t at, const char *scheme, const char *words)
{
	setup(NULL);
	peer.closes_at = at;
	peer.tls = true;
	listen_here(scheme, "disk");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), uri.tls ? -EPROTO : -ECONNRESET);
	peer_end(&peer);
	if (!strstr(error, words))
		fail_msg("%s: not in: %s", words, error);
	assert_int_equal(tls_nr, 0);
}

static void test_it_hangs_up(void **state)
{
	(void)state;
	hangs_up(PEER_GREETING, "nbd+unix", "without a greeting");
	hangs_up(NBD_OPT_GO, "nbd+unix", "when it was asked for GO");
	hangs_up(PEER_TLS, "nbds+unix", "TLS: it has hung up");
	hangs_up(NBD_OPT_GO, "nbds+unix", "TLS: it has hung up");
}

static void test_tls(void **state)
{
	(void)state;
	peer.tls = peer.tls_only = true;
	listen_here("nbds+unix", "disk");
	snprintf(uri.tls_hostname, sizeof(uri.tls_hostname), "server.example");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), 0);
	peer_end(&peer);
	assert_true(export.tls && export.size_bytes == GIB(1));
	assert_true(peer.tls_used && peer.disc && peer.bye);
	assert_string_equal(tls_hostname, "server.example");
	assert_int_equal(tls_nr, 0);
}

static void test_tls_fails(void **state)
{
	(void)state;
	peer.tls = peer.bad_tls = true;
	listen_here("nbds+unix", "disk");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), -EPROTO);
	peer_end(&peer);
	assert_non_null(strstr(error, "TLS: the certificate has a face"));
	assert_int_equal(tls_nr, 0);
}

static void test_tls_is_refused(void **state)
{
	(void)state;
	listen_here("nbds+unix", "disk");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), -EACCES);
	peer_end(&peer);
	assert_non_null(strstr(error, "STARTTLS"));
	/* Nothing else was said in clear text. */
	assert_int_equal(peer.asked_nr, 1);
}

static void test_tls_is_demanded(void **state)
{
	(void)state;
	peer.tls = peer.tls_only = true;
	listen_here("nbd+unix", "disk");
	assert_int_equal(ask(NBD_HANDSHAKE_GO, 60000), -EACCES);
	peer_end(&peer);
	assert_non_null(strstr(error, "write nbds instead of nbd"));
}

/* ---- turn by turn ---- */

static struct reactor reactor;
static struct asked {
	struct nbd_examine *examine;
	unsigned nr;
	int ret;
	uint64_t size_bytes;
	char words[512];
} asked;

static void on_answer(void *arg, int ret, const struct nbd_export *e, const char *words)
{
	assert_ptr_equal(arg, &asked);
	asked.nr++;
	asked.ret = ret;
	asked.size_bytes = ret == 0 ? e->size_bytes : 0;
	snprintf(asked.words, sizeof(asked.words), "%s", words);
}

/* In addresses, from number nr on: the one of uri. */
static void begin(struct net_addresses *addresses, unsigned nr, uint64_t timeout_ms)
{
	struct reactor_params small = { .sq_entries = 8, .cq_entries = 16 };
	struct net_addresses here;
	struct nbd_examine_params params = {
		.uri = &uri,
		.tls = uri.tls ? (const struct tls_credentials *)&credentials : NULL,
		.wish = &wish,
		.addresses = addresses,
		.timeout_ns = timeout_ms * NS_PER_MS,
	};

	assert_int_equal(net_host_find(&uri.server, &here, error, sizeof(error)), 0);
	addresses->address[nr] = here.address[0];
	addresses->nr = nr + 1;
	wish = (struct nbd_handshake_config){ .export_name = "disk",
					      .no_extended = true,
					      .no_structured = true };
	asked = (struct asked){ 0 };
	assert_int_equal(reactor_init(&reactor, &small), 0);
	assert_int_equal(nbd_examine_begin(&asked.examine, &reactor, &params, on_answer, &asked),
			 0);
	assert_int_equal(asked.nr, 0);
}

static void turn_until_asked(void)
{
	while (asked.nr == 0)
		reactor_turn(&reactor, true);
	reactor_fini(&reactor);
	assert_int_equal(asked.nr, 1);
}

static void turn_until_doing(const char *words)
{
	char buf[80];

	while (!strstr(nbd_examine_doing(asked.examine, buf, sizeof(buf)), words)) {
		reactor_turn(&reactor, true);
		assert_int_equal(asked.nr, 0);
	}
}

/* A unix socket whose other end is the test's: uri becomes it. */
static int listen_by_hand(int backlog, struct net_address *address)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->name;
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*address = (struct net_address){ .bytes = sizeof(address->name) };
	un->sun_family = AF_UNIX;
	assert_int_equal(bind(listener, (struct sockaddr *)un, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(listener, backlog), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)un, &address->bytes), 0);
	parse("nbd+unix:///?socket=/x");
	memcpy(uri.server.path, un->sun_path, 6);
	uri.server.path_bytes = 6;
	return listener;
}

/* Nobody is accepted until fd are closed. */
static int fill_backlog(struct net_address *address, int fd[2])
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->name;
	int full = listen_by_hand(0, address);

	for (int i = 0; i < 2; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)!connect(fd[i], (struct sockaddr *)un, address->bytes);
	}
	return full;
}

/* One that nobody listens at, one whose backlog stays full, and the server. */
static void test_third_address(void **state)
{
	struct net_addresses addresses = { 0 };
	struct sockaddr_un *un = (struct sockaddr_un *)&addresses.address[0].name;
	int fd[3];

	(void)state;
	un->sun_family = AF_UNIX;
	snprintf(un->sun_path, sizeof(un->sun_path), "/nowhere/x");
	addresses.address[0].bytes = sizeof(*un);
	fd[2] = fill_backlog(&addresses.address[1], fd);
	listen_here("nbd+unix", "disk");
	begin(&addresses, 2, 1000);
	turn_until_asked();
	peer_end(&peer);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	assert_int_equal(asked.ret, 0);
	assert_true(asked.size_bytes == GIB(1));
}

/* A backlog that is full, and then is not. */
static void test_backlog_has_room(void **state)
{
	struct net_addresses addresses = { 0 };
	int fd[2], full = fill_backlog(&addresses.address[0], fd);

	(void)state;
	begin(&addresses, 0, 60000);
	turn_until_doing("connecting");
	for (int i = 0; i < 20; i++)
		reactor_turn(&reactor, true);
	/* They go, and so it is accepted. */
	close(fd[0]);
	close(fd[1]);
	close(accept(full, NULL, NULL));
	turn_until_doing("greeting");
	close(full);
	turn_until_asked();
	assert_int_equal(asked.ret, -ECONNRESET);
}

static void forgotten(uint32_t at, const char *scheme, const char *doing)
{
	struct net_addresses addresses = { 0 };

	setup(NULL);
	peer.silent_at = at;
	peer.tls = true;
	listen_here(scheme, "disk");
	begin(&addresses, 0, 60000);
	turn_until_doing(doing);
	nbd_examine_forget(asked.examine);
	reactor_fini(&reactor);
	peer_end(&peer);
	assert_int_equal(asked.nr, 0);
	assert_int_equal(tls_nr, 0);
}

static void test_forgotten(void **state)
{
	(void)state;
	nbd_examine_forget(NULL);
	forgotten(PEER_GREETING, "nbd+unix", "connecting");
	forgotten(PEER_GREETING, "nbd+unix", "greeting");
	forgotten(NBD_OPT_GO, "nbd+unix", "answer to GO");
	forgotten(PEER_TLS, "nbds+unix", "the server's TLS handshake");
	forgotten(NBD_OPT_GO, "nbds+unix", "answer to GO");
}

/* It refuses what is not on its way yet, and is gone: its words are heard all the same. */
static void test_refused_before_it_is_asked(void **state)
{
	struct net_addresses addresses = { 0 };
	int fd, listener = listen_by_hand(1, &addresses.address[0]);

	(void)state;
	begin(&addresses, 0, 60000);
	turn_until_doing("greeting");
	fd = accept(listener, NULL, NULL);
	add_greeting(&peer.out, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
	send(fd, peer.out.at, peer.out.nr, 0);
	turn_until_doing("answer to GO");
	peer.out.nr = 0;
	add_rep(&peer.out, NBD_OPT_GO, NBD_REP_ERR_POLICY, 9);
	add_text(&peer.out, "ask Paul.");
	send(fd, peer.out.at, peer.out.nr, 0);
	close(fd);
	turn_until_asked();
	close(listener);
	assert_int_equal(asked.ret, -EACCES);
	assert_non_null(strstr(asked.words, "it says: \"ask Paul.\""));
}

#define TEST(fn) cmocka_unit_test_setup(fn, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_go),
		TEST(test_list),
		TEST(test_tcp),
		TEST(test_tcp6),
		TEST(test_nobody),
		TEST(test_no_such_export),
		TEST(test_list_is_forbidden),
		TEST(test_time_is_up),
		TEST(test_time_is_up_connecting),
		TEST(test_it_hangs_up),
		TEST(test_tls),
		TEST(test_tls_fails),
		TEST(test_tls_is_refused),
		TEST(test_tls_is_demanded),
		TEST(test_third_address),
		TEST(test_backlog_has_room),
		TEST(test_forgotten),
		TEST(test_refused_before_it_is_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
