/*
 * ublkd-keeper: holds memory of devices, and locks of their files, while no ublkd lives, and does
 * nothing else. Owns the descriptors that were put, and its sockets; no other file, so that it
 * keeps no file system busy that no device is on: its mount namespace is empty but for the root.
 * One thread, no allocation once it serves.
 *
 * Happy path: ublkd starts it with the listening socket and a first connection -> it leaves its
 * parent -> answers requests until it holds nothing and nobody is connected.
 *
 * Failure modes: a request that is not valid is answered with an error; a client that does not take
 * the answer is disconnected; with too many clients the oldest is disconnected, so that none can
 * lock the next daemon out. Connections of other users are closed. The socket's file is ublkd's to
 * remove: a keeper that did it could remove that of its successor.
 */
#include "daemon/fdstore/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/runtime/exit_code.h"
#include "daemon/runtime/fd_message.h"
#include "host/mounts.h"

struct held {
	int fd;
	char name[KEEPER_NAME_BYTES];
};

static struct held held[KEEPER_HELD_MAX];
static unsigned held_nr, held_max;
/* The listening socket, then the clients: the oldest first. */
static struct pollfd polled[1 + KEEPER_CLIENTS_MAX];
static unsigned polled_nr;

static struct held *held_find(const char *name)
{
	for (unsigned i = 0; i < held_nr; i++)
		if (strcmp(held[i].name, name) == 0)
			return &held[i];
	return NULL;
}

/* A connection of bytes: ours are of messages. Without SO_LINGER its close does not wait. */
static bool is_stream(int fd)
{
	struct linger linger = { 0 };
	socklen_t bytes = sizeof(int), linger_bytes = sizeof(linger);
	int type = 0, listens = 1;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM &&
	       getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && !listens &&
	       getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &linger_bytes) == 0 &&
	       !linger.l_onoff;
}

/*
 * Memory; a connection to a server; or a file that is only read, for the locks on its description:
 * whoever drops it has a descriptor too, so its last close is never here. Any other could be a
 * connection to ourselves.
 */
static bool may_be_held(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (fcntl(fd, F_GET_SEALS) >= 0 || is_stream(fd))
		return true;
	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) == O_RDONLY &&
	       fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

static int held_put(const char *name, int fd)
{
	struct held *h = held_find(name);

	if (fd < 0)
		return -EBADF;
	if (!may_be_held(fd))
		return -EINVAL;
	if (!h && held_nr >= held_max)
		return -ENOSPC;
	if (h) {
		close(h->fd);
	} else {
		h = &held[held_nr++];
		strcpy(h->name, name);
	}
	h->fd = fd;
	return 0;
}

static int held_drop(const char *name)
{
	struct held *h = held_find(name);

	if (!h)
		return -ENOENT;
	close(h->fd);
	*h = held[--held_nr];
	return 0;
}

/*
 * A client with another protocol gets an answer: if it were just disconnected, it would take this
 * keeper for dead and start another in its place.
 */
static int check_request(const struct keeper_request *req, ssize_t bytes, int flags)
{
	if (bytes != (ssize_t)sizeof(*req) || (flags & MSG_TRUNC) || req->magic != KEEPER_MAGIC)
		return -EPROTO;
	if (flags & MSG_CTRUNC)
		return -EMFILE;
	return req->op == KEEPER_AT || keeper_is_name(req->name) ? 0 : -EINVAL;
}

/* Returns false when the client is to be disconnected. */
static bool serve_client(int client)
{
	struct keeper_reply reply = { .magic = KEEPER_MAGIC };
	struct keeper_request req;
	int fd, flags, reply_fd = -1, ret;
	ssize_t bytes = fd_message_receive(client, &req, sizeof(req), MSG_DONTWAIT, &fd, &flags);

	if (bytes < 0)
		return errno == EAGAIN || errno == EINTR;
	ret = check_request(&req, bytes, flags);
	if (ret == 0 && req.op == KEEPER_PUT) {
		ret = held_put(req.name, fd);
		fd = ret == 0 ? -1 : fd;
	} else if (ret == 0 && req.op == KEEPER_DROP) {
		ret = held_drop(req.name);
	} else if (ret == 0 && req.op == KEEPER_AT && req.idx < held_nr) {
		strcpy(reply.name, held[req.idx].name);
		reply_fd = held[req.idx].fd;
	} else if (ret == 0) {
		ret = req.op == KEEPER_AT ? -ENOENT : -EINVAL;
	}
	if (fd >= 0)
		close(fd);
	if (bytes == 0)
		return false;
	reply.result = ret;
	reply.held_nr = held_nr;
	return fd_message_send(client, &reply, sizeof(reply), reply_fd, MSG_DONTWAIT) ==
	       (ssize_t)sizeof(reply);
}

