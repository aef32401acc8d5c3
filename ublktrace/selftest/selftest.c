/*
 * `ublktrace selftest`: does tracing work here? Fires one known event for each layer and counts
 * what BPF programs see of it.
 *
 * Happy path: attach what can be, fire, compare. Failure modes: what cannot be attached, or has no
 * driver or device, is told with its cure; an event that was fired and not seen is a failure.
 * Main thread.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublktrace/command.h"
#include "ublktrace/kernel/attach.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/kernel/programs.h"
#include "ublktrace/selftest/selftest.h"
#include "ublktrace/selftest/selftest_fire.h"
#include "selftest.skel.h"

#define READ_TIMEOUT_MS 5000
#define LATE_MS 500 /* for ends that other processes tell */

struct layer {
	const char *event;
	const char *points[5]; /* one of them is enough */
	bool at_least;	       /* more than one is as well */
};

static const struct layer layers[SELFTEST_NR] = {
	[SELFTEST_SYSCALL] = { "the syscall getppid", { "sys_enter" }, false },
	[SELFTEST_SWITCH] = { "a sleep", { "sched_switch" }, true },
	[SELFTEST_SUBMIT] = { "io_uring NOP taken", { "io_uring_submit_req" }, false },
	[SELFTEST_COMPLETE] = { "io_uring NOP complete", { "io_uring_complete" }, false },
	[SELFTEST_ASYNC] = { "NOP with IOSQE_ASYNC to io-wq",
			     { "io_uring_queue_async_work" },
			     false },
	[SELFTEST_WORKER] = { "NOP in an io-wq thread", { "io_wq_submit_work" }, false },
	[SELFTEST_CONTROL] = { "GET_FEATURES of the ublk driver", { "ublk_ctrl_uring_cmd" }, true },
	[SELFTEST_QUEUE] = { "4 KiB read enters the driver",
			     { "ublk_queue_rq", "ublk_queue_rqs", "ublk_batch_queue_rq",
			       "ublk_batch_queue_rqs" },
			     true },
	[SELFTEST_ISSUE] = { "4 KiB read issued", { "block_rq_issue" }, false },
	[SELFTEST_DISPATCH] = { "4 KiB read reaches the server",
				{ "ublk_dispatch_req", "ublk_rq_task_work_cb",
				  "ublk_batch_dispatch" },
				true },
	[SELFTEST_ANSWER] = { "4 KiB read complete", { "block_rq_complete" }, false },
};

enum verdict { SEEN, MISSING, UNTRACEABLE, NOT_FIRED };
static const char *const verdicts[] = { "seen", "MISSING", "cannot", "skipped" };

struct test {
	struct selftest_bpf *bpf;
	char device[64];
	int device_err; /* of the read */
	bool attached[SELFTEST_NR];
	char reason[SELFTEST_NR][200]; /* why it cannot be attached, or was not fired */
	bool fired[SELFTEST_NR];
	bool needed[SELFTEST_NR]; /* that it cannot be attached is a failure */
};

static const struct point *point_named(const char *symbol)
{
	size_t nr;
	const struct point *p = points(&nr);

	for (size_t i = 0; i < nr; i++)
		if (!strcmp(p[i].symbol, symbol))
			return &p[i];
	return NULL;
}

/* Whether its program can be loaded; the reason when not. */
static bool selftest_try_point(const struct point *p, char *reason, size_t bytes, bool *ret_right)
{
	char found[128], lacks[64];
	enum point_state state = point_look(p, found, sizeof(found));
	int err = state == POINT_OK ? attach_try_how(p, found, p->how) : 0;

	*ret_right = state != POINT_NO_RIGHT;
	if (state == POINT_OK && !err)
		return true;
	if (state == POINT_NO_RIGHT)
		snprintf(reason, bytes, "missing: %s; run it as root",
			 machine_lacks(p->module != NULL, lacks, sizeof(lacks)));
	else if (state != POINT_OK)
		snprintf(reason, bytes, "%s: %s: %s", p->symbol, point_state_name(state),
			 point_state_cure(state));
	else
		snprintf(reason, bytes, "%s: %s: %s", p->symbol, errname(err),
			 attach_error_cure(p->how, err));
	return false;
}

