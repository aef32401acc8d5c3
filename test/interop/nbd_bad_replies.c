/*
 * Replies that no server may send, and those that are allowed but odd. Each bad one must end its
 * connection with the reason in the log; what was not answered is sent again (`queue`) or fails
 * (`fail`); no byte is ever wrong.
 */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nbd_case.h"

#define QUEUE "on_disconnect: {queue: 30s}\ncache: kept\nconnections: 1"
#define FAIL "on_disconnect: fail\ncache: kept\nconnections: 1"

struct bad_reply {
	const char *fault;
	const char *words; /* in the log */
	const char *only;  /* the one command that it can strike, or NULL */
};

static const struct bad_reply any_mode[] = {
	{ "bad-magic", "a reply with magic 0x12345678", NULL },
	{ "cookie-unknown", "a reply to nothing that waits", NULL },
	{ "cookie-free", "a reply to nothing that waits", NULL },
	{ "half-header", "clos|hung up|reset|lost", NULL },
	{ "hangup", "clos|hung up|reset|lost", NULL },
};

static const struct bad_reply in_chunks[] = {
	{ "twice", "a reply to nothing that waits", NULL },
	{ "half-payload", "clos|hung up|reset|lost", "read" },
	{ "chunk-outside", "outside its READ", "read" },
	{ "chunk-before", "outside its READ", "read" },
	{ "chunk-overlap", "came twice", "read" },
	{ "chunk-oversize", "outside its READ", "read" },
	{ "chunk-huge", "outside its READ", "read" },
	{ "chunk-missing", "without all of its data", "read" },
	{ "chunk-empty", "OFFSET_DATA of 8 bytes", "read" },
	{ "chunk-unknown", "unknown type 77", NULL },
	{ "chunk-status", "in answer to READ", "read" },
	{ "hole-empty", "a hole of 0 bytes", "read" },
	{ "hole-oversize", "outside its READ", "read" },
	{ "error-text-long", "an error text of 4000 bytes", NULL },
	{ "error-huge", "an error chunk .* of 2147483648 bytes", NULL },
	{ "error-zero", "an error chunk with error 0", NULL },
	{ "error-outside", "outside its", "read" },
	{ "error-endless", "more than 16 error chunks", NULL },
};

static const struct bad_reply structured_only[] = {
	{ "simple-to-read", "a simple reply to READ", "read" },
};

static const struct bad_reply extended_only[] = {
	{ "simple-to-read", "a reply with magic 0x67446698", "read" },
};

struct bad_reply_arg {
	const struct bad_reply *bad;
	const char *settings;
};

static void strike(struct fault_case *c, const struct bad_reply *bad, unsigned times)
{
	nbd_peer_tell(&c->peer, "fault %s after=20 times=%u", bad->fault, times);
}

/* Three times in the middle of a run, which never notices. */
static void check_queue(struct fault_case *c, const void *arg)
{
	const struct bad_reply_arg *a = arg;
	uint64_t before;

	case_serve(c, a->settings);
	if (!case_open(c, QUEUE, 1))
		return;
	case_works(c, 50);
	before = nbd_peer_count(&c->peer, "connections");
	strike(c, a->bad, 3);
	for (int i = 0; i < 20 && nbd_peer_count(&c->peer, "left") > 0; i++)
		case_works(c, 100);
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "the server had no occasion for it");
	EXPECT(nbd_peer_count(&c->peer, "connections") > before, "the client did not hang up");
	case_logged(a->bad->words);
}

