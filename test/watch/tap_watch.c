/*
 * Runs one TAP program, and ends it when it hangs: with what each of its threads waited for.
 *
 *   tap_watch [-s IDLE] [-b BUSY] [-t TOTAL] [-c PERCENT] [-q QUIT] [-g FILE] -- COMMAND [ARG...]
 *
 *   -s  seconds without a line in which nothing works (10)   -b  CPU seconds without a line (120)
 *   -t  seconds in all (none)   -c  per cent of a CPU that a program uses that only waits (10)
 *   -q  TERM goes to COMMAND alone, which has so many seconds to say more: it knows its guest
 *   -g  FILE gets how near to each limit the program came, and after which line
 *
 * It owns the program's session, stdout and all descendants: it adopts those whose parents end. The
 * happy path carries each line at once, ends with the program, kills what that left running, and
 * has its exit code, 128+N for signal N. Only a line is progress.
 *
 * A machine may be busy, so seconds alone say little: the idle clock (keep_time) stands still where
 * a thread wants a CPU. Of each process of a hung program a comment has the threads' states, system
 * calls and stacks, by gdb also those in user space; then all of it is killed, the case fails as
 * the next number, and the exit code is 124. TERM, INT and HUP are passed on and kill the rest.
 *
 * Failure modes: who cannot start has 127; who cannot be killed is named and left; an endless loop
 * that prints is only caught by -t; what is waited for outside of the tree (a service) is not seen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hung_state.h"
#include "tree.h"

#define TICK 0.5    /* seconds between two looks at the tree */
#define DISK_PART 6 /* a disk may be slow: in D the idle clock runs so much slower */

struct limit { /* how near the program came, after which line */
	const char *name;
	double max, value, most;
	char after[160];
};
enum { IDLE, BUSY, SILENT, LIMITS_NR };

static struct limit limits[LIMITS_NR] = { { .name = "idle", .max = 10 },
					  { .name = "CPU", .max = 120 },
					  { .name = "silent", .max = 1e9 } };
static double total = 1e9, percent = 10, quit_seconds;
static const char *gap_file;

static pid_t child;
static int child_status, from = -1; /* the read end of its stdout, -1 after its end */
static bool child_ended;
static char text[65536], last[160] = "(nothing)";
static size_t text_len;
static unsigned last_nr;
static double last_at, tick_at, tick_cpu; /* seconds; tick_cpu < 0: unknown since the last line */

static volatile sig_atomic_t stop_signal;

static void stop(int signal)
{
	stop_signal = signal;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- output ---- */

static void note_gap(int limit, double value)
{
	limits[limit].value = value;
	if (value < limits[limit].most)
		return;
	limits[limit].most = value;
	memcpy(limits[limit].after, last, sizeof(last));
}

/* A line, or the begin of one that has come to its end without a newline. */
static void carry_line(const char *line, size_t len)
{
	unsigned nr;

	note_gap(SILENT, now() - last_at);
	snprintf(last, sizeof(last), "%.*s", (int)len, line);
	if (sscanf(last, "ok %u", &nr) == 1 || sscanf(last, "not ok %u", &nr) == 1)
		last_nr = nr;
	last_at = now();
	tick_cpu = -1;
	limits[IDLE].value = limits[BUSY].value = 0;
	fwrite(line, 1, len, stdout);
	putchar('\n');
	if (fflush(stdout) && !stop_signal)
		stop_signal = SIGPIPE; /* nobody reads: there is nothing to run for */
}

static void carry_rest(void)
{
	if (text_len)
		carry_line(text, text_len);
	text_len = 0;
}

static void carry_text(void)
{
	ssize_t len = read(from, text + text_len, sizeof(text) - text_len);
	char *begin = text, *end;

	if (len <= 0) {
		if (len == 0 || (errno != EAGAIN && errno != EINTR)) {
			close(from);
			from = -1;
		}
		return;
	}
	text_len += (size_t)len;
	while ((end = memchr(begin, '\n', text_len))) {
		carry_line(begin, (size_t)(end - begin));
		text_len -= (size_t)(end + 1 - begin);
		begin = end + 1;
	}
	memmove(text, begin, text_len);
	if (text_len == sizeof(text))
		carry_rest();
}

/* Carries what comes within so many seconds or until somebody ends; reaps. */
static void carry(double seconds, int pidfd)
{
	struct pollfd wait[] = { { .fd = from, .events = POLLIN },
				 { .fd = pidfd, .events = POLLIN } };
	pid_t pid;
	int status;

	if (poll(wait, 2, (int)(seconds * 1000) + 1) > 0 && wait[0].revents)
		carry_text();
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != child)
			continue;
		child_ended = true;
		child_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
}

/* ---- the clocks ---- */

static bool runs, reads_disk;

static bool look_at_thread(const char *folder, const char *name)
{
	struct process thread = { 0 };

	if (read_stat(folder, name, &thread)) {
		runs |= thread.state == 'R';
		reads_disk |= thread.state == 'D';
	}
	return !runs;
}

/*
 * Looks at the tree. Nothing but time makes the idle clock run: a thread that runs or waits for a
 * CPU sets it back twice as far, as one that only polls is seen running now and then. On a busy
 * machine who starves is always seen so.
 */
