/*
 * Tests of what tests: a backend that breaks the contract must end in an assertion (in a child
 * process, which ends by SIGABRT), one that loses data must be noticed by the model.
 */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"
#include "tap.h"
#include "testdev.h"
#include "variants.h"

static void open_faulty(struct rig *rig, const char *fault)
{
	char yaml[64];
	struct rig_params params = {
		.ops = &backend_testdev,
		.name = fault,
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = 4,
	};

	snprintf(yaml, sizeof(yaml), "fault: %s", fault);
	ASSERT(rig_open(rig, &params) == 0);
}

static void submit_two(struct rig *rig)
{
	for (unsigned tag = 0; tag < 2; tag++) {
		struct backend_io *io = &rig->queue[0].io[tag].io;

		io->op = BACKEND_READ;
		io->offset_bytes = tag * 4096;
		io->length_bytes = 4096;
		rig_submit(rig, &rig->queue[0].io[tag]);
	}
}

static void use_faulty(const char *fault)
{
	struct rig rig;

	open_faulty(&rig, fault);
	submit_two(&rig);
	for (int i = 0; i < 10; i++) {
		struct timespec ts = { .tv_nsec = 100000 };

		nanosleep(&ts, NULL);
		reactor_turn(&rig.queue[0].reactor, false);
	}
	for (unsigned tag = 0; tag < rig.depth; tag++)
		rig.queue[0].io[tag].io.queue = NULL; /* fini would assert before close does */
	rig_close(&rig);
}

static struct rig thread_rig;

static void *submit_elsewhere(void *arg)
{
	(void)arg;
	submit_two(&thread_rig);
	return NULL;
}

static void use_wrong_thread(const char *arg)
{
	pthread_t thread;

	(void)arg;
	open_faulty(&thread_rig, "none");
	pthread_create(&thread, NULL, submit_elsewhere, NULL);
	pthread_join(thread, NULL);
}

static void use_submit_twice(const char *arg)
{
	struct rig rig;

	(void)arg;
	open_faulty(&rig, "none");
	submit_two(&rig);
	backend_io_submit(&rig.queue[0].io[0].io);
}

static void use_null_buffer(const char *arg)
{
	struct rig rig;

	(void)arg;
	open_faulty(&rig, "none");
	rig.queue[0].io[0].io.buf = NULL;
	submit_two(&rig);
}

static void use_rightly(const char *arg)
{
	struct rig rig;

	(void)arg;
	open_faulty(&rig, "none");
	submit_two(&rig);
	rig_drain(&rig);
	rig_close(&rig);
}

struct outcome {
	int sig; /* that ended the child; 0: it came to its end */
	char words[1024];
};

static void run_child(void (*use)(const char *), const char *arg, int words)
{
	dup2(words, STDERR_FILENO);
	use(arg);
	_exit(0);
}

static struct outcome outcome_of(void (*use)(const char *), const char *arg)
{
	struct outcome outcome = { 0 };
	size_t used = 0;
	int words[2], status;
	ssize_t n;
	pid_t pid;

	ASSERT(pipe2(words, O_CLOEXEC) == 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		run_child(use, arg, words[1]);
	close(words[1]);
	while ((n = read(words[0], outcome.words + used, sizeof(outcome.words) - 1 - used)) > 0)
		used += (size_t)n;
	close(words[0]);
	waitpid(pid, &status, 0);
	outcome.sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	return outcome;
}

/* By the storage core, that is: not by what would have gone wrong later. */
static void must_abort(const char *name, void (*use)(const char *))
{
	struct outcome outcome;

	if (!tap_begin("contract: %s is caught", name))
		return;
	outcome = outcome_of(use, name);
	EXPECT(outcome.sig == SIGABRT, "ended by signal %d", outcome.sig);
	EXPECT(strstr(outcome.words, "storage/io.c:") ||
		       strstr(outcome.words, "storage/io_queue.c:"),
	       "said: %s", outcome.words);
	tap_end();
}

static void must_be_mapped(const char *fault)
{
	struct rig rig;

	if (!tap_begin("contract: %s is mapped", fault))
		return;
	open_faulty(&rig, fault);
	EXPECT(rig_do(&rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "%d",
	       rig.queue[0].io[0].io.result);
	rig_close(&rig);
	tap_end();
}

static void must_be_noticed(const char *fault, uint64_t seed)
{
	struct model_stats stats = { 0 };
	struct model model;
	struct prng prng;
	struct rig rig;

	if (!tap_begin("model: %s is noticed", fault))
		return;
	prng_init(&prng, seed);
	open_faulty(&rig, fault);
	model_init(&model, &rig, MODEL_ZEROES);
	/* What goes wrong in few places takes some luck to be read: of 60 seeds one needs a second
	 * run. */
	for (unsigned i = 0; i < 10 && stats.error_nr == 0; i++)
		model_run(&model, &rig, &prng, 3000, &stats);
	EXPECT(stats.error_nr > 0, "not noticed");
	rig_close(&rig);
	model_fini(&model);
	tap_end();
}

void contract_run(uint64_t seed)
{
	static const char *const faults[] = { "twice", "never", "inside", "other",   "positive",
					      "short", "unset", "busy",	  "nonsense" };
	static const char *const data_faults[] = { "lose_write", "long_zeroes", "shift_read",
						   "stale_buffer" };

	for (unsigned i = 0; i < ARRAY_SIZE(faults); i++)
		must_abort(faults[i], use_faulty);
	must_abort("wrong_thread", use_wrong_thread);
	must_abort("submit_twice", use_submit_twice);
	must_abort("null_buffer", use_null_buffer);
	if (tap_begin("contract: a right use is not")) {
		EXPECT(outcome_of(use_rightly, NULL).sig == 0, "aborted");
		tap_end();
	}
	must_be_mapped("odd_done");
	must_be_mapped("odd_queued");
	for (unsigned i = 0; i < ARRAY_SIZE(data_faults); i++)
		must_be_noticed(data_faults[i], seed);
}
