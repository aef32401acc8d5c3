/* Disks of objects in a store whose lists are written otherwise, or are not whole. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "s3_disk_case.h"
#include "test/conformance/variants.h"

#define OBJECT_BYTES (64u << 10)
#define OBJECTS 8u

struct written {
	const char *list;  /* of s3_store.py */
	const char *words; /* it is refused; NULL: it is read */
};

static bool lists_write(struct fault_case *c)
{
	s3_case_serve(c);
	web_tell(c, "set page=3");
	if (!s3_case_open(c, S3_CASE_NEW))
		return false;
	for (unsigned i = 0; i < OBJECTS; i++)
		EXPECT(s3_case_write(&c->rig, i * OBJECT_BYTES, (uint8_t)(i + 1)) == 0, "a write");
	return true;
}

/* By a writer, whose next map is made of what it has found. */
static void lists_are_whole(struct fault_case *c)
{
	if (!s3_case_open(c, S3_CASE_NEW))
		return;
	for (unsigned i = 0; i < OBJECTS; i++)
		EXPECT(s3_case_read(&c->rig, i * OBJECT_BYTES) == (int)i + 1, "object %u", i);
	case_close(c);
}

static void check_written(struct fault_case *c, const void *arg)
{
	const struct written *w = arg;

	if (!lists_write(c))
		return;
	case_close(c);
	web_tell(c, "set list=%s", w->list);
	if (w->words)
		web_backend_refused(c, "s3-disk", s3_case_yaml(c, S3_CASE_NEW), w->words);
	else
		lists_are_whole(c);
	if (c->is_open)
		return;
	web_tell(c, "set list=");
	lists_are_whole(c);
	s3_case_is_whole(c);
}

static void lists_flush(struct fault_case *c)
{
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
}

static void lists_crash(struct fault_case *c)
{
	rig_crash(&c->rig);
	model_fini(&c->model);
	c->is_open = false;
}

/* Its manifest has the number since the last renewal. */
static void check_crashed(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!lists_write(c))
		return;
	case_turn_for(c, 700);
	lists_crash(c);
	web_tell(c, "set list=short");
	web_backend_refused(c, "s3-disk", s3_case_yaml(c, S3_CASE_NEW),
			    "not whole: of generation 2 it has 5, .*; stored were 8, the last f");
	if (c->is_open)
		return;
	web_tell(c, "set list=");
	lists_are_whole(c);
}

/* Its host dies as soon as a FLUSH has succeeded: another one takes no list without all of it. */
static void check_flushed(struct fault_case *c, const void *arg)
{
	const struct written *w = arg;

	if (!lists_write(c))
		return;
	lists_flush(c);
	lists_crash(c);
	web_tell(c, "set list=%s", w->list);
	web_backend_refused(c, "s3-disk", s3_case_yaml(c, S3_CASE_NEW), w->words);
	if (c->is_open)
		return;
	web_tell(c, "set list=");
	lists_are_whole(c);
}

/* The same by a WRITE with FUA, and by one more object after a FLUSH. */
static void check_flushed_again(struct fault_case *c, const void *arg)
{
	static _Alignas(4096) uint8_t buf[4096];
	struct rig_io *rio;

	(void)arg;
	if (!lists_write(c))
		return;
	lists_flush(c);
	rio = &c->rig.queue[0].io[0];
	memset(buf, 9, sizeof(buf));
	rio->done = NULL;
	rio->io.op = BACKEND_WRITE;
	rio->io.flags = BACKEND_FUA;
	rio->io.offset_bytes = OBJECTS * OBJECT_BYTES;
	rio->io.length_bytes = 4096;
	rig_submit(&c->rig, rio);
	case_drain(c, 5000);
	EXPECT(rio->io.result == 0, "%d", rio->io.result);
	lists_crash(c);
	web_tell(c, "set list=short page=1000");
	web_backend_refused(c, "s3-disk", s3_case_yaml(c, S3_CASE_NEW),
			    "it has 8, the last f; stored were 9, the last 11");
}

/*
 * The answer to a FLUSH's write of the manifest is lost, and it is given up; it is done only when
 * the next one is under way, which has more to say and must not be taken for it.
 */
static void check_flushed_late(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW "on_disconnect: fail"))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	/* Nothing is due for the third of a lease. */
	lists_flush(c);
	EXPECT(s3_case_write(&c->rig, OBJECT_BYTES, 2) == 0, "a write");
	web_tell(c, "fault late 1 150");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush without an answer");
	EXPECT(s3_case_write(&c->rig, 2 * OBJECT_BYTES, 3) == 0, "a write");
	case_turn_for(c, 200);
	lists_flush(c);
	lists_crash(c);
	web_tell(c, "set list=short");
	web_backend_refused(c, "s3-disk", s3_case_yaml(c, S3_CASE_NEW),
			    "it has 2, the last 3; stored were 3, the last 5");
}

/* One that was stored just now, which the manifest does not count: the process before has noted it.
 */
