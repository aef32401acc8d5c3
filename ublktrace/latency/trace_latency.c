/*
 * `ublktrace latency`: where time goes, counted in the kernel. Main thread.
 *
 * Happy path: the programs are attached, a command is let run, at the end (or every interval) the
 * histograms are read and printed. Failure modes: a wrong command line; what latency_read.h and
 * target.h say.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "ublktrace/command.h"
#include "ublktrace/latency/latency_read.h"
#include "ublktrace/target.h"

struct command_line {
	struct target target;
	enum latency_by by;
	double interval;
	bool json;
};

struct run {
	const struct command_line *line;
	struct latency *latency;
	struct latency_report *before; /* the last one that was printed */
	double next;		       /* seconds since the start */
	struct timespec start;
	bool terminal;
};

/* ---- the command line */

static const struct option long_options[] = {
	{ "pid", required_argument, NULL, 'p' },
	{ "command", no_argument, NULL, 'c' },
	{ "all", no_argument, NULL, 'a' },
	{ "duration", required_argument, NULL, 'd' },
	{ "interval", required_argument, NULL, 'i' },
	{ "by", required_argument, NULL, 'b' },
	{ "json", no_argument, NULL, 'j' },
	{ 0 },
};

static bool parse_seconds(const char *text, double *ret_seconds)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0.1 && seconds < 1e9))
		return false;
	*ret_seconds = seconds;
	return true;
}

static bool parse_pid(const char *text, pid_t *ret_pid)
{
	char *end;
	long pid = strtol(text, &end, 10);

	if (end == text || *end || pid <= 0 || pid > INT32_MAX)
		return false;
	*ret_pid = (pid_t)pid;
	return true;
}

static bool parse_by(const char *text, enum latency_by *ret_by)
{
	static const char *const words[] = { [LATENCY_BY_ALL] = "all",
					     [LATENCY_BY_OP] = "op",
					     [LATENCY_BY_DEVICE] = "device",
					     [LATENCY_BY_OPCODE] = "opcode",
					     [LATENCY_BY_RING] = "ring" };

	for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(text, words[i])) {
			*ret_by = i;
			return true;
		}
	return false;
}

/* What is wrong with option o, in words; NULL: nothing. */
static const char *parse_option(struct command_line *line, int o, char **rest)
{
	switch (o) {
	case 'p':
		return parse_pid(optarg, &line->target.pid) ? NULL : "-p needs a process id";
	case 'c':
		line->target.command = rest;
		return NULL;
	case 'a':
		line->target.all = true;
		return NULL;
	case 'd':
		return parse_seconds(optarg, &line->target.seconds)
			       ? NULL
			       : "--duration needs a number of seconds";
	case 'i':
		return parse_seconds(optarg, &line->interval)
			       ? NULL
			       : "--interval needs a number of seconds, at least 0.1";
	case 'b':
		return parse_by(optarg, &line->by) ? NULL : "--by needs op, ring, opcode or device";
	case 'j':
		line->json = true;
		return NULL;
	default:
		return "unknown option, or an option without its value";
	}
}

/* Returns whether all is well; what is not is said. */
static bool parse(struct command_line *line, int argc, char **argv)
{
	int o;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "+p:c", long_options, NULL)) >= 0) {
		const char *wrong = parse_option(line, o, argv + optind);

		if (wrong) {
			usage_error("latency", "%s", wrong);
			return false;
		}
		if (o == 'c') /* all that follows is the command's */
			return target_check(&line->target);
	}
	if (optind < argc) {
		usage_error("latency", "unexpected argument '%s'", argv[optind]);
		return false;
	}
	return target_check(&line->target);
}

/* ---- the run */

static double seconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static int print(struct run *run, const struct latency_report *r)
{
	int err;

	if (run->line->json) {
		err = latency_print_json(stdout, r, run->line->by);
	} else {
		if (run->terminal && run->line->interval > 0)
			fputs("\033[H\033[2J", stdout);
		err = latency_print(stdout, r, run->line->by, run->terminal);
	}
	if (!err && fflush(stdout))
		err = -errno;
	return err;
}

/* What happened since the last report, or since the start. */
static int report(struct run *run, bool since_start)
{
	struct latency_report *now, *shown;
	int err = latency_read(run->latency, &now);

	if (err)
		return err;
	shown = latency_report_clone(now);
	if (!shown) {
		latency_report_free(now);
		return -ENOMEM;
	}
	if (run->before && !since_start)
		latency_report_subtract(shown, run->before);
	err = print(run, shown);
	latency_report_free(shown);
	latency_report_free(run->before);
	run->before = now;
	return err;
}

static int turn(void *arg)
{
	struct run *run = arg;

	usleep(50000);
	latency_follow(run->latency);
	if (run->line->interval <= 0 || seconds_since(&run->start) < run->next)
		return 0;
	run->next += run->line->interval;
	return report(run, false);
}

static int run_all(struct run *run, struct target *t)
{
	const char *why;
	int err;

	if (!latency_has_ublk(run->latency, &why))
		fprintf(stderr, "ublktrace latency: %s\n", why);
	clock_gettime(CLOCK_MONOTONIC, &run->start);
	run->next = run->line->interval;
	target_go(t);
	err = target_run(t, turn, run);
	if (!err)
		err = report(run, true);
	if (err)
		fprintf(stderr, "ublktrace latency: cannot read or print the counters: %s\n",
			strerror(-err));
	latency_report_free(run->before);
	return err;
}

int command_latency(int argc, char **argv)
{
	struct command_line line = { .by = LATENCY_BY_ALL, .target.sample = 1 };
	struct run run = { .line = &line, .terminal = isatty(STDOUT_FILENO) };
	int err;

	if (!parse(&line, argc, argv))
		return 2;
	if (line.target.command && target_spawn(&line.target))
		return 1;
	err = latency_open(line.target.pid, line.target.command != NULL, line.by == LATENCY_BY_RING,
			   &run.latency);
	if (err) {
		target_exit_code(&line.target); /* the command ends without having run */
		return 1;
	}
	err = run_all(&run, &line.target);
	latency_close(run.latency);
	if (err) {
		target_exit_code(&line.target);
		return 1;
	}
	return target_exit_code(&line.target);
}
