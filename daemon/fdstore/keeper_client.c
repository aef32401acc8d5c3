/*
 * The client's side of keeper.h. Main thread; owns nothing between calls.
 *
 * Happy path: connect -> a request, a reply -> close. A put that finds nobody listening binds the
 * socket, starts ublkd-keeper with it and a first connection, and sends the request there.
 * Failure modes: a folder, or a keeper, of another user is not trusted (-EPERM); the socket of a
 * keeper that died refuses connections and is replaced; a keeper
 * that does not answer in time is an error, not a reason to start another, which would take the
 * socket's name and with it what the first one holds.
 */
#include "daemon/fdstore/keeper_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "daemon/runtime/fd_message.h"
#include "daemon/fdstore/keeper.h"
#include "daemon/fdstore/fd_store.h"
#include "daemon/runtime/path.h"

/* By way of the folder's descriptor, or a long path would not fit into sun_path. */
static int folder_open(const char *state_dir, struct sockaddr_un *ret_addr)
{
	char words[PATH_WORDS_BYTES];
	int folder = path_open_own_folder(state_dir, O_PATH, words);

	if (folder < 0)
		return folder;
	*ret_addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret_addr->sun_path, sizeof(ret_addr->sun_path), "/proc/self/fd/%d/%s", folder,
		 KEEPER_SOCKET);
	return folder;
}

static int set_timeout(int fd)
{
	struct timeval limit = { .tv_sec = FD_STORE_TIMEOUT_MS / 1000,
				 .tv_usec = FD_STORE_TIMEOUT_MS % 1000 * 1000 };

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	return 0;
}

static int connect_as(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ret = 0;

	if (fd < 0)
		return -errno;
	ret = set_timeout(fd);
	if (ret == 0 && connect(fd, (const void *)addr, sizeof(*addr)) < 0)
		ret = errno == ECONNREFUSED ? -ENOENT : errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (ret == 0 && !fd_message_peer_is_us(fd))
		ret = -EPERM;
	if (ret == 0)
		return fd;
	close(fd);
	return ret;
}

/* Returns the connection, or -ENOENT when there is no keeper, or another -errno. */
static int link_open(const char *state_dir)
{
	struct sockaddr_un addr;
	int folder = folder_open(state_dir, &addr), fd;

	if (folder < 0)
		return folder;
	fd = connect_as(&addr);
	close(folder);
	return fd;
}

/* What is held no more needs no keeper: it ends when we hang up, and its socket goes before. */
static void remove_socket(const char *state_dir)
{
	char words[PATH_WORDS_BYTES];
	int folder = path_open_own_folder(state_dir, O_PATH, words);

	if (folder < 0)
		return;
	unlinkat(folder, KEEPER_SOCKET, 0);
	close(folder);
}

