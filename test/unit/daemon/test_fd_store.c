/* park: what outlives a daemon, with a real keeper and with a made-up service manager. */
#include <sys/socket.h>
#include <sys/un.h>

#include "test/rig/fd_store_check.h"
#include "test/rig/log_catch.h"

/* Runs fn as a daemon does that is killed at its end. Returns whether fn was content. */
static bool in_killed_daemon(bool (*fn)(struct fd_store *fd_store))
{
	struct fd_store fd_store;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (fd_store_open(&fd_store, state_dir) < 0)
			_exit(1);
		fd_store.keeper_exe = UBLKD_KEEPER;
		if (!fn(&fd_store))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static bool put_two(struct fd_store *fd_store)
{
	put_word(fd_store, "mem-a", "first");
	put_word(fd_store, "mem-b.2_x", "second");
	return fd_store_nr(fd_store) == 2;
}

static bool has_two(struct fd_store *fd_store)
{
	return fd_store_nr(fd_store) == 2 && holds(fd_store_find(fd_store, "mem-a"), "first") &&
	       holds(fd_store_find(fd_store, "mem-b.2_x"), "second");
}

static void test_survives_kill(void **state)
{
	unsigned fds = count_fds(getpid());
	struct fd_store fd_store;

	(void)state;
	assert_true(in_killed_daemon(put_two));
	assert_true(in_killed_daemon(has_two)); /* and once more, with nothing put */
	open_fd_store(&fd_store);
	assert_true(has_two(&fd_store));
	assert_int_equal(fd_store_find(&fd_store, "mem-c"), -ENOENT);
	fd_store_drop(&fd_store, "mem-c");
	fd_store_drop(&fd_store, "mem-b.2_x");
	assert_int_equal(fd_store_find(&fd_store, "mem-b.2_x"), -ENOENT);
	assert_true(holds(fd_store_find(&fd_store, "mem-a"), "first"));
	drop_and_end(&fd_store, "mem-a");
	assert_int_equal(fd_store_nr(&fd_store), 0);
	fd_store_close(&fd_store);
	open_fd_store(&fd_store);
	assert_int_equal(fd_store_nr(&fd_store), 0);
	fd_store_close(&fd_store);
	assert_int_equal(count_fds(getpid()), fds);
}

static void test_stays_after_close(void **state)
{
	struct fd_store fd_store;

	(void)state;
	open_fd_store(&fd_store);
	put_two(&fd_store);
	fd_store_close(&fd_store);
	assert_int_equal(fd_store_nr(&fd_store), 0);
	open_fd_store(&fd_store);
	assert_true(has_two(&fd_store));
	fd_store_drop(&fd_store, "mem-a");
	drop_and_end(&fd_store, "mem-b.2_x");
	fd_store_close(&fd_store);
}

static void test_name_is_put_again(void **state)
{
	struct fd_store fd_store;

	(void)state;
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "old");
	put_word(&fd_store, "mem-a", "new");
	fd_store_put(&fd_store, "mem-a", fd_store_find(&fd_store, "mem-a"));
	assert_int_equal(fd_store_nr(&fd_store), 1);
	assert_true(holds(fd_store_find(&fd_store, "mem-a"), "new"));
	fd_store_close(&fd_store);
	open_fd_store(&fd_store);
	assert_int_equal(fd_store_nr(&fd_store), 1);
	assert_true(holds(fd_store_find(&fd_store, "mem-a"), "new"));
	drop_and_end(&fd_store, "mem-a");
	fd_store_close(&fd_store);
}

static bool is_b(const char *name, void *arg)
{
	++*(unsigned *)arg;
	return strcmp(name, "mem-b") == 0;
}

static void test_prune(void **state)
{
	unsigned asked = 0;
	struct fd_store fd_store;
	int fd;

	(void)state;
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "a");
	put_word(&fd_store, "mem-b", "b");
	put_word(&fd_store, "mem-c", "c");
	fd_store_prune(&fd_store, is_b, &asked);
	assert_int_equal(asked, 3);
	assert_int_equal(fd_store_nr(&fd_store), 1);
	fd_store_close(&fd_store);
	open_fd_store(&fd_store);
	assert_int_equal(fd_store_nr(&fd_store), 1);
	assert_string_equal(fd_store_at(&fd_store, 0, &fd), "mem-b");
	assert_true(holds(fd, "b"));
	drop_and_end(&fd_store, "mem-b");
	fd_store_close(&fd_store);
}

