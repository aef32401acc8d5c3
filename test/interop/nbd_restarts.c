/*
 * Servers that go at a bad moment: while one of two connections hears nothing of it, in the middle
 * of a payload, and again and again.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "nbd_case.h"
#include "net/session_look.h"

#define LARGE_BYTES RIG_IO_BYTES

/* ---- one connection hears nothing ---- */

#define TWO "on_disconnect: {queue: 30s}\ntimeout: 1s\ncache: volatile\nconnections: 2"

static struct rig_io *submit(struct fault_case *c, unsigned tag, enum backend_op op, uint32_t bytes)
{
	struct rig_io *rio = &c->rig.queue[0].io[tag];

	rio->done = NULL;
	rio->io.op = (uint8_t)op;
	rio->io.flags = 0;
	rio->io.offset_bytes = op == BACKEND_FLUSH ? 0 : (uint64_t)tag * LARGE_BYTES;
	rio->io.length_bytes = bytes;
	rig_submit(&c->rig, rio);
	return rio;
}

/* How often a connection was made; where how many are there now. */
static uint64_t connects(const struct fault_case *c, unsigned *ret_ready_nr)
{
	struct net_connection_look connection;
	uint64_t nr = 0;

	*ret_ready_nr = 0;
	for (unsigned i = 0; backend_connection(c->rig.queue[0].queue, i, &connection); i++) {
		nr += connection.connects;
		*ret_ready_nr += strcmp(connection.state, "connected") == 0;
	}
	return nr;
}

/* Until that many were made in all, and as many are there; that of the probe has gone. */
static bool wait_connected(struct fault_case *c, uint64_t nr, unsigned ready_nr)
{
	uint64_t until_ms = case_now_ms() + 10000;
	unsigned ready;

	while (connects(c, &ready) < nr || ready < ready_nr ||
	       nbd_peer_count(&c->peer, "open") > ready_nr) {
		EXPECT(case_now_ms() < until_ms, "%u connections are there", ready);
		if (tap_failed())
			return false;
		case_turn_for(c, 5);
	}
	return true;
}

/* Both connections are there, and each has had a WRITE acknowledged. */
static bool write_by_both(struct fault_case *c)
{
	case_serve(c, "volatile=1");
	if (!case_open(c, TWO, 1) || !wait_connected(c, 2, 2))
		return false;
	for (unsigned tag = 0; tag < 2; tag++)
		submit(c, tag, BACKEND_WRITE, 4096);
	if (!case_drain(c, 60000))
		return false;
	for (unsigned tag = 0; tag < 2; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result == 0, "write");
	return !tap_failed();
}

/* There always is a connection: the one that hears nothing, then the new one too. */
static void check_restart(struct fault_case *c, const void *arg)
{
	const unsigned *closed = arg;

	if (!write_by_both(c))
		return;
	nbd_peer_tell(&c->peer, "restart %u", *closed);
	if (!wait_connected(c, 3, 2))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "the writes are lost");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told twice");
}

/*
 * Two FLUSHes are on their way when the server restarts, of which the first takes the writes upon
 * itself: neither may succeed by the new server, whichever connection breaks first.
 */
static void check_restart_flushes(struct fault_case *c, const void *arg)
{
	const unsigned *closed = arg;
	struct rig_io *flush[2], *third = NULL;
	uint64_t nr;

	if (!write_by_both(c))
		return;
	nr = nbd_peer_count(&c->peer, "flush");
	nbd_peer_tell(&c->peer, "fault stall cmd=flush times=2");
	for (unsigned tag = 0; tag < 2; tag++)
		flush[tag] = submit(c, tag, BACKEND_FLUSH, 0);
	if (!case_reaches(c, "flush", nr + 2, 60000))
		return;
	nbd_peer_tell(&c->peer, "restart %u", *closed);
	if (*closed == 1) {
		/* The new server has nothing to flush: who has the writes does not know yet. */
		if (!wait_connected(c, 3, 2))
			return;
		third = submit(c, 3, BACKEND_FLUSH, 0);
	}
	if (!case_drain(c, 60000))
		return;
	EXPECT(!third || third->io.result == -EIO, "a third FLUSH");
	for (unsigned tag = 0; tag < 2; tag++)
		EXPECT(flush[tag]->io.result == -EIO, "FLUSH %u: %d: the writes are lost", tag,
		       flush[tag]->io.result);
	case_turn_for(c, 100);
	/* One more may fail, of whoever saw the loss while the first FLUSH was not at its end. */
	rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told for ever");
	submit(c, 0, BACKEND_WRITE, 4096);
	EXPECT(case_drain(c, 60000), "write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush of what is there");
}

