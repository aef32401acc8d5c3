/* Disks of objects in a store that misbehaves: two writers, lost answers, damaged objects. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "test/conformance/variants.h"
#include "web_case.h"

#define OBJECT_BYTES (64u << 10)
#define NEW "create: true\nsize: 4MiB\n"
#define FIRST_BLOCK "o/00000002/00000000."

/* Of the disk that c has too. */
static struct rig other;

static void store_serve(struct fault_case *c)
{
	web_serve_store(c);
	web_tell(c, "set s3=AK:SK:us-east-1");
}

static const char *disk_yaml(struct fault_case *c, const char *more)
{
	static char yaml[1500];
	char keys[200];

	web_write_secret(c, "keys",
			 "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n", keys);
	snprintf(yaml, sizeof(yaml),
		 "bucket: disks\nprefix: \"vm 1/a\"\nendpoint: \"http://127.0.0.1:%d\"\n"
		 "credentials_file: %s\nobject_size: 64KiB\nlease: 1s\n"
		 "%s%s\n",
		 atoi(strrchr(c->peer.uri, ':') + 1), keys,
		 strstr(more, "timeout:") ? "" : "timeout: 2s\n", more);
	return yaml;
}

static bool disk_open(struct fault_case *c, const char *more)
{
	return web_open_backend(c, "s3-disk", disk_yaml(c, more), 1);
}

static int other_open(struct fault_case *c)
{
	struct rig_params params = {
		.ops = backend_find("s3-disk"),
		.name = "other",
		.yaml = disk_yaml(c, NEW),
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = CASE_DEPTH,
	};

	return rig_open(&other, &params);
}

/* Of the store: how many objects have keys that begin so. */
static unsigned objects(struct fault_case *c, const char *prefix)
{
	char line[100];

	snprintf(line, sizeof(line), "objects disks/vm 1/a/%s", prefix);
	return (unsigned)atoi(fault_peer_ask(&c->peer, line, "ok ") + strlen("ok "));
}

static void expect_no_violation(struct fault_case *c)
{
	EXPECT(web_count(c, "violations") == 0, "%s", fault_peer_ask(&c->peer, "stats", "ok"));
}

static int write_byte(struct rig *rig, uint64_t offset_bytes, uint8_t byte)
{
	static _Alignas(4096) uint8_t buf[4096];

	memset(buf, byte, sizeof(buf));
	return rig_do(rig, BACKEND_WRITE, 0, offset_bytes, sizeof(buf), buf);
}

static int read_byte(struct rig *rig, uint64_t offset_bytes)
{
	static _Alignas(4096) uint8_t buf[4096];
	int ret = rig_do(rig, BACKEND_READ, 0, offset_bytes, sizeof(buf), buf);

	return ret < 0 ? ret : buf[0];
}

static void check_plain(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	case_works(c, 300);
	expect_no_violation(c);
}

/* As Ceph's gateway has it. */
static void check_bare(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	web_tell(c, "set bare=1");
	if (!disk_open(c, NEW))
		return;
	case_works(c, 50);
	/* Renewals too. */
	case_turn_for(c, 1000);
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	REQUIRE(other_open(c) == 0, "%s", other.error);
	write_byte(&c->rig, 0, 9);
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush of the old one");
	EXPECT(read_byte(&other, 0) == 1, "what was flushed");
	rig_close(&other);
	expect_no_violation(c);
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
	store_serve(c);
	web_tell(c, "set s3=AK:SK:us-east-1:one");
	yaml = disk_yaml(c, NEW);
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
	expect_no_violation(c);
}

/* ---- two writers ---- */

static void check_second(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	/* As the writer does, which has no turns while the other one opens. */
	web_tell(c, "touch disks/vm 1/a/manifest :300");
	EXPECT(other_open(c) == -EBUSY, "%s", other.error);
	EXPECT(strstr(other.error, "writes the disk: stop its device first"), "%s", other.error);
}

