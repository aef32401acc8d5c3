/*
 * Commands that the target ends with an error: tried again or not, after how long, and the errno of
 * each; a namespace that goes and comes back.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvme_case.h"

#define QUEUE "on_disconnect: {queue: 60s}\ntimeout: 5s\n"

static bool begin(struct fault_case *c, const char *settings, const char *options)
{
	case_serve(c, settings);
	if (!case_open(c, options) || !case_connected(c, 0, 1))
		return false;
	case_works(c, 20);
	return !tap_failed();
}

struct status {
	const char *status;
	enum backend_op op;
	const char *command;
	int result;
	unsigned tries;
};

/* Of which only one has to do with the errors; the connection has not. */
static void check_status(struct fault_case *c, const void *arg)
{
	const struct status *s = arg;
	char count[64];
	uint64_t before;
	int ret;

	if (!begin(c, "", QUEUE))
		return;
	snprintf(count, sizeof(count), "commands.%s", s->command);
	nvme_peer_tell(&c->peer, "set status=%s:%s", s->command, s->status);
	before = nvme_peer_count(&c->peer, count);
	ret = rig_do(&c->rig, s->op, 0, 0, s->op == BACKEND_FLUSH ? 0 : 16384, NULL);
	EXPECT(ret == s->result, "%d, not %d", ret, s->result);
	EXPECT(nvme_peer_count(&c->peer, count) - before == s->tries, "%llu tries",
	       (unsigned long long)(nvme_peer_count(&c->peer, count) - before));
	nvme_peer_tell(&c->peer, "faults none");
	case_forget(c);
	case_works(c, 20);
	EXPECT(case_look(c, 0).connects == 1 && case_look(c, 0).resent == 0, "it was lost");
}

/* Each time so long as CRDT of the number says; five times. */
static void check_delay(struct fault_case *c, const void *arg)
{
	uint64_t start_ms, took_ms;

	(void)arg;
	if (!begin(c, "crdt=3", QUEUE))
		return;
	nvme_peer_tell(&c->peer, "set status=write:0:0x82:crd=3:count=3");
	case_turn_for(c, 1);
	start_ms = case_now_ms();
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "it failed");
	took_ms = case_now_ms() - start_ms;
	EXPECT(took_ms >= 890, "3 times 300 ms took %llu ms", (unsigned long long)took_ms);
	/* Without a number at once. */
	nvme_peer_tell(&c->peer, "set status=write:0:0x82:count=3");
	start_ms = case_now_ms();
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "it failed");
	EXPECT(case_now_ms() - start_ms < 890, "%llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
}

/* CRDT of more than an hour: it is asked again within on_disconnect. */
static void check_long_delay(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "crdt=65535", "on_disconnect: {queue: 2s}\ntimeout: 5s\n"))
		return;
	nvme_peer_tell(&c->peer, "set status=write:0:0x82:crd=1:count=1");
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "it failed");
	EXPECT(case_look(c, 0).lost == 0, "the connection was dropped");
}

/* All at once, each as often as it may: all succeed. */
static void check_load(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", QUEUE))
		return;
	nvme_peer_tell(&c->peer, "set status=any:0:6:count=100");
	if (!case_strike(c, "status"))
		return;
	nvme_peer_tell(&c->peer, "set status=write:0:6:late:count=20");
	if (!case_strike(c, "status"))
		return;
	nvme_peer_tell(&c->peer, "set write_after_all=20");
	if (!case_strike(c, "write_after_all"))
		return;
	EXPECT(case_look(c, 0).connects == 1, "it was lost");
	EXPECT(nvme_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
}

/* ---- the namespace ---- */

struct gone {
	const char *settings;
	bool again; /* the connection is made anew meanwhile */
};

static void check_gone(struct fault_case *c, const void *arg)
{
	const struct gone *g = arg;

	if (!begin(c, g->settings, QUEUE))
		return;
	nvme_peer_tell(&c->peer, "resize 0");
	case_submit_all(c, BACKEND_WRITE, 4096);
	case_turn_for(c, 300);
	if (g->again)
		nvme_peer_tell(&c->peer, "drop");
	case_turn_for(c, 500);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	nvme_peer_tell(&c->peer, "resize %u", CASE_SIZE_BYTES);
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, 0);
	EXPECT(!backend_failure(c->rig.device, NULL), "it fails");
	case_forget(c);
	case_works(c, 20);
	EXPECT(g->again || case_look(c, 0).connects == 1, "it was lost");
}

