/*
 * The checks that every backend must pass, whatever it stores its bytes in. One thread. Each check
 * opens its own device, so that each can be run alone (--only).
 */
#include "suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "base/errname.h"
#include "base/util.h"
#include "tap.h"
#include "test/rig/heap.h"
#include "variants.h"

/* Requests at a time. */
#define SUITE_DEPTH 32u

static uint64_t suite_seed;
static unsigned suite_io_nr;

static bool writable(const struct rig *rig)
{
	return !(rig->device->limits.caps & BACKEND_CAP_READ_ONLY);
}

/* It has to say so: nobody else refuses them. */
static bool has_cap(const struct rig *rig, enum backend_caps cap)
{
	EXPECT((rig->device->limits.caps & cap) || rig->device->limits.zones.bytes,
	       "it lacks a capability that it can have");
	return rig->device->limits.caps & cap;
}

static void check_limits(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, 1);
	const struct backend_limits *limits;
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	limits = &rig.device->limits;
	EXPECT(limits->size_bytes >= v->block_bytes, "%llu",
	       (unsigned long long)limits->size_bytes);
	EXPECT((limits->size_bytes & (v->block_bytes - 1)) == 0, "size is not whole blocks");
	EXPECT(limits->physical_block_bytes >= v->block_bytes, "%u", limits->physical_block_bytes);
	EXPECT(is_power_of_two(limits->physical_block_bytes), "%u", limits->physical_block_bytes);
	EXPECT(limits->logical_block_bytes <= v->block_bytes, "%u", limits->logical_block_bytes);
	EXPECT(!v->read_only || !writable(&rig), "read_only was not heard");
	EXPECT(!v->direct || ((struct file_device *)rig.device->priv)->direct, "no direct I/O");
	rig_close(&rig);
}

static void random_on(const struct variant *v, unsigned queue_nr, unsigned depth)
{
	struct rig_params params = variant_params(v, queue_nr, depth);
	struct model_stats stats;
	struct model model;
	struct prng prng;
	struct rig rig;

	prng_init(&prng, suite_seed + depth);
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	model_init(&model, &rig, v->content);
	model_run(&model, &rig, &prng, suite_io_nr, &stats);
	EXPECT(stats.error_nr == 0, "%llu wrong, first: %s", (unsigned long long)stats.error_nr,
	       stats.first_error);
	for (unsigned i = 0; i < queue_nr; i++) {
		EXPECT(rig.queue[i].reactor.stats.stale == 0, "stale completions");
		EXPECT(rig.queue[i].queue->inflight == 0, "I/Os left");
	}
	rig_close(&rig);
	model_fini(&model);
}

static void check_random_depth_1(const struct variant *v)
{
	random_on(v, 1, 1);
}

static void check_random_depth_max(const struct variant *v)
{
	random_on(v, 1, SUITE_DEPTH);
}

/* Two reactors turned in turns: what one does while the other's I/O is in flight must not matter.
 */
static void check_random_two_queues(const struct variant *v)
{
	if (variant_has(v, "cache") || variant_has(v, "s3-disk") || variant_has(v, "zoned") ||
	    variant_has(v, "integrity")) {
		tap_skip("it has one queue");
		return;
	}
	random_on(v, 2, 8);
}

static void check_no_allocation(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, 8);
	struct model_stats stats;
	struct model model;
	struct prng prng;
	uint64_t heap_bytes;
	struct rig rig;

	if (v->allocates) {
		tap_skip("%s", v->allocates);
		return;
	}
	prng_init(&prng, suite_seed);
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	model_init(&model, &rig, v->content);
	model_run(&model, &rig, &prng, 50, &stats);
	heap_bytes = heap_used_bytes();
	model_run(&model, &rig, &prng, suite_io_nr / 4, &stats);
	EXPECT(heap_grew_bytes(heap_bytes) == 0, "%lld bytes kept by I/Os",
	       (long long)heap_grew_bytes(heap_bytes));
	rig_close(&rig);
	model_fini(&model);
}

static bool keeps_data(const struct rig *rig)
{
	return strcmp(rig->ops->name, "null") != 0;
}

static void expect_block(struct rig *rig, uint64_t block, uint8_t byte)
{
	uint32_t block_bytes = rig->device->open_params.logical_block_bytes;
	uint8_t *buf = rig->queue[0].io[0].io.buf;

	memset(buf, 0xa5, block_bytes);
	EXPECT(rig_do(rig, BACKEND_READ, 0, block * block_bytes, block_bytes, NULL) == 0,
	       "block %llu", (unsigned long long)block);
	if (!keeps_data(rig))
		return;
	EXPECT(buf[0] == byte && memcmp(buf, buf + 1, block_bytes - 1) == 0,
	       "block %llu: 0x%02x, not 0x%02x", (unsigned long long)block, buf[0], byte);
}

