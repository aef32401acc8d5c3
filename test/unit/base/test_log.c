/* log: escaping, quoting, limits, and that nobody waits for whoever reads it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/printable.h"

static int saved_fd;
static char text[1 << 16];

/* Instead of stderr; cmocka's own words must not go there meanwhile. */
static void redirect(int fd)
{
	saved_fd = dup(STDERR_FILENO);
	assert_true(dup2(fd, STDERR_FILENO) >= 0);
}

static void restore(void)
{
	dup2(saved_fd, STDERR_FILENO);
	close(saved_fd);
}

static const char *drain(int fd)
{
	ssize_t n = read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* The line behind its time. */
#define LOGGED(msg, ...)                                                                           \
	({                                                                                         \
		int fd_[2];                                                                        \
		assert_int_equal(pipe(fd_), 0);                                                    \
		redirect(fd_[1]);                                                                  \
		log_warn(msg, __VA_ARGS__);                                                        \
		restore();                                                                         \
		drain(fd_[0]);                                                                     \
		close(fd_[0]), close(fd_[1]);                                                      \
		assert_non_null(strstr(text, "level=warn "));                                      \
		strstr(text, "level=warn ") + strlen("level=warn ");                               \
	})

static void test_escapes(void **state)
{
	(void)state;
	assert_string_equal(LOGGED("m", "path=\"%s\"", "a\"b\\c\nd\te\rf\x01g\x7f"),
			    "msg=\"m\" path=\"a\\\"b\\\\c\\nd\\te\\rf\\u0001g\\u007f\"\n");
	assert_string_equal(LOGGED("say \"it\"", "a=1"), "msg=\"say \\\"it\\\"\" a=1\n");
	/* UTF-8 is text, but for what a terminal obeys; what is none is shown. */
	assert_string_equal(LOGGED("m", "a=%s", "\xc3\xa4"), "msg=\"m\" a=\xc3\xa4\n");
	assert_string_equal(LOGGED("m", "a=%s b=%s",
				   "\xc2\x9b"
				   "31m",
				   "x\xe2\x80\xae"),
			    "msg=\"m\" a=\"\\u009b31m\" b=\"x\\u202e\"\n");
	assert_string_equal(LOGGED("m", "a=%s b=%.*s", "\xff/", 2, "\xe6\xbc\xa2"),
			    "msg=\"m\" a=\"\\xff/\" b=\"...\"\n");
}

static void test_quotes_what_needs_it(void **state)
{
	(void)state;
	assert_string_equal(LOGGED("m", "a=%s b=%s c=%s d=%s", "x", "x y", "", "k=v"),
			    "msg=\"m\" a=x b=\"x y\" c=\"\" d=\"k=v\"\n");
	assert_string_equal(LOGGED("m", "a=%s b=x%s", "q\"", " y"),
			    "msg=\"m\" a=\"q\\\"\" b=x y\n");
	assert_string_equal(LOGGED("m", "a=%.*s", 2, "xyz"), "msg=\"m\" a=xy\n");
}

static void test_numbers(void **state)
{
	(void)state;
	assert_string_equal(LOGGED("m", "a=%d b=%u c=%llu d=0x%llx e=%zu f=%ld g=%02x h=%c i=5%%",
				   -1, 4000000000u, ~0ull, 0xabcdef012345ull, (size_t)7, -9l, 5,
				   'z'),
			    "msg=\"m\" a=-1 b=4000000000 c=18446744073709551615 "
			    "d=0xabcdef012345 e=7 f=-9 g=05 h=z i=5%\n");
}

static void test_cuts_what_is_too_long(void **state)
{
	static char words[5000];
	size_t len;

	(void)state;
	memset(words, '"', sizeof(words) - 1);
	len = strlen(LOGGED("m", "a=%s", words));
	assert_in_range(len, 1000, 2048);
	assert_null(strchr(strstr(text, "a="), '\n')[1] ? "more" : NULL);
}

/* The line ends at a letter, wherever its limit falls. */
static void test_cuts_at_a_letter(void **state)
{
	static char words[3][3001];
	const char *last;
	uint32_t code;

	(void)state;
	for (unsigned shift = 0; shift < 3; shift++) {
		memset(words[shift], 'x', shift);
		for (size_t i = shift; i + 3 < sizeof(words[shift]); i += 3)
			memcpy(&words[shift][i], "\xe6\xbc\xa2", 3);
		last = LOGGED("m", "a=%s", words[shift]);
		last += strlen(last) - 4;
		assert_int_equal(utf8_letter(last, 3, &code), 3);
		assert_string_equal(last + 3, "\n");
	}
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Nobody reads: lines are lost, and the next one that gets through tells how many. */
static void lose(int read_fd, int write_fd)
{
	uint64_t start_ms = now_ms();
	unsigned lost = 0, got = 0;
	const char *at;

	redirect(write_fd);
	alarm(20); /* or it hangs */
	for (int i = 0; i < 2000; i++)
		log_warn("filling", "words=\"%0500d\"", i);
	alarm(0);
	restore();
	assert_true(now_ms() - start_ms < 10000);
	fcntl(read_fd, F_SETFL, O_NONBLOCK);
	for (ssize_t n; (n = read(read_fd, text, sizeof(text) - 1)) > 0;)
		for (ssize_t i = 0; i < n; i++)
			got += text[i] == '\n';
	assert_in_range(got, 1, 1999);
	redirect(write_fd);
	log_warn("again", "%s", "");
	restore();
	at = strstr(drain(read_fd), " lost=");
	assert_non_null(at);
	lost = (unsigned)strtoul(at + 6, NULL, 10);
	assert_int_equal(got + lost, 2000);
	redirect(write_fd);
	log_warn("again", "%s", "");
	restore();
	assert_null(strstr(drain(read_fd), " lost="));
	close(read_fd);
	close(write_fd);
}

static void test_full_pipe(void **state)
{
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	lose(fd[0], fd[1]);
}

/* As journald's. */
static void test_full_socket(void **state)
{
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	lose(fd[0], fd[1]);
}

static void test_file(void **state)
{
	FILE *file = tmpfile();
	unsigned nr = 0;

	(void)state;
	redirect(fileno(file));
	for (int i = 0; i < 1000; i++)
		log_warn("m", "i=%d", i);
	restore();
	rewind(file);
	while (fgets(text, sizeof(text), file)) {
		unsigned i;

		assert_int_equal(sscanf(strstr(text, " i="), " i=%u", &i), 1);
		assert_int_equal(i, nr++);
	}
	assert_int_equal(nr, 1000);
	fclose(file);
}

static void test_limit(void **state)
{
	struct log_limit limit = { 0 };
	uint32_t dropped = 99;
	unsigned passed = 0;

	(void)state;
	for (int i = 0; i < 100; i++)
		passed += (unsigned)log_limit_pass(&limit, &dropped);
	assert_int_equal(passed, LOG_LIMIT_BURST);
	assert_int_equal(dropped, 0);
	/* The window opens again. */
	limit.window_start_ns -= LOG_LIMIT_INTERVAL_NS + 1;
	assert_int_equal(log_limit_pass(&limit, &dropped), 1);
	assert_int_equal(dropped, 100 - LOG_LIMIT_BURST);
}

static void say_limited(struct log_limit *limit, const char *who)
{
	log_limited_by(limit, LOG_LEVEL_WARN, "flood", "who=%s", who);
}

/* From the same call site: one that floods does not silence the other. */
static void test_limits_apart(void **state)
{
	struct log_limit loud = { 0 }, quiet = { 0 };
	FILE *file = tmpfile();
	unsigned nr[2] = { 0 };

	(void)state;
	redirect(fileno(file));
	for (int i = 0; i < 100; i++)
		say_limited(&loud, "loud");
	say_limited(&quiet, "quiet");
	restore();
	rewind(file);
	while (fgets(text, sizeof(text), file))
		nr[strstr(text, " who=quiet dropped=0") != NULL]++;
	assert_int_equal(nr[0], LOG_LIMIT_BURST);
	assert_int_equal(nr[1], 1);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_escapes),	     cmocka_unit_test(test_quotes_what_needs_it),
		cmocka_unit_test(test_numbers),	     cmocka_unit_test(test_cuts_what_is_too_long),
		cmocka_unit_test(test_full_pipe),    cmocka_unit_test(test_full_socket),
		cmocka_unit_test(test_file),	     cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limits_apart), cmocka_unit_test(test_cuts_at_a_letter),
	};

	unsetenv("JOURNAL_STREAM");
	log_init(LOG_LEVEL_INFO);
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
