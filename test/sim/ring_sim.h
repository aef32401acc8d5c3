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
#define SIM_GROUP_NR REACTOR_FILE_NR
/* Descriptors from here on are the model's: /dev/ublk-control and /dev/ublkcN. */
#define SIM_FD_BASE (1 << 20)

struct client_rq;

/* A slot of the table of registered buffers: the pages of a request, or empty (rq NULL). */
struct sim_buffer {
	struct client_rq *rq;
	uint64_t generation; /* of this use of the slot */
};

/* A ring of provided buffers, in the server's memory. */
struct sim_group {
	struct io_uring_buf_ring *mem; /* NULL: none */
	uint16_t nr, head;
};

/* Task work: runs in the server's context, within its enter. */
struct sim_task {
	struct list_node node;
	void (*fn)(struct sim_task *task);
};

struct sim_ring {
	struct ring *ring;
	unsigned idx; /* order of creation */
	bool sqe128, defer_taskrun;
	int event_fd;
	int files[SIM_FILE_NR];
	struct list_node held;	/* sim_op: taken, not complete */
	struct list_node ready; /* sim_op: complete, not in the CQ yet */
	unsigned ready_nr;
	struct list_node tasks; /* sim_task */
	unsigned cq_tail;	/* what has been posted; seen by the server when it wakes up */
	bool overflow;		/* ready: those found no room in the CQ */
	unsigned urgent_nr;	/* posted, not seen: they oblige the server to do something */
	unsigned wait_nr;	/* it sleeps until so many are there; 0: it does not */
	uint64_t wake_ns;	/* or until then */
	struct sim_buffer *buffers;
	unsigned buffers_nr;
	struct sim_group groups[SIM_GROUP_NR];
	struct sim_op *mail; /* the outstanding read of the mailbox's eventfd */
	/* The outstanding timeouts, and when they end: the alarm's, the look at prompt ops. */
	struct sim_op *alarm[ALARM_TIMEOUT_NR + 1];
	uint64_t alarm_ns[ALARM_TIMEOUT_NR + 1];
	uint64_t recent[SIM_RECENT_NR]; /* user_data of the last CQEs */
	unsigned recent_nr;
	uint64_t stale_nr; /* CQEs made up and delivered */
	bool entering;	   /* within an enter, with SQEs left to take */
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
	uint32_t cqe_flags;
	bool stale;		    /* made up */
	int fd;			    /* resolved at submission */
	uint64_t at_submit;	    /* whoever serves it: a number of its own */
	uint64_t buffer_generation; /* of the registered buffer that it uses */
};

/* Answers now; the CQE goes out with the next enter. op is gone afterwards. */
void sim_op_done(struct sim_op *op, int res);

/*
 * The same for a command that is executed by the enter that submits it: its CQE is there before
 * those of whatever it sets free. urgent: the server must not sleep over it.
 */
void sim_op_done_inline(struct sim_op *op, int res, bool urgent);

/*
 * One CQE of many (F_MORE); only from a task or a submission. False: the CQ has no room, and such
 * CQEs are not kept.
 */
bool sim_op_post_more(struct sim_op *op, int res, uint32_t flags);

/* Runs the task with the next enter; once, however often it is asked for. */
void sim_ring_task(struct sim_ring *s, struct sim_task *task, void (*fn)(struct sim_task *task));
void sim_task_cancel(struct sim_task *task);

/* The payload of a uring_cmd. */
static inline void *sim_op_cmd(struct sim_op *op)
{
	return op->bytes + 48;
}

/* All of them, by node. */
extern struct list_node sim_rings;

/* ring_kill.c: the server is dead. Its files stay open until this returns. */
void sim_rings_die(void);

/* What a scheduler must know. */
bool sim_ring_ready(const struct ring *ring);
/* Lets the mailbox's eventfd be noticed. */
void sim_ring_poll_mail(struct ring *ring);
uint64_t sim_ring_stale_nr(const struct ring *ring);
/* Rings that exist. */
unsigned sim_ring_nr(void);
/* Registered file slots in use, of all rings. */
unsigned sim_ring_files_nr(void);
/* When a reactor that sleeps is to be woken in any case. */
uint64_t sim_ring_wake_ns(const struct ring *ring);

/* ring_bufs.c */

/* io_buffer_register_bvec(): 0 or -errno. */
int sim_buffer_register(struct sim_ring *s, unsigned idx, struct client_rq *rq);
void sim_buffer_unregister(struct sim_ring *s, unsigned idx, const struct client_rq *rq);
/* The buffer that an SQE names; NULL when there is none. */
const struct sim_buffer *sim_buffer_find(const struct sim_ring *s, unsigned idx);
/* At the end of a ring: nothing may be left in its tables. */
void sim_buffers_fini(struct sim_ring *s);

/* io_ring_buffer_select(): the next provided buffer of a group; NULL when there is none. */
const struct io_uring_buf *sim_group_next(const struct sim_ring *s, unsigned group);
/* io_kbuf_commit(): it is used up. */
void sim_group_take(struct sim_ring *s, unsigned group);

#endif