static void selftest_program_use(struct selftest_bpf *bpf, const char *symbol)
{
	char name[96];
	struct bpf_program *program;

	snprintf(name, sizeof(name), "selftest_%s", symbol);
	program = bpf_object__find_program_by_name(bpf->obj, name);
	if (program)
		bpf_program__set_autoload(program, true);
}

static void selftest_choose_layer(struct test *t, enum selftest_layer i)
{
	const struct layer *l = &layers[i];

	for (unsigned p = 0; p < ARRAY_SIZE(l->points) && l->points[p]; p++) {
		const struct point *point = point_named(l->points[p]);
		char reason[200] = "no such point";
		bool right = true;

		if (point && selftest_try_point(point, reason, sizeof(reason), &right)) {
			selftest_program_use(t->bpf, point->symbol);
			t->attached[i] = true;
		} else if (p == 0) {
			snprintf(t->reason[i], sizeof(t->reason[i]), "%s", reason);
		}
		t->needed[i] |= !right || (point && point->how == POINT_BTF_TRACEPOINT);
	}
}

static void selftest_choose(struct test *t)
{
	char ignored[200];
	bool right;

	for (int i = 0; i < SELFTEST_NR; i++)
		selftest_choose_layer(t, (enum selftest_layer)i);
	if (selftest_try_point(point_named("block_io_start"), ignored, sizeof(ignored), &right))
		selftest_program_use(t->bpf, "block_io_start");
}

/* Returns 0 or -errno; nothing that is attached is missed. */
static int selftest_load(struct test *t)
{
	struct stat ns;
	int err;

	if (stat("/proc/self/ns/pid", &ns))
		return -errno;
	t->bpf->rodata->ns_dev = ns.st_dev;
	t->bpf->rodata->ns_ino = ns.st_ino;
	t->bpf->rodata->self = (uint32_t)getpid();
	err = selftest_bpf__load(t->bpf);
	return err ? err : selftest_bpf__attach(t->bpf);
}

static void armed(pid_t pid, void *arg)
{
	struct test *t = arg;

	t->bpf->bss->reader = (uint32_t)pid;
}

static void selftest_not_fired(struct test *t, enum selftest_layer i, const char *reason)
{
	t->fired[i] = false;
	snprintf(t->reason[i], sizeof(t->reason[i]), "%s", reason);
}

static void selftest_fire_rings(struct test *t)
{
	int err = fire_nops();
	char reason[200];

	if (!err)
		return;
	snprintf(reason, sizeof(reason), "io_uring: %s: %s", errname(err),
		 err == -EPERM
			 ? "set sysctl kernel.io_uring_disabled=0, or the container forbids it"
			 : "this kernel has no io_uring");
	for (int i = SELFTEST_SUBMIT; i <= SELFTEST_WORKER; i++) {
		selftest_not_fired(t, (enum selftest_layer)i, reason);
		t->needed[i] = true;
	}
}

static const char *control_cure(int err)
{
	switch (-err) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "the driver is not loaded: modprobe ublk_drv";
	case EACCES:
	case EPERM:
		return "run it as root";
	case EOPNOTSUPP:
		return "the driver is older than Linux 6.5";
	default:
		return "the driver does not answer";
	}
}

static void selftest_fire_driver(struct test *t)
{
	uint64_t features = 0;
	char reason[200];
	int err = fire_control(&features);

	if (!err)
		return;
	snprintf(reason, sizeof(reason), "/dev/ublk-control: %s: %s", errname(err),
		 control_cure(err));
	selftest_not_fired(t, SELFTEST_CONTROL, reason);
}

static int selftest_device_number(struct test *t)
{
	struct stat st;

	if (!t->device[0] && fire_find_device(t->device, sizeof(t->device)))
		return -ENOENT;
	if (stat(t->device, &st))
		return -errno;
	if (!S_ISBLK(st.st_mode))
		return -ENOTBLK;
	t->bpf->bss->disk_major = major(st.st_rdev);
	t->bpf->bss->disk_minor = minor(st.st_rdev);
	return 0;
}

static const char *read_cure(int err)
{
	switch (-err) {
	case ENOTBLK:
		return "it is not a block device";
	case EACCES:
	case EPERM:
		return "run it as root";
	case ETIME:
		return "its server does not answer: ublktrace control shows its commands, "
		       "ublkctl why-stuck its state";
	case EIO:
		return "its server returns an error";
	default:
		return "it cannot be read";
	}
}

