/*
 * `ublktrace control`: commands of ublk servers as they happen.
 *
 * Happy path: attach what this kernel has, print a line for each command that ends, and for one
 * that does not end in time; failed data commands that are alike become one line. Failure modes:
 * without rights or BTF one line with the cure. Main thread.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublktrace/kernel/attach.h"
#include "ublktrace/command.h"
#include "ublktrace/control/control_text.h"
#include "ublktrace/events/losses.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/kernel/recursion.h"
#include "ublktrace/target.h"
#include "control.skel.h"

#define PENDING_MAX 64u
#define LATE_NS (2 * NS_PER_SEC) /* a command that takes longer is told; then each doubling */
#define GROUP_NS (300 * NS_PER_MS)
#define GROUPS_MAX 4u
#define POLL_MS 100

struct options {
	unsigned long pid; /* 0: all */
	double seconds;	   /* 0: until ^C */
	bool as_json;
};

struct pending {
	struct control_event begin;
	uint64_t tell_ns; /* when it is told next */
	bool used;
};

struct control {
	struct options options;
	struct control_bpf *bpf;
	struct ring_buffer *records;
	struct pending pending[PENDING_MAX];
	struct group {
		struct control_event first;
		unsigned nr;
	} groups[GROUPS_MAX];  /* failed data commands that are alike */
	uint64_t unknown_ends; /* commands that began, without room to remember them */
	int64_t wall_offset_ns;
	bool colour;
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static void print(struct control *c, const struct control_event *e, unsigned more)
{
	if (c->options.as_json)
		control_print_json(stdout, e, c->wall_offset_ns, more);
	else
		control_print(stdout, e, c->wall_offset_ns, more, c->colour);
	fflush(stdout);
}

/* --- failed data commands: as many as there are tags --------------------------------------- */

static bool alike(const struct control_event *a, const struct control_event *b)
{
	return a->pid == b->pid && a->cmd_op == b->cmd_op && a->res == b->res &&
	       !memcmp(a->file, b->file, sizeof(a->file));
}

static void group_flush(struct control *c, struct group *g)
{
	if (g->nr)
		print(c, &g->first, g->nr - 1);
	g->nr = 0;
}

/* Those that began before that time; by their age. */
static void groups_flush(struct control *c, uint64_t before_ns)
{
	struct group *oldest;

	do {
		oldest = NULL;
		for (unsigned i = 0; i < GROUPS_MAX; i++) {
			struct group *g = &c->groups[i];

			if (g->nr && g->first.time_ns < before_ns &&
			    (!oldest || g->first.time_ns < oldest->first.time_ns))
				oldest = g;
		}
		if (oldest)
			group_flush(c, oldest);
	} while (oldest);
}

static void group_add(struct control *c, const struct control_event *e)
{
	struct group *spare = NULL;

	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		struct group *g = &c->groups[i];

		if (g->nr && alike(&g->first, e)) {
			g->nr++;
			return;
		}
		if (!g->nr)
			spare = g;
	}
	if (!spare) {
		groups_flush(c, UINT64_MAX);
		spare = &c->groups[0];
	}
	*spare = (struct group){ .first = *e, .nr = 1 };
}

/* --- commands in flight ----------------------------------------------------------------------- */

static void pending_add(struct control *c, const struct control_event *e)
{
	for (unsigned i = 0; i < PENDING_MAX; i++) {
		struct pending *p = &c->pending[i];

		if (p->used)
			continue;
		*p = (struct pending){ .begin = *e,
				       .tell_ns = e->submit_ns + LATE_NS,
				       .used = true };
		return;
	}
	c->unknown_ends++;
}

static void pending_remove(struct control *c, uint64_t req)
{
	for (unsigned i = 0; i < PENDING_MAX; i++)
		if (c->pending[i].begin.req == req)
			c->pending[i].used = false;
}

/* Where it is now: the BPF side goes on to note that. */
static void pending_refresh(const struct control *c, struct control_event *e)
{
	struct control_event now;

	if (bpf_map_lookup_elem(bpf_map__fd(c->bpf->maps.commands), &e->req, &now))
		return;
	e->queued_ns = now.queued_ns;
	e->worker = now.worker;
	e->first_ret = now.first_ret;
}

