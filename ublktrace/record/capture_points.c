/*
 * The programs of ublktrace/bpf/events.bpf.c by name. Perf's way to a tracepoint is an event of
 * perf that counts nothing, to which the program is attached; and a run that the kernel skipped is
 * told as the record that its program makes. Owns nothing, the links are the caller's. Main thread.
 *
 * Failure modes: tracefs that may not be read, perf that is forbidden: -errno, and the caller goes
 * by BTF.
 */
#include "ublktrace/record/capture_points.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "events.skel.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/programs.h"

#define PREFIX "tp_"

static bool capture_points_is_perf(const char *program)
{
	return !strncmp(program, PREFIX, strlen(PREFIX));
}

/* The tracepoint that a program of that name is for: "tp_defer" is for "defer", "defer" as well. */
static const char *capture_points_name(const char *program)
{
	return capture_points_is_perf(program) ? program + strlen(PREFIX) : program;
}

void capture_points_choose(struct events_bpf *s, bool perf, int complete_args)
{
	struct bpf_program *program, *by_btf;

	bpf_object__for_each_program(program, s->obj)
	{
		const char *name = bpf_program__name(program);

		if (!capture_points_is_perf(name))
			continue;
		by_btf = bpf_object__find_program_by_name(s->obj, capture_points_name(name));
		bpf_program__set_autoload(program, perf);
		if (by_btf)
			bpf_program__set_autoload(by_btf, !perf);
	}
	/* io_uring_complete hands over the CQE since 6.16, before that its fields. */
	bpf_program__set_autoload(s->progs.complete, !perf && complete_args == 3);
	bpf_program__set_autoload(s->progs.complete_old, !perf && complete_args != 3);
}

/* The number by which perf knows a tracepoint, or -errno. */
static int capture_points_id(const char *name)
{
	char path[128];
	int id, ret;
	FILE *f;

	snprintf(path, sizeof(path), "events/io_uring/io_uring_%s/id", name);
	f = machine_open_tracefs(path);
	if (!f)
		return -ENOENT;
	ret = fscanf(f, "%d", &id) == 1 ? id : -EIO;
	fclose(f);
	return ret;
}

/* On CPU 0, and yet the program runs on all: it is the tracepoint's, not the event's. */
static int capture_points_perf_open(int id)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = (unsigned)id,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int capture_points_attach_one(struct bpf_program *program, struct bpf_link **ret_link)
{
	int id = capture_points_id(capture_points_name(bpf_program__name(program)));
	int fd = id < 0 ? id : capture_points_perf_open(id), ret;

	if (fd < 0)
		return fd;
	*ret_link = bpf_program__attach_perf_event(program, fd);
	if (*ret_link)
		return 0;
	ret = -errno;
	close(fd);
	return ret;
}

int capture_points_attach(struct events_bpf *s, struct bpf_link *links[CAPTURE_POINTS_MAX])
{
	struct bpf_program *program;
	unsigned nr = 0;
	int ret = 0;

	bpf_object__for_each_program(program, s->obj)
	{
		if (ret || !bpf_program__autoload(program) ||
		    !capture_points_is_perf(bpf_program__name(program)))
			continue;
		ret = nr < CAPTURE_POINTS_MAX ? capture_points_attach_one(program, &links[nr])
					      : -E2BIG;
		nr++;
	}
	return ret;
}

/* ---- runs that the kernel skipped ---- */

/* Each program makes one record at most; what two programs know of a system call is its ENTER and
 * SYSCALL. */
static const struct {
	const char *program;
	enum event_type type;
} makes[] = {
	{ "submit_req", EVENT_SUBMIT },
	{ "req_failed", EVENT_SUBMIT },
	{ "queue_async_work", EVENT_ASYNC },
	{ "poll_arm", EVENT_POLL },
	{ "defer", EVENT_DEFER },
	{ "link", EVENT_LINK },
	{ "fail_link", EVENT_FAIL_LINK },
	{ "complete", EVENT_COMPLETE },
	{ "complete_old", EVENT_COMPLETE },
	{ "cqe_overflow", EVENT_OVERFLOW },
	{ "cqring_wait", EVENT_WAIT },
	{ "local_work_run", EVENT_TASK_WORK },
	{ "task_work_run", EVENT_TASK_WORK },
	{ "create", EVENT_RING },
	{ "setup_fentry", EVENT_SYSCALL },
	{ "setup_fexit", EVENT_SYSCALL },
	{ "enter_fentry", EVENT_ENTER },
	{ "enter_fexit", EVENT_SYSCALL },
	{ "register_fentry", EVENT_SYSCALL },
	{ "register_fexit", EVENT_SYSCALL },
	{ "any_sys_enter", EVENT_ENTER },
	{ "any_sys_exit", EVENT_SYSCALL },
	{ "worker_begin", EVENT_WORKER },
	{ "worker_end", EVENT_WORKER_END },
	{ "sched_switch", EVENT_SWITCH },
	{ "rq_issue", EVENT_BLOCK_QUEUE },
	{ "rq_complete", EVENT_BLOCK_COMPLETE },
	{ "io_fetch", EVENT_DAEMON_FETCH },
	{ "io_submit", EVENT_DAEMON_SUBMIT },
	{ "io_busy", EVENT_DAEMON_BUSY },
	{ "io_done", EVENT_DAEMON_DONE },
	{ "io_commit", EVENT_DAEMON_COMMIT },
	{ "cqe_reap", EVENT_REAP },
};

void capture_points_skipped(const struct bpf_object *object, uint64_t ret_nr[EVENT_TYPE_NR])
{
	struct bpf_program *program;

	memset(ret_nr, 0, EVENT_TYPE_NR * sizeof(*ret_nr));
	bpf_object__for_each_program(program, object)
	{
		const char *name = capture_points_name(bpf_program__name(program));
		unsigned type = 0;

		for (unsigned i = 0; i < ARRAY_SIZE(makes); i++)
			if (!strcmp(name, makes[i].program))
				type = makes[i].type;
		ret_nr[type] += programs_skipped_of(program);
	}
}
