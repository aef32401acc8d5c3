/*
 * Calls that may block for as long as they like (an open(2) whose server is gone, an ftruncate(2)
 * on a frozen file system), each on a thread of its own. The thread that starts a job never waits
 * for it: the job's end comes by mail to the reactor of that thread, its home.
 */
#ifndef REACTOR_HELPER_H
#define REACTOR_HELPER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "reactor/reactor.h"

struct helpers; /* the jobs of one home */

/*
 * One job. Embedded in what it is about, which stays until done or drop is called: exactly one of
 * them, once.
 */
struct helper_job {
	void (*work)(struct helper_job *job); /* its own thread: may block */
	void (*done)(struct helper_job *job); /* home's thread, from a turn; may free the job */
	/* Any thread, instead of done, when the helpers were closed meanwhile; may be NULL. */
	void (*drop)(struct helper_job *job);

	/* helper.c's */
	struct helpers *helpers;
	struct list_node node;
	uint64_t since_ns; /* ring_clock_ns of the start */
	_Atomic pid_t tid; /* of its thread; 0: it does not run yet */
};

/* Home's thread. Returns 0 or -ENOMEM. */
int helpers_create(struct helpers **ret_helpers, struct reactor *home);

/*
 * Home's thread, before home ends. No job is waited for: those that still run are dropped when they
 * end. Accepts NULL.
 */
void helpers_close(struct helpers *helpers);

/*
 * Any thread: somebody whose work goes on after helpers_close keeps them until then. Accept NULL.
 */
void helpers_hold(struct helpers *helpers);
void helpers_let_go(struct helpers *helpers);

/* Any thread that holds them. */
bool helpers_are_closed(struct helpers *helpers);

/*
 * Home's thread, also when they are closed (the job is dropped then): starts job->work on a thread
 * with all signals blocked. Returns 0, or the -errno of pthread_create(3): then nothing was
 * started.
 */
int helper_start(struct helpers *helpers, struct helper_job *job);

#endif
