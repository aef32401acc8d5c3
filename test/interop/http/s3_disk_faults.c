/* Disks of objects in a store that misbehaves: two writers, lost answers, damaged objects. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "s3_disk_case.h"
#include "test/conformance/variants.h"

#define OBJECT_BYTES (64u << 10)
#define FIRST_BLOCK "o/00000002/00000000."

static void check_plain(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	case_works(c, 300);
	s3_case_is_whole(c);
}

/* As Ceph's gateway has it. */
static void check_bare(struct fault_case *c, const void *arg)
{
	(void)arg;
	s3_case_serve(c);
	web_tell(c, "set bare=1");
	if (!s3_case_open(c, S3_CASE_NEW))
		return;
	case_works(c, 50);
	/* Renewals too. */
	case_turn_for(c, 1000);
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
	s3_case_write(&c->rig, 0, 9);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush of the old one");
	EXPECT(s3_case_read(&s3_case_other, 0) == 1, "what was flushed");
	rig_close(&s3_case_other);
	s3_case_is_whole(c);
}

static void write_keys(struct fault_case *c, const char *token)
{
	char text[200], path[200];

	snprintf(text, sizeof(text),
		 "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n"
		 "aws_session_token = %s\n",
		 token);
	web_write_secret(c, "keys", text, path);
}

/* Keys of a role: reads, writes, renewals of the lease and its end go on with the next ones. */
static void check_keys_expire(struct fault_case *c, const void *arg)
{
	const char *yaml;
	uint64_t nr;

	(void)arg;
	s3_case_serve(c);
	web_tell(c, "set s3=AK:SK:us-east-1:one");
	yaml = s3_case_yaml(c, S3_CASE_NEW);
	write_keys(c, "one");
	if (!web_open_backend(c, "s3-disk", yaml, 1))
		return;
	case_works(c, 20);
	web_tell(c, "set s3=AK:SK:us-east-1:two expired=one");
	write_keys(c, "two");
	case_works(c, 50);
	nr = web_count(c, "expired");
	EXPECT(nr > 0, "the old token was not tried");
	case_logged("new keys are used");
	case_close(c);
	c->is_open = false;
	EXPECT(web_count(c, "expired") == nr, "closed with the old token");
	s3_case_is_whole(c);
}

/* ---- two writers ---- */

static void check_second(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	/* As the writer does, which has no turns while the other one opens. */
	web_tell(c, "touch disks/vm 1/a/manifest :300");
	EXPECT(s3_case_open_other(c) == -EBUSY, "%s", s3_case_other.error);
	EXPECT(strstr(s3_case_other.error, "writes the disk: stop its device first"), "%s",
	       s3_case_other.error);
}

static void check_taken(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	EXPECT(s3_case_write(&c->rig, 2 * OBJECT_BYTES, 5) == 0, "a write elsewhere");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	/* It stands still for the time of a lease, and is replaced. */
	REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
	EXPECT(s3_case_read(&s3_case_other, 0) == 1, "what was flushed is there");
	EXPECT(s3_case_write(&s3_case_other, 0, 2) == 0, "a write of the new one");
	EXPECT(s3_case_write(&s3_case_other, OBJECT_BYTES, 3) == 0, "another one");
	/* It wakes up: it does not know yet, but no flush of it may succeed, and nothing of it
	 * count. */
	s3_case_write(&c->rig, 0, 9);
	s3_case_write(&c->rig, 2 * OBJECT_BYTES, 9);
	case_turn_for(c, 500);
	EXPECT(s3_case_read(&s3_case_other, 2 * OBJECT_BYTES) == 5,
	       "what was flushed is not deleted by the old one");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush of the old one");
	EXPECT(s3_case_read(&c->rig, 0) == -EIO, "a read of the old one");
	EXPECT(s3_case_write(&c->rig, 4096, 9) == -EIO, "a write of the old one");
	case_logged("the disk's writer.*writes it now");
	EXPECT(s3_case_read(&s3_case_other, 0) == 2, "the new one's byte");
	rig_crash(&s3_case_other);
	REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
	EXPECT(s3_case_read(&s3_case_other, 0) == 2, "the new one's byte, opened again");
	EXPECT(s3_case_read(&s3_case_other, OBJECT_BYTES) == 3, "the new one's other byte");
	rig_close(&s3_case_other);
	/* Nobody waits for a lease that was given back. */
	REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
	rig_close(&s3_case_other);
	s3_case_is_whole(c);
}

