/*
 * Much of the same: a thousand connections, long waiting, many cancelled requests, and every way to
 * end. Nothing may be left of any of them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/histogram.h"
#include "base/util.h"
#include "nbd_case.h"
#include "net/session_look.h"
#include "test/rig/heap.h"

#define QUEUE "on_disconnect: {queue: 30s}\ncache: kept\nconnections: 1\n"

/* Of a reactor that waits for a server: one attempt now and then, each of some turns. */
#define TURNS_A_SECOND_MAX 100

#define LINKS 8

static bool lose_all(struct fault_case *c)
{
	nbd_peer_tell(&c->peer, "fault hangup times=%u", LINKS);
	return case_strike_out(c, LINKS);
}

static void check_reconnects(struct fault_case *c, const void *arg)
{
	const unsigned nr = *(const unsigned *)arg;
	uint64_t heap_bytes;
	unsigned fds;

	case_serve(c, "");
	if (!case_open(c, "on_disconnect: {queue: 30s}\ncache: kept\nconnections: 8", 1))
		return;
	/* The first rounds fill the C library's own buffers. */
	for (int i = 0; i < 10; i++)
		if (!lose_all(c))
			return;
	heap_bytes = heap_used_bytes();
	fds = rig_count_fds();
	while (nbd_peer_count(&c->peer, "connections") < nr + 10 * LINKS)
		if (!lose_all(c))
			return;
	EXPECT(heap_grew_bytes(heap_bytes) == 0, "%lld bytes",
	       (long long)heap_grew_bytes(heap_bytes));
	EXPECT(rig_count_fds() == fds, "%u descriptors, were %u", rig_count_fds(), fds);
	case_works(c, 100);
}

/* ---- what is seen of a connection ---- */

static struct net_connection_look look_at(struct fault_case *c)
{
	struct net_connection_look seen = { .state = "none" };

	EXPECT(backend_connection(c->rig.queue[0].queue, 0, &seen), "it is not there");
	EXPECT(!backend_connection(c->rig.queue[0].queue, 1, &seen), "there is another one");
	backend_connection(c->rig.queue[0].queue, 0, &seen);
	return seen;
}

/* Each number is what the server counts, too, or what must have been. */
static void check_counters(struct fault_case *c, const void *arg)
{
	struct net_connection_look a, b;
	uint64_t now_ns;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "timeout: 500ms", 1))
		return;
	case_submit_all(c, BACKEND_WRITE, 4096);
	if (!case_drain(c, 60000))
		return;
	a = look_at(c);
	EXPECT(strcmp(a.state, "connected") == 0, "%s", a.state);
	EXPECT(a.connects == 1 && a.lost == 0 && a.failed_tries == 0 && a.last_end == -1, "ends");
	EXPECT(a.answered == CASE_DEPTH && a.resent == 0, "%llu answered",
	       (unsigned long long)a.answered);
	EXPECT(a.sent_bytes >= CASE_DEPTH * (4096 + 28) && a.sends < CASE_DEPTH, "%llu bytes sent",
	       (unsigned long long)a.sent_bytes);
	EXPECT(a.received_bytes >= CASE_DEPTH * 16 && a.receives > 0, "received");
	/* All of them waited for the first connection; a second of silence, then again. */
	nbd_peer_tell(&c->peer, "fault stall times=1");
	case_turn_for(c, 1);
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	b = look_at(c);
	EXPECT(b.connects == 2 && b.lost == 1 && b.ends[NET_END_SILENT] == 1, "lost %llu",
	       (unsigned long long)b.lost);
	EXPECT(b.last_end == NET_END_SILENT, "%d", b.last_end);
	EXPECT(b.answered == 2 * CASE_DEPTH && b.resent == 1, "%llu resent",
	       (unsigned long long)b.resent);
	EXPECT(b.received_bytes - a.received_bytes >= CASE_DEPTH * 4096, "received");
	/* The one that was sent again waited for that since it came. */
	EXPECT(histogram_max_ns(b.wait) > 450 * 1000000ull, "%llu ns",
	       (unsigned long long)histogram_max_ns(b.wait));
	EXPECT(histogram_count(b.wait) == b.answered, "each counts in both");
	nbd_peer_tell(&c->peer, "down");
	case_turn_for(c, 1500);
	/* Between two tries, not in one. */
	for (int i = 0; i < 200 && strcmp(look_at(c).state, "waiting") != 0; i++)
		case_turn_for(c, 10);
	b = look_at(c);
	now_ns = ring_clock_ns();
	EXPECT(strcmp(b.state, "waiting") == 0 && b.next_try_ns > now_ns && b.since_ns <= now_ns &&
		       b.since_ns > now_ns - 5000000000ull,
	       "%s until %llu", b.state, (unsigned long long)b.next_try_ns);
	EXPECT(b.lost == 2 && b.ends[NET_END_CLOSED] == 1, "lost %llu", (unsigned long long)b.lost);
	EXPECT(b.failed_tries >= 2 && b.ends[NET_END_UNREACHABLE] == b.failed_tries, "%llu failed",
	       (unsigned long long)b.failed_tries);
}

