/*
 * config without memory: every allocation fails once. Each run must end in -ENOMEM, or as it would
 * have ended with memory, and under ASan leak nothing. The allocations of config's own files are
 * counted: the linker puts the functions below in their place (test/CMakeLists.txt); libyaml's own
 * are not reached.
 */
#include "test/rig/config_check.h"

#include <search.h>
#include <stdio.h>
#include <unistd.h>

#include <yaml.h>

#include "base/util.h"

static unsigned fail_at; /* 0: never */
static unsigned allocations;

static bool must_fail(void)
{
	return ++allocations == fail_at;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t nr, size_t bytes);
void *__real_reallocarray(void *old, size_t nr, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t bytes);
FILE *__real_open_memstream(char **ret_text, size_t *ret_bytes);
void *__real_tsearch(const void *key, void **root, int (*compare)(const void *, const void *));
int __real_yaml_parser_initialize(yaml_parser_t *parser);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t nr, size_t bytes);
void *__wrap_reallocarray(void *old, size_t nr, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
FILE *__wrap_open_memstream(char **ret_text, size_t *ret_bytes);
void *__wrap_tsearch(const void *key, void **root, int (*compare)(const void *, const void *));
int __wrap_yaml_parser_initialize(yaml_parser_t *parser);

void *__wrap_malloc(size_t bytes)
{
	return must_fail() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t nr, size_t bytes)
{
	return must_fail() ? NULL : __real_calloc(nr, bytes);
}

void *__wrap_reallocarray(void *old, size_t nr, size_t bytes)
{
	return must_fail() ? NULL : __real_reallocarray(old, nr, bytes);
}

char *__wrap_strdup(const char *text)
{
	return must_fail() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t bytes)
{
	return must_fail() ? NULL : __real_strndup(text, bytes);
}

FILE *__wrap_open_memstream(char **ret_text, size_t *ret_bytes)
{
	return must_fail() ? NULL : __real_open_memstream(ret_text, ret_bytes);
}

void *__wrap_tsearch(const void *key, void **root, int (*compare)(const void *, const void *))
{
	return must_fail() ? NULL : __real_tsearch(key, root, compare);
}

int __wrap_yaml_parser_initialize(yaml_parser_t *parser)
{
	return must_fail() ? 0 : __real_yaml_parser_initialize(parser);
}

struct sample {
	char *name;
	uint64_t id, size;
	struct option_cpus cpus;
	struct yaml_node *backend;
};

static const struct option table[] = {
	{ .name = "name",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct sample, name),
	  .def = "'a b'" },
	{ .name = "size", .type = OPTION_SIZE, .offset = offsetof(struct sample, size) },
	{ .name = "cpus",
	  .type = OPTION_CPUS,
	  .offset = offsetof(struct sample, cpus),
	  .def = "[0, 1]" },
	{ .name = "backend", .type = OPTION_NODE, .offset = offsetof(struct sample, backend) },
	{ .name = "id",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct sample, id),
	  .flags = OPTION_REQUIRED },
	OPTION_END,
};

/* A document read and its options; filled by run. */
struct result {
	struct yaml_doc doc;
	struct config_errors errors;
	struct sample sample;
	int err; /* the worst of all steps */
};

static int worse(int a, int b)
{
	return a == -ENOMEM || b == -ENOMEM ? -ENOMEM : a ? a : b;
}

/* From a file when path is not NULL, otherwise from text. */
static void run(struct result *r, const char *text, const char *path)
{
	const struct config_pos pos = { 1, 1 };

	memset(r, 0, sizeof(*r));
	config_errors_init(&r->errors, "f");
	if (path)
		r->err = yaml_parse_file(&r->doc, path, &r->errors);
	else
		r->err = yaml_parse(&r->doc, text, strlen(text), &r->errors);
	if (r->err == -ENOMEM)
		return;
	assert_int_equal(r->err == -EINVAL, config_errors_any(&r->errors));
	if (!r->doc.root)
		return;
	r->err = worse(r->err, option_parse(table, r->doc.root, NULL, &r->sample, sizeof(r->sample),
					    &r->errors));
	r->err = worse(r->err, option_set(table, "name", "\"x y\"", pos, &r->sample, &r->errors));
}

