/*
 * Whom ublktrace traces: the command that it starts, holds until all is attached, and ends. Each
 * case is a process of its own, as ublktrace is: there is one command in a process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ublktrace/target.h"

#define TURN_MS 10

static int turns, turn_result;

static int turn(void *arg)
{
	(void)arg;
	turns++;
	usleep(TURN_MS * 1000);
	return turn_result;
}

/* Runs fn in a process of its own, silent. Returns its exit code; 999: a signal ended it. */
static int apart(int (*fn)(void))
{
	int status, quiet;
	pid_t pid = fork();

	if (pid == 0) {
		quiet = open("/dev/null", O_WRONLY);
		dup2(quiet, STDERR_FILENO);
		alarm(200);
		_exit(fn());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 999;
}

/* The whole way of a command, as `record` goes it. */
static int run_command(char **command)
{
	struct target t = { .command = command, .sample = 1 };

	if (!target_check(&t) || target_spawn(&t))
		return 200;
	if (t.pid <= 0)
		return 201;
	target_go(&t);
	if (target_run(&t, turn, NULL))
		return 202;
	return target_exit_code(&t);
}

static int exits_3(void)
{
	const char *command[] = { "sh", "-c", "exit 3", NULL };

	return run_command((char **)command);
}

static int killed_by_9(void)
{
	const char *command[] = { "sh", "-c", "kill -9 $$", NULL };

	return run_command((char **)command);
}

static int no_such_file(void)
{
	const char *command[] = { "/nonexistent/command", NULL };

	return run_command((char **)command);
}

static int no_program(void)
{
	const char *command[] = { "/etc/passwd", NULL };

	return run_command((char **)command);
}

static void a_command_ends_as_in_a_shell(void **state)
{
	(void)state;
	assert_int_equal(apart(exits_3), 3);
	assert_int_equal(apart(killed_by_9), 128 + SIGKILL);
	assert_int_equal(apart(no_such_file), 127);
	assert_int_equal(apart(no_program), 126);
}

static char mark[64];

static int is_held(void)
{
	const char *command[] = { "touch", mark, NULL };
	struct target t = { .command = (char **)command };

	if (target_spawn(&t))
		return 200;
	usleep(100000);
	if (!access(mark, F_OK))
		return 201; /* it ran before it was let */
	target_go(&t);
	if (target_run(&t, turn, NULL) || access(mark, F_OK))
		return 202;
	return target_exit_code(&t);
}

static int is_never_let_run(void)
{
	const char *command[] = { "touch", mark, NULL };
	struct target t = { .command = (char **)command };

	signal(SIGTERM, SIG_IGN); /* of the command, too: it has to end by itself */
	if (target_spawn(&t) || target_exit_code(&t))
		return 200;
	return access(mark, F_OK) ? 0 : 201;
}

static void a_command_waits_until_it_is_let_run(void **state)
{
	(void)state;
	snprintf(mark, sizeof(mark), "/tmp/test_trace_target.%d", (int)getpid());
	assert_int_equal(apart(is_held), 0);
	assert_int_equal(unlink(mark), 0);
	assert_int_equal(apart(is_never_let_run), 0);
}

static int tracer_dies(void)
{
	const char *command[] = { "touch", mark, NULL };
	struct target t = { .command = (char **)command };

	return target_spawn(&t) ? 200 : 0; /* and no target_go */
}

static void a_command_that_waits_ends_with_its_tracer(void **state)
{
	(void)state;
	assert_int_equal(apart(tracer_dies), 0);
	usleep(100000);
	assert_int_equal(access(mark, F_OK), -1);
}

static int over_time(void)
{
	const char *command[] = { "sleep", "100", NULL };
	struct target t = { .command = (char **)command, .seconds = 1 };

	if (target_spawn(&t))
		return 200;
	target_go(&t);
	if (target_run(&t, turn, NULL) || turns < 2 || turns > 200)
		return 201;
	return target_exit_code(&t);
}

static int time_of_all(void)
{
	struct target t = { .all = true, .seconds = 1 };

	return target_run(&t, turn, NULL) || turns < 2 ? 200 : target_exit_code(&t);
}

static void the_time_limit_ends_a_command(void **state)
{
	(void)state;
	assert_int_equal(apart(over_time), 128 + SIGTERM);
	assert_int_equal(apart(time_of_all), 0);
}

static int interrupts_itself(void *arg)
{
	(void)arg;
	turns++;
	raise(SIGINT);
	return 0;
}

static int interrupted(void)
{
	struct target t = { .all = true };

	return target_run(&t, interrupts_itself, NULL) || turns != 1;
}

static void an_interrupt_is_the_end_and_no_error(void **state)
{
	(void)state;
	assert_int_equal(apart(interrupted), 0);
}

static int turn_fails(void)
{
	struct target t = { .all = true };

	turn_result = -EIO;
	return target_run(&t, turn, NULL) != -EIO || turns != 1;
}

static int interrupted_once(void *arg)
{
	(void)arg;
	return ++turns == 1 ? -EINTR : -EIO;
}

static int turn_is_interrupted(void)
{
	struct target t = { .all = true };

	return target_run(&t, interrupted_once, NULL) != -EIO || turns != 2;
}

static void the_first_error_of_a_turn_ends_the_run(void **state)
{
	(void)state;
	assert_int_equal(apart(turn_fails), 0);
	assert_int_equal(apart(turn_is_interrupted), 0);
}

/* In the third turn the process that is traced ends. */
static int turn_ends_it(void *arg)
{
	if (++turns == 3)
		kill(*(pid_t *)arg, SIGKILL);
	usleep(TURN_MS * 1000);
	return 0;
}

/* Of a process that is not ours. */
static int other_ends(void)
{
	int fds[2];
	pid_t other;
	struct target t = { 0 };

	if (pipe(fds))
		return 200;
	other = fork();
	if (other == 0) { /* its parent is gone when it ends: it is nobody's child here */
		other = fork();
		if (other == 0) {
			pause();
			_exit(0);
		}
		_exit(write(fds[1], &other, sizeof(other)) != sizeof(other));
	}
	if (read(fds[0], &t.pid, sizeof(t.pid)) != sizeof(t.pid) ||
	    waitpid(other, NULL, 0) != other)
		return 201;
	if (!target_check(&t))
		return 202;
	if (target_run(&t, turn_ends_it, &t.pid) || turns < 3)
		return 203;
	return target_exit_code(&t); /* of no command */
}

static void the_run_ends_with_the_process(void **state)
{
	(void)state;
	assert_int_equal(apart(other_ends), 0);
}

static int checks(void)
{
	const char *none[] = { NULL }, *some[] = { "true", NULL };
	struct target nobody = { 0 }, two = { .all = true, .command = (char **)some };
	struct target empty = { .command = (char **)none }, gone = { .pid = 0x7fffffff };
	struct target self = { .pid = getpid() }, first = { .pid = 1 }, all = { .all = true };
	struct target command = { .command = (char **)some };

	if (target_check(&nobody) || target_check(&two) || target_check(&empty) ||
	    target_check(&gone))
		return 1;
	if (!target_check(&self) || !target_check(&all) || !target_check(&command))
		return 2;
	return target_check(&first) ? 0 : 3; /* also when it may not be sent signals */
}

static void there_is_exactly_one_target(void **state)
{
	(void)state;
	assert_int_equal(apart(checks), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_ends_as_in_a_shell),
		cmocka_unit_test(a_command_waits_until_it_is_let_run),
		cmocka_unit_test(a_command_that_waits_ends_with_its_tracer),
		cmocka_unit_test(the_time_limit_ends_a_command),
		cmocka_unit_test(an_interrupt_is_the_end_and_no_error),
		cmocka_unit_test(the_first_error_of_a_turn_ends_the_run),
		cmocka_unit_test(the_run_ends_with_the_process),
		cmocka_unit_test(there_is_exactly_one_target),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
