/*
 * The points that ublktrace wants, in the order of a request's way. Data only. What is inlined and
 * renamed where: drivers/block/ublk_drv.c of Linux 6.12 to 7.2, as Debian's gcc compiled it.
 */
#include "ublktrace/kernel/point.h"

#include "base/util.h"

#define TRACEPOINT(name, text, ...)                                                                \
	{                                                                                          \
		.what = text, .symbol = name, .how = POINT_BTF_TRACEPOINT, ##__VA_ARGS__           \
	}
#define FUNCTION(name, text, ...)                                                                  \
	{                                                                                          \
		.what = text, .symbol = name, .how = POINT_FENTRY, ##__VA_ARGS__                   \
	}
#define UBLK(name, text, ...) FUNCTION(name, text, .module = "ublk_drv", ##__VA_ARGS__)
#define PROBE(name, text)                                                                          \
	{                                                                                          \
		.what = text, .symbol = name, .how = POINT_USDT, .instead = by_slice               \
	}

static const char by_slice[] = "the daemon is one slice, from dispatch to commit";
static const char by_entry[] = "ublk_ctrl_uring_cmd, which sees all control commands";
static const char by_block[] = "tracepoint block_rq_issue";
static const char by_complete[] = "tracepoint block_rq_complete";

static const struct point table[] = {
	TRACEPOINT("sys_enter", "syscalls begin", .instead = "io_uring's own tracepoints"),
	TRACEPOINT("sys_exit", "syscalls end", .instead = "io_uring's own tracepoints"),
	TRACEPOINT("sched_switch", "context switches",
		   .instead = "times off the CPU are not shown"),
	TRACEPOINT("io_uring_create", "a ring is created",
		   .instead = "rings are known from their first request on"),
	TRACEPOINT("io_uring_register", "io_uring_register"),
	TRACEPOINT("io_uring_submit_req", "an SQE is submitted", .required = true),
	TRACEPOINT("io_uring_queue_async_work", "a request goes to io-wq"),
	TRACEPOINT("io_uring_defer", "a request waits for earlier ones (IO_DRAIN)"),
	TRACEPOINT("io_uring_link", "a request waits for another"),
	TRACEPOINT("io_uring_fail_link", "a link is broken"),
	TRACEPOINT("io_uring_poll_arm", "a request waits for its file"),
	TRACEPOINT("io_uring_task_add", "poll wakes a request"),
	TRACEPOINT("io_uring_task_work_run", "task work runs"),
	TRACEPOINT("io_uring_local_work_run", "task work of DEFER_TASKRUN runs"),
	TRACEPOINT("io_uring_cqring_wait", "a thread waits for completions"),
	TRACEPOINT("io_uring_complete", "a CQE is posted", .required = true),
	TRACEPOINT("io_uring_cqe_overflow", "the CQ was full"),
	TRACEPOINT("io_uring_req_failed", "an SQE is refused"),
	FUNCTION("io_wq_submit_work", "an io-wq thread starts a request",
		 .instead = "io_uring_queue_async_work, without the thread"),

	UBLK("ublk_ctrl_uring_cmd", "control commands (there is no ioctl)",
	     .instead = "tracepoints io_uring_submit_req and io_uring_complete"),
	UBLK("ublk_ctrl_add_dev", "ADD_DEV", .instead = by_entry),
	UBLK("ublk_ctrl_set_params", "SET_PARAMS", .instead = by_entry),
	UBLK("ublk_ctrl_start_dev", "START_DEV", .instead = by_entry),
	UBLK("ublk_ctrl_stop_dev", "STOP_DEV", .instead = by_entry),
	UBLK("ublk_ctrl_del_dev", "DEL_DEV", .instead = by_entry),

	TRACEPOINT("block_io_start", "a request is created", .instead = by_block),
	TRACEPOINT("block_rq_insert", "a request waits in the block layer"),
	TRACEPOINT("block_rq_issue", "a request goes to its driver", .required = true),
	UBLK("ublk_queue_rq", "a request enters the driver", .instead = by_block),
	UBLK("ublk_queue_rqs", "several requests enter the driver", .since = POINT_KERNEL(6, 15),
	     .instead = by_block),
	UBLK("ublk_batch_queue_rq", "the same with UBLK_F_BATCH_IO", .since = POINT_KERNEL(7, 0),
	     .instead = by_block),
	UBLK("ublk_batch_queue_rqs", "the same with UBLK_F_BATCH_IO", .since = POINT_KERNEL(7, 0),
	     .instead = by_block),
	UBLK("ublk_cmd_tw_cb", "dispatch: one command in the server's thread",
	     .since = POINT_KERNEL(6, 15), .instead = "ublk_rq_task_work_cb"),
	UBLK("ublk_cmd_list_tw_cb", "dispatch: a list of commands", .since = POINT_KERNEL(6, 15),
	     .instead = "ublk_rq_task_work_cb"),
	UBLK("ublk_dispatch_req", "dispatch: one request", .since = POINT_KERNEL(6, 15),
	     .instead = "ublk_rq_task_work_cb"),
	UBLK("ublk_rq_task_work_cb", "dispatch before 6.15: a batch of requests",
	     .until = POINT_KERNEL(6, 15), .instead = "ublk_dispatch_req"),
	UBLK("ublk_start_io", "a request is dispatched to the server", .since = POINT_KERNEL(6, 15),
	     .instead = "dispatch"),
	UBLK("ublk_batch_tw_cb", "dispatch with UBLK_F_BATCH_IO", .since = POINT_KERNEL(7, 0),
	     .instead = "io_uring_complete"),
	UBLK("ublk_batch_dispatch", "dispatch of many tags with UBLK_F_BATCH_IO",
	     .since = POINT_KERNEL(7, 0), .instead = "io_uring_complete"),
	UBLK("ublk_ch_uring_cmd", "data commands: FETCH_REQ, COMMIT_AND_FETCH_REQ",
	     .instead = "tracepoint io_uring_submit_req"),
	UBLK("ublk_ch_uring_cmd_local", "data commands, behind ublk_ch_uring_cmd",
	     .instead = "ublk_ch_uring_cmd"),
	UBLK("__ublk_ch_uring_cmd", "data commands before 6.16", .until = POINT_KERNEL(6, 16),
	     .instead = "ublk_ch_uring_cmd"),
	UBLK("ublk_ch_batch_io_uring_cmd", "data commands with UBLK_F_BATCH_IO",
	     .since = POINT_KERNEL(7, 0), .instead = "tracepoint io_uring_submit_req"),
	UBLK("ublk_batch_commit_io", "commit of one tag with UBLK_F_BATCH_IO",
	     .since = POINT_KERNEL(7, 0), .instead = by_complete),
	UBLK("ublk_user_copy", "the server copies bytes with pread, pwrite",
	     .since = POINT_KERNEL(7, 0), .instead = "ublk_ch_read_iter, ublk_ch_write_iter"),
	UBLK("ublk_cancel_cmd", "a FETCH is cancelled: the server ends"),
	UBLK("ublk_timeout", "a request took too long"),
	UBLK("__ublk_complete_rq", "a request is completed", .instead = by_complete),
	UBLK("ublk_submit_bio", "an entry point for bios: the driver has none",
	     .until = POINT_KERNEL(6, 0), .instead = "blk_mq_submit_bio"),
	TRACEPOINT("block_rq_complete", "a request is complete", .required = true),

	FUNCTION("blk_mq_submit_bio", "a bio enters the block layer", .instead = by_block),
	FUNCTION("blk_mq_try_issue_directly", "issue: directly", .instead = by_block),
	FUNCTION("blk_mq_request_issue_directly", "issue: directly, from a list",
		 .instead = by_block),
	FUNCTION("blk_mq_flush_plug_list", "issue: from a plug list", .instead = by_block),
	FUNCTION("blk_mq_dispatch_rq_list", "issue: from a scheduler or requeue",
		 .instead = by_block),
	FUNCTION("blk_mq_requeue_request", "a request is requeued: the driver was busy"),
	FUNCTION("blk_mq_commit_rqs", "the end of a batch", .instead = "ublk_queue_rq, bd->last"),
	FUNCTION("blk_update_request", "bytes of a request are complete", .instead = by_complete),
	FUNCTION("nvme_queue_rq", "NVMe: a request enters", .module = "nvme",
		 .instead = "tracepoint nvme_setup_cmd"),
	FUNCTION("nvme_queue_rqs", "NVMe: several requests enter", .module = "nvme",
		 .instead = "tracepoint nvme_setup_cmd"),
	FUNCTION("nvme_write_sq_db", "NVMe: the doorbell", .module = "nvme",
		 .instead = "tracepoint nvme_setup_cmd"),
	TRACEPOINT("nvme_setup_cmd", "NVMe: a command is created", .module = "nvme_core"),
	TRACEPOINT("nvme_complete_rq", "NVMe: a command is complete", .module = "nvme_core"),
	TRACEPOINT("nvme_sq", "NVMe: an entry of a completion queue", .module = "nvme"),

	PROBE("io__fetch", "ublkd: a request is received"),
	PROBE("io__submit", "ublkd: a request is submitted to the backend"),
	PROBE("io__busy", "ublkd: the backend was busy"),
	PROBE("io__done", "ublkd: the backend completed a request"),
	PROBE("io__commit", "ublkd: a request is committed"),
	PROBE("cqe__reap", "ublkd: a CQE is reaped"),
};

const struct point *points(size_t *ret_nr)
{
	*ret_nr = ARRAY_SIZE(table);
	return table;
}
