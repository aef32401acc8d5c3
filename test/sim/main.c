/*
 * sim: the product's data path and device lifecycle on a simulated kernel, driver and disk.
 *
 * Without options: many seeds, the coverage of all faults, one seed twice, and every defect that
 * must be caught. With --seed alone: that one run, in this process. Output is TAP; each failure
 * comes with the command that replays it. Every run is a process of its own, so that a crash, an
 * assertion or a leak belongs to a seed.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "test/sim/run.h"

#define JOB_NR_MAX 16
#define RUN_SECONDS_MAX 600u
#define OUTPUT_BYTES_MAX 16384
#define DEFECT_SEEDS 32
/* Sessions that are cut at every byte: their requests. */
#define CUT_IOS 12
#define CUT_PAGE_STEP 29u
#define CUTS_MIN 500

static struct options {
	uint64_t seed, runs, ios, seconds, jobs;
	bool one, verbose, cuts, only_runs;
	enum defect defect;
	struct sim_cut cut;
	const char *program;
} opt = { .seed = 1, .runs = 256, .ios = 4000, .jobs = 2 };

/* Shared with the children. */
static struct shared {
	uint64_t fault_nr[FAULT_NR];
	struct run_result result[JOB_NR_MAX];
	struct sim_cut cut[JOB_NR_MAX]; /* that is being made */
	uint64_t cut_nr[JOB_NR_MAX];
} * shared;

struct job {
	pid_t pid;
	uint64_t seed;
	enum defect defect;
	int out_fd;
};

static unsigned test_nr, failed_nr;
static bool words_found;

