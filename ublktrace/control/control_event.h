/* What the BPF side of `ublktrace control` tells: one record for a command that begins or ends.
 * Shared by both sides. */
#ifndef UBLKTRACE_CONTROL_CONTROL_EVENT_H
#define UBLKTRACE_CONTROL_CONTROL_EVENT_H

#ifndef TRACE_BPF
#include <linux/types.h>
#endif

enum control_type {
	CONTROL_BEGIN =
		1,    /* a command to /dev/ublk-control has reached the driver, or goes to io-wq */
	CONTROL_END,  /* its CQE */
	CONTROL_DATA, /* the CQE of a command to /dev/ublkcN that failed */
};

#define CONTROL_NO_RET 0x7fffffff

struct control_event {
	__u64 time_ns;	 /* CLOCK_MONOTONIC, as all times here */
	__u64 submit_ns; /* 0: its begin was not seen */
	__u64 queued_ns; /* handed to io-wq; 0: not */
	__u64 driver_ns; /* the driver was called, the last time; 0: not seen */
	__u64 req;	 /* a key while it is in flight */
	__u64 user_data;
	__u64 data; /* ublksrv_ctrl_cmd.data[0] */
	__u64 addr;
	__u32 type;   /* enum control_type */
	__u32 cmd_op; /* as it was sent, with or without ioctl encoding */
	__u32 pid, tid;
	__u32 worker;	 /* tid of the io-wq thread; 0: in-line, or not seen */
	__u32 tries;	 /* calls of the driver that were seen */
	__s32 first_ret; /* what the first of them returned; CONTROL_NO_RET: not seen */
	__u32 dev_id;	 /* as it was sent; 0xffffffff: any (ADD_DEV), or none */
	__u32 new_id;	 /* ADD_DEV: the id that the driver chose */
	__s32 res;
	__u32 queue, tag; /* CONTROL_DATA; 0xffffffff: not known */
	char comm[16];	  /* of the process, not of its worker */
	char file[16];	  /* "ublk-control", "ublkc0" */
};

#endif
