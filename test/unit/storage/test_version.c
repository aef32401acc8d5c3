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

static int leaf_now_ret;
static const char *leaf_now_words = "now";

static int leaf_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	(void)device;
	if (leaf_now_ret == 0)
		snprintf(words, BACKEND_VERSION_BYTES, "%s", leaf_now_words);
	return leaf_now_ret;
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
	static const char *const hides[] = { "zoned", "integrity" };
	struct backend_version v;

	(void)state;
	leaf = (struct backend_version){ .kind = BACKEND_VERSION_LASTING,
					 .found = "v1",
					 .ours = "mine." };
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

/* A stripe over two parts: a leaf, and another one or what has no version. */
static struct backend_device part[2];
static struct backend_device joined = { .child = part };

static void join_parts(const struct backend *first, const struct backend *second)
{
	joined.ops = backend_find("stripe");
	part[0] = (struct backend_device){ .ops = first, .sibling = &part[1] };
	part[1] = (struct backend_device){ .ops = second };
}

static void expect_words_change(char words[BACKEND_VERSION_BYTES], const char *now)
{
	assert_string_not_equal(words, now);
	snprintf(words, BACKEND_VERSION_BYTES, "%s", now);
}

static void test_joined(void **state)
{
	struct backend_version v, again;

	(void)state;
	leaf = (struct backend_version){ .kind = BACKEND_VERSION_LASTING, .found = "v1" };
	join_parts(&leaf_backend, &leaf_backend);
	backend_version(&joined, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_LASTING);
	assert_string_equal(v.ours, "");
	assert_string_equal(v.lasting, v.found);
	backend_version(&joined, &again);
	assert_string_equal(v.found, again.found);
	/* What overlays have noted of it. */
	assert_string_equal(v.found, "stripe 62c9f084fb5dacf6");
	strcpy(leaf.found, "v2");
	backend_version(&joined, &again);
	expect_words_change(v.found, again.found);
}

/* A part that has none does not hide the others'. */
static void test_joined_in_part(void **state)
{
	struct backend_version v, again;

	(void)state;
	leaf = (struct backend_version){ .kind = BACKEND_VERSION_LASTING, .found = "v1" };
	join_parts(&leaf_backend, &backend_null);
	backend_version(&joined, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_LASTING);
	strcpy(leaf.found, "v2");
	backend_version(&joined, &again);
	expect_words_change(v.found, again.found);
	/* Which part it is of counts. */
	join_parts(&backend_null, &leaf_backend);
	backend_version(&joined, &again);
	expect_words_change(v.found, again.found);
	/* What comes of our writes is not known. */
	strcpy(leaf.ours, "mine.");
	backend_version(&joined, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_NONE);
	assert_string_equal(v.found, "");
	join_parts(&backend_null, &backend_null);
	backend_version(&joined, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_NONE);
}

/* Files, say: it is as the next opening finds it. */
static void expect_joined_now(void)
{
	struct backend_version v, again;
	char now[BACKEND_VERSION_BYTES];

	join_parts(&leaf_backend, &backend_null);
	backend_version(&joined, &v);
	assert_int_equal(v.kind, BACKEND_VERSION_NOW);
	assert_string_equal(v.ours, "");
	assert_string_equal(v.lasting, "");
	assert_int_equal(backend_version_now(&joined, now), 0);
	assert_string_not_equal(v.found, now);
	strcpy(leaf.found, "now");
	backend_version(&joined, &again);
	assert_string_equal(again.found, now);
	leaf_now_ret = -EIO;
	assert_int_equal(backend_version_now(&joined, now), -EIO);
	leaf_now_ret = 0;
}

static void test_joined_now(void **state)
{
	(void)state;
	leaf = (struct backend_version){ .kind = BACKEND_VERSION_NOW, .found = "v1" };
	expect_joined_now();
	leaf = (struct backend_version){ .kind = BACKEND_VERSION_LASTING,
					 .found = "v1",
					 .ours = "mine.",
					 .is_known_now = true };
	expect_joined_now();
}

static void once_found(const struct backend_device *device, struct backend_version *ret)
{
	(void)device;
	*ret = (struct backend_version){ .kind = BACKEND_VERSION_LASTING, .found = "once" };
}

/* Beside a part that changes: what can be noted for good is that of the others. */
static void test_joined_lasting(void **state)
{
	static const struct backend_version_ops once_ops = { .found = once_found };
	static const struct backend once = { .name = "once", .version = &once_ops };
	struct backend_version mixed, alone;

	(void)state;
	leaf = (struct backend_version){ .kind = BACKEND_VERSION_NOW, .found = "v1" };
	join_parts(&leaf_backend, &once);
	backend_version(&joined, &mixed);
	assert_int_equal(mixed.kind, BACKEND_VERSION_NOW);
	join_parts(&backend_null, &once);
	backend_version(&joined, &alone);
	assert_int_equal(alone.kind, BACKEND_VERSION_LASTING);
	assert_string_equal(mixed.lasting, alone.found);
	backend_version_only_lasting(&mixed);
	assert_int_equal(mixed.kind, BACKEND_VERSION_LASTING);
	assert_string_equal(mixed.found, alone.found);
	join_parts(&leaf_backend, &leaf_backend);
	backend_version(&joined, &mixed);
	backend_version_only_lasting(&mixed);
	assert_int_equal(mixed.kind, BACKEND_VERSION_NONE);
	assert_string_equal(mixed.found, "");
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
	join_parts(&backend_null, &backend_null);
	assert_int_equal(backend_version_now(&joined, words), -EOPNOTSUPP);
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
		cmocka_unit_test(test_passed_on),  cmocka_unit_test(test_joined),
		cmocka_unit_test(test_now),	   cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_moved),	   cmocka_unit_test(test_joined_in_part),
		cmocka_unit_test(test_joined_now), cmocka_unit_test(test_joined_lasting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
