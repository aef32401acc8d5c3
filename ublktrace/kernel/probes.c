/*
 * `ublktrace probes`: what of the wanted points this machine has, each tried.
 *
 * Happy path: look, try to attach, print. Failure modes: none of its own: what fails is what it
 * prints. Exit code 1 when a point is missing without which nothing can be traced. Main thread.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/errname.h"
#include "ublktrace/kernel/attach.h"
#include "ublktrace/command.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"

struct look {
	const struct point *point;
	enum point_state state;
	char found[128];
	bool attached;
	enum point_how how; /* when attached */
	int err;	    /* of the way that the point wants, when that was tried */
};

struct summary {
	unsigned attached, otherwise, missing, required_missing;
};

static struct look probes_look(const struct point *p)
{
	struct look l = { .point = p };

	l.state = point_look(p, l.found, sizeof(l.found));
	/* Such a try would only leave a line in the kernel's log. */
	if (!l.found[0] || l.state == POINT_NOT_TRACEABLE)
		return l;
	l.err = attach_try(p, l.found, &l.how);
	l.attached = !l.err;
	return l;
}

static void probes_count(struct summary *s, const struct look *l)
{
	if (l->attached && l->how == l->point->how)
		s->attached++;
	else if (l->attached)
		s->otherwise++;
	else
		s->missing++;
	if (!l->attached && l->point->required)
		s->required_missing++;
}

/* What attached says wins over what files let expect. */
static const char *probes_state_word(const struct look *l)
{
	if (l->attached && (l->how == l->point->how || l->state == POINT_OK))
		return "attached";
	if (!l->attached && l->state == POINT_OK)
		return "refused";
	return point_state_name(l->state);
}

/* Why it is not as wanted, and what helps; "" when it is. */
static const char *probes_why(const struct look *l)
{
	if (l->attached && l->how == l->point->how)
		return "";
	if (l->state == POINT_OK)
		return attach_error_cure(l->point->how, l->err);
	return point_state_cure(l->state);
}

static void probes_print_row(const struct look *l, bool colour)
{
	const char *reason = probes_why(l), *paint = "", *end = colour ? "\033[0m" : "";
	bool found = l->found[0] && l->point->how != POINT_USDT;

	if (colour)
		paint = l->attached ? "\033[32m" : l->point->required ? "\033[31m" : "\033[33m";
	printf("%s%-13s%s %-7s %-30s %s", paint, probes_state_word(l), end,
	       l->attached ? attach_how_name(l->how) : "-", found ? l->found : l->point->symbol,
	       l->point->what);
	if (reason[0])
		printf("; %s", reason);
	if (l->state == POINT_NO_MODULE)
		printf(" %s", l->point->module);
	if (!l->attached && l->state == POINT_OK && l->err)
		printf(" (%s)", errname(l->err));
	if (!l->attached && l->point->instead && l->state != POINT_NO_MODULE)
		printf("; instead: %s", l->point->instead);
	putchar('\n');
}

static json_t *probes_row_json(const struct look *l)
{
	const struct point *p = l->point;
	const char *reason = probes_why(l);

	return json_pack("{ss ss ss* ss sb ss* ss* sb ss* ss*}", "point", p->symbol, "what",
			 p->what, "module", p->module, "state", probes_state_word(l), "attached",
			 l->attached, "how", l->attached ? attach_how_name(l->how) : NULL, "found",
			 l->found[0] ? l->found : NULL, "required", p->required, "why",
			 reason[0] ? reason : NULL, "instead", l->attached ? NULL : p->instead);
}

static void probes_print_head(const struct utsname *u, bool driver)
{
	char lacks[64];

	printf("kernel %s, ublk_drv %s", u->release, driver ? "loaded" : "not loaded");
	if (machine_lacks(true, lacks, sizeof(lacks))[0])
		printf(", without %s", lacks);
	printf("\n%-13s %-7s %-30s %s\n", "STATE", "BY", "POINT", "WHAT");
}

static void probes_print_summary(const struct summary *s)
{
	printf("%u attached, %u in another way, %u not attached; %u required points are "
	       "missing\n",
	       s->attached, s->otherwise, s->missing, s->required_missing);
}

static int probes_show(bool as_json)
{
	bool colour = isatty(STDOUT_FILENO), driver = machine_has_module("ublk_drv");
	json_t *rows = as_json ? json_array() : NULL, *all;
	struct summary s = { 0 };
	struct utsname u;
	size_t nr;
	const struct point *p = points(&nr);

	uname(&u);
	if (!as_json)
		probes_print_head(&u, driver);
	for (size_t i = 0; i < nr; i++) {
		struct look l = probes_look(&p[i]);

		probes_count(&s, &l);
		if (as_json)
			json_array_append_new(rows, probes_row_json(&l));
		else
			probes_print_row(&l, colour);
	}
	if (!as_json) {
		probes_print_summary(&s);
		return s.required_missing > 0;
	}
	all = json_pack("{ss sb si so}", "kernel", u.release, "driver", driver, "required_missing",
			(int)s.required_missing, "points", rows);
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
	return s.required_missing > 0;
}

int command_probes(int argc, char **argv)
{
	static const struct option options[] = { COMMAND_OPTION_JSON, COMMAND_OPTION_HELP, { 0 } };
	struct target target = { 0 };
	struct command_line line = {
		.short_options = "h",
		.long_options = options,
		.target = &target,
		.help = "usage: ublktrace probes [--json]\n\n"
			"Tries to attach to each point of the kernel and of ublkd that ublktrace "
			"can "
			"use.\n"
			"STATE  attached, or the reason: inlined, suffixed (.isra.0 and the like), "
			"no "
			"BTF,\n"
			"       not traceable, no module, no right, absent, refused\n"
			"BY     tp_btf, fentry, kprobe, usdt\n"
			"Exit code 1: a point that every trace needs is missing.",
	};
	int code;

	return command_line_parse(&line, argc, argv, &code) ? probes_show(line.json) : code;
}
