/* Groups of an option table: their rows are as the table's own, wherever a table is walked. */
#include "test/rig/config_check.h"

#include <stdio.h>

#include "base/util.h"

struct innermost {
	char *user;
	uint64_t retries;
};

struct outage {
	uint64_t wait_ns;
	struct innermost login;
	uint64_t secret;
};

struct sample {
	uint64_t first;
	struct outage outage;
	char *last;
};

static const struct option login_options[] = {
	{ .name = "user",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct innermost, user),
	  .min = 1,
	  .flags = OPTION_REQUIRED,
	  .help = "Who." },
	{ .name = "retries",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct innermost, retries),
	  .max = 9,
	  .def = "3" },
	OPTION_END,
};

static const struct option outage_options[] = {
	{ .name = "wait",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct outage, wait_ns),
	  .def = "5s",
	  .help = "How long." },
	{ .type = OPTION_GROUP, .offset = offsetof(struct outage, login), .table = login_options },
	{ .name = "secret",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct outage, secret),
	  .flags = OPTION_HIDDEN },
	OPTION_END,
};

static const struct option table[] = {
	{ .name = "first", .type = OPTION_UINT, .offset = offsetof(struct sample, first) },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct sample, outage),
	  .table = outage_options },
	{ .name = "last", .type = OPTION_STRING, .offset = offsetof(struct sample, last) },
	OPTION_END,
};

/* errors "": it is accepted. For option_free. */
static struct sample parse(const char *text, const char *errors)
{
	struct config_check c;
	struct sample s;
	int ret;

	check_good(&c, text);
	ret = option_parse(table, c.doc.root, NULL, &s, sizeof(s), &c.errors);
	check_errors(&c.errors, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	check_fini(&c);
	return s;
}

static void refuse(const char *text, const char *errors)
{
	struct sample s = parse(text, errors);

	option_free(table, &s);
}

static void test_walk(void **state)
{
	static const struct {
		const char *name;
		size_t offset;
	} rows[] = {
		{ "first", offsetof(struct sample, first) },
		{ "wait", offsetof(struct sample, outage.wait_ns) },
		{ "user", offsetof(struct sample, outage.login.user) },
		{ "retries", offsetof(struct sample, outage.login.retries) },
		{ "secret", offsetof(struct sample, outage.secret) },
		{ "last", offsetof(struct sample, last) },
	};
	struct option_walk walk;
	size_t nr = 0;

	(void)state;
	option_for_each (&walk, table) {
		assert_true(nr < ARRAY_SIZE(rows));
		assert_string_equal(walk.row->name, rows[nr].name);
		assert_int_equal(walk.offset, rows[nr].offset);
		nr++;
	}
	assert_int_equal(nr, ARRAY_SIZE(rows));
}

/* Nothing but groups, and one without rows at the end. */
static void test_walk_only_groups(void **state)
{
	static const struct option none[] = { OPTION_END };
	static const struct option groups[] = {
		{ .type = OPTION_GROUP, .table = none },
		{ .type = OPTION_GROUP, .offset = 16, .table = login_options },
		{ .type = OPTION_GROUP, .table = none },
		OPTION_END,
	};
	struct option_walk walk;

	(void)state;
	option_walk_begin(&walk, groups);
	assert_string_equal(walk.row->name, "user");
	assert_int_equal(walk.offset, 16 + offsetof(struct innermost, user));
	option_walk_next(&walk);
	assert_string_equal(walk.row->name, "retries");
	option_walk_next(&walk);
	assert_null(walk.row);
	option_walk_begin(&walk, none);
	assert_null(walk.row);
}

static void test_parse(void **state)
{
	struct sample s = parse("{last: z, user: ann, wait: 2m, first: 1}", "");

	(void)state;
	assert_int_equal(s.first, 1);
	assert_int_equal(s.outage.wait_ns, 120 * NS_PER_SEC);
	assert_string_equal(s.outage.login.user, "ann");
	assert_int_equal(s.outage.login.retries, 3);
	assert_string_equal(s.last, "z");
	option_free(table, &s);
	assert_null(s.outage.login.user);
	assert_null(s.last);
	s = parse("{user: bob, retries: 9, wait: null}", "");
	assert_int_equal(s.outage.wait_ns, 5 * NS_PER_SEC);
	assert_int_equal(s.outage.login.retries, 9);
	option_free(table, &s);
}

static void test_refused(void **state)
{
	(void)state;
	refuse("first: 1\n", "f:1:1: \"user\" is missing\n");
	refuse("user:\n", "f:1:1: user: has no value\n");
	refuse("first: 1\nuser: ann\nretries: 10\n",
	       "f:3:10: retries: 10 is above the maximum 9\n");
	refuse("user: ann\nretires: 1\n",
	       "f:2:1: unknown key \"retires\" (did you mean \"retries\"?)\n");
	refuse("user: ann\nwiat: 1s\nlats: x\n",
	       "f:2:1: unknown key \"wiat\" (did you mean \"wait\"?)\n"
	       "f:3:1: unknown key \"lats\" (did you mean \"last\"?)\n");
	/* Hidden in a group, too. */
	refuse("user: ann\nsecrte: 1\n", "f:2:1: unknown key \"secrte\"\n");
}

static void test_key_value(void **state)
{
	struct sample s = { 0 };
	struct config_errors e;
	struct config_pos pos = { 0 };

	(void)state;
	config_errors_init(&e, "f");
	assert_int_equal(option_set(table, "user", "a", pos, &s, &e), 0);
	assert_int_equal(option_set(table, "user", "b", pos, &s, &e), 0);
	assert_int_equal(option_set(table, "wait", "1s", pos, &s, &e), 0);
	check_errors(&e, "");
	assert_string_equal(s.outage.login.user, "b");
	assert_int_equal(s.outage.wait_ns, NS_PER_SEC);
	assert_int_equal(option_set(table, "usr", "c", pos, &s, &e), -EINVAL);
	assert_int_equal(e.nr, 1);
	assert_string_equal(e.list[0].message, "unknown key \"usr\" (did you mean \"user\"?)");
	config_errors_fini(&e);
	option_free(table, &s);
}

static void test_equal(void **state)
{
	static const char *const texts[] = { "{user: a}", "{user: b}", "{user: a, wait: 1s}",
					     "{user: a, retries: 1}", "{user: a, last: x}" };
	const unsigned nr = ARRAY_SIZE(texts);

	(void)state;
	for (unsigned i = 0; i < nr * nr; i++) {
		struct sample a = parse(texts[i / nr], ""), b = parse(texts[i % nr], "");

		assert_int_equal(option_equal(table, &a, &b), i / nr == i % nr);
		option_free(table, &a);
		option_free(table, &b);
	}
}

static void test_manual(void **state)
{
	char text[500] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	option_write_man(table, out);
	fclose(out);
	assert_string_equal(text, ".TP\n\\fBfirst\\fR (number)\n"
				  ".TP\n\\fBwait\\fR (duration; default 5s)\nHow long.\n"
				  ".TP\n\\fBuser\\fR (text, not empty; required)\nWho.\n"
				  ".TP\n\\fBretries\\fR (number, 0 to 9; default 3)\n"
				  ".TP\n\\fBlast\\fR (text)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk),	  cmocka_unit_test(test_walk_only_groups),
		cmocka_unit_test(test_parse),	  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_key_value), cmocka_unit_test(test_equal),
		cmocka_unit_test(test_manual),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
