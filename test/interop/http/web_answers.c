/* Answers that break a rule: asked again, never believed; and an object that is another one. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "web_case.h"

#define SHORT "timeout: 300ms\n"

struct answer {
	const char *name, *fault, *options;
	const char *words; /* of the log */
};

/* Some answers are wrong in this way, then they are right: all requests succeed. */
static void check_answer(struct fault_case *c, const void *arg)
{
	const struct answer *a = arg;

	web_serve(c, NULL);
	if (!web_open_case(c, a->options, 1))
		return;
	web_works(c);
	web_tell(c, "fault %s", a->fault);
	web_works(c);
	EXPECT(web_count(c, "left") == 0, "the server had no occasion for it");
	case_logged(a->words);
}

struct change {
	const char *name, *before, *after, *words;
};

/* No byte of the other object is ever taken. */
static void check_change(struct fault_case *c, const void *arg)
{
	const struct change *change = arg;
	const char *failure;

	web_serve(c, NULL);
	web_tell(c, "set %s", change->before);
	if (!web_open_case(c, "", 1))
		return;
	web_works(c);
	web_tell(c, "set %s", change->after);
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result < 0, "served on");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0, "served on");
	failure = backend_failure(c->rig.device, NULL);
	EXPECT(failure && strstr(failure, change->words), "%s", failure);
}

/* The server names another place, which is good for a while, then a third. */
static void check_moving(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "", 2))
		return;
	web_works(c);
	web_tell(c, "fault redirect 3 /disk.img?signed=1");
	web_works(c);
	/* The place is gone: asked at the first one again. */
	web_tell(c, "fault redirect 1 /other.img");
	web_works(c);
	EXPECT(web_count(c, "left") == 0, "it was sent nowhere");
}

static void check_circle(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "", 1))
		return;
	web_tell(c, "fault redirect -1 /disk.img");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0, "served");
	case_logged("more than 5 redirections");
	web_tell(c, "fault none");
	web_works(c);
}

/* What refuses a request refuses that one alone. */
static void check_refusal(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "", 1))
		return;
	web_tell(c, "fault status 1 403");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0, "served");
	case_logged("does not let us read the object \\(403\\)");
	web_works(c);
	EXPECT(!backend_failure(c->rig.device, NULL), "it has failed");
}

/* Reads next to each other are one request; each gets its own bytes. */
static void check_coalescing(struct fault_case *c, const void *arg)
{
	uint64_t before;

	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "connections: 1\n", 1))
		return;
	before = web_count(c, "requests");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 10000))
		return;
	case_expect_all(c, 0);
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(model_compare(&c->model, &c->rig.queue[0].io[tag].io) < 0, "wrong bytes");
	EXPECT(web_count(c, "requests") - before <= 2, "%llu requests",
	       (unsigned long long)(web_count(c, "requests") - before));
}

/* Some of a request's reads are cancelled while it is under way: the others get their bytes. */
static void check_cancel(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "connections: 1\n", 1))
		return;
	web_tell(c, "set delay_ms=100");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 20);
	for (unsigned tag = 0; tag < CASE_DEPTH; tag += 2)
		backend_io_cancel(&c->rig.queue[0].io[tag].io);
	if (!case_drain(c, 10000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++) {
		const struct backend_io *io = &c->rig.queue[0].io[tag].io;

		EXPECT(io->result == (tag & 1 ? 0 : -EIO), "tag %u: %d", tag, io->result);
		if (tag & 1)
			EXPECT(model_compare(&c->model, io) < 0, "wrong bytes");
	}
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 20);
	case_cancel_all(c);
	if (!case_drain(c, 10000))
		return;
	web_tell(c, "set delay_ms=0");
	web_works(c);
}

/* With the end of the first read all others are cancelled, before anything else happens. */
static void cancel_others(struct rig_io *rio, void *arg)
{
	struct fault_case *c = arg;

	for (unsigned tag = 0; tag < CASE_DEPTH; tag++) {
		struct rig_io *other = &c->rig.queue[0].io[tag];

		other->done = NULL;
		if (other != rio && other->out)
			backend_io_cancel(&other->io);
	}
}

static void cancel_from_the_first(struct fault_case *c)
{
	case_submit_all(c, BACKEND_READ, 4096);
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++) {
		c->rig.queue[0].io[tag].done = cancel_others;
		c->rig.queue[0].io[tag].arg = c;
	}
	if (case_drain(c, 10000))
		web_works(c);
}

