/*
 * A target that is away, or silent: what on_disconnect says becomes of requests, whatever they are
 * doing then; cancelling; keep alive.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvme_case.h"

#define QUEUE "on_disconnect: {queue: 60s}\ntimeout: 5s\n"

/* What the core makes of -ECANCELED. */
#define CANCELLED (-EIO)

static void go_away(struct fault_case *c)
{
	nvme_peer_tell(&c->peer, "stop-listening");
	nvme_peer_tell(&c->peer, "drop");
}

/* The first connection is made, and has answered something. */
static bool begin(struct fault_case *c, const char *settings, const char *options)
{
	case_serve(c, settings);
	if (!case_open(c, options) || !case_connected(c, 0, 1))
		return false;
	case_works(c, 20);
	return !tap_failed();
}

/* Longer than a try may be silent, with this policy: the controller says that it is not ready yet.
 */
static void check_slow_ready(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", "on_disconnect: {queue: 8s}\ntimeout: 5s\n"))
		return;
	nvme_peer_tell(&c->peer, "set ready_ms=3500");
	nvme_peer_tell(&c->peer, "drop");
	case_turn_for(c, 1);
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, 0);
	EXPECT(case_look(c, 0).failed_tries == 0, "%" PRIu64 " tries failed",
	       case_look(c, 0).failed_tries);
}

/* ---- the policies ---- */

static void check_waits(struct fault_case *c, const void *arg)
{
	const enum backend_op *op = arg;

	if (!begin(c, "", QUEUE))
		return;
	go_away(c);
	case_submit_all(c, *op, 16384);
	case_turn_for(c, 400);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	EXPECT(strcmp(case_look(c, 0).state, "connected") != 0, "connected");
	EXPECT(case_look(c, 0).ends[NET_END_UNREACHABLE] > 0, "it was not tried again");
	nvme_peer_tell(&c->peer, "listen");
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, 0);
	case_forget(c);
	case_works(c, 20);
}

struct policy {
	const char *options;
	unsigned min_ms, max_ms;
};

static void expect_back(struct fault_case *c)
{
	for (int i = 0; i < 1000 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 20);
	case_works(c, 20);
}

static void check_gives_up(struct fault_case *c, const void *arg)
{
	const struct policy *p = arg;
	uint64_t start_ms, took_ms;

	if (!begin(c, "", p->options))
		return;
	go_away(c);
	case_turn_for(c, 1);
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	took_ms = case_now_ms() - start_ms;
	EXPECT(took_ms >= p->min_ms && took_ms <= p->max_ms, "after %llu ms",
	       (unsigned long long)took_ms);
	case_expect_all(c, -EIO);
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_WRITE, 4096);
	EXPECT(rig_out_nr(&c->rig) == 0, "%u are out", rig_out_nr(&c->rig));
	case_expect_all(c, -EIO);
	nvme_peer_tell(&c->peer, "listen");
	case_forget(c);
	expect_back(c);
}

/* Nobody answers, neither what was sent nor who comes anew. */
static void check_silent(struct fault_case *c, const void *arg)
{
	uint64_t start_ms;

	(void)arg;
	if (!begin(c, "", "on_disconnect: {queue: 2s}\ntimeout: 1s\nkeep_alive: 0s"))
		return;
	nvme_peer_tell(&c->peer, "pause");
	case_turn_for(c, 1);
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	EXPECT(case_now_ms() - start_ms >= 3000, "after %llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
	case_expect_all(c, -EIO);
	EXPECT(case_look(c, 0).ends[NET_END_SILENT] >= 2, "ended otherwise");
	nvme_peer_tell(&c->peer, "resume");
	expect_back(c);
}

/* ---- cancel ---- */

static struct rig_io *io(struct fault_case *c, unsigned tag)
{
	return &c->rig.queue[0].io[tag];
}

static void expect_result(struct fault_case *c, unsigned tag, int result)
{
	EXPECT(io(c, tag)->io.result == result, "tag %u: %d", tag, io(c, tag)->io.result);
}

static void check_cancel_held(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", QUEUE))
		return;
	go_away(c);
	case_turn_for(c, 100);
	case_submit_all(c, BACKEND_WRITE, 16384);
	for (unsigned tag = 0; tag < CASE_DEPTH; tag += 2)
		backend_io_cancel(&io(c, tag)->io);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH / 2, "%u are left", rig_out_nr(&c->rig));
	nvme_peer_tell(&c->peer, "listen");
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		expect_result(c, tag, tag & 1 ? 0 : CANCELLED);
	case_forget(c);
	case_works(c, 20);
}

/* Of those that are with the connection only one ends: the others are sent again. */
static void check_cancel_sent(struct fault_case *c, const void *arg)
{
	const struct {
		const char *fault;
		enum backend_op op;
	} *a = arg;
	char struck[64];

	if (!begin(c, "", QUEUE))
		return;
	case_fault(c, a->fault, CASE_DEPTH, "any", 0);
	case_submit_all(c, a->op, 16384);
	snprintf(struck, sizeof(struck), "struck.%s", a->fault);
	if (!case_reaches(c, struck, CASE_DEPTH, 60000))
		return;
	backend_io_cancel(&io(c, 3)->io);
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		expect_result(c, tag, tag == 3 ? CANCELLED : 0);
	EXPECT(case_look(c, 0).ends[NET_END_CANCELLED] == 1, "ended otherwise");
	EXPECT(case_look(c, 0).resent == CASE_DEPTH - 1, "%llu sent again",
	       (unsigned long long)case_look(c, 0).resent);
	case_logged("a request was cancelled");
	case_forget(c);
	case_works(c, 20);
}