static void result_fini(struct result *r)
{
	option_free(table, &r->sample);
	yaml_doc_free(&r->doc);
	config_errors_fini(&r->errors);
}

/* What says that it went as it would have with memory, must have gone so. */
static void check_same(struct result *r, struct result *expected)
{
	if (r->err == -ENOMEM)
		return;
	assert_int_equal(r->err, expected->err);
	assert_int_equal(r->doc.root != NULL, expected->doc.root != NULL);
	if (r->doc.root) {
		assert_int_equal(r->doc.root->kind, YAML_MAP);
		assert_true(option_equal(table, &r->sample, &expected->sample));
	}
	assert_int_equal(r->errors.nr + r->errors.dropped_nr, expected->errors.nr);
}

/* Fails the 1st, 2nd ... allocation, until a run needs fewer. Returns how many there are. */
static unsigned fail_each(const char *text, const char *path, int expected_err)
{
	struct result expected, r;
	unsigned nr = 0;

	fail_at = 0;
	run(&expected, text, path);
	assert_int_equal(expected.err, expected_err);
	do {
		fail_at = ++nr;
		allocations = 0;
		run(&r, text, path);
		free(config_errors_text(&r.errors));
		fail_at = 0;
		check_same(&r, &expected);
		result_fini(&r);
	} while (allocations >= nr);
	result_fini(&expected);
	return nr - 1;
}

static const char good_text[] = "id: 1\nname: &n disk\nsize: 1M\ncpus: 0-3\n"
				"backend: {<<: {a: 1, b: *n}, list: [1, 2, {}, []]}\n";

static void test_good_document(void **state)
{
	(void)state;
	assert_true(fail_each(good_text, NULL, 0) > 30);
}

/* Everything is a default. */
static void test_short_document(void **state)
{
	(void)state;
	assert_true(fail_each("id: 1\n", NULL, 0) > 15);
	assert_true(fail_each("", NULL, -EINVAL) > 5);
}

static void test_bad_document(void **state)
{
	(void)state;
	assert_true(fail_each("name: a\nname: b\nsize: !x 1\nbackend: {<<: 1, <<: {}}\n", NULL,
			      -EINVAL) > 20);
	assert_true(fail_each("id: 1\nid: 2\n", NULL, -EINVAL) > 10);
	/* Refused first, and then without memory for the rest. */
	assert_true(fail_each("id: x\nname: abc\ncpus: 0-3\n", NULL, -EINVAL) > 10);
	assert_true(fail_each("size: x\nsiez: 1\ncpus: [0, x]\nbackend: 3\nname: &n [*n\n", NULL,
			      -EINVAL) > 10);
}

static void test_file(void **state)
{
	char path[] = "/tmp/test_nomem.XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, good_text, strlen(good_text)), strlen(good_text));
	close(fd);
	assert_true(fail_each(NULL, path, 0) > 30);
	unlink(path);
}

/* An error that finds no memory is counted: it must not look as if there were none. */
static void test_error_without_memory_is_counted(void **state)
{
	struct config_errors e;

	(void)state;
	for (unsigned i = 1; i <= 2; i++) {
		char *text;

		fail_at = 0;
		config_errors_init(&e, "f");
		allocations = 0;
		fail_at = i;
		config_errors_add(&e, (struct config_pos){ 1, 1 }, "x");
		fail_at = 0;
		assert_true(config_errors_any(&e));
		text = config_errors_text(&e);
		assert_string_equal(text, "f: 1 more errors are not shown\n");
		free(text);
		config_errors_fini(&e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_document),
		cmocka_unit_test(test_short_document),
		cmocka_unit_test(test_bad_document),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_error_without_memory_is_counted),
	};

	return cmocka_run_group_tests_name("config_nomem", tests, NULL, NULL);
}
