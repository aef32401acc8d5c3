/* top_link: questions at once, answers in pieces, and every way in which they do not come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublkctl/top/top_client.h"

#define NOW (5 * NS_PER_SEC)

static char dir[] = "/tmp/test_top_link.XXXXXX";
static char path[64];
static struct top_client link_;
static int listener, peer;

static int setup(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	(void)state;
	strcpy(addr.sun_path, path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (void *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(listener, 4), 0);
	top_client_init(&link_, path);
	peer = -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	top_client_fini(&link_);
	if (peer >= 0)
		close(peer);
	close(listener);
	unlink(path);
	return 0;
}

/* Asks two questions; peer is the other end, which has read them. */
static void ask_two(void)
{
	char text[64] = "";

	top_client_ask(&link_, "{\"a\":1}\n{\"b\":2}\n", 2, NOW);
	assert_int_equal(link_.state, TOP_CLIENT_WAITING);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(recv(peer, text, sizeof(text) - 1, 0), 16);
	assert_string_equal(text, "{\"a\":1}\n{\"b\":2}\n");
}

static void answer(const char *text)
{
	assert_int_equal(send(peer, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	top_client_turn(&link_, NOW);
}

static void hang_up(void)
{
	close(peer);
	peer = -1;
	top_client_turn(&link_, NOW);
}

static void assert_failed(const char *why)
{
	assert_int_equal(link_.state, TOP_CLIENT_FAILED);
	assert_int_equal(link_.fd, -1);
	if (!strstr(link_.error, why))
		fail_msg("\"%s\" is not in \"%s\"", why, link_.error);
}

static void test_answers_in_pieces(void **state)
{
	const char *error = NULL;

	(void)state;
	ask_two();
	answer("{\"ok\":true,\"da");
	answer("ta\":[7]}\n{\"ok\":false,\"error\":\"no");
	assert_int_equal(link_.state, TOP_CLIENT_WAITING);
	answer("pe\"}\n");
	assert_int_equal(link_.state, TOP_CLIENT_DONE);
	assert_int_equal(link_.fd, -1);
	assert_int_equal(json_integer_value(json_array_get(top_client_data(&link_, 0, &error), 0)),
			 7);
	assert_null(error);
	assert_null(top_client_data(&link_, 1, &error));
	assert_string_equal(error, "nope");
}

static void test_large_answer(void **state)
{
	static char text[300000];
	const char *error;

	(void)state;
	ask_two();
	memset(text, 'x', sizeof(text) - 1);
	answer("{\"ok\":true,\"data\":\"");
	for (unsigned i = 0; i < 100; i++)
		answer(text + sizeof(text) - 3001);
	answer("\"}\n{\"ok\":true,\"data\":0}\n");
	assert_int_equal(link_.state, TOP_CLIENT_DONE);
	assert_int_equal(json_string_length(top_client_data(&link_, 0, &error)), 300000);
}

static void test_ask_again(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		ask_two();
		answer("{\"ok\":true}\n"); /* the second one never comes */
		close(peer);
	}
	ask_two();
	answer("{}\n{}\n");
	assert_int_equal(link_.state, TOP_CLIENT_DONE);
}

static void test_nobody_listens(void **state)
{
	(void)state;
	unlink(path);
	top_client_ask(&link_, "{}\n", 1, NOW);
	assert_failed("no process serves");
}

static void test_no_answer_in_time(void **state)
{
	(void)state;
	ask_two();
	answer("{\"ok\":true}\n");
	top_client_turn(&link_, link_.deadline_ns - 1);
	assert_int_equal(link_.state, TOP_CLIENT_WAITING);
	top_client_turn(&link_, link_.deadline_ns);
	assert_failed("does not answer");
}

/* The listener's queue is full: ublkd is stopped. */
static void test_nobody_accepts(void **state)
{
	static struct top_client many[16];
	unsigned nr = 0;

	(void)state;
	for (; nr < ARRAY_SIZE(many); nr++) {
		top_client_init(&many[nr], path);
		top_client_ask(&many[nr], "{}\n", 1, NOW);
		if (many[nr].state == TOP_CLIENT_FAILED)
			break;
	}
	assert_true(nr < ARRAY_SIZE(many));
	assert_non_null(strstr(many[nr].error, "does not answer"));
	for (unsigned i = 0; i <= nr; i++)
		top_client_fini(&many[i]);
}

static void test_end_in_between(void **state)
{
	(void)state;
	ask_two();
	answer("{\"ok\":true}\n{\"ok\"");
	hang_up();
	assert_failed("exited before it answered");
}

static void test_turned_away(void **state)
{
	(void)state;
	ask_two();
	answer("{\"ok\":false,\"error\":\"too many clients\"}\n");
	hang_up();
	assert_failed("too many clients");
}

static void test_no_json(void **state)
{
	(void)state;
	ask_two();
	answer("SSH-2.0-OpenSSH_9.2\n");
	assert_failed("not JSON");
}

static void test_long_path(void **state)
{
	static char name[200];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	top_client_fini(&link_);
	top_client_init(&link_, name);
	top_client_ask(&link_, "{}\n", 1, NOW);
	assert_failed("File name too long");
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_answers_in_pieces), TEST(test_large_answer),
		TEST(test_ask_again),	      TEST(test_nobody_listens),
		TEST(test_no_answer_in_time), TEST(test_nobody_accepts),
		TEST(test_end_in_between),    TEST(test_turned_away),
		TEST(test_no_json),	      TEST(test_long_path),
	};
	int ret;

	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/s", dir);
	ret = cmocka_run_group_tests_name("top_link", tests, NULL, NULL);
	rmdir(dir);
	return ret;
}
