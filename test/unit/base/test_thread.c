/* Threads by thread_start: their signals, names, CPUs and stacks; what the kernel says of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

struct seen {
	sem_t ready, leave;
	sigset_t blocked;
	cpu_set_t cpus;
	char name[16];
	size_t stack_bytes;
	int detached;
	pid_t tid;
};

static void *look_around(void *arg)
{
	struct seen *seen = arg;
	pthread_attr_t attr;

	pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
	pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstacksize(&attr, &seen->stack_bytes);
	pthread_attr_getdetachstate(&attr, &seen->detached);
	pthread_attr_destroy(&attr);
	sched_getaffinity(0, sizeof(seen->cpus), &seen->cpus);
	seen->tid = gettid();
	sem_post(&seen->ready);
	while (sem_wait(&seen->leave) < 0)
		;
	return seen;
}

static void seen_init(struct seen *seen)
{
	memset(seen, 0, sizeof(*seen));
	sem_init(&seen->ready, 0, 0);
	sem_init(&seen->leave, 0, 0);
}

static void seen_wait(struct seen *seen)
{
	while (sem_wait(&seen->ready) < 0)
		;
}

static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGALRM, SIGPIPE };

static void check_blocked(const struct seen *seen)
{
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		assert_int_equal(sigismember(&seen->blocked, signals[i]), 1);
}

static void test_joinable(void **state)
{
	struct seen seen;
	struct thread_params params = {
		.name = "a name too long for the kernel",
		.stack_bytes = THREAD_STACK_BYTES,
		.run = look_around,
		.arg = &seen,
	};
	sigset_t own;
	pthread_t thread;
	void *ret;

	(void)state;
	seen_init(&seen);
	assert_int_equal(thread_start(&thread, &params), 0);
	seen_wait(&seen);
	sem_post(&seen.leave);
	assert_int_equal(pthread_join(thread, &ret), 0);
	check_blocked(&seen);
	assert_string_equal(seen.name, "a name too long");
	assert_int_equal(seen.detached, PTHREAD_CREATE_JOINABLE);
	assert_in_range(seen.stack_bytes, THREAD_STACK_BYTES / 2, THREAD_STACK_BYTES * 2);
	assert_ptr_equal(ret, &seen);
	/* The starter's own are as before. */
	pthread_sigmask(SIG_SETMASK, NULL, &own);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		assert_int_equal(sigismember(&own, signals[i]), 0);
}

static volatile sig_atomic_t taken_by;

static void on_signal(int nr)
{
	(void)nr;
	taken_by = gettid();
}

/* It waits while the main thread has the signal blocked: no other thread takes it meanwhile. */
static void test_detached_takes_no_signal(void **state)
{
	struct sigaction action = { .sa_handler = on_signal };
	static struct seen seen;
	struct thread_params params = { .name = "detached", .run = look_around, .arg = &seen };
	sigset_t term, before;

	(void)state;
	seen_init(&seen);
	sigaction(SIGTERM, &action, NULL);
	assert_int_equal(thread_start(NULL, &params), 0);
	seen_wait(&seen);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &term, &before);
	kill(getpid(), SIGTERM);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	signal(SIGTERM, SIG_DFL);
	sem_post(&seen.leave);
	assert_int_equal(taken_by, gettid());
	assert_int_equal(seen.detached, PTHREAD_CREATE_DETACHED);
	assert_string_equal(seen.name, "detached");
	check_blocked(&seen);
}

static void test_cpus(void **state)
{
	struct seen seen;
	struct thread_params params = { .name = "cpus", .run = look_around, .arg = &seen };
	pthread_t thread = 0;
	cpu_set_t own, one;
	int cpu = 0;

	(void)state;
	seen_init(&seen);
	assert_int_equal(sched_getaffinity(0, sizeof(own), &own), 0);
	while (!CPU_ISSET(cpu, &own))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	params.cpus = &one;
	assert_int_equal(thread_start(&thread, &params), 0);
	seen_wait(&seen);
	sem_post(&seen.leave);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(CPU_EQUAL(&seen.cpus, &one));
	/* No CPU: refused, and nothing was started or leaked. */
	CPU_ZERO(&one);
	assert_int_equal(thread_start(&thread, &params), -EINVAL);
	assert_int_equal(sem_trywait(&seen.ready), -1);
}

static void test_what_the_kernel_says(void **state)
{
	struct seen seen;
	struct thread_params params = { .name = "odd) name S", .run = look_around, .arg = &seen };
	char function[64] = "x";
	pthread_t thread;
	char letter;

	(void)state;
	seen_init(&seen);
	assert_int_equal(thread_start(&thread, &params), 0);
	seen_wait(&seen);
	while ((letter = thread_state(seen.tid)) == 'R')
		sched_yield();
	sem_post(&seen.leave);
	pthread_join(thread, NULL);
	assert_int_equal(letter, 'S');
	assert_int_equal(thread_state(999999999), '?');
	thread_function(999999999, function, sizeof(function));
	assert_string_equal(function, "");
}

/* A thread that was joined is there for a moment more. */
static void wait_foreign(unsigned nr)
{
	for (unsigned i = 0; thread_foreign_nr() != nr && i < 10000; i++)
		usleep(1000);
	assert_int_equal(thread_foreign_nr(), nr);
}

static void *kernels_name(void *arg)
{
	pthread_setname_np(pthread_self(), "iou-wrk-1");
	return look_around(arg);
}

/* A sanitizer may have one of its own, which it makes with the first of ours. */
static void test_foreign_threads(void **state)
{
	struct seen seen[4];
	struct thread_params params = { .name = "own", .run = look_around };
	pthread_t threads[4];
	unsigned before = 0;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		seen_init(&seen[i]);
	for (unsigned i = 0; i < 2; i++) {
		params.arg = &seen[i];
		assert_int_equal(thread_start(&threads[i], &params), 0);
		seen_wait(&seen[i]);
		if (i == 0)
			before = thread_foreign_nr();
	}
	assert_in_range(before, 0, 1);
	assert_int_equal(thread_foreign_nr(), before);
	pthread_create(&threads[2], NULL, look_around, &seen[2]);
	seen_wait(&seen[2]);
	assert_int_equal(thread_foreign_nr(), before + 1);
	pthread_create(&threads[3], NULL, kernels_name, &seen[3]);
	seen_wait(&seen[3]);
	assert_int_equal(thread_foreign_nr(), before + 1);
	for (unsigned i = 0; i < 4; i++) {
		sem_post(&seen[i].leave);
		pthread_join(threads[i], NULL);
		wait_foreign(i < 2 ? before + 1 : before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: the others' threads may still be there for a moment after them. */
		cmocka_unit_test(test_foreign_threads),		 cmocka_unit_test(test_joinable),
		cmocka_unit_test(test_detached_takes_no_signal), cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_what_the_kernel_says),
	};

	return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