/* Once: some fail, soon; then all is as before. */
static void check_fail(struct fault_case *c, const void *arg)
{
	const struct bad_reply_arg *a = arg;
	uint64_t failed_nr = 0, start_ms;

	case_serve(c, a->settings);
	if (!case_open(c, FAIL, 1))
		return;
	case_works(c, 50);
	strike(c, a->bad, 1);
	start_ms = case_now_ms();
	for (int i = 0; i < 20 && failed_nr == 0; i++)
		failed_nr += case_survives(c, 100);
	EXPECT(failed_nr > 0, "no request failed");
	EXPECT(case_now_ms() - start_ms < 20000, "%llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
	case_logged(a->bad->words);
	for (int i = 0; i < 100 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 50);
	case_works(c, 200);
}

/* What fails does not depend on how replies are framed: in one mode is enough. */
static void run_table(const struct bad_reply *table, unsigned nr, const char *mode,
		      const char *settings, uint64_t seed)
{
	char name[128];

	for (unsigned i = 0; i < nr; i++) {
		struct bad_reply_arg arg = { &table[i], settings };

		snprintf(name, sizeof(name), "%s: %s: all is sent again", mode, table[i].fault);
		fault_case_run(name, 60, seed, check_queue, &arg);
		if (settings[0] != '\0')
			continue;
		snprintf(name, sizeof(name), "%s: %s: some fail", mode, table[i].fault);
		fault_case_run(name, 60, seed, check_fail, &arg);
	}
}

/* ---- allowed ---- */

struct odd_arg {
	const char *fault;
	unsigned io_nr;
};

/* No reason to hang up, and none to fail. */
static void check_odd(struct fault_case *c, const void *arg)
{
	const struct odd_arg *a = arg;
	uint64_t before;

	case_serve(c, "");
	if (!case_open(c, QUEUE, 1))
		return;
	case_works(c, 50);
	before = nbd_peer_count(&c->peer, "connections");
	nbd_peer_tell(&c->peer, "fault %s", a->fault);
	case_works(c, a->io_nr);
	EXPECT(nbd_peer_count(&c->peer, "struck") > 0, "the server had no occasion for it");
	EXPECT(nbd_peer_count(&c->peer, "connections") == before, "the client hung up");
}

/* May be taken or not: what was answered before it was said must not be lost. */
static void check_early(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE, 1))
		return;
	nbd_peer_tell(&c->peer, "fault early after=10 times=20");
	for (int i = 0; i < 20 && nbd_peer_count(&c->peer, "left") > 0; i++)
		case_works(c, 100);
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "the server had no occasion for it");
}

struct error_arg {
	const char *name;
	int result;
};

/* An error that is told as it should be is one request's, and not the connection's. */
static void check_error(struct fault_case *c, const void *arg)
{
	static const enum backend_op ops[] = { BACKEND_READ, BACKEND_WRITE, BACKEND_FLUSH,
					       BACKEND_DISCARD, BACKEND_WRITE_ZEROES };
	static const char *const cmds[] = { "read", "write", "flush", "trim", "write_zeroes" };
	const struct error_arg *a = arg;
	uint64_t before;

	case_serve(c, "");
	if (!case_open(c, QUEUE, 1))
		return;
	case_works(c, 50);
	before = nbd_peer_count(&c->peer, "connections");
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		uint32_t bytes = ops[i] == BACKEND_FLUSH ? 0 : 4096;
		int ret;

		nbd_peer_tell(&c->peer, "fault error cmd=%s error=%s times=1", cmds[i], a->name);
		ret = rig_do(&c->rig, ops[i], 0, 0, bytes, NULL);
		EXPECT(ret == a->result, "%s: %d, not %d", cmds[i], ret, a->result);
		EXPECT(nbd_peer_count(&c->peer, "left") == 0, "%s was not sent", cmds[i]);
		EXPECT(rig_do(&c->rig, ops[i], 0, 0, bytes, NULL) == 0, "%s after it", cmds[i]);
	}
	EXPECT(nbd_peer_count(&c->peer, "connections") == before, "the client hung up");
}

static void run_allowed(uint64_t seed)
{
	static const struct odd_arg odd[] = {
		{ "fragments", 500 },
		{ "reorder", 500 },
		{ "slow seconds=0.05", 500 },
		{ "trickle after=5 times=30 cmd=write", 300 },
	};
	static const struct error_arg errors[] = {
		{ "EIO", -5 }, { "ENOSPC", -28 }, { "EPERM", -5 }, { "EINVAL", -5 }
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
		snprintf(name, sizeof(name), "odd: %s: goes on", odd[i].fault);
		fault_case_run(name, 60, seed, check_odd, &odd[i]);
	}
	fault_case_run("odd: a WRITE is answered before its data has come", 60, seed, check_early,
		       NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		snprintf(name, sizeof(name), "error: %s is of one request", errors[i].name);
		fault_case_run(name, 60, seed, check_error, &errors[i]);
	}
}

void bad_replies_run(uint64_t seed)
{
	run_table(any_mode, ARRAY_SIZE(any_mode), "simple", "structured=0", seed);
	run_table(any_mode, ARRAY_SIZE(any_mode), "structured", "", seed);
	run_table(in_chunks, ARRAY_SIZE(in_chunks), "structured", "", seed);
	run_table(structured_only, ARRAY_SIZE(structured_only), "structured", "", seed);
	run_table(any_mode, ARRAY_SIZE(any_mode), "extended", "extended=1", seed);
	run_table(in_chunks, ARRAY_SIZE(in_chunks), "extended", "extended=1", seed);
	run_table(extended_only, ARRAY_SIZE(extended_only), "extended", "extended=1", seed);
	run_allowed(seed);
}