/* Longer than requests wait: they fail, and later ones at once; until it is back. */
static void check_gone_long(struct fault_case *c, const void *arg)
{
	const char *options = arg;

	if (!begin(c, "", options))
		return;
	nvme_peer_tell(&c->peer, "resize 0");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, -EIO);
	nvme_peer_tell(&c->peer, "resize %u", CASE_SIZE_BYTES);
	for (int i = 0; i < 500 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 20);
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) == 0, "it does not come back");
	EXPECT(case_look(c, 0).connects == 1, "it was lost");
}

void statuses_run(uint64_t seed)
{
	static const struct status statuses[] = {
		{ "0:6:count=1", BACKEND_WRITE, "write", 0, 2 },
		{ "0:6:count=5", BACKEND_WRITE, "write", 0, 6 },
		{ "0:6:always", BACKEND_WRITE, "write", -EIO, 6 },
		{ "0:6:late:always", BACKEND_WRITE, "write", -EIO, 6 },
		{ "0:0x82:count=5", BACKEND_FLUSH, "flush", 0, 6 },
		{ "0:6:dnr:always", BACKEND_READ, "read", -EIO, 1 },
		{ "2:0x81:dnr:always", BACKEND_READ, "read", -ENODATA, 1 },
		{ "2:0x81:always", BACKEND_READ, "read", -ENODATA, 6 },
		{ "0:0x81:always", BACKEND_WRITE, "write", -ENOSPC, 1 },
		{ "0:0x20:always", BACKEND_WRITE, "write", -EIO, 1 },
		{ "0:0x80:always", BACKEND_READ, "read", -EREMOTEIO, 1 },
		{ "0:2:always", BACKEND_WRITE_ZEROES, "write_zeroes", -EOPNOTSUPP, 1 },
		{ "0:1:always", BACKEND_DISCARD, "dsm", -EOPNOTSUPP, 1 },
		{ "0:0x83:always", BACKEND_WRITE, "write", -EIO, 1 },
		{ "2:0x80:dnr:always", BACKEND_FLUSH, "flush", -ENODATA, 1 },
		/* of a path, where there is but one: a little later */
		{ "3:0x60:count=3", BACKEND_READ, "read", 0, 4 },
		{ "3:0:always", BACKEND_READ, "read", -ENOLINK, 6 },
	};
	static const struct gone gone[] = { { "", false }, { "oaes=0", false }, { "", true } };
	static const char *const gone_names[] = { "told by an event", "seen by itself",
						  "and the connection too" };
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(statuses); i++) {
		snprintf(name, sizeof(name), "status: %s: %s", statuses[i].command,
			 statuses[i].status);
		fault_case_run(name, 60, seed, check_status, &statuses[i]);
	}
	fault_case_run("status: tried again when the target wants it", 60, seed, check_delay, NULL);
	fault_case_run("status: of a target that wants hours", 60, seed, check_long_delay, NULL);
	fault_case_run("status: of many", 60, seed, check_load, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(gone); i++) {
		snprintf(name, sizeof(name), "namespace gone: requests wait, %s", gone_names[i]);
		fault_case_run(name, 60, seed, check_gone, &gone[i]);
	}
	fault_case_run("namespace gone: longer than requests wait", 60, seed, check_gone_long,
		       "on_disconnect: {queue: 1s}\ntimeout: 5s");
	fault_case_run("namespace gone: fail at once", 60, seed, check_gone_long,
		       "on_disconnect: fail\ntimeout: 5s");
}