static void keep_time(double seconds)
{
	struct rusage ended;
	char path[48];
	double cpu, used;

	find_tree();
	getrusage(RUSAGE_CHILDREN, &ended);
	cpu = (double)(ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) +
	      (double)(ended.ru_utime.tv_usec + ended.ru_stime.tv_usec) / 1e6;
	runs = reads_disk = false;
	for (int i = 0; i < processes_nr; i++) {
		cpu += processes[i].cpu;
		snprintf(path, sizeof(path), "/proc/%d/task", processes[i].pid);
		if (!runs)
			each_number(path, look_at_thread);
	}
	used = tick_cpu < 0 || cpu < tick_cpu ? 0 : cpu - tick_cpu;
	if (tick_cpu >= 0) {
		if (runs || used > seconds * percent / 100)
			seconds *= -2;
		else if (reads_disk)
			seconds /= DISK_PART;
		seconds += limits[IDLE].value;
		note_gap(IDLE, seconds > 0 ? seconds : 0);
		note_gap(BUSY, limits[BUSY].value + used);
	}
	tick_cpu = cpu;
}

/* Runs the program until it ends, we are stopped, or it hangs: then why has the reason. */
static void watch(int pidfd, char *why, size_t why_size)
{
	double begin = now(), tick = limits[IDLE].max / 8 < TICK ? limits[IDLE].max / 8 : TICK,
	       seconds;

	last_at = tick_at = begin;
	while (!child_ended && !stop_signal && !*why) {
		carry(tick, pidfd);
		seconds = now() - tick_at;
		if (seconds < tick)
			continue;
		/* who is late was kept from a CPU, and so was the program */
		keep_time(seconds < 2 * tick ? seconds : 2 * tick);
		tick_at = now();
		if (limits[IDLE].value >= limits[IDLE].max)
			snprintf(why, why_size, "no output for %g s", limits[IDLE].max);
		else if (limits[BUSY].value >= limits[BUSY].max)
			snprintf(why, why_size, "no output for %g s of CPU time", limits[BUSY].max);
		else if (tick_at - begin >= total)
			snprintf(why, why_size, "not done after %g s; last output %.0f s ago",
				 total, tick_at - last_at);
	}
}

/* ---- the end ---- */

/* Carries what comes until all have ended, or only the program. */
static bool wait_end(double seconds, bool all)
{
	double end = now() + seconds;

	do {
		if (all ? !find_tree() : child_ended)
			return true;
		carry(0.02, -1);
	} while (now() < end);
	return false;
}

/* Kills what is left; those that it finds may have had children meanwhile. */
static void kill_tree(void)
{
	for (double end = now() + 5; (find_tree(), processes_nr) && now() < end; carry(0.02, -1))
		for (int i = 0; i < processes_nr; i++)
			kill(processes[i].pid, SIGKILL);
	for (int i = 0; i < processes_nr; i++)
		if (processes[i].state != 'Z')
			printf("# cannot be killed: %d %s\n", processes[i].pid, processes[i].comm);
}

static void end_tree(int signal)
{
	if (!child_ended)
		kill(quit_seconds > 0 ? child : -child, signal);
	wait_end(quit_seconds > 0 ? quit_seconds : 2, quit_seconds <= 0);
	kill_tree();
}

static void write_gaps(void)
{
	FILE *file = gap_file ? fopen(gap_file, "w") : NULL;

	for (int i = 0; file && i < LIMITS_NR; i++)
		fprintf(file, "%s %.1f s after: %s\n", limits[i].name, limits[i].most,
			limits[i].after);
	if (file)
		fclose(file);
}

static void start(char **command)
{
	int ends[2];
	pid_t parent = getpid();

	if (pipe2(ends, O_CLOEXEC) || (child = fork()) < 0) {
		perror("tap_watch");
		exit(127);
	}
	if (child == 0) {
		setsid();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(127);
		signal(SIGPIPE, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		dup2(ends[1], STDOUT_FILENO);
		execvp(command[0], command);
		fprintf(stderr, "tap_watch: %s: %s\n", command[0], strerror(errno));
		_exit(127);
	}
	close(ends[1]);
	from = ends[0];
	fcntl(from, F_SETFL, O_NONBLOCK);
}

static void parse_options(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "+s:b:t:c:q:g:")) != -1) {
		double *number = option == 's'	 ? &limits[IDLE].max
				 : option == 'b' ? &limits[BUSY].max
				 : option == 't' ? &total
				 : option == 'c' ? &percent
				 : option == 'q' ? &quit_seconds
						 : NULL;

		if (option == 'g')
			gap_file = optarg;
		else if (!number || (*number = strtod(optarg, NULL)) <= 0)
			optind = argc;
	}
	if (optind < argc)
		return;
	fprintf(stderr, "usage: tap_watch [-s IDLE] [-b BUSY] [-t TOTAL] [-c PERCENT] [-q QUIT] "
			"[-g FILE] -- COMMAND [ARG...]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	struct sigaction stops = { .sa_handler = stop }; /* poll returns */
	char why[128] = "", hung_after[sizeof(last)];
	int pidfd;

	parse_options(argc, argv);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGTERM, &stops, NULL);
	sigaction(SIGINT, &stops, NULL);
	sigaction(SIGHUP, &stops, NULL);
	start(argv + optind);
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	watch(pidfd, why, sizeof(why));
	if (child_ended)
		wait_end(2, true); /* what it has left may only need a moment */
	while (from >= 0 && poll(&(struct pollfd){ .fd = from, .events = POLLIN }, 1, 0) > 0)
		carry_text();
	carry_rest();
	note_gap(SILENT, now() - last_at);
	write_gaps();
	memcpy(hung_after, last, sizeof(last));
	if (*why)
		hung_state_print();
	else if (child_ended && find_tree())
		printf("# left running, and killed: %d %s\n", processes[0].pid, processes[0].comm);
	end_tree(stop_signal ? stop_signal : SIGTERM);
	carry_rest();
	if (*why)
		printf("not ok %u - hung: %s after \"%s\"\n", last_nr + 1, why, hung_after);
	fflush(stdout);
	return *why ? 124 : stop_signal ? 128 + stop_signal : child_status;
}
