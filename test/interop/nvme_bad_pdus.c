/*
 * What no target may send. Each must end its connection with the reason, and what was not answered
 * is sent again; no byte is ever wrong. On the I/O queue under load, on the admin queue while it
 * serves, and while a queue is brought up.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvme_case.h"

/* A slow machine takes its time, also for the bring-up. */
#define TIMEOUT "timeout: 2s\n"
#define QUEUE "on_disconnect: {queue: 60s}\n" TIMEOUT
#define DIGESTS "header_digest: true\ndata_digest: true\n"

#define UNKNOWN "for command 0x[0-9a-f]+, which is not under way"

struct bad_pdu {
	const char *fault, *cmd;
	enum net_end end;
	const char *words;
	bool invites; /* data that the target then does not want: it may count them */
};

static const struct bad_pdu bad_pdus[] = {
	{ "hangup", "read", NET_END_CLOSED, "ECONNRESET", false },
	{ "hangup", "write", NET_END_CLOSED, "ECONNRESET|EPIPE", false },
	{ "stall", "read", NET_END_SILENT, "no answer to read for 2000 ms", false },
	{ "r2t_stall", "write", NET_END_SILENT, "no answer to write for 2000 ms", false },
	{ "half_header", "any", NET_END_CLOSED, "ECONNRESET|EPIPE", false },
	{ "half_silent", "any", NET_END_SILENT, "no answer to [a-z_]+ for 2000 ms", false },
	{ "term_req", "any", NET_END_PROTOCOL, "C2HTermReq 1", false },
	{ "wrong_cid", "any", NET_END_PROTOCOL, "CapsuleResp " UNKNOWN, false },
	{ "double_completion", "read", NET_END_PROTOCOL, "CapsuleResp " UNKNOWN, false },
	{ "double_completion", "write", NET_END_PROTOCOL, "CapsuleResp " UNKNOWN, false },
	{ "success_early", "read", NET_END_PROTOCOL, "succeeded, with [0-9]+ bytes of", false },
	{ "success_early", "write", NET_END_PROTOCOL, "succeeded, before all of its", false },
	{ "oversize_pdu", "read", NET_END_PROTOCOL, "(CapsuleResp|C2HData) of [0-9]+ bytes",
	  false },
	{ "oversize_pdu", "write", NET_END_PROTOCOL, "CapsuleResp of [0-9]+ bytes instead", false },
	{ "unknown_pdu", "any", NET_END_PROTOCOL, "a PDU of unknown type 0x42", false },
	{ "bad_hlen", "any", NET_END_PROTOCOL, "with HLEN [0-9]+ instead of", false },
	{ "bad_pdo", "read", NET_END_PROTOCOL, "C2HData with PDO", false },
	{ "bad_flags", "any", NET_END_PROTOCOL, "with a header digest, which was not", false },
	{ "data_outside", "read", NET_END_PROTOCOL, "C2HData of .* of a buffer of", false },
	{ "data_short", "read", NET_END_PROTOCOL, "succeeded, with [0-9]+ bytes of", false },
	{ "data_twice", "read", NET_END_PROTOCOL, "C2HData at 0, the next ones are at", false },
	{ "data_gap", "read", NET_END_PROTOCOL, "the next ones are at 0", false },
	{ "data_zero", "read", NET_END_PROTOCOL, "C2HData (of 0 bytes|with PDO 0)", false },
	{ "data_unknown_cid", "read", NET_END_PROTOCOL, "C2HData " UNKNOWN, false },
	{ "data_to_write", "write", NET_END_PROTOCOL, "C2HData .*, which reads no data", false },
	{ "r2t_too_long", "write", NET_END_PROTOCOL, "R2T for .* of a buffer of", false },
	{ "r2t_outside", "write", NET_END_PROTOCOL, "R2T for .* of a buffer of", false },
	{ "r2t_unknown_cid", "write", NET_END_PROTOCOL, "R2T " UNKNOWN, false },
	{ "r2t_zero", "write", NET_END_PROTOCOL, "R2T for 0 bytes", false },
	{ "r2t_twice", "write", NET_END_PROTOCOL, "R2T for bytes at 0, the next|C2HTermReq", true },
	{ "r2t_too_many", "write", NET_END_PROTOCOL, "R2T number 2 under way|C2HTermReq", true },
	{ "r2t_for_read", "read", NET_END_PROTOCOL, "R2T .*, which sends no data", false },
	{ "icresp_again", "any", NET_END_PROTOCOL, "ICResp for the second time", false },
};

