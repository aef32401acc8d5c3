/* Disks of objects: the lease is renewed while the store is busy or away, and the log says if not.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "s3_disk_case.h"

#define OBJECT_BYTES (64u << 10)

static bool turn_until_puts(struct fault_case *c, uint64_t nr)
{
	for (unsigned i = 0; i < 1000 && web_count(c, "puts") < nr; i++)
		case_turn_for(c, 10);
	return web_count(c, "puts") >= nr;
}

/* However long the store wants to be left alone, the lease is renewed while it is ours. */
static void check_renewal_wish(struct fault_case *c, const void *arg)
{
	uint64_t start_ms;

	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "on_disconnect: forever"))
		return;
	web_tell(c, "fault status 1 503:999999999");
	/* That the renewal has met it, and the next try. */
	for (unsigned i = 0; i < 1000 && web_count(c, "left") > 0; i++)
		case_turn_for(c, 10);
	start_ms = case_now_ms();
	EXPECT(turn_until_puts(c, web_count(c, "puts") + 1), "no renewal");
	EXPECT(case_now_ms() - start_ms < 5000, "a renewal after %llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	s3_case_is_whole(c);
}

/* FLUSHes that have nothing to tell the manifest, as a DISCARD of less than an object does nothing:
 * one is under way whenever it would be time, and the lease is renewed between two of them. */
static void check_renewal_beside_flushes(struct fault_case *c, const void *arg)
{
	uint64_t puts;

	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	puts = web_count(c, "puts");
	for (unsigned i = 0; i < 6; i++) {
		EXPECT(rig_do(&c->rig, BACKEND_DISCARD, 0, 0, 4096, NULL) == 0, "a discard");
		web_tell(c, "fault hold 1 430");
		EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	}
	EXPECT(web_count(c, "puts") >= puts + 3, "%llu renewals in two leases and a half",
	       (unsigned long long)(web_count(c, "puts") - puts));
	s3_case_is_whole(c);
}

static void flush_all(struct fault_case *c)
{
	case_submit_all(c, BACKEND_FLUSH, 0);
	case_drain(c, 5000);
	case_expect_all(c, 0);
}

/* FLUSHes share a write of the manifest, which renews the lease; without anything new it is read.
 */
static void check_flush_cost(struct fault_case *c, const void *arg)
{
	uint64_t puts, gets;

	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "lease: 60s"))
		return;
	for (unsigned i = 0; i < 4; i++) {
		EXPECT(s3_case_write(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
		puts = web_count(c, "puts");
		gets = web_count(c, "gets");
		flush_all(c);
		EXPECT(web_count(c, "puts") == puts + 1 && web_count(c, "gets") == gets,
		       "%u FLUSHes: %s", CASE_DEPTH, fault_peer_ask(&c->peer, "stats", "ok"));
		EXPECT(rig_do(&c->rig, BACKEND_DISCARD, 0, 0, 4096, NULL) == 0, "a discard");
		flush_all(c);
		EXPECT(web_count(c, "puts") == puts + 1 && web_count(c, "gets") == gets + 1,
		       "nothing new: %s", fault_peer_ask(&c->peer, "stats", "ok"));
		flush_all(c);
		EXPECT(web_count(c, "puts") == puts + 1 && web_count(c, "gets") == gets + 1,
		       "no write since: %s", fault_peer_ask(&c->peer, "stats", "ok"));
	}
	s3_case_is_whole(c);
}

/* A store that takes no write of the manifest any more: FLUSH says so, and is not tried for ever.
 */
static void check_flush_refused(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "lease: 60s"))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	web_tell(c, "set conditional=none");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush");
	case_logged("a flush fails.*the store refuses If-Match with the ETag that it says");
	web_tell(c, "set conditional=1");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	s3_case_is_whole(c);
}

/* What the log says is what has failed. */
static void check_renewal_fails(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "on_disconnect: fail"))
		return;
	web_tell(c, "fault status 2 503");
	for (unsigned i = 0; i < 1000 && web_count(c, "left") > 0; i++)
		case_turn_for(c, 10);
	case_turn_for(c, 50);
	case_logged("the lease was not renewed: another host may take the disk.*503");
	case_not_logged("a flush fails");
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	web_tell(c, "fault status 2 503");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush");
	case_logged("a flush fails.*503");
}

/* Requests of a disk that serves wait for the clock to be set; one that opens is told at once. */
static void check_clock(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	web_tell(c, "set clock=7230");
	case_submit_all(c, BACKEND_WRITE, 4096);
	case_turn_for(c, 300);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	EXPECT(s3_case_open_other(c) < 0 &&
		       strstr(s3_case_other.error, "this machine's clock is 2 h behind"),
	       "%s", s3_case_other.error);
	web_tell(c, "set clock=0");
	case_drain(c, 20000);
	case_expect_all(c, 0);
	s3_case_is_whole(c);
}

void s3_disk_leases_run(uint64_t seed)
{
	fault_case_run("s3-disk: the lease and a store that wants hours", 60, seed,
		       check_renewal_wish, NULL);
	fault_case_run("s3-disk: the lease beside flushes", 60, seed, check_renewal_beside_flushes,
		       NULL);
	fault_case_run("s3-disk: what a flush costs", 60, seed, check_flush_cost, NULL);
	fault_case_run("s3-disk: a flush that is refused", 60, seed, check_flush_refused, NULL);
	fault_case_run("s3-disk: a wrong clock", 60, seed, check_clock, NULL);
	fault_case_run("s3-disk: the lease is not renewed", 60, seed, check_renewal_fails, NULL);
}
