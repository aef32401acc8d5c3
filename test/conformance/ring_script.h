/*
 * A kernel that answers as the test says: a third side of reactor/ring.h beside the real ring and
 * the simulator, for checking SQEs one by one. Everything is answered within ring_enter.
 */
#ifndef TEST_RING_SCRIPT_H
#define TEST_RING_SCRIPT_H

#include <stdint.h>

#include <liburing.h>

#define SCRIPT_LOG_MAX 64

struct ring_script {
	int (*answer)(const struct io_uring_sqe *sqe); /* the CQE's res */
	unsigned refuse_nr;			       /* calls of ring_enter that take nothing */
	uint64_t now_ns;			 /* the clock: stands still but for the test */
	uint64_t step_ns;			 /* added by each ring_enter */
	struct io_uring_sqe log[SCRIPT_LOG_MAX]; /* what was submitted, but for the mailbox */
	unsigned log_nr;
};

extern struct ring_script ring_script;

#endif
