/*
 * `ublktrace latency`: where time goes, counted in the kernel. Main thread.
 *
 * Happy path: the programs are attached, a command is let run, at the end (or every interval) the
 * histograms are read and printed. Failure modes: a wrong command line; what latency_read.h and
 * target.h say.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "ublktrace/command.h"
#include "ublktrace/latency/latency_read.h"

struct latency_options {
	struct target target;
	enum latency_by by;
	double interval;
	bool json;
};

struct latency_run {
	const struct latency_options *options;
	struct latency *latency;
	struct latency_report *before; /* the last one that was printed */
	double next;		       /* seconds since the start */
	uint64_t start_ns;
	bool terminal;
};

/* ---- the command line */

static bool latency_parse_by(const char *text, enum latency_by *ret_by)
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

static int latency_option(void *arg, int option, char *value)
{
	struct latency_options *o = arg;

	if (option == 'i')
		return command_check(
			"latency", command_parse_seconds(value, &o->interval) && o->interval >= 0.1,
			"--interval needs a number of seconds, at least 0.1", value);
	return command_check("latency", latency_parse_by(value, &o->by),
			     "--by needs op, ring, opcode or device", value);
}

/* ---- the run */

static int latency_run_print(struct latency_run *run, const struct latency_report *r)
{
	int err;

	if (run->options->json) {
		err = latency_print_json(stdout, r, run->options->by);
	} else {
		if (run->terminal && run->options->interval > 0)
			fputs("\033[H\033[2J", stdout);
		err = latency_print(stdout, r, run->options->by, run->terminal);
	}
	if (!err && fflush(stdout))
		err = -errno;
	return err;
}

/* What happened since the last latency_run_report, or since the start. */
static int latency_run_report(struct latency_run *run, bool since_start)
{
	struct latency_report *now, *shown;
	int err = latency_report_read(run->latency, &now);

	if (err)
		return err;
	shown = latency_report_clone(now);
	if (!shown) {
		latency_report_free(now);
		return -ENOMEM;
	}
	if (run->before && !since_start)
		latency_report_subtract(shown, run->before);
	err = latency_run_print(run, shown);
	latency_report_free(shown);
	latency_report_free(run->before);
	run->before = now;
	return err;
}

static int latency_run_turn(void *arg)
{
	struct latency_run *run = arg;
	uint64_t elapsed_ns;

	usleep(50000);
	latency_follow(run->latency);
	elapsed_ns = command_clock_ns(CLOCK_MONOTONIC) - run->start_ns;
	if (run->options->interval <= 0 || (double)elapsed_ns / 1e9 < run->next)
		return 0;
	run->next += run->options->interval;
	return latency_run_report(run, false);
}

static int latency_run_all(struct latency_run *run, struct target *t)
{
	const char *why;
	int err;

	if (!latency_has_ublk(run->latency, &why))
		fprintf(stderr, "ublktrace latency: %s\n", why);
	run->start_ns = command_clock_ns(CLOCK_MONOTONIC);
	run->next = run->options->interval;
	target_go(t);
	err = target_run(t, latency_run_turn, run);
	if (!err)
		err = latency_run_report(run, true);
	if (err)
		fprintf(stderr, "ublktrace latency: cannot read or print the counters: %s\n",
			strerror(-err));
	latency_report_free(run->before);
	return err;
}

int command_latency(int argc, char **argv)
{
	static const struct option long_options[] = {
		COMMAND_OPTION_PID,
		COMMAND_OPTION_COMMAND,
		COMMAND_OPTION_ALL,
		COMMAND_OPTION_DURATION,
		COMMAND_OPTION_JSON,
		{ "interval", required_argument, NULL, 'i' },
		{ "by", required_argument, NULL, 'b' },
		{ 0 },
	};
	struct latency_options options = { .by = LATENCY_BY_ALL, .target.sample = 1 };
	struct latency_run run = { .options = &options, .terminal = isatty(STDOUT_FILENO) };
	struct command_line line = {
		.short_options = "+p:c",
		.long_options = long_options,
		.option = latency_option,
		.arg = &options,
		.target = &options.target,
	};
	struct target *t = &options.target;
	int err, code;

	if (!command_line_parse(&line, argc, argv, &err))
		return err;
	options.json = line.json;
	if (t->command && target_spawn(t))
		return 1;
	err = latency_open(t->pid, t->command != NULL, options.by == LATENCY_BY_RING, &run.latency);
	if (!err) {
		err = latency_run_all(&run, t);
		latency_close(run.latency);
	}
	/* Without latency_open, the command ends without having run. */
	code = target_exit_code(t);
	return err ? 1 : code;
}
