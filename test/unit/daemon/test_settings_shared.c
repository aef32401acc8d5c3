/* settings: what devices share is the same for all of them, and its files are no clash;
 * and what is not shared, but one export. */
#include "storage/sharing.h"
#include "storage/spec.h"
#include "test/unit/daemon/settings_check.h"

#define CACHE(origin, store)                                                                       \
	"{type: cache, store: {type: file, path: " store "}, backend: {type: file, path: " origin  \
	"}}"
#define SHARED(name, below) "{type: shared, name: " name ", backend: " below "}"
#define DEVICE(name, options, backend) "- {name: " name ", " options "backend: " backend "}\n"

static void test_one_tree(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "", SHARED("s", CACHE("/x/o", "/x/c"))),
		       "");
	/* Other options of the devices, and what is above it, do not matter. */
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "depth: 16, ",
				      "{type: delay, all: 1ms, backend: " SHARED(
					      "s", CACHE("/x/o", "/x/c")) "}"),
		       "");
}

#define ANOTHER(what)                                                                              \
	"f:2:10: shared: \"s\" has another " what " in device \"a\" (line 1): say the same one, "  \
	"or use another name\n"

static void test_another_tree(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "", SHARED("s", "{type: pattern}"))
			       DEVICE("b", "", SHARED("s", "{type: \"null\"}")),
		       ANOTHER("backend"));
	/* One option is enough, of any node. */
	settings_check(DEVICE("a", "", SHARED("s", "{type: pattern, size: 1M}"))
			       DEVICE("b", "", SHARED("s", "{type: pattern, size: 2M}")),
		       ANOTHER("backend"));
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "", SHARED("s", "{type: file, path: /x/o}")),
		       ANOTHER("backend"));
	settings_check(DEVICE("a", "", SHARED("s", "{type: pattern, size: 1M}"))
			       DEVICE("b", "", SHARED("t", "{type: pattern, size: 2M}")),
		       "");
}

/* In one device. */
static void test_another_tree_beside(void **state)
{
	static const char words[] = "f:1:10: shared: \"s\" has another backend in the same device: "
				    "say the same one, or use another name\n";

	(void)state;
	settings_check(
		DEVICE("a", "",
		       "{type: stripe, backends: [" SHARED(
			       "s", "{type: pattern, size: 1M}") ", " SHARED("s",
									     "{type: pattern, "
									     "size: 2M}") "]}"),
		words);
	settings_check(DEVICE("a", "", SHARED("s", SHARED("s", "{type: pattern}"))), words);
	settings_check(
		DEVICE("a", "",
		       "{type: stripe, backends: [" SHARED("s", "{type: pattern}") ", " SHARED(
			       "s", "{type: pattern}") "]}"),
		"");
}

/* Also where it stands below others. */
static void test_another_tree_deep_down(void **state)
{
	(void)state;
	settings_check(
		DEVICE("a", "",
		       "{type: stripe, backends: [" SHARED("t", "{type: pattern}") ", " SHARED(
			       "s", "{type: pattern, size: 1M}") "]}")
			DEVICE("b", "",
			       "{type: delay, all: 1ms, backend: " SHARED(
				       "s", "{type: pattern, size: 2M}") "}"),
		ANOTHER("backend"));
}

static void test_another_block_size(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "", SHARED("s", "{type: pattern}"))
			       DEVICE("b", "block_size: 4096, ", SHARED("s", "{type: pattern}")),
		       ANOTHER("block_size"));
	settings_check(DEVICE("a", "block_size: 4096, ", SHARED("s", "{type: pattern}"))
			       DEVICE("b", "block_size: 4096, ", SHARED("s", "{type: pattern}")),
		       "");
	/* Nothing is shared. */
	settings_check(DEVICE("a", "", SHARED("s", "{type: pattern}"))
			       DEVICE("b", "block_size: 4096, ", SHARED("t", "{type: pattern}")),
		       "");
}

/* ---- files ---- */

#define FILE_OF_BOTH(position, path)                                                               \
	"f:" position ": path: \"" path "\" is the file of device \"a\" (line 1) too; they would " \
	"destroy each other's data\n"

/* The store is written, by what is shared. */
static void test_store_used_outside(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "", "{type: file, path: /x/c}"),
		       FILE_OF_BOTH("2:41", "/x/c"));
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "read_only: true, ", "{type: file, path: /x/c}"),
		       FILE_OF_BOTH("2:58", "/x/c"));
	/* By two of them. */
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "", SHARED("t", CACHE("/x/o", "/x/c"))),
		       FILE_OF_BOTH("2:95", "/x/c"));
}

