/*
 * Connections that end, and handshakes that lead to nothing: at every byte, with every excuse; the
 * three policies; what a FLUSH may promise afterwards.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "nbd_case.h"

#define QUEUE "on_disconnect: {queue: 30s}\ncache: kept\n"

/* Bytes of a handshake with our server, of GO and all else that it offers, at most. */
#define HANDSHAKE_BYTES 260u

/* "connections" of the device that is cut off everywhere. */
#define LINKS 16

/* ---- every byte ---- */

/* Whatever a server says before it goes: opening fails, with words, and leaves nothing. */
static void check_open_at_every_byte(struct fault_case *c, const void *arg)
{
	struct rig_params params = { .ops = backend_find("nbd"),
				     .name = "test",
				     .block_bytes = 512,
				     .queue_nr = 1,
				     .depth = 1 };
	unsigned fds, opened_nr = 0;
	char yaml[256];

	(void)arg;
	case_serve(c, "min_block=512");
	snprintf(yaml, sizeof(yaml), "uri: \"%s\"\n" QUEUE, c->peer.uri);
	params.yaml = yaml;
	fds = rig_count_fds();
	for (unsigned at = 0; at < HANDSHAKE_BYTES; at++) {
		nbd_peer_tell(&c->peer, "fault close-at bytes=%u times=1", at);
		if (rig_open_device(&c->rig, &params) == 0) {
			/* It had all that it needed. */
			rig_close_device(&c->rig);
			opened_nr++;
			EXPECT(at > 18 + 20 + 32, "open was content with %u bytes", at);
			nbd_peer_tell(&c->peer, "fault none");
		} else {
			EXPECT(c->rig.error[0] != '\0', "byte %u: no words", at);
			EXPECT(opened_nr == 0, "byte %u: %s", at, c->rig.error);
		}
		REQUIRE(rig_count_fds() == fds, "byte %u: %u descriptors, were %u", at,
			rig_count_fds(), fds);
	}
	EXPECT(opened_nr > 0 && opened_nr < HANDSHAKE_BYTES, "opened %u times", opened_nr);
}

/*
 * The same in the life of a device: at each byte of handshake and first replies, then it works.
 * Many at a time, each at another byte.
 */
static void check_close_at_every_byte(struct fault_case *c, const void *arg)
{
	const char *settings = arg;
	unsigned at = 0;

	case_serve(c, settings);
	if (!case_open(c, QUEUE "connections: 16", 1))
		return;
	while (at < HANDSHAKE_BYTES + 300) {
		for (unsigned i = 0; i < LINKS; i++)
			nbd_peer_tell(&c->peer, "fault close-at bytes=%u times=1", at++);
		nbd_peer_tell(&c->peer, "kick");
		if (!case_strike_out(c, LINKS)) {
			EXPECT(false, "of the last %u before byte %u", LINKS, at);
			return;
		}
	}
	case_works(c, 200);
}

/* A little more at each time, under a load of everything: large replies are cut in their middle. */
static void check_close_under_load(struct fault_case *c, const void *arg)
{
	unsigned queue_nr = *(const unsigned *)arg;

	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 2", queue_nr))
		return;
	for (unsigned i = 0; i < 40; i++)
		nbd_peer_tell(&c->peer, "fault close-at bytes=%u times=1", 300 + i * i * 997);
	nbd_peer_tell(&c->peer, "kick");
	for (int i = 0; i < 100 && nbd_peer_count(&c->peer, "left") > 0; i++)
		case_works(c, 100);
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "not all have struck");
}

/* ---- handshakes that lead to nothing ---- */

struct excuse {
	const char *fault;
	const char *words;
};

/* While it lasts all waits, and the log says why; then all is done. */
static void check_excuse(struct fault_case *c, const void *arg)
{
	const struct excuse *e = arg;
	uint64_t struck;

	case_serve(c, "");
	/* as long as a slow machine may take to open */
	if (!case_open(c, QUEUE "connections: 1\ntimeout: 2s", 1))
		return;
	case_works(c, 50);
	struck = nbd_peer_count(&c->peer, "struck");
	nbd_peer_tell(&c->peer, "fault %s", e->fault);
	nbd_peer_tell(&c->peer, "kick");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_reaches(c, "struck", struck + 2, 60000))
		return;
	case_turn_for(c, 600);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u of %u wait", rig_out_nr(&c->rig), CASE_DEPTH);
	case_logged(e->words);
	nbd_peer_tell(&c->peer, "fault none");
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result == 0, "%d",
		       c->rig.queue[0].io[tag].io.result);
	case_works(c, 100);
}

/* ---- policies ---- */

struct policy {
	const char *options;
	unsigned min_ms, max_ms; /* when requests fail that cannot be sent */
};