/* ---- in the middle of a payload ---- */

/*
 * It refuses a WRITE whose payload it has not read; then reads it, or goes. A READ before it is
 * answered later: until then the connection stays.
 */
static void check_early_shutdown(struct fault_case *c, const void *arg)
{
	struct rig_io *rio;
	uint8_t *buf;
	uint64_t disc;

	case_serve(c, "");
	if (!case_open(c, "on_disconnect: {queue: 30s}\ncache: kept\nconnections: 1", 1))
		return;
	case_works(c, 20);
	disc = nbd_peer_count(&c->peer, "disc");
	nbd_peer_tell(&c->peer, "fault %s error=ESHUTDOWN seconds=0.2 times=1", (const char *)arg);
	buf = c->rig.queue[0].io[1].io.buf;
	for (unsigned i = 0; i < LARGE_BYTES; i++)
		buf[i] = (uint8_t)(i * 13 + (i >> 8));
	nbd_peer_tell(&c->peer, "fault slow cmd=read seconds=0.5 times=1");
	submit(c, 2, BACKEND_READ, 4096);
	rio = submit(c, 1, BACKEND_WRITE, LARGE_BYTES);
	if (!case_drain(c, 60000))
		return;
	EXPECT(rio->io.result == 0, "it was refused, and not sent again: %d", rio->io.result);
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "the server had no occasion for it");
	EXPECT(nbd_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
	EXPECT((nbd_peer_count(&c->peer, "disc") > disc) == !strstr(arg, "hangup"),
	       "DISC to a server that stays to hear it, and to no other");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, LARGE_BYTES, LARGE_BYTES, NULL) == 0, "read");
	buf = c->rig.queue[0].io[0].io.buf;
	for (unsigned i = 0; i < LARGE_BYTES && !tap_failed(); i++)
		EXPECT(buf[i] == (uint8_t)(i * 13 + (i >> 8)), "wrong at %u", i);
}

/* ---- again and again ---- */

/*
 * Every connection gets so far and dies at once. The pauses of 3 s are 50, 100, 200, 400, 800 and
 * 1600 ms, a quarter more or less; the first try has none.
 */
static void check_dies_at_once(struct fault_case *c, const void *arg)
{
	uint64_t before, tries;

	case_serve(c, "");
	if (!case_open(c, "on_disconnect: {queue: 60s}\ncache: kept\nconnections: 1", 1))
		return;
	case_works(c, 20);
	before = nbd_peer_count(&c->peer, "connections");
	nbd_peer_tell(&c->peer, "fault %s", (const char *)arg);
	nbd_peer_tell(&c->peer, "kick");
	submit(c, 0, BACKEND_READ, 4096);
	case_turn_for(c, 3000);
	if (!case_reaches(c, "connections", before + 3, 60000))
		return;
	tries = nbd_peer_count(&c->peer, "connections") - before;
	EXPECT(tries <= 8, "%llu tries in 3 s", (unsigned long long)tries);
	nbd_peer_tell(&c->peer, "fault none");
	EXPECT(case_drain(c, 60000), "it does not come back");
	EXPECT(c->rig.queue[0].io[0].io.result == 0, "%d", c->rig.queue[0].io[0].io.result);
}

void restarts_run(uint64_t seed)
{
	static const unsigned tags[] = { 0, 1 };

	fault_case_run("restart: seen by the first connection, the FLUSH fails", 30, seed,
		       check_restart, &tags[0]);
	fault_case_run("restart: seen by the second connection, the FLUSH fails", 30, seed,
		       check_restart, &tags[1]);
	fault_case_run("restart: two FLUSHes under way, the one with the writes breaks", 30, seed,
		       check_restart_flushes, &tags[0]);
	fault_case_run("restart: two FLUSHes under way, the other one breaks", 30, seed,
		       check_restart_flushes, &tags[1]);
	fault_case_run("shutdown: of a WRITE that is still being sent", 30, seed,
		       check_early_shutdown, "early-error");
	fault_case_run("shutdown: of a WRITE that is still being sent, and hangs up", 30, seed,
		       check_early_shutdown, "early-error-hangup");
	fault_case_run("dies again and again, asked for something: pauses grow", 60, seed,
		       check_dies_at_once, "hangup");
	fault_case_run("dies again and again, behind the handshake: pauses grow", 60, seed,
		       check_dies_at_once, "serve-close");
}
