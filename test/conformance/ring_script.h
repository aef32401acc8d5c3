/*
 * A kernel that answers as the test says: a third side of reactor/ring.h beside the real ring and
 * the simulator, for checking SQEs one by one. Everything is answered within ring_enter.
 */
#ifndef TEST_RING_SCRIPT_H
#define TEST_RING_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include <liburing.h>

#define SCRIPT_LOG_MAX 64
/* An answer: the SQE stays in flight, what comes of it is posted by the test. */
#define SCRIPT_LATER INT32_MAX

struct ring_script {
	int (*answer)(const struct io_uring_sqe *sqe); /* the CQE's res */
	unsigned refuse_nr;			       /* calls of ring_enter that take nothing */
	uint64_t now_ns;			 /* the clock: stands still but for the test */
	uint64_t step_ns;			 /* added by each ring_enter */
	struct io_uring_sqe log[SCRIPT_LOG_MAX]; /* what was submitted, but for the mailbox */
	unsigned log_nr;
	bool mail;	     /* the next ring_enter answers the read of the mailbox, once */
	uint16_t group_used; /* what ring_group_used says */
	struct io_uring_buf_ring *group; /* as ring_group_set was told */
	int alarm_res;			 /* of a reactor's alarm, at once; 0: it never goes off */
	unsigned alarm_nr;
	unsigned wait_nr;  /* for so many CQEs the last ring_enter would have waited */
	uint64_t slept_ns; /* as long would the last ring_enter have waited at most */
	int socket_fd;	   /* what ring_socket returns; 0: there is no network */
};

extern struct ring_script ring_script;

/* One CQE, which the next turn finds. */
void ring_script_post(uint64_t user_data, int res, uint32_t cqe_flags);

#endif