/* A read that fails or hangs was still fired: which of its steps were seen says where it is. */
static void selftest_fire_device(struct test *t)
{
	int err = selftest_device_number(t);
	char reason[200];

	if (!err)
		err = fire_read(t->device, READ_TIMEOUT_MS, armed, t);
	t->device_err = err;
	if (!err)
		return;
	if (!t->device[0])
		snprintf(reason, sizeof(reason),
			 "there is no /dev/ublkb*: create one with ublkctl add");
	else
		snprintf(reason, sizeof(reason), "%s: %s: %s", t->device, errname(err),
			 read_cure(err));
	for (int i = SELFTEST_QUEUE; i < SELFTEST_NR; i++) {
		if (err == -ETIME || err == -EIO)
			snprintf(t->reason[i], sizeof(t->reason[i]), "%s", reason);
		else
			selftest_not_fired(t, (enum selftest_layer)i, reason);
		t->needed[i] |= t->device[0];
	}
}

static void selftest_fire(struct test *t)
{
	for (int i = 0; i < SELFTEST_NR; i++)
		t->fired[i] = true;
	fire_syscalls();
	selftest_fire_rings(t);
	selftest_fire_driver(t);
	selftest_fire_device(t);
}

static uint64_t selftest_count(const struct test *t, enum selftest_layer i)
{
	return t->bpf->bss ? t->bpf->bss->counts[i] : 0;
}

static bool selftest_as_expected(const struct test *t, enum selftest_layer i)
{
	return layers[i].at_least ? selftest_count(t, i) >= 1 : selftest_count(t, i) == 1;
}

static enum verdict selftest_verdict(const struct test *t, enum selftest_layer i)
{
	if (!t->fired[i])
		return NOT_FIRED;
	if (!t->attached[i])
		return UNTRACEABLE;
	return selftest_as_expected(t, i) ? SEEN : MISSING;
}

/* The block layer may tell the end after the reader has gone on. */
static void selftest_wait_for_late(const struct test *t)
{
	for (int ms = 0; ms < LATE_MS; ms += 10) {
		bool all = true;

		for (int i = 0; i < SELFTEST_NR; i++)
			all &= selftest_verdict(t, (enum selftest_layer)i) != MISSING;
		if (all)
			return;
		usleep(10000);
	}
}

static bool selftest_failed(const struct test *t, enum selftest_layer i)
{
	enum verdict v = selftest_verdict(t, i);

	return v == MISSING || (v != SEEN && t->needed[i] && t->reason[i][0] &&
				(v == UNTRACEABLE || i < SELFTEST_CONTROL || t->device[0]));
}

static const char *selftest_reason_of(const struct test *t, enum selftest_layer i)
{
	if (selftest_verdict(t, i) == SEEN)
		return "";
	if (t->reason[i][0])
		return t->reason[i];
	return "attached and triggered, but not seen: another tool may use the point (ublktrace "
	       "probes)";
}

static void selftest_print_text(const struct test *t, bool colour)
{
	static const char *const paints[] = { "\033[32m", "\033[31m", "\033[33m", "\033[33m" };

	printf("%-8s %-5s %-32s %s\n", "RESULT", "SEEN", "EVENT", "POINT");
	for (int i = 0; i < SELFTEST_NR; i++) {
		enum verdict v = selftest_verdict(t, (enum selftest_layer)i);
		const char *reason = selftest_reason_of(t, (enum selftest_layer)i);
		char seen[48];

		snprintf(seen, sizeof(seen), "%llu/1%s",
			 (unsigned long long)selftest_count(t, (enum selftest_layer)i),
			 layers[i].at_least ? "+" : "");
		printf("%s%-8s%s %-5s %-32s %s%s%s\n", colour ? paints[v] : "", verdicts[v],
		       colour ? "\033[0m" : "", v == NOT_FIRED ? "-" : seen, layers[i].event,
		       layers[i].points[0], reason[0] ? "; " : "", reason);
	}
}

