/*
 * successor and standby: what a program that is started to go on finds, and how both ends talk.
 * The program that is started is this one: with --report it writes down what it was given.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "daemon/handover/successor.h"

#define STORED_MAX 50

static char dir[] = "/tmp/test_successor.XXXXXX";
static char report_path[64], report[16384];
static char report_name[] = "test_successor", report_option[] = "--report";
static char *report_argv[] = { report_name, report_option, report_path, NULL };
static int stored[STORED_MAX];
static struct fd_store fd_store;
static int lock_fd;

/* The linker takes these before the library's: what is in the fd store is the test's. */
unsigned fd_store_nr(const struct fd_store *p)
{
	return p->nr;
}

const char *fd_store_at(const struct fd_store *p, unsigned idx, int *ret_fd)
{
	static char name[STORED_MAX][16];

	assert_ptr_equal(p, &fd_store);
	*ret_fd = stored[idx];
	snprintf(name[idx], sizeof(name[0]), "mem-%u", idx);
	return name[idx];
}

/* ---- the program that is started ---- */

static void report_fds(FILE *out)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;

	while (folder && (entry = readdir(folder))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(folder) || fd == fileno(out) ||
		    fstat(fd, &st) < 0)
			continue;
		fprintf(out, "fd %d %llu\n", fd, (unsigned long long)st.st_ino);
	}
	if (folder)
		closedir(folder);
}

static void report_signals(FILE *out)
{
	sigset_t blocked, pending;

	sigprocmask(SIG_SETMASK, NULL, &blocked);
	sigpending(&pending);
	for (int signal = 1; signal < SIGRTMIN; signal++) {
		if (sigismember(&blocked, signal))
			fprintf(out, "blocked %d\n", signal);
		if (sigismember(&pending, signal))
			fprintf(out, "pending %d\n", signal);
	}
}

static int write_report(const char *path)
{
	const char *text = getenv(SUCCESSOR_STANDBY);
	FILE *out = fopen(path, "we");
	int fd;

	if (!out)
		return 1;
	fprintf(out, "pid %d\n", (int)getpid());
	for (char **variable = environ; *variable; variable++)
		fprintf(out, "%s\n", *variable);
	report_signals(out);
	report_fds(out);
	fclose(out);
	if (text && sscanf(text, "%d", &fd) == 1 && send(fd, "hello", 5, MSG_NOSIGNAL) != 5)
		return 2;
	return 0;
}

/* ---- what it wrote ---- */

static void read_report(void)
{
	int fd = open(report_path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, report, sizeof(report) - 1);

	assert_true(bytes > 0);
	report[bytes] = '\0';
	close(fd);
}

__attribute__((format(printf, 1, 2))) static bool says(const char *fmt, ...)
{
	char line[512] = "\n";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + 1, sizeof(line) - 2, fmt, ap);
	va_end(ap);
	strcat(line, "\n");
	return strstr(report, line);
}

/* Lines that begin so. */
static unsigned count(const char *begin)
{
	unsigned nr = 0;

	for (const char *line = report; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		nr += strncmp(line, begin, strlen(begin)) == 0;
	}
	return nr;
}