static int send_request(int link, struct keeper_request *req, int fd)
{
	struct iovec iov = { .iov_base = req, .iov_len = sizeof(*req) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fd_message room = { 0 };

	if (fd >= 0)
		fd_message_put(&msg, &room, fd);
	while (sendmsg(link, &msg, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return 0;
}

static int check_reply(const struct keeper_reply *reply, ssize_t bytes)
{
	if (bytes == 0)
		return -ECONNRESET;
	if (bytes != (ssize_t)sizeof(*reply) || reply->magic != KEEPER_MAGIC ||
	    strnlen(reply->name, KEEPER_NAME_BYTES) == KEEPER_NAME_BYTES)
		return -EPROTO;
	return reply->result;
}

/* fd: -1 when none came along. */
static int receive_reply(int link, struct keeper_reply *reply, int *ret_fd)
{
	struct iovec iov = { .iov_base = reply, .iov_len = sizeof(*reply) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fd_message room = { 0 };
	ssize_t bytes;

	*ret_fd = -1;
	fd_message_expect(&msg, &room);
	do {
		bytes = recvmsg(link, &msg, MSG_CMSG_CLOEXEC);
	} while (bytes < 0 && errno == EINTR);
	if (bytes < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	*ret_fd = fd_message_get(&msg);
	if (msg.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	return check_reply(reply, bytes);
}

/* Returns what the keeper answered, or -errno; a descriptor that came along in ret_fd, or -1. */
static int ask(int link, struct keeper_request *req, int fd, struct keeper_reply *reply,
	       int *ret_fd)
{
	int ret;

	*ret_fd = -1;
	req->magic = KEEPER_MAGIC;
	ret = send_request(link, req, fd);
	return ret < 0 ? ret : receive_reply(link, reply, ret_fd);
}

/* A PUT or DROP; takes the connection. */
static int ask_once(int link, const char *state_dir, enum keeper_op op, const char *name, int fd)
{
	struct keeper_request req = { .op = op };
	struct keeper_reply reply = { .held_nr = 1 };
	int ret, reply_fd;

	snprintf(req.name, sizeof(req.name), "%s", name);
	ret = ask(link, &req, fd, &reply, &reply_fd);
	if (reply_fd >= 0)
		close(reply_fd);
	if (reply.held_nr == 0)
		remove_socket(state_dir);
	close(link);
	return ret;
}

const char *keeper_find_exe(char path[static PATH_MAX])
{
	static const char name[] = "/ublkd-keeper";
	char exe[PATH_MAX];
	ssize_t bytes = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (bytes > 0) {
		exe[bytes] = '\0';
		path_folder(exe, path);
		if (strlen(path) + sizeof(name) <= PATH_MAX &&
		    access(strcat(path, name), X_OK) == 0)
			return path;
	}
	snprintf(path, PATH_MAX, "%s%s", UBLKD_LIBEXEC, name);
	return access(path, X_OK) == 0 ? path : NULL;
}

/* Away from 0 to 2, where the keeper finds its sockets. Takes fd. */
static int above_stdio(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int err = -errno;

	if (fd >= 0)
		close(fd);
	return high < 0 ? err : high;
}

/* The mode is there from the start: a bind takes it from the socket. */
static int listen_in(int folder, const struct sockaddr_un *addr)
{
	int fd = above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), ret;

	if (fd < 0)
		return fd;
	unlinkat(folder, KEEPER_SOCKET, 0); /* of a keeper that died: nobody answered */
	if (fchmod(fd, 0600) == 0 && bind(fd, (const void *)addr, sizeof(*addr)) == 0 &&
	    listen(fd, KEEPER_CLIENTS_MAX) == 0)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

static int listen_for_keeper(const char *state_dir)
{
	struct sockaddr_un addr;
	int folder, fd;

	if (mkdir(state_dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	folder = folder_open(state_dir, &addr);
	if (folder < 0)
		return folder;
	fd = listen_in(folder, &addr);
	close(folder);
	return fd;
}

/* A program comes from a disk, which may be slow; it is once in a keeper's life. */
#define START_TIMEOUT_MS 5000

/* Closed files of a file system that does not answer can keep even a killed process. */
#define KILL_TIMEOUT_MS 1000

static bool has_ended(int pidfd, int timeout_ms)
{
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&ended, 1, timeout_ms) == 1;
}

/* The process that was started only starts the keeper proper, which is nobody's child then. */
static int await_start(pid_t pid)
{
	int pidfd = pidfd_open(pid, 0), status = -1;
	bool late = !has_ended(pidfd, START_TIMEOUT_MS);

	if (late)
		kill(pid, SIGKILL);
	if (!late || has_ended(pidfd, KILL_TIMEOUT_MS))
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	if (pidfd >= 0)
		close(pidfd);
	if (late)
		return -ETIMEDOUT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOEXEC;
}

/* In the child: nothing but system calls, since other threads of its parent may hold locks. */
_Noreturn static void become_keeper(const char *exe, int listener, int first)
{
	char *argv[] = { (char[]){ "ublkd-keeper" }, NULL }, *envp[] = { NULL };
	sigset_t none;

	sigemptyset(&none);
	for (int signum = 1; signum < NSIG; signum++)
		signal(signum, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (dup2(listener, KEEPER_FD_LISTEN) >= 0 && dup2(first, KEEPER_FD_FIRST) >= 0)
		execve(exe, argv, envp);
	_exit(127);
}

/*
 * By fork: the parent of a vfork, and so of posix_spawn(3), waits until the child has closed all
 * that is closed on exec, and a file of ours can be on a file system that does not answer. Memory
 * of devices is shared and costs a fork nothing.
 */
static int spawn(const char *exe, int listener, int first)
{
	pid_t pid = fork();

	if (pid == 0)
		become_keeper(exe, listener, first);
	return pid < 0 ? -errno : await_start(pid);
}

static int spawn_on(int listener, const char *exe)
{
	int pair[2], ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pair[1] = above_stdio(pair[1]);
	ret = pair[1] < 0 ? pair[1] : set_timeout(pair[0]);
	if (ret == 0)
		ret = spawn(exe, listener, pair[1]);
	if (pair[1] >= 0)
		close(pair[1]);
	if (ret == 0)
		return pair[0];
	close(pair[0]);
	return ret;
}

static int keeper_start(const char *state_dir, const char *exe)
{
	char found[PATH_MAX];
	int listener, link;

	if (!exe)
		exe = keeper_find_exe(found);
	if (!exe)
		return -ENOEXEC;
	listener = listen_for_keeper(state_dir);
	if (listener < 0)
		return listener;
	link = spawn_on(listener, exe);
	close(listener);
	if (link < 0)
		remove_socket(state_dir);
	return link;
}

static int connect_and_ask(const char *state_dir, enum keeper_op op, const char *name, int fd)
{
	int link = link_open(state_dir);

	return link < 0 ? link : ask_once(link, state_dir, op, name, fd);
}

/* One that dies while we talk to it is asked again, to learn from its socket that it is dead. */
static int ask_any(const char *state_dir, enum keeper_op op, const char *name, int fd)
{
	int ret = connect_and_ask(state_dir, op, name, fd);

	if (ret == -ECONNRESET || ret == -EPIPE)
		ret = connect_and_ask(state_dir, op, name, fd);
	return ret;
}

int keeper_put(const char *state_dir, const char *exe, const char *name, int fd)
{
	int ret = ask_any(state_dir, KEEPER_PUT, name, fd), link;

	if (ret != -ENOENT)
		return ret;
	link = keeper_start(state_dir, exe);
	if (link < 0)
		return link;
	ret = ask_once(link, state_dir, KEEPER_PUT, name, fd);
	return ret == 0 ? 1 : ret;
}

int keeper_drop(const char *state_dir, const char *name)
{
	return ask_any(state_dir, KEEPER_DROP, name, -1);
}

int keeper_each(const char *state_dir, void (*fn)(const char *name, int fd, void *arg), void *arg)
{
	struct keeper_request req = { .op = KEEPER_AT };
	struct keeper_reply reply;
	int link = link_open(state_dir), ret = 0, fd;

	if (link < 0)
		return link;
	while (ret == 0 && req.idx < KEEPER_HELD_MAX) {
		ret = ask(link, &req, -1, &reply, &fd);
		if (ret == 0 && fd < 0)
			ret = -EPROTO;
		else if (ret == 0)
			fn(reply.name, fd, arg);
		else if (fd >= 0)
			close(fd);
		req.idx++;
	}
	close(link);
	return ret == -ENOENT && req.idx > 0 ? 0 : ret;
}