static void write_blocks(struct rig *rig, uint64_t block, uint32_t nr, uint8_t byte)
{
	uint32_t block_bytes = rig->device->open_params.logical_block_bytes;

	memset(rig->queue[0].io[0].io.buf, byte, nr * block_bytes);
	EXPECT(rig_do(rig, BACKEND_WRITE, 0, block * block_bytes, nr * block_bytes, NULL) == 0,
	       "block %llu", (unsigned long long)block);
}

static void expect_refused(struct rig *rig, enum backend_op op, uint64_t offset, uint32_t length)
{
	int ret = rig_do(rig, op, 0, offset, length, NULL);

	EXPECT(ret == -EIO || ret == -EOPNOTSUPP, "%s offset=%llu length=%u: %d (%s)",
	       backend_op_name(op), (unsigned long long)offset, length, ret, errname(ret));
}

static void check_boundaries(const struct variant *v)
{
	static const enum backend_op ops[] = { BACKEND_READ, BACKEND_WRITE, BACKEND_DISCARD,
					       BACKEND_WRITE_ZEROES };
	struct rig_params params = variant_params(v, 1, 1);
	uint64_t size, last;
	uint32_t bs = v->block_bytes;
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	size = rig.device->limits.size_bytes;
	last = size / bs - 1;
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		expect_refused(&rig, ops[i], size, bs);
		expect_refused(&rig, ops[i], size - bs, 2 * bs);
		expect_refused(&rig, ops[i], size + bs, bs);
		expect_refused(&rig, ops[i], UINT64_MAX - bs + 1, bs);
		expect_refused(&rig, ops[i], UINT64_MAX - bs + 1, 2 * bs);
		expect_refused(&rig, ops[i], 0, 0);
		expect_refused(&rig, ops[i], 1, bs);
		expect_refused(&rig, ops[i], 0, bs - 1);
		expect_refused(&rig, ops[i], bs / 2, bs);
	}
	expect_refused(&rig, BACKEND_READ, 0, RIG_IO_BYTES + bs);
	expect_refused(&rig, BACKEND_OP_NR, 0, bs);
	EXPECT(rig_do(&rig, BACKEND_READ, 0, size - bs, bs, NULL) == 0, "last block");
	if (writable(&rig)) {
		write_blocks(&rig, 0, 1, 0x11);
		write_blocks(&rig, last, 1, 0x22);
		expect_block(&rig, last, 0x22);
		expect_block(&rig, 0, last ? 0x11 : 0x22);
	}
	rig_close(&rig);
}

/* Ranges that begin and end at every place within a page, seen block by block from outside. */
static void zero_edges(struct rig *rig, enum backend_op op, unsigned flags)
{
	uint32_t bs = rig->device->open_params.logical_block_bytes;
	uint32_t page_blocks = MAX(4096 / bs, 1u);
	uint32_t total = 4 * page_blocks;

	for (uint32_t first = 1; first <= page_blocks; first++) {
		for (uint32_t nr = 1; nr<total - first; nr += page_blocks> 1 ? 3 : 1) {
			write_blocks(rig, 0, total, 0x77);
			EXPECT(rig_do(rig, op, flags, (uint64_t)first * bs, nr * bs, NULL) == 0,
			       "first=%u nr=%u", first, nr);
			expect_block(rig, first - 1, 0x77);
			expect_block(rig, first + nr, 0x77);
			if (op == BACKEND_DISCARD)
				continue;
			expect_block(rig, first, 0);
			expect_block(rig, first + nr - 1, 0);
		}
	}
}

static void check_zero_edges(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, 1);
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	if (!writable(&rig) || !has_cap(&rig, BACKEND_CAP_WRITE_ZEROES)) {
		expect_refused(&rig, BACKEND_WRITE_ZEROES, 0, v->block_bytes);
		expect_refused(&rig, BACKEND_DISCARD, 0, v->block_bytes);
	} else if (rig.device->limits.size_bytes < KIB(64)) {
		tap_skip("the device is too small for edges");
	} else {
		zero_edges(&rig, BACKEND_WRITE_ZEROES, 0);
		zero_edges(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP);
		zero_edges(&rig, BACKEND_WRITE_ZEROES, BACKEND_FUA);
		if (rig.device->limits.caps & BACKEND_CAP_DISCARD)
			zero_edges(&rig, BACKEND_DISCARD, 0);
	}
	rig_close(&rig);
}

