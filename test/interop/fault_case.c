/* Runs a check in a child, and what checks have in common. One thread per process. */
#include "fault_case.h"

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "net/session_look.h"

#define LOG_LINES_SHOWN 25

static char log_path[200];

/* ---- the child ---- */

/* Everything said on stderr from here on, logs and sanitizers too. */
static void open_log(void)
{
	int fd = open(log_path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		abort();
	close(fd);
	log_init(LOG_LEVEL_DEBUG);
}

static void child(unsigned limit_s, uint64_t seed, fault_case_fn *fn, const void *arg)
{
	static struct fault_case c;

	open_log();
	alarm(limit_s);
	prng_init(&c.prng, seed);
	fn(&c, arg);
	if (c.is_open)
		case_close(&c);
	fault_peer_stop(&c.peer);
	/* With its leak check, where there is one. */
	exit(tap_failed() ? 1 : 0);
}

static void show_log(void)
{
	char command[300];

	fflush(stdout);
	snprintf(command, sizeof(command), "tail -n %d '%s' | cut -c1-300 | sed 's/^/# log: /'",
		 LOG_LINES_SHOWN, log_path);
	if (system(command) != 0)
		perror("tail");
}

static void judge(int status, unsigned limit_s)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		tap_fail(__FILE__, __LINE__, "not over after %u s", limit_s);
	else if (WIFSIGNALED(status))
		tap_fail(__FILE__, __LINE__, "%s", strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != 0)
		tap_fail(__FILE__, __LINE__, "see above: exit code %d", WEXITSTATUS(status));
	if (tap_failed())
		show_log();
}

void fault_case_run(const char *name, unsigned limit_s, uint64_t seed, fault_case_fn *fn,
		    const void *arg)
{
	const char *tmp = getenv("TMPDIR");
	int status = 0;
	pid_t pid;

	if (!tap_begin("%s", name))
		return;
	snprintf(log_path, sizeof(log_path), "%.150s/faults.%d.log", tmp ? tmp : "/tmp", getpid());
	fflush(stdout);
	/* Of what hangs: on a slow machine a case takes several times as long as is said of it. */
	limit_s *= 10;
	pid = fork();
	if (pid == 0)
		child(limit_s, seed, fn, arg);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	judge(status, limit_s);
	unlink(log_path);
	tap_end();
}

/* ---- the program ---- */

int fault_case_main(int argc, char **argv, void (*run)(uint64_t seed))
{
	uint64_t seed = (uint64_t)time(NULL);
	const char *only = NULL;

	for (int i = 1; i < argc; i += 2) {
		if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
			seed = strtoull(argv[i + 1], NULL, 0);
		} else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
			only = argv[i + 1];
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--only TEXT]\n", argv[0]);
			return 2;
		}
	}
	tap_init(argv[0], only, seed);
	run(seed);
	return tap_finish();
}

static const char *read_log(void)
{
	static char text[1 << 20];
	FILE *f = fopen(log_path, "re");
	size_t nr = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[nr] = '\0';
	return text;
}

void case_logged(const char *words)
{
	regex_t regex;

	if (regcomp(&regex, words, REG_EXTENDED | REG_NOSUB) != 0)
		abort();
	EXPECT(regexec(&regex, read_log(), 0, NULL, 0) == 0, "the log does not say: %s", words);
	regfree(&regex);
}

void case_not_logged(const char *text)
{
	EXPECT(!strstr(read_log(), text), "the log says: %s", text);
}

uint64_t case_now_ms(void)
{
	return ring_clock_ns() / 1000000;
}

/* ---- the device ---- */

bool case_open_rig(struct fault_case *c, struct rig_params *params)
{
	params->name = "test";
	params->size_bytes = c->had_bytes;
	params->depth = params->depth ? params->depth : CASE_DEPTH;
	c->is_open = rig_open(&c->rig, params) == 0;
	EXPECT(c->is_open, "%s", c->rig.error);
	if (c->is_open)
		model_init(&c->model, &c->rig, c->content);
	return c->is_open;
}

/* Ops that are in the hands of the kernel. */
static unsigned ops_out(const struct reactor *r)
{
	unsigned nr = 0;

	for (uint32_t i = 0; i < r->slot_fresh; i++)
		nr += r->slot[i] && r->slot[i]->state != OP_IDLE;
	return nr;
}

/* A queue that is closed may need a little until the kernel has let go of its sockets. */
static void expect_nothing_left(struct reactor *r)
{
	for (int i = 0; i < 1000 && (r->leaving > 0 || ops_out(r) > REACTOR_OWN_OP_NR); i++) {
		reactor_turn(r, false);
		usleep(1000);
	}
	EXPECT(r->leaving == 0, "%u connections are left", r->leaving);
	EXPECT(ops_out(r) <= REACTOR_OWN_OP_NR, "%u ops are left", ops_out(r));
	if (ops_out(r) > REACTOR_OWN_OP_NR)
		reactor_dump_ops(r, STDERR_FILENO);
	EXPECT(reactor_next_deadline_ns(r) == RING_NO_TIMEOUT, "a timer is left");
	EXPECT(r->stats.stale == 0, "%llu stale completions", (unsigned long long)r->stats.stale);
}