/* Where the time of a request was: a server that is slow by more than a busy machine is, and not
 * the wait for it. */
static void check_times(struct fault_case *c, const void *arg)
{
	struct net_connection_look seen;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "timeout: 10s", 1))
		return;
	case_works(c, 50);
	seen = look_at(c);
	EXPECT(histogram_max_ns(seen.answer) < 2000 * 1000000ull, "it is slow already");
	nbd_peer_tell(&c->peer, "fault slow seconds=3 times=1");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "read");
	seen = look_at(c);
	EXPECT(histogram_max_ns(seen.answer) > 2900 * 1000000ull, "%llu ns",
	       (unsigned long long)histogram_max_ns(seen.answer));
	EXPECT(histogram_max_ns(seen.wait) < 2000 * 1000000ull, "it did not wait: %llu ns",
	       (unsigned long long)histogram_max_ns(seen.wait));
}

/* A second of waiting costs next to nothing, whatever it is that is missing. */
static void check_no_spin(struct fault_case *c, const void *arg)
{
	const struct loop_stats *stats;
	uint64_t turns;

	case_serve(c, "");
	if (!case_open(c, QUEUE, 1))
		return;
	stats = &c->rig.queue[0].reactor.stats;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "%s", (const char *)arg);
	nbd_peer_tell(&c->peer, "kick");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 1000); /* the first attempts may be quick */
	turns = stats->turns;
	case_turn_for(c, 2000);
	EXPECT(stats->turns - turns <= 2 * TURNS_A_SECOND_MAX, "%llu turns in 2 s",
	       (unsigned long long)(stats->turns - turns));
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u of %u wait", rig_out_nr(&c->rig), CASE_DEPTH);
	nbd_peer_tell(&c->peer, "fault none");
	nbd_peer_tell(&c->peer, "up");
	nbd_peer_tell(&c->peer, "kick"); /* those who were accepted by a silent one */
	case_drain(c, 60000);
}

/* Idle, with nothing to say: no turn at all but for what the driver's tests would cause. */
static void check_idle(struct fault_case *c, const void *arg)
{
	const struct loop_stats *stats;
	uint64_t turns;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE, 1))
		return;
	stats = &c->rig.queue[0].reactor.stats;
	case_works(c, 50);
	case_turn_for(c, 200);
	turns = stats->turns;
	case_turn_for(c, 2000);
	EXPECT(stats->turns - turns <= 10, "%llu turns in 2 s",
	       (unsigned long long)(stats->turns - turns));
}

struct cancel {
	const char *name, *command;
	enum backend_op op;
	uint32_t bytes;
};

/* Whatever they wait for: all of them end, and what comes later is served. */
static void check_cancel(struct fault_case *c, const void *arg)
{
	const struct cancel *a = arg;

	case_serve(c, "");
	if (!case_open(c, QUEUE "timeout: 60s", 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "%s", a->command);
	case_submit_all(c, a->op, a->bytes);
	case_turn_for(c, 300);
	EXPECT(rig_out_nr(&c->rig) > 0, "nothing waits");
	case_cancel_all(c);
	if (!case_drain(c, 20000))
		return;
	/* It never answers those, and may be asked others. */
	nbd_peer_tell(&c->peer, "fault none");
	nbd_peer_tell(&c->peer, "up");
	case_forget(c);
	case_works(c, 300);
}

/* Answered, but more of it than any buffer on the way holds is never read: it is not over. */
static void check_cancel_answered(struct fault_case *c, const void *arg)
{
	struct rig_io *rio;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "timeout: 60s", 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault early-deaf times=1");
	rio = &c->rig.queue[0].io[0];
	rio->done = NULL;
	rio->io.op = BACKEND_WRITE;
	rio->io.flags = 0;
	rio->io.offset_bytes = 0;
	rio->io.length_bytes = RIG_IO_BYTES;
	rig_submit(&c->rig, rio);
	case_turn_for(c, 300);
	EXPECT(nbd_peer_count(&c->peer, "struck") == 1, "it is not answered");
	EXPECT(rig_out_nr(&c->rig) == 1, "it has ended with its memory still the kernel's");
	case_cancel_all(c);
	if (case_drain(c, 20000))
		EXPECT(rio->io.result == -EIO, "%d", rio->io.result);
}

struct ending {
	const char *command;
	bool io; /* that is cancelled then, as a stop does at its deadline */
};

/* A queue is closed whatever its connection is busy with, and the server hears of it. */
static void check_end(struct fault_case *c, const void *arg)
{
	const struct ending *e = arg;
	uint64_t start_ms;

	case_serve(c, "");
	if (!case_open(c, QUEUE "timeout: 60s", 1))
		return;
	if (e->io)
		case_works(c, 50);
	if (e->command) {
		nbd_peer_tell(&c->peer, "%s", e->command);
		nbd_peer_tell(&c->peer, "kick");
		case_turn_for(c, 300);
	}
	if (e->io) {
		case_submit_all(c, BACKEND_WRITE, 65536);
		case_turn_for(c, 200);
		case_cancel_all(c);
		if (!case_drain(c, 20000))
			return;
	}
	start_ms = case_now_ms();
	case_close(c);
	EXPECT(case_now_ms() - start_ms < 20000, "closed within %llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
	for (int i = 0; i < 100 && nbd_peer_count(&c->peer, "open") > 0 && !e->command; i++)
		usleep(10000);
	EXPECT(e->command || nbd_peer_count(&c->peer, "open") == 0, "a connection is left");
}

static bool is_connected(struct fault_case *c, unsigned idx)
{
	struct net_connection_look connection;

	return backend_connection(c->rig.queue[0].queue, idx, &connection) &&
	       strcmp(connection.state, "connected") == 0;
}

/* They waited for a server: none of them reaches the one that comes. */
static void check_cancel_waiting(struct fault_case *c, const void *arg)
{
	uint64_t writes;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE, 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "down");
	case_submit_all(c, BACKEND_WRITE, 4096);
	case_turn_for(c, 300);
	writes = nbd_peer_count(&c->peer, "write");
	case_cancel_all(c);
	if (!case_drain(c, 20000))
		return;
	nbd_peer_tell(&c->peer, "up");
	for (unsigned i = 0; i < 1000 && !is_connected(c, 0); i++)
		case_turn_for(c, 10);
	/* By the same connection, behind all that waited. */
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "read");
	EXPECT(nbd_peer_count(&c->peer, "write") == writes, "it was sent");
}