static void check_gives_up(struct fault_case *c, const void *arg)
{
	const struct policy *p = arg;
	uint64_t start_ms, took_ms;

	case_serve(c, "");
	if (!case_open(c, p->options, 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "down");
	case_turn_for(c, 1);
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, p->max_ms))
		return;
	took_ms = case_now_ms() - start_ms;
	EXPECT(took_ms >= p->min_ms, "gave up after %llu ms", (unsigned long long)took_ms);
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result < 0, "success without a server");
	/* From then on it is as with `fail`. */
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_WRITE, 4096);
	if (!case_drain(c, 4000))
		return;
	EXPECT(c->rig.queue[0].io[0].io.result < 0, "success without a server");
	/* And the server is never given up. */
	nbd_peer_tell(&c->peer, "up");
	for (int i = 0; i < 400 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 50);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "does not come back");
}

static void check_waits(struct fault_case *c, const void *arg)
{
	case_serve(c, "");
	if (!case_open(c, arg, 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "down");
	case_submit_all(c, BACKEND_WRITE_ZEROES, 4096);
	case_turn_for(c, 3000);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u of %u wait", rig_out_nr(&c->rig), CASE_DEPTH);
	nbd_peer_tell(&c->peer, "up");
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result == 0, "%d",
		       c->rig.queue[0].io[tag].io.result);
}

/* One request, or all of them, or the connection itself: overdue is overdue. */
static void check_timeout(struct fault_case *c, const void *arg)
{
	uint64_t before, start_ms;

	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 1\ntimeout: 2s", 1))
		return;
	case_works(c, 50);
	before = nbd_peer_count(&c->peer, "connections");
	nbd_peer_tell(&c->peer, "fault %s", (const char *)arg);
	case_turn_for(c, 1); /* a reactor's clock is that of its last turn */
	start_ms = case_now_ms();
	case_submit_all(c, BACKEND_WRITE, 65536);
	if (!case_drain(c, 60000))
		return;
	EXPECT(case_now_ms() - start_ms >= 1900, "after %llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
	EXPECT(c->rig.queue[0].io[0].io.result == 0, "%d", c->rig.queue[0].io[0].io.result);
	EXPECT(nbd_peer_count(&c->peer, "connections") > before, "the client did not hang up");
	case_logged("no answer to WRITE for (2000 ms|2 s)");
}

/* Lost for one reason so often that the log is told no more of it: of another one it is told. */
static void check_told_apart(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 1\ntimeout: 2s", 1))
		return;
	nbd_peer_tell(&c->peer, "fault hangup times=%u", LOG_LIMIT_BURST + 1);
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault stall times=1");
	case_submit_all(c, BACKEND_READ, 4096);
	if (case_drain(c, 60000))
		case_logged("no answer to READ for (2000 ms|2 s)");
}

/* Slow is not dead: each answer comes within its time, all together take longer. */
static void check_no_timeout(struct fault_case *c, const void *arg)
{
	uint64_t before;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 1\ntimeout: 3s", 1))
		return;
	case_works(c, 50);
	before = nbd_peer_count(&c->peer, "connections");
	nbd_peer_tell(&c->peer, "fault slow seconds=0.8");
	for (int i = 0; i < 5; i++) {
		case_submit_all(c, BACKEND_READ, 4096);
		if (!case_drain(c, 60000))
			return;
	}
	case_turn_for(c, 1000);
	EXPECT(nbd_peer_count(&c->peer, "connections") == before, "the client hung up");
}

/* ---- a server that shuts down ---- */

/* What it refuses so is done by it when it is back, or by another connection; it is told DISC. */
static void check_shutdown(struct fault_case *c, const void *arg)
{
	const char *cmd = arg;
	enum backend_op op = strcmp(cmd, "write") == 0 ? BACKEND_WRITE : BACKEND_READ;
	uint64_t disc, connections;

	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 2", 1))
		return;
	case_works(c, 50);
	disc = nbd_peer_count(&c->peer, "disc");
	connections = nbd_peer_count(&c->peer, "connections");
	nbd_peer_tell(&c->peer, "fault error error=ESHUTDOWN cmd=%s after=3 times=20", cmd);
	case_submit_all(c, op, 4096);
	if (!case_drain(c, 60000) || !case_reaches(c, "connections", connections + 1, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result == 0, "%d",
		       c->rig.queue[0].io[tag].io.result);
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "the server had no occasion for it");
	EXPECT(nbd_peer_count(&c->peer, "disc") > disc, "it was not told DISC");
	EXPECT(nbd_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
	case_logged("why=\"the server is shutting down\"");
	model_fini(&c->model);
	model_init(&c->model, &c->rig, MODEL_ZEROES);
	memset(c->model.known, 0, c->model.size_bytes / c->model.block_bytes);
	case_works(c, 200);
}

/* It refuses one and goes silent about the others: DISC has no turn, they are overdue. */
static void check_shutdown_silent(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 1\ntimeout: 2s", 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault error error=ESHUTDOWN times=1");
	nbd_peer_tell(&c->peer, "fault stall times=1");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result == 0, "%d",
		       c->rig.queue[0].io[tag].io.result);
	EXPECT(nbd_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
	case_logged("no answer to READ for (2000 ms|2 s)");
	case_works(c, 100);
}

/* on_disconnect says what becomes of them. */
static void check_shutdown_fails(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, "on_disconnect: fail\ncache: kept\nconnections: 1", 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault error error=ESHUTDOWN cmd=read times=1");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "it did not fail");
	for (int i = 0; i < 400 && rig_do(&c->rig, BACKEND_READ, 0, 0, 512, NULL) < 0; i++)
		case_turn_for(c, 50);
	case_works(c, 100);
}

/* What was not flushed goes with the server. */
static void check_shutdown_flush(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "volatile=1");
	if (!case_open(c, "cache: volatile\nconnections: 1", 1))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "write");
	nbd_peer_tell(&c->peer, "fault error error=ESHUTDOWN cmd=flush times=1");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "the writes are lost");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told twice");
	/* Written and refused is not lost: nothing was acknowledged. */
	nbd_peer_tell(&c->peer, "fault error error=ESHUTDOWN cmd=write times=1");
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "write again");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
}

