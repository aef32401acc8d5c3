/* settings: stacks of backends, with the real filters. */
#include <errno.h>
#include <stdio.h>

#include "daemon/settings/settings.h"
#include "test/unit/daemon/settings_check.h"
#include "ublk/device/device.h"

#define STACK_A                                                                                    \
	"name: a\n"                                                                                \
	"backend:\n"                                                                               \
	"  type: throttle\n"                                                                       \
	"  total_iops_sec: 8000\n"                                                                 \
	"  backend:\n"                                                                             \
	"    type: delay\n"                                                                        \
	"    all: 1ms\n"                                                                           \
	"    backend: {type: file, path: /nowhere/x, direct: on}\n"

static void test_stack(void **state)
{
	struct settings s;
	const struct device_settings *d;

	(void)state;
	settings_check_parse(&s, STACK_A, "");
	d = s.devices[0];
	assert_string_equal(d->stack, "throttle > delay > file");
	assert_string_equal(d->backend->child->child->ops->name, "file");
	assert_null(d->backend->child->child->child);
	assert_string_equal(d->resources.all[0].path, "/nowhere/x");
	settings_free(&s);
}

/* The error of "thro", which is near to no name: all of the registry. */
static const char *unknown_type(char text[static 1000])
{
	int len = snprintf(text, 1000, "f:2:40: type: \"thro\" is not one of ");

	for (const struct backend *const *b = backend_registry; *b; b++)
		len += snprintf(text + len, 1000 - (size_t)len, "%s%s", (*b)->name,
				b[1] ? ", " : "\n");
	return text;
}

static void test_errors_of_all_levels(void **state)
{
	char text[1000];

	(void)state;
	settings_check(
		"name: a\n"
		"backend:\n"
		"  type: throttle\n"
		"  total_iops_sec: 8000\n"
		"  total_iops_sec_max: 7500\n"
		"  backend:\n"
		"    type: delay\n"
		"    al: 1ms\n"
		"    backend: {type: file, pth: /x}\n",
		"f:5:23: total_iops_sec_max: 7500 cannot be lower than total_iops_sec: 8000\n"
		"f:8:5: unknown key \"al\" (did you mean \"all\"?)\n"
		"f:9:14: \"path\" is missing\n"
		"f:9:27: unknown key \"pth\" (did you mean \"path\"?)\n");
	settings_check("name: a\nbackend: {type: throttle}\n",
		       "f:2:10: \"backend\" is missing: throttle stands over other backends\n");
	settings_check("name: a\nbackend: {type: delay, backend: mem}\n",
		       "f:2:33: backend: expected a map, for example {type: mem, size: 1GiB}\n");
	settings_check("name: a\nbackend: {type: delay, backend: {type: thro}}\n",
		       unknown_type(text));
	settings_check("name: a\nbackend: {type: mem, size: 1M, backend: {type: mem, size: 1M}}\n",
		       "f:2:41: backend: mem is no filter, nothing can stand below it\n");
	settings_check("name: a\nbackend: {type: delay, bakend: {type: null}}\n",
		       "f:2:10: \"backend\" is missing: delay stands over other backends\n"
		       "f:2:24: unknown key \"bakend\" (did you mean \"backend\"?)\n");
}

/* filter_nr of them over null. */
static void stack_of(char *text, size_t bytes, unsigned filter_nr)
{
	size_t len = (size_t)snprintf(text, bytes, "name: a\nbackend: ");

	for (unsigned i = 0; i < filter_nr; i++)
		len += (size_t)snprintf(text + len, bytes - len, "{type: delay, backend: ");
	len += (size_t)snprintf(text + len, bytes - len, "{type: null}");
	for (unsigned i = 0; i < filter_nr; i++)
		len += (size_t)snprintf(text + len, bytes - len, "}");
}

static void test_depth(void **state)
{
	struct settings s;
	const struct backend_spec *spec;
	unsigned depth = 0;
	char text[2048];

	(void)state;
	stack_of(text, sizeof(text), 7);
	settings_check_parse(&s, text, "");
	assert_string_equal(s.devices[0]->stack,
			    "delay > delay > delay > delay > delay > delay > delay > null");
	settings_free(&s);
	stack_of(text, sizeof(text), BACKEND_DEPTH_MAX - 1);
	settings_check_parse(&s, text, "");
	for (spec = s.devices[0]->backend; spec; spec = spec->child)
		depth++;
	assert_int_equal(depth, BACKEND_DEPTH_MAX);
	settings_free(&s);
	stack_of(text, sizeof(text), BACKEND_DEPTH_MAX);
	settings_check(text, "f:2:1482: backend: more than 64 above each other\n");
}

/* The file below is what two devices must not share. */
static void test_same_file_below(void **state)
{
	(void)state;
	settings_check(
		"- {name: a, backend: {type: file, path: /dev/null}}\n"
		"- {name: b, backend: {type: delay, backend: {type: file, path: /dev/null}}}\n",
		"f:2:64: path: \"/dev/null\" is the file of device \"a\" (line 1) too; they would "
		"destroy each other's data\n");
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

#define OVER_NULL(options) "name: a\nbackend: {type: delay, " options "backend: {type: null}}\n"

static void test_equal(void **state)
{
	(void)state;
	assert_true(equal(STACK_A, STACK_A));
	assert_true(equal(OVER_NULL("all: 1ms, "), OVER_NULL("all: 1000us, ")));
	assert_false(equal(OVER_NULL("all: 1ms, "), OVER_NULL("all: 2ms, ")));
	assert_false(equal(OVER_NULL(""), "name: a\nbackend: {type: null}\n"));
	assert_false(equal("name: a\nbackend: {type: null}\n", OVER_NULL("")));
	assert_false(equal(OVER_NULL(""),
			   "name: a\nbackend: {type: delay, backend: {type: null, size: 1M}}\n"));
	assert_false(equal(OVER_NULL(""), "name: a\nbackend: {type: error, backend: "
					  "{type: null}}\n"));
}

/* What stands behind each I/O of each level counts. */
static void test_memory(void **state)
{
	struct device_spec spec = { .queues = 2, .depth = 64, .max_io_bytes = 4096 };
	uint64_t bytes[3];
	struct settings s;
	char text[512];

	(void)state;
	for (unsigned filter_nr = 0; filter_nr < 3; filter_nr++) {
		stack_of(text, sizeof(text), filter_nr);
		settings_check_parse(&s, text, "");
		spec.backend = s.devices[0]->backend;
		bytes[filter_nr] = device_memory_max(&spec);
		settings_free(&s);
	}
	assert_true(bytes[1] - bytes[0] >= 2 * 64 * sizeof(struct backend_io));
	assert_int_equal(bytes[2] - bytes[1], bytes[1] - bytes[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stack), cmocka_unit_test(test_errors_of_all_levels),
		cmocka_unit_test(test_depth), cmocka_unit_test(test_same_file_below),
		cmocka_unit_test(test_equal), cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
