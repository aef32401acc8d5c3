/* What checks of the NBD backend against nbd_server.py have beside fault_case.h. */
#ifndef TEST_NBD_CASE_H
#define TEST_NBD_CASE_H

#include "fault_case.h"
#include "nbd_peer.h"

/* The server, with "key=value" settings (may be ""). */
void case_serve(struct fault_case *c, const char *settings);

/*
 * The device on it, with these options beside `uri`, a line each; and the model of what it holds.
 * _with: from the URI on.
 */
bool case_open(struct fault_case *c, const char *options, unsigned queue_nr);
bool case_open_with(struct fault_case *c, const char *uri, const char *options,
		    uint32_t block_bytes, unsigned queue_nr);

/*
 * One connection after the other is lost by what the server was told to do, while I/Os (READs, now
 * and then FLUSHes) are under way; until that has happened to all, and all link_nr connections are
 * back and have proved themselves. Every I/O must succeed. False, and told, if not.
 */
bool case_strike_out(struct fault_case *c, unsigned conn_nr);

/* The groups of checks. */
void bad_replies_run(uint64_t seed);
void disconnects_run(uint64_t seed);
void changes_run(uint64_t seed);
void outage_timeout_run(uint64_t seed);
void lives_run(uint64_t seed);
void restarts_run(uint64_t seed);

#endif
