/* The layers of `ublktrace selftest`, shared with its BPF programs: one counter each. */
#ifndef UBLKTRACE_SELFTEST_SELFTEST_H
#define UBLKTRACE_SELFTEST_SELFTEST_H

enum selftest_layer {
	SELFTEST_SYSCALL,  /* sys_enter of getppid */
	SELFTEST_SWITCH,   /* sched_switch away from us */
	SELFTEST_SUBMIT,   /* io_uring_submit_req of a NOP */
	SELFTEST_COMPLETE, /* its io_uring_complete */
	SELFTEST_ASYNC,	   /* io_uring_queue_async_work of a NOP with IOSQE_ASYNC */
	SELFTEST_WORKER,   /* io_wq_submit_work of it */
	SELFTEST_CONTROL,  /* ublk_ctrl_uring_cmd: GET_FEATURES */
	SELFTEST_QUEUE,	   /* ublk_queue_rq and its kin: a read of 4 KiB */
	SELFTEST_ISSUE,	   /* its block_rq_issue */
	SELFTEST_DISPATCH, /* its way to the server */
	SELFTEST_ANSWER,   /* its block_rq_complete */
	SELFTEST_NR,
};

#define SELFTEST_NOP 0x73656c66206e6f70ull  /* user_data of the NOP */
#define SELFTEST_WORK 0x73656c6620777271ull /* user_data of that with IOSQE_ASYNC */

#endif