/* In the middle of a body, of its own and of others', and of an answer that fails all. */
static void check_cancel_inside(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "connections: 4\nrequest_max: 32KiB\n", 1))
		return;
	for (unsigned i = 0; i < 20; i++) {
		cancel_from_the_first(c);
		web_tell(c, "fault status 1 403");
		cancel_from_the_first(c);
	}
}

/* The last block of an object that ends in the middle of it: zeroes behind. */
static void check_tail(struct fault_case *c, const void *arg)
{
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	unsigned wrong = 0;

	(void)arg;
	web_serve(c, NULL);
	web_tell(c, "set size=1000100");
	if (!web_open_case(c, "", 1))
		return;
	EXPECT(backend_size(c->rig.device) == 1000448, "%llu bytes",
	       (unsigned long long)backend_size(c->rig.device));
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 1000448 - 4096, 4096, buf) == 0, "not read");
	for (unsigned i = 4096 - 348; i < 4096; i++)
		wrong += buf[i] != 0;
	EXPECT(wrong == 0, "%u bytes are no zeroes", wrong);
	EXPECT(buf[4096 - 348 - 4] != 0 || buf[4096 - 348 - 3] != 0,
	       "the end of the object is not there");
	EXPECT(web_count(c, "violations") == 0, "asked beyond the end");
}

void web_answers_run(uint64_t seed)
{
	static const struct answer answer[] = {
		{ "503", "status 5 503", "", "answers 503" },
		{ "429 with a pause", "status 1 429:1", "", "answers 429" },
		{ "the whole object", "whole 3", "", "the whole object where a range" },
		{ "another range", "shift 3", "", "it sends bytes" },
		{ "no range", "unranged 3", "", "does not say which range" },
		{ "nothing of the body", "truncate 3 0", "", "why=" },
		{ "a cut body", "truncate 5 700", "", "why=" },
		{ "a short body", "short 3", "", "it sends [0-9]+ bytes, not" },
		{ "more than asked for", "long 3", "", "more than it has announced" },
		{ "less than asked for", "less 3", "", "less than it has announced" },
		{ "a slow drip", "drip 2 50", SHORT, "imed out" },
		{ "silence", "silence 2", SHORT, "imed out" },
		{ "the connection's end", "hangup 20", "", "why=" },
		{ "no HTTP", "garbage 3", "", "why=" },
		{ "headers without end", "flood 2", "", "why=" },
		{ "a length that is none", "number 3", "", "why=" },
		{ "a compressed body", "gzip 3", "", "compressed" },
		{ "no version", "unversioned 3", "", "which version" },
	};
	static const struct change change[] = {
		{ "by ETag, the server compares", "etag=\"v1\"", "etag=\"v2\"", "(412)" },
		{ "by ETag, we compare", "match=0", "etag=\"v2\"", "its ETag was" },
		{ "by a weak ETag", "etag=W/\"v1\"", "etag=W/\"v2\"", "its ETag was" },
		{ "by date", "etag=", "modified=Tue,_02_Jun_2026_00:00:00_GMT", "(412)" },
		{ "by date, we compare", "etag= match=0", "modified=Tue,_02_Jun_2026_00:00:00_GMT",
		  "it was modified" },
		{ "smaller", "etag= modified=", "size=100000", "its size was" },
		{ "larger", "etag= modified=", "size=8388608", "its size was" },
	};
	char name[100];

	for (size_t i = 0; i < ARRAY_SIZE(answer); i++) {
		snprintf(name, sizeof(name), "answer: %s", answer[i].name);
		fault_case_run(name, 60, seed, check_answer, &answer[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(change); i++) {
		snprintf(name, sizeof(name), "the object changes: %s", change[i].name);
		fault_case_run(name, 30, seed, check_change, &change[i]);
	}
	fault_case_run("redirections", 30, seed, check_moving, NULL);
	fault_case_run("redirections in a circle", 30, seed, check_circle, NULL);
	fault_case_run("a request is refused", 30, seed, check_refusal, NULL);
	fault_case_run("reads next to each other are one request", 30, seed, check_coalescing,
		       NULL);
	fault_case_run("cancelled reads", 30, seed, check_cancel, NULL);
	fault_case_run("reads that are cancelled when another one ends", 60, seed,
		       check_cancel_inside, NULL);
	fault_case_run("an object that is no whole block", 30, seed, check_tail, NULL);
}
