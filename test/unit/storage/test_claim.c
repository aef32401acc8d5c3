/*
 * claim: which devices of one process may have one storage. Each leaf and node that the product has
 * must be in a table here: somebody has to say what keeps two devices apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "storage/sharing.h"
#include "storage/registry.h"

/* ---- what the product has ---- */

static const struct row {
	const char *name;
	const char *why; /* a leaf: no places; a node: others may write below it. NULL: the other */
} leaf_rows[] = {
	{ "null", "has no bytes" },
	{ "pattern", "has no bytes" },
	{ "mem", "has bytes of its own" },
	{ "file", "locks its file" },
	{ "http", "is only read" },
	{ "s3", "is only read" },
	{ "s3-disk", "has a lease" },
	{ "nbd", NULL },
	{ "nvme-tcp", NULL },
	{ "rbd", NULL }, /* exclusive: auto passes its lock on */
}, node_rows[] = {
	{ "throttle", "keeps nothing" },
	{ "delay", "keeps nothing" },
	{ "error", "keeps nothing" },
	{ "stripe", "keeps nothing" },
	{ "shared", "keeps nothing by itself" },
	{ "cache", NULL },
	{ "qcow2", NULL },
	{ "zoned", NULL },
	{ "integrity", NULL },
};

static const struct row *row_of(const struct row *rows, size_t nr, const char *name)
{
	for (size_t i = 0; i < nr; i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	fail_msg("%s: what keeps two devices apart over it? Add a row", name);
	return NULL;
}

static void test_what_the_product_has(void **state)
{
	(void)state;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		bool is_leaf = !(*b)->children;
		const struct row *row =
			is_leaf ? row_of(leaf_rows, ARRAY_SIZE(leaf_rows), (*b)->name)
				: row_of(node_rows, ARRAY_SIZE(node_rows), (*b)->name);

		assert_int_equal(row->why == NULL,
				 is_leaf ? (*b)->places != NULL : (*b)->alone_below);
	}
}

/* ---- two devices ---- */

static unsigned two_places(const struct backend_device *device,
			   uint64_t ret_places[static BACKEND_PLACES_MAX])
{
	const uint64_t *place = device->priv;

	memcpy(ret_places, place, 2 * sizeof(*place));
	return 2;
}

static const struct backend leaf_ops = { .name = "leaf", .places = two_places };
static const struct backend locked_ops = { .name = "locked" };
static const struct backend plain_ops = { .name = "plain" };
static const struct backend keeper_ops = { .name = "keeper", .alone_below = true };

/* A filter that keeps something or not, one that does not, a leaf. */
struct tree {
	struct backend_device top, pass, leaf;
	uint64_t place[2];
};

enum how { PLAIN = 0, KEEPS = 1, READS = 2 };

static void tree_make(struct tree *t, const char *name, unsigned how, uint64_t place)
{
	*t = (struct tree){
		.top = { .ops = how & KEEPS ? &keeper_ops : &plain_ops, .name = name },
		.pass = { .ops = &plain_ops, .name = name },
		.leaf = { .ops = &leaf_ops, .name = name },
		.place = { place, place + 1 },
	};
	t->top.child = &t->pass;
	t->pass.parent = &t->top;
	t->pass.child = &t->leaf;
	t->leaf.parent = &t->pass;
	t->leaf.priv = t->place;
	t->leaf.open_params.read_only = how & READS;
}

static void check_two(unsigned a_how, unsigned b_how, int expected)
{
	struct tree a, b;

	tree_make(&a, "a", a_how, 10);
	tree_make(&b, "b", b_how, 11);
	assert_int_equal(backend_claim(&a.leaf), 0);
	assert_int_equal(backend_claim(&b.leaf), expected);
	assert_int_equal(b.leaf.error[0] != '\0', expected < 0);
	assert_int_equal(b.leaf.claim != NULL, expected == 0);
	backend_unclaim(&a.leaf);
	backend_unclaim(&b.leaf);
	/* It is free. */
	assert_int_equal(backend_claim(&b.leaf), 0);
	backend_unclaim(&b.leaf);
}

