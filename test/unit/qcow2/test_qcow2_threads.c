/*
 * Tables that several threads look up in while slices come and go: what a lookup says is true of
 * its slice, or it says that it does not know. Meant for ThreadSanitizer too.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/qcow2/qcow2_lookup.h"
#include "base/prng.h"
#include "base/util.h"

#define THREAD_NR 3
#define L1_ENTRIES 64u
#define CLUSTER 65536ull
#define SLICES_OF_TABLE 16u
#define SLICE_NR (L1_ENTRIES * SLICES_OF_TABLE)
#define ENTRIES_OF_SLICE 512u
#define ROUNDS 40000u

struct shared {
	struct qcow2_tables *t;
	bool all_install;
	_Atomic unsigned wrong, found;
};

struct one {
	struct shared *shared;
	unsigned idx;
	pthread_t thread;
};

static struct qcow2_header header(void)
{
	struct qcow2_header h = { .size_bytes = SLICE_NR * ENTRIES_OF_SLICE * CLUSTER,
				  .l1_offset = CLUSTER,
				  .l1_entries = L1_ENTRIES };

	qcow2_geometry_init(&h.g, 3, 16, 4, false);
	return h;
}

static uint64_t slice_at(unsigned slice)
{
	return (16 + slice / SLICES_OF_TABLE) * CLUSTER + slice % SLICES_OF_TABLE * 4096ull;
}

/* Where an entry says its cluster lies: no two slices say the same. */
static uint64_t host_of(unsigned slice, unsigned idx)
{
	return ((uint64_t)slice * ENTRIES_OF_SLICE + idx + 1000) * 2 * CLUSTER;
}

static void fill_slice(uint64_t *entries, unsigned slice)
{
	for (unsigned i = 0; i < ENTRIES_OF_SLICE; i++)
		entries[i] = htobe64(host_of(slice, i) | QCOW2_COPIED);
}

static void look(struct one *one, unsigned slice, unsigned idx)
{
	struct shared *s = one->shared;
	uint64_t offset = ((uint64_t)slice * ENTRIES_OF_SLICE + idx) * CLUSTER + 512;
	uint64_t host = qcow2_lookup_plain(s->t, offset, 4096, true);
	struct qcow2_run run;

	if (host != 0 && host != host_of(slice, idx) + 512)
		atomic_fetch_add(&s->wrong, 1);
	qcow2_lookup(s->t, offset, 4096, NULL, &run);
	if (run.kind == QCOW2_MISS)
		return;
	atomic_fetch_add(&s->found, 1);
	if (run.kind != QCOW2_DATA || run.host != host_of(slice, idx) + 512 || run.bytes != 4096)
		atomic_fetch_add(&s->wrong, 1);
}

static void *work(void *arg)
{
	struct one *one = arg;
	uint64_t entries[ENTRIES_OF_SLICE];
	struct prng prng;

	prng_init(&prng, 1 + one->idx);
	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned slice = (unsigned)prng_below(&prng, 48) * 17 % SLICE_NR;

		if (i % 16 == 0 && (one->idx == 0 || one->shared->all_install)) {
			fill_slice(entries, slice);
			qcow2_tables_install(one->shared->t, slice_at(slice), entries, true);
		}
		look(one, slice, (unsigned)prng_below(&prng, ENTRIES_OF_SLICE));
	}
	return NULL;
}

static void run_threads(bool in_memfd, bool all_install)
{
	struct qcow2_header h = header();
	struct shared shared = { .t = qcow2_tables_new(&h, KIB(64), in_memfd),
				 .all_install = all_install };
	struct one one[THREAD_NR];

	assert_non_null(shared.t);
	qcow2_tables_set_end(shared.t, 1ull << 50);
	for (unsigned i = 0; i < L1_ENTRIES; i++)
		atomic_store(&shared.t->l1[i], ((16 + i) * CLUSTER) | QCOW2_COPIED);
	for (unsigned i = 0; i < THREAD_NR; i++) {
		one[i] = (struct one){ .shared = &shared, .idx = i };
		assert_int_equal(pthread_create(&one[i].thread, NULL, work, &one[i]), 0);
	}
	for (unsigned i = 0; i < THREAD_NR; i++)
		pthread_join(one[i].thread, NULL);
	assert_int_equal(atomic_load(&shared.wrong), 0);
	assert_true(atomic_load(&shared.found) > ROUNDS / 10);
	qcow2_tables_free(shared.t);
}

/* One reactor owns the tables, others look up. */
static void test_owner(void **state)
{
	(void)state;
	run_threads(true, false);
}

/* Of an image that is only read all put slices into the cache. */
static void test_shared(void **state)
{
	(void)state;
	run_threads(false, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_shared),
	};

	return cmocka_run_group_tests_name("qcow2 threads", tests, NULL, NULL);
}