static void remove_client(unsigned i)
{
	close(polled[i].fd);
	polled_nr--;
	memmove(&polled[i], &polled[i + 1], (polled_nr - i) * sizeof(polled[0]));
}

static void add_client(int fd)
{
	if (polled_nr == 1 + KEEPER_CLIENTS_MAX)
		remove_client(1);
	polled[polled_nr++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

static void accept_client(void)
{
	static const struct timespec pause = { .tv_nsec = 100000000 };
	int fd = accept4(KEEPER_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0 && fd_message_peer_is_us(fd))
		add_client(fd);
	else if (fd >= 0)
		close(fd);
	else if (errno == ENFILE || errno == EMFILE || errno == ENOMEM || errno == ENOBUFS)
		nanosleep(&pause, NULL); /* it stays acceptable: do not spin */
}

static void keeper_serve(void)
{
	while (held_nr > 0 || polled_nr > 1) {
		if (poll(polled, polled_nr, -1) < 0)
			continue;
		for (unsigned i = polled_nr - 1; i > 0; i--)
			if (polled[i].revents && !serve_client(polled[i].fd))
				remove_client(i);
		if (polled[0].revents)
			accept_client();
	}
}

/* What is held must leave room for clients, and for a descriptor on its way in. */
static void limit_files(void)
{
	struct rlimit limit = { .rlim_cur = 256 };
	unsigned spare = 2 * KEEPER_CLIENTS_MAX + 4;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		getrlimit(RLIMIT_NOFILE, &limit);
	}
	held_max = KEEPER_HELD_MAX;
	if (limit.rlim_cur < held_max + spare)
		held_max = limit.rlim_cur > spare ? (unsigned)limit.rlim_cur - spare : 0;
}

struct next_mount {
	unsigned skip; /* so many could not be unmounted */
	char point[PATH_MAX];
};

static bool choose_mount(const struct mount_info *m, void *arg)
{
	struct next_mount *next = arg;

	if (strcmp(m->point, "/") == 0 || strcmp(m->point, "/proc") == 0 || next->skip-- > 0)
		return true;
	snprintf(next->point, sizeof(next->point), "%s", m->point);
	return false;
}

/*
 * The daemon's mount namespace would live on with us: what was mounted when it started, also on
 * devices that it serves, would stay busy. Each mount goes with what is mounted in it.
 */
static void keeper_leave_mounts(void)
{
	static struct next_mount next;
	unsigned failed_nr = 0;

	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0)
		return; /* without privileges the daemon has no namespace of its own */
	do {
		next.skip = failed_nr;
		next.point[0] = '\0';
		mounts_read("/proc/self/mountinfo", choose_mount, &next);
		if (next.point[0] && umount2(next.point, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
			failed_nr++;
	} while (next.point[0]);
	umount2("/proc", MNT_DETACH);
}

#ifdef __SANITIZE_ADDRESS__
/* The leak checker reads /proc, which is gone; nothing is allocated here. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static bool is_listening(int fd)
{
	int yes = 0;
	socklen_t bytes = sizeof(yes);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &bytes) == 0 && yes;
}

int main(void)
{
	pid_t child;

	if (!is_listening(KEEPER_FD_LISTEN)) {
		fputs("ublkd-keeper: is started by ublkd, to hold memory of its devices\n", stderr);
		return EXIT_USAGE;
	}
	/* Stderr as well, and as a socket, lest another descriptor takes its number. */
	if (dup2(KEEPER_FD_LISTEN, 2) < 0 || close_range(3, ~0u, 0) < 0 || chdir("/") < 0)
		return EXIT_REFUSED;
	child = fork();
	if (child != 0)
		_exit(child < 0 ? EXIT_REFUSED : EXIT_DONE);
	keeper_leave_mounts();
	limit_files();
	fcntl(KEEPER_FD_LISTEN, F_SETFL, O_NONBLOCK);
	polled[polled_nr++] = (struct pollfd){ .fd = KEEPER_FD_LISTEN, .events = POLLIN };
	add_client(KEEPER_FD_FIRST);
	keeper_serve();
	return EXIT_DONE;
}
