/*
 * `ublktrace record`: what the programs tell, into files. Main thread.
 *
 * Happy path: the files are made, the programs attached, a command let run; records go to every
 * file until the end; then the totals and the losses are printed. Failure modes: a wrong command
 * line; a file that cannot be written; what capture.h and target.h say.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "ublktrace/command.h"
#include "ublktrace/events/event.h"
#include "ublktrace/events/losses.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/output/sink.h"
#include "ublktrace/record/capture.h"
#include "ublktrace/record/record_options.h"

struct record {
	struct record_options options;
	struct sink *sinks[RECORD_FILES_MAX];
	unsigned sink_nr;
	struct capture *capture;
	uint64_t count[EVENT_TYPE_NR], total;
	bool terminal;
	uint64_t shown_ns;
};

static const char *const type_names[EVENT_TYPE_NR] = {
	[0] = "FORK", /* of a process that is traced: its child is not */
	[EVENT_RING] = "RING",
	[EVENT_ENTER] = "ENTER",
	[EVENT_SYSCALL] = "SYSCALL",
	[EVENT_SUBMIT] = "SUBMIT",
	[EVENT_ASYNC] = "ASYNC",
	[EVENT_WORKER] = "WORKER",
	[EVENT_WORKER_END] = "WORKER_END",
	[EVENT_POLL] = "POLL",
	[EVENT_DEFER] = "DEFER",
	[EVENT_LINK] = "LINK",
	[EVENT_FAIL_LINK] = "FAIL_LINK",
	[EVENT_COMPLETE] = "COMPLETE",
	[EVENT_OVERFLOW] = "OVERFLOW",
	[EVENT_TASK_WORK] = "TASK_WORK",
	[EVENT_WAIT] = "WAIT",
	[EVENT_REAP] = "REAP",
	[EVENT_SWITCH] = "SWITCH",
	[EVENT_BLOCK_QUEUE] = "BLOCK_QUEUE",
	[EVENT_BLOCK_COMPLETE] = "BLOCK_COMPLETE",
	[EVENT_DAEMON_FETCH] = "DAEMON_FETCH",
	[EVENT_DAEMON_SUBMIT] = "DAEMON_SUBMIT",
	[EVENT_DAEMON_BUSY] = "DAEMON_BUSY",
	[EVENT_DAEMON_DONE] = "DAEMON_DONE",
	[EVENT_DAEMON_COMMIT] = "DAEMON_COMMIT",
};

static void record_take(const struct event *e, void *arg)
{
	struct record *r = arg;

	if (e->type >= EVENT_TYPE_NR)
		return;
	r->count[e->type]++;
	r->total++;
	for (unsigned i = 0; i < r->sink_nr; i++)
		r->sinks[i]->ops->event(r->sinks[i], e);
}

/* ---- files ---- */

static struct trace_clock record_clock(bool from_boot)
{
	uint64_t now_ns = command_clock_ns(CLOCK_MONOTONIC);

	return (struct trace_clock){
		.wall_offset_ns = (int64_t)(command_clock_ns(CLOCK_REALTIME) - now_ns),
		.boot_offset_ns = (int64_t)(command_clock_ns(CLOCK_BOOTTIME) - now_ns),
		.start_ns = now_ns,
		.from_boot = from_boot,
	};
}

static int record_open_files(struct record *r)
{
	struct trace_clock clock = record_clock(r->options.from_boot);

	for (unsigned i = 0; i < r->options.file_nr; i++) {
		const char *path = r->options.files[i];
		int ret = sink_open(path, &clock, &r->sinks[i]);

		if (ret == -EINVAL)
			fprintf(stderr,
				"ublktrace: %s: the extension of a file name selects its "
				"format: .csv, .pftrace or .fxt\n",
				path);
		else if (ret < 0)
			fprintf(stderr, "ublktrace: cannot write %s: %s\n", path, strerror(-ret));
		if (ret < 0)
			return ret;
		r->sink_nr++;
	}
	return 0;
}