void case_close(struct fault_case *c)
{
	for (unsigned i = 0; i < c->rig.queue_nr; i++) {
		struct rig_queue *q = &c->rig.queue[i];

		for (unsigned tag = 0; tag < c->rig.depth; tag++) {
			free(q->io[tag].io.buf);
			backend_io_fini(&q->io[tag].io);
		}
		backend_queue_close(q->queue);
		expect_nothing_left(&q->reactor);
		reactor_fini(&q->reactor);
	}
	c->rig.queue_nr = 0;
	rig_close(&c->rig);
	model_fini(&c->model);
	c->is_open = false;
}

/* ---- I/O ---- */

uint64_t case_survives(struct fault_case *c, uint64_t io_nr)
{
	struct model_stats stats;

	model_run(&c->model, &c->rig, &c->prng, io_nr, &stats);
	EXPECT(stats.wrong_nr == 0, "%s", stats.first_error);
	return stats.error_nr;
}

void case_works(struct fault_case *c, uint64_t io_nr)
{
	struct model_stats stats;

	model_run(&c->model, &c->rig, &c->prng, io_nr, &stats);
	EXPECT(stats.error_nr == 0, "%llu wrong, first: %s", (unsigned long long)stats.error_nr,
	       stats.first_error);
	EXPECT(c->peer.count(&c->peer, "violations") == 0, "the client broke the protocol");
}

void case_submit_all(struct fault_case *c, enum backend_op op, uint32_t bytes)
{
	for (unsigned i = 0; i < c->rig.queue_nr; i++) {
		for (unsigned tag = 0; tag < c->rig.depth; tag++) {
			struct rig_io *rio = &c->rig.queue[i].io[tag];

			rio->done = NULL;
			rio->io.op = (uint8_t)op;
			rio->io.flags = 0;
			rio->io.offset_bytes = op == BACKEND_FLUSH
						       ? 0
						       : (uint64_t)(i * c->rig.depth + tag) * bytes;
			rio->io.length_bytes = op == BACKEND_FLUSH ? 0 : bytes;
			rig_submit(&c->rig, rio);
		}
	}
}

void case_expect_all(const struct fault_case *c, int result)
{
	for (unsigned i = 0; i < c->rig.queue_nr; i++) {
		for (unsigned tag = 0; tag < c->rig.depth; tag++) {
			const struct backend_io *io = &c->rig.queue[i].io[tag].io;

			EXPECT(io->result == result, "%s, queue %u, tag %u: %d, not %d",
			       backend_op_name((enum backend_op)io->op), i, tag, io->result,
			       result);
		}
	}
}

void case_cancel_all(struct fault_case *c)
{
	for (unsigned i = 0; i < c->rig.queue_nr; i++)
		for (unsigned tag = 0; tag < c->rig.depth; tag++)
			if (c->rig.queue[i].io[tag].out)
				backend_io_cancel(&c->rig.queue[i].io[tag].io);
}

void case_forget(struct fault_case *c)
{
	memset(c->model.known, 0, c->model.size_bytes / c->model.block_bytes);
}

static void wake_up(struct timer *timer)
{
	(void)timer;
}

/* One turn of each, which sleeps no longer than that in all. */
static void turn_ms(struct fault_case *c, uint64_t ms)
{
	for (unsigned i = 0; i < c->rig.queue_nr; i++) {
		struct reactor *r = &c->rig.queue[i].reactor;
		uint64_t sleep_ns = ms * 1000000 / c->rig.queue_nr;
		struct timer timer;

		timer_init(&timer, wake_up);
		reactor_timer_arm(r, &timer, ring_clock_ns() + sleep_ns);
		reactor_turn(r, true);
		reactor_timer_cancel(r, &timer);
	}
}

bool case_drain(struct fault_case *c, unsigned limit_ms)
{
	uint64_t until_ms = case_now_ms() + limit_ms;

	while (rig_out_nr(&c->rig) > 0 && case_now_ms() < until_ms)
		turn_ms(c, 10);
	EXPECT(rig_out_nr(&c->rig) == 0, "%u I/Os have not ended within %u ms", rig_out_nr(&c->rig),
	       limit_ms);
	return rig_out_nr(&c->rig) == 0;
}

void case_turn_for(struct fault_case *c, unsigned ms)
{
	uint64_t until_ms = case_now_ms() + ms, now_ms;

	while ((now_ms = case_now_ms()) < until_ms)
		turn_ms(c, until_ms - now_ms);
}

bool case_reaches(struct fault_case *c, const char *name, uint64_t nr, unsigned limit_ms)
{
	uint64_t until_ms = case_now_ms() + limit_ms, got;

	while ((got = c->peer.count(&c->peer, name)) < nr && case_now_ms() < until_ms)
		if (c->is_open)
			turn_ms(c, 10);
		else
			usleep(10000);
	EXPECT(got >= nr, "%s: %llu, not %llu, after %u ms", name, (unsigned long long)got,
	       (unsigned long long)nr, limit_ms);
	return got >= nr;
}

bool case_connects(struct fault_case *c)
{
	struct net_connection_look seen = { .state = "none" };
	uint64_t until_ms = case_now_ms() + 20000;

	while (strcmp(seen.state, "connected") != 0 && case_now_ms() < until_ms) {
		turn_ms(c, 10);
		backend_connection(c->rig.queue[0].queue, 0, &seen);
	}
	EXPECT(strcmp(seen.state, "connected") == 0, "its first connection is %s", seen.state);
	return strcmp(seen.state, "connected") == 0;
}
