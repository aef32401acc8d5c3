/*
 * What takes time in the life of a tree: opening, closing, growing. Each is a walk over its nodes,
 * one after the other: from the bottom up, to close from the top down. A node has a part that may
 * block, for a helper, and one that waits without blocking, for the control reactor (visit.h). The
 * caller never waits: it is told when the walk has ended.
 *
 * Control thread, where nothing else is said.
 */
#ifndef STORAGE_LIFE_H
#define STORAGE_LIFE_H

#include "reactor/helper.h"
#include "storage/backend.h"

/* Where walks run. */
struct backend_home {
	struct reactor *reactor; /* the control reactor; NULL: only trees that wait for nobody */
	struct helpers *helpers; /* NULL: what may block runs inside of the calls (tests) */
	/*
	 * Reactors for queues of what devices share (sharing.h); they outlive all walks and all
	 * that these have opened. NULL: the control reactor.
	 */
	struct reactor *const *data;
	unsigned data_nr;
};

struct backend_life; /* a walk under way */

#define BACKEND_LIFE_WORDS_BYTES (BACKEND_PATH_BYTES + BACKEND_ERROR_BYTES)

/* How a walk has ended. */
struct backend_life_end {
	int ret; /* 0 or -errno; of a close: of the first last word that failed */
	struct backend_device *device; /* of an open that has succeeded: the owner's */
	const char *words;	       /* of a failure, for the user; valid during the call */
	bool waited; /* of a failure: somebody who was waited for did not answer as he should */
};

/* Who began it. */
struct backend_life_owner {
	/*
	 * The walk has ended, and is gone when this returns; from a turn of the control reactor, or
	 * inside of the call that began it, where nothing had to be waited for.
	 */
	void (*done)(void *arg, const struct backend_life_end *end);
	/*
	 * Instead of done when the helpers were closed meanwhile: any thread. What was being opened
	 * is closed.
	 */
	void (*drop)(void *arg);
	void *arg;
};

/*
 * backend_open without waiting: stored_fds and their files are borrowed until the end, all else as
 * there. Returns 0, and ret_life unless it has ended already (then NULL); or -ENOMEM,
 * and done does not follow.
 */
int backend_open_begin(struct backend_life **ret_life, const struct backend_home *home,
		       const struct backend_spec *spec, const char *name,
		       const struct backend_open_params *open_params,
		       const struct backend_life_owner *owner);

/*
 * The same of backend_close: the device is the walk's from now on, and is closed also when a node's
 * last word fails. -ENOMEM: it is still there.
 */
int backend_close_begin(struct backend_life **ret_life, const struct backend_home *home,
			struct backend_device *device, const struct backend_life_owner *owner);

/* The same of backend_grow. */
int backend_grow_begin(struct backend_life **ret_life, const struct backend_home *home,
		       struct backend_device *device, uint64_t size_bytes,
		       const struct backend_life_owner *owner);

/*
 * An open that is not wanted any more: it ends as soon as it can, what was opened is closed, and
 * done gets -ECANCELED. Other walks go on to their end. done may come inside of this call.
 */
void backend_life_cancel(struct backend_life *life);

#define BACKEND_LIFE_WAIT_BYTES 160u

struct backend_life_look {
	const char *doing; /* of a part on the control reactor: "asking its server"; or NULL */
	uint64_t since_ns; /* it began, by ring_clock_ns */
	pid_t tid;	   /* of the helper that has it; 0: none */
	uint64_t ends_ns;  /* by a limit of its own, if it has no end before; 0: unknown */
	/*
	 * In more words than doing; "": no more. Of an open that has failed by a part that waits,
	 * and is closed again, why: ends_ns is when it failed.
	 */
	char waits_for[BACKEND_LIFE_WAIT_BYTES];
};

void backend_life_look(const struct backend_life *life, struct backend_life_look *ret_look);

#endif