static void run_shutdowns(uint64_t seed)
{
	fault_case_run("shutdown: READs are sent again", 30, seed, check_shutdown, "read");
	fault_case_run("shutdown: WRITEs are sent again", 30, seed, check_shutdown, "write");
	fault_case_run("shutdown: others are not answered", 30, seed, check_shutdown_silent, NULL);
	fault_case_run("shutdown: fail", 30, seed, check_shutdown_fails, NULL);
	fault_case_run("shutdown: a FLUSH of lost writes fails", 30, seed, check_shutdown_flush,
		       NULL);
}

/* ---- FLUSH ---- */

#define VOLATILE "on_disconnect: {queue: 30s}\ncache: volatile\nconnections: 1"
#define KEPT "on_disconnect: {queue: 30s}\ncache: kept\nconnections: 1"

struct flush_rule {
	const char *what, *options, *settings;
	bool flush_before, fua;
	int result; /* of the FLUSH after the connection was lost */
};

static void check_flush(struct fault_case *c, const void *arg)
{
	const struct flush_rule *r = arg;
	int ret;

	case_serve(c, r->settings);
	if (!case_open(c, r->options, 1))
		return;
	memset(c->rig.queue[0].io[0].io.buf, 0x77, 4096);
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, r->fua ? BACKEND_FUA : 0, 0, 4096, NULL) == 0,
	       "write");
	if (r->flush_before)
		EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	nbd_peer_tell(&c->peer, "kick");
	case_turn_for(c, 200);
	ret = rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL);
	EXPECT(ret == r->result, "flush: %d, not %d", ret, r->result);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told twice");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "read");
	EXPECT((((uint8_t *)c->rig.queue[0].io[0].io.buf)[0] == 0x77) ==
		       (r->flush_before || r->fua || !*r->settings),
	       "the server did not lose what it was to lose");
}

/* A FLUSH that was under way is one of those that cover the lost writes: it is not sent again. */
static void check_flush_under_way(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "volatile=1");
	if (!case_open(c, VOLATILE, 1))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "write");
	nbd_peer_tell(&c->peer, "fault hangup cmd=flush times=1");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "the writes are lost");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told twice");
	/* That FLUSH covers nothing any more: this loss is of no write. */
	nbd_peer_tell(&c->peer, "kick");
	case_turn_for(c, 200);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told without a loss");
}

/* It goes on, and FUA that is refused was not acknowledged. */
static void check_flush_refused(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "volatile=1");
	if (!case_open(c, VOLATILE, 1))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "write");
	nbd_peer_tell(&c->peer, "fault error error=EIO cmd=flush times=1");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "it was refused");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told twice");
	nbd_peer_tell(&c->peer, "fault error error=EIO cmd=write times=1");
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, BACKEND_FUA, 0, 4096, NULL) == -EIO, "FUA");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
}

/* What a device of before has written, nobody knows: it may be lost with the first connection. */
static void check_flush_taken_over(struct fault_case *c, const void *arg)
{
	const bool *taken_over = arg;
	int ret;

	case_serve(c, "volatile=1");
	c->had_bytes = *taken_over ? 4 << 20 : 0;
	if (!case_open(c, VOLATILE, 1))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "read");
	nbd_peer_tell(&c->peer, "kick");
	case_turn_for(c, 200);
	ret = rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL);
	EXPECT(ret == (*taken_over ? -EIO : 0), "flush: %d", ret);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "told twice");
}