static unsigned long long inode(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static unsigned count_fds(void)
{
	unsigned nr = 0;

	for (int fd = 0; fd < 1024; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

/* In the reverse order of their numbers, which are also those that they get: each is in the way. */
static void fd_store_some(unsigned nr)
{
	fd_store.nr = nr;
	for (unsigned i = nr; i-- > 0;) {
		stored[i] = memfd_create("test", MFD_CLOEXEC);
		assert_true(stored[i] >= 0);
	}
}

static int setup(void **state)
{
	(void)state;
	unlink(report_path);
	lock_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return lock_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	static const char *const names[] = { "LISTEN_PID",   "LISTEN_FDS", "LISTEN_FDNAMES",
					     "WATCHDOG_PID", "KEPT",	   SUCCESSOR_STANDBY };
	sigset_t none;

	(void)state;
	for (unsigned i = 0; i < fd_store.nr; i++)
		close(stored[i]);
	fd_store.nr = 0;
	close(lock_fd);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return 0;
}

static int end_of(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* Runs this program with --report as a standby child and reads what it wrote. */
static pid_t spawn_and_read(void)
{
	char hello[8];
	pid_t pid;
	int fd;

	assert_int_equal(
		successor_spawn("/proc/self/exe", report_argv, &fd_store, lock_fd, &pid, &fd), 0);
	assert_int_equal(end_of(pid), 0);
	assert_int_equal(recv(fd, hello, sizeof(hello), 0), 5);
	assert_memory_equal(hello, "hello", 5);
	/* and then it has ended: no other process has its end. */
	assert_int_equal(recv(fd, hello, sizeof(hello), 0), 0);
	close(fd);
	read_report();
	return pid;
}

static void assert_has_parked(void)
{
	for (unsigned i = 0; i < fd_store.nr; i++)
		assert_true(says("fd %u %llu", 3 + i, inode(stored[i])));
}

static void test_environment(void **state)
{
	pid_t pid;

	(void)state;
	setenv("LISTEN_PID", "1", 1);
	setenv("LISTEN_FDS", "77", 1);
	setenv("LISTEN_FDNAMES", "old", 1);
	setenv("WATCHDOG_PID", "1", 1);
	setenv(SUCCESSOR_STANDBY, "88 99", 1);
	setenv("KEPT", "a = b", 1);
	fd_store_some(2);
	pid = spawn_and_read();
	assert_true(says("LISTEN_PID=%d", (int)pid));
	assert_true(says("LISTEN_FDS=2"));
	assert_true(says("LISTEN_FDNAMES=mem-0:mem-1"));
	assert_true(says(SUCCESSOR_STANDBY "=5 6"));
	assert_true(says("KEPT=a = b"));
	assert_int_equal(count("WATCHDOG_PID="), 0);
	assert_int_equal(count("LISTEN_"), 3);
	assert_int_equal(count(SUCCESSOR_STANDBY), 1);
	/* ours is as it was */
	assert_string_equal(getenv("LISTEN_FDS"), "77");
	assert_string_equal(getenv("WATCHDOG_PID"), "1");
}

static void test_descriptors(void **state)
{
	unsigned fds;

	(void)state;
	fd_store_some(4);
	fds = count_fds();
	spawn_and_read();
	assert_has_parked();
	assert_true(says("fd 8 %llu", inode(lock_fd)));
	/* With stdin, stdout, stderr, and nothing else. */
	assert_int_equal(count("fd "), 3 + 4 + 2);
	assert_int_equal(count_fds(), fds);
}

static void test_nothing_parked(void **state)
{
	(void)state;
	spawn_and_read();
	assert_true(says("LISTEN_FDS=0"));
	assert_true(says("LISTEN_FDNAMES="));
	assert_true(says("fd 4 %llu", inode(lock_fd)));
	assert_int_equal(count("fd "), 3 + 2);
}

static void test_signals_are_open(void **state)
{
	sigset_t all;

	(void)state;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	spawn_and_read();
	assert_int_equal(count("blocked "), 0);
}

static void test_no_program(void **state)
{
	unsigned fds = count_fds();
	char byte;
	pid_t pid;
	int fd;

	(void)state;
	assert_int_equal(
		successor_spawn("/does/not/exist", report_argv, &fd_store, lock_fd, &pid, &fd), 0);
	assert_int_equal(WEXITSTATUS(end_of(pid)), SUCCESSOR_NO_PROGRAM);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	assert_int_equal(count_fds(), fds);
}

static void limit_fds(rlim_t nr)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = nr ? nr : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Each is needed twice for a moment. */
static void test_few_descriptors(void **state)
{
	pid_t pid;
	int fd;

	(void)state;
	fd_store_some(STORED_MAX);
	limit_fds(count_fds() + STORED_MAX + 8);
	spawn_and_read();
	assert_has_parked();
	limit_fds(count_fds() + STORED_MAX / 2);
	assert_int_equal(
		successor_spawn("/proc/self/exe", report_argv, &fd_store, lock_fd, &pid, &fd), 0);
	assert_int_equal(WEXITSTATUS(end_of(pid)), SUCCESSOR_NO_PROGRAM);
	close(fd);
	limit_fds(count_fds());
	assert_int_equal(
		successor_spawn("/proc/self/exe", report_argv, &fd_store, lock_fd, &pid, &fd),
		-EMFILE);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	limit_fds(0);
}

static void test_become(void **state)
{
	pid_t pid;

	(void)state;
	setenv(SUCCESSOR_STANDBY, "88 99", 1);
	setenv("WATCHDOG_PID", "1", 1);
	fd_store_some(3);
	/* Far up, where nothing is in their way: they must still be open afterwards. */
	for (unsigned i = 0; i < fd_store.nr; i++) {
		int low = stored[i];

		stored[i] = fcntl(low, F_DUPFD_CLOEXEC, 100);
		close(low);
	}
	pid = fork();
	if (pid == 0) {
		close(lock_fd);
		successor_become(report_argv, &fd_store);
		_exit(99);
	}
	assert_int_equal(end_of(pid), 0);
	read_report();
	assert_true(strncmp(report, "pid ", 4) == 0 && atoi(report + 4) == pid);
	assert_true(says("LISTEN_PID=%d", (int)pid));
	assert_true(says("LISTEN_FDS=3"));
	assert_int_equal(count(SUCCESSOR_STANDBY), 0);
	assert_int_equal(count("WATCHDOG_PID="), 0);
	assert_has_parked();
	assert_int_equal(count("fd "), 3 + 3);
}

/* ---- standby ---- */

static void test_standby_is_given(void **state)
{
	int pair[2];
	char text[16];
	struct standby s;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	snprintf(text, sizeof(text), "%d %d", pair[0], pair[1]);
	setenv(SUCCESSOR_STANDBY, text, 1);
	standby_init(&s);
	assert_true(standby_is(&s));
	assert_int_equal(s.socket, pair[0]);
	assert_int_equal(s.lock_fd, pair[1]);
	assert_int_equal(fcntl(pair[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(pair[1], F_GETFD), FD_CLOEXEC);
	assert_null(getenv(SUCCESSOR_STANDBY));
	standby_end(&s);
	assert_false(standby_is(&s));
	assert_int_equal(fcntl(pair[0], F_GETFD), -1);
	assert_int_equal(fcntl(pair[1], F_GETFD), FD_CLOEXEC);
	standby_end(&s);
	close(pair[1]);
}

static void test_standby_is_not_given(void **state)
{
	/* 0 is open, 999 is not. */
	static const char *const bad[] = {
		"",	" ",	 "0",	  "a b",  "0 b",   "a 0",   "-1 -1",
		"0 -1", "0 999", "999 0", "0, 0", "%n %n", "0x0 0", "99999999999999999999 0"
	};
	struct standby s = { .socket = 0 };

	(void)state;
	standby_init(&s);
	assert_false(standby_is(&s));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		s = (struct standby){ .socket = 0 };
		setenv(SUCCESSOR_STANDBY, bad[i], 1);
		standby_init(&s);
		assert_false(standby_is(&s));
		assert_int_equal(s.lock_fd, -1);
		assert_null(getenv(SUCCESSOR_STANDBY));
	}
}

static void test_standby_talks(void **state)
{
	char text[2 * STANDBY_MESSAGE_BYTES], long_word[STANDBY_MESSAGE_BYTES + 8];
	struct standby s = { .lock_fd = -1 };
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	s.socket = pair[0];
	assert_true(standby_say(&s, "ready %s", "1.2"));
	assert_int_equal(recv(pair[1], text, sizeof(text), 0), 9);
	assert_memory_equal(text, "ready 1.2", 9);
	memset(long_word, 'x', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	assert_true(standby_say(&s, "failed %s", long_word));
	assert_int_equal(recv(pair[1], text, sizeof(text), 0), STANDBY_MESSAGE_BYTES - 1);
	send(pair[1], "go", 2, 0);
	send(pair[1], "gone", 4, 0);
	send(pair[1], "no", 2, 0);
	assert_true(standby_wait_for_go(&s));
	assert_false(standby_wait_for_go(&s));
	assert_false(standby_wait_for_go(&s));
	close(pair[1]);
	assert_false(standby_wait_for_go(&s));
	assert_false(standby_say(&s, "done 1"));
	standby_end(&s);
}

/* What whoever started the tests left open is not the tests' business. */
static int group_setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_DFL);
	for (int fd = 3; fd < 1024; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (!mkdtemp(dir))
		return -1;
	snprintf(report_path, sizeof(report_path), "%s/report", dir);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	unlink(report_path);
	return rmdir(dir);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_environment),
		TEST(test_descriptors),
		TEST(test_nothing_parked),
		TEST(test_signals_are_open),
		TEST(test_no_program),
		TEST(test_few_descriptors),
		TEST(test_become),
		TEST(test_standby_is_given),
		TEST(test_standby_is_not_given),
		TEST(test_standby_talks),
	};

	if (argc == 3 && strcmp(argv[1], "--report") == 0)
		return write_report(argv[2]);
	return cmocka_run_group_tests_name("successor", tests, group_setup, group_teardown);
}