static void check_zero_all(const struct variant *v)
{
	static const unsigned flags[] = { 0, BACKEND_NOUNMAP };
	struct rig_params params = variant_params(v, 1, 1);
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	for (unsigned i = 0; i < 2 && writable(&rig) && has_cap(&rig, BACKEND_CAP_WRITE_ZEROES);
	     i++) {
		uint64_t size = MIN(rig.device->limits.size_bytes, GIB(1));
		uint64_t last = size / v->block_bytes - 1;

		write_blocks(&rig, 0, 1, 0x33);
		write_blocks(&rig, last / 2, 1, 0x33);
		write_blocks(&rig, last, 1, 0x33);
		EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, flags[i], 0, (uint32_t)size, NULL) == 0,
		       "flags=%u", flags[i]);
		expect_block(&rig, 0, 0);
		expect_block(&rig, last / 2, 0);
		expect_block(&rig, last, 0);
	}
	rig_close(&rig);
}

/* All of them at once, on different blocks: each is answered, and answered once. */
static void check_every_tag_completes_once(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, SUITE_DEPTH);
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	for (unsigned round = 1; round <= 20; round++) {
		for (unsigned tag = 0; tag < SUITE_DEPTH; tag++) {
			struct rig_io *rio = &rig.queue[0].io[tag];
			uint64_t nr = rig.device->limits.size_bytes / v->block_bytes;

			rio->io.op = BACKEND_READ;
			rio->io.offset_bytes = (tag * 7 + round) % nr * v->block_bytes;
			rio->io.length_bytes = v->block_bytes;
			rig_submit(&rig, rio);
		}
		rig_drain(&rig);
		for (unsigned tag = 0; tag < SUITE_DEPTH; tag++)
			EXPECT(rig.queue[0].io[tag].completed_nr == round, "tag %u: %llu of %u",
			       tag, (unsigned long long)rig.queue[0].io[tag].completed_nr, round);
	}
	/* A few turns more would show a second completion (rig.c aborts on it). */
	for (unsigned i = 0; i < 10; i++)
		rig_turn(&rig);
	rig_close(&rig);
}

static void check_flush_and_fua(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, 1);
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush of a clean device");
	if (rig.device->limits.zones.bytes) {
		EXPECT(rig_do(&rig, BACKEND_WRITE, BACKEND_FUA, 0, v->block_bytes, NULL) ==
			       -EOPNOTSUPP,
		       "fua");
	} else if (writable(&rig)) {
		EXPECT(rig_do(&rig, BACKEND_WRITE, BACKEND_FUA, 0, v->block_bytes, NULL) == 0,
		       "fua");
		EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_FUA, 0, v->block_bytes, NULL) ==
			       0,
		       "zeroes with fua");
		EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	}
	rig_close(&rig);
}

/* Where writes stand in order, the next block. */
static void write_next(struct rig *rig, uint64_t *next)
{
	write_blocks(rig, *next, 1, 0x44);
	*next += rig->device->limits.zones.bytes != 0;
}

/*
 * Descriptors, with those that libraries keep once they have been used: libcryptsetup, those of
 * /dev/urandom and /dev/random.
 */
static unsigned count_fds(const struct rig_params *params)
{
	struct rig rig;

	if (rig_open(&rig, params) == 0)
		rig_close(&rig);
	return rig_count_fds();
}

