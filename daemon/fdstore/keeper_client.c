/*
 * The client's side of keeper.h. Main thread; owns nothing between calls.
 *
 * Happy path: connect -> a request, a reply -> close. A put that finds nobody listening binds the
 * socket, starts ublkd-keeper with it and a first connection, and sends the request there.
 *
 * Failure modes: a folder, or a keeper, of another user is not trusted (-EPERM). The socket of a
 * keeper that died refuses connections and is replaced. A keeper that does not answer in time is an
 * error, not a reason to start another, which would take the socket's name and with it what the
 * first one holds.
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
#include "daemon/fdstore/fd_store.h"
#include "daemon/fdstore/keeper.h"
#include "daemon/runtime/fd_message.h"
#include "daemon/runtime/path.h"

/* A program comes from a disk, which may be slow; it is once in a keeper's life. */
#define START_TIMEOUT_MS 5000
/* Closed files of a file system that does not answer can keep even a killed process. */
#define KILL_TIMEOUT_MS 1000

/* ---- the connection ---- */

/* Through the folder's descriptor: a long path would not fit into sun_path. */
static int keeper_folder(const char *state_dir, struct sockaddr_un *ret_addr)
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

static int keeper_set_timeout(int fd)
{
	struct timeval limit = { .tv_sec = FD_STORE_TIMEOUT_MS / 1000,
				 .tv_usec = FD_STORE_TIMEOUT_MS % 1000 * 1000 };

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	return 0;
}

