/* keeper: clients that are broken, hostile, or many. */
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/fdstore/keeper.h"
#include "test/rig/fd_store_check.h"

static struct fd_store fd_store;
static pid_t keeper;
static unsigned keeper_fds; /* with mem-a held, and nobody connected */

static int setup(void **state)
{
	if (fd_store_setup(state) < 0 || fd_store_open(&fd_store, state_dir) < 0)
		return -1;
	fd_store.keeper_exe = UBLKD_KEEPER;
	put_word(&fd_store, "mem-a", "a");
	keeper = keeper_pid();
	return keeper > 0 ? 0 : -1;
}

/* It noticed what its clients did. */
static void await_fds(unsigned nr)
{
	for (int i = 0; i < 6000 && count_fds(keeper) != nr; i++)
		usleep(10000);
	assert_int_equal(count_fds(keeper), nr);
}

/* Every test ends so: it has kept nothing of what it was sent, and serves on. */
static void expect_unhurt(void)
{
	struct fd_store next;

	await_fds(keeper_fds);
	assert_int_equal(keeper_pid(), keeper);
	open_fd_store(&next);
	assert_int_equal(fd_store_nr(&next), 1);
	assert_true(holds(fd_store_find(&next, "mem-a"), "a"));
	fd_store_close(&next);
	drop_and_end(&fd_store, "mem-a");
}

static int teardown(void **state)
{
	fd_store_close(&fd_store);
	return fd_store_teardown(state);
}

static int dial(void)
{
	struct timeval limit = { .tv_sec = 10 };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(addr.sun_path, socket_path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), 0);
	return fd;
}

static ssize_t say(int client, const void *bytes, size_t nr, const int *fds, unsigned fd_nr)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = nr };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg = (void *)control;

	if (fd_nr > 0) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(fd_nr * sizeof(int));
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(fd_nr * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, fd_nr * sizeof(int));
	}
	return sendmsg(client, &msg, MSG_NOSIGNAL);
}

/* What the keeper answers; 1 when it hangs up. */
static int hear(int client)
{
	struct keeper_reply reply;
	ssize_t bytes = recv(client, &reply, sizeof(reply), 0);

	if (bytes == 0 || (bytes < 0 && errno == ECONNRESET))
		return 1;
	assert_int_equal(bytes, sizeof(reply));
	assert_int_equal(reply.magic, KEEPER_MAGIC);
	return reply.result;
}

static struct keeper_request request(enum keeper_op op, const char *name)
{
	struct keeper_request req = { .magic = KEEPER_MAGIC, .op = op };

	strcpy(req.name, name);
	return req;
}

static int ask_with(int client, struct keeper_request req, const int *fds, unsigned fd_nr)
{
	assert_int_equal(say(client, &req, sizeof(req), fds, fd_nr), sizeof(req));
	return hear(client);
}

static void test_no_request(void **state)
{
	static const size_t lengths[] = { 1, 4, sizeof(struct keeper_request) - 1,
					  sizeof(struct keeper_request) + 1, 65536 };
	struct keeper_request wrong = request(KEEPER_DROP, "mem-a");
	uint8_t *bytes = calloc(1, 65536);
	int client = dial(), fd = memory("x");

	(void)state;
	memcpy(bytes, &wrong, sizeof(wrong));
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		assert_int_equal(say(client, bytes, lengths[i], &fd, 1), lengths[i]);
		assert_int_equal(hear(client), -EPROTO);
	}
	wrong.magic++;
	assert_int_equal(ask_with(client, wrong, &fd, 1), -EPROTO);
	assert_int_equal(ask_with(client, request(99, "mem-a"), &fd, 1), -EINVAL);
	assert_int_equal(ask_with(client, request(0, "mem-a"), NULL, 0), -EINVAL);
	free(bytes);
	close(fd);
	close(client);
	expect_unhurt();
}

static void test_empty_message(void **state)
{
	int client = dial(), fd = memory("x");

	(void)state;
	assert_int_equal(say(client, "", 0, &fd, 1), 0);
	assert_int_equal(hear(client), 1);
	close(fd);
	close(client);
	expect_unhurt();
}

