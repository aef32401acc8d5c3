/*
 * The simulated kernel's side of a ring: SQEs that the world has taken (sim_op) and the way their
 * completions go back. The product's side is reactor/ring.h.
 */
#ifndef SIM_RING_SIM_H
#define SIM_RING_SIM_H

#include "base/list.h"
#include "reactor/reactor.h"
#include "test/sim/world.h"

#define SIM_FILE_NR REACTOR_FILE_NR
#define SIM_RECENT_NR 16
/* Descriptors from here on are the model's: /dev/ublk-control and /dev/ublkcN. */
#define SIM_FD_BASE (1 << 20)

struct sim_ring {
	struct ring *ring;
	unsigned idx; /* order of creation */
	bool sqe128, defer_taskrun;
	int event_fd;
	int files[SIM_FILE_NR];
	struct list_node held;	/* sim_op: taken, not complete */
	struct list_node ready; /* sim_op: complete, not in the CQ yet */
	unsigned ready_nr;
	struct sim_op *mail;		/* the outstanding read of the mailbox's eventfd */
	uint64_t recent[SIM_RECENT_NR]; /* user_data of the last CQEs */
	unsigned recent_nr;
	uint64_t stale_nr; /* CQEs made up and delivered */
	struct list_node node;
};

struct sim_op {
	struct sim_event event;
	struct sim_ring *ring;
	union {
		struct io_uring_sqe sqe;
		uint8_t bytes[128];
	};
	struct list_node node;
	int res;
	bool stale;	    /* made up */
	int fd;		    /* resolved at submission */
	uint64_t at_submit; /* whoever serves it: a number of its own */
};

/* Answers now; the CQE goes out with the next enter. op is gone afterwards. */
void sim_op_done(struct sim_op *op, int res);

/* The payload of a uring_cmd. */
static inline void *sim_op_cmd(struct sim_op *op)
{
	return op->bytes + 48;
}

/* What a scheduler must know. */
bool sim_ring_ready(const struct ring *ring);
/* Lets the mailbox's eventfd be noticed. */
void sim_ring_poll_mail(struct ring *ring);
uint64_t sim_ring_stale_nr(const struct ring *ring);
/* Rings that exist. */
unsigned sim_ring_nr(void);
/* Registered file slots in use, of all rings. */
unsigned sim_ring_files_nr(void);

#endif