/* It must keep nothing of the host busy, and live on when the daemon's terminal goes. */
static void test_keeper_has_nothing_else(void **state)
{
	char path[64], target[256];
	struct fd_store fd_store;
	struct stat st;
	ssize_t len;
	pid_t pid;

	(void)state;
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "a");
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
	drop_and_end(&fd_store, "mem-a");
	fd_store_close(&fd_store);
}

/* What the dead one held is put into the next one as well. */
static void test_keeper_died(void **state)
{
	struct fd_store fd_store;

	(void)state;
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "first");
	kill(keeper_pid(), SIGKILL);
	assert_true(WIFSIGNALED(keeper_ended()));
	assert_int_equal(access(socket_path, F_OK), 0); /* stale */
	put_word(&fd_store, "mem-b.2_x", "second");
	fd_store_close(&fd_store);
	open_fd_store(&fd_store);
	assert_true(has_two(&fd_store));
	kill(keeper_pid(), SIGKILL);
	assert_true(WIFSIGNALED(keeper_ended()));
	fd_store_drop(&fd_store, "mem-a"); /* from nobody */
	assert_int_equal(fd_store_nr(&fd_store), 1);
	fd_store_close(&fd_store);
	open_fd_store(&fd_store);
	assert_int_equal(fd_store_nr(&fd_store), 0);
	fd_store_close(&fd_store);
}

/* ---- locks ---- */

static char locked_path[] = "/tmp/test_fd_store.lock";

static bool is_locked(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int fd = open(locked_path, O_RDWR | O_CLOEXEC);

	assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
	close(fd);
	return lock.l_type != F_UNLCK;
}

static bool put_locked(struct fd_store *fd_store)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int fd = open(locked_path, O_RDONLY | O_CLOEXEC);
	bool ok = fcntl(fd, F_OFD_SETLK, &lock) == 0;

	fd_store_put(fd_store, "mem-a/1", fd);
	return ok;
}

/* A lock holds without any daemon, and ends with the name, whoever has the description still. */
static void test_locks(void **state)
{
	struct fd_store fd_store;
	int copy;

	(void)state;
	close(open(locked_path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	assert_true(in_killed_daemon(put_locked));
	assert_true(is_locked());
	open_fd_store(&fd_store);
	copy = dup(fd_store_find(&fd_store, "mem-a/1"));
	fd_store_put(&fd_store, "mem-a/1", copy);
	assert_true(is_locked());
	drop_and_end(&fd_store, "mem-a/1");
	assert_false(is_locked());
	close(copy);
	fd_store_close(&fd_store);
	unlink(locked_path);
}

static void test_keeper_hangs(void **state)
{
	struct fd_store fd_store, next;
	double start;

	(void)state;
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "a");
	kill(keeper_pid(), SIGSTOP);
	start = seconds();
	put_word(&fd_store, "mem-b", "b");
	assert_true(seconds() - start > 0.5 && seconds() - start < 60);
	assert_true(holds(fd_store_find(&fd_store, "mem-b"), "b"));
	start = seconds();
	open_fd_store(&next);
	assert_true(seconds() - start < 60);
	assert_int_equal(fd_store_nr(&next), 0);
	fd_store_close(&next);
	kill(keeper_pid(), SIGCONT);
	fd_store_put(&fd_store, "mem-b", fd_store_find(&fd_store, "mem-b"));
	fd_store_close(&fd_store);
	open_fd_store(&fd_store);
	assert_int_equal(fd_store_nr(&fd_store), 2);
	fd_store_drop(&fd_store, "mem-b");
	drop_and_end(&fd_store, "mem-a");
	fd_store_close(&fd_store);
}

/* No keeper can be had: the device serves on, and nothing is left about. */
static void test_no_keeper(void **state)
{
	static const char *const exe[] = { "/nonexistent", "/bin/false", "/dev/null" };
	unsigned fds = count_fds(getpid());
	struct fd_store fd_store;
	const char *log;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(exe); i++) {
		open_fd_store(&fd_store);
		fd_store.keeper_exe = exe[i];
		log_catch();
		put_word(&fd_store, "mem-a", "a");
		log = log_end();
		/* What that means to each kind of device, and what to do. */
		assert_non_null(strstr(log, "the content of a mem device is lost"));
		assert_non_null(strstr(log, "nobody fences the client of an rbd device"));
		assert_non_null(strstr(log, "cure=\"ublkd-keeper is missing or does not run"));
		assert_true(holds(fd_store_find(&fd_store, "mem-a"), "a"));
		assert_int_equal(access(socket_path, F_OK), -1);
		fd_store_close(&fd_store);
		assert_int_equal(count_fds(getpid()), fds);
		assert_int_equal(keeper_pid(), 0);
	}
}