/* With digests; and the command fails alone where only its data are wrong. */
static const struct bad_pdu bad_digests[] = {
	{ "bad_hdgst", "read", NET_END_PROTOCOL, "with header digest 0x", false },
	{ "bad_hdgst", "write", NET_END_PROTOCOL, "with header digest 0x", false },
	{ "bad_flags", "any", NET_END_PROTOCOL, "without a header digest, which was agreed",
	  false },
	{ "data_gap", "read", NET_END_PROTOCOL, "the next ones are at 0", false },
};

#define STRIKES 2

static void check_bad_pdu(struct fault_case *c, const struct bad_pdu *bad, const char *options)
{
	struct net_connection_look look;

	/* With Abort a silent command ends alone. */
	case_serve(c, "abort=0");
	if (!case_open(c, options))
		return;
	case_works(c, 20);
	/* One at a time: two could strike one connection. */
	for (unsigned i = 0; i < STRIKES; i++) {
		case_fault(c, bad->fault, 1, bad->cmd, 5);
		if (!case_strike(c, bad->fault) || !case_connected(c, 0, i + 2))
			return;
	}
	look = case_look(c, 0);
	EXPECT(look.ends[bad->end] >= STRIKES, "%llu times",
	       (unsigned long long)look.ends[bad->end]);
	EXPECT(look.lost >= STRIKES, "lost %llu times", (unsigned long long)look.lost);
	EXPECT(look.connects > STRIKES, "made %llu times", (unsigned long long)look.connects);
	EXPECT(look.resent >= STRIKES, "%llu sent again", (unsigned long long)look.resent);
	case_logged(bad->words);
	EXPECT(bad->invites || nvme_peer_count(&c->peer, "violations") == 0, "the client's fault");
	EXPECT(case_survives(c, 40) == 0, "afterwards");
}

static void check_plain(struct fault_case *c, const void *arg)
{
	check_bad_pdu(c, arg, QUEUE);
}

static void check_with_digests(struct fault_case *c, const void *arg)
{
	check_bad_pdu(c, arg, QUEUE DIGESTS);
}

/* Of one READ: no byte of it is believed, the connection is as good as before. */
static void check_data_digest(struct fault_case *c, const void *arg)
{
	struct net_connection_look look;
	uint64_t reads;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE DIGESTS))
		return;
	case_works(c, 20);
	nvme_peer_tell(&c->peer, "set bad_ddgst=5:after=5");
	if (!case_strike(c, "bad_ddgst"))
		return;
	reads = nvme_peer_count(&c->peer, "commands.read");
	nvme_peer_tell(&c->peer, "set bad_ddgst=always");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "wrong data is taken");
	reads = nvme_peer_count(&c->peer, "commands.read") - reads;
	EXPECT(reads == 6, "%llu tries", (unsigned long long)reads);
	nvme_peer_tell(&c->peer, "faults none");
	case_works(c, 20);
	look = case_look(c, 0);
	EXPECT(look.connects == 1 && look.lost == 0, "the connection was lost");
	case_logged("command=read status=\"Transient Transport Error");
}

/* A command that is not answered ends by Abort, and is tried again: the connection stays. */
static void check_abort(struct fault_case *c, const void *arg)
{
	case_serve(c, "");
	if (!case_open(c, QUEUE))
		return;
	case_works(c, 20);
	case_fault(c, arg, 1, "any", 5);
	if (!case_strike(c, arg))
		return;
	EXPECT(nvme_peer_count(&c->peer, "commands.abort") == 1, "no Abort");
	EXPECT(case_look(c, 0).connects == 1, "the connection was lost");
	EXPECT(case_survives(c, 40) == 0, "afterwards");
}

