/* settings: a made-up node with named children, of which one is only read. */
#include <errno.h>
#include <stdio.h>

#include "daemon/settings/settings.h"
#include "storage/registry.h"
#include "test/rig/config_check.h"

static const struct backend_child_option image_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "It is written." },
	{ .name = "backing", .nr_max = 1, .read_only = true, .help = "It is only read." },
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

/* Reads devices as ublkctl add sends them. "": no errors. */
static void parse(struct settings *s, const char *text, const char *errors)
{
	struct config_errors e;
	int ret;

	config_errors_init(&e, "f");
	ret = settings_parse_devices(s, text, strlen(text), &e);
	check_errors(&e, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	config_errors_fini(&e);
}

static void check(const char *text, const char *errors)
{
	struct settings s;

	parse(&s, text, errors);
	settings_free(&s);
}

#define OVER(name, path, base)                                                                     \
	"- {name: " name ", backend: {type: image, data: {type: file, path: " path                 \
	"}, backing: {type: file, path: " base "}}}\n"

static void test_files_that_are_only_read(void **state)
{
	(void)state;
	check(OVER("a", "/x/a", "/x/base") OVER("b", "/x/b", "/x/base"), "");
	check(OVER("a", "/x/a", "/x/base") "- {name: b, read_only: true, backend: {type: file, "
					   "path: /x/base}}\n",
	      "");
	check(OVER("a", "/x/a", "/x/base") OVER("b", "/x/base", "/x/c"),
	      "f:2:61: path: \"/x/base\" is the file of device \"a\" (line 1) too; they would "
	      "destroy each other's data\n");
	check(OVER("a", "/x/a", "/x/a"),
	      "f:1:96: path: \"/x/a\" is the file of two backends of this device; they would "
	      "destroy each other's data\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_that_are_only_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
