/*
 * One check of a backend against a peer that misbehaves: in a process of its own, so that it can
 * hang or crash alone and finds fresh limits of logging; what is logged goes to a file that it can
 * read. What is of one protocol stands in nbd_case.h and nvme_case.h.
 */
#ifndef TEST_FAULT_CASE_H
#define TEST_FAULT_CASE_H

#include <stdbool.h>

#include "fault_peer.h"
#include "test/conformance/model.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"

#define CASE_DEPTH 32u

struct fault_case {
	struct fault_peer peer;
	struct rig rig;
	struct model model;
	struct prng prng;
	bool is_open;
	uint64_t had_bytes;	    /* above 0: the device is taken over, and had so many */
	enum model_content content; /* when it is opened */
};

/* arg: whatever the check was given with. */
typedef void fault_case_fn(struct fault_case *c, const void *arg);

/* One line of TAP. limit_s: as long may it take. */
void fault_case_run(const char *name, unsigned limit_s, uint64_t seed, fault_case_fn *fn,
		    const void *arg);

/* [--seed N] [--only TEXT]: run makes the checks. Returns the exit code. */
int fault_case_main(int argc, char **argv, void (*run)(uint64_t seed));

/*
 * The rest is for checks. A failure is told by EXPECT; false: do not go on.
 */

/* The device, whose name and size are filled in, and its depth where it is 0; and the model of what
 * it holds. */
bool case_open_rig(struct fault_case *c, struct rig_params *params);
/* Back to before case_open_rig; expects that nothing of it is left in its reactors. */
void case_close(struct fault_case *c);

/* io_nr random I/Os: all must succeed, with the right bytes, and break no rule of the protocol. */
void case_works(struct fault_case *c, uint64_t io_nr);
/* The same; returns how many failed: that is allowed, wrong bytes are not. */
uint64_t case_survives(struct fault_case *c, uint64_t io_nr);

/* Submits an I/O of `bytes` with each tag, at its own place. */
void case_submit_all(struct fault_case *c, enum backend_op op, uint32_t bytes);
/* What each of them has ended with. */
void case_expect_all(const struct fault_case *c, int result);
/* Of all that is out. */
void case_cancel_all(struct fault_case *c);
/* The model knows nothing any more: whether what was cancelled has been done is not known. */
void case_forget(struct fault_case *c);
/* Turns until nothing is out; false, and told, if that takes longer. */
bool case_drain(struct fault_case *c, unsigned limit_ms);
/* Turns for so long, sleeping in between as a reactor does. */
void case_turn_for(struct fault_case *c, unsigned ms);
/* Turns until the first connection of queue 0 is there: a slow machine takes its time. */
bool case_connects(struct fault_case *c);

/* Until the peer's number is at least so high; false, and told, if that takes longer. */
bool case_reaches(struct fault_case *c, const char *name, uint64_t nr, unsigned limit_ms);

/* Expects that the log says so since the check began: a POSIX extended regular expression. */
void case_logged(const char *words);
/* That the log does not have this text, as it stands here. */
void case_not_logged(const char *text);

uint64_t case_now_ms(void);

#endif
