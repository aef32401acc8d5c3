/*
 * Whom to trace: the command that is started for it, the time limit, ^C. Main thread; owns the one
 * child process.
 *
 * Happy path: target_check, target_spawn, (attach), target_go, target_run, target_exit_code.
 * Failure modes: no such process, a command that cannot be started (it ends with 127 or 126, as in
 * a shell, and says why itself).
 */
#include "trace/target.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* There is one command at most. */
static struct {
	pid_t pid;
	int go_fd; /* it waits until this is closed */
	bool ended;
	int status;
} child = { .go_fd = -1 };

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_nr)
{
	(void)signal_nr;
	interrupted = 1;
}

static bool target_fail(const char *words)
{
	fprintf(stderr, "ublktrace: %s\n", words);
	return false;
}

static bool pid_check(pid_t pid)
{
	if (!kill(pid, 0) || errno == EPERM)
		return true;
	fprintf(stderr, "ublktrace: there is no process %d\n", (int)pid);
	return false;
}

bool target_check(const struct target *t)
{
	unsigned named = (t->pid > 0) + (t->command != NULL) + t->all;

	if (named == 0)
		return target_fail("whom to trace? -p PID, -c COMMAND... or --all");
	if (named > 1)
		return target_fail("only one of -p PID, -c COMMAND... and --all");
	if (t->command && !t->command[0])
		return target_fail("-c wants a command");
	return t->pid > 0 ? pid_check(t->pid) : true;
}

static __attribute__((noreturn)) void child_main(char **command, int wait_fd, pid_t parent)
{
	char byte;

	/* Should ublktrace die before it says go, this ends as well. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || read(wait_fd, &byte, 1) != 1)
		_exit(0);
	prctl(PR_SET_PDEATHSIG, 0);
	close(wait_fd);
	execvp(command[0], command);
	fprintf(stderr, "ublktrace: cannot start %s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

int target_spawn(struct target *t)
{
	pid_t parent = getpid();
	int fds[2];

	if (pipe(fds) < 0)
		return -errno;
	child.pid = fork();
	if (child.pid < 0) {
		int ret = -errno;

		close(fds[0]);
		close(fds[1]);
		fprintf(stderr, "ublktrace: cannot start a process: %s\n", strerror(-ret));
		return ret;
	}
	if (child.pid == 0) {
		close(fds[1]);
		child_main(t->command, fds[0], parent);
	}
	close(fds[0]);
	child.go_fd = fds[1];
	t->pid = child.pid;
	return 0;
}

void target_go(struct target *t)
{
	(void)t;
	if (child.go_fd < 0)
		return;
	if (write(child.go_fd, "", 1) != 1)
		perror("ublktrace: the command does not wait any more");
	close(child.go_fd);
	child.go_fd = -1;
}

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static bool child_ended(void)
{
	if (!child.ended && waitpid(child.pid, &child.status, WNOHANG) == child.pid)
		child.ended = true;
	return child.ended;
}

/* pidfd: -1 when there is none to look at, or the kernel has none. */
static bool target_ended(const struct target *t, int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (child.pid > 0)
		return child_ended();
	if (t->pid <= 0)
		return false;
	return pidfd >= 0 ? poll(&p, 1, 0) > 0 : kill(t->pid, 0) < 0 && errno == ESRCH;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = interrupt };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int target_run(const struct target *t, int (*turn)(void *arg), void *arg)
{
	int pidfd = t->pid > 0 ? (int)syscall(SYS_pidfd_open, t->pid, 0) : -1;
	uint64_t start_ns = clock_ns(), limit_ns = (uint64_t)(t->seconds * 1e9);
	int ret = 0;

	catch_signals();
	while (!interrupted && !target_ended(t, pidfd)) {
		if (limit_ns && clock_ns() - start_ns >= limit_ns)
			break;
		ret = turn(arg);
		if (ret == -EINTR)
			ret = 0;
		if (ret < 0)
			break;
	}
	if (pidfd >= 0)
		close(pidfd);
	return ret < 0 ? ret : 0;
}

int target_exit_code(const struct target *t)
{
	(void)t;
	if (child.pid <= 0)
		return 0;
	if (child.go_fd >= 0)
		close(child.go_fd); /* it was never let run */
	child.go_fd = -1;
	if (!child_ended()) {
		kill(child.pid, SIGTERM);
		while (waitpid(child.pid, &child.status, 0) < 0 && errno == EINTR)
			;
		child.ended = true;
	}
	return WIFSIGNALED(child.status) ? 128 + WTERMSIG(child.status) : WEXITSTATUS(child.status);
}