static void run_every_byte(uint64_t seed)
{
	static const unsigned queue_nrs[] = { 1, 2 };

	fault_case_run("open: the server closes at every byte", 60, seed, check_open_at_every_byte,
		       NULL);
	fault_case_run("closed at every byte: structured", 120, seed, check_close_at_every_byte,
		       "min_block=512");
	fault_case_run("closed at every byte: simple", 120, seed, check_close_at_every_byte,
		       "structured=0");
	fault_case_run("closed at every byte: extended", 120, seed, check_close_at_every_byte,
		       "extended=1");
	fault_case_run("closed at every byte: EXPORT_NAME", 120, seed, check_close_at_every_byte,
		       "go=0");
	fault_case_run("closed anywhere under load", 120, seed, check_close_under_load,
		       &queue_nrs[0]);
	fault_case_run("closed anywhere under load, two queues", 120, seed, check_close_under_load,
		       &queue_nrs[1]);
}

/* The first to accept never greets: that must not take all the time that requests wait. */
static void check_silent_once(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, "timeout: 60s\non_disconnect: {queue: 4s}\ncache: kept\nconnections: 1",
		       1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "fault accept-silent times=1");
	nbd_peer_tell(&c->peer, "kick");
	case_works(c, 100);
	case_logged("took too long");
}

static void run_excuses(uint64_t seed)
{
	static const struct excuse excuses[] = {
		{ "accept-close", "clos|hung up|reset" },
		{ "accept-silent", "took too long" },
		{ "greeting-bad", "NBD|magic|greeting" },
		{ "greeting-oldstyle", "old" },
		{ "option-endless", "endless|more than|too many" },
		{ "option-silent", "took too long" },
		{ "option-magic", "magic" },
		{ "option-other", "EXTENDED_HEADERS|STRUCTURED_REPLY|not asked|option" },
		{ "option-huge", "4294967295|too long|bytes" },
		{ "export-unknown", "export" },
		{ "shutting-down", "shut" },
		{ "tls-required", "TLS" },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(excuses); i++) {
		snprintf(name, sizeof(name), "no handshake: %s: waits, says why, goes on",
			 excuses[i].fault);
		fault_case_run(name, 60, seed, check_excuse, &excuses[i]);
	}
	fault_case_run("no handshake: the first is silent", 60, seed, check_silent_once, NULL);
}

static void run_policies(uint64_t seed)
{
	static const struct policy fail = { "on_disconnect: fail\ncache: kept\nconnections: 1", 0,
					    10000 };
	static const struct policy queue = {
		"on_disconnect: {queue: 5s}\ncache: kept\nconnections: 1", 4900, 60000
	};

	fault_case_run("fail: requests fail at once", 60, seed, check_gives_up, &fail);
	fault_case_run("queue: requests fail after its time", 60, seed, check_gives_up, &queue);
	fault_case_run("queue: requests wait", 60, seed, check_waits, QUEUE "connections: 1");
	fault_case_run("forever: requests wait", 60, seed, check_waits,
		       "on_disconnect: forever\nconnections: 1");
	fault_case_run("timeout: one request is not answered", 60, seed, check_timeout,
		       "stall times=1");
	fault_case_run("timeout: the server reads no more", 60, seed, check_timeout,
		       "deaf times=1");
	fault_case_run("timeout: the log says so after many losses of another kind", 60, seed,
		       check_told_apart, NULL);
	fault_case_run("timeout: slow is not dead", 60, seed, check_no_timeout, NULL);
}

static void run_flushes(uint64_t seed)
{
	static const struct flush_rule rules[] = {
		{ "volatile: a FLUSH of lost writes fails, once", VOLATILE, "volatile=1", false,
		  false, -EIO },
		{ "volatile: nothing to flush was lost", VOLATILE, "volatile=1", true, false, 0 },
		{ "volatile: FUA was not lost", VOLATILE, "volatile=1", false, true, 0 },
		{ "kept: a FLUSH succeeds", KEPT, "", false, false, 0 },
	};
	static const bool yes = true, no = false;

	for (unsigned i = 0; i < ARRAY_SIZE(rules); i++)
		fault_case_run(rules[i].what, 30, seed, check_flush, &rules[i]);
	fault_case_run("volatile: a FLUSH under way fails, too", 30, seed, check_flush_under_way,
		       NULL);
	fault_case_run("volatile: a FLUSH is refused", 30, seed, check_flush_refused, NULL);
	fault_case_run("volatile: a device taken over: the first FLUSH fails", 30, seed,
		       check_flush_taken_over, &yes);
	fault_case_run("volatile: a new device: it does not", 30, seed, check_flush_taken_over,
		       &no);
}

void disconnects_run(uint64_t seed)
{
	run_every_byte(seed);
	run_excuses(seed);
	run_policies(seed);
	run_shutdowns(seed);
	run_flushes(seed);
}