static void pending_tell(struct control *c, uint64_t now_ns)
{
	for (unsigned i = 0; i < PENDING_MAX; i++) {
		struct pending *p = &c->pending[i];

		if (!p->used || now_ns < p->tell_ns)
			continue;
		groups_flush(c, UINT64_MAX); /* the reason stands above */
		pending_refresh(c, &p->begin);
		p->begin.time_ns = now_ns;
		p->tell_ns = now_ns + (now_ns - p->begin.submit_ns);
		print(c, &p->begin, 0);
	}
}

static int on_record(void *arg, void *data, size_t bytes)
{
	const struct control_event *e = data;
	struct control *c = arg;

	if (bytes < sizeof(*e))
		return 0;
	switch (e->type) {
	case CONTROL_BEGIN:
		pending_add(c, e);
		break;
	case CONTROL_DATA:
		group_add(c, e);
		break;
	default:
		pending_remove(c, e->req);
		print(c, e, 0);
	}
	return 0;
}

/* --- attaching -------------------------------------------------------------------------------- */

static bool point_works(const struct point *p, enum point_how *ret_how, bool *ret_right)
{
	char found[128];
	enum point_state state = point_look(p, found, sizeof(found));

	if (state == POINT_NO_RIGHT)
		*ret_right = false;
	/* Without the type it may still be a kprobe. */
	return (state == POINT_OK || state == POINT_NO_BTF) && !attach_try(p, found, ret_how);
}

/* Programs beyond the tracepoints: the driver's function, and io-wq's. */
static void choose(struct control *c)
{
	static const struct point driver = { .symbol = "ublk_ctrl_uring_cmd",
					     .module = "ublk_drv",
					     .how = POINT_FENTRY };
	static const struct point worker = { .symbol = "io_wq_submit_work", .how = POINT_FENTRY };
	enum point_how how;
	bool right = true;

	if (point_works(&driver, &how, &right)) {
		bpf_program__set_autoload(c->bpf->progs.control_driver, how == POINT_FENTRY);
		bpf_program__set_autoload(c->bpf->progs.control_driver_end, how == POINT_FENTRY);
		bpf_program__set_autoload(c->bpf->progs.control_driver_kprobe, how == POINT_KPROBE);
	} else {
		fprintf(stderr,
			"ublktrace control: ublk_ctrl_uring_cmd cannot be traced (%s): commands "
			"are "
			"shown without the thread that ran them\n",
			!right				 ? "CAP_SYS_ADMIN is missing"
			: machine_has_module("ublk_drv") ? "ublktrace probes shows the reason"
							 : "ublk_drv is not loaded");
	}
	if (point_works(&worker, &how, &right) && how == POINT_FENTRY)
		bpf_program__set_autoload(c->bpf->progs.control_worker, true);
}

static int say_nothing(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

static int fail(const char *what, int err)
{
	fprintf(stderr, "ublktrace control: %s: %s: %s\n", what, errname(err),
		attach_error_cure(POINT_BTF_TRACEPOINT, err));
	return err;
}

static int control_load(struct control *c)
{
	int args = point_tracepoint_args("io_uring_complete"), err;

	if (args != 7 && args != 3) {
		fprintf(stderr, "ublktrace control: %s\n",
			args == -ENOTSUP
				? "the kernel has no BTF: enable CONFIG_DEBUG_INFO_BTF"
				: "this kernel's tracepoint io_uring_complete is not supported");
		return -ENOTSUP;
	}
	c->bpf = control_bpf__open();
	if (!c->bpf)
		return fail("open", -errno);
	bpf_program__set_autoload(c->bpf->progs.control_submit, true);
	bpf_program__set_autoload(c->bpf->progs.control_queue, true);
	bpf_program__set_autoload(args == 7 ? c->bpf->progs.control_complete_7
					    : c->bpf->progs.control_complete_3,
				  true);
	choose(c);
	c->bpf->rodata->target_pid = (uint32_t)c->options.pid;
	err = control_bpf__load(c->bpf);
	if (err)
		return fail("the kernel refused the BPF programs", err);
	err = control_bpf__attach(c->bpf);
	if (err)
		return fail("attaching", err);
	c->records = ring_buffer__new(bpf_map__fd(c->bpf->maps.records), on_record, c, NULL);
	return c->records ? 0 : fail("ring buffer", -errno);
}

static void print_losses(const struct control *c)
{
	struct losses l = {
		.ring_full = c->bpf->bss->ring_full,
		.map_full = c->bpf->bss->map_full + c->unknown_ends,
		.recursion = recursion_misses(c->bpf->obj),
		.unmatched = c->bpf->bss->unmatched,
	};

	losses_print(stderr, &l);
}

static int control_run(struct control *c)
{
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC), now_ns = start_ns;
	uint64_t limit_ns = (uint64_t)(c->options.seconds * 1e9);
	int ret = 0;

	while (!stop && (!limit_ns || now_ns - start_ns < limit_ns)) {
		ret = ring_buffer__poll(c->records, POLL_MS);
		if (ret < 0 && ret != -EINTR)
			return fail("reading", ret);
		now_ns = clock_ns(CLOCK_MONOTONIC);
		groups_flush(c, now_ns - GROUP_NS);
		pending_tell(c, now_ns);
	}
	control_bpf__detach(c->bpf);
	ring_buffer__consume(c->records);
	groups_flush(c, UINT64_MAX);
	return 0;
}

