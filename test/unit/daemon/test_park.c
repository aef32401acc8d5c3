/* park: what outlives a daemon, with a real keeper and with a made-up service manager. */
#include <sys/socket.h>
#include <sys/un.h>

#include "test/rig/park_check.h"

/* Runs fn as a daemon does that is killed at its end. Returns whether fn was content. */
static bool in_killed_daemon(bool (*fn)(struct park *park))
{
	struct park park;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (park_open(&park, state_dir) < 0)
			_exit(1);
		park.keeper_exe = UBLKD_KEEPER;
		if (!fn(&park))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static bool put_two(struct park *park)
{
	put_word(park, "mem-a", "first");
	put_word(park, "mem-b.2_x", "second");
	return park_nr(park) == 2;
}

static bool has_two(struct park *park)
{
	return park_nr(park) == 2 && holds(park_find(park, "mem-a"), "first") &&
	       holds(park_find(park, "mem-b.2_x"), "second");
}

static void test_survives_kill(void **state)
{
	unsigned fds = count_fds(getpid());
	struct park park;

	(void)state;
	assert_true(in_killed_daemon(put_two));
	assert_true(in_killed_daemon(has_two)); /* and once more, with nothing put */
	open_park(&park);
	assert_true(has_two(&park));
	assert_int_equal(park_find(&park, "mem-c"), -ENOENT);
	park_drop(&park, "mem-c");
	park_drop(&park, "mem-b.2_x");
	assert_int_equal(park_find(&park, "mem-b.2_x"), -ENOENT);
	assert_true(holds(park_find(&park, "mem-a"), "first"));
	drop_and_end(&park, "mem-a");
	assert_int_equal(park_nr(&park), 0);
	park_close(&park);
	open_park(&park);
	assert_int_equal(park_nr(&park), 0);
	park_close(&park);
	assert_int_equal(count_fds(getpid()), fds);
}

static void test_stays_after_close(void **state)
{
	struct park park;

	(void)state;
	open_park(&park);
	put_two(&park);
	park_close(&park);
	assert_int_equal(park_nr(&park), 0);
	open_park(&park);
	assert_true(has_two(&park));
	park_drop(&park, "mem-a");
	drop_and_end(&park, "mem-b.2_x");
	park_close(&park);
}

static void test_name_is_put_again(void **state)
{
	struct park park;

	(void)state;
	open_park(&park);
	put_word(&park, "mem-a", "old");
	put_word(&park, "mem-a", "new");
	park_put(&park, "mem-a", park_find(&park, "mem-a"));
	assert_int_equal(park_nr(&park), 1);
	assert_true(holds(park_find(&park, "mem-a"), "new"));
	park_close(&park);
	open_park(&park);
	assert_int_equal(park_nr(&park), 1);
	assert_true(holds(park_find(&park, "mem-a"), "new"));
	drop_and_end(&park, "mem-a");
	park_close(&park);
}

static bool is_b(const char *name, void *arg)
{
	++*(unsigned *)arg;
	return strcmp(name, "mem-b") == 0;
}

static void test_prune(void **state)
{
	unsigned asked = 0;
	struct park park;
	int fd;

	(void)state;
	open_park(&park);
	put_word(&park, "mem-a", "a");
	put_word(&park, "mem-b", "b");
	put_word(&park, "mem-c", "c");
	park_prune(&park, is_b, &asked);
	assert_int_equal(asked, 3);
	assert_int_equal(park_nr(&park), 1);
	park_close(&park);
	open_park(&park);
	assert_int_equal(park_nr(&park), 1);
	assert_string_equal(park_at(&park, 0, &fd), "mem-b");
	assert_true(holds(fd, "b"));
	drop_and_end(&park, "mem-b");
	park_close(&park);
}

/* It must keep nothing of the host busy, and live on when the daemon's terminal goes. */
static void test_keeper_has_nothing_else(void **state)
{
	char path[64], target[256];
	struct park park;
	struct stat st;
	ssize_t len;
	pid_t pid;

	(void)state;
	open_park(&park);
	put_word(&park, "mem-a", "a");
	pid = keeper_pid();
	assert_true(pid > 0);
	assert_int_equal(getsid(pid) == getsid(0), 0);
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
	len = readlink(path, target, sizeof(target));
	assert_true(len == 1 && target[0] == '/');
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
		len = readlink(path, target, sizeof(target) - 1);
		target[len < 0 ? 0 : len] = '\0';
		assert_true(len < 0 || strncmp(target, "socket:", 7) == 0 ||
			    strncmp(target, "/memfd:test", 11) == 0);
	}
	assert_int_equal(stat(socket_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	drop_and_end(&park, "mem-a");
	park_close(&park);
}

/* What the dead one held is put into the next one as well. */
static void test_keeper_died(void **state)
{
	struct park park;

	(void)state;
	open_park(&park);
	put_word(&park, "mem-a", "first");
	kill(keeper_pid(), SIGKILL);
	assert_true(WIFSIGNALED(keeper_ended()));
	assert_int_equal(access(socket_path, F_OK), 0); /* stale */
	put_word(&park, "mem-b.2_x", "second");
	park_close(&park);
	open_park(&park);
	assert_true(has_two(&park));
	kill(keeper_pid(), SIGKILL);
	assert_true(WIFSIGNALED(keeper_ended()));
	park_drop(&park, "mem-a"); /* from nobody */
	assert_int_equal(park_nr(&park), 1);
	park_close(&park);
	open_park(&park);
	assert_int_equal(park_nr(&park), 0);
	park_close(&park);
}

static void test_keeper_hangs(void **state)
{
	struct park park, next;
	double start;

	(void)state;
	open_park(&park);
	put_word(&park, "mem-a", "a");
	kill(keeper_pid(), SIGSTOP);
	start = seconds();
	put_word(&park, "mem-b", "b");
	assert_true(seconds() - start > 0.5 && seconds() - start < 5);
	assert_true(holds(park_find(&park, "mem-b"), "b"));
	start = seconds();
	open_park(&next);
	assert_true(seconds() - start < 5);
	assert_int_equal(park_nr(&next), 0);
	park_close(&next);
	kill(keeper_pid(), SIGCONT);
	park_put(&park, "mem-b", park_find(&park, "mem-b"));
	park_close(&park);
	open_park(&park);
	assert_int_equal(park_nr(&park), 2);
	park_drop(&park, "mem-b");
	drop_and_end(&park, "mem-a");
	park_close(&park);
}

/* No keeper can be had: the device serves on, and nothing is left about. */
static void test_no_keeper(void **state)
{
	static const char *const exe[] = { "/nonexistent", "/bin/false", "/dev/null" };
	unsigned fds = count_fds(getpid());
	struct park park;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(exe); i++) {
		open_park(&park);
		park.keeper_exe = exe[i];
		put_word(&park, "mem-a", "a");
		assert_true(holds(park_find(&park, "mem-a"), "a"));
		assert_int_equal(access(socket_path, F_OK), -1);
		park_close(&park);
		assert_int_equal(count_fds(getpid()), fds);
		assert_int_equal(keeper_pid(), 0);
	}
}

static void test_long_path(void **state)
{
	struct park park;
	char path[512];

	(void)state;
	mkdir(state_dir, 0700);
	snprintf(path, sizeof(path), "%s/%0140d", state_dir, 7);
	assert_int_equal(park_open(&park, path), 0);
	park.keeper_exe = UBLKD_KEEPER;
	put_word(&park, "mem-a", "a");
	park_close(&park);
	assert_int_equal(park_open(&park, path), 0);
	assert_true(holds(park_find(&park, "mem-a"), "a"));
	park_drop(&park, "mem-a");
	assert_int_equal(keeper_ended(), 0);
	park_close(&park);
}

/* fds from 3 on, as systemd passes them; run in a child, since what was there is lost. */
static bool listen_fds(const char *names, const int *fds, int nr, pid_t pid)
{
	char number[16];
	int high[8];

	for (int i = 0; i < nr; i++)
		high[i] = fcntl(fds[i], F_DUPFD, 100);
	for (int i = 0; i < nr; i++)
		if (dup2(high[i], 3 + i) < 0)
			return false;
	snprintf(number, sizeof(number), "%d", (int)pid);
	setenv("LISTEN_PID", number, 1);
	snprintf(number, sizeof(number), "%d", nr);
	setenv("LISTEN_FDS", number, 1);
	if (names)
		setenv("LISTEN_FDNAMES", names, 1);
	return true;
}

static bool is_env_gone(void)
{
	return !getenv("LISTEN_PID") && !getenv("LISTEN_FDS") && !getenv("LISTEN_FDNAMES");
}

static void run_in_child(bool (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(fn() ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool takes_listen_fds(void)
{
	int fds[] = { memory("first"), memory("second"), memory("none"), memory("none") };
	struct park park;
	bool ok;

	/* The third has another's name, the fourth has none. */
	ok = listen_fds("mem-a:mem-b.2_x:mem-a", fds, 4, getpid());
	ok = ok && park_open(&park, state_dir) == 0 && has_two(&park) && is_env_gone();
	ok = ok && park_find(&park, "mem-a") == 3 && fcntl(3, F_GETFD) == FD_CLOEXEC;
	ok = ok && fcntl(5, F_GETFD) == -1 && fcntl(6, F_GETFD) == FD_CLOEXEC;
	park_close(&park);
	return ok && fcntl(3, F_GETFD) == -1;
}

static bool leaves_fds_of_others(void)
{
	static const char *const nonsense[] = { "-1", "2x", "99999999999999999999", "", "1000000" };
	int fd = memory("first");
	struct park park;
	bool ok;

	ok = listen_fds("mem-a", &fd, 1, getppid()) && park_open(&park, state_dir) == 0;
	ok = ok && park_nr(&park) == 0 && is_env_gone() && fcntl(3, F_GETFD) == 0;
	park_close(&park);
	for (unsigned i = 0; ok && i < ARRAY_SIZE(nonsense); i++) {
		listen_fds("", &fd, 1, getpid());
		setenv("LISTEN_FDS", nonsense[i], 1);
		ok = park_open(&park, state_dir) == 0 && park_nr(&park) == 0 && is_env_gone();
		park_close(&park);
	}
	return ok;
}

static void test_listen_fds(void **state)
{
	(void)state;
	run_in_child(takes_listen_fds);
	run_in_child(leaves_fds_of_others);
}

/* An upgrade hands over what the keeper holds as well. */
static bool takes_both_ways(void)
{
	int fds[2];
	struct park park;
	bool ok;

	if (park_open(&park, state_dir) < 0)
		return false;
	fds[0] = dup(park_find(&park, "mem-a"));
	fds[1] = memory("other");
	park_close(&park);
	ok = listen_fds("mem-a:mem-b.2_x", fds, 2, getpid()) && park_open(&park, state_dir) == 0;
	ok = ok && park_nr(&park) == 2 && holds(park_find(&park, "mem-a"), "first");
	ok = ok && holds(park_find(&park, "mem-b.2_x"), "other");
	park_close(&park);
	return ok;
}

static void test_both_ways(void **state)
{
	struct park park;

	(void)state;
	assert_true(in_killed_daemon(put_two));
	run_in_child(takes_both_ways);
	open_park(&park);
	assert_true(has_two(&park));
	park_drop(&park, "mem-b.2_x");
	drop_and_end(&park, "mem-a");
	park_close(&park);
}

static int manager_start(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", park_dir);
	assert_int_equal(bind(fd, (void *)&addr, sizeof(addr)), 0);
	setenv("NOTIFY_SOCKET", addr.sun_path, 1);
	return fd;
}

/* The next message must be this; returns the descriptor that came with it, or -1. */
static int manager_hears(int manager, const char *message)
{
	char text[512], control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = text, .iov_len = sizeof(text) - 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	ssize_t bytes = recvmsg(manager, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *cmsg;
	int fd = -1;

	assert_true(bytes > 0);
	text[bytes] = '\0';
	assert_string_equal(text, message);
	cmsg = CMSG_FIRSTHDR(&msg);
	if (cmsg)
		memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

static void manager_hears_nothing(int manager)
{
	char text[8];

	assert_int_equal(recv(manager, text, sizeof(text), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

static void check_manager(int manager)
{
	struct park park;
	int fd, copy;

	open_park(&park);
	put_word(&park, "mem-a", "old");
	fd = manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0");
	assert_true(holds(fd, "old"));
	close(fd);
	copy = dup(park_find(&park, "mem-a"));
	park_put(&park, "mem-a", copy); /* the same: systemd sees that */
	close(copy);
	close(manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0"));
	put_word(&park, "mem-a", "new");
	assert_int_equal(manager_hears(manager, "FDSTOREREMOVE=1\nFDNAME=mem-a"), -1);
	fd = manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0");
	assert_true(holds(fd, "new"));
	close(fd);
	park_drop(&park, "mem-a");
	assert_int_equal(manager_hears(manager, "FDSTOREREMOVE=1\nFDNAME=mem-a"), -1);
	park_drop(&park, "mem-a");
	manager_hears_nothing(manager);
	park_close(&park);
	assert_int_equal(access(socket_path, F_OK), -1);
	assert_int_equal(keeper_pid(), 0);
}

static void test_service_manager(void **state)
{
	int manager = manager_start();

	(void)state;
	setenv("FDSTORE", "512", 1);
	check_manager(manager);
	unsetenv("FDSTORE");
	setenv("UBLKD_FDSTORE", "1", 1);
	check_manager(manager);
	close(manager);
}

/* A unit without a store, as of a systemd that has none. */
static void test_service_manager_without_store(void **state)
{
	int manager = manager_start();
	struct park park;

	(void)state;
	setenv("FDSTORE", "0", 1);
	open_park(&park);
	put_word(&park, "mem-a", "a");
	manager_hears_nothing(manager);
	assert_int_equal(access(socket_path, F_OK), 0);
	drop_and_end(&park, "mem-a");
	park_close(&park);
	close(manager);
}

static void test_service_manager_is_gone(void **state)
{
	struct park park;

	(void)state;
	close(manager_start());
	setenv("FDSTORE", "512", 1);
	open_park(&park);
	put_word(&park, "mem-a", "a");
	assert_true(holds(park_find(&park, "mem-a"), "a"));
	park_drop(&park, "mem-a");
	assert_int_equal(park_find(&park, "mem-a"), -ENOENT);
	park_close(&park);
}

/* Started by hand first, then as a service. */
static void test_from_keeper_to_manager(void **state)
{
	struct park park;
	int manager;

	(void)state;
	assert_true(in_killed_daemon(put_two));
	manager = manager_start();
	setenv("FDSTORE", "512", 1);
	open_park(&park);
	assert_true(has_two(&park));
	park_put(&park, "mem-a", park_find(&park, "mem-a"));
	close(manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0"));
	park_drop(&park, "mem-a");
	manager_hears(manager, "FDSTOREREMOVE=1\nFDNAME=mem-a");
	drop_and_end(&park, "mem-b.2_x");
	park_close(&park);
	close(manager);
}

#define PARK_TEST(fn) cmocka_unit_test_setup_teardown(fn, park_setup, park_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PARK_TEST(test_survives_kill),
		PARK_TEST(test_stays_after_close),
		PARK_TEST(test_name_is_put_again),
		PARK_TEST(test_prune),
		PARK_TEST(test_keeper_has_nothing_else),
		PARK_TEST(test_keeper_died),
		PARK_TEST(test_keeper_hangs),
		PARK_TEST(test_no_keeper),
		PARK_TEST(test_long_path),
		PARK_TEST(test_listen_fds),
		PARK_TEST(test_both_ways),
		PARK_TEST(test_service_manager),
		PARK_TEST(test_service_manager_without_store),
		PARK_TEST(test_service_manager_is_gone),
		PARK_TEST(test_from_keeper_to_manager),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
