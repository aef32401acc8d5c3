/*
 * Two paths to a subsystem and their ANA states: requests take the best one, move on a change
 * without an error, and wait while there is none. Connection 0 is the path by the first port.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvme_case.h"

#define FOREVER "on_disconnect: {queue: 60s}\ntimeout: 5s\n"
/* Of OAES: a namespace's events, but none of ANA. */
#define NO_ANA_EVENTS "oaes=256"

static bool begin(struct fault_case *c, const char *settings, const char *policy)
{
	char options[256];

	case_serve_ports(c, 2, settings);
	snprintf(options, sizeof(options), "paths: 127.0.0.1:%u\n%s", nvme_peer_port[1], policy);
	if (!case_open(c, options) || !case_connected(c, 0, 1) || !case_connected(c, 1, 1))
		return false;
	snprintf(options, sizeof(options), "127.0.0.1:%u", nvme_peer_port[1]);
	EXPECT(strcmp(case_look(c, 1).server, options) == 0, "path 1 is %s",
	       case_look(c, 1).server);
	return true;
}

static void set_ana(struct fault_case *c, unsigned path, const char *state)
{
	nvme_peer_tell(&c->peer, "ana %u %s", path, state);
}

static uint64_t answered(const struct fault_case *c, unsigned path)
{
	return case_look(c, path).answered;
}

/* READs until one goes by this path: the word of a change has come. */
static void wait_for(struct fault_case *c, unsigned path)
{
	uint64_t before = answered(c, path), until_ms = case_now_ms() + 20000;

	while (answered(c, path) == before && case_now_ms() < until_ms) {
		for (unsigned tag = 0; tag < 2; tag++)
			case_submit(c, tag, BACKEND_READ, 512);
		if (!case_drain(c, 60000))
			return;
		for (unsigned tag = 0; tag < 2; tag++)
			EXPECT(c->rig.queue[0].io[tag].io.result == 0, "it failed");
		case_turn_for(c, 2);
	}
	EXPECT(answered(c, path) > before, "path %u is not taken", path);
}

/* All by one path. */
static void expect_only(struct fault_case *c, unsigned path)
{
	uint64_t before = answered(c, !path), here = answered(c, path);

	case_works(c, 40);
	EXPECT(answered(c, !path) == before, "by path %u, too", !path);
	EXPECT(answered(c, path) > here, "not by path %u", path);
}

static void check_best(struct fault_case *c, const void *arg)
{
	if (!begin(c, arg, FOREVER))
		return;
	case_works(c, 40);
	EXPECT(answered(c, 0) > 0 && answered(c, 1) > 0, "two that are as good are not both taken");
	set_ana(c, 1, "non-optimized");
	nvme_peer_tell(&c->peer, "drop");
	if (!case_connected(c, 0, 2) || !case_connected(c, 1, 2))
		return;
	expect_only(c, 0);
	set_ana(c, 0, "inaccessible");
	wait_for(c, 1);
	expect_only(c, 1);
	set_ana(c, 0, "optimized");
	wait_for(c, 0);
	expect_only(c, 0);
	set_ana(c, 0, "persistent-loss");
	wait_for(c, 1);
	expect_only(c, 1);
	EXPECT(case_look(c, 0).connects == 2, "a connection was lost");
	EXPECT(case_look(c, 1).connects == 2, "a connection was lost");
}

struct none {
	const char *settings, *state;
};

static void check_none(struct fault_case *c, const void *arg)
{
	const struct none *none = arg;

	if (!begin(c, none->settings, FOREVER))
		return;
	case_works(c, 20);
	set_ana(c, 0, none->state);
	set_ana(c, 1, none->state);
	case_submit_all(c, BACKEND_WRITE, 4096);
	case_turn_for(c, 700);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	set_ana(c, 1, "non-optimized");
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, 0);
	case_forget(c);
	expect_only(c, 1);
	EXPECT(case_look(c, 0).connects == 1 && case_look(c, 1).connects == 1, "lost");
}

/*
 * For longer than requests wait, in the order of the bits of arg: the paths are made anew
 * meanwhile; nothing waits when they go.
 */
static void check_none_long(struct fault_case *c, const void *arg)
{
	const char *how = arg;
	const char *policy = strstr(how, "fail") ? "on_disconnect: fail\ntimeout: 5s"
						 : "on_disconnect: {queue: 1s}\ntimeout: 5s";

	if (!begin(c, "", policy))
		return;
	case_works(c, 20);
	set_ana(c, 0, "inaccessible");
	set_ana(c, 1, "inaccessible");
	if (strstr(how, "anew")) {
		nvme_peer_tell(&c->peer, "drop");
		if (!case_connected(c, 0, 2) || !case_connected(c, 1, 2))
			return;
	} else {
		case_turn_for(c, 100);
	}
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 20000))
		return;
	case_expect_all(c, -EIO);
	set_ana(c, 0, "optimized");
	for (int i = 0; i < 500 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 20);
	expect_only(c, 0);
}

