/* Versions of content: who has which, through what it is found, and when others have changed it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "storage/registry.h"
#include "storage/sharing.h"
#include "storage/version.h"

/* ---- who has one ---- */

static struct backend_version leaf;

static void leaf_found(const struct backend_device *device, struct backend_version *ret)
{
	(void)device;
	*ret = leaf;
}

static int leaf_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	(void)device;
	snprintf(words, BACKEND_VERSION_BYTES, "now");
	return 0;
}

static const struct backend_version_ops leaf_ops = { .found = leaf_found, .now = leaf_now };
static const struct backend leaf_backend = { .name = "leaf", .version = &leaf_ops };

static struct backend_device *shares(const struct backend_device *device)
{
	return device->child;
}

/* Over one such leaf, or two. */
static struct backend_version seen_over(const char *name, unsigned leaf_nr)
{
	static const struct backend_shared_ops shared = { .device = shares };
	struct backend_device child[2] = { { .ops = &leaf_backend }, { .ops = &leaf_backend } };
	struct backend_device device = { .child = child, .name = "x" };
	struct backend ops = *backend_find(name);
	struct backend_version v;

	ops.shared = ops.shared ? &shared : NULL;
	device.ops = &ops;
	if (leaf_nr > 1)
		child[0].sibling = &child[1];
	backend_version(&device, &v);
	return v;
}

static void test_passed_on(void **state)
{
	static const char *const passes[] = { "throttle", "delay", "error", "shared" };
	static const char *const hides[] = { "zoned", "integrity", "stripe" };
	struct backend_version v;

	(void)state;
	leaf = (struct backend_version){ BACKEND_VERSION_LASTING, "v1", "mine." };
	for (unsigned i = 0; i < ARRAY_SIZE(passes); i++) {
		v = seen_over(passes[i], 1);
		assert_int_equal(v.kind, BACKEND_VERSION_LASTING);
		assert_string_equal(v.found, "v1");
		assert_string_equal(v.ours, "mine.");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(hides); i++) {
		v = seen_over(hides[i], 2);
		assert_int_equal(v.kind, BACKEND_VERSION_NONE);
		assert_string_equal(v.found, "");
	}
}

static void test_joined(void **state)
{
	struct backend_version v, again;

	(void)state;
	leaf = (struct backend_version){ BACKEND_VERSION_LASTING, "v1", "" };
	v = seen_over("stripe", 2);
	assert_int_equal(v.kind, BACKEND_VERSION_LASTING);
	assert_string_equal(v.ours, "");
	again = seen_over("stripe", 2);
	assert_string_equal(v.found, again.found);
	strcpy(leaf.found, "v2");
	again = seen_over("stripe", 2);
	assert_string_not_equal(v.found, again.found);
	leaf.kind = BACKEND_VERSION_NOW;
	v = seen_over("stripe", 2);
	assert_int_equal(v.kind, BACKEND_VERSION_NONE);
}

/* A part that has none does not hide the others'. */
static void test_joined_in_part(void **state)
{
	struct backend_device child[2] = { { .ops = &leaf_backend }, { .ops = &backend_null } };
	struct backend_device device = { .ops = backend_find("stripe"), .child = child };
	struct backend_version v, again;

	(void)state;
	child[0].sibling = &child[1];
	leaf = (struct backend_version){ BACKEND_VERSION_LASTING, "v1", "" };
	backend_version(&device, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_LASTING);
	strcpy(leaf.found, "v2");
	backend_version(&device, &again);
	assert_string_not_equal(v.found, again.found);
	/* Which part it is of counts. */
	child[0].ops = &backend_null;
	child[1].ops = &leaf_backend;
	backend_version(&device, &v);
	assert_string_not_equal(v.found, again.found);
	/* It changes by what is written through us. */
	strcpy(leaf.ours, "mine.");
	backend_version(&device, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_NONE);
	child[1].ops = &backend_null;
	backend_version(&device, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_NONE);
}

static void test_now(void **state)
{
	struct backend_device below = { .ops = &leaf_backend };
	struct backend_device device = { .ops = backend_find("throttle"), .child = &below };
	char words[BACKEND_VERSION_BYTES] = "";

	(void)state;
	assert_int_equal(backend_version_now(&device, words), 0);
	assert_string_equal(words, "now");
	below.ops = &backend_null;
	assert_int_equal(backend_version_now(&device, words), -EOPNOTSUPP);
}

/* Which leaves have one is in docs/durability.md too. */
static void test_leaves(void **state)
{
	static const char *const have[] = { "file", "http", "s3", "s3-disk" };

	(void)state;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		bool is_leaf = !(*b)->children || !(*b)->children->name, has = false;

		for (unsigned i = 0; i < ARRAY_SIZE(have); i++)
			has |= strcmp(have[i], (*b)->name) == 0;
		if (is_leaf && has != ((*b)->version != NULL))
			fail_msg("%s", (*b)->name);
	}
}

/* ---- has it moved? ---- */

static bool moved(const char *noted, const char *noted_ours, enum backend_version_kind kind,
		  const char *found)
{
	struct backend_version_note note = { "", "" };
	struct backend_version v = { .kind = kind };

	snprintf(note.found, sizeof(note.found), "%s", noted);
	snprintf(note.ours, sizeof(note.ours), "%s", noted_ours);
	snprintf(v.found, sizeof(v.found), "%s", found);
	return backend_version_has_moved(&note, &v);
}

static void test_moved(void **state)
{
	(void)state;
	assert_false(moved("a", "", BACKEND_VERSION_NOW, "a"));
	assert_true(moved("a", "", BACKEND_VERSION_NOW, "b"));
	assert_true(moved("a", "", BACKEND_VERSION_LASTING, "ab"));
	/* Nothing was noted, or there is nothing to compare with. */
	assert_false(moved("", "", BACKEND_VERSION_NOW, "b"));
	assert_false(moved("a", "", BACKEND_VERSION_NONE, ""));
	/* What was written through us. */
	assert_false(moved("a.1", "b.", BACKEND_VERSION_LASTING, "b.7"));
	assert_false(moved("a.1", "b.", BACKEND_VERSION_LASTING, "a.1"));
	assert_true(moved("a.1", "b.", BACKEND_VERSION_LASTING, "a.2"));
	assert_true(moved("a.1", "b.", BACKEND_VERSION_LASTING, "c.1"));
	assert_true(moved("a.1", "b.", BACKEND_VERSION_LASTING, "b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_passed_on), cmocka_unit_test(test_joined),
		cmocka_unit_test(test_now),	  cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_moved),	  cmocka_unit_test(test_joined_in_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