/* What the new one's map refers to is not the old one's to delete. */
static void check_old_deletes(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
	/* It does not know yet that it is replaced. */
	s3_case_write(&c->rig, 4096, 9);
	case_turn_for(c, 500);
	EXPECT(s3_case_read(&s3_case_other, 0) == 1, "what was flushed is there");
	rig_close(&s3_case_other);
	s3_case_is_whole(c);
}

/* However long it goes on, it takes nothing back. */
static void check_old_renewals(struct fault_case *c, const void *arg)
{
	const char *manifest = arg;
	uint64_t puts;

	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	if (manifest) {
		web_tell(c, "replace disks/vm 1/a/manifest :%s", manifest);
	} else {
		REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
		EXPECT(s3_case_write(&s3_case_other, 0, 2) == 0, "a write of the new one");
	}
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush of the old one");
	puts = web_count(c, "puts");
	case_turn_for(c, 1500);
	EXPECT(web_count(c, "puts") == puts, "it writes still");
	if (manifest)
		return;
	EXPECT(rig_do(&s3_case_other, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush of the new one");
	EXPECT(s3_case_read(&s3_case_other, 0) == 2, "the new one's byte");
	rig_close(&s3_case_other);
}

/* One that was stored, though nobody said so, may be in the next one's map. */
static void check_failed_stays(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "on_disconnect: {queue: 1s}"))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	web_tell(c, "fault lost -1");
	EXPECT(s3_case_write(&c->rig, 0, 2) == -EIO, "a write without an answer");
	web_tell(c, "fault none");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	case_turn_for(c, 500);
	EXPECT(s3_case_objects(c, "o/") == 2, "%u objects", s3_case_objects(c, "o/"));
	EXPECT(s3_case_read(&c->rig, 0) == 1, "the byte of before");
	/* Now both are replaced. */
	EXPECT(s3_case_write(&c->rig, 0, 3) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	case_turn_for(c, 500);
	EXPECT(s3_case_objects(c, "o/") == 2, "%u objects: one is garbage",
	       s3_case_objects(c, "o/"));
}

/* Requests wait for a buffer when the disk is lost. */
static void check_lost_waiters(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "buffers: 1\nconnections: 1"))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	REQUIRE(s3_case_open_other(c) == 0, "%s", s3_case_other.error);
	rig_close(&s3_case_other);
	case_submit_all(c, BACKEND_WRITE, OBJECT_BYTES);
	case_drain(c, 10000);
	case_logged("the disk's writer.*writes it now");
}

static void submit(struct fault_case *c, unsigned tag, enum backend_op op, uint32_t index)
{
	struct rig_io *rio = &c->rig.queue[0].io[tag];

	rio->done = NULL;
	rio->io.op = (uint8_t)op;
	rio->io.flags = 0;
	rio->io.offset_bytes = op == BACKEND_FLUSH ? 0 : index * OBJECT_BYTES;
	rio->io.length_bytes = op == BACKEND_FLUSH ? 0 : OBJECT_BYTES;
	rig_submit(&c->rig, rio);
}

