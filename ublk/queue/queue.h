/*
 * One hardware queue of one device: fetches requests from the driver, serves them through the
 * backend, hands them back. Lives on one reactor; the main thread owns the memory of struct queue
 * and talks to it by mail.
 *
 *   main: queue_attach  -> reactor: allocate, FETCH every tag -> main: attached(err)
 *   driver aborts every tag (STOP_DEV) -> reactor:            -> main: drained
 *   main: queue_release -> reactor: free everything           -> main: released
 *
 * In between, each request is committed exactly once, whatever the backend does.
 */
#ifndef UBLK_QUEUE_QUEUE_H
#define UBLK_QUEUE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/backend.h"
#include "base/histogram.h"
#include "reactor/reactor.h"
#include "ublk/data_path.h"
#include "ublk/ublk_abi.h"

struct batch;
struct io_errors;
struct queue;
struct shmem_buffers;
struct tag_io;

/* What the main thread says before attach; read-only for the reactor. */
struct queue_setup {
	struct reactor *reactor;
	struct reactor *home; /* where replies are posted to */
	struct backend_device *backend;
	const char *device_name;
	struct io_errors *errors; /* the device's */
	int dev_id;
	const struct ublksrv_io_desc *descs; /* mapped from the driver, one per tag */
	int cdev_fd;
	bool cdev_registered; /* use cdev_fd as a registered file of the ring */
	uint16_t idx, depth;
	uint32_t max_io_bytes; /* size of a tag's buffer */
	struct data_choice data;
	const struct shmem_buffers *shmem; /* NULL: clients cannot share memory with it */
	bool backend_moves;		   /* the whole stack has BACKEND_DATA_MOVES */
	/* Main thread; each comes exactly once. After an error of attached, drained may come at
	 * once (nothing was armed) or after the driver aborted the rest. */
	void (*attached)(struct queue *q, int err);
	void (*drained)(struct queue *q);
	void (*released)(struct queue *q);
	/* Once per queue_fence, and per queue_flush, with 0 or its -errno. */
	void (*fenced)(struct queue *q);
	void (*flushed)(struct queue *q, int result);
	void *owner;
};

struct queue_op_stats {
	uint64_t done, failed, bytes;
	struct histogram layer[QUEUE_LAYER_NR];
};

/* Errors are counted by errno; what backend_errno_map gives is below this. */
#define QUEUE_ERRNO_NR 134

/* Written by the queue's reactor, read by anybody with relaxed loads. */
struct queue_stats {
	struct queue_op_stats op[BACKEND_OP_NR];
	uint64_t started; /* requests taken from the driver; minus all done: in flight */
	uint64_t inflight_max;
	uint64_t busy_retries;
	uint64_t lost_tags;
	uint64_t fallbacks; /* zero copy: the buffer was not registered, copied by hand */
	uint64_t shmem;	    /* READs and WRITEs in memory that a client shares: not copied */
	uint64_t errors[QUEUE_ERRNO_NR];
};

/* One byte for what each request would have to ask otherwise. */
enum queue_care {
	QUEUE_QUIESCED = 1 << 0,   /* it is kept */
	QUEUE_CANCELLING = 1 << 1, /* it is refused */
	QUEUE_TRIM_DUE = 1 << 2,   /* trim_timer is not armed */
	QUEUE_FLUSHING = 1 << 3,   /* of one tag it is kept: queue_flush.c */
};

struct queue {
	struct queue_setup setup;

	struct tag_io *ios; /* depth of them */
	void *buffers;	    /* depth x max_io_bytes, untouched pages cost nothing */
	struct backend_queue *backend;
	int cdev_slot;		 /* registered file */
	int first_buffer;	 /* registered buffers, one per tag; -1: none */
	struct io_uring_sqe sqe; /* what all commands begin with */
	struct batch *batch;	 /* or NULL */