/* A good FLUSH follows at once, or when the device says why not and is opened again. */
static void expect_goes_on(struct rig *rig, struct rig_params *params, uint64_t *next)
{
	if (rig_do(rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0)
		return;
	EXPECT(backend_failure(rig->device, NULL) != NULL, "FLUSH fails, and it says not why");
	rig_close(rig);
	*next = 0;
	REQUIRE(rig_open(rig, params) == 0, "%s", rig->error);
	EXPECT(rig_do(rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "opened again");
}

/* FLUSH and FUA below what is tested fail, then all works: storage/owed.h. */
static void check_lost_flush(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, 1);
	uint64_t next = 0;
	int ret, want;
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	if (!writable(&rig) || rig_lose(&rig) == 0) {
		EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "nothing can be lost");
		rig_close(&rig);
		return;
	}
	/* Found otherwise, as when a server comes back. */
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "not told");
	expect_goes_on(&rig, &params, &next);
	write_next(&rig, &next);
	rig_fail_flushes(&rig, true);
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "good, and failed below");
	EXPECT(rig_fail_flushes(&rig, false) > 0, "it came to none");
	expect_goes_on(&rig, &params, &next);
	write_next(&rig, &next);
	if (!rig.device->limits.zones.bytes) {
		rig_fail_flushes(&rig, true);
		ret = rig_do(&rig, BACKEND_WRITE, BACKEND_FUA, 0, v->block_bytes, NULL);
		/* Where it costs a FLUSH, that counts as any other. */
		want = rig_fail_flushes(&rig, false) > 0 ? -EIO : 0;
		EXPECT(ret == want, "FUA: %d", ret);
		EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == want, "FLUSH after FUA");
		expect_goes_on(&rig, &params, &next);
	}
	write_next(&rig, &next);
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "it does not go on");
	expect_block(&rig, 0, 0x44);
	rig_close(&rig);
}

static void check_reopen(const struct variant *v)
{
	struct rig_params params = variant_params(v, 1, 4);
	unsigned fds = count_fds(&params);
	struct model_stats stats;
	struct model model = { 0 };
	uint64_t heap_bytes = 0;
	struct prng prng;
	struct rig rig;

	prng_init(&prng, suite_seed);
	for (int round = 0; round < 6; round++) {
		REQUIRE(rig_open(&rig, &params) == 0, "round %d: %s", round, rig.error);
		if (round == 0 || !v->is_persistent) {
			model_fini(&model);
			model_init(&model, &rig, v->content);
		}
		model_verify(&model, &rig, &(struct model_stats){ 0 });
		model_run(&model, &rig, &prng, 50, &stats);
		EXPECT(stats.error_nr == 0, "round %d: %s", round, stats.first_error);
		rig_close(&rig);
		EXPECT(rig_count_fds() == fds, "descriptors left open: %u, were %u",
		       rig_count_fds(), fds);
		/* The first rounds fill the C library's own buffers. */
		if (round == 2)
			heap_bytes = heap_used_bytes();
		EXPECT(round < 3 || heap_grew_bytes(heap_bytes) == 0, "heap grew by %lld",
		       (long long)heap_grew_bytes(heap_bytes));
	}
	model_fini(&model);
}

/*
 * As one daemon after the other has it, with what the one before parked: the same bytes and, where
 * there are any to lose, in the same place, which identity tells.
 */
static void check_taken_over(const struct variant *v)
{
	char first[BACKEND_IDENTITY_BYTES] = "", text[BACKEND_IDENTITY_BYTES];
	struct rig_params params = variant_params(v, 1, 4);
	unsigned fds = count_fds(&params);
	struct model model = { 0 };
	struct prng prng;
	struct rig rig;

	if (variant_has(v, "shared")) {
		tap_skip("what is shared does not die with one device; guest_shared kills all");
		return;
	}
	prng_init(&prng, suite_seed);
	for (int round = 0; round < 3; round++) {
		struct model_stats verified = { 0 }, stats;
		int before[RIG_STORED_MAX];

		memcpy(before, params.stored_fds, sizeof(before));
		REQUIRE(rig_open(&rig, &params) == 0, "round %d: %s", round, rig.error);
		rig_stored_close(before);
		backend_identity(rig.device, text);
		EXPECT(text[0] != '\0', "no identity");
		EXPECT(round == 0 || strcmp(text, first) == 0, "\"%s\" was \"%s\"", text, first);
		strcpy(first, text);
		/* The tests' own backend has its bytes on the heap, and says nothing. */
		if (round == 0 || strcmp(v->backend, "testdev") == 0) {
			model_fini(&model);
			model_init(&model, &rig, v->content);
		}
		model_verify(&model, &rig, &verified);
		EXPECT(verified.error_nr == 0, "round %d: %s", round, verified.first_error);
		model_run(&model, &rig, &prng, 50, &stats);
		EXPECT(stats.error_nr == 0, "round %d: %s", round, stats.first_error);
		rig_stored_dup(&rig, params.stored_fds);
		rig_crash(&rig);
	}
	rig_stored_close(params.stored_fds);
	EXPECT(rig_count_fds() == fds, "descriptors left open");
	model_fini(&model);
}