/* A polite end: DISC, by each connection that has nothing under way. */
static void check_disc(struct fault_case *c, const void *arg)
{
	uint64_t before;

	(void)arg;
	case_serve(c, "");
	if (!case_open_with(c, c->peer.uri, "connections: 3\n", 512, 1))
		return;
	/* Those that are not needed come up beside the others. */
	for (unsigned i = 0; i < 500 && !(is_connected(c, 1) && is_connected(c, 2)); i++)
		case_turn_for(c, 10);
	case_works(c, 100);
	before = nbd_peer_count(&c->peer, "disc");
	case_close(c);
	case_reaches(c, "disc", before + 3, 60000);
}

static void run_cancels(uint64_t seed)
{
	static const struct cancel cancels[] = {
		{ "READs that are not answered", "fault stall", BACKEND_READ, 4096 },
		{ "WRITEs that are not answered", "fault stall", BACKEND_WRITE, 4096 },
		{ "FLUSHes that are not answered", "fault stall", BACKEND_FLUSH, 0 },
		{ "WRITEs that are not even read", "fault deaf times=1", BACKEND_WRITE, 131072 },
		{ "READs half answered", "fault half-silent times=1", BACKEND_READ, 131072 },
		{ "requests without a server", "down", BACKEND_WRITE, 4096 },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(cancels); i++) {
		snprintf(name, sizeof(name), "cancel: %s", cancels[i].name);
		fault_case_run(name, 60, seed, check_cancel, &cancels[i]);
	}
	fault_case_run("cancel: what waits for a server is not sent", 60, seed,
		       check_cancel_waiting, NULL);
	fault_case_run("cancel: a WRITE that is answered before it is read", 30, seed,
		       check_cancel_answered, NULL);
}

static void run_ends(uint64_t seed)
{
	static const struct ending endings[] = {
		{ NULL, false },
		{ NULL, true },
		{ "fault stall", true },
		{ "fault deaf", true },
		{ "down", true },
		{ "down", false },
		{ "fault accept-silent", false },
		{ "fault option-silent", true },
		{ "fault option-endless", false },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(endings); i++) {
		snprintf(name, sizeof(name), "end: %s, %s",
			 endings[i].command ? endings[i].command : "a good server",
			 endings[i].io ? "after requests" : "without a request");
		fault_case_run(name, 30, seed, check_end, &endings[i]);
	}
	fault_case_run("end: DISC", 30, seed, check_disc, NULL);
}

void lives_run(uint64_t seed)
{
	static const unsigned thousand = 1000;

	fault_case_run("1000 connections leave nothing", 250, seed, check_reconnects, &thousand);
	fault_case_run("waiting: nobody listens", 30, seed, check_no_spin, "down");
	fault_case_run("waiting: accepted and closed", 30, seed, check_no_spin,
		       "fault accept-close");
	fault_case_run("waiting: accepted, no word", 30, seed, check_no_spin,
		       "fault accept-silent");
	fault_case_run("waiting: refused", 30, seed, check_no_spin, "fault export-unknown");
	fault_case_run("idle", 30, seed, check_idle, NULL);
	fault_case_run("seen: counters of a connection", 30, seed, check_counters, NULL);
	fault_case_run("seen: times of requests", 30, seed, check_times, NULL);
	run_cancels(seed);
	run_ends(seed);
}