static int record_close_files(struct record *r, const struct losses *lost)
{
	int first = 0;

	for (unsigned i = 0; i < r->sink_nr; i++) {
		int ret = r->sinks[i]->ops->close(r->sinks[i], lost);

		if (ret < 0)
			fprintf(stderr, "ublktrace: %s is incomplete: %s\n", r->options.files[i],
				strerror(-ret));
		first = first ? first : ret;
	}
	r->sink_nr = 0;
	return first;
}

/* ---- the run ---- */

static void record_show_progress(struct record *r)
{
	uint64_t now_ns = command_clock_ns(CLOCK_MONOTONIC);
	struct losses lost;

	if (!r->terminal || now_ns - r->shown_ns < NS_PER_SEC)
		return;
	r->shown_ns = now_ns;
	capture_losses(r->capture, &lost);
	fprintf(stderr, "\r%" PRIu64 " records, %" PRIu64 " lost\033[K", r->total,
		lost.ring_full + lost.map_full + lost.recursion);
}

static int record_turn(void *arg)
{
	struct record *r = arg;
	int ret = capture_poll(r->capture, 100);

	record_show_progress(r);
	return ret;
}

/* "12 SUBMIT, 3 COMPLETE" */
static void record_print_counts(const uint64_t count[EVENT_TYPE_NR])
{
	const char *before = "";

	for (unsigned type = 0; type < EVENT_TYPE_NR; type++) {
		if (!count[type])
			continue;
		fprintf(stderr, "%s%" PRIu64 " %s", before, count[type], type_names[type]);
		before = ", ";
	}
}

static void record_print_totals(const struct record *r)
{
	if (r->terminal && r->shown_ns)
		fputs("\r\033[K", stderr);
	fprintf(stderr, "%" PRIu64 " records: ", r->total);
	record_print_counts(r->count);
	fputs("\n", stderr);
}

static void record_print_skipped(const struct record *r)
{
	const struct target *t = &r->options.target;
	uint64_t skipped[EVENT_TYPE_NR];

	capture_skipped(r->capture, skipped);
	fputs("missed by recursion: ", stderr);
	record_print_counts(skipped);
	/* Of a part of the processes and requests, skipped runs may be more than what is missing.
	 */
	fputs(t->all && t->sample <= 1 && !t->ring_nr ? "\n" : "; of all processes and requests\n",
	      stderr);
}

static int record_run(struct record *r, struct losses *ret_losses)
{
	struct target *t = &r->options.target;
	int ret = capture_open(t, ~0u, record_take, r, &r->capture);

	if (ret < 0)
		return ret;
	target_go(t);
	ret = target_run(t, record_turn, r);
	if (ret < 0)
		fprintf(stderr, "ublktrace: cannot read the records: %s\n", strerror(-ret));
	capture_drain(r->capture);
	capture_losses(r->capture, ret_losses);
	record_print_totals(r);
	losses_print(stderr, ret_losses);
	if (ret_losses->recursion)
		record_print_skipped(r);
	capture_close(r->capture);
	return ret;
}

int command_record(int argc, char **argv)
{
	struct record r = { .terminal = isatty(STDERR_FILENO) };
	struct losses lost = { 0 };
	int ret = record_options_parse(argc, argv, &r.options), code, closed;

	if (ret)
		return ret;
	ret = machine_may_trace(); /* first: a file that is there already is lost when opened */
	if (!ret)
		ret = record_open_files(&r);
	if (!ret && r.options.target.command)
		ret = target_spawn(&r.options.target);
	/* ^C ends all of `ublktrace ... 2>&1 | tee log`: the files are still to be written. */
	signal(SIGPIPE, SIG_IGN);
	if (!ret)
		ret = record_run(&r, &lost);
	closed = record_close_files(&r, &lost); /* first: the command may take long to end */
	code = target_exit_code(&r.options.target);
	return ret < 0 || closed < 0 ? 1 : code;
}
