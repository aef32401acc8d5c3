/*
 * above: what each node with children says of snapshots of what is below it, and who is asked. A
 * node that has no row here fails it: somebody has to say whether it has a state of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/qcow2/qcow2.h"
#include "base/util.h"
#include "filters/cache/cache.h"
#include "storage/cache_control.h"
#include "storage/registry.h"
#include "storage/sharing.h"
#include "storage/snapshot.h"

static char words[BACKEND_ERROR_BYTES * 2];

/* ---- nodes as they are in the product ---- */

static struct qcow2_tables tables, tables_of_two = { .has_data_file = true };
static const struct qcow2_device image = { .t = &tables }, image_of_two = { .t = &tables_of_two };

/* What a node says of its child with this index; NULL: it may be. */
struct row {
	const char *name;
	unsigned child;
	const void *priv;
	const char *create, *apply; /* a part of the words */
};

static const struct row rows[] = {
	{ "throttle", 0, NULL, NULL, NULL },
	{ "delay", 0, NULL, NULL, NULL },
	{ "error", 0, NULL, NULL, NULL },
	{ "stripe", 0, NULL, "several backends", "several backends" },
	{ "stripe", 1, NULL, "several backends", "several backends" },
	/* It stands aside: test_device_snapshot, test/cuts/cache_asides.c. */
	{ "cache", CACHE_ORIGIN, NULL, NULL, NULL },
	{ "cache", CACHE_STORE, NULL, "`backend`", "the store" },
	{ "qcow2", 0, &image, NULL, "in memory" },
	{ "qcow2", 0, &image_of_two, "`data_file`", "in memory" },
	{ "qcow2", 1, &image_of_two, "`data_file`", "in memory" },
	{ "qcow2", 2, &image, NULL, "overlay" },
	{ "qcow2", 2, &image_of_two, NULL, "overlay" },
	{ "shared", 0, NULL, NULL, "other devices" },
	{ "zoned", 0, NULL, NULL, "write pointers" },
	{ "integrity", 0, NULL, NULL, "checksums" },
	{ "integrity", 1, NULL, NULL, "checksums" },
};

static struct backend_device *shares(const struct backend_device *device)
{
	return device->child;
}

/* The children, one for each row of the table of them, and one more where several may stand. */
static void give_children(struct backend_device *device, struct backend_device *child)
{
	struct backend_device **at = &device->child;

	for (const struct backend_child_option *as = device->ops->children; as->name; as++)
		for (unsigned i = 0; i < MIN(as->nr_max, 2u); i++, child++) {
			child->as = as;
			*at = child;
			at = &child->sibling;
		}
}

static void check_words(const char *said, const char *part, const struct row *row)
{
	if (!part ? said != NULL : !said || !strstr(said, part))
		fail_msg("%s, child %u: expected \"%s\", said \"%s\"", row->name, row->child,
			 part ? part : "", said ? said : "");
	/* Reason and cure. */
	assert_true(!said || strchr(said, ':'));
	assert_true(!said || strlen(said) < BACKEND_ERROR_BYTES);
}

static const char *ask(struct backend_device *top, const struct backend_device *node,
		       enum backend_snapshot_op op)
{
	int ret;

	words[0] = '\0';
	ret = backend_above_ask(top, node, op, words, sizeof(words));
	assert_int_equal(ret, words[0] ? -EOPNOTSUPP : 0);
	return ret < 0 ? words : NULL;
}

static void check_row(const struct row *row)
{
	static const struct backend_shared_ops shared = { .device = shares };
	struct backend_device child[BACKEND_CHILD_OPTIONS_MAX * 2] = { 0 }, device = { 0 };
	struct backend ops = *backend_find(row->name);

	ops.shared = ops.shared ? &shared : NULL;
	device.ops = &ops;
	device.name = "x";
	device.priv = (void *)(uintptr_t)row->priv;
	give_children(&device, child);
	for (unsigned i = 0; i < ARRAY_SIZE(child); i++)
		child[i].ops = &backend_null;
	check_words(ask(&device, &child[row->child], BACKEND_SNAPSHOT_CREATE), row->create, row);
	check_words(ask(&device, &child[row->child], BACKEND_SNAPSHOT_APPLY), row->apply, row);
	assert_null(ask(&device, &child[row->child], BACKEND_SNAPSHOT_DELETE));
}

static void test_what_each_node_says(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		check_row(&rows[i]);
}

static bool has_row(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, name) == 0)
			return true;
	return false;
}

static void test_no_node_with_children_is_silent(void **state)
{
	(void)state;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		bool has_children = (*b)->children && (*b)->children->name;

		if (has_children != ((*b)->above != NULL))
			fail_msg("%s: .above is %s", (*b)->name,
				 has_children ? "missing: storage/snapshot.h" : "of no use");
		if (has_children && !has_row((*b)->name))
			fail_msg("%s: what does it say? Add rows", (*b)->name);
	}
}

/* ---- who is asked ---- */