static void check_taken(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	EXPECT(write_byte(&c->rig, 2 * OBJECT_BYTES, 5) == 0, "a write elsewhere");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	/* It stands still for the time of a lease, and is replaced. */
	REQUIRE(other_open(c) == 0, "%s", other.error);
	EXPECT(read_byte(&other, 0) == 1, "what was flushed is there");
	EXPECT(write_byte(&other, 0, 2) == 0, "a write of the new one");
	EXPECT(write_byte(&other, OBJECT_BYTES, 3) == 0, "another one");
	/* It wakes up: it does not know yet, but no flush of it may succeed, and nothing of it
	 * count. */
	write_byte(&c->rig, 0, 9);
	write_byte(&c->rig, 2 * OBJECT_BYTES, 9);
	case_turn_for(c, 500);
	EXPECT(read_byte(&other, 2 * OBJECT_BYTES) == 5,
	       "what was flushed is not deleted by the old one");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush of the old one");
	EXPECT(read_byte(&c->rig, 0) == -EIO, "a read of the old one");
	EXPECT(write_byte(&c->rig, 4096, 9) == -EIO, "a write of the old one");
	case_logged("the disk's writer.*writes it now");
	EXPECT(read_byte(&other, 0) == 2, "the new one's byte");
	rig_crash(&other);
	REQUIRE(other_open(c) == 0, "%s", other.error);
	EXPECT(read_byte(&other, 0) == 2, "the new one's byte, opened again");
	EXPECT(read_byte(&other, OBJECT_BYTES) == 3, "the new one's other byte");
	rig_close(&other);
	/* Nobody waits for a lease that was given back. */
	REQUIRE(other_open(c) == 0, "%s", other.error);
	rig_close(&other);
	expect_no_violation(c);
}

/* What the new one's map refers to is not the old one's to delete. */
static void check_old_deletes(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	REQUIRE(other_open(c) == 0, "%s", other.error);
	/* It does not know yet that it is replaced. */
	write_byte(&c->rig, 4096, 9);
	case_turn_for(c, 500);
	EXPECT(read_byte(&other, 0) == 1, "what was flushed is there");
	rig_close(&other);
	expect_no_violation(c);
}

/* However long it goes on, it takes nothing back. */
static void check_old_renewals(struct fault_case *c, const void *arg)
{
	const char *manifest = arg;
	uint64_t puts;

	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	if (manifest) {
		web_tell(c, "replace disks/vm 1/a/manifest :%s", manifest);
	} else {
		REQUIRE(other_open(c) == 0, "%s", other.error);
		EXPECT(write_byte(&other, 0, 2) == 0, "a write of the new one");
	}
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush of the old one");
	puts = web_count(c, "puts");
	case_turn_for(c, 1500);
	EXPECT(web_count(c, "puts") == puts, "it writes still");
	if (manifest)
		return;
	EXPECT(rig_do(&other, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush of the new one");
	EXPECT(read_byte(&other, 0) == 2, "the new one's byte");
	rig_close(&other);
}

/* One that was stored, though nobody said so, may be in the next one's map. */
static void check_failed_stays(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW "on_disconnect: {queue: 1s}"))
		return;
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	web_tell(c, "fault lost -1");
	EXPECT(write_byte(&c->rig, 0, 2) == -EIO, "a write without an answer");
	web_tell(c, "fault none");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	case_turn_for(c, 500);
	EXPECT(objects(c, "o/") == 2, "%u objects", objects(c, "o/"));
	EXPECT(read_byte(&c->rig, 0) == 1, "the byte of before");
	/* Now both are replaced. */
	EXPECT(write_byte(&c->rig, 0, 3) == 0, "a write");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
	case_turn_for(c, 500);
	EXPECT(objects(c, "o/") == 2, "%u objects: one is garbage", objects(c, "o/"));
}

