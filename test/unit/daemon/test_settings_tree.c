/* settings: a made-up node with named children, of which one is only read. */
#include <errno.h>
#include <stdio.h>

#include "daemon/settings/settings.h"
#include "storage/registry.h"
#include "storage/spec.h"
#include "test/unit/daemon/settings_check.h"

static const char *const words[] = { "auto", "none", NULL };

static const struct backend_child_option image_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "It is written." },
	{ .name = "backing",
	  .nr_max = 1,
	  .read_only = true,
	  .words = words,
	  .help = "It is only read." },
	{ .name = NULL },
};

static const struct option no_options[] = { OPTION_END };

static const struct backend image = { .name = "image",
				      .options = no_options,
				      .children = image_children };

/* In the place of backends/registry.c. */
const struct backend *const backend_registry[] = { &backend_null, &backend_file, &image, NULL };

const struct backend *backend_find(const char *name)
{
	(void)name;
	return NULL;
}

#define OVER(name, path, base)                                                                     \
	"- {name: " name ", backend: {type: image, data: {type: file, path: " path                 \
	"}, backing: {type: file, path: " base "}}}\n"

static void test_files_that_are_only_read(void **state)
{
	(void)state;
	settings_check(OVER("a", "/x/a", "/x/base") OVER("b", "/x/b", "/x/base"), "");
	settings_check(
		OVER("a", "/x/a", "/x/base") "- {name: b, read_only: true, backend: {type: file, "
					     "path: /x/base}}\n",
		"");
	settings_check(
		OVER("a", "/x/a", "/x/base") OVER("b", "/x/base", "/x/c"),
		"f:2:61: path: \"/x/base\" is the file of device \"a\" (line 1) too; they would "
		"destroy each other's data\n");
	settings_check(
		OVER("a", "/x/a", "/x/a"),
		"f:1:96: path: \"/x/a\" is the file of two backends of this device; they would "
		"destroy each other's data\n");
}

#define WITH(backing) "{name: a, backend: {type: image, data: {type: null}" backing "}}\n"

/* The device's, again from the JSON of its note. */
static void check_word(const char *text, const char *word)
{
	char *from_json;
	struct settings s, again;
	json_t *json;

	settings_check_parse(&s, text, "");
	json = device_settings_json(s.devices[0]);
	from_json = device_json_text(json);
	settings_check_parse(&again, from_json, "");
	assert_true(device_settings_equal(s.devices[0], again.devices[0]));
	for (unsigned i = 0; i < 2; i++) {
		const struct backend_spec *spec = (i ? &again : &s)->devices[0]->backend;

		assert_ptr_equal(backend_spec_word(spec, &image_children[1]), word);
		assert_null(backend_spec_word(spec, &image_children[0]));
		assert_string_equal(spec->child->ops->name, "null");
		assert_null(spec->child->sibling);
	}
	free(from_json);
	json_decref(json);
	settings_free(&s);
	settings_free(&again);
}

static void test_words(void **state)
{
	(void)state;
	check_word(WITH(", backing: auto"), words[0]);
	check_word(WITH(", backing: none"), words[1]);
	check_word(WITH(""), NULL);
	settings_check(WITH(", backing: atuo"),
		       "f:1:63: backing: \"atuo\" is not one of auto, none (did you "
		       "mean \"auto\"?)\n");
	settings_check(WITH(", backing: [auto]"),
		       "f:1:63: backend: expected a map, for example {type: mem, size: 1GiB}\n");
	settings_check("{name: a, backend: {type: image, data: auto}}\n",
		       "f:1:40: backend: expected a map, for example {type: mem, size: 1GiB}\n");
}

static bool equal(const char *a, const char *b)
{
	struct settings x, y;
	bool is_equal;

	settings_check_parse(&x, a, "");
	settings_check_parse(&y, b, "");
	is_equal = device_settings_equal(x.devices[0], y.devices[0]);
	settings_free(&x);
	settings_free(&y);
	return is_equal;
}

static void test_words_are_compared(void **state)
{
	(void)state;
	assert_true(equal(WITH(", backing: auto"), WITH(", backing: auto")));
	assert_false(equal(WITH(", backing: auto"), WITH(", backing: none")));
	assert_false(equal(WITH(", backing: auto"), WITH("")));
	assert_false(equal(WITH(", backing: auto"), WITH(", backing: {type: null}")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_that_are_only_read),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_words_are_compared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