static const char *refuse_low(const struct backend_device *device,
			      const struct backend_device *child)
{
	assert_ptr_equal(device->child, child);
	return "says no: low";
}

static const char *refuse_high(const struct backend_device *device,
			       const struct backend_device *child)
{
	(void)device, (void)child;
	return "says no: high";
}

static const struct backend_above above_low = { .create = refuse_low };
static const struct backend_above above_high = { .create = refuse_high, .apply = refuse_high };
static const struct backend passes = { .name = "passes", .above = &backend_above_passes };
static const struct backend low_ops = { .name = "lower", .above = &above_low };
static const struct backend high_ops = { .name = "higher", .above = &above_high };
static const struct backend silent = { .name = "silent" };
static const struct backend leaf_ops = { .name = "leaf" };

/* high -> pass -> low -> leaf, beside -> inner */
static struct backend_device inner, beside, leaf, low, pass, high;

static int tree_setup(void **state)
{
	(void)state;
	inner = (struct backend_device){ .ops = &leaf_ops, .name = "inner" };
	beside = (struct backend_device){ .ops = &high_ops, .name = "beside", .child = &inner };
	leaf = (struct backend_device){ .ops = &leaf_ops, .name = "leaf", .sibling = &beside };
	low = (struct backend_device){ .ops = &low_ops, .name = "low", .child = &leaf };
	pass = (struct backend_device){ .ops = &passes, .name = "pass", .child = &low };
	high = (struct backend_device){ .ops = &high_ops, .name = "high", .child = &pass };
	return 0;
}

static void test_the_lowest_is_first(void **state)
{
	(void)state;
	assert_string_equal(ask(&high, &leaf, BACKEND_SNAPSHOT_CREATE),
			    "the node above, low (lower), says no: low");
	assert_string_equal(ask(&high, &leaf, BACKEND_SNAPSHOT_APPLY),
			    "the node above, high (higher), says no: high");
}

static void test_who_is_not_above_is_not_asked(void **state)
{
	(void)state;
	assert_null(ask(&high, &high, BACKEND_SNAPSHOT_APPLY));
	assert_null(ask(&pass, &low, BACKEND_SNAPSHOT_CREATE));
	assert_null(ask(&low, &leaf, BACKEND_SNAPSHOT_APPLY));
}

static void test_to_delete_asks_nobody(void **state)
{
	(void)state;
	assert_null(ask(&high, &leaf, BACKEND_SNAPSHOT_DELETE));
}

static void test_who_says_nothing_refuses(void **state)
{
	(void)state;
	pass.ops = &silent;
	assert_non_null(strstr(ask(&pass, &low, BACKEND_SNAPSHOT_CREATE), "pass (silent)"));
	assert_non_null(strstr(ask(&pass, &low, BACKEND_SNAPSHOT_APPLY), "pass (silent)"));
}

/* The tree that is shared has no parent. */
static struct backend_device *shares_low(const struct backend_device *device)
{
	(void)device;
	return &low;
}

static void test_through_what_is_shared(void **state)
{
	static const struct backend_shared_ops shared = { .device = shares_low };
	const struct backend sharing = { .name = "shared",
					 .shared = &shared,
					 .above = &backend_above_passes };

	(void)state;
	pass = (struct backend_device){ .ops = &sharing, .name = "pass" };
	assert_string_equal(ask(&high, &leaf, BACKEND_SNAPSHOT_CREATE),
			    "the node above, low (lower), says no: low");
}

/* ---- caches that stand aside ---- */

static void test_caches_above(void **state)
{
	static const struct backend_cache_ops cache_ops;
	const struct backend caches = { .name = "cache", .cache_ops = &cache_ops };
	struct backend_device *found[BACKEND_DEPTH_MAX];

	(void)state;
	high.ops = low.ops = &caches;
	assert_int_equal(backend_caches_above(&high, &leaf, found), 2);
	assert_ptr_equal(found[0], &high);
	assert_ptr_equal(found[1], &low);
	/* Beside the way. */
	leaf.ops = &caches;
	leaf.child = &inner;
	beside.child = NULL;
	assert_int_equal(backend_caches_above(&high, &beside, found), 2);
	assert_int_equal(backend_caches_above(&high, &leaf, found), 2);
	assert_int_equal(backend_caches_above(&high, &inner, found), 3);
	assert_int_equal(backend_caches_above(&high, &high, found), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_each_node_says),
		cmocka_unit_test(test_no_node_with_children_is_silent),
		cmocka_unit_test_setup(test_the_lowest_is_first, tree_setup),
		cmocka_unit_test_setup(test_who_is_not_above_is_not_asked, tree_setup),
		cmocka_unit_test_setup(test_to_delete_asks_nobody, tree_setup),
		cmocka_unit_test_setup(test_who_says_nothing_refuses, tree_setup),
		cmocka_unit_test_setup(test_through_what_is_shared, tree_setup),
		cmocka_unit_test_setup(test_caches_above, tree_setup),
	};

	return cmocka_run_group_tests_name("above", tests, NULL, NULL);
}
