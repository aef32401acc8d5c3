/*
 * What is traced: the command that is started for it, the time limit, ^C. Main thread; owns the one
 * child process.
 *
 * Happy path: target_check, target_spawn, (attach), target_go, target_run, target_exit_code.
 * Failure modes: no such process, a command that cannot be started (it ends with 127 or 126, as in
 * a shell, and says why itself).
 */
#include "ublktrace/target.h"

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

#include "ublktrace/command.h"

/* There is one command at most. */
static struct {
	pid_t pid;
	int go_fd; /* it waits until this is closed */
	bool ended;
	int status;
} child = { .go_fd = -1 };

static volatile sig_atomic_t interrupted;

static void target_interrupt(int signal_nr)
{
	(void)signal_nr;
	interrupted = 1;
}

static bool target_fail(const char *words)
{
	fprintf(stderr, "ublktrace: %s\n", words);
	return false;
}

/* The process that pid is a thread of, or pid itself. */
static pid_t target_thread_group(pid_t pid)
{
	char path[64], line[128];
	int group = (int)pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &group) == 1)
			break;
	if (f)
		fclose(f);
	return (pid_t)group;
}

static bool target_check_pid(pid_t pid)
{
	pid_t group = target_thread_group(pid);

	if (kill(pid, 0) && errno != EPERM) {
		fprintf(stderr, "ublktrace: there is no process %d\n", (int)pid);
		return false;
	}
	if (group != pid)
		fprintf(stderr,
			"ublktrace: %d is a thread of process %d: give that process to -p\n",
			(int)pid, (int)group);
	return group == pid;
}

/* PROC_PID_INIT_INO of include/linux/proc_ns.h. In another namespace processes have other numbers
 * than those the kernel's programs see. */
static bool target_has_kernel_pids(void)
{
	char name[64];
	ssize_t n = readlink("/proc/self/ns/pid", name, sizeof(name) - 1);

	name[n > 0 ? n : 0] = '\0';
	return n < 0 || !strcmp(name, "pid:[4026531836]");
}

bool target_check(const struct target *t)
{
	unsigned named = (t->pid > 0) + (t->command != NULL) + t->all;

	if (named == 0)
		return target_fail("the target is missing: -p PID, -c COMMAND... or --all");
	if (named > 1)
		return target_fail("only one of -p PID, -c COMMAND... and --all");
	if (t->command && !t->command[0])
		return target_fail("-c needs a command");
	if (!t->all && !target_has_kernel_pids())
		return target_fail(
			"process ids differ from those of the kernel (a PID "
			"namespace, for example of a container): use --all, or run it outside");
	return t->pid > 0 ? target_check_pid(t->pid) : true;
}

static __attribute__((noreturn)) void target_child_main(char **command, int wait_fd, pid_t parent)
{
	char byte;

	/* If ublktrace dies before the start, this process ends too. */
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
	signal(SIGCHLD, SIG_DFL); /* may be inherited as ignored: then waitpid reports nothing */
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
		target_child_main(t->command, fds[0], parent);
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
		perror("ublktrace: the command has already started");
	close(child.go_fd);
	child.go_fd = -1;
}

static bool target_child_ended(void)
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
		return target_child_ended();
	if (t->pid <= 0)
		return false;
	return pidfd >= 0 ? poll(&p, 1, 0) > 0 : kill(t->pid, 0) < 0 && errno == ESRCH;
}

static void target_catch_signals(void)
{
	struct sigaction action = { .sa_handler = target_interrupt }, hangup;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* a closed terminal must not lose the files; under nohup the signal stays ignored */
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
}

int target_run(const struct target *t, int (*turn)(void *arg), void *arg)
{
	int pidfd = t->pid > 0 ? (int)syscall(SYS_pidfd_open, t->pid, 0) : -1;
	uint64_t start_ns = command_clock_ns(CLOCK_MONOTONIC),
		 limit_ns = (uint64_t)(t->seconds * 1e9);
	int ret = 0;

	target_catch_signals();
	while (!interrupted && !target_ended(t, pidfd)) {
		if (limit_ns && command_clock_ns(CLOCK_MONOTONIC) - start_ns >= limit_ns)
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

/* Waits for a command that does not end by SIGTERM until the user presses ^C. */
static void target_child_end(void)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	unsigned turns = 0;

	interrupted = 0;
	kill(child.pid, SIGTERM);
	while (!target_child_ended()) {
		if (interrupted)
			kill(child.pid, SIGKILL);
		else if (++turns == 100)
			fprintf(stderr,
				"ublktrace: the command (process %d) has not exited after SIGTERM: "
				"waiting; ^C kills it\n",
				(int)child.pid);
		nanosleep(&pause, NULL);
	}
}

int target_exit_code(const struct target *t)
{
	(void)t;
	if (child.pid <= 0)
		return 0;
	if (child.go_fd >= 0)
		close(child.go_fd); /* it never ran: it ends by itself */
	child.go_fd = -1;
	if (!target_child_ended())
		target_child_end();
	return WIFSIGNALED(child.status) ? 128 + WTERMSIG(child.status) : WEXITSTATUS(child.status);
}
