/*
 * One check of the NBD backend against nbd_server.py: in a process of its own, so that it can hang
 * or crash alone and finds fresh limits of logging; what is logged goes to a file that it can read.
 */
#ifndef TEST_NBD_CASE_H
#define TEST_NBD_CASE_H

#include <stdbool.h>

#include "test/conformance/model.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"
#include "nbd_peer.h"

#define CASE_DEPTH RIG_DEPTH_MAX

struct nbd_case {
	struct nbd_peer peer;
	struct rig rig;
	struct model model;
	struct prng prng;
	bool is_open;
	uint64_t had_bytes; /* above 0: the device is taken over, and had so many */
};

/* arg: whatever the check was given with. */
typedef void nbd_case_fn(struct nbd_case *c, const void *arg);

/* One line of TAP. limit_s: as long may it take. */
void nbd_case_run(const char *name, unsigned limit_s, uint64_t seed, nbd_case_fn *fn,
		  const void *arg);

/*
 * The rest is for checks. A failure is told by EXPECT; false: do not go on.
 */

/* The server, with "key=value" settings (may be ""). */
void case_serve(struct nbd_case *c, const char *settings);

/*
 * The device on it, with these options beside `uri`, a line each; and the model of what it holds.
 * _with: from the URI on.
 */
bool case_open(struct nbd_case *c, const char *options, unsigned queue_nr);
bool case_open_with(struct nbd_case *c, const char *uri, const char *options, uint32_t block_bytes,
		    unsigned queue_nr);
/* Back to before case_open; expects that nothing of it is left in its reactors. */
void case_close(struct nbd_case *c);

/* io_nr random I/Os: all must succeed, with the right bytes. */
void case_works(struct nbd_case *c, uint64_t io_nr);
/* The same; returns how many failed: that is allowed, wrong bytes are not. */
uint64_t case_survives(struct nbd_case *c, uint64_t io_nr);

/* Submits an I/O of `bytes` with each tag, at its own place. */
void case_submit_all(struct nbd_case *c, enum backend_op op, uint32_t bytes);
/* Turns until nothing is out; false, and told, if that takes longer. */
bool case_drain(struct nbd_case *c, unsigned limit_ms);
/* Turns for so long, sleeping in between as a reactor does. */
void case_turn_for(struct nbd_case *c, unsigned ms);
/* Turns until the first connection of queue 0 is there: a slow machine takes its time. */
bool case_connects(struct nbd_case *c);

/* Until the server's number is at least so high; false, and told, if that takes longer. */
bool case_reaches(struct nbd_case *c, const char *name, uint64_t nr, unsigned limit_ms);

/*
 * One connection after the other is lost by what the server was told to do, while I/Os (READs, now
 * and then FLUSHes) are under way; until that has happened to all, and all link_nr connections are
 * back and have proved themselves. Every I/O must succeed. False, and told, if not.
 */
bool case_strike_out(struct nbd_case *c, unsigned conn_nr);

/* Expects that the log says so since the check began: a POSIX extended regular expression. */
void case_logged(const char *words);

uint64_t case_now_ms(void);

/* The groups of checks. */
void bad_replies_run(uint64_t seed);
void disconnects_run(uint64_t seed);
void changes_run(uint64_t seed);
void outage_timeout_run(uint64_t seed);
void lives_run(uint64_t seed);
void restarts_run(uint64_t seed);

#endif
