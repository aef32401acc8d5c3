/*
 * What to trace, as all commands understand it: -p PID, -c COMMAND..., --all, and for how long.
 * Main thread.
 */
#ifndef UBLKTRACE_TARGET_H
#define UBLKTRACE_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TARGET_RINGS_MAX 64u

struct target {
	pid_t pid;	/* 0: all processes */
	char **command; /* to be started, NULL at its end; NULL: none */
	bool all;
	double seconds;			/* 0: until ^C, or the end of the process */
	uint32_t sample;		/* one of that many requests; 1: each */
	int ring_fds[TARGET_RINGS_MAX]; /* only these; none: all */
	unsigned ring_nr;
	uint64_t buffer_bytes; /* of the ring buffer, a power of two */
};

/* Exactly one of pid, command, all, and a process that exists. Returns whether it is so; if not,
 * the reason is on stderr. */
bool target_check(const struct target *t);

/*
 * Starts the command, stopped just before its exec, so that nothing of it is missed; fills t->pid.
 * Returns 0 or -errno (said on stderr). target_go lets it run.
 */
int target_spawn(struct target *t);
void target_go(struct target *t);

/*
 * Until the time is over, ^C, SIGTERM or SIGHUP, or the end of the process: calls turn(arg) again
 * and again, which waits for at most 100 ms. Returns the first negative value of turn, or 0.
 */
int target_run(const struct target *t, int (*turn)(void *arg), void *arg);

/*
 * The exit code of the command, for ublktrace to end with (128 + n: killed by signal n); 0 when
 * there was none. One that still runs is told to end (SIGTERM) and waited for; ^C kills it.
 */
int target_exit_code(const struct target *t);

#endif
