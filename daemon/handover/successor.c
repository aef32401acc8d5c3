/*
 * One program starts the next, and both talk. Main thread; owns the plan of an exec while it lasts.
 *
 * Happy path: the new environment and the list of descriptors are made; fork; the child moves the
 * descriptors to the numbers that the protocol wants, writes its pid into the environment,
 * executes. Between fork and exec nothing is allocated: other threads may have held the allocator's
 * lock. The new program finds its socket with standby_init, and says with messages how far it is.
 *
 * Failure modes: out of memory or descriptors (an errno); no such program (the child's exit code);
 * the old program ends (each standby_ call says so).
 */
#include "daemon/handover/successor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#define FIRST_FD 3
#define PID_BYTES 32

struct plan {
	char **env;
	char *pid_text; /* "LISTEN_PID=", the process that executes completes it */
	char *owned[4]; /* of env */
	int *fds;
	unsigned fd_nr;
};

static bool is_replaced(const char *variable)
{
	/* WATCHDOG_PID would tell the new process that the watchdog is not for it. */
	static const char standby[] = SUCCESSOR_STANDBY "=";
	static const char *const names[] = { "LISTEN_PID=", "LISTEN_FDS=", "LISTEN_FDNAMES=",
					     "WATCHDOG_PID=", standby };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strncmp(variable, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static char *names_of(const struct fd_store *fd_store)
{
	size_t bytes = sizeof("LISTEN_FDNAMES=");
	char *text, *end;
	int fd;

	for (unsigned i = 0; i < fd_store_nr(fd_store); i++)
		bytes += strlen(fd_store_at(fd_store, i, &fd)) + 1;
	text = malloc(bytes);
	if (!text)
		return NULL;
	end = stpcpy(text, "LISTEN_FDNAMES=");
	for (unsigned i = 0; i < fd_store_nr(fd_store); i++)
		end += sprintf(end, "%s%s", i ? ":" : "", fd_store_at(fd_store, i, &fd));
	return text;
}

static char *format(const char *fmt, unsigned a, unsigned b)
{
	char *text;

	return asprintf(&text, fmt, a, b) < 0 ? NULL : text;
}

static int plan_env(struct plan *p, const struct fd_store *fd_store, bool standby)
{
	unsigned nr = 0, first_own = fd_store_nr(fd_store) + FIRST_FD;

	while (environ[nr])
		nr++;
	p->env = calloc(nr + ARRAY_SIZE(p->owned) + 1, sizeof(p->env[0]));
	p->owned[0] = p->pid_text = calloc(1, PID_BYTES);
	p->owned[1] = format("LISTEN_FDS=%u", fd_store_nr(fd_store), 0);
	p->owned[2] = names_of(fd_store);
	p->owned[3] = format(SUCCESSOR_STANDBY "=%u %u", first_own, first_own + 1);
	for (size_t i = 0; i < ARRAY_SIZE(p->owned); i++)
		if (!p->owned[i] || !p->env)
			return -ENOMEM;
	nr = 0;
	for (char **variable = environ; *variable; variable++)
		if (!is_replaced(*variable))
			p->env[nr++] = *variable;
	for (size_t i = 0; i < ARRAY_SIZE(p->owned) - !standby; i++)
		p->env[nr++] = p->owned[i];
	return 0;
}

/* own: descriptors that follow those of the fd store. */
static int plan_make(struct plan *p, const struct fd_store *fd_store, const int *own,
		     unsigned own_nr)
{
	*p = (struct plan){ 0 };
	p->fds = calloc(fd_store_nr(fd_store) + own_nr + 1, sizeof(p->fds[0]));
	if (!p->fds)
		return -ENOMEM;
	for (unsigned i = 0; i < fd_store_nr(fd_store); i++)
		fd_store_at(fd_store, i, &p->fds[p->fd_nr++]);
	for (unsigned i = 0; i < own_nr; i++)
		p->fds[p->fd_nr++] = own[i];
	return plan_env(p, fd_store, own_nr > 0);
}

static void plan_free(struct plan *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(p->owned); i++)
		free(p->owned[i]);
	free(p->env);
	free(p->fds);
}

/* First up, out of each other's way, then down. System calls only; the exec closes all others. */
static int move_fds(struct plan *p)
{
	for (unsigned i = 0; i < p->fd_nr; i++) {
		p->fds[i] = fcntl(p->fds[i], F_DUPFD_CLOEXEC, (int)(FIRST_FD + p->fd_nr));
		if (p->fds[i] < 0)
			return -errno;
	}
	for (unsigned i = 0; i < p->fd_nr; i++)
		if (dup2(p->fds[i], (int)(FIRST_FD + i)) < 0)
			return -errno;
	return 0;
}

/* Without allocation. Signals stay as blocked as they are. Returns -errno only. */
static int execute(struct plan *p, const char *path, char **argv)
{
	unsigned long pid = (unsigned long)getpid();
	char digits[PID_BYTES], *digit = digits + sizeof(digits);
	int ret;

	*--digit = '\0';
	do {
		*--digit = (char)('0' + pid % 10);
		pid /= 10;
	} while (pid);
	strcpy(p->pid_text, "LISTEN_PID=");
	strcat(p->pid_text, digit);
	ret = move_fds(p);
	if (ret < 0)
		return ret;
	execve(path, argv, p->env);
	return -errno;
}

_Noreturn static void be_child(struct plan *plan, const char *path, char **argv)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execute(plan, path, argv);
	_exit(SUCCESSOR_NO_PROGRAM);
}