static void test_names(void **state)
{
	static const char *const wrong[] = { "", "a:b", "a\nb", "a\x7f", "\xff" };
	struct keeper_request endless = request(KEEPER_PUT, "");
	int client = dial(), fd = memory("x");

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(ask_with(client, request(KEEPER_PUT, wrong[i]), &fd, 1), -EINVAL);
		assert_int_equal(ask_with(client, request(KEEPER_DROP, wrong[i]), NULL, 0),
				 -EINVAL);
	}
	memset(endless.name, 'x', sizeof(endless.name));
	assert_int_equal(ask_with(client, endless, &fd, 1), -EINVAL);
	endless.op = KEEPER_DROP;
	assert_int_equal(ask_with(client, endless, NULL, 0), -EINVAL);
	assert_int_equal(ask_with(client, request(KEEPER_DROP, "mem-"), NULL, 0), -ENOENT);
	close(fd);
	close(client);
	expect_unhurt();
}

/* For its locks; one that could be written, or is no file, is of no use to them. */
static void test_file(void **state)
{
	char path[] = "/tmp/test_keeper.XXXXXX";
	int client = dial(), written = mkostemp(path, O_CLOEXEC);
	int read_only = open(path, O_RDONLY | O_CLOEXEC);
	int others[] = { written, open(path, O_PATH | O_CLOEXEC),
			 open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			 open("/dev/null", O_RDONLY | O_CLOEXEC) };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), &others[i], 1),
				 -EINVAL);
		close(others[i]);
	}
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), &read_only, 1), 0);
	assert_int_equal(ask_with(client, request(KEEPER_DROP, "x"), NULL, 0), 0);
	close(read_only);
	close(client);
	unlink(path);
	expect_unhurt();
}

/* One to a server, which others than the daemon hold; what listens, or waits in close, is not. */
static void test_connection(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger waits = { .l_onoff = 1, .l_linger = 5 };
	int client = dial(), listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pair[2];

	(void)state;
	assert_int_equal(bind(listens, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listens, 1), 0);
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), &listens, 1), -EINVAL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), &pair[0], 1), 0);
	/* It stands when we are gone, and ends with the name. */
	close(pair[0]);
	assert_int_equal(send(pair[1], "", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(ask_with(client, request(KEEPER_DROP, "x"), NULL, 0), 0);
	assert_int_equal(send(pair[1], "", 1, MSG_NOSIGNAL), -1);
	setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &waits, sizeof(waits));
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), &pair[1], 1), -EINVAL);
	close(pair[1]);
	close(listens);
	close(client);
	expect_unhurt();
}

static void test_no_memory(void **state)
{
	int client = dial(), memory_fd = memory("x");
	int fds[] = { client, open("/dev/null", O_RDWR | O_CLOEXEC),
		      open("/", O_PATH | O_CLOEXEC) };
	int three[] = { memory_fd, memory_fd, memory_fd };

	(void)state;
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), NULL, 0), -EBADF);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), &fds[i], 1), -EINVAL);
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), three, 2), -EMFILE);
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "x"), three, 3), -EMFILE);
	/* One that comes with what needs none is not kept. */
	assert_int_equal(ask_with(client, request(KEEPER_DROP, "x"), three, 1), -ENOENT);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	close(memory_fd);
	expect_unhurt();
}

static void test_at(void **state)
{
	struct keeper_request req = request(KEEPER_AT, "");
	int client = dial();

	(void)state;
	for (req.idx = 1; req.idx != 0; req.idx = req.idx * 2)
		assert_int_equal(ask_with(client, req, NULL, 0), -ENOENT);
	req.idx = UINT32_MAX;
	assert_int_equal(ask_with(client, req, NULL, 0), -ENOENT);
	close(client);
	expect_unhurt();
}

/* More than it serves at a time, who say nothing: they cannot lock the daemon out. */
static void test_silent_clients(void **state)
{
	int clients[4 * KEEPER_CLIENTS_MAX];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(clients); i++)
		clients[i] = dial();
	put_word(&fd_store, "mem-b", "b");
	put_word(&fd_store, "mem-b", "c");
	fd_store_drop(&fd_store, "mem-b");
	assert_int_equal(hear(clients[0]), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(clients); i++)
		close(clients[i]);
	expect_unhurt();
}

static void test_client_does_not_listen(void **state)
{
	struct keeper_request req = request(KEEPER_AT, "");
	int client = dial();
	unsigned nr = 0;

	(void)state;
	while (nr < 100000 && say(client, &req, sizeof(req), NULL, 0) > 0)
		nr++;
	assert_true(nr > 0 && nr < 100000); /* it was disconnected */
	assert_true(errno == EPIPE || errno == ECONNRESET);
	close(client);
	expect_unhurt();
}