/* One that fails at once takes nobody with it but those that were with the connection. */
static void check_fail(struct fault_case *c, const void *arg)
{
	const struct bad_pdu *bad = arg;
	uint64_t failed_nr = 0;

	case_serve(c, "");
	if (!case_open(c, "on_disconnect: fail\n" TIMEOUT))
		return;
	if (!case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	case_fault(c, bad->fault, 1, bad->cmd, 5);
	for (int i = 0; i < 20 && failed_nr == 0; i++)
		failed_nr += case_survives(c, 40);
	EXPECT(failed_nr > 0, "no request failed");
	case_logged(bad->words);
	if (case_connected(c, 0, 2))
		case_works(c, 40);
}

/* ---- the admin queue ---- */

struct bad_admin {
	const char *fault, *cmd;
	const char *words;
};

static const struct bad_admin of_bring_up[] = {
	{ "hangup", "connect", "instead of an answer to Connect|during Connect of the I/O queue" },
	{ "stall", "connect", "does not answer to Connect in time|took too long" },
	{ "wrong_cid", "property_get", "CapsuleResp " UNKNOWN },
	{ "hangup", "property_set", "ended while the target was asked for Property Set CC" },
	{ "data_short", "identify", "Identify Controller with 2048 bytes of 4096" },
	{ "data_outside", "identify", "C2HData of .* of a buffer of" },
	{ "data_gap", "identify", "the next ones are at 0" },
	{ "half_header", "identify", "ended while the target was asked for Identify" },
	{ "half_silent", "set_features", "does not answer to Set Features|took too long" },
	{ "term_req", "set_features", "C2HTermReq 1" },
	{ "unknown_pdu", "connect", "unknown type 0x42" },
	{ "oversize_pdu", "identify", "C2HData of [0-9]+ bytes" },
	{ "icresp_silent", NULL, "took too long|does not answer to ICReq" },
	{ "icresp_garbage", NULL, "what answers is no NVMe/TCP target" },
	{ "accept_close", NULL, "during ICReq of the I/O queue|instead of an answer to ICReq" },
};

/* Twice in a row, of whichever connection; requests wait. */
static void check_bring_up(struct fault_case *c, const void *arg)
{
	const struct bad_admin *bad = arg;
	char struck[64];

	case_serve(c, "");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	case_fault(c, bad->fault, 2, bad->cmd, 0);
	nvme_peer_tell(&c->peer, "drop");
	case_submit_all(c, BACKEND_READ, 4096);
	snprintf(struck, sizeof(struck), "struck.%s", bad->fault);
	if (!case_reaches(c, struck, 2, 60000) || !case_drain(c, 60000))
		return;
	case_expect_all(c, 0);
	case_logged(bad->words);
	EXPECT(case_look(c, 0).failed_tries >= 1, "no try failed");
	EXPECT(case_look(c, 0).resent <= CASE_DEPTH, "sent again more than once");
	case_works(c, 20);
}

/* One turn hears both: that the I/O connection is lost, and that the admin queue is ready. */
static void check_lost_when_ready(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "delay_ms=10");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	for (unsigned i = 0; i < 10; i++) {
		uint64_t asked = nvme_peer_count(&c->peer, "commands.set_features"), answers;

		nvme_peer_tell(&c->peer, "drop");
		/* The last question of the admin queue; its answer is delayed. */
		while (nvme_peer_count(&c->peer, "commands.set_features") < asked + 2)
			reactor_turn(&c->rig.queue[0].reactor, false);
		answers = nvme_peer_count(&c->peer, "responses");
		nvme_peer_tell(&c->peer, "drop 0");
		nvme_peer_tell(&c->peer, "wait responses %llu", (unsigned long long)answers + 1);
		if (!case_connected(c, 0, i + 2))
			return;
	}
	nvme_peer_tell(&c->peer, "set delay_ms=0");
	case_works(c, 20);
}

