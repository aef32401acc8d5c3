/*
 * config without memory: every allocation fails once. Each run must end in -ENOMEM, or as it would
 * have ended with memory, and under ASan leak nothing. The allocations of config's own files are
 * counted: the linker puts the functions below in their place (test/CMakeLists.txt); libyaml's own
 * are not reached.
 */
#include "config_check.h"

#include <stdio.h>

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

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t nr, size_t bytes);
void *__wrap_reallocarray(void *old, size_t nr, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
FILE *__wrap_open_memstream(char **ret_text, size_t *ret_bytes);

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

/* What says that all went well must have gone well. */
static void check_sample(const struct sample *s, const struct yaml_node *root)
{
	const struct yaml_node *size = yaml_get(root, "size");

	assert_string_equal(s->name, "x y");
	assert_int_equal(s->size, size ? MIB(1) : 0);
	assert_int_equal(s->cpus.nr, yaml_get(root, "cpus") ? 4 : 2);
	assert_int_equal(s->cpus.cpu[1], 1);
	assert_ptr_equal(s->backend, yaml_get(root, "backend"));
}

static int read_sample(const struct yaml_node *root, struct config_errors *e)
{
	const struct config_pos pos = { 1, 1 };
	struct sample s;
	int err = option_parse(table, root, NULL, &s, sizeof(s), e);

	if (err == 0)
		err = option_set(table, "name", "\"x y\"", pos, &s, e);
	if (err == 0)
		check_sample(&s, root);
	option_free(table, &s);
	return err;
}

/* Returns the worst of all steps; *ret_text is what would be printed. */
static int run(const char *yaml, char **ret_text)
{
	struct config_errors e;
	struct yaml_doc doc;
	int err, option_err = 0;

	config_errors_init(&e, "f");
	err = yaml_parse(&doc, yaml, strlen(yaml), &e);
	if (err != -ENOMEM) {
		assert_int_equal(err == -EINVAL, config_errors_any(&e));
		option_err = doc.root ? read_sample(doc.root, &e) : -EINVAL;
	}
	*ret_text = config_errors_text(&e);
	yaml_doc_free(&doc);
	config_errors_fini(&e);
	return err == -ENOMEM || option_err == -ENOMEM ? -ENOMEM : err ? err : option_err;
}

/* Fails the 1st, 2nd ... allocation, until a run needs fewer. Returns how many there are. */
static unsigned fail_each(const char *yaml, int expected)
{
	for (fail_at = 1;; fail_at++) {
		char *text;
		int err;

		allocations = 0;
		err = run(yaml, &text);
		free(text);
		if (allocations < fail_at) {
			assert_int_equal(err, expected);
			return fail_at - 1;
		}
		/* The file's name and the text of errors can be missing, and the rest go well. */
		if (err != -ENOMEM)
			assert_int_equal(err, expected);
	}
}

static void test_good_document(void **state)
{
	(void)state;
	assert_true(fail_each("id: 1\nname: &n disk\nsize: 1M\ncpus: 0-3\n"
			      "backend: {<<: {a: 1, b: *n}, list: [1, 2, {}, []]}\n",
			      0) > 30);
	fail_at = 0;
}

/* Everything is a default. */
static void test_short_document(void **state)
{
	(void)state;
	assert_true(fail_each("id: 1\n", 0) > 15);
	assert_true(fail_each("", -EINVAL) > 5);
	fail_at = 0;
}

static void test_bad_document(void **state)
{
	(void)state;
	assert_true(fail_each("name: a\nname: b\nsize: !x 1\nbackend: {<<: 1, <<: {}}\n", -EINVAL) >
		    20);
	assert_true(fail_each("size: x\nsiez: 1\ncpus: [0, x]\nbackend: 3\nname: &n [*n\n",
			      -EINVAL) > 10);
	fail_at = 0;
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
		cmocka_unit_test(test_error_without_memory_is_counted),
	};

	return cmocka_run_group_tests_name("config_nomem", tests, NULL, NULL);
}