/* Returns the connection, or -ENOENT when there is no keeper, or another -errno. */
static int keeper_connect(const char *state_dir)
{
	struct sockaddr_un addr;
	int folder = keeper_folder(state_dir, &addr), fd, ret;

	if (folder < 0)
		return folder;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ret = fd < 0 ? -errno : keeper_set_timeout(fd);
	if (ret == 0 && connect(fd, (const void *)&addr, sizeof(addr)) < 0)
		ret = errno == ECONNREFUSED ? -ENOENT : errno == EAGAIN ? -ETIMEDOUT : -errno;
	close(folder);
	if (ret == 0 && !fd_message_peer_is_us(fd))
		ret = -EPERM;
	if (ret == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return ret;
}

static void keeper_remove_socket(const char *state_dir)
{
	struct sockaddr_un addr;
	int folder = keeper_folder(state_dir, &addr);

	if (folder < 0)
		return;
	unlinkat(folder, KEEPER_SOCKET, 0);
	close(folder);
}

/*
 * One request and its reply. fd goes along, unless -1; *ret_fd came along, the caller's, or -1.
 * Returns what the keeper answered, or -errno.
 */
static int keeper_ask(int connection, struct keeper_request *req, int fd,
		      struct keeper_reply *reply, int *ret_fd)
{
	ssize_t bytes;
	int flags;

	*ret_fd = -1;
	req->magic = KEEPER_MAGIC;
	do {
		bytes = fd_message_send(connection, req, sizeof(*req), fd, 0);
	} while (bytes < 0 && errno == EINTR);
	while (bytes >= 0) {
		bytes = fd_message_receive(connection, reply, sizeof(*reply), 0, ret_fd, &flags);
		if (bytes >= 0 || errno != EINTR)
			break;
		bytes = 0;
	}
	if (bytes < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (flags & MSG_CTRUNC)
		return -EMFILE;
	if (bytes == 0)
		return -ECONNRESET;
	if (bytes != (ssize_t)sizeof(*reply) || reply->magic != KEEPER_MAGIC ||
	    strnlen(reply->name, KEEPER_NAME_BYTES) == KEEPER_NAME_BYTES)
		return -EPROTO;
	return reply->result;
}

/* A PUT or DROP; closes the connection. A keeper that holds nothing any more ends then. */
static int keeper_ask_last(int connection, const char *state_dir, enum keeper_op op,
			   const char *name, int fd)
{
	struct keeper_request req = { .op = op };
	struct keeper_reply reply = { .held_nr = 1 };
	int ret, reply_fd;

	snprintf(req.name, sizeof(req.name), "%s", name);
	ret = keeper_ask(connection, &req, fd, &reply, &reply_fd);
	if (reply_fd >= 0)
		close(reply_fd);
	if (reply.held_nr == 0)
		keeper_remove_socket(state_dir);
	close(connection);
	return ret;
}

/* ---- starting one ---- */

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

/* The mode is there from the start: a bind takes it from the socket. */
static int keeper_listen(const char *state_dir)
{
	struct sockaddr_un addr;
	int folder, fd, ret = 0;

	if (mkdir(state_dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	folder = keeper_folder(state_dir, &addr);
	if (folder < 0)
		return folder;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlinkat(folder, KEEPER_SOCKET, 0); /* of a keeper that died: nobody answered */
	if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (const void *)&addr, sizeof(addr)) < 0 ||
	    listen(fd, KEEPER_CLIENTS_MAX) < 0)
		ret = -errno;
	close(folder);
	if (ret == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return ret;
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
	/* Out of each other's way first. */
	listener = fcntl(listener, F_DUPFD_CLOEXEC, 3);
	first = fcntl(first, F_DUPFD_CLOEXEC, 3);
	if (dup2(listener, KEEPER_FD_LISTEN) >= 0 && dup2(first, KEEPER_FD_FIRST) >= 0)
		execve(exe, argv, envp);
	_exit(127);
}

static bool has_ended(int pidfd, int timeout_ms)
{
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&ended, 1, timeout_ms) == 1;
}

/*
 * The process that is started only starts the keeper proper, which is nobody's child then.
 *
 * By fork: the parent of a vfork, and so of posix_spawn(3), waits until the child has closed all
 * that is closed on exec, and a file of ours can be on a file system that does not answer. Memory
 * of devices is shared and costs a fork nothing.
 */
static int keeper_spawn(const char *exe, int listener, int first)
{
	int status = -1, pidfd;
	pid_t pid = fork();
	bool late;

	if (pid == 0)
		become_keeper(exe, listener, first);
	if (pid < 0)
		return -errno;
	pidfd = pidfd_open(pid, 0);
	late = !has_ended(pidfd, START_TIMEOUT_MS);
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

/* Returns its first connection, or -errno. */
static int keeper_start(const char *state_dir, const char *exe)
{
	char found[PATH_MAX];
	int listener, pair[2], ret;

	if (!exe)
		exe = keeper_find_exe(found);
	if (!exe)
		return -ENOEXEC;
	listener = keeper_listen(state_dir);
	if (listener < 0)
		return listener;
	ret = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
	if (ret == 0) {
		ret = keeper_set_timeout(pair[0]);
		if (ret == 0)
			ret = keeper_spawn(exe, listener, pair[1]);
		close(pair[1]);
		if (ret < 0)
			close(pair[0]);
	}
	close(listener);
	if (ret < 0)
		keeper_remove_socket(state_dir);
	return ret < 0 ? ret : pair[0];
}

/* ---- what the fd store asks ---- */

/* One that dies while we talk to it is asked again, to learn from its socket that it is dead. */
static int keeper_ask_any(const char *state_dir, enum keeper_op op, const char *name, int fd)
{
	int ret = -ECONNRESET;

	for (int i = 0; i < 2 && (ret == -ECONNRESET || ret == -EPIPE); i++) {
		ret = keeper_connect(state_dir);
		if (ret >= 0)
			ret = keeper_ask_last(ret, state_dir, op, name, fd);
	}
	return ret;
}

int keeper_put(const char *state_dir, const char *exe, const char *name, int fd)
{
	int ret = keeper_ask_any(state_dir, KEEPER_PUT, name, fd);

	if (ret != -ENOENT)
		return ret;
	ret = keeper_start(state_dir, exe);
	if (ret >= 0)
		ret = keeper_ask_last(ret, state_dir, KEEPER_PUT, name, fd);
	return ret == 0 ? 1 : ret;
}

int keeper_drop(const char *state_dir, const char *name)
{
	return keeper_ask_any(state_dir, KEEPER_DROP, name, -1);
}

int keeper_each(const char *state_dir, void (*fn)(const char *name, int fd, void *arg), void *arg)
{
	struct keeper_request req = { .op = KEEPER_AT };
	struct keeper_reply reply;
	int connection = keeper_connect(state_dir), ret = 0, fd;

	if (connection < 0)
		return connection;
	while (ret == 0 && req.idx < KEEPER_HELD_MAX) {
		ret = keeper_ask(connection, &req, -1, &reply, &fd);
		if (ret == 0 && fd < 0)
			ret = -EPROTO;
		else if (ret == 0)
			fn(reply.name, fd, arg);
		else if (fd >= 0)
			close(fd);
		req.idx++;
	}
	close(connection);
	return ret == -ENOENT && req.idx > 0 ? 0 : ret;
}