int successor_spawn(const char *path, char **argv, const struct fd_store *fd_store, int lock_fd,
		    pid_t *ret_pid, int *ret_socket)
{
	struct plan plan;
	int pair[2], own[2], ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	own[0] = pair[1];
	own[1] = lock_fd;
	ret = plan_make(&plan, fd_store, own, 2);
	*ret_pid = ret < 0 ? -1 : fork();
	if (ret == 0 && *ret_pid == 0)
		be_child(&plan, path, argv);
	if (ret == 0 && *ret_pid < 0)
		ret = -errno;
	plan_free(&plan);
	close(pair[1]);
	if (ret < 0) {
		close(pair[0]);
		return ret;
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*ret_socket = pair[0];
	return 0;
}

int successor_become(char **argv, const struct fd_store *fd_store)
{
	struct plan plan;
	int ret = plan_make(&plan, fd_store, NULL, 0);

	if (ret == 0)
		ret = execute(&plan, "/proc/self/exe", argv);
	plan_free(&plan);
	return ret;
}

/* ---- the new program's side ---- */

void standby_init(struct standby *s)
{
	const char *text = getenv(SUCCESSOR_STANDBY);
	bool given = text && sscanf(text, "%d %d", &s->socket, &s->lock_fd) == 2 &&
		     fcntl(s->socket, F_SETFD, FD_CLOEXEC) == 0 &&
		     fcntl(s->lock_fd, F_SETFD, FD_CLOEXEC) == 0;

	if (!given)
		s->socket = s->lock_fd = -1;
	unsetenv(SUCCESSOR_STANDBY);
}

bool standby_say(const struct standby *s, const char *fmt, ...)
{
	char text[STANDBY_MESSAGE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return send(s->socket, text, strlen(text), MSG_NOSIGNAL) >= 0;
}

bool standby_wait_for_go(const struct standby *s)
{
	char text[16];
	ssize_t bytes;

	do {
		bytes = recv(s->socket, text, sizeof(text), 0);
	} while (bytes < 0 && errno == EINTR);
	return bytes == 2 && memcmp(text, "go", 2) == 0;
}

void standby_end(struct standby *s)
{
	if (s->socket >= 0)
		close(s->socket);
	s->socket = -1;
}