static void check_adopted(struct fault_case *c, const void *arg)
{
	struct rig_params params;

	(void)arg;
	if (!s3_case_begin(c, S3_CASE_NEW))
		return;
	EXPECT(s3_case_write(&c->rig, 0, 1) == 0, "a write");
	params = s3_case_params(c, "test", S3_CASE_NEW);
	params.stored_fds[0] = dup(backend_stored_fd(c->rig.device, 0));
	rig_crash(&c->rig);
	web_tell(c, "set list=short");
	c->is_open = rig_open(&c->rig, &params) == 0;
	REQUIRE(!c->is_open, "it was opened");
	EXPECT(strstr(c->rig.error, "it has 0, the last 0; stored were 1, the last 1"), "%s",
	       c->rig.error);
	web_tell(c, "set list=");
	c->is_open = rig_open(&c->rig, &params) == 0;
	close(params.stored_fds[0]);
	REQUIRE(c->is_open, "%s", c->rig.error);
	EXPECT(s3_case_read(&c->rig, 0) == 1, "what was stored");
}

/* An object that is gone: the map does not have it yet. */
static void check_gone(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!lists_write(c))
		return;
	case_close(c);
	web_tell(c, "drop disks/vm 1/a/o/00000002/00000003.00000007");
	web_backend_refused(c, "s3-disk", s3_case_yaml(c, S3_CASE_NEW),
			    "the list of objects is not whole: of generation 2 it has 7, the last "
			    "f; stored were 8, the last f");
}

#define NONSENSE "the list of objects makes no sense: "
#define SHORT "the list of objects is not whole: of generation 2 it has "

static const struct written all_written[] = {
	{ "capital", NULL },
	{ "one", NULL },
	{ "space", NULL },
	{ "attribute", NULL },
	{ "namespace", NULL },
	{ "tags", NULL },
	{ "cdata", NULL },
	{ "comment", NULL },
	{ "reference", NULL },
	{ "nocount", NULL },
	{ "more", NULL },
	{ "nothing", NONSENSE "no element found" },
	{ "half", NONSENSE },
	{ "unended", NONSENSE "no element found" },
	{ "html", NONSENSE "the document is \"html/body\"" },
	{ "error", NONSENSE "the document is \"Error/Code\"" },
	{ "doctype", NONSENSE "it has a document type" },
	{ "maybe", NONSENSE "IsTruncated is \"maybe\"" },
	{ "endless", NONSENSE "it does not say IsTruncated" },
	{ "notoken", NONSENSE "IsTruncated is true, and there is no NextContinuationToken" },
	{ "last", NONSENSE "IsTruncated is false, and there is a NextContinuationToken" },
	{ "stuck", NONSENSE "NextContinuationToken is the one before" },
	{ "slash", NONSENSE "it has a key that was not asked for: /vm 1/a/o/00000002/" },
	{ "small", NONSENSE "it has ListBucketResult/contents/Key, which no list has" },
	{ "smaller", NONSENSE "it has ListBucketResult/contents/Key, which no list has" },
	{ "wrapped", NONSENSE "it has ListBucketResult/All/Contents/Key, which no list has" },
	{ "sizezero", NONSENSE "it has a key that is none of this disk's: vm 1/a/o/00000002/0000000"
			       "0.00000001 \\(0 bytes\\)" },
	{ "count", NONSENSE "KeyCount is 13, and there are 3 keys" },
	{ "common", NONSENSE "CommonPrefixes is \"vm 1/a/o/00000002/\"" },
	{ "foreign", NONSENSE "it has a key that is none of this disk's: vm 1/a/o/00000002/README "
			      "\\(5 bytes\\)" },
	{ "other", NONSENSE "it has a key that was not asked for: other/vm 1/a/o/00000002/" },
};

/* Lists without all: after an orderly end, and after a FLUSH. */
static const struct written all_short[] = {
	{ "short", SHORT "5, the last d; stored were 8, the last f" },
	{ "lastnotoken", SHORT "3, the last 5; stored were 8, the last f" },
	{ "none", SHORT "0, the last 0; stored were 8, the last f" },
};

static void run_all(const char *what, const struct written *all, size_t nr, uint64_t seed,
		    void (*check)(struct fault_case *c, const void *arg))
{
	char name[100];

	for (size_t i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "s3-disk %s: %s", what, all[i].list);
		fault_case_run(name, 60, seed, check, &all[i]);
	}
}

void s3_disk_lists_run(uint64_t seed)
{
	run_all("list", all_written, ARRAY_SIZE(all_written), seed, check_written);
	run_all("list", all_short, ARRAY_SIZE(all_short), seed, check_written);
	run_all("flushed", all_short, ARRAY_SIZE(all_short), seed, check_flushed);
	fault_case_run("s3-disk flushed: one more", 60, seed, check_flushed_again, NULL);
	fault_case_run("s3-disk flushed: done late", 60, seed, check_flushed_late, NULL);
	fault_case_run("s3-disk list: short after a crash", 60, seed, check_crashed, NULL);
	fault_case_run("s3-disk list: short for the next process", 60, seed, check_adopted, NULL);
	fault_case_run("s3-disk list: an object is gone", 60, seed, check_gone, NULL);
}
