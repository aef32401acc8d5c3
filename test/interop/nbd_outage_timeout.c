/*
 * on_disconnect {queue: TIME} where there are connections: servers that are back and answer
 * nothing, for how long what waits has outage timeout with them, and what becomes of what they have
 * then.
 */
#include <errno.h>
#include <stdio.h>

#include "base/util.h"
#include "nbd_case.h"

/* How long all of them take; 0, and told, if more than limit_ms. */
static uint64_t submit_and_drain(struct fault_case *c, unsigned limit_ms)
{
	uint64_t start_ms;

	case_turn_for(c, 1); /* a reactor's clock is that of its last turn */
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_READ, 4096);
	return case_drain(c, limit_ms) ? case_now_ms() - start_ms + 1 : 0;
}

static void comes_back(struct fault_case *c)
{
	nbd_peer_tell(&c->peer, "fault none");
	for (int i = 0; i < 400 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 50);
	case_works(c, 200);
}

struct never {
	const char *what, *fault;
	unsigned min_ms, max_ms; /* what was sent when it began fails after */
	unsigned again_ms;	 /* what comes then fails after, at most */
};

#define NEVER_WAIT "on_disconnect: {queue: 1s}\ntimeout: 1s\ncache: kept\nconnections: "

/* One that comes back each time only to answer nothing is not back. */
static void check_never(struct fault_case *c, const struct never *n, const char *options)
{
	uint64_t took_ms;

	case_serve(c, "");
	if (!case_open(c, options, 1))
		return;
	if (!case_connects(c))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault %s", n->fault);
	case_turn_for(c, 1);
	took_ms = submit_and_drain(c, n->max_ms);
	if (took_ms == 0)
		return;
	EXPECT(took_ms >= n->min_ms, "they failed after %llu ms", (unsigned long long)took_ms);
	case_expect_all(c, -EIO);
	EXPECT(nbd_peer_count(&c->peer, "connections") > 2, "there was one try");
	case_logged("requests fail until the server is back|is back and answers nothing");
	/* From then on nobody has outage timeout, until there is an answer. */
	for (int i = 0; i < 3; i++) {
		if (submit_and_drain(c, n->again_ms) == 0)
			return;
		case_expect_all(c, -EIO);
		case_turn_for(c, 100);
	}
	comes_back(c);
	/* Then there is outage timeout again, and nothing fails. */
	nbd_peer_tell(&c->peer, "fault hangup times=2");
	case_works(c, 100);
}

static void check_never_one(struct fault_case *c, const void *arg)
{
	check_never(c, arg, NEVER_WAIT "1");
}

static void check_never_two(struct fault_case *c, const void *arg)
{
	check_never(c, arg, NEVER_WAIT "2");
}

/* One request, which goes from one connection to the other: there never is none. */
static void check_never_without(struct fault_case *c, const void *arg)
{
	uint64_t start_ms, took_ms;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, NEVER_WAIT "2", 1))
		return;
	if (!case_connects(c))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault stall");
	case_turn_for(c, 1); /* requests begin by the reactor's clock, which stood still */
	start_ms = case_now_ms();
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "success without answer");
	took_ms = case_now_ms() - start_ms;
	EXPECT(took_ms >= 1900 && took_ms < 30000, "it failed after %llu ms",
	       (unsigned long long)took_ms);
	comes_back(c);
}

/*
 * Its first answer takes longer than requests wait, but it comes in time: no request fails. That
 * the server is back within the time that requests wait is the test's to see to: a busy machine
 * needs a part of it.
 */
static void check_slow(struct fault_case *c, const void *arg)
{
	uint64_t took_ms;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, "on_disconnect: {queue: 4s}\ntimeout: 60s\ncache: kept\nconnections: 1",
		       1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault slow seconds=6");
	nbd_peer_tell(&c->peer, "kick");
	took_ms = submit_and_drain(c, 60000);
	EXPECT(took_ms >= 5900, "it was not slow: %llu ms", (unsigned long long)took_ms);
	case_expect_all(c, 0);
	case_logged("is back and answers nothing: what it loses fails");
	/* That was an answer: the next loss is one of its own. */
	nbd_peer_tell(&c->peer, "fault none");
	nbd_peer_tell(&c->peer, "fault hangup times=1");
	case_works(c, 100);
}

/* What a busy machine takes to connect again must be less. */
#define IDLE_WAIT "3s"
#define IDLE_WAIT_MS 3000

/* Its connection is lost and back while nobody wants anything: that is no doubt about it. */
static void check_idle(struct fault_case *c, const void *arg)
{
	uint64_t connections;

	case_serve(c, "");
	if (!case_open(c, arg, 1))
		return;
	if (!case_connects(c))
		return;
	case_works(c, 50);
	connections = nbd_peer_count(&c->peer, "connections");
	nbd_peer_tell(&c->peer, "kick");
	if (!case_reaches(c, "connections", connections + 1, 60000))
		return;
	case_turn_for(c, IDLE_WAIT_MS + 500);
	nbd_peer_tell(&c->peer, "fault hangup times=1");
	if (submit_and_drain(c, 60000) == 0)
		return;
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "the server had no occasion for it");
	case_expect_all(c, 0);
}

void outage_timeout_run(uint64_t seed)
{
	/* What was on its way is found lost after the timeout, and may be on its way at the end. */
	static const struct never never[] = {
		{ "refuses", "error error=ESHUTDOWN", 1000, 30000, 30000 },
		{ "hangs up", "hangup", 1000, 30000, 30000 },
		{ "is silent", "stall", 2000, 30000, 30000 },
		{ "reads nothing", "deaf", 2000, 30000, 30000 },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(never); i++) {
		snprintf(name, sizeof(name), "outage: a server that %s, one connection",
			 never[i].what);
		fault_case_run(name, 60, seed, check_never_one, &never[i]);
		snprintf(name, sizeof(name), "outage: a server that %s, two connections",
			 never[i].what);
		fault_case_run(name, 60, seed, check_never_two, &never[i]);
	}
	fault_case_run("outage: a server that is silent, one of two connections is always there",
		       20, seed, check_never_without, NULL);
	fault_case_run("outage: slow is not silent", 60, seed, check_slow, NULL);
	fault_case_run("outage: a loss that nobody has seen, one connection", 60, seed, check_idle,
		       "on_disconnect: {queue: " IDLE_WAIT "}\ncache: kept\nconnections: 1");
	fault_case_run("outage: a loss that nobody has seen, two connections", 60, seed, check_idle,
		       "on_disconnect: {queue: " IDLE_WAIT "}\ncache: kept\nconnections: 2");
}