static void test_long_path(void **state)
{
	struct fd_store fd_store;
	char path[512];

	(void)state;
	mkdir(state_dir, 0700);
	snprintf(path, sizeof(path), "%s/%0140d", state_dir, 7);
	assert_int_equal(fd_store_open(&fd_store, path), 0);
	fd_store.keeper_exe = UBLKD_KEEPER;
	put_word(&fd_store, "mem-a", "a");
	fd_store_close(&fd_store);
	assert_int_equal(fd_store_open(&fd_store, path), 0);
	assert_true(holds(fd_store_find(&fd_store, "mem-a"), "a"));
	fd_store_drop(&fd_store, "mem-a");
	assert_int_equal(keeper_ended(), 0);
	fd_store_close(&fd_store);
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
	struct fd_store fd_store;
	bool ok;

	/* The third has another's name, the fourth has none. */
	ok = listen_fds("mem-a:mem-b.2_x:mem-a", fds, 4, getpid());
	ok = ok && fd_store_open(&fd_store, state_dir) == 0 && has_two(&fd_store) && is_env_gone();
	ok = ok && fd_store_find(&fd_store, "mem-a") == 3 && fcntl(3, F_GETFD) == FD_CLOEXEC;
	ok = ok && fcntl(5, F_GETFD) == -1 && fcntl(6, F_GETFD) == FD_CLOEXEC;
	fd_store_close(&fd_store);
	return ok && fcntl(3, F_GETFD) == -1;
}