/* Requests wait for a buffer when the disk is lost. */
static void check_lost_waiters(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW "buffers: 1\nconnections: 1"))
		return;
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	REQUIRE(other_open(c) == 0, "%s", other.error);
	rig_close(&other);
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
	store_serve(c);
	if (!disk_open(c, NEW "buffers: 1\nconnections: 1"))
		return;
	for (unsigned i = 0; i < 4; i++)
		EXPECT(write_byte(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
	web_tell(c, "fault hold 1 300");
	for (unsigned i = 0; i < 3; i++)
		submit(c, i, BACKEND_READ, i);
	case_turn_for(c, 50);
	submit(c, 3, BACKEND_WRITE, 1);
	case_drain(c, 5000);
}

static bool replaced(struct fault_case *c)
{
	return rig_out_nr(&c->rig) == 1 && objects(c, FIRST_BLOCK) == 1;
}

/* The object that a READ has asked for is replaced and deleted before the server looks for it. */
static void check_replaced_read(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	/* The READ asks once, and its answer comes when the test has seen all of the rest. */
	if (!disk_open(c, NEW "buffers: 1\ntimeout: 40s"))
		return;
	for (unsigned i = 0; i < 2; i++)
		EXPECT(write_byte(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
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
	       objects(c, FIRST_BLOCK));
	web_tell(c, "release");
	case_drain(c, 5000);
	EXPECT(c->rig.queue[0].io[0].io.result == 0, "%d", c->rig.queue[0].io[0].io.result);
}

/* Whatever is lost while it opens and closes: nobody else has it. */
static void check_open_lossy(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	web_tell(c, "set chaos=3 seed=%u", (unsigned)prng_below(&c->prng, 1000000));
	for (unsigned i = 0; i < 8; i++) {
		if (!disk_open(c, NEW))
			return;
		EXPECT(read_byte(&c->rig, 0) == (int)i, "the byte of before");
		EXPECT(write_byte(&c->rig, 0, (uint8_t)(i + 1)) == 0, "a write");
		case_close(c);
	}
	expect_no_violation(c);
}

/* The next process of the same device need not wait for its own lease, nor the one after that. */
static void check_adopted(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	for (unsigned i = 0; i < 2; i++) {
		struct rig_params params = {
			.ops = backend_find("s3-disk"),
			.name = "test",
			.yaml = disk_yaml(c, NEW),
			.block_bytes = 512,
			.queue_nr = 1,
			.depth = CASE_DEPTH,
		};
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
	expect_no_violation(c);
}

/* Processes die in the middle of it, and what they sent may be done later. */
static void check_deaths(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	web_tell(c, "set chaos=25 seed=%u page=5", (unsigned)prng_below(&c->prng, 1000000));
	if (!disk_open(c, NEW "buffers: 3\nconnections: 4"))
		return;
	for (unsigned i = 0; i < 4; i++) {
		struct rig_params params = {
			.ops = backend_find("s3-disk"),
			.name = "test",
			.yaml = disk_yaml(c, NEW "buffers: 3\nconnections: 4"),
			.block_bytes = 512,
			.queue_nr = 1,
			.depth = CASE_DEPTH,
		};

		case_works(c, 150);
		rig_crash(&c->rig);
		c->is_open = rig_open(&c->rig, &params) == 0;
		REQUIRE(c->is_open, "%s", c->rig.error);
	}
	case_works(c, 10);
	expect_no_violation(c);
}

/* ---- objects ---- */

static void check_sparse(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	EXPECT(objects(c, "o/") == 0, "a new disk has %u objects", objects(c, "o/"));
	for (unsigned i = 0; i < 8; i++)
		EXPECT(write_byte(&c->rig, i * OBJECT_BYTES, 1) == 0, "a write");
	for (unsigned i = 0; i < 24; i++)
		EXPECT(write_byte(&c->rig, (i & 7) * OBJECT_BYTES + 4096, 1) == 0, "a write");
	case_turn_for(c, 600);
	EXPECT(objects(c, "o/") == 8, "%u objects: those of before are deleted", objects(c, "o/"));
	EXPECT(rig_do(&c->rig, BACKEND_DISCARD, 0, 0, 6 * OBJECT_BYTES, NULL) == 0, "a discard");
	case_turn_for(c, 600);
	EXPECT(web_count(c, "put_bytes") < 36 * OBJECT_BYTES, "no zeroes were stored");
	case_close(c);
	if (!disk_open(c, NEW))
		return;
	EXPECT(read_byte(&c->rig, 0) == 0, "discarded");
	EXPECT(read_byte(&c->rig, 7 * OBJECT_BYTES) == 1, "kept");
}

static void check_missing(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW))
		return;
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	case_close(c);
	web_tell(c, "drop disks/vm 1/a/o/00000002/00000000.00000001");
	if (!disk_open(c, NEW))
		return;
	EXPECT(read_byte(&c->rig, 0) == 0, "one that the list has not is a hole");
	EXPECT(write_byte(&c->rig, 0, 1) == 0, "a write");
	case_close(c);
	/* Now the map of the next generation has it. */
	if (!disk_open(c, NEW))
		return;
	case_close(c);
	if (!disk_open(c, NEW))
		return;
	web_tell(c, "drop disks/vm 1/a/o/00000003/00000000.00000001");
	EXPECT(read_byte(&c->rig, 0) == -EIO, "a read of what is gone");
	EXPECT(write_byte(&c->rig, 0, 2) == -EIO, "a write to what is gone");
	EXPECT(read_byte(&c->rig, OBJECT_BYTES) == 0, "elsewhere");
	case_logged("an object cannot be read.*it is missing");
}

/* ---- the server is away ---- */

static void check_outage(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW "on_disconnect: {queue: 60s}"))
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
	expect_no_violation(c);
}

