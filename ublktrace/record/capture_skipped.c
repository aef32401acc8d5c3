/*
 * Which record each program of ublktrace/bpf/events.bpf.c makes, so that a skipped run is told as
 * what is missing. Each makes one at most; what two programs know of a system call is its ENTER and
 * SYSCALL.
 */
#include "ublktrace/record/capture_skipped.h"

#include <bpf/libbpf.h>
#include <string.h>

#include "base/util.h"
#include "ublktrace/record/capture_points.h"
#include "ublktrace/kernel/recursion.h"

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

static unsigned made_by(const char *program)
{
	for (unsigned i = 0; i < ARRAY_SIZE(makes); i++)
		if (!strcmp(capture_points_name(program), makes[i].program))
			return makes[i].type;
	return 0;
}

void capture_skipped_count(const struct bpf_object *object, uint64_t ret_nr[EVENT_TYPE_NR])
{
	struct bpf_program *program;

	memset(ret_nr, 0, EVENT_TYPE_NR * sizeof(*ret_nr));
	bpf_object__for_each_program(program, object) ret_nr[made_by(bpf_program__name(program))] +=
		recursion_misses_of(program);
}
