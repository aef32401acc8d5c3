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
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublktrace/command.h"
#include "ublktrace/control/control_text.h"
#include "ublktrace/events/losses.h"
#include "ublktrace/kernel/attach.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/kernel/programs.h"
#include "control.skel.h"

#define PENDING_MAX 64u
#define LATE_NS (2 * NS_PER_SEC) /* a command that takes longer is told; then each doubling */
#define GROUP_NS (300 * NS_PER_MS)
#define GROUPS_MAX 4u
#define POLL_MS 100

struct pending {
	struct control_event begin;
	uint64_t tell_ns; /* when it is told next */
	bool used;
};

struct control {
	struct target target;
	bool as_json;
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

static void control_print_event(struct control *c, const struct control_event *e, unsigned more)
{
	if (c->as_json)
		control_print_json(stdout, e, c->wall_offset_ns, more);
	else
		control_print(stdout, e, c->wall_offset_ns, more, c->colour);
	fflush(stdout);
}

/* --- failed data commands: as many as there are tags --------------------------------------- */

static bool control_alike(const struct control_event *a, const struct control_event *b)
{
	return a->pid == b->pid && a->cmd_op == b->cmd_op && a->res == b->res &&
	       !memcmp(a->file, b->file, sizeof(a->file));
}

static void control_flush_group(struct control *c, struct group *g)
{
	if (g->nr)
		control_print_event(c, &g->first, g->nr - 1);
	g->nr = 0;
}

/* Those that began before that time; by their age. */
static void control_flush_groups(struct control *c, uint64_t before_ns)
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
			control_flush_group(c, oldest);
	} while (oldest);
}

static void control_add_to_group(struct control *c, const struct control_event *e)
{
	struct group *spare = NULL;

	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		struct group *g = &c->groups[i];

		if (g->nr && control_alike(&g->first, e)) {
			g->nr++;
			return;
		}
		if (!g->nr)
			spare = g;
	}
	if (!spare) {
		control_flush_groups(c, UINT64_MAX);
		spare = &c->groups[0];
	}
	*spare = (struct group){ .first = *e, .nr = 1 };
}

/* --- commands in flight ----------------------------------------------------------------------- */

static void control_add_pending(struct control *c, const struct control_event *e)
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

static void control_remove_pending(struct control *c, uint64_t req)
{
	for (unsigned i = 0; i < PENDING_MAX; i++)
		if (c->pending[i].begin.req == req)
			c->pending[i].used = false;
}

/* Where it is now: the BPF side goes on to note that. */
static void control_refresh_pending(const struct control *c, struct control_event *e)
{
	struct control_event now;

	if (bpf_map_lookup_elem(bpf_map__fd(c->bpf->maps.commands), &e->req, &now))
		return;
	e->queued_ns = now.queued_ns;
	e->worker = now.worker;
	e->first_ret = now.first_ret;
}

static void control_tell_pending(struct control *c, uint64_t now_ns)
{
	for (unsigned i = 0; i < PENDING_MAX; i++) {
		struct pending *p = &c->pending[i];

		if (!p->used || now_ns < p->tell_ns)
			continue;
		control_flush_groups(c, UINT64_MAX); /* the reason stands above */
		control_refresh_pending(c, &p->begin);
		p->begin.time_ns = now_ns;
		p->tell_ns = now_ns + (now_ns - p->begin.submit_ns);
		control_print_event(c, &p->begin, 0);
	}
}

static int control_take(void *arg, void *data, size_t bytes)
{
	const struct control_event *e = data;
	struct control *c = arg;

	if (bytes < sizeof(*e))
		return 0;
	switch (e->type) {
	case CONTROL_BEGIN:
		control_add_pending(c, e);
		break;
	case CONTROL_DATA:
		control_add_to_group(c, e);
		break;
	default:
		control_remove_pending(c, e->req);
		control_print_event(c, e, 0);
	}
	return 0;
}

/* --- attaching -------------------------------------------------------------------------------- */

static bool control_point_works(const struct point *p, enum point_how *ret_how, bool *ret_right)
{
	char found[128];
	enum point_state state = point_look(p, found, sizeof(found));

	if (state == POINT_NO_RIGHT)
		*ret_right = false;
	/* Without the type it may still be a kprobe. */
	return (state == POINT_OK || state == POINT_NO_BTF) && !attach_try(p, found, ret_how);
}