static void check_give_up(struct fault_case *c, const void *arg)
{
	(void)arg;
	store_serve(c);
	if (!disk_open(c, NEW "on_disconnect: {queue: 1s}"))
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
	store_serve(c);
	if (!disk_open(c, NEW))
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

	store_serve(c);
	if (r->is_there) {
		if (!disk_open(c, NEW))
			return;
		write_byte(&c->rig, 0, 1);
		case_close(c);
	}
	if (r->tell)
		web_tell(c, "%s", r->tell);
	web_backend_refused(c, "s3-disk", disk_yaml(c, r->more), r->words);
}

#define REPLACE "replace disks/vm 1/a/"

static const struct refusal refusals[] = {
	{ "no disk", NULL, "create: false", "there is no disk: create: true makes one", false },
	{ "another size", NULL, "size: 8MiB", "has 4194304 bytes, not 8388608", true },
	{ "no conditions", "set conditional=0", NEW, "the store ignores If-None-Match", false },
	{ "one condition only", "set conditional=new", NEW, "the store ignores If-Match", false },
	{ "no manifest of ours", REPLACE "manifest :{}", NEW, "is none of ublkd's", true },
	{ "no JSON", REPLACE "manifest :[[[", NEW, "is none of ublkd's", true },
	{ "a newer version", REPLACE "manifest :{\"format\":\"ublkd-s3-disk\",\"version\":2}", NEW,
	  "a newer ublkd is needed", true },
	{ "nonsense", REPLACE "manifest :{\"format\":\"ublkd-s3-disk\",\"version\":1,\"size\":-1}",
	  NEW, "makes no sense", true },
	{ "refused", "fault xml -1 403:AccessDenied:no", NEW, "403 AccessDenied", false },
	{ "no bucket, no disk", "fault xml -1 404:NoSuchBucket:no", "create: false",
	  "404 NoSuchBucket.*see bucket", false },
	{ "no bucket", "fault xml -1 404:NoSuchBucket:no", NEW, "404 NoSuchBucket.*see bucket",
	  false },
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
