/* Addresses of hosts; resolve: an answer that is wanted, and one that is forgotten. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/resolve.h"
#include "base/util.h"

static struct reactor r;
static unsigned answered_nr, found_nr;

static void on_answer(void *arg, const struct net_addresses *found, const char *error)
{
	(void)error;
	assert_ptr_equal(arg, &r);
	answered_nr++;
	found_nr = found ? found->nr : 0;
}

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	answered_nr = found_nr = 0;
	return reactor_init(&r, &params);
}

static int teardown(void **state)
{
	(void)state;
	return 0;
}

static struct net_resolve *begin(void)
{
	const struct net_host host = { .kind = NET_TCP, .host = "127.0.0.1", .port = 10809 };
	struct net_resolve *resolve = NULL;

	assert_int_equal(net_resolve_begin(&resolve, &r, &host, on_answer, &r), 0);
	return resolve;
}

static void test_known_addresses(void **state)
{
	static const struct net_host known[] = {
		{ .kind = NET_TCP, .host = "127.0.0.1" },
		{ .kind = NET_TCP, .host = "::1" },
		{ .kind = NET_UNIX, .path = "/run/x", .path_bytes = 6 },
		{ .kind = NET_VSOCK, .cid = 2 },
	};
	const struct net_host name = { .kind = NET_TCP, .host = "localhost" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		assert_true(net_host_is_known(&known[i]));
	assert_false(net_host_is_known(&name));
}

static void find(struct net_host host, struct net_addresses *all)
{
	char error[256];

	memset(all, 0x5a, sizeof(*all));
	assert_int_equal(net_host_find(&host, all, error, sizeof(error)), 0);
}

static void test_found_addresses(void **state)
{
	struct net_addresses all;
	const struct sockaddr_in *in = (const void *)&all.address[0].name;
	const struct sockaddr_in6 *in6 = (const void *)&all.address[0].name;
	const struct sockaddr_un *un = (const void *)&all.address[0].name;

	(void)state;
	find((struct net_host){ .kind = NET_TCP, .host = "127.1.2.3", .port = 99 }, &all);
	assert_int_equal(all.nr, 1);
	assert_int_equal(in->sin_family, AF_INET);
	assert_int_equal(ntohl(in->sin_addr.s_addr), 0x7f010203);
	assert_int_equal(ntohs(in->sin_port), 99);
	find((struct net_host){ .kind = NET_TCP, .host = "::7", .port = 10809 }, &all);
	assert_int_equal(in6->sin6_family, AF_INET6);
	assert_int_equal(in6->sin6_addr.s6_addr[15], 7);
	assert_int_equal(ntohs(in6->sin6_port), 10809);
	find((struct net_host){ .kind = NET_UNIX, .path = "/run/x", .path_bytes = 6 }, &all);
	assert_int_equal(un->sun_family, AF_UNIX);
	assert_string_equal(un->sun_path, "/run/x");
	assert_int_equal(all.address[0].bytes, sizeof(sa_family_t) + 7);
	find((struct net_host){ .kind = NET_UNIX, .path = "\0abc", .path_bytes = 4 }, &all);
	assert_memory_equal(un->sun_path, "\0abc", 4);
	assert_int_equal(all.address[0].bytes, sizeof(sa_family_t) + 4);
	find((struct net_host){ .kind = NET_VSOCK, .cid = 3, .port = 5 }, &all);
	assert_int_equal(all.address[0].name.ss_family, AF_VSOCK);
	find((struct net_host){ .kind = NET_TCP, .host = "localhost" }, &all);
	assert_true(all.nr >= 1);
}

/* RFC 6761: there never is such a name. */
static void test_no_such_name(void **state)
{
	const struct net_host host = { .kind = NET_TCP, .host = "server.invalid" };
	struct net_addresses all;
	char error[256];
	int ret = net_host_find(&host, &all, error, sizeof(error));

	(void)state;
	assert_true(ret == -ENOENT || ret == -EAGAIN);
	assert_non_null(strstr(error, "\"server.invalid\""));
}

static void test_answer(void **state)
{
	(void)state;
	begin();
	while (answered_nr == 0)
		reactor_turn(&r, true);
	assert_int_equal(found_nr, 1);
	assert_int_equal(r.leaving, 0);
	reactor_fini(&r);
}

/* The mail is there and has not been read: the reactor waits for it, and it tells nobody. */
static void test_forgotten_with_its_mail_on_the_way(void **state)
{
	struct net_resolve *resolve = begin();
	struct reactor_look look;

	(void)state;
	for (reactor_look(&r, &look); !look.mail; reactor_look(&r, &look))
		usleep(1000);
	net_resolve_forget(resolve);
	assert_int_equal(r.leaving, 1);
	while (r.leaving > 0)
		reactor_turn(&r, true);
	assert_int_equal(r.leaving, 0);
	assert_int_equal(answered_nr, 0);
	reactor_fini(&r);
}

/* Whether the thread has answered by then is chance: nothing is left behind either way. */
static void test_forgotten_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++)
		net_resolve_forget(begin());
	net_resolve_forget(NULL);
	reactor_fini(&r);
	assert_int_equal(answered_nr, 0);
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_known_addresses),
					    cmocka_unit_test(test_found_addresses),
					    cmocka_unit_test(test_no_such_name),
					    RIG(test_answer),
					    RIG(test_forgotten_with_its_mail_on_the_way),
					    RIG(test_forgotten_at_once) };

	return cmocka_run_group_tests_name("resolve", tests, NULL, NULL);
}