static uint64_t wall_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void report(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void report(bool good, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("%s %u - ", good ? "ok" : "not ok", ++test_nr);
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
	failed_nr += !good;
	fflush(stdout);
}

static void print_replay(uint64_t seed, enum defect defect)
{
	printf("# replay: %s --seed %llu --ios %llu%s%s%s --verbose\n", opt.program,
	       (unsigned long long)seed, (unsigned long long)opt.ios, sim.only_net ? " --net" : "",
	       defect ? " --break " : "", defect ? defect_name(defect) : "");
}

static void child(struct job *job, unsigned slot)
{
	alarm(RUN_SECONDS_MAX);
	dup2(job->out_fd, STDERR_FILENO);
	run(job->seed, opt.ios, job->defect, shared->fault_nr, &shared->result[slot]);
	exit(0);
}

static void start_job(struct job *job, unsigned slot, uint64_t seed, enum defect defect,
		      void (*fn)(struct job *job, unsigned slot))
{
	*job = (struct job){ .seed = seed,
			     .defect = defect,
			     .out_fd = memfd_create("stderr", MFD_CLOEXEC) };
	fflush(NULL);
	job->pid = fork();
	if (job->pid < 0) {
		perror("fork");
		exit(2);
	}
	if (job->pid == 0)
		fn(job, slot);
}

/* The end of what the child said: there stands why it failed. */
static void print_output(int fd)
{
	static char text[OUTPUT_BYTES_MAX + 1];
	off_t end = lseek(fd, 0, SEEK_END);
	off_t from = end > OUTPUT_BYTES_MAX ? end - OUTPUT_BYTES_MAX : 0;
	ssize_t n = pread(fd, text, OUTPUT_BYTES_MAX, from);
	char *save = NULL;

	text[n > 0 ? n : 0] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		printf("#   %s\n", line);
}

/* Returns the number of the job that ended. */
static unsigned wait_job(struct job *jobs, bool *ret_good)
{
	int status;
	pid_t pid = wait(&status);
	unsigned i = 0;

	while (jobs[i].pid != pid)
		i++;
	jobs[i].pid = 0;
	*ret_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		dprintf(jobs[i].out_fd, "the run took more than %u s\n", RUN_SECONDS_MAX);
	return i;
}

static void add(struct run_result *sum, const struct run_result *result)
{
	sum->ios += result->ios;
	sum->turns += result->turns;
	sum->lives += result->lives;
	sum->starts += result->starts;
	sum->virtual_ns += result->virtual_ns;
}

static bool all_happened(void)
{
	for (int i = 0; i < FAULT_NR; i++)
		if (shared->fault_nr[i] == 0 && fault_possible((enum fault)i))
			return false;
	return true;
}

/* A fault that is rare may want more seeds than were asked for. */
static bool is_enough(uint64_t started, uint64_t begin_ms)
{
	if (opt.seconds)
		return wall_ms() - begin_ms >= opt.seconds * 1000;
	return started >= 2 * opt.runs ||
	       (started >= opt.runs && (opt.only_runs || all_happened()));
}

static void run_seeds(void)
{
	struct job jobs[JOB_NR_MAX] = { 0 };
	struct run_result sum = { 0 };
	uint64_t started = 0, ended = 0, bad = 0, begin_ms = wall_ms();
	bool enough = false;

	while (ended < started || !enough) {
		for (unsigned i = 0; i < opt.jobs && !enough; i++) {
			enough = is_enough(started, begin_ms);
			if (!jobs[i].pid && !enough)
				start_job(&jobs[i], i, opt.seed + started++, opt.defect, child);
		}
		if (ended < started) {
			bool good;
			unsigned i = wait_job(jobs, &good);

			ended++;
			if (good) {
				add(&sum, &shared->result[i]);
			} else {
				bad++;
				printf("# seed %llu failed\n", (unsigned long long)jobs[i].seed);
				print_output(jobs[i].out_fd);
				print_replay(jobs[i].seed, opt.defect);
			}
			close(jobs[i].out_fd);
		}
	}
	report(bad == 0 && sum.ios > 0, "seeds %llu to %llu: %llu I/Os in %llu runs, %llu failed",
	       (unsigned long long)opt.seed, (unsigned long long)(opt.seed + started - 1),
	       (unsigned long long)sum.ios, (unsigned long long)started, (unsigned long long)bad);
	printf("# %llu devices started, %llu became live, %llu turns, %llu s of virtual time, "
	       "%llu ms\n",
	       (unsigned long long)sum.starts, (unsigned long long)sum.lives,
	       (unsigned long long)sum.turns, (unsigned long long)(sum.virtual_ns / NS_PER_SEC),
	       (unsigned long long)(wall_ms() - begin_ms));
}

static void check_coverage(void)
{
	for (int i = 0; i < FAULT_NR; i++)
		if (fault_possible((enum fault)i))
			report(shared->fault_nr[i] > 0, "fault %s happened %llu times",
			       fault_name((enum fault)i), (unsigned long long)shared->fault_nr[i]);
}

static bool output_has(int fd, const char *words)
{
	static char text[OUTPUT_BYTES_MAX + 1];
	ssize_t n = pread(fd, text, OUTPUT_BYTES_MAX, 0);

	text[n > 0 ? n : 0] = '\0';
	return strstr(text, words) != NULL;
}

/* One run as a child; false when it failed. words_found: its output has the words. */
static bool run_alone(uint64_t seed, enum defect defect, struct run_result *ret_result,
		      const char *words)
{
	struct job jobs[1];
	bool good;

	memset(&shared->result[0], 0, sizeof(shared->result[0]));
	start_job(&jobs[0], 0, seed, defect, child);
	wait_job(jobs, &good);
	*ret_result = shared->result[0];
	words_found = output_has(jobs[0].out_fd, words);
	close(jobs[0].out_fd);
	return good;
}

static void check_replay(void)
{
	struct run_result a, b;
	bool good = run_alone(opt.seed, DEFECT_NONE, &a, "") &&
		    run_alone(opt.seed, DEFECT_NONE, &b, "");

	report(good && a.trace_hash == b.trace_hash && a.ios == b.ios,
	       "seed %llu twice gives the same trace %016llx", (unsigned long long)opt.seed,
	       (unsigned long long)a.trace_hash);
}

/* A defect need not show in every world: a few are tried, every step-th one. */
static void check_defect(enum defect defect, uint64_t first_seed, uint64_t step)
{
	struct run_result result;
	uint64_t seed = first_seed, end = first_seed + DEFECT_SEEDS * step;

	while (seed < end && run_alone(seed, defect, &result, ""))
		seed += step;
	/* For the right reason. */
	report(seed < end && !run_alone(seed, defect, &result, defect_words(defect)) && words_found,
	       "defect %s is caught (seed %llu)", defect_name(defect), (unsigned long long)seed);
}

/* ---- a session cut at every byte ---- */

static void run_cut(uint64_t seed, unsigned slot, struct sim_cut cut)
{
	sim.cut = cut;
	shared->cut[slot] = sim.cut;
	run(seed, CUT_IOS, DEFECT_NONE, shared->fault_nr, &shared->result[slot]);
	if (!sim.cut.done && cut.at != UINT64_MAX)
		sim_fail("there was no cut");
}

/* What an admin queue reads are pages, in which one byte is as good as another. */
static uint64_t cut_step(unsigned nth, enum net_side by)
{
	return nth > 0 && by == NET_SERVER ? CUT_PAGE_STEP : 1;
}

/* Every jobs-th of them. First without a cut: how long it is. */
static void cut_connection(uint64_t seed, unsigned slot, unsigned nth)
{
	struct sim_cut cut = { .on = true, .nth = nth, .at = UINT64_MAX };
	uint64_t sent[2];

	run_cut(seed, slot, cut);
	memcpy(sent, sim.cut.sent, sizeof(sent));
	for (cut.by = NET_CLIENT; cut.by <= NET_SERVER; cut.by++) {
		uint64_t step = cut_step(nth, cut.by);

		for (cut.at = slot * step; cut.at < sent[cut.by]; cut.at += opt.jobs * step) {
			run_cut(seed, slot, cut);
			shared->cut_nr[slot]++;
		}
	}
}

static void cut_child(struct job *job, unsigned slot)
{
	unsigned connection_nr = sim_seed_is_nvme(job->seed) ? 2 : 1;

	alarm(RUN_SECONDS_MAX);
	dup2(job->out_fd, STDERR_FILENO);
	for (unsigned nth = 0; nth < connection_nr; nth++)
		cut_connection(job->seed, slot, nth);
	exit(0);
}

static void print_cut(uint64_t seed, const struct sim_cut *cut)
{
	printf("# replay: %s --seed %llu --cut %s:%llu:%u --verbose\n", opt.program,
	       (unsigned long long)seed, cut->by == NET_CLIENT ? "client" : "server",
	       (unsigned long long)cut->at, cut->nth + 1);
}

static void check_cuts(uint64_t seed)
{
	struct job jobs[JOB_NR_MAX] = { 0 };
	uint64_t begin_ms = wall_ms(), nr = 0;
	bool all_good = true;

	memset(shared->cut_nr, 0, sizeof(shared->cut_nr));
	for (unsigned i = 0; i < opt.jobs; i++)
		start_job(&jobs[i], i, seed, DEFECT_NONE, cut_child);
	for (unsigned i = 0; i < opt.jobs; i++) {
		bool good;
		unsigned slot = wait_job(jobs, &good);

		nr += shared->cut_nr[slot];
		if (!good) {
			print_output(jobs[slot].out_fd);
			print_cut(seed, &shared->cut[slot]);
		}
		all_good &= good;
		close(jobs[slot].out_fd);
	}
	report(all_good && nr > CUTS_MIN,
	       "session %llu of %s cut behind each of its bytes, %llu times",
	       (unsigned long long)seed, sim_seed_is_nvme(seed) ? "NVMe/TCP" : "NBD",
	       (unsigned long long)nr);
	printf("# %llu ms\n", (unsigned long long)(wall_ms() - begin_ms));
}

static int run_one(void)
{
	struct run_result result;

	sim.verbose = opt.verbose;
	sim.cut = opt.cut;
	run(opt.seed, opt.cut.on ? CUT_IOS : opt.ios, opt.defect, shared->fault_nr, &result);
	printf("1..1\nok 1 - seed %llu: %llu I/Os, %llu turns, %llu devices, trace %016llx\n",
	       (unsigned long long)opt.seed, (unsigned long long)result.ios,
	       (unsigned long long)result.turns, (unsigned long long)result.starts,
	       (unsigned long long)result.trace_hash);
	return 0;
}

static void usage(void)
{
	printf("usage: sim [--seed N] [--runs N] [--ios N] [--seconds N] [--jobs N] [--net]\n"
	       "           [--only-runs] [--cut WHO:BYTES] [--cuts] [--break NAME] [--verbose]\n"
	       "Runs the data path and the device lifecycle on a simulated kernel.\n"
	       "  --seed N     first seed (1); without --runs and --seconds: only this one\n"
	       "  --runs N     seeds to run (256); more, up to twice as many, until every fault\n"
	       "               has happened\n"
	       "  --ios N      requests per run (4000)\n"
	       "  --seconds N  as many seeds as fit\n"
	       "  --jobs N     processes at a time (2)\n"
	       "  --net        all devices are on servers: of NBD, or with seeds that leave 2 "
	       "when\n"
	       "               divided by 3 of NVMe/TCP\n"
	       "  --only-runs  nothing but the seeds: not whether all faults have happened, no "
	       "cuts,\n"
	       "               no defects\n"
	       "  --cut client:BYTES[:N], --cut server:BYTES[:N]\n"
	       "               a short session, whose first (second, ...) connection is cut when\n"
	       "               this side has sent so many bytes\n"
	       "  --cuts       only such sessions, cut behind each of their bytes\n"
	       "  --break NAME with this defect put in; it must be caught:\n");
	for (int i = 1; i < DEFECT_NR; i++)
		printf("                 %s\n", defect_name((enum defect)i));
}

static enum defect parse_defect(const char *name)
{
	for (int i = 1; i < DEFECT_NR; i++)
		if (strcmp(name, defect_name((enum defect)i)) == 0)
			return (enum defect)i;
	fprintf(stderr, "sim: unknown defect: %s\n", name);
	exit(2);
}

static struct sim_cut parse_cut(const char *text)
{
	struct sim_cut cut = { .on = true };
	const char *at = strchr(text, ':');
	char *nth;

	cut.by = strncmp(text, "server:", 7) == 0 ? NET_SERVER : NET_CLIENT;
	if (!at || (cut.by == NET_CLIENT && strncmp(text, "client:", 7) != 0)) {
		fprintf(stderr, "sim: --cut client:BYTES[:N] or server:BYTES[:N], not %s\n", text);
		exit(2);
	}
	cut.at = strtoull(at + 1, &nth, 10);
	if (*nth == ':')
		cut.nth = (unsigned)strtoul(nth + 1, NULL, 10) - 1;
	return cut;
}

static void parse_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "runs", required_argument, NULL, 'r' },
		{ "ios", required_argument, NULL, 'i' },
		{ "seconds", required_argument, NULL, 't' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "break", required_argument, NULL, 'b' },
		{ "net", no_argument, NULL, 'n' },
		{ "only-runs", no_argument, NULL, 'o' },
		{ "cut", required_argument, NULL, 'c' },
		{ "cuts", no_argument, NULL, 'C' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool many = false;
	int c;

	opt.program = argv[0];
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 10) : 0;

		switch (c) {
		case 's':
			opt.seed = value;
			opt.one = true;
			break;
		case 'r':
			opt.runs = value;
			many = true;
			break;
		case 'i':
			opt.ios = value;
			break;
		case 't':
			opt.seconds = value;
			many = true;
			break;
		case 'j':
			opt.jobs = value;
			break;
		case 'b':
			opt.defect = parse_defect(optarg);
			break;
		case 'n':
			sim.only_net = true;
			break;
		case 'o':
			opt.only_runs = many = true;
			break;
		case 'c':
			opt.cut = parse_cut(optarg);
			opt.one = true;
			break;
		case 'C':
			opt.cuts = many = true;
			break;
		case 'v':
			opt.verbose = true;
			break;
		case 'h':
			usage();
			exit(0);
		default:
			exit(2);
		}
	}
	opt.one = opt.one && !many;
	if (opt.jobs < 1 || opt.jobs > JOB_NR_MAX)
		opt.jobs = 2;
}

/* The first one whose servers speak that. */
static uint64_t seed_of(bool nvme)
{
	uint64_t seed = opt.seed;

	while (sim_seed_is_nvme(seed) != nvme)
		seed++;
	return seed;
}

/* That the runs were good for something: all faults, all defects. */
static void check_world(void)
{
	check_cuts(seed_of(false));
	check_cuts(seed_of(true));
	if (opt.cuts)
		return;
	check_coverage();
	check_replay();
	for (int i = 1; i < DEFECT_NR; i++)
		if (defect_possible((enum defect)i))
			check_defect((enum defect)i, opt.seed, 1);
	/* The first ones that were caught may all have been on NBD. */
	for (int i = 1; i < DEFECT_NR; i++)
		if (defect_of_net((enum defect)i))
			check_defect((enum defect)i, seed_of(true), SIM_NVME_EVERY);
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	log_init(opt.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	if (opt.one)
		return run_one();
	if (!opt.cuts)
		run_seeds();
	if (opt.defect == DEFECT_NONE && !opt.only_runs)
		check_world();
	printf("1..%u\n", test_nr);
	return failed_nr ? 1 : 0;
}
