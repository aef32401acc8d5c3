/*
 * A ring that notes all it does: each call of io_uring_enter, each SQE, each CQE, and between which
 * times. Not liburing's, which decides itself when it calls the kernel; only its io_uring_prep_*
 * are used. One thread. All that fails ends the program.
 */
#ifndef TEST_TRACE_RING_H
#define TEST_TRACE_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define NOTES_MAX 65536u

/* One call: what was passed, and how the ring was just before. */
struct note_enter {
	uint64_t begin_ns, end_ns; /* CLOCK_BOOTTIME around the call and all of its completions */
	uint32_t to_submit, min_complete, flags;
	int32_t fd; /* as passed */
	uint32_t sq_head, sq_tail, cq_head, cq_tail;
	int ret;
	int cpu; /* this thread may only run there */
};

struct note_sqe {
	struct io_uring_sqe sqe;
	uint32_t enter;	 /* index of the call that gave it to the kernel */
	bool init_fails; /* the kernel refuses it before it is a request */
};

struct note_cqe {
	uint64_t user_data;
	int32_t res;
	uint32_t flags;
	uint32_t enter;	  /* of the last call before it was seen */
	uint32_t cq_head; /* as it was when it was posted */
};

struct ring {
	const char *name;
	int fd, enter_fd; /* enter_fd: as io_uring_enter gets it, an index when registered */
	uint32_t enter_flags;
	struct io_uring_params p;
	uint32_t *sq_head, *sq_tail, *sq_array, *cq_head, *cq_tail;
	uint32_t sq_mask, cq_mask;
	struct io_uring_cqe *cqes;
	char *sqes;
	uint32_t pending, unseen; /* SQEs not yet given; CQEs that are still to come */
	struct note_enter *enter;
	struct note_sqe *sqe;
	struct note_cqe *cqe;
	uint32_t enter_nr, sqe_nr, cqe_nr;
};

/* flags: IORING_SETUP_*. Returns false when this kernel does not know them. */
bool ring_init(struct ring *r, const char *name, unsigned entries, unsigned flags);
/* From now on the kernel gets the ring by its registered index. */
void ring_register_fd(struct ring *r);

/* The next SQE, zeroed but for its user_data, which no other request has. Its CQEs to come: one. */
struct io_uring_sqe *ring_sqe(struct ring *r);
/* Its last SQE will have nr CQEs at the end of the next call rather than one. */
void ring_expect(struct ring *r, int nr);
/* Gives all SQEs to the kernel, waits for all CQEs to come, takes them. */
void ring_run(struct ring *r);
/* As ring_run, without any waiting: for what completes later; ring_wait takes those. */
void ring_submit(struct ring *r);
void ring_wait(struct ring *r, unsigned nr);
/* Result of the last SQE with this user_data; ends the program when it has none. */
int32_t ring_result(const struct ring *r, uint64_t user_data);

void ring_print(const struct ring *r, FILE *out);

uint64_t now_ns(clockid_t clock);
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
