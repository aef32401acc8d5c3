/*
 * Clusters that a process had taken when it died: those that no table names are given up by the
 * next one, and no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/qcow2/qcow2_lookup.h"
#include "backends/qcow2/qcow2_owner.h"
#include "base/util.h"

#define CLUSTER 65536ull
#define TABLE (4 * CLUSTER)
#define L1_BYTES (512ull << 20) /* of the disk that one L2 table is for */

static struct qcow2_header h;
static struct qcow2_tables *t;

static void make(bool with_subclusters, void *slice)
{
	h = (struct qcow2_header){ .size_bytes = 16 * L1_BYTES,
				   .l1_offset = CLUSTER,
				   .l1_entries = 16,
				   .reftable_offset = 2 * CLUSTER,
				   .reftable_clusters = 1 };
	qcow2_geometry_init(&h.g, 3, 16, 4, with_subclusters);
	t = qcow2_tables_new(&h, KIB(256), true);
	assert_non_null(t);
	qcow2_tables_set_end(t, 1000 * CLUSTER);
	qcow2_tables_filled(t);
	atomic_store(&t->l1[0], TABLE | QCOW2_COPIED);
	assert_non_null(qcow2_tables_install(t, TABLE, slice, true));
}

static int setup(void **state)
{
	uint64_t slice[512] = { 0 };

	(void)state;
	slice[0] = htobe64((100 * CLUSTER) | QCOW2_COPIED);
	slice[7] = htobe64((107 * CLUSTER) | QCOW2_COPIED);
	make(false, slice);
	return 0;
}

/* Entry 0 is a cluster with one subcluster, 1 is compressed. */
static int setup_subclusters(void **state)
{
	uint64_t slice[512] = { 0 };

	(void)state;
	slice[0] = htobe64((100 * CLUSTER) | QCOW2_COPIED);
	slice[1] = htobe64(1);
	slice[2] = htobe64((101 * CLUSTER) | QCOW2_COMPRESSED);
	make(true, slice);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	qcow2_tables_free(t);
	return 0;
}

/* The process dies, and the next one has the memfd. */
static void die(void)
{
	const struct qcow2_seen seen = { .image_bytes = 1000 * CLUSTER };
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_tables *next = qcow2_tables_adopt(&h, &seen, t->fd, words);

	assert_non_null(next);
	qcow2_tables_free(t);
	t = next;
}

static bool is_given_up(uint64_t cluster)
{
	for (unsigned i = 0; i < QCOW2_FREED_NR; i++)
		if (t->freed[i].stage == QCOW2_FREED_PENDING &&
		    t->freed[i].at <= cluster * CLUSTER && cluster * CLUSTER < t->freed[i].end)
			return true;
	return false;
}

/* ---- data ---- */

static void test_unnamed_is_given_up(void **state)
{
	(void)state;
	qcow2_taken_add(t, QCOW2_TAKEN_DATA, 3 * CLUSTER, 200 * CLUSTER, 1);
	qcow2_taken_add(t, QCOW2_TAKEN_DATA, 5 * L1_BYTES, 300 * CLUSTER, 2);
	die();
	assert_true(is_given_up(200));
	assert_true(is_given_up(300));
	assert_true(is_given_up(301));
	assert_false(is_given_up(302));
	assert_int_equal(t->freed_nr, 2);
}

static void test_named_is_kept(void **state)
{
	(void)state;
	qcow2_taken_add(t, QCOW2_TAKEN_DATA, 7 * CLUSTER, 107 * CLUSTER, 1);
	die();
	assert_int_equal(t->freed_nr, 0);
}

/* It died between two entries. */
static void test_half_named(void **state)
{
	(void)state;
	qcow2_taken_add(t, QCOW2_TAKEN_DATA, 0, 100 * CLUSTER, 2);
	die();
	assert_false(is_given_up(100));
	assert_true(is_given_up(101));
}

static void test_ended_is_forgotten(void **state)
{
	(void)state;
	qcow2_taken_end(t, qcow2_taken_add(t, QCOW2_TAKEN_DATA, 3 * CLUSTER, 200 * CLUSTER, 1));
	die();
	assert_int_equal(t->freed_nr, 0);
}

static void test_given_up_once(void **state)
{
	(void)state;
	qcow2_taken_add(t, QCOW2_TAKEN_DATA, 3 * CLUSTER, 200 * CLUSTER, 1);
	die();
	die();
	assert_int_equal(t->freed_nr, 1);
	assert_int_equal(t->taken_free_nr, QCOW2_TAKEN_NR);
}

/* ---- tables of L2 ---- */

