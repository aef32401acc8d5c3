/*
 * A queue of ublk over the holding backend, on a ring whose answers the test writes: the driver's
 * side, and how the queue is opened and closed. One queue at a time; one thread.
 */
#ifndef TEST_STEPS_QUEUE_RIG_H
#define TEST_STEPS_QUEUE_RIG_H

#include "test/conformance/holding_backend.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue_internal.h"

#define SECTORS (IO_BYTES / 512)

struct queue_rig {
	/* the driver */
	struct ublksrv_io_desc descs[DEPTH];
	uint64_t fetches[DEPTH]; /* user_data of each tag's command, or 0: not armed */
	uint64_t batch_fetch_data, batch_commit_data;
	unsigned fetch_nr, commit_nr;
	int commit_res; /* of COMMITs to come: 0: all of it is taken */

	struct reactor reactor;
	struct queue queue;
	struct backend_device *device;
	struct io_errors *io_errors;
	bool attached, drained, released, fenced;
	int flushed; /* what queue_flush has said; 1: nothing */
};
extern struct queue_rig qrig;

/* With mail each time: there may be some. */
void qrig_turn(void);
void qrig_turns(unsigned nr);

void qrig_open(bool batch);
/* The driver ends what is armed; all tags are armed. */
void qrig_close(bool batch);
/* The driver has ended it. */
void qrig_release(void);

/* A request for an armed tag, without batches. op: UBLK_IO_OP_* with flags */
void qrig_bring(unsigned tag, uint32_t op);
/* The backend answers, with 0. */
void qrig_answer(unsigned tag);
void qrig_answer_with(unsigned tag, int result);

#endif