/* The end of the admin connection is the end of both. */
static const struct bad_admin of_service[] = {
	{ "hangup", "keep_alive", "the target closed the admin connection|ECONNRESET" },
	/* Or the target has heard nothing for so long: both count from the same question. */
	{ "stall", "keep_alive",
	  "no answer to Keep Alive for 1000 ms|the target closed the admin connection" },
	{ "wrong_cid", "keep_alive", "CapsuleResp " UNKNOWN },
	{ "bad_hlen", "keep_alive", "with HLEN [0-9]+ instead of" },
	{ "term_req", "keep_alive", "C2HTermReq 1" },
	{ "half_header", "keep_alive", "the target closed the admin connection|ECONNRESET" },
	{ "data_outside", "get_log_page", "C2HData of .* of a buffer of" },
	{ "stall", "get_log_page", "no answer to an admin command for 2000 ms" },
};

static void check_service(struct fault_case *c, const void *arg)
{
	const struct bad_admin *bad = arg;
	struct net_connection_look look;
	char struck[64];

	case_serve(c, "");
	if (!case_open(c, QUEUE "keep_alive: 1s") || !case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	case_fault(c, bad->fault, 1, bad->cmd, 0);
	if (strcmp(bad->cmd, "get_log_page") == 0)
		nvme_peer_tell(&c->peer, "notify namespace");
	snprintf(struck, sizeof(struck), "struck.%s", bad->fault);
	if (!case_reaches(c, struck, 1, 60000) || !case_connected(c, 0, 2))
		return;
	case_logged(bad->words);
	look = case_look(c, 0);
	EXPECT(look.lost == 1, "lost %llu times", (unsigned long long)look.lost);
	/* One association: the target has seen the end of both connections. */
	if (case_reaches(c, "open", 2, 10000))
		case_works(c, 40);
	EXPECT(nvme_peer_count(&c->peer, "controllers") == 1, "controllers are left");
}

static void run_table(const char *what, const struct bad_pdu *table, unsigned nr, fault_case_fn *fn,
		      uint64_t seed)
{
	char name[128];

	for (unsigned i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "%s: %s: %s", what, table[i].cmd, table[i].fault);
		fault_case_run(name, 60, seed, fn, &table[i]);
	}
}

static void run_admin(const char *what, const struct bad_admin *table, unsigned nr,
		      fault_case_fn *fn, uint64_t seed)
{
	char name[128];

	for (unsigned i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "%s: %s: %s", what,
			 table[i].cmd ? table[i].cmd : "connection", table[i].fault);
		fault_case_run(name, 60, seed, fn, &table[i]);
	}
}

void bad_pdus_run(uint64_t seed)
{
	run_table("bad", bad_pdus, ARRAY_SIZE(bad_pdus), check_plain, seed);
	run_table("bad with digests", bad_digests, ARRAY_SIZE(bad_digests), check_with_digests,
		  seed);
	fault_case_run("bad: a data digest fails one READ, which is tried again", 60, seed,
		       check_data_digest, NULL);
	fault_case_run("silent: a command ends by Abort", 60, seed, check_abort, "stall");
	fault_case_run("silent: a WRITE without R2T ends by Abort", 60, seed, check_abort,
		       "r2t_stall");
	run_table("bad, some fail", &bad_pdus[0], 1, check_fail, seed);
	run_table("bad, some fail", &bad_pdus[7], 1, check_fail, seed);
	run_admin("bring-up", of_bring_up, ARRAY_SIZE(of_bring_up), check_bring_up, seed);
	fault_case_run("bring-up: the I/O connection ends when the admin queue is ready", 60, seed,
		       check_lost_when_ready, NULL);
	run_admin("admin queue", of_service, ARRAY_SIZE(of_service), check_service, seed);
}
