/* What checks of the nvme-tcp backend against nvme_target.py have beside fault_case.h. */
#ifndef TEST_NVME_CASE_H
#define TEST_NVME_CASE_H

#include "fault_case.h"
#include "net/session_look.h"
#include "nvme_peer.h"

#define CASE_SIZE_BYTES (2u << 20)
#define CASE_HOST_NQN "nqn.2026-01.org.example:host"

/*
 * The target, with "key=value" settings and "--option=value" arguments (may be ""). _ports: on so
 * many ports. Where one was killed, the next one takes its place.
 */
void case_serve(struct fault_case *c, const char *settings);
void case_serve_ports(struct fault_case *c, unsigned port_nr, const char *settings);

/* The device on it, with these options beside its address, a line each. _blocks: of that size. */
bool case_open(struct fault_case *c, const char *options);
bool case_open_blocks(struct fault_case *c, const char *options, uint32_t block_bytes,
		      unsigned queue_nr);
/* The same, which must fail with these words, a POSIX extended regular expression. */
void case_refuses(struct fault_case *c, const char *options, const char *words);

/* Connection `idx` of queue 0. */
struct net_connection_look case_look(const struct fault_case *c, unsigned idx);
/* Turns until connection `idx` has been made that often and is there; false, and told, if not. */
bool case_connected(struct fault_case *c, unsigned idx, uint64_t connects);

/* One I/O of `bytes` with this tag of queue 0, at its own place. */
struct rig_io *case_submit(struct fault_case *c, unsigned tag, enum backend_op op, uint32_t bytes);

/*
 * A fault of the target that strikes so often, after so many occasions. cmd: of this command only,
 * "any", or NULL: of a connection.
 */
void case_fault(struct fault_case *c, const char *fault, unsigned times, const char *cmd,
		unsigned after);
/* Does I/Os until a fault has struck as often as it was to; all must succeed. */
bool case_strike(struct fault_case *c, const char *fault);

/* The groups of checks. */
void bad_pdus_run(uint64_t seed);
void cuts_run(uint64_t seed);
void refusals_run(uint64_t seed);
void changes_run(uint64_t seed);
void outages_run(uint64_t seed);
void statuses_run(uint64_t seed);
void paths_run(uint64_t seed);
void limits_run(uint64_t seed);
void abandon_run(uint64_t seed);

#endif