static int run(const struct options *o)
{
	struct control *c = calloc(1, sizeof(*c));
	struct sigaction action = { .sa_handler = on_signal };
	char lacks[64];
	int ret;

	if (machine_lacks(false, lacks, sizeof(lacks))[0]) {
		fprintf(stderr, "ublktrace control: missing: %s; run it as root\n", lacks);
		free(c);
		return 1;
	}
	if (!c)
		return 1;
	c->options = *o;
	c->colour = isatty(STDOUT_FILENO);
	c->wall_offset_ns = (int64_t)(clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC));
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	libbpf_set_print(say_nothing);
	ret = control_load(c);
	if (!ret) {
		fprintf(stderr, "tracing control commands of %s; ^C ends it\n",
			o->pid ? "that process" : "all ublk servers");
		ret = control_run(c);
		print_losses(c);
	}
	ring_buffer__free(c->records);
	control_bpf__destroy(c->bpf);
	free(c);
	return ret ? 1 : 0;
}

static void help(void)
{
	puts("usage: ublktrace control [-p PID] [--duration SECONDS] [--json]\n\n"
	     "Prints the commands that ublk servers send to /dev/ublk-control when they complete:\n"
	     "  TIME PROCESS/PID COMMAND DEVICE WHERE = RESULT, DURATION: meaning of the error\n"
	     "WHERE  in-line (in io_uring_enter), or the io-wq thread that ran it; 'EAGAIN "
	     "in-line':\n"
	     "       the driver refused it in-line, so io_uring sent it to io-wq\n"
	     "It also prints commands that take longer than 2 s, and commands to /dev/ublkcN that\n"
	     "fail, such as FETCH_REQ. The last line, on stderr, counts lost events.\n"
	     "  --json              one object per line\n"
	     "  -p PID              only this process\n"
	     "  --duration SECONDS  stop after this time (or ^C)");
}

static bool parse_number(const char *text, double *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtod(text, &end);
	return end != text && !*end && !errno && *ret_number > 0 && *ret_number < 1e9;
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option options[] = { { "pid", required_argument, NULL, 'p' },
						 { "duration", required_argument, NULL, 'd' },
						 { "json", no_argument, NULL, 'j' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	double number;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "p:h", options, NULL)) != -1) {
		if (c == 'h')
			return help(), -1;
		if (c == 'j') {
			o->as_json = true;
			continue;
		}
		if (c == '?')
			return usage_error("control",
					   "'%s' is not an option, or its value is missing",
					   argv[optind - 1]);
		if (!parse_number(optarg, &number))
			return usage_error("control", "'%s' is not a number above 0", optarg);
		if (c == 'p')
			o->pid = (unsigned long)number;
		else
			o->seconds = number;
	}
	if (optind < argc)
		return usage_error("control", "unexpected argument '%s'", argv[optind]);
	return 0;
}

int command_control(int argc, char **argv)
{
	struct options o = { 0 };
	int ret = parse(argc, argv, &o);

	if (ret)
		return ret < 0 ? 0 : ret;
	if (o.pid && !target_check(&(struct target){ .pid = (pid_t)o.pid }))
		return 2;
	return run(&o);
}
