/* A cache over the http backend: how often the server is asked when many want the same. */
#include <stdio.h>

#include "base/util.h"
#include "web_case.h"

#define READERS 64u
#define BLOCK 65536u

static bool open_cached(struct fault_case *c)
{
	char yaml[1024];
	struct rig_params params = {
		.ops = backend_find("cache"),
		.yaml = yaml,
		.block_bytes = 512,
		.read_only = true,
		.queue_nr = 1,
		.depth = READERS,
	};

	web_serve(c, NULL);
	snprintf(yaml, sizeof(yaml),
		 "type: cache\nblock: 64KiB\nbackend: {type: http, url: \"%s\"}\n"
		 "store: {type: file, path: %s/store, size: 8MiB, create: true}\n",
		 c->peer.uri, c->peer.dir);
	return case_open_rig(c, &params);
}

/* All at once, each at its own place; all must succeed with the right bytes. */
static void read_at_once(struct fault_case *c, uint64_t at, uint64_t step, uint32_t bytes)
{
	for (unsigned tag = 0; tag < READERS; tag++) {
		struct backend_io *io = &c->rig.queue[0].io[tag].io;

		io->op = BACKEND_READ;
		io->flags = 0;
		io->offset_bytes = at + tag * step;
		io->length_bytes = bytes;
		rig_submit(&c->rig, &c->rig.queue[0].io[tag]);
	}
	EXPECT(rig_out_nr(&c->rig) == READERS, "only %u wait", rig_out_nr(&c->rig));
	if (!case_drain(c, 20000))
		return;
	for (unsigned tag = 0; tag < READERS; tag++) {
		const struct backend_io *io = &c->rig.queue[0].io[tag].io;

		EXPECT(io->result == 0, "tag %u: %d", tag, io->result);
		EXPECT(model_compare(&c->model, io) < 0, "tag %u: wrong bytes", tag);
	}
}

/* Fills may go on behind the answers. */
static void rest(struct fault_case *c)
{
	while (!backend_queue_rest(c->rig.queue[0].queue))
		rig_turn(&c->rig);
}

static void check_one_get(struct fault_case *c, const void *arg)
{
	uint64_t before;

	(void)arg;
	if (!open_cached(c))
		return;
	web_tell(c, "set delay_ms=50");
	before = web_count(c, "requests");
	read_at_once(c, 2 * BLOCK, 0, BLOCK);
	rest(c);
	EXPECT(web_count(c, "requests") - before == 1, "%llu requests",
	       (unsigned long long)(web_count(c, "requests") - before));
	/* What it has brought is there. */
	read_at_once(c, 2 * BLOCK, 512, BLOCK / 4);
	rest(c);
	EXPECT(web_count(c, "requests") - before == 1, "it was asked again");
	EXPECT(web_count(c, "violations") == 0, "the client broke the protocol");
}

/* More misses than fills: what is more goes past the cache. */
static void check_many_misses(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!open_cached(c))
		return;
	web_tell(c, "set delay_ms=50");
	read_at_once(c, 0, 4096, 4096);
	read_at_once(c, 16 * BLOCK, BLOCK / 2, 4096);
	rest(c);
	/* Once more, from wherever they are now. */
	read_at_once(c, 0, 4096, 4096);
	read_at_once(c, 16 * BLOCK, BLOCK / 2, 4096);
	rest(c);
	EXPECT(web_count(c, "violations") == 0, "the client broke the protocol");
}

void web_cache_run(uint64_t seed)
{
	fault_case_run("64 misses of one block of a cache are one request", 60, seed, check_one_get,
		       NULL);
	fault_case_run("64 misses of a cache at once", 60, seed, check_many_misses, NULL);
}
