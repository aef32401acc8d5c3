/*
 * What the BPF programs tell ublktrace: one record for each thing that happened, through one ring
 * buffer. Shared by both sides, so only fixed-width types; every field is written by every program
 * that fills the record (0 where there is nothing to say).
 *
 * Times are bpf_ktime_get_ns: CLOCK_MONOTONIC. A ring is known by the address of its io_ring_ctx, a
 * request by that of its io_kiocb: kernel addresses are keys here, and reused after COMPLETE.
 */
#ifndef UBLKTRACE_EVENTS_EVENT_H
#define UBLKTRACE_EVENTS_EVENT_H

#ifndef TRACE_BPF
#include <linux/types.h>
#endif

#define EVENT_COMM_BYTES 16

/*
 * A syscall is one record, told at its end. What the daemon did and what the block layer did with a
 * request carry the id of base/probes.h: device << 32 | queue << 16 | tag.
 */
enum event_type {
	EVENT_RING = 1, /* a ring was made, or is first seen: ring */
	EVENT_ENTER,	/* io_uring_enter begins: enter */
	EVENT_SYSCALL,	/* io_uring_setup, _register or _enter has ended: syscall */
	EVENT_SUBMIT,	/* io_uring_submit_req: sqe */
	EVENT_ASYNC,	/* io_uring_queue_async_work: handed to io-wq: req */
	EVENT_WORKER,	/* an io-wq thread begins with a request: req; cqe without res and flags */
	EVENT_WORKER_END,
	EVENT_POLL,	 /* io_uring_poll_arm: req, value = mask */
	EVENT_DEFER,	 /* io_uring_defer: req */
	EVENT_LINK,	 /* io_uring_link: req waits for other */
	EVENT_FAIL_LINK, /* io_uring_fail_link: req, because other failed */
	EVENT_COMPLETE,	 /* io_uring_complete: cqe */
	EVENT_OVERFLOW, /* io_uring_cqe_overflow: the CQ was full; instead of COMPLETE, without req:
			   cqe */
	EVENT_TASK_WORK, /* io_uring_task_work_run, io_uring_local_work_run: value = count */
	EVENT_WAIT,	 /* io_uring_cqring_wait: value = min_events */
	EVENT_REAP,	 /* ublkd took a CQE (probe cqe__reap): cqe */
	EVENT_SWITCH,	 /* a thread of a traced process leaves the CPU (value 0) or gets it (1) */
	EVENT_BLOCK_QUEUE,    /* the block layer gave a request to the ublk driver: block */
	EVENT_BLOCK_COMPLETE, /* and got it back: block */
	EVENT_DAEMON_FETCH,   /* probes of ublkd, base/probes.h: block */
	EVENT_DAEMON_SUBMIT,
	EVENT_DAEMON_BUSY,
	EVENT_DAEMON_DONE,
	EVENT_DAEMON_COMMIT,
	EVENT_TYPE_NR,
};

/* EVENT_RING; also the state of a ring in ENTER. Fields of struct io_ring_ctx, rings. */
struct event_ring {
	__s32 fd; /* -1 when not known */
	__u32 setup_flags;
	__u32 sq_entries, cq_entries;
	__u32 existed; /* 1: it was there before us */
};

/* Heads and tails as they are when the event happens; have is 0 when they could not be read. */
struct event_levels {
	__u32 sq_head, sq_tail, cq_head, cq_tail;
	__u32 have;
};

struct event_enter {
	__s32 fd; /* as passed; with IORING_ENTER_REGISTERED_RING an index */
	__u32 to_submit, min_complete, flags;
};

enum event_syscall_nr { EVENT_SYSCALL_SETUP, EVENT_SYSCALL_ENTER, EVENT_SYSCALL_REGISTER };

struct event_syscall {
	__u64 start_ns;
	__s64 ret;
	__u32 nr; /* enum event_syscall_nr */
	__s32 fd; /* -1 for setup */
	__u32 arg1, arg2, arg3;
};

/* The SQE as the kernel took it (include/uapi/linux/io_uring.h). */
struct event_sqe {
	__u8 opcode, flags;
	__u16 ioprio, buf_index, personality;
	__s32 fd;
	__u32 len;
	__u64 offset;
	__u32 op_flags; /* rw_flags and its kin */
	/*
	 * URING_CMD only. cmd_op and the first 16 bytes of cmd: for a ublk device struct
	 * ublksrv_io_cmd (q_id, tag, result, addr), for its control device struct ublksrv_ctrl_cmd
	 * begins there.
	 */
	__u32 cmd_op;
	__u64 cmd[2];
	__s32 ublk_id;	 /* N when fd is /dev/ublkcN, -2 for /dev/ublk-control, -1 for all else */
	__u32 sq_thread; /* taken by SQPOLL's thread */
};

struct event_cqe {
	__s32 res;
	__u32 flags;
	__u64 submit_ns; /* of its SUBMIT; 0 when that was not seen */
	__u32 opcode;	 /* 0xff when not known */
	__u32 aux;	 /* 1: no request of its own (multishot, messages) */
	__u32 async;	 /* 1: an io-wq thread had it */
	__u32 submit_cpu;
	__s32 fd;
	__s32 ublk_id;		 /* as in struct event_sqe */
	__u32 cmd_op, q_id, tag; /* of a ublk data command */
};

/* value: bytes for QUEUE and FETCH, result or errno for the others. */
struct event_block {
	__u64 id, sector;
	__s64 value;
	__u32 op; /* REQ_OP_* of the block layer, or enum backend_op of a DAEMON_ event */
	__u32 has_op;
	__u64 layer_ns[3]; /* COMMIT: total, throttle, backend */
};

struct event {
	__u64 time_ns;
	__u32 type; /* enum event_type */
	__u32 cpu;
	__u32 pid, tid; /* as user space sees them: thread group, thread */
	char comm[EVENT_COMM_BYTES];
	__u64 ring;	 /* address of the io_ring_ctx, or 0 */
	__u64 req;	 /* address of the io_kiocb, or 0 */
	__u64 user_data; /* of the request */
	__u64 value;
	__u64 other; /* LINK, FAIL_LINK: the other request */
	struct event_levels levels;
	union {
		struct event_ring ring_info;
		struct event_enter enter;
		struct event_syscall syscall;
		struct event_sqe sqe;
		struct event_cqe cqe;
		struct event_block block;
	};
};

/*
 * Of a ublk data command: not of those for many tags at once, UBLK_U_IO_PREP_IO_CMDS to
 * _FETCH_IO_CMDS of include/uapi/linux/ublk_cmd.h.
 */
static inline _Bool event_cmd_has_tag(__u32 cmd_op)
{
	return (cmd_op & 0xff) < 0x25 || (cmd_op & 0xff) > 0x27;
}

#endif