/* One that waits for a connection does not need it any more: the next one gets it. */
static void check_waiting_reads(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "buffers: 1\nconnections: 1"))
		return;
	for (unsigned i = 0; i < 4; i++)
		EXPECT(s3_case_write(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
	web_tell(c, "fault hold 1 300");
	for (unsigned i = 0; i < 3; i++)
		submit(c, i, BACKEND_READ, i);
	case_turn_for(c, 50);
	submit(c, 3, BACKEND_WRITE, 1);
	case_drain(c, 5000);
}

static bool replaced(struct fault_case *c)
{
	return rig_out_nr(&c->rig) == 1 && s3_case_objects(c, FIRST_BLOCK) == 1;
}

/* The object that a READ has asked for is replaced and deleted before the server looks for it. */
static void check_replaced_read(struct fault_case *c, const void *arg)
{
	(void)arg;
	s3_case_serve(c);
	/* The READ asks once, and its answer comes when the test has seen all of the rest. */
	if (!s3_case_open(c, S3_CASE_NEW "buffers: 1\ntimeout: 40s"))
		return;
	for (unsigned i = 0; i < 2; i++)
		EXPECT(s3_case_write(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
	web_tell(c, "fault hold 1 30000");
	submit(c, 0, BACKEND_READ, 0);
	case_turn_for(c, 50);
	submit(c, 1, BACKEND_WRITE, 0);
	case_turn_for(c, 100);
	submit(c, 2, BACKEND_FLUSH, 0);
	/* Until the object of the WRITE is there, there is one too: that of before. */
	for (unsigned i = 0; i < 100 && !replaced(c); i++)
		case_turn_for(c, 100);
	EXPECT(replaced(c), "%u are out, %u objects", rig_out_nr(&c->rig),
	       s3_case_objects(c, FIRST_BLOCK));
	web_tell(c, "release");
	case_drain(c, 5000);
	EXPECT(c->rig.queue[0].io[0].io.result == 0, "%d", c->rig.queue[0].io[0].io.result);
}

/* Whatever is lost while it opens and closes: nobody else has it. */
static void check_open_lossy(struct fault_case *c, const void *arg)
{
	(void)arg;
	s3_case_serve(c);
	web_tell(c, "set chaos=3 seed=%u", (unsigned)prng_below(&c->prng, 1000000));
	for (unsigned i = 0; i < 4; i++) {
		if (!s3_case_open(c, S3_CASE_NEW))
			return;
		EXPECT(s3_case_read(&c->rig, 0) == (int)i, "the byte of before");
		EXPECT(s3_case_write(&c->rig, 0, (uint8_t)(i + 1)) == 0, "a write");
		case_close(c);
	}
	s3_case_is_whole(c);
}

/* The next process of the same device need not wait for its own lease, nor the one after that. */
static void check_adopted(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	for (unsigned i = 0; i < 2; i++) {
		struct rig_params params = s3_case_params(c, "test", S3_CASE_NEW);
		int fd = dup(backend_stored_fd(c->rig.device, 0));

		case_works(c, 50);
		rig_crash(&c->rig);
		params.stored_fds[0] = fd;
		c->is_open = rig_open(&c->rig, &params) == 0;
		close(fd);
		REQUIRE(c->is_open, "%s", c->rig.error);
	}
	case_not_logged("is it there still");
	case_works(c, 50);
	s3_case_is_whole(c);
}

/* Processes die in the middle of it, and what they sent may be done later. */
static void check_deaths(struct fault_case *c, const void *arg)
{
	(void)arg;
	s3_case_serve(c);
	web_tell(c, "set chaos=25 seed=%u page=5", (unsigned)prng_below(&c->prng, 1000000));
	if (!s3_case_open(c, S3_CASE_NEW "buffers: 3\nconnections: 4"))
		return;
	for (unsigned i = 0; i < 4; i++) {
		struct rig_params params =
			s3_case_params(c, "test", S3_CASE_NEW "buffers: 3\nconnections: 4");

		case_works(c, 150);
		rig_crash(&c->rig);
		c->is_open = rig_open(&c->rig, &params) == 0;
		REQUIRE(c->is_open, "%s", c->rig.error);
	}
	case_works(c, 10);
	s3_case_is_whole(c);
}

/* ---- objects ---- */

static void check_sparse(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_objects(c, "o/") == 0, "a new disk has %u objects",
	       s3_case_objects(c, "o/"));
	for (unsigned i = 0; i < 8; i++)
		EXPECT(s3_case_write(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
	for (unsigned i = 0; i < 24; i++)
		EXPECT(s3_case_write(&c->rig, (i & 7) * OBJECT_BYTES + 4096, 1) == 0, "a write");
	for (unsigned i = 0; i < 500 && s3_case_objects(c, "o/") > 8; i++)
		case_turn_for(c, 20);
	EXPECT(s3_case_objects(c, "o/") == 8, "%u objects: those of before are deleted",
	       s3_case_objects(c, "o/"));
	EXPECT(rig_do(&c->rig, BACKEND_DISCARD, 0, 0, 6 * OBJECT_BYTES, NULL) == 0, "a discard");
	case_turn_for(c, 600);
	EXPECT(web_count(c, "put_bytes") < 36 * OBJECT_BYTES, "no zeroes were stored");
	case_close(c);
	if (!s3_case_open(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_read(&c->rig, 0) == 0, "discarded");
	EXPECT(s3_case_read(&c->rig, 7 * OBJECT_BYTES) == 1, "kept");
}

static void check_missing(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	case_close(c);
	/* Now the map of the next generation has it. */
	if (!s3_case_open(c, S3_CASE_NEW))
		return;
	case_close(c);
	if (!s3_case_open(c, S3_CASE_NEW))
		return;
	web_tell(c, "drop disks/vm 1/a/o/00000002/00000000.00000001");
	EXPECT(s3_case_read(&c->rig, 0) == -EIO, "a read of what is gone");
	EXPECT(s3_case_write(&c->rig, 0, 2) == -EIO, "a write to what is gone");
	EXPECT(s3_case_read(&c->rig, OBJECT_BYTES) == 0, "elsewhere");
	case_logged("an object cannot be read.*it is missing");
}

/* ---- the server is away ---- */

static void check_outage(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "on_disconnect: {queue: 60s}"))
		return;
	case_works(c, 50);
	fault_peer_ask(&c->peer, "down", "ok");
	case_submit_all(c, BACKEND_WRITE, 4096);
	case_turn_for(c, 700);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	fault_peer_ask(&c->peer, "up", "ok");
	case_drain(c, 20000);
	case_expect_all(c, 0);
	case_forget(c);
	case_works(c, 50);
	s3_case_is_whole(c);
}

static void check_give_up(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "on_disconnect: {queue: 1s}"))
		return;
	fault_peer_ask(&c->peer, "down", "ok");
	case_submit_all(c, BACKEND_WRITE, 4096);
	case_drain(c, 20000);
	case_expect_all(c, -EIO);
	fault_peer_ask(&c->peer, "up", "ok");
	case_forget(c);
	case_works(c, 50);
}

static void check_cancel(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	case_works(c, 50);
	web_tell(c, "fault hold -1 200");
	for (unsigned i = 0; i < 4; i++) {
		case_submit_all(c, i % 2 ? BACKEND_READ : BACKEND_WRITE, 4096);
		case_turn_for(c, i * 60);
		case_cancel_all(c);
		case_drain(c, 5000);
	}
	web_tell(c, "fault none");
	case_forget(c);
	case_works(c, 100);
}

/* ---- opening ---- */

struct refusal {
	const char *name, *tell, *more, *words;
	bool is_there; /* the disk */
};

static void check_refusal(struct fault_case *c, const void *arg)
{
	const struct refusal *r = arg;

	s3_case_serve(c);
	if (r->is_there) {
		if (!s3_case_open(c, S3_CASE_NEW))
			return;
		s3_case_write(&c->rig, 0, 1);
		case_close(c);
	}
	if (r->tell)
		web_tell(c, "%s", r->tell);
	web_backend_refused(c, "s3-disk", s3_case_yaml(c, r->more), r->words);
}

#define REPLACE "replace disks/vm 1/a/"

static const struct refusal refusals[] = {
	{ "no disk", NULL, "create: false", "there is no disk: create: true makes one", false },
	{ "another size", NULL, "size: 8MiB", "has 4194304 bytes, not 8388608", true },
	{ "no conditions", "set conditional=0", S3_CASE_NEW, "the store ignores If-None-Match",
	  false },
	{ "one condition only", "set conditional=new", S3_CASE_NEW, "the store ignores If-Match",
	  false },
	{ "no manifest of ours", REPLACE "manifest :{}", S3_CASE_NEW, "is none of ublkd's", true },
	{ "no JSON", REPLACE "manifest :[[[", S3_CASE_NEW, "is none of ublkd's", true },
	{ "a newer version", REPLACE "manifest :{\"format\":\"ublkd-s3-disk\",\"version\":2}",
	  S3_CASE_NEW, "a newer ublkd is needed", true },
	{ "nonsense", REPLACE "manifest :{\"format\":\"ublkd-s3-disk\",\"version\":1,\"size\":-1}",
	  S3_CASE_NEW, "makes no sense", true },
	{ "refused", "fault xml -1 403:AccessDenied:no", S3_CASE_NEW, "403 AccessDenied", false },
	{ "no bucket, no disk", "fault xml -1 404:NoSuchBucket:no", "create: false",
	  "404 NoSuchBucket.*see bucket", false },
	{ "no bucket", "fault xml -1 404:NoSuchBucket:no", S3_CASE_NEW,
	  "404 NoSuchBucket.*see bucket", false },
};

void s3_disk_run(uint64_t seed)
{
	char name[100];

	fault_case_run("s3-disk: it works", 60, seed, check_plain, NULL);
	fault_case_run("s3-disk: ETags without quotes", 60, seed, check_bare, NULL);
	fault_case_run("s3-disk: keys expire", 60, seed, check_keys_expire, NULL);
	fault_case_run("s3-disk: a second writer", 60, seed, check_second, NULL);
	fault_case_run("s3-disk: a writer is replaced", 60, seed, check_taken, NULL);
	fault_case_run("s3-disk: a writer that is replaced deletes nothing", 60, seed,
		       check_old_deletes, NULL);
	fault_case_run("s3-disk: a writer that is replaced stays so", 60, seed, check_old_renewals,
		       NULL);
	fault_case_run("s3-disk: a writer whose manifest is another one's", 60, seed,
		       check_old_renewals, "{\"format\":\"ublkd-s3-disk\",\"version\":2}");
	fault_case_run("s3-disk: a failed write", 60, seed, check_failed_stays, NULL);
	fault_case_run("s3-disk: the disk is lost while requests wait", 60, seed,
		       check_lost_waiters, NULL);
	fault_case_run("s3-disk: reads wait for a connection", 60, seed, check_waiting_reads, NULL);
	fault_case_run("s3-disk: replaced while it is read", 60, seed, check_replaced_read, NULL);
	fault_case_run("s3-disk: answers get lost while it opens", 60, seed, check_open_lossy,
		       NULL);
	fault_case_run("s3-disk: adopted", 60, seed, check_adopted, NULL);
	fault_case_run("s3-disk: deaths and lost answers", 120, seed, check_deaths, NULL);
	fault_case_run("s3-disk: sparse", 60, seed, check_sparse, NULL);
	fault_case_run("s3-disk: objects that are gone", 60, seed, check_missing, NULL);
	fault_case_run("s3-disk: the server is away", 60, seed, check_outage, NULL);
	fault_case_run("s3-disk: the server stays away", 60, seed, check_give_up, NULL);
	fault_case_run("s3-disk: cancelled", 60, seed, check_cancel, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++) {
		snprintf(name, sizeof(name), "s3-disk refused: %s", refusals[i].name);
		fault_case_run(name, 60, seed, check_refusal, &refusals[i]);
	}
}
