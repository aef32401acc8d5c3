/* config/yaml.h: documents from files and pipes. */
#include "test/rig/config_check.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_file(const char *path, int expected_ret, const char *expected)
{
	struct config_errors e;
	struct yaml_doc doc;

	config_errors_init(&e, "f");
	memset(&doc, 0xff, sizeof(doc)); /* the caller's may hold anything */
	assert_int_equal(yaml_parse_file(&doc, path, &e), expected_ret);
	check_errors(&e, expected);
	assert_int_equal(doc.root != NULL, expected_ret == 0);
	yaml_doc_free(&doc);
	config_errors_fini(&e);
}

static void test_files(void **state)
{
	char path[] = "/tmp/test_yaml.XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "a: 1\n", 5), 5);
	check_file(path, 0, "");
	assert_int_equal(write(fd, "a: 2\n", 5), 5);
	unlink("/tmp/test_yaml.none");
	check_file("/tmp/test_yaml.none", -ENOENT,
		   "f: cannot open: No such file or directory (ENOENT)\n");
	check_file("/tmp", -EISDIR, "f: cannot read: Is a directory (EISDIR)\n");
	check_file("/dev/zero", -EINVAL, "f: neither a regular file nor a pipe\n");
	/* A regular file that opens, and cannot be read at its beginning. */
	check_file("/proc/self/mem", -EIO, "f: cannot read: Input/output error (EIO)\n");
	/* Exactly the largest, and one byte more. Zeroes are no text: it was read. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, YAML_FILE_BYTES_MAX), 0);
	check_file(path, -EINVAL, "f:1:1: a NUL byte: this is no text file\n");
	assert_int_equal(ftruncate(fd, YAML_FILE_BYTES_MAX + 1), 0);
	check_file(path, -EINVAL, "f: larger than 4 MiB: this is no configuration\n");
	/* Sparse: refused by its size, not by reading it. */
	assert_int_equal(ftruncate(fd, 100l << 20), 0);
	check_file(path, -EINVAL, "f: larger than 4 MiB: this is no configuration\n");
	close(fd);
	unlink(path);
}

static void test_unreadable_file(void **state)
{
	char path[] = "/tmp/test_yaml.XXXXXX";
	int fd = mkstemp(path);
	uid_t uid = geteuid();

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0), 0);
	close(fd);
	if (uid == 0) /* who reads everything */
		assert_int_equal(seteuid(65534), 0);
	check_file(path, -EACCES, "f: cannot open: Permission denied (EACCES)\n");
	assert_int_equal(seteuid(uid), 0);
	unlink(path);
}

/* In a child: writes text nr times, or until nobody reads; then, after a pause, last. */
_Noreturn static void feed(int fd, const char *text, size_t nr, const char *last)
{
	signal(SIGPIPE, SIG_DFL);
	while (nr-- > 0)
		if (write(fd, text, strlen(text)) < 0)
			_exit(1);
	usleep(*last ? 50000 : 0);
	_exit(write(fd, last, strlen(last)) < 0);
}

static void check_pipe(const char *text, size_t nr, const char *last, const char *expected)
{
	char path[64];
	int fds[2];
	pid_t pid, ended;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fds[0]);
		feed(fds[1], text, nr, last);
	}
	close(fds[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", fds[0]);
	check_file(path, *expected ? -EINVAL : 0, expected);
	close(fds[0]);
	while ((ended = waitpid(pid, NULL, 0)) < 0 && errno == EINTR)
		;
	assert_int_equal(ended, pid);
}

static void test_pipes(void **state)
{
	static const char too_large[] = "f: larger than 4 MiB: this is no configuration\n";
	char page[4097];

	(void)state;
	check_pipe("a: 1\n", 1, "", "");
	check_pipe("a: 1\n", 1, "b: [\n", "f:3:1: expected a value\n");
	check_pipe("# a comment of a line\n", 10000, "", "");
	/* Without an end: read to the limit only. */
	check_pipe("# a comment of a line\n", SIZE_MAX, "", too_large);
	/* The largest document exactly, and then one byte more. */
	memset(page, '#', 4095);
	memcpy(page + 4095, "\n", 2);
	check_pipe(page, YAML_FILE_BYTES_MAX / 4096, "", "");
	check_pipe(page, YAML_FILE_BYTES_MAX / 4096, "#", too_large);
}

static volatile sig_atomic_t signals;

static void count_signal(int nr)
{
	(void)nr;
	signals++;
}

/* SIGHUP, SIGTERM and others may come while the end of a pipe is waited for: nothing is lost by it.
 */
static void test_slow_pipe_and_signals(void **state)
{
	struct sigaction action = { .sa_handler = count_signal }, before; /* no SA_RESTART */
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { 0 };

	(void)state;
	signals = 0;
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	/* Two pauses of 50 ms are 50 signals, or fewer on a busy machine. */
	for (int i = 0; i < 100 && signals <= 5; i++) {
		check_pipe("a: 1\n", 1, "b: [\n", "f:3:1: expected a value\n");
		check_pipe("# a comment of a line\n", 10000, "a: [\n",
			   "f:10002:1: expected a value\n");
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	assert_true(signals > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_unreadable_file),
		cmocka_unit_test(test_pipes),
		cmocka_unit_test(test_slow_pipe_and_signals),
	};

	return cmocka_run_group_tests_name("yaml_file", tests, NULL, NULL);
}
