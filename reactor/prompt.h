/*
 * Prompt ops: the kernel executes them within the enter that submits them. Their CQEs are there
 * before that enter sleeps, and would end its sleep at once: a turn of the loop, at depth 1 a third
 * one for each I/O, to learn that something succeeded. So the enter that sleeps waits for one CQE
 * more than there are prompt ops, and their CQEs are run with the next one that tells something.
 *
 * The rule, for whoever says op_start_prompt: one CQE, whatever the outcome, and no peer and no
 * disk decides when. (Where a worker thread of io_uring executes it after all, its CQE comes a
 * little later, and so does the end of the sleep; nothing hangs. When the kernel leaves an SQE in
 * the SQ it does not sleep.)
 *
 * A failure is a CQE as well, and is slept over like a success. A timeout in the ring, the look,
 * limits that to PROMPT_LOOK_NS; while it cannot be set no CQE is slept over. Data reactors only,
 * on their thread.
 */
#ifndef REACTOR_PROMPT_H
#define REACTOR_PROMPT_H

#include <stdbool.h>

#include <liburing.h>

#include "base/util.h"
#include "reactor/op.h"

#define PROMPT_LOOK_NS (100 * NS_PER_MS)

struct prompt {
	unsigned nr;		     /* ops since the last enter */
	struct op look;		     /* the timeout */
	struct __kernel_timespec ts; /* the SQE points at it */
};

/* Returns 0 or -errno (see op_init). */
int prompt_init(struct prompt *prompt, struct reactor *r);

/* Sets look. False without an SQE. */
bool prompt_look_set(struct prompt *prompt);

/* One more goes with the next enter. */
static inline void prompt_add(struct prompt *prompt)
{
	if (__builtin_expect(op_inflight(&prompt->look), 1) || prompt_look_set(prompt))
		prompt->nr++;
}

/* For how many CQEs the next enter waits when it sleeps. */
static inline unsigned prompt_wait_nr(const struct prompt *prompt)
{
	return prompt->nr + 1;
}

#endif