static void test_two_devices(void **state)
{
	static const unsigned all[] = { PLAIN, KEEPS, READS, KEEPS | READS };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		for (unsigned j = 0; j < ARRAY_SIZE(all); j++) {
			bool one_writes = !(all[i] & all[j] & READS);
			bool one_keeps = (all[i] | all[j]) & KEEPS;

			check_two(all[i], all[j], one_writes && one_keeps ? -EBUSY : 0);
		}
}

static void test_other_places(void **state)
{
	struct tree a, b;

	(void)state;
	tree_make(&a, "a", KEEPS, 10);
	tree_make(&b, "b", KEEPS, 12);
	assert_int_equal(backend_claim(&a.leaf), 0);
	assert_int_equal(backend_claim(&b.leaf), 0);
	backend_unclaim(&a.leaf);
	backend_unclaim(&b.leaf);
}

/* What says no to a device that cannot be written is that device. */
static void test_storage_that_cannot_be_written(void **state)
{
	struct tree a, b;

	(void)state;
	tree_make(&a, "a", KEEPS, 10);
	tree_make(&b, "b", PLAIN, 10);
	a.leaf.limits.caps = b.leaf.limits.caps = BACKEND_CAP_READ_ONLY;
	assert_int_equal(backend_claim(&a.leaf), 0);
	assert_int_equal(backend_claim(&b.leaf), 0);
	backend_unclaim(&a.leaf);
	backend_unclaim(&b.leaf);
}

static void test_alone_and_no_more(void **state)
{
	struct tree a, b;

	(void)state;
	tree_make(&a, "a", PLAIN, 10);
	tree_make(&b, "b", PLAIN, 10);
	assert_int_equal(backend_claim(&a.leaf), 0);
	backend_claim_alone(&a.top, true);
	assert_int_equal(backend_claim(&b.leaf), -EBUSY);
	assert_string_equal(b.leaf.error,
			    "its storage is also that of device \"a\", which was to be stopped and "
			    "is still there: stop that one first (ublkctl del a), and start this "
			    "one when it is gone");
	backend_claim_alone(&a.top, false);
	assert_int_equal(backend_claim(&b.leaf), 0);
	backend_unclaim(&b.leaf);
	backend_unclaim(&a.leaf);
	backend_claim_alone(NULL, true);
}

/* Read by both, it stays so. */
static void test_alone_that_only_reads(void **state)
{
	struct tree a, b;

	(void)state;
	tree_make(&a, "a", READS, 10);
	tree_make(&b, "b", READS, 10);
	assert_int_equal(backend_claim(&a.leaf), 0);
	backend_claim_alone(&a.top, true);
	assert_int_equal(backend_claim(&b.leaf), 0);
	backend_unclaim(&a.leaf);
	backend_unclaim(&b.leaf);
}

/* Two leaves of one device, as the origin and the store of a cache. */
static void test_twice_in_one_device(void **state)
{
	struct backend_device leaf;
	struct tree a;

	(void)state;
	tree_make(&a, "a", KEEPS, 10);
	leaf = a.leaf;
	leaf.name = "a/store";
	assert_int_equal(backend_claim(&a.leaf), 0);
	assert_int_equal(backend_claim(&leaf), -EBUSY);
	assert_string_equal(leaf.error, "is the storage of a too: they would destroy each other's "
					"data");
	backend_unclaim(&a.leaf);
}

static void test_without_places(void **state)
{
	struct tree a;

	(void)state;
	tree_make(&a, "a", KEEPS, 10);
	a.leaf.ops = &locked_ops;
	assert_int_equal(backend_claim(&a.leaf), 0);
	assert_null(a.leaf.claim);
	backend_unclaim(&a.leaf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_the_product_has),
		cmocka_unit_test(test_two_devices),
		cmocka_unit_test(test_other_places),
		cmocka_unit_test(test_storage_that_cannot_be_written),
		cmocka_unit_test(test_alone_and_no_more),
		cmocka_unit_test(test_alone_that_only_reads),
		cmocka_unit_test(test_twice_in_one_device),
		cmocka_unit_test(test_without_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