static void test_full(void **state)
{
	int client = dial(), fd = memory("x");
	char name[32];

	(void)state;
	for (unsigned i = 1; i < KEEPER_HELD_MAX; i++) {
		snprintf(name, sizeof(name), "mem-%u", i);
		assert_int_equal(ask_with(client, request(KEEPER_PUT, name), &fd, 1), 0);
	}
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "more"), &fd, 1), -ENOSPC);
	assert_int_equal(ask_with(client, request(KEEPER_PUT, "mem-7"), &fd, 1), 0);
	for (unsigned i = 1; i < KEEPER_HELD_MAX; i++) {
		snprintf(name, sizeof(name), "mem-%u", i);
		assert_int_equal(ask_with(client, request(KEEPER_DROP, name), NULL, 0), 0);
	}
	close(fd);
	close(client);
	expect_unhurt();
}

static void test_other_user(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0) {
		expect_unhurt();
		skip();
	}
	chmod(fd_store_dir, 0755);
	chmod(state_dir, 0755);
	chmod(socket_path, 0666);
	pid = fork();
	if (pid == 0) {
		int client;

		if (setresuid(65534, 65534, 65534) < 0)
			_exit(2);
		client = dial();
		_exit(hear(client) == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	expect_unhurt();
}

static bool put_one_with_few_files(void)
{
	struct rlimit few = { 40, 40 };
	struct fd_store small;

	if (setrlimit(RLIMIT_NOFILE, &few) < 0 || fd_store_open(&small, state_dir) < 0)
		return false;
	small.keeper_exe = UBLKD_KEEPER;
	put_word(&small, "mem-0", "x");
	fd_store_close(&small);
	return true;
}

/* With few descriptors it holds less, but has always one for the next client. */
static void test_few_files(void **state)
{
	int client, ret = 0, fd = memory("x"), status;
	unsigned held_nr = 0;
	pid_t pid = fork();
	char name[16];

	(void)state;
	if (pid == 0)
		_exit(put_one_with_few_files() ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	client = dial();
	while (ret == 0 && held_nr < 40) {
		snprintf(name, sizeof(name), "mem-%u", held_nr++);
		ret = ask_with(client, request(KEEPER_PUT, name), &fd, 1);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_true(held_nr > 10);
	close(client);
	for (unsigned i = 0; i < 3 * KEEPER_CLIENTS_MAX; i++) {
		client = dial(); /* all of them stay */
		assert_int_equal(ask_with(client, request(KEEPER_PUT, "mem-0"), &fd, 1), 0);
	}
	kill(keeper_pid(), SIGKILL);
	assert_true(WIFSIGNALED(keeper_ended()));
}

static void test_started_by_hand(void **state)
{
	int status = system(UBLKD_KEEPER " 2>&1 </dev/null | grep -q 'started by ublkd'");

	(void)state;
	assert_int_equal(status, 0);
	status = system(UBLKD_KEEPER " >/dev/null 2>&1 </dev/null");
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

/* How many descriptors it has when it holds one: as many as it has in 20 looks in a row. */
static int measure(void **state)
{
	if (setup(state) < 0)
		return -1;
	for (int same = 0; same < 20; same++) {
		unsigned nr = count_fds(keeper);

		if (nr != keeper_fds)
			same = 0;
		keeper_fds = nr;
		usleep(10000);
	}
	fd_store_drop(&fd_store, "mem-a");
	keeper_ended();
	return teardown(state);
}

#define KEEPER_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		KEEPER_TEST(test_no_request),
		KEEPER_TEST(test_empty_message),
		KEEPER_TEST(test_names),
		KEEPER_TEST(test_file),
		KEEPER_TEST(test_connection),
		KEEPER_TEST(test_no_memory),
		KEEPER_TEST(test_at),
		KEEPER_TEST(test_silent_clients),
		KEEPER_TEST(test_client_does_not_listen),
		KEEPER_TEST(test_full),
		KEEPER_TEST(test_other_user),
		cmocka_unit_test_setup_teardown(test_few_files, fd_store_setup, fd_store_teardown),
		cmocka_unit_test(test_started_by_hand),
	};

	return cmocka_run_group_tests(tests, measure, NULL);
}