/* One is lost, and the other one is there, but of no use: that is an outage. */
static void check_other_is_no_use(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", "on_disconnect: {queue: 1s}\ntimeout: 5s"))
		return;
	set_ana(c, 1, "inaccessible");
	nvme_peer_tell(&c->peer, "drop");
	if (!case_connected(c, 0, 2) || !case_connected(c, 1, 2))
		return;
	expect_only(c, 0);
	nvme_peer_tell(&c->peer, "stop-listening 0");
	/* One after the other until it was one of path 0; path 1 comes back. */
	for (int i = 0; i < 8 && strcmp(case_look(c, 0).state, "connected") == 0; i++) {
		nvme_peer_tell(&c->peer, "drop 0");
		case_turn_for(c, 200);
		if (!case_connected(c, 1, 2))
			return;
	}
	EXPECT(strcmp(case_look(c, 0).state, "connected") != 0, "path 0 is there");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 20000))
		return;
	case_expect_all(c, -EIO);
	nvme_peer_tell(&c->peer, "listen 0");
	for (int i = 0; i < 500 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 20);
	expect_only(c, 0);
}

/* Nothing waited while there was no path; it is over, and was no outage that goes on. */
static void check_none_unseen(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", "on_disconnect: {queue: 2s}\ntimeout: 5s"))
		return;
	case_works(c, 20);
	set_ana(c, 0, "inaccessible");
	set_ana(c, 1, "inaccessible");
	case_turn_for(c, 300);
	set_ana(c, 0, "optimized");
	case_turn_for(c, 300);
	wait_for(c, 0);
	case_turn_for(c, 2500);
	nvme_peer_tell(&c->peer, "stop-listening");
	nvme_peer_tell(&c->peer, "drop");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 300);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	nvme_peer_tell(&c->peer, "listen");
	if (case_drain(c, 60000))
		case_expect_all(c, 0);
}

/* It was lost; that nobody listens is found out by the next try. */
static void expect_unreachable(struct fault_case *c, unsigned idx)
{
	uint64_t until_ms = case_now_ms() + 20000;

	while (case_look(c, idx).last_end != NET_END_UNREACHABLE && case_now_ms() < until_ms)
		case_turn_for(c, 2);
	EXPECT(case_look(c, idx).last_end == NET_END_UNREACHABLE, "%d", case_look(c, idx).last_end);
}

/* One port is closed: the other path has it all, also while a device opens. */
static void check_one_lost(struct fault_case *c, const void *arg)
{
	char options[256];

	(void)arg;
	if (!begin(c, "", FOREVER))
		return;
	nvme_peer_tell(&c->peer, "stop-listening 0");
	nvme_peer_tell(&c->peer, "drop");
	if (!case_connected(c, 1, 2))
		return;
	expect_only(c, 1);
	EXPECT(strcmp(case_look(c, 0).state, "connected") != 0, "path 0 is there");
	expect_unreachable(c, 0);
	nvme_peer_tell(&c->peer, "listen 0");
	if (!case_connected(c, 0, 2))
		return;
	wait_for(c, 0);
	case_close(c);
	nvme_peer_tell(&c->peer, "stop-listening 0");
	snprintf(options, sizeof(options), "paths: 127.0.0.1:%u\n" FOREVER, nvme_peer_port[1]);
	if (case_open(c, options) && case_connected(c, 1, 1)) {
		case_forget(c);
		expect_only(c, 1);
	}
}

/* By an error of a command, with the same end as by an event. */
static void check_path_errors(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!begin(c, "", FOREVER))
		return;
	case_works(c, 20);
	for (unsigned code = 0; code <= 3; code++) {
		nvme_peer_tell(&c->peer, "set status=any:3:%u:count=10", code);
		if (!case_strike(c, "status"))
			return;
	}
	EXPECT(case_look(c, 0).connects == 1 && case_look(c, 1).connects == 1, "lost");
	case_logged("a path cannot be used now");
	case_works(c, 40);
}

void paths_run(uint64_t seed)
{
	static const struct none none[] = { { "", "inaccessible" },
					    { NO_ANA_EVENTS, "inaccessible" },
					    { "oaes=0", "change" },
					    { "", "persistent-loss" } };
	static const char *const longer[] = { "queue", "queue, anew", "fail", "fail, anew" };
	char name[128];

	fault_case_run("paths: the best is taken", 60, seed, check_best, "");
	fault_case_run("paths: the best is taken, without events", 60, seed, check_best,
		       NO_ANA_EVENTS);
	for (unsigned i = 0; i < ARRAY_SIZE(none); i++) {
		snprintf(name, sizeof(name), "paths: none: requests wait: %s, %s", none[i].state,
			 none[i].settings);
		fault_case_run(name, 60, seed, check_none, &none[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(longer); i++) {
		snprintf(name, sizeof(name), "paths: none for too long: %s", longer[i]);
		fault_case_run(name, 60, seed, check_none_long, longer[i]);
	}
	fault_case_run("paths: one lost, the other of no use", 60, seed, check_other_is_no_use,
		       NULL);
	fault_case_run("paths: none while nobody wanted one", 60, seed, check_none_unseen, NULL);
	fault_case_run("paths: one lost", 60, seed, check_one_lost, NULL);
	fault_case_run("paths: errors of the path", 60, seed, check_path_errors, NULL);
}