/* queue_init fails for want of a file slot, io_init for want of an op slot. */
static void check_half_open_queue(const struct variant *v)
{
	static const unsigned op_nr[] = { REACTOR_OWN_OP_NR, REACTOR_OWN_OP_NR + 1,
					  REACTOR_OWN_OP_NR + 4 };
	struct rig_params params = variant_params(v, 0, 0);
	unsigned fds = count_fds(&params);
	struct rig rig;

	REQUIRE(rig_open_device(&rig, &params) == 0, "%s", rig.error);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(op_nr); i++) {
		struct reactor_params rp = { .sq_entries = 8,
					     .cq_entries = 16,
					     .op_nr = op_nr[i / 2] };
		struct backend_io io[8] = { 0 };
		struct backend_queue *queue = NULL;
		struct reactor r;

		REQUIRE(reactor_init(&r, &rp) == 0, "reactor");
		if (i & 1)
			memset(r.file_used, 0xff, sizeof(r.file_used));
		if (backend_queue_open(&queue, rig.device, &r, 0, ARRAY_SIZE(io)) == 0)
			for (unsigned tag = 0; tag < ARRAY_SIZE(io); tag++)
				if (backend_io_init(&io[tag], queue, tag, NULL) < 0)
					break;
		for (unsigned tag = 0; tag < ARRAY_SIZE(io); tag++)
			backend_io_fini(&io[tag]);
		backend_queue_close(queue);
		reactor_fini(&r);
	}
	rig_close(&rig);
	EXPECT(rig_count_fds() == fds, "descriptors left open");
}

static const struct {
	const char *name;
	void (*run)(const struct variant *v);
} checks[] = {
	{ "limits", check_limits },
	{ "boundaries", check_boundaries },
	{ "zero_edges", check_zero_edges },
	{ "zero_all", check_zero_all },
	{ "flush_and_fua", check_flush_and_fua },
	{ "lost_flush", check_lost_flush },
	{ "every_tag_completes_once", check_every_tag_completes_once },
	{ "random_depth_1", check_random_depth_1 },
	{ "random_depth_max", check_random_depth_max },
	{ "random_two_queues", check_random_two_queues },
	{ "no_allocation", check_no_allocation },
	{ "reopen", check_reopen },
	{ "taken_over", check_taken_over },
	{ "half_open_queue", check_half_open_queue },
};

static void run_check(const struct variant *v, unsigned idx)
{
	if (!tap_begin("%s: %s", v->name, checks[idx].name))
		return;
	variant_path[0] = '\0';
	if (!v->setup || v->setup() == NULL)
		checks[idx].run(v);
	else
		EXPECT(false, "could be set up a moment ago");
	if (v->teardown)
		v->teardown();
	tap_end();
}

/* Sets it up once to see whether this machine can: one skipped line, not one per check. */
static bool can_run(const struct variant *v)
{
	const char *reason = v->setup ? v->setup() : NULL;

	if (reason == NULL) {
		if (v->teardown)
			v->teardown();
		return true;
	}
	if (tap_begin("%s: all checks", v->name)) {
		tap_skip("%s", reason);
		tap_end();
	}
	return false;
}

static bool is_wanted(const struct variant *v)
{
	bool wanted = tap_is_wanted("%s: all checks", v->name);

	for (unsigned i = 0; i < ARRAY_SIZE(checks); i++)
		wanted |= tap_is_wanted("%s: %s", v->name, checks[i].name);
	return wanted;
}

static void run_variant(const struct variant *v)
{
	if (!is_wanted(v) || !can_run(v))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(checks); i++)
		run_check(v, i);
}

/* A new backend cannot be forgotten here. */
static void check_registry(void)
{
	if (!tap_begin("registry: every backend has a variant"))
		return;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		bool found = (*b)->test_options;

		for (unsigned i = 0; i < variant_nr; i++)
			found = found || variant_has(&variants[i], (*b)->name);
		EXPECT(found, "%s has none: give it test_options or add it to variants.c",
		       (*b)->name);
		EXPECT(backend_find((*b)->name) == *b, "%s is not found", (*b)->name);
	}
	EXPECT(backend_find("nothing like it") == NULL, "found");
	tap_end();
}

void suite_run(uint64_t seed, unsigned io_nr, struct suite_part part)
{
	struct variant row;
	unsigned number = 0;

	suite_seed = seed;
	suite_io_nr = io_nr;
	check_registry();
	for (const struct backend *const *b = backend_registry; *b; b++)
		if (number++ % part.nr == part.idx && variant_of_row(*b, &row))
			run_variant(&row);
	for (unsigned i = 0; i < variant_nr; i++)
		if (number++ % part.nr == part.idx)
			run_variant(&variants[i]);
}