/* The target wants them again after 20 s; the connection has nothing to do with it. */
static void check_cancel_retry(struct fault_case *c, const void *arg)
{
	struct backend_wait wait;

	(void)arg;
	if (!begin(c, "crdt=200", QUEUE))
		return;
	nvme_peer_tell(&c->peer, "set status=read:0:0x82:crd=2:count=%u", CASE_DEPTH);
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_reaches(c, "struck.status", CASE_DEPTH, 60000))
		return;
	case_turn_for(c, 100);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	wait = c->rig.queue[0].queue->device->ops->wait(&io(c, 0)->io);
	EXPECT(wait.words && strstr(wait.words, "as the target wants it"), "%s",
	       wait.words ? wait.words : "nothing");
	case_cancel_all(c);
	EXPECT(rig_out_nr(&c->rig) == 0, "%u are left", rig_out_nr(&c->rig));
	case_expect_all(c, CANCELLED);
	EXPECT(case_look(c, 0).lost == 0, "the connection was dropped");
	case_works(c, 20);
}

/* A retry that falls into an outage waits for its end, as everything does. */
static void check_retry_away(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "crdt=3", QUEUE))
		return;
	nvme_peer_tell(&c->peer, "set status=read:0:0x82:crd=1:count=%u", CASE_DEPTH);
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_reaches(c, "struck.status", CASE_DEPTH, 60000))
		return;
	case_turn_for(c, 20);
	go_away(c);
	case_turn_for(c, 600);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	nvme_peer_tell(&c->peer, "listen");
	if (case_drain(c, 60000))
		case_expect_all(c, 0);
}

/* ---- keep alive ---- */

/* Half of it until the question, all of it for the answer. */
static void check_keep_alive(struct fault_case *c, const void *arg)
{
	uint64_t start_ms, took_ms;

	(void)arg;
	if (!begin(c, "", QUEUE "keep_alive: 1s"))
		return;
	case_turn_for(c, 2500);
	EXPECT(case_look(c, 0).connects == 1, "it was lost");
	EXPECT(nvme_peer_count(&c->peer, "kato_expired") == 0, "the target heard nothing");
	EXPECT(nvme_peer_count(&c->peer, "commands.keep_alive") >= 3, "%llu times",
	       (unsigned long long)nvme_peer_count(&c->peer, "commands.keep_alive"));
	nvme_peer_tell(&c->peer, "pause");
	start_ms = case_now_ms();
	while (case_look(c, 0).lost == 0 && case_now_ms() < start_ms + 20000)
		case_turn_for(c, 10);
	took_ms = case_now_ms() - start_ms;
	/* The question may have been on its way when the target fell silent. */
	EXPECT(took_ms >= 400 && took_ms < 10000, "given up after %llu ms",
	       (unsigned long long)took_ms);
	EXPECT(case_look(c, 0).last_end == NET_END_SILENT, "%d", case_look(c, 0).last_end);
	case_logged("no answer to Keep Alive for 1000 ms");
	nvme_peer_tell(&c->peer, "resume");
	if (case_connected(c, 0, 2))
		case_works(c, 20);
}

static void check_no_keep_alive(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", QUEUE "keep_alive: 0s"))
		return;
	case_turn_for(c, 1500);
	EXPECT(nvme_peer_count(&c->peer, "commands.keep_alive") == 0, "asked");
	EXPECT(case_look(c, 0).connects == 1, "it was lost");
}

void outages_run(uint64_t seed)
{
	static const enum backend_op ops[] = { BACKEND_READ, BACKEND_WRITE, BACKEND_FLUSH,
					       BACKEND_DISCARD, BACKEND_WRITE_ZEROES };
	static const struct policy policies[] = {
		{ "on_disconnect: {queue: 1s}\ntimeout: 5s", 900, 10000 },
		{ "on_disconnect: fail\ntimeout: 5s", 0, 900 },
	};
	static const struct {
		const char *fault;
		enum backend_op op;
	} sent[] = { { "stall", BACKEND_READ },
		     { "r2t_stall", BACKEND_WRITE },
		     { "stall", BACKEND_FLUSH } };
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		snprintf(name, sizeof(name), "away: %s waits until it is back",
			 backend_op_name(ops[i]));
		fault_case_run(name, 60, seed, check_waits, &ops[i]);
	}
	fault_case_run("back: the controller becomes ready slowly", 60, seed, check_slow_ready,
		       NULL);
	fault_case_run("away: longer than requests wait", 60, seed, check_gives_up, &policies[0]);
	fault_case_run("away: fail at once", 60, seed, check_gives_up, &policies[1]);
	fault_case_run("away: silent for longer than requests wait", 60, seed, check_silent, NULL);
	fault_case_run("cancel: what is held", 60, seed, check_cancel_held, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++) {
		snprintf(name, sizeof(name), "cancel: %s that is sent",
			 backend_op_name(sent[i].op));
		fault_case_run(name, 60, seed, check_cancel_sent, &sent[i]);
	}
	fault_case_run("cancel: what waits to be sent again", 60, seed, check_cancel_retry, NULL);
	fault_case_run("away: while it waits to be sent again", 60, seed, check_retry_away, NULL);
	fault_case_run("keep alive: silence without I/O", 60, seed, check_keep_alive, NULL);
	fault_case_run("keep alive: none", 60, seed, check_no_keep_alive, NULL);
}