/* The origin is only read: a clash with who writes it. */
static void test_origin_used_outside(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "", "{type: file, path: /x/o}"),
		       FILE_OF_BOTH("2:41", "/x/o"));
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "read_only: true, ", "{type: file, path: /x/o}"),
		       "");
	settings_check(DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c")))
			       DEVICE("b", "", SHARED("t", CACHE("/x/o", "/x/d"))),
		       "");
}

/* What is above what is shared is the device's own. */
static void test_store_above(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "",
			      "{type: cache, store: {type: file, path: /x/c}, backend: " SHARED(
				      "s", "{type: file, path: /x/o}") "}")
			       DEVICE("b", "",
				      "{type: cache, store: {type: file, path: /x/c}, "
				      "backend: " SHARED("s", "{type: file, path: /x/o}") "}"),
		       FILE_OF_BOTH("2:62", "/x/c"));
}

/* The store of a cache is written, whatever the device is. */
static void test_store_of_read_only_devices(void **state)
{
	(void)state;
	settings_check(DEVICE("a", "read_only: true, ", CACHE("/x/o", "/x/c"))
			       DEVICE("b", "read_only: true, ", CACHE("/x/o", "/x/c")),
		       FILE_OF_BOTH("2:79", "/x/c"));
	settings_check(DEVICE("a", "read_only: true, ", CACHE("/x/o", "/x/c"))
			       DEVICE("b", "read_only: true, ", CACHE("/x/o", "/x/d")),
		       "");
}

/* ---- leaves and names ---- */

static void test_leaf_places(void **state)
{
	struct backend_leaf_place origin = { 0 }, store = { 0 };
	const struct backend_spec *first, *second;
	struct settings s;

	(void)state;
	settings_check_parse(&s, DEVICE("a", "", SHARED("s", CACHE("/x/o", "/x/c"))), "");
	first = backend_spec_leaf_at(s.devices[0]->backend, 0, &store);
	second = backend_spec_leaf_at(s.devices[0]->backend, 1, &origin);
	if (strcmp(backend_spec_leaf_path(first), "/x/o") == 0) {
		const struct backend_leaf_place swapped = store;

		store = origin;
		origin = swapped;
	}
	assert_non_null(second);
	assert_true(origin.is_only_read);
	assert_false(store.is_only_read);
	assert_ptr_equal(origin.shared, s.devices[0]->backend);
	assert_ptr_equal(store.shared, s.devices[0]->backend);
	settings_free(&s);
}

/* ---- an export, that nothing locks ---- */

#define EXPORT "{type: nbd, uri: \"nbd://h/x\"}"
#define CACHED(origin) "{type: cache, store: {type: file, path: /x/c}, backend: " origin "}"

static void test_one_export(void **state)
{
	static const char words[] =
		"f:2:39: uri: \"nbd://h/x\" is the storage of device \"a\" (line "
		"1) too; they would destroy each other's data\n";

	(void)state;
	settings_check(DEVICE("a", "", CACHED(EXPORT)) DEVICE("b", "", EXPORT), words);
	settings_check(DEVICE("a", "", CACHED(EXPORT))
			       DEVICE("b", "", "{type: nbd, uri: \"nbd://h/y\"}"),
		       "");
	/* Bytes and no more, or read by both. */
	settings_check(DEVICE("a", "", EXPORT) DEVICE("b", "", EXPORT), "");
	settings_check(DEVICE("a", "read_only: true, ", CACHED(EXPORT))
			       DEVICE("b", "read_only: true, ", EXPORT),
		       "");
	/* As the origin and the store of one cache. */
	settings_check("- {name: a, backend: {type: cache, store: " EXPORT ", backend: " EXPORT
		       "}}\n",
		       "f:1:60: uri: \"nbd://h/x\" is the storage of two backends of this device; "
		       "they would destroy each other's data\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_tree),
		cmocka_unit_test(test_another_tree),
		cmocka_unit_test(test_another_tree_beside),
		cmocka_unit_test(test_another_tree_deep_down),
		cmocka_unit_test(test_another_block_size),
		cmocka_unit_test(test_store_used_outside),
		cmocka_unit_test(test_origin_used_outside),
		cmocka_unit_test(test_store_above),
		cmocka_unit_test(test_store_of_read_only_devices),
		cmocka_unit_test(test_leaf_places),
		cmocka_unit_test(test_one_export),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