/* Programs beyond the tracepoints: the driver's function, and io-wq's. */
static void control_choose(struct control *c)
{
	static const struct point driver = { .symbol = "ublk_ctrl_uring_cmd",
					     .module = "ublk_drv",
					     .how = POINT_FENTRY };
	static const struct point worker = { .symbol = "io_wq_submit_work", .how = POINT_FENTRY };
	enum point_how how;
	bool right = true;

	if (control_point_works(&driver, &how, &right)) {
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
	if (control_point_works(&worker, &how, &right) && how == POINT_FENTRY)
		bpf_program__set_autoload(c->bpf->progs.control_worker, true);
}

static int control_fail(const char *what, int err)
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
		return control_fail("open", -errno);
	bpf_program__set_autoload(c->bpf->progs.control_submit, true);
	bpf_program__set_autoload(c->bpf->progs.control_queue, true);
	bpf_program__set_autoload(args == 7 ? c->bpf->progs.control_complete_7
					    : c->bpf->progs.control_complete_3,
				  true);
	control_choose(c);
	c->bpf->rodata->target_pid = (uint32_t)c->target.pid;
	err = control_bpf__load(c->bpf);
	if (err)
		return control_fail("the kernel refused the BPF programs", err);
	err = control_bpf__attach(c->bpf);
	if (err)
		return control_fail("attaching", err);
	c->records = ring_buffer__new(bpf_map__fd(c->bpf->maps.records), control_take, c, NULL);
	return c->records ? 0 : control_fail("ring buffer", -errno);
}

static void control_print_losses(const struct control *c)
{
	struct losses l = {
		.ring_full = c->bpf->bss->ring_full,
		.map_full = c->bpf->bss->map_full + c->unknown_ends,
		.recursion = programs_skipped(c->bpf->obj),
		.unmatched = c->bpf->bss->unmatched,
	};

	losses_print(stderr, &l);
}

static int control_turn(void *arg)
{
	struct control *c = arg;
	int ret = ring_buffer__poll(c->records, POLL_MS);
	uint64_t now_ns = command_clock_ns(CLOCK_MONOTONIC);

	if (ret < 0)
		return ret;
	control_flush_groups(c, now_ns - GROUP_NS);
	control_tell_pending(c, now_ns);
	return 0;
}

static int control_run(struct control *c)
{
	/* It goes on when the server has ended: its commands may end later. */
	const struct target until = { .all = true, .seconds = c->target.seconds };
	int ret;

	fprintf(stderr, "tracing control commands of %s; ^C ends it\n",
		c->target.pid ? "that process" : "all ublk servers");
	ret = target_run(&until, control_turn, c);
	if (ret < 0)
		return control_fail("reading", ret);
	control_bpf__detach(c->bpf);
	ring_buffer__consume(c->records);
	control_flush_groups(c, UINT64_MAX);
	return 0;
}

int command_control(int argc, char **argv)
{
	static const struct option options[] = { COMMAND_OPTION_PID,
						 COMMAND_OPTION_DURATION,
						 COMMAND_OPTION_JSON,
						 COMMAND_OPTION_HELP,
						 { 0 } };
	static struct control c;
	struct command_line line = {
		.short_options = "p:h",
		.long_options = options,
		.target = &c.target,
		.help = "usage: ublktrace control [-p PID] [--duration SECONDS] [--json]\n\n"
			"Prints the commands that ublk servers send to /dev/ublk-control when they "
			"complete:\n"
			"  TIME PROCESS/PID COMMAND DEVICE WHERE = RESULT, DURATION: meaning of "
			"the "
			"error\n"
			"WHERE  in-line (in io_uring_enter), or the io-wq thread that ran it; "
			"'EAGAIN "
			"in-line':\n"
			"       the driver refused it in-line, so io_uring sent it to io-wq\n"
			"It also prints commands that take longer than 2 s, and commands to "
			"/dev/ublkcN that\n"
			"fail, such as FETCH_REQ. The last line, on stderr, counts lost events.\n"
			"  --json              one object per line\n"
			"  -p PID              only this process\n"
			"  --duration SECONDS  stop after this time (or ^C)",
	};
	char lacks[64];
	int ret;

	if (!command_line_parse(&line, argc, argv, &ret))
		return ret;
	if (machine_lacks(false, lacks, sizeof(lacks))[0]) {
		fprintf(stderr, "ublktrace control: missing: %s; run it as root\n", lacks);
		return 1;
	}
	c.as_json = line.json;
	c.colour = isatty(STDOUT_FILENO);
	c.wall_offset_ns =
		(int64_t)(command_clock_ns(CLOCK_REALTIME) - command_clock_ns(CLOCK_MONOTONIC));
	programs_silence_libbpf();
	ret = control_load(&c);
	if (!ret) {
		ret = control_run(&c);
		control_print_losses(&c);
	}
	ring_buffer__free(c.records);
	control_bpf__destroy(c.bpf);
	return ret ? 1 : 0;
}