static bool leaves_fds_of_others(void)
{
	static const char *const nonsense[] = { "-1", "2x", "99999999999999999999", "", "1000000" };
	int fd = memory("first");
	struct fd_store fd_store;
	bool ok;

	ok = listen_fds("mem-a", &fd, 1, getppid()) && fd_store_open(&fd_store, state_dir) == 0;
	ok = ok && fd_store_nr(&fd_store) == 0 && is_env_gone() && fcntl(3, F_GETFD) == 0;
	fd_store_close(&fd_store);
	for (unsigned i = 0; ok && i < ARRAY_SIZE(nonsense); i++) {
		listen_fds("", &fd, 1, getpid());
		setenv("LISTEN_FDS", nonsense[i], 1);
		ok = fd_store_open(&fd_store, state_dir) == 0 && fd_store_nr(&fd_store) == 0 &&
		     is_env_gone();
		fd_store_close(&fd_store);
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
	struct fd_store fd_store;
	bool ok;

	if (fd_store_open(&fd_store, state_dir) < 0)
		return false;
	fds[0] = dup(fd_store_find(&fd_store, "mem-a"));
	fds[1] = memory("other");
	fd_store_close(&fd_store);
	ok = listen_fds("mem-a:mem-b.2_x", fds, 2, getpid()) &&
	     fd_store_open(&fd_store, state_dir) == 0;
	ok = ok && fd_store_nr(&fd_store) == 2 && holds(fd_store_find(&fd_store, "mem-a"), "first");
	ok = ok && holds(fd_store_find(&fd_store, "mem-b.2_x"), "other");
	fd_store_close(&fd_store);
	return ok;
}

static void test_both_ways(void **state)
{
	struct fd_store fd_store;

	(void)state;
	assert_true(in_killed_daemon(put_two));
	run_in_child(takes_both_ways);
	open_fd_store(&fd_store);
	assert_true(has_two(&fd_store));
	fd_store_drop(&fd_store, "mem-b.2_x");
	drop_and_end(&fd_store, "mem-a");
	fd_store_close(&fd_store);
}

static int manager_start(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", fd_store_dir);
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
	struct fd_store fd_store;
	int fd, copy;

	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "old");
	fd = manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0");
	assert_true(holds(fd, "old"));
	close(fd);
	copy = dup(fd_store_find(&fd_store, "mem-a"));
	fd_store_put(&fd_store, "mem-a", copy); /* the same: systemd sees that */
	close(copy);
	close(manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0"));
	put_word(&fd_store, "mem-a", "new");
	assert_int_equal(manager_hears(manager, "FDSTOREREMOVE=1\nFDNAME=mem-a"), -1);
	fd = manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0");
	assert_true(holds(fd, "new"));
	close(fd);
	fd_store_drop(&fd_store, "mem-a");
	assert_int_equal(manager_hears(manager, "FDSTOREREMOVE=1\nFDNAME=mem-a"), -1);
	fd_store_drop(&fd_store, "mem-a");
	manager_hears_nothing(manager);
	fd_store_close(&fd_store);
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
	struct fd_store fd_store;

	(void)state;
	setenv("FDSTORE", "0", 1);
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "a");
	manager_hears_nothing(manager);
	assert_int_equal(access(socket_path, F_OK), 0);
	drop_and_end(&fd_store, "mem-a");
	fd_store_close(&fd_store);
	close(manager);
}

static void test_service_manager_is_gone(void **state)
{
	struct fd_store fd_store;

	(void)state;
	close(manager_start());
	setenv("FDSTORE", "512", 1);
	open_fd_store(&fd_store);
	put_word(&fd_store, "mem-a", "a");
	assert_true(holds(fd_store_find(&fd_store, "mem-a"), "a"));
	fd_store_drop(&fd_store, "mem-a");
	assert_int_equal(fd_store_find(&fd_store, "mem-a"), -ENOENT);
	fd_store_close(&fd_store);
}

/* Started by hand first, then as a service. */
static void test_from_keeper_to_manager(void **state)
{
	struct fd_store fd_store;
	int manager;

	(void)state;
	assert_true(in_killed_daemon(put_two));
	manager = manager_start();
	setenv("FDSTORE", "512", 1);
	open_fd_store(&fd_store);
	assert_true(has_two(&fd_store));
	fd_store_put(&fd_store, "mem-a", fd_store_find(&fd_store, "mem-a"));
	close(manager_hears(manager, "FDSTORE=1\nFDNAME=mem-a\nFDPOLL=0"));
	fd_store_drop(&fd_store, "mem-a");
	manager_hears(manager, "FDSTOREREMOVE=1\nFDNAME=mem-a");
	drop_and_end(&fd_store, "mem-b.2_x");
	fd_store_close(&fd_store);
	close(manager);
}

#define FD_STORE_TEST(fn) cmocka_unit_test_setup_teardown(fn, fd_store_setup, fd_store_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FD_STORE_TEST(test_survives_kill),
		FD_STORE_TEST(test_stays_after_close),
		FD_STORE_TEST(test_name_is_put_again),
		FD_STORE_TEST(test_prune),
		FD_STORE_TEST(test_keeper_has_nothing_else),
		FD_STORE_TEST(test_keeper_died),
		FD_STORE_TEST(test_locks),
		FD_STORE_TEST(test_keeper_hangs),
		FD_STORE_TEST(test_no_keeper),
		FD_STORE_TEST(test_long_path),
		FD_STORE_TEST(test_listen_fds),
		FD_STORE_TEST(test_both_ways),
		FD_STORE_TEST(test_service_manager),
		FD_STORE_TEST(test_service_manager_without_store),
		FD_STORE_TEST(test_service_manager_is_gone),
		FD_STORE_TEST(test_from_keeper_to_manager),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
