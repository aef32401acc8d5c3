/* The option tables of every backend and of the daemon: what the compiler cannot see in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/settings/settings.h"
#include "storage/registry.h"
#include "storage/word.h"

#define KEYS_MAX 64

/* Of one map of the configuration. */
struct keys {
	const char *name[KEYS_MAX];
	size_t nr;
};

static void add_key(struct keys *keys, const char *owner, const char *name)
{
	for (size_t i = 0; i < keys->nr; i++)
		if (strcmp(keys->name[i], name) == 0)
			fail_msg("%s: the key %s stands twice", owner, name);
	assert_true(keys->nr < KEYS_MAX);
	keys->name[keys->nr++] = name;
}

/* With all its groups, and the tables of its maps, which have keys of their own. */
static void add_table(struct keys *keys, const char *owner, const struct option *table)
{
	struct option_walk walk;

	option_for_each (&walk, table) {
		struct keys inner = { .nr = 0 };

		add_key(keys, owner, walk.row->name);
		if (walk.row->type == OPTION_MAP)
			add_table(&inner, walk.row->name, walk.row->table);
	}
}

/* storage/spec.c takes `type`, `backend` and the children before the table is asked. */
static void test_keys_once(void **state)
{
	struct keys daemon = { .nr = 0 }, device = { .nr = 0 };

	(void)state;
	add_table(&daemon, "daemon", settings_daemon_options);
	add_table(&device, "devices", settings_device_options);
	for (const struct backend *const *b = backend_registry; *b; b++) {
		struct keys keys = { .nr = 0 };
		const struct backend_child_option *child = (*b)->children;

		add_key(&keys, (*b)->name, "type");
		for (; child && child->name; child++)
			add_key(&keys, (*b)->name, child->name);
		if (!(*b)->children)
			add_key(&keys, (*b)->name, "backend");
		add_table(&keys, (*b)->name, (*b)->options);
	}
}

static void test_words_of_children(void **state)
{
	(void)state;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		const struct backend_child_option *first = (*b)->children, *c = first;

		for (; c && c->name; c++)
			if (c->words && c->nr_max > 1)
				fail_msg("%s: %s is a list with words", (*b)->name, c->name);
		if (c && c - first > BACKEND_CHILD_OPTIONS_MAX)
			fail_msg("%s has more kinds of children than fit", (*b)->name);
	}
}

/* Those who use such a row know only its own offset. */
static void check_own_row(const struct backend *ops, const struct option *row)
{
	struct option_walk walk;

	if (!row)
		return;
	option_for_each (&walk, ops->options)
		if (walk.row == row)
			break;
	if (walk.row != row || walk.offset != row->offset)
		fail_msg("%s: %s is no row of its table, or one of a group", ops->name, row->name);
}

static void test_own_rows(void **state)
{
	(void)state;
	for (const struct backend *const *b = backend_registry; *b; b++) {
		check_own_row(*b, (*b)->size_option);
		check_own_row(*b, (*b)->path_option);
		check_own_row(*b, (*b)->uri ? (*b)->uri->option : NULL);
	}
}

/* Every field lies in the struct that the core allocates for it. */
static void test_fields_inside(void **state)
{
	struct option_walk walk;

	(void)state;
	for (const struct backend *const *b = backend_registry; *b; b++)
		option_for_each (&walk, (*b)->options)
			if (walk.offset >= (*b)->config_bytes)
				fail_msg("%s: %s lies behind its struct", (*b)->name,
					 walk.row->name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_once),
		cmocka_unit_test(test_words_of_children),
		cmocka_unit_test(test_own_rows),
		cmocka_unit_test(test_fields_inside),
	};

	return cmocka_run_group_tests_name("option_tables", tests, NULL, NULL);
}