static void test_tables(void **state)
{
	(void)state;
	qcow2_taken_add(t, QCOW2_TAKEN_TABLE, 0, TABLE, 1);
	qcow2_taken_add(t, QCOW2_TAKEN_TABLE, 9, 400 * CLUSTER, 1);
	die();
	assert_false(is_given_up(4));
	assert_true(is_given_up(400));
}

/* ---- entries of two words ---- */

/* It died when a compressed cluster had got its bits already, and not yet its new place. */
static void test_bits_of_packed(void **state)
{
	struct qcow2_slot *slot = qcow2_slot_find(t, TABLE);
	struct qcow2_run run;
	uint64_t *slice;

	(void)state;
	qcow2_mark_dirty(t, slot);
	qcow2_entry_store(qcow2_slot_data(t, slot), 3, UINT32_MAX);
	qcow2_lookup(t, CLUSTER, CLUSTER, NULL, &run);
	assert_int_equal(run.kind, QCOW2_PACKED);
	die();
	slice = qcow2_slot_data(t, qcow2_slot_find(t, TABLE));
	assert_int_equal(qcow2_entry_load(slice, 0), (100 * CLUSTER) | QCOW2_COPIED);
	assert_int_equal(qcow2_entry_load(slice, 1), 1);
	assert_int_equal(qcow2_entry_load(slice, 2), (101 * CLUSTER) | QCOW2_COMPRESSED);
	assert_int_equal(qcow2_entry_load(slice, 3), 0);
}

/* ---- room ---- */

static void test_room(void **state)
{
	unsigned nr = 0;

	(void)state;
	for (; qcow2_taken_has_room(t); nr++)
		qcow2_taken_add(t, QCOW2_TAKEN_DATA, 3 * CLUSTER, (200 + 2 * nr) * CLUSTER, 1);
	assert_int_equal(nr, QCOW2_TAKEN_NR - QCOW2_JOBS_NR);
	for (unsigned i = 0; i < QCOW2_JOBS_NR; i++)
		qcow2_taken_add(t, QCOW2_TAKEN_TABLE, 9, (900 + 2 * i) * CLUSTER, 1);
	qcow2_taken_end(t, 0);
	die();
	assert_int_equal(t->freed_nr, QCOW2_TAKEN_NR - 1);
	assert_true(qcow2_taken_has_room(t));
}

/* Every place for a note is in use: what does not fit stays counted. */
static void test_no_room_for_notes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < QCOW2_FREED_NR - 1; i++)
		qcow2_freed_add(t, (2000 + 2 * i) * CLUSTER, CLUSTER);
	qcow2_taken_add(t, QCOW2_TAKEN_TABLE, 9, 400 * CLUSTER, 1);
	qcow2_taken_add(t, QCOW2_TAKEN_TABLE, 9, 500 * CLUSTER, 1);
	die();
	assert_int_equal(t->freed_nr, QCOW2_FREED_NR);
}

/* ---- what can be undone ---- */

/* Twice in a row: what is no note any more stays in its place, and gives nothing up. */
static void test_void_note(void **state)
{
	const struct qcow2_undo of_table = {
		.old = 300 * CLUSTER, .host = 200 * CLUSTER, .kind = QCOW2_UNDO_TABLE, .is_new = 1
	};
	const struct qcow2_undo of_entry = {
		.what = 7 * CLUSTER, .old = 301 * CLUSTER, .host = 107 * CLUSTER, .is_new = 1
	};

	(void)state;
	qcow2_undo_add(t, &of_table, 0);
	qcow2_undo_add(t, &of_entry, 0);
	assert_true(qcow2_undo_has_copy(t, 0));
	for (unsigned i = 0; i < 2; i++) {
		die();
		assert_int_equal(qcow2_undo_nr(t), 2);
		assert_int_equal(t->freed_promised, 1);
		assert_false(qcow2_undo_has_copy(t, 0));
	}
	qcow2_undo_settle(t);
	assert_int_equal(qcow2_undo_nr(t), 0);
	assert_int_equal(t->freed_nr, 1);
	assert_true(is_given_up(301));
	/* None is left of those that were the last. */
	qcow2_undo_add(t, &of_table, 0);
	die();
	assert_int_equal(qcow2_undo_nr(t), 0);
}

int main(void)
{
#define FRESH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_unnamed_is_given_up),
		FRESH(test_named_is_kept),
		FRESH(test_half_named),
		FRESH(test_ended_is_forgotten),
		FRESH(test_given_up_once),
		FRESH(test_tables),
		cmocka_unit_test_setup_teardown(test_bits_of_packed, setup_subclusters, teardown),
		FRESH(test_room),
		FRESH(test_no_room_for_notes),
		FRESH(test_void_note),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