	struct tag_io **commits; /* to hand back at the end of this turn */
	unsigned commit_nr;
	unsigned up_nr;	      /* tags that are not down: armed in the driver or being served */
	unsigned inflight_nr; /* taken from the driver, not handed back */
	uint32_t fetch_mark;  /* reactor_sq_mark() after the last FETCH */
	unsigned fetched_nr;  /* FETCHes prepared */
	int first_error;      /* of a FETCH, while attaching */
	uint8_t care;	      /* enum queue_care: why requests are not served as nearly all are */
	bool attaching;
	_Atomic bool cancel_wanted, cancel_posted;   /* written by the main thread; by both */
	_Atomic bool quiesce_wanted, quiesce_posted; /* the same */
	_Atomic bool quiet;			     /* gated, and nothing is in flight */
	struct list_node kept;	    /* tags with requests that came behind the gate */
	struct timer quiesce_timer; /* looks whether it is quiet */

	uint64_t trim_started; /* stats.started when trim_timer was armed */
	bool trim_marked;      /* unused, but for commands before trim_mark, perhaps */
	uint32_t trim_mark;
	struct timer trim_timer;

	struct list_node busy; /* tags whose backend said BUSY */
	struct timer busy_timer;
	struct task busy_task, commit_task, attach_task, flush_task;
	struct mail attach_mail, cancel_mail, quiesce_mail, fence_mail, flush_mail,
		release_mail; /* from main */
	struct mail attached_mail, drained_mail, fenced_mail, flushed_mail, released_mail;
	uint64_t fence_bytes;
	struct timer fence_timer;
	/* queue_writes that the last good FLUSH of the driver has covered. Any thread: relaxed. */
	uint64_t writes_flushed;
	struct tag_io *flush_io; /* queue_flush: what has the FLUSH; NULL: nothing has */
	int flush_result;
	struct timer flush_timer;
	struct queue_stats stats; /* last: see below */
};

/* The queues of a device are an array, and may be of different reactors. */
_Static_assert(offsetof(struct queue, stats) + sizeof(struct queue_stats) == sizeof(struct queue) &&
		       sizeof(((struct queue_stats *)0)->errors) >= 64 &&
		       offsetof(struct queue_stats, errors) +
				       sizeof(((struct queue_stats *)0)->errors) ==
			       sizeof(struct queue_stats) &&
		       offsetof(struct queue, setup) == 0 && sizeof(struct queue_setup) >= 64,
	       "the line that two of them share has counters of errors and what is set up once");

/* Main thread. Begins; setup->attached tells how it ended. */
void queue_attach(struct queue *q, const struct queue_setup *setup);

/*
 * Main thread, before queue_release. cancel: brings every I/O that is in the backend to an end, and
 * every later one at once, with an error; until it is called again without.
 */
void queue_cancel(struct queue *q, bool cancel);

/*
 * Main thread, while it serves. on: requests that come from now on are kept and not served, as if
 * they were still on their way; queue_quiet says when the backend has none left of those before.
 * Not on: they are served, in the order in which they came.
 */
void queue_quiesce(struct queue *q, bool on);
static inline bool queue_quiet(const struct queue *q)
{
	return q->quiet;
}

/*
 * Main thread, between attached and queue_release, one at a time: `fenced` comes when the backend
 * has no request any more that reaches beyond size_bytes. backend_set_size has been called before,
 * so that no new one gets there.
 */
void queue_fence(struct queue *q, uint64_t size_bytes);

/*
 * Main thread, the same, one at a time: a FLUSH of the backend, whose result comes with `flushed`.
 * Requests go on being served. When it fails, the next FLUSH of the driver fails too.
 */
void queue_flush(struct queue *q);

/* Main thread, after drained (and fenced, and flushed): gives everything back. */
void queue_release(struct queue *q);

/* Any thread: requests that change bytes and have ended, however. Counted with instruments alone.
 */
uint64_t queue_writes(const struct queue *q);

/* Worst-case bytes of data buffers of one queue. */
static inline uint64_t queue_buffer_bytes(unsigned depth, uint32_t max_io_bytes)
{
	return (uint64_t)depth * max_io_bytes;
}

#endif