static json_t *selftest_layers_json(const struct test *t)
{
	json_t *rows = json_array();

	for (int i = 0; i < SELFTEST_NR; i++) {
		enum selftest_layer l = (enum selftest_layer)i;
		const char *reason = selftest_reason_of(t, l);

		json_array_append_new(rows, json_pack("{ss ss ss sI si sb sb ss*}", "event",
						      layers[i].event, "point", layers[i].points[0],
						      "result", verdicts[selftest_verdict(t, l)],
						      "seen", (json_int_t)selftest_count(t, l),
						      "expected", 1, "at_least", layers[i].at_least,
						      "failed", selftest_failed(t, l), "reason",
						      reason[0] ? reason : NULL));
	}
	return rows;
}

/* What is missing of a read that fails is the device's fault, as long as it was seen to begin. */
static const char *selftest_outcome(const struct test *t, unsigned bad)
{
	unsigned of_device = 0;

	for (int i = SELFTEST_QUEUE; i < SELFTEST_NR; i++)
		of_device += selftest_failed(t, (enum selftest_layer)i);
	if (!bad)
		return "tracing works";
	if (t->device_err && bad == of_device)
		return "tracing works, the device does not";
	return "tracing does not work";
}

static int selftest_report(const struct test *t, bool as_json)
{
	unsigned bad = 0, seen = 0;
	json_t *all;

	for (int i = 0; i < SELFTEST_NR; i++) {
		bad += selftest_failed(t, (enum selftest_layer)i);
		seen += selftest_verdict(t, (enum selftest_layer)i) == SEEN;
	}
	if (as_json) {
		all = json_pack("{sb so}", "ok", !bad, "layers", selftest_layers_json(t));
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(all);
		return bad > 0;
	}
	selftest_print_text(t, isatty(STDOUT_FILENO));
	printf("%s: %u of %u seen, %u failed\n", selftest_outcome(t, bad), seen,
	       (unsigned)SELFTEST_NR, bad);
	return bad > 0;
}

static int selftest_run(const char *device, bool as_json)
{
	struct test t = { 0 };
	char lacks[64];
	int ret;

	if (machine_lacks(false, lacks, sizeof(lacks))[0]) {
		fprintf(stderr, "ublktrace selftest: missing: %s; run it as root\n", lacks);
		return 1;
	}
	programs_silence_libbpf();
	if (device)
		snprintf(t.device, sizeof(t.device), "%s", device);
	t.bpf = selftest_bpf__open();
	if (!t.bpf) {
		fprintf(stderr, "ublktrace selftest: out of memory\n");
		return 1;
	}
	selftest_choose(&t);
	ret = selftest_load(&t);
	if (ret) {
		fprintf(stderr, "ublktrace selftest: the kernel refused the BPF programs: %s: %s\n",
			errname(ret), attach_error_cure(POINT_BTF_TRACEPOINT, ret));
		ret = 1;
	} else {
		selftest_fire(&t);
		selftest_wait_for_late(&t);
		ret = selftest_report(&t, as_json);
	}
	selftest_bpf__destroy(t.bpf);
	return ret;
}

static int selftest_option(void *arg, int option, char *value)
{
	const char **device = arg;

	(void)option; /* there is one */
	*device = value;
	return 0;
}

int command_selftest(int argc, char **argv)
{
	static const struct option options[] = { COMMAND_OPTION_JSON,
						 COMMAND_OPTION_HELP,
						 { "device", required_argument, NULL, 'd' },
						 { 0 } };
	const char *device = NULL;
	struct target target = { 0 };
	struct command_line line = {
		.short_options = "h",
		.long_options = options,
		.option = selftest_option,
		.arg = &device,
		.target = &target,
		.help = "usage: ublktrace selftest [--json] [--device /dev/ublkbN]\n\n"
			"Triggers one known event of each layer and counts how often it is seen: a "
			"syscall,\n"
			"a sleep, two io_uring NOPs, GET_FEATURES of the ublk driver, a direct "
			"read of "
			"4 KiB\n"
			"from a ublk device (the first one).\n"
			"RESULT  seen, MISSING, cannot (the point cannot be traced here), skipped "
			"(no "
			"driver\n"
			"        or no device)\n"
			"Exit code 0 when every event was seen that can be seen on this machine, "
			"otherwise 1.",
	};
	int code;

	return command_line_parse(&line, argc, argv, &code) ? selftest_run(device, line.json)
							    : code;
}
