/*
 * A target that comes back as another one while a device is on it: what its users could not bear
 * makes the device fail for good, in words; more room, and a pause, do not.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvme_case.h"
#include "storage/resize.h"

#define QUEUE "on_disconnect: {queue: 60s}\ntimeout: 5s\n"
#define FAIL "on_disconnect: fail\ntimeout: 5s\n"
#define UUID "uuid=11111111-1111-4111-8111-111111111111"
#define OTHER_UUID "uuid=22222222-2222-4222-8222-222222222222"

struct change {
	const char *name, *was, *is, *words;
};

/* Requests that wait fail, so do later ones, and no connection is tried any more. */
static void check_change(struct fault_case *c, const void *arg)
{
	const struct change *change = arg;
	const char *said;
	uint64_t connections;

	case_serve(c, change->was);
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	fault_peer_kill(&c->peer);
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 20);
	case_serve(c, change->is);
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, -EIO);
	EXPECT(case_look(c, 0).last_end == NET_END_CHANGED, "%d", case_look(c, 0).last_end);
	said = backend_failure(c->rig.device, NULL);
	EXPECT(said && strstr(said, "is not what it was") && strstr(said, change->words), "%s",
	       said ? said : "nothing");
	case_logged("it is not what it was: the device fails until it is started anew");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) == -EIO, "served again");
	connections = nvme_peer_count(&c->peer, "connections");
	case_turn_for(c, 300);
	EXPECT(nvme_peer_count(&c->peer, "connections") == connections, "tried again");
}

/* The same while it serves, told by an event. */
static void check_shrunk(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	nvme_peer_tell(&c->peer, "resize %u", CASE_SIZE_BYTES / 2);
	for (int i = 0; i < 1000 && !backend_failure(c->rig.device, NULL); i++)
		case_turn_for(c, 10);
	EXPECT(backend_failure(c->rig.device, NULL), "it serves less than it was");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) == -EIO, "served");
	case_logged("size was 2MiB, is 1MiB");
}

static uint64_t size_now(struct fault_case *c)
{
	char error[BACKEND_ERROR_BYTES] = "";
	uint64_t bytes = 0;

	EXPECT(backend_size_now(c->rig.device, &bytes, error, sizeof(error)) == 0, "%s", error);
	return bytes;
}

static void expect_grows(struct fault_case *c)
{
	for (int i = 0; i < 2000 && size_now(c) == CASE_SIZE_BYTES; i++)
		case_turn_for(c, 5);
	EXPECT(size_now(c) == 2 * CASE_SIZE_BYTES, "%llu", (unsigned long long)size_now(c));
	case_works(c, 40);
	EXPECT(!backend_failure(c->rig.device, NULL), "it fails");
}

static void check_grown(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	nvme_peer_tell(&c->peer, "resize %u", 2 * CASE_SIZE_BYTES);
	expect_grows(c);
	EXPECT(case_look(c, 0).connects == 1, "the connection was lost");
	/* Twice: the log page was read, and the event is not masked any more. */
	nvme_peer_tell(&c->peer, "resize %u", CASE_SIZE_BYTES);
	for (int i = 0; i < 2000 && size_now(c) != CASE_SIZE_BYTES; i++)
		case_turn_for(c, 5);
	EXPECT(size_now(c) == CASE_SIZE_BYTES, "%llu", (unsigned long long)size_now(c));
}

/* What could not be asked is no loss of the namespace, and is asked again. */
static void check_grown_unseen(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, FAIL) || !case_connected(c, 0, 1))
		return;
	nvme_peer_tell(&c->peer, "set status=identify:0:6:count=2");
	nvme_peer_tell(&c->peer, "resize %u", 2 * CASE_SIZE_BYTES);
	for (int i = 0; i < 1000 && nvme_peer_count(&c->peer, "waiting.status") == 2; i++)
		case_turn_for(c, 5);
	case_works(c, 40);
	expect_grows(c);
	EXPECT(nvme_peer_count(&c->peer, "waiting.status") == 0, "it was not asked again");
	EXPECT(case_look(c, 0).connects == 1, "the connection was lost");
}

static void check_grown_away(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	nvme_peer_tell(&c->peer, "set oaes=0");
	nvme_peer_tell(&c->peer, "resize %u", 2 * CASE_SIZE_BYTES);
	nvme_peer_tell(&c->peer, "drop");
	expect_grows(c);
}

/* Another process with the same namespace is the same namespace. */
static void check_restart(struct fault_case *c, const void *arg)
{
	char settings[200];

	(void)arg;
	case_serve(c, "");
	snprintf(settings, sizeof(settings), "--file=%s/content", c->peer.dir);
	case_serve(c, settings);
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	case_works(c, 40);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	fault_peer_kill(&c->peer);
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 100);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	case_serve(c, settings);
	if (!case_drain(c, 60000))
		return;
	case_expect_all(c, 0);
	case_works(c, 40);
	EXPECT(!backend_failure(c->rig.device, NULL), "it fails");
}

/* A controller that takes fewer commands at a time than before: not this one, another may come. */
static void check_fewer_commands(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	nvme_peer_tell(&c->peer, "set max_cmd=4");
	nvme_peer_tell(&c->peer, "drop");
	case_submit_all(c, BACKEND_READ, 4096);
	while (case_look(c, 0).ends[NET_END_CHANGED] == 0 && !tap_failed())
		case_turn_for(c, 10);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	case_logged("takes 3 commands at a time, 32 were taken before");
	nvme_peer_tell(&c->peer, "set max_cmd=0");
	if (case_drain(c, 60000))
		case_expect_all(c, 0);
	EXPECT(!backend_failure(c->rig.device, NULL), "it fails");
}

void changes_run(uint64_t seed)
{
	static const struct change changes[] = {
		{ "smaller", "", "--size=1048576", "size was 2MiB, is 1MiB" },
		{ "another UUID", UUID, OTHER_UUID, "another namespace has the number 1" },
		{ "another NGUID", "uuid=none", "uuid=none nguid=0123456789abcdef0123456789abcdef",
		  "another namespace has the number 1" },
		{ "another EUI64", "uuid=none nguid=none eui=0123456789abcdef",
		  "uuid=none nguid=none eui=0123456789abcdee", "another namespace" },
		{ "other blocks", "", "--block=4096", "blocks were of 512 bytes, are of 4096" },
		{ "read-only", "", "read_only=1", "was writable, is read-only" },
		{ "a write cache", "vwc=0", "", "had no volatile write cache, has one" },
		{ "smaller transfers", "", "mdts=3",
		  "largest transfer was 131072 bytes, is 32768" },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(changes); i++) {
		snprintf(name, sizeof(name), "changed: %s: it fails for good", changes[i].name);
		fault_case_run(name, 60, seed, check_change, &changes[i]);
	}
	fault_case_run("changed: smaller, told by an event", 60, seed, check_shrunk, NULL);
	fault_case_run("changed: larger, told by an event", 60, seed, check_grown, NULL);
	fault_case_run("changed: larger, but it cannot be asked at once", 60, seed,
		       check_grown_unseen, NULL);
	fault_case_run("changed: larger, while it was away", 60, seed, check_grown_away, NULL);
	fault_case_run("changed: another process, the same namespace", 60, seed, check_restart,
		       NULL);
	fault_case_run("changed: fewer commands at a time", 60, seed, check_fewer_commands, NULL);
}
